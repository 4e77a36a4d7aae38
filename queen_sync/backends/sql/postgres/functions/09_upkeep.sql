-- Upkeep, a little at a time; each function is a transaction of its own, so that one bad row holds up no
-- other (O-09).

-- One sweeper at a time: each step of a sweep is done by the process that gets its lock, for one
-- transaction; the others leave it out. Tried, never waited for; a process that dies lets go of it.
create or replace function queen.may_sweep(p_step text) returns boolean language sql volatile as $$
    select pg_try_advisory_xact_lock(hashtextextended('queen sweep ' || p_step, 6632))
$$;

-- The next lanes that a step of the sweep has to look at: `expire`, those whose lease ran out; `evict`,
-- those that hold something too old to be delivered. Looks at p_limit rows at most, group by group in the
-- order in which pops would take them, and keeps in queen.upkeep how far it got: the next call, of whichever
-- process, goes on there, so that no crowd of rows in front hides the ones behind it. p_more: the pass is
-- not over. Pops take expired leases back and evict by themselves; the sweep makes it visible where nobody
-- pops.
create or replace function queen.next_lanes(
    p_step text, p_limit integer, p_now timestamptz,
    out partition_ids bigint[], out group_ids bigint[], out more boolean
) language plpgsql volatile
set jit = off set enable_seqscan = off set enable_bitmapscan = off set enable_sort = off as $$
#variable_conflict use_column
declare
    u queen.upkeep;
    g record;
    x record;
    v_at timestamptz;
    v_group_ids bigint[] := '{}';
    v_groups integer := 0;
    v_room integer := p_limit;
begin
    perform queen.require_read_committed();
    partition_ids := '{}';
    more := false;
    if not queen.may_sweep(p_step) then
        group_ids := '{}';
        return;
    end if;
    v_at := coalesce(p_now, clock_timestamp());
    select * into u from queen.upkeep y where y.step = p_step;
    if not u.under_way then
        u.began_at := v_at; u.group_id := 0; u.ready_at := '-infinity'; u.partition_id := 0;
    end if;
    for g in
        select y.id, v_at - make_interval(secs => least(nullif(q.ttl_seconds, 0), nullif(q.max_wait_seconds, 0))) as old
        from queen.consumer_groups y
        join queen.queues q on q.id = y.queue_id and q.deleted_at is null
        where y.id >= u.group_id and (p_step = 'expire' or q.ttl_seconds > 0 or q.max_wait_seconds > 0)
        order by y.id limit p_limit
    loop
        if g.id > u.group_id then
            u.group_id := g.id; u.ready_at := '-infinity'; u.partition_id := 0;
        end if;
        v_groups := v_groups + 1;
        -- What is due holds every lease that ran out; too old may also be what is leased or put off.
        for x in select l.partition_id, l.ready_at, l.lease_id, l.position, l.redriven_count
            from queen.partition_leases l
            where l.group_id = g.id and (l.ready_at, l.partition_id) > (u.ready_at, u.partition_id)
                and l.ready_at <= case when p_step = 'expire' then v_at else 'infinity' end
            order by l.ready_at, l.partition_id limit v_room
        loop
            v_room := v_room - 1;
            u.ready_at := x.ready_at; u.partition_id := x.partition_id;
            if p_step = 'expire' then
                continue when x.lease_id is null;
            else
                continue when not (
                    coalesce((
                        select m.created_at from queen.messages m
                        where m.partition_id = x.partition_id and m.seq = x.position + 1
                    ) <= g.old, false)
                    or (x.redriven_count > 0 and exists (
                        select 1 from queen.dead_letters d
                        where d.partition_id = x.partition_id and d.group_id = g.id and d.redriven_at <= g.old
                    ))
                );
            end if;
            partition_ids := partition_ids || x.partition_id;
            v_group_ids := v_group_ids || g.id;
        end loop;
        more := v_room <= 0;
        exit when more;
    end loop;
    more := more or v_groups = p_limit;
    group_ids := v_group_ids;
    update queen.upkeep y
    set began_at = u.began_at, under_way = more, group_id = u.group_id, ready_at = u.ready_at,
        partition_id = u.partition_id
    where y.step = p_step and (y.under_way or more);
end $$;

-- Take one of them back; the row is judged again under its lock. True if there was one to take back.
create or replace function queen.expire_lease(p_partition bigint, p_group bigint, p_now timestamptz)
returns boolean language plpgsql volatile set jit = off as $$
declare
    r queen.partition_leases;
    q queen.queues;
    v_expired timestamptz;
