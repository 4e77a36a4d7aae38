-- How queues, groups and lanes stand. Nothing here takes a lock, and nothing counts messages: all is told from
-- positions, added up here, so that a queue of 100,000 partitions is one row to whoever asks.

-- One row per queue; p_queue null: all of them. What waits in a partition is what some group has still to
-- settle. Where its lanes have only their positions to tell (nearly all do) that is what lies behind the lowest;
-- only the others need their sets of seqs to be united. A lane without ready_at has nothing left. Lanes are
-- looked up partition by partition, by primary key: joined as a whole they are at the mercy of an estimate,
-- which for one queue of 100,000 partitions took minutes instead of half a second.
create or replace function queen.queue_stats(p_queue text, p_now timestamptz)
returns table (
    name text, partitions bigint, leased bigint, pushed bigint, stored bigint, waiting bigint, in_flight bigint,
    retrying bigint, dead bigint
) language sql volatile set jit = off as $$
    select q.name, count(*), count(*) filter (where b.leased), sum(p.last_seq)::bigint, sum(s.stored)::bigint,
        sum(w.waiting)::bigint, sum(least(coalesce(b.in_flight, 0), w.waiting))::bigint,
        coalesce(sum(b.retrying), 0)::bigint, (
            select count(*) from queen.dead_letters d
            join queen.consumer_groups g on g.id = d.group_id and g.registered
            where d.queue_name = q.name and d.queue_id = q.id and d.redriven_at is null
        )
    from (
        select x.id, x.name,
            not exists (select 1 from queen.consumer_groups g where g.queue_id = x.id)
                or exists (select 1 from queen.consumer_groups g where g.queue_id = x.id and not g.registered) as whole
        from queen.queues x
        where x.deleted_at is null and (p_queue is null or x.name = p_queue)
    ) q
    join queen.partitions p on p.queue_id = q.id
    left join lateral (
        select min(l.position) as position,
            bool_and(
                l.settled = '{}' and l.redriven_count = 0 and (l.sought or g.skip_before is null)
            ) as plain,
            bool_or(l.lease_expires_at > coalesce(p_now, clock_timestamp())) as leased,
            max(queen.size(l.open)) filter (
                where l.lease_expires_at > coalesce(p_now, clock_timestamp())
            ) as in_flight,
            sum(case when l.retrying then (
                select count(*) from queen.retries y
                where y.partition_id = l.partition_id and y.group_id = l.group_id
                    and (l.lease_expires_at > coalesce(p_now, clock_timestamp()) and l.open @> y.seq) is not true
            ) end) as retrying
        from queen.partition_leases l
        join queen.consumer_groups g on g.id = l.group_id and g.registered
        where l.partition_id = p.id and l.ready_at is not null
    ) b on true
    cross join lateral (
        select p.last_seq - p.first_seq + 1 - case when p.holes = '{}' then 0 else queen.size(p.holes) end as stored
    ) s
    cross join lateral (
        select case
            when q.whole then s.stored
            when b.position is null then 0
            when b.plain then p.last_seq - greatest(b.position, p.first_seq - 1)
            else (
                select queen.size(range_agg(x))
                from queen.partition_leases l
                join queen.consumer_groups g on g.id = l.group_id and g.registered,
                    unnest(
                        queen.waiting(l, p, g.skip_before)
                        + case when l.redriven_count > 0
                            then queen.redriven(l) * queen.span(p.first_seq, p.last_seq) else '{}' end
                    ) x
                where l.partition_id = p.id and l.ready_at is not null
            )
        end as waiting
    ) w
    group by q.id, q.name
    order by q.name
$$;

-- The first seq from which on something waits for the group, and how much that is. Where a lane has nothing but
-- its position to tell, as nearly all have, that is a subtraction, and multiranges are left alone. A stable
-- function that returns a table is inlined, so its rows are not built either.
create or replace function queen.behind(
    l queen.partition_leases, p queen.partitions, p_skip_before timestamptz
) returns table (first bigint, size bigint) language sql stable as $$
    select coalesce(lower(x.waiting), l.position + 1),
        case when x.waiting is null then p.last_seq - l.position else queen.size(x.waiting) end
    from (
        select case when l.settled <> '{}' or (p_skip_before is not null and not l.sought)
            then queen.waiting(l, p, p_skip_before) end as waiting
    ) x
$$;

-- When the oldest message from p_first on was made; null: there is none.
create or replace function queen.waiting_since(p_partition bigint, p_first bigint) returns timestamptz
language sql stable as $$
    select m.created_at from queen.messages m
    where m.partition_id = p_partition and m.seq >= p_first order by m.seq limit 1
$$;

