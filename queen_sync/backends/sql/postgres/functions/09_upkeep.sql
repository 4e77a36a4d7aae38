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
    update queen.partition_leases l
    set position = r.position, settled = r.settled, retrying = r.retrying,
        ready_at = queen.next_ready(r, q, v_expired),
        lease_id = null, lease_expires_at = null, alone = false, batch = '{}', open = '{}',
        failed = null, returned = null, dead = null
    where l.partition_id = p_partition and l.group_id = p_group;
    return true;
end $$;

-- Remove what deleted queues and groups left behind, p_limit rows of each kind. Returns how many.
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
    ) x;
    delete from queen.messages m using (
        select y.partition_id, y.seq from queen.messages y
        where y.partition_id = any (v_partitions) limit p_limit
    ) x where m.partition_id = x.partition_id and m.seq = x.seq;
    get diagnostics v_total = row_count;
    if v_total < p_limit then
        delete from queen.retries r where r.partition_id = any (v_partitions);
        delete from queen.dead_letters d where d.partition_id = any (v_partitions);
        delete from queen.partition_leases l where l.partition_id = any (v_partitions);
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
    insert into queen.partition_leases (partition_id, group_id, position, ready_at)
    select p.id, g.id, p.first_seq - 1, coalesce(p_now, clock_timestamp())
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