begin
    perform queen.require_read_committed();
    select l.* into r from queen.partition_leases l
    where l.partition_id = p_partition and l.group_id = p_group for no key update skip locked;
    if r.lease_id is null or r.lease_expires_at > coalesce(p_now, clock_timestamp()) then
        return false;
    end if;
    select y.* into q from queen.consumer_groups g
    join queen.queues y on y.id = g.queue_id and y.deleted_at is null where g.id = p_group;
    if not found then
        return false;
    end if;
    v_expired := r.lease_expires_at; -- it keeps its place in the line
    r := queen.expire(r, q, coalesce(p_now, clock_timestamp()));
    r.ready_at := queen.next_ready(r, q, v_expired);
    perform queen.store(r);
    return true;
end $$;

-- Remove what deleted queues left behind, p_limit rows at a time. Returns how many. The partitions are
-- locked first, as everywhere: a push that was in flight when its queue was deleted holds its partition
-- and may be waiting for a lease row. It is passed over, and what it stored goes with the next sweep.
-- Lease rows go before what acks write under their locks.
create or replace function queen.remove_leftovers(p_limit integer) returns bigint
language plpgsql volatile as $$
declare
    v_count bigint;
    v_total bigint := 0;
    v_partitions bigint[];
begin
    if not queen.may_sweep('leftovers') then
        return 0;
    end if;
    select array_agg(x.id) into v_partitions from (
        select p.id from queen.partitions p
        join queen.queues q on q.id = p.queue_id
        where q.deleted_at is not null order by p.id limit 100
        for update of p skip locked
    ) x;
    delete from queen.messages m using (
        select y.partition_id, y.seq from queen.messages y
        where y.partition_id = any (v_partitions) limit p_limit
    ) x where m.partition_id = x.partition_id and m.seq = x.seq;
    get diagnostics v_total = row_count;
    if v_total < p_limit then
        perform 1 from queen.partition_leases l where l.partition_id = any (v_partitions)
        order by l.partition_id, l.group_id for update;
        delete from queen.partition_leases l where l.partition_id = any (v_partitions);
        delete from queen.retries r where r.partition_id = any (v_partitions);
        delete from queen.dead_letters d where d.partition_id = any (v_partitions);
        delete from queen.traces t where t.partition_id = any (v_partitions);
        delete from queen.position_marks m where m.partition_id = any (v_partitions);
        delete from queen.partitions p where p.id = any (v_partitions);
        get diagnostics v_count = row_count;
        v_total := v_total + v_count;
        delete from queen.consumer_groups g using queen.queues q
        where q.id = g.queue_id and q.deleted_at is not null;
        with gone as (
            delete from queen.queues q
            where q.deleted_at is not null
                and not exists (select 1 from queen.partitions p where p.queue_id = q.id)
            returning q.id
        )
        delete from queen.removals r using gone where r.queue_id = gone.id;
    end if;
    return v_total;
end $$;

-- Claims over several partitions that no lease row carries any more.
create or replace function queen.remove_claims(p_limit integer) returns bigint
language plpgsql volatile as $$
declare
    v_total bigint;
begin
    if not queen.may_sweep('claims') then
        return 0;
    end if;
    delete from queen.claims c using (
        select y.lease_id from queen.claims y
        where not exists (
            select 1 from queen.partition_leases l
            where l.partition_id = any (y.partition_ids)
                and (l.lease_id = y.lease_id or l.closed_lease_id = y.lease_id)
        )
        order by y.created_at limit p_limit
    ) x where c.lease_id = x.lease_id;
    get diagnostics v_total = row_count;
    return v_total;
end $$;

-- Two things that must never be found among some partitions: a row without ready_at in front of stored
-- messages, and a partition without a row of a registered group. Repairs both and returns how many there were.
create or replace function queen.repair_partitions(p_partitions bigint[], p_now timestamptz) returns bigint
language plpgsql volatile as $$
declare
    v_flags bigint;
    v_rows bigint;