-- One row per queue and registered group; null: any. The lag is arithmetic; how old the oldest waiting message
-- is costs one look by primary key for each lane that has work.
create or replace function queen.group_stats(p_group text, p_queue text, p_now timestamptz)
returns table (
    queue_name text, name text, mode text, start_at timestamptz, created_at timestamptz, partitions bigint,
    lagging bigint, leased bigint, batch bigint, lag bigint, in_flight bigint, retrying bigint, dead bigint,
    oldest_waiting timestamptz, taken_at timestamptz
) language sql volatile set jit = off as $$
    select q.name, g.name, g.mode, g.start_at, g.created_at, count(*),
        count(*) filter (where b.size + l.redriven_count > 0), count(h.batch),
        coalesce(sum(queen.size(h.batch)), 0)::bigint, coalesce(sum(b.size + l.redriven_count), 0)::bigint,
        coalesce(sum(queen.size(h.open)), 0)::bigint,
        coalesce(sum(case when l.retrying then (
            select count(*) from queen.retries y
            where y.partition_id = l.partition_id and y.group_id = l.group_id and (h.open @> y.seq) is not true
        ) end), 0)::bigint, (
            select count(*) from queen.dead_letters d
            where d.queue_name = q.name and d.group_id = g.id and d.redriven_at is null
        ),
        min(case when b.size > 0 then queen.waiting_since(l.partition_id, b.first) end), max(l.taken_at)
    from queen.queues q
    join queen.consumer_groups g on g.queue_id = q.id and g.registered
    join queen.partitions p on p.queue_id = q.id
    join queen.partition_leases l on l.partition_id = p.id and l.group_id = g.id
    left join lateral queen.behind(l, p, g.skip_before) b on l.ready_at is not null
    left join lateral (select l.open, l.batch) h on l.lease_expires_at > coalesce(p_now, clock_timestamp())
    where q.deleted_at is null and (p_queue is null or q.name = p_queue) and (p_group is null or g.name = p_group)
    group by q.id, g.id
    order by g.name, q.name
$$;

-- A page of lanes of registered groups. Only the orders by lag and by age, and the filter on age, need a
-- figure of every lane in the scope; the rest is worked out for the page alone.
create or replace function queen.list_lanes(
    p_queue text, p_group text, p_partition text, p_leased boolean, p_since timestamptz, p_order text,
    p_limit integer, p_offset integer, p_now timestamptz
) returns table (
    queue_name text, partition_name text, partition_id bigint, group_name text, passed bigint, lag bigint,
    in_flight bigint, leased bigint, lease_expires_at timestamptz, oldest_waiting timestamptz,
    taken_at timestamptz
) language sql volatile set jit = off as $$
    with lane as materialized (
        select q.name as queue_name, p.name as partition_name, g.name as group_name, l.partition_id, l.group_id,
            b.size + l.redriven_count as lag,
            case when b.size > 0 and (p_order = 'age' or p_since is not null)
                then queen.waiting_since(l.partition_id, b.first) end as oldest,
            case when l.lease_expires_at > coalesce(p_now, clock_timestamp()) then l.lease_expires_at end as expires
        from queen.queues q
        join queen.consumer_groups g on g.queue_id = q.id and g.registered
        join queen.partitions p on p.queue_id = q.id
        join queen.partition_leases l on l.partition_id = p.id and l.group_id = g.id
        left join lateral queen.behind(l, p, g.skip_before) b
            on l.ready_at is not null and (p_order in ('lag', 'age') or p_since is not null)
        where q.deleted_at is null and (p_queue is null or q.name = p_queue)
            and (p_group is null or g.name = p_group) and (p_partition is null or p.name = p_partition)
            and (not p_leased or l.lease_expires_at > coalesce(p_now, clock_timestamp()))
    ), page as materialized (
        select z.*, case when p_order = 'lag' then -coalesce(z.lag, 0) end as behind,
            case p_order when 'age' then z.oldest when 'expiry' then z.expires end as instant
        from lane z
        where p_since is null or z.oldest <= p_since
        order by behind, instant nulls last, z.queue_name, z.partition_name, z.group_name
        limit p_limit offset p_offset
    )
    select z.queue_name, z.partition_name, z.partition_id, z.group_name, p.last_seq - b.size,
        b.size + l.redriven_count, case when z.expires is null then 0 else queen.size(l.open) end,
        case when z.expires is null then 0 else queen.size(l.batch) end, z.expires,
        case when b.size > 0 then queen.waiting_since(l.partition_id, b.first) end, l.taken_at
    from page z
    join queen.partitions p on p.id = z.partition_id
    join queen.partition_leases l on l.partition_id = z.partition_id and l.group_id = z.group_id
    join queen.consumer_groups g on g.id = z.group_id
    cross join lateral queen.behind(l, p, g.skip_before) b
    order by z.behind, z.instant nulls last, z.queue_name, z.partition_name, z.group_name
$$;
