-- Upkeep, a little at a time and one sweeper at a time; each function is a transaction of its own, so
-- that one bad row holds up no other (O-09).

-- Leases that ran out, some of each group. Pops take them back by themselves; the sweep makes it
-- visible where nobody pops.
create or replace function queen.expired_leases(p_limit integer, p_now timestamptz)
returns table (partition_id bigint, group_id bigint) language sql volatile set jit = off as $$
    select x.partition_id, x.group_id
    from queen.consumer_groups g, lateral (
        select l.partition_id, l.group_id, l.lease_id from queen.partition_leases l
        where l.group_id = g.id and l.ready_at <= coalesce(p_now, clock_timestamp())
        order by l.ready_at, l.partition_id limit p_limit
    ) x
    where x.lease_id is not null
$$;

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
        delete from queen.queues q
        where q.deleted_at is not null
            and not exists (select 1 from queen.partitions p where p.queue_id = q.id);
    end if;
    return v_total;
end $$;

-- Claims over several partitions that no lease row carries any more.
create or replace function queen.remove_claims(p_limit integer) returns bigint
language plpgsql volatile as $$
declare
    v_total bigint;
begin
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

-- Two things that must never be found: a row without ready_at in front of stored messages, and a
-- partition without a row of a registered group. Repairs both and returns how many there were.
create or replace function queen.repair(p_now timestamptz) returns bigint
language plpgsql volatile as $$
declare
    v_flags bigint;
    v_rows bigint;