begin
    -- Judged by a look without locks, then again under the partition's lock: a push in between is no fault.
    with suspect as materialized (
        select l.partition_id from queen.partition_leases l
        join queen.partitions p on p.id = l.partition_id
        where l.partition_id = any (p_partitions) and l.ready_at is null and l.position < p.last_seq
    ), held as materialized (
        select p.id, p.last_seq from queen.partitions p
        where p.id in (select s.partition_id from suspect s) order by p.id for share skip locked
    ), lost as materialized (
        select l.partition_id, l.group_id from queen.partition_leases l
        join held h on h.id = l.partition_id
        where l.ready_at is null and l.position < h.last_seq
        order by l.partition_id, l.group_id for no key update of l skip locked
    )
    update queen.partition_leases l set ready_at = coalesce(p_now, clock_timestamp())
    from lost where l.partition_id = lost.partition_id and l.group_id = lost.group_id and l.ready_at is null;
    get diagnostics v_flags = row_count;
    insert into queen.partition_leases (partition_id, group_id, position, settled, ready_at)
    select p.id, g.id, p.first_seq - 1, p.holes, coalesce(p_now, clock_timestamp())
    from queen.partitions p
    join queen.queues q on q.id = p.queue_id and q.deleted_at is null
    join queen.consumer_groups g on g.queue_id = q.id
    where p.id = any (p_partitions) and g.registered and not exists (
        select 1 from queen.partition_leases l where l.partition_id = p.id and l.group_id = g.id
    )
    order by 1, 2
    on conflict do nothing;
    get diagnostics v_rows = row_count;
    return v_flags + v_rows;
end $$;

-- The self check, p_limit partitions at a time, by their numbers. A pass begins p_interval_seconds after the
-- last one began, whichever process that was in, and is gone on with by whoever sweeps next. A clock that
-- stands before the last pass cannot tell how long ago it was: it begins one.
create or replace function queen.repair_some(
    p_limit integer, p_interval_seconds integer, p_now timestamptz, out repaired bigint, out more boolean
) language plpgsql volatile set jit = off set enable_seqscan = off as $$
#variable_conflict use_column
declare
    u queen.upkeep;
    v_at timestamptz;
    v_partitions bigint[];
begin
    perform queen.require_read_committed();
    repaired := 0;
    more := false;
    if not queen.may_sweep('repair') then
        return;
    end if;
    v_at := coalesce(p_now, clock_timestamp());
    select * into u from queen.upkeep y where y.step = 'repair';
    if not u.under_way then
        if v_at >= u.began_at and v_at < u.began_at + make_interval(secs => p_interval_seconds) then
            return;
        end if;
        u.began_at := v_at;
        u.partition_id := 0;
    end if;
    select array_agg(x.id order by x.id) into v_partitions from (
        select p.id from queen.partitions p where p.id > u.partition_id order by p.id limit p_limit
    ) x;
    if v_partitions is not null then
        repaired := queen.repair_partitions(v_partitions, p_now);
    end if;
    more := coalesce(cardinality(v_partitions), 0) = p_limit;
    update queen.upkeep y
    set began_at = u.began_at, under_way = more, found_count = y.found_count + repaired,
        partition_id = coalesce(v_partitions[p_limit], 0)
    where y.step = 'repair';
end $$;

-- The same over the whole store in one transaction, whenever it was done last.
create or replace function queen.repair(p_now timestamptz) returns bigint language plpgsql volatile as $$
begin
    perform queen.require_read_committed();
    return queen.repair_partitions(array(select p.id from queen.partitions p), p_now);
end $$;

create or replace function queen.evict_old(p_partition bigint, p_group bigint, p_now timestamptz)
returns bigint language plpgsql volatile set jit = off as $$
declare
    r queen.partition_leases;
    q queen.queues;
    v_found record;
    v_last bigint;
    v_at timestamptz;
    v_start timestamptz;
    v_position bigint;
begin
    perform queen.require_read_committed();
    select l.* into r from queen.partition_leases l
    where l.partition_id = p_partition and l.group_id = p_group for no key update skip locked;
    if not found then
        return 0;
    end if;
    v_at := coalesce(p_now, clock_timestamp());
    select y.* into q from queen.consumer_groups g
    join queen.queues y on y.id = g.queue_id and y.deleted_at is null where g.id = p_group;
    if not found or (r.lease_id is not null and r.lease_expires_at <= v_at) then
        return 0; -- an expired lease is taken back first
    end if;
    select p.last_seq into v_last from queen.partitions p where p.id = p_partition;
    v_position := r.position;
    select g.skip_before into v_start from queen.consumer_groups g where g.id = p_group;
    if v_start is not null then
        r := queen.skip_to_start(r, v_last, v_start);
    end if;
    select e.r as r, e.evicted into v_found from queen.evict(r, q, v_last, v_at) e;
    r := v_found.r;
    if r.position <> v_position or v_found.evicted > 0 then
        if r.lease_id is null then
            r.ready_at := queen.next_ready(r, q, v_at);
        end if;
        perform queen.store(r);
    end if;
    return v_found.evicted;
end $$;