begin
    perform queen.require_read_committed();
    -- Judged by a look without locks, then again under the partition's lock: a push in between is no fault.
    with suspect as materialized (
        select l.partition_id from queen.partition_leases l
        join queen.partitions p on p.id = l.partition_id
        where l.ready_at is null and l.position < p.last_seq
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
    from queen.consumer_groups g
    join queen.queues q on q.id = g.queue_id and q.deleted_at is null
    join queen.partitions p on p.queue_id = q.id
    where g.registered and not exists (
        select 1 from queen.partition_leases l where l.partition_id = p.id and l.group_id = g.id
    )
    order by 1, 2
    on conflict do nothing;
    get diagnostics v_rows = row_count;
    return v_flags + v_rows;
end $$;

-- The rows of a queue that hold something too old to be delivered, some at a time.
create or replace function queen.evictable(p_limit integer, p_now timestamptz)
returns table (partition_id bigint, group_id bigint) language sql volatile set jit = off as $$
    with old as materialized (
        select q.id, coalesce(p_now, clock_timestamp())
            - make_interval(secs => least(nullif(q.ttl_seconds, 0), nullif(q.max_wait_seconds, 0))) as until
        from queen.queues q
        where q.deleted_at is null and (q.ttl_seconds > 0 or q.max_wait_seconds > 0)
    )
    select l.partition_id, l.group_id
    from old o
    join queen.consumer_groups g on g.queue_id = o.id
    join queen.partition_leases l on l.group_id = g.id and l.ready_at is not null
    where (
            select m.created_at from queen.messages m
            where m.partition_id = l.partition_id and m.seq = l.position + 1
        ) <= o.until
        or (l.redriven_count > 0 and exists (
            select 1 from queen.dead_letters d
            where d.partition_id = l.partition_id and d.group_id = l.group_id and d.redriven_at <= o.until
        ))
    limit p_limit
$$;

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

-- Partitions of queues with retention that hold something that it may name.
create or replace function queen.retained_partitions(p_now timestamptz) returns setof bigint
language sql volatile set jit = off as $$
    select p.id from queen.queues q
    join queen.partitions p on p.queue_id = q.id
    where q.deleted_at is null and q.retention_enabled
        and (q.retention_seconds > 0 or q.completed_retention_seconds > 0)
        and p.last_seq >= p.first_seq
    order by p.id
$$;

-- Remove a prefix of a partition, p_limit messages at most (C-09): what is older than retention_seconds,
-- read or not, and what every group had settled completed_retention_seconds ago. Neither reaches into
-- a live lease's batch. first_seq and all positions move past what goes in the same transaction, so that
-- depth and lag stay arithmetic. Returns how many went.
create or replace function queen.retain(p_partition bigint, p_limit integer, p_now timestamptz)
returns bigint language plpgsql volatile set jit = off as $$
declare
    p queen.partitions;
    q queen.queues;
    r queen.partition_leases;
    v_at timestamptz;
    v_expired timestamptz;
    v_settled bigint;
    v_barrier bigint;
    v_done bigint;
    v_aged bigint;
    v_to bigint;
    v_gone bigint;
begin
    perform queen.require_read_committed();
    select * into p from queen.partitions x where x.id = p_partition;
    select * into q from queen.queues x where x.id = p.queue_id and x.deleted_at is null for share;
    if not found or not q.retention_enabled then
        return 0;
    end if;
    select * into p from queen.partitions x where x.id = p_partition for no key update skip locked;
    if not found then
        return 0; -- a push holds it, for as long as its caller likes; there is another sweep
    end if;
    perform 1 from queen.partition_leases l where l.partition_id = p_partition
    order by l.group_id for no key update;
    v_at := coalesce(p_now, clock_timestamp());
    -- While the messages are still there: one that ends here as a dead letter takes its copy along.
    for r in select * from queen.partition_leases l
        where l.partition_id = p_partition and l.lease_expires_at <= v_at order by l.group_id
    loop
        v_expired := r.lease_expires_at; -- it keeps its place in the line
        r := queen.expire(r, q, v_at);
        r.ready_at := queen.next_ready(r, q, v_expired);
        perform queen.store(r);
    end loop;
    select min(l.position), min(case
            when l.lease_id is not null and l.lease_expires_at > v_at and not l.redriving
            then lower(l.batch) - 1 end)
    into v_settled, v_barrier
    from queen.partition_leases l where l.partition_id = p_partition;

    -- A position has no time, so what is settled is noted now and then (ten times per period at most) and
    -- taken once the note is old enough: never early, a tenth and a sweep late at the most. Without groups
    -- nothing is settled.
    v_settled := coalesce(v_settled, p.first_seq - 1);
    v_done := p.first_seq - 1;
    if q.completed_retention_seconds > 0 then
        update queen.position_marks m set position = v_settled
        where m.partition_id = p_partition and m.position > v_settled;
        select greatest(v_done, max(m.position)) into v_done from queen.position_marks m
        where m.partition_id = p_partition
            and m.marked_at <= v_at - make_interval(secs => q.completed_retention_seconds);
        delete from queen.position_marks m where m.partition_id = p_partition and m.position <= v_done;
        if v_settled > v_done and not exists (
            select 1 from queen.position_marks m
            where m.partition_id = p_partition and (
                m.position = v_settled
                or m.marked_at > v_at - make_interval(secs => q.completed_retention_seconds / 10.0)
            )
        ) then
            insert into queen.position_marks values (p_partition, v_at, v_settled)
            on conflict do nothing;
        end if;
    end if;
    v_aged := p.first_seq - 1;
    if q.retention_seconds > 0 then
        v_aged := queen.seq_before(p_partition, p.first_seq, p.last_seq,
            v_at - make_interval(secs => q.retention_seconds) + interval '1 microsecond');
    end if;
    v_to := least(greatest(v_done, v_aged), v_barrier, p.first_seq - 1 + p_limit);
    if v_to < p.first_seq then
        return 0;
    end if;

    insert into queen.removals (queue_id, partition_name, kind, count, removed_at)
    select q.id, p.name, x.kind, x.count, v_at
    from (values
        ('completed', queen.size(queen.span(p.first_seq, least(v_to, v_done)) - p.holes)),
        ('expired', queen.size(queen.span(greatest(v_done + 1, p.first_seq), v_to) - p.holes))
    ) x(kind, count)
    where x.count > 0;
    delete from queen.messages m
    where m.partition_id = p_partition and m.seq >= p.first_seq and m.seq <= v_to;
    delete from queen.traces t where t.partition_id = p_partition and t.seq <= v_to;
    v_gone := queen.size(queen.span(p.first_seq, v_to) - p.holes);
    p.first_seq := v_to + 1;
    perform queen.store_holes(p);
    for r in select * from queen.partition_leases l
        where l.partition_id = p_partition and l.position < v_to order by l.group_id
    loop
        delete from queen.retries y
        where r.retrying and y.partition_id = p_partition and y.group_id = r.group_id and y.seq <= v_to
            and not exists (
                select 1 from queen.dead_letters d
                where d.partition_id = y.partition_id and d.group_id = y.group_id and d.seq = y.seq
            );
        r.retrying := r.retrying and exists (
            select 1 from queen.retries y where y.partition_id = p_partition and y.group_id = r.group_id
        );
        r := queen.advance_to(r, v_to);
        if r.lease_id is null then
            r.ready_at := queen.next_ready(r, q, v_at);
        end if;
        perform queen.store(r);
    end loop;
    return v_gone;
end $$;

-- The history is kept for a week.
create or replace function queen.forget_removals(p_limit integer, p_now timestamptz) returns bigint
language plpgsql volatile as $$
declare
    v_total bigint;
begin
    delete from queen.removals r using (
        select x.id from queen.removals x
        where x.removed_at < coalesce(p_now, clock_timestamp()) - interval '7 days' order by x.id limit p_limit
    ) y where r.id = y.id;
    get diagnostics v_total = row_count;
    return v_total;
end $$;
