-- Looking into the store. Nothing here takes a lock, and nothing counts messages: what is stored,
-- waiting or behind is told from positions.

-- A page of the partitions of a queue (p_limit null: all), each with its groups: one row per pair, or one
-- without a group. Lanes are looked up partition by partition: joined as wholes their number is only guessed,
-- and a page of 1,000 took seconds. Each `offset 0` keeps what is worked out once from being worked out again.
create or replace function queen.list_partitions(p_queue text, p_limit bigint, p_offset bigint, p_now timestamptz)
returns table (
    partition_id bigint, name text, created_at timestamptz, pushed bigint, stored bigint, waiting bigint,
    oldest timestamptz, newest timestamptz, group_name text, lag bigint, in_flight bigint, retrying bigint,
    dead bigint, lease_expires_at timestamptz, leased bigint, oldest_waiting timestamptz
) language sql volatile set jit = off as $$
    select (x.p).id, (x.p).name, (x.p).created_at, (x.p).last_seq, x.stored,
        case when x.whole then x.stored else coalesce(x.waiting, 0) end,
        (select m.created_at from queen.messages m where m.partition_id = (x.p).id and m.seq = (x.p).first_seq),
        case when x.stored > 0 then (
            select m.created_at from queen.messages m where m.partition_id = (x.p).id order by m.seq desc limit 1
        ) end,
        z.name, queen.size(z.waiting) + (z.l).redriven_count,
        case when z.live then queen.size((z.l).open) else 0 end,
        case when (z.l).retrying then (
            select count(*) from queen.retries y
            where y.partition_id = (z.l).partition_id and y.group_id = (z.l).group_id
                and not (z.live and (z.l).open @> y.seq)
        ) else 0 end,
        (
            select count(*) from queen.dead_letters y
            where y.partition_id = (z.l).partition_id and y.group_id = (z.l).group_id and y.redriven_at is null
        ),
        case when z.live then (z.l).lease_expires_at end,
        case when z.live then queen.size((z.l).batch) else 0 end,
        case when not isempty(z.waiting) then (
            select m.created_at from queen.messages m
            where m.partition_id = (z.l).partition_id and m.seq >= lower(z.waiting)
            order by m.seq limit 1
        ) end
    from (
        select y.*, (
            select queen.size(range_agg(r))
            from queen.partition_leases l
            join queen.consumer_groups g on g.id = l.group_id and g.registered,
                unnest(
                    queen.waiting(l, y.p, g.skip_before)
                    + case when l.redriven_count > 0
                        then queen.redriven(l) * queen.span((y.p).first_seq, (y.p).last_seq) else '{}' end
                ) r
            where l.partition_id = (y.p).id and l.ready_at is not null
        ) as waiting
        from (
            select p, p.last_seq - p.first_seq + 1 - queen.size(p.holes) as stored,
                not exists (select 1 from queen.consumer_groups g where g.queue_id = q.id) or exists (
                    select 1 from queen.consumer_groups g where g.queue_id = q.id and not g.registered
                ) as whole
            from queen.queues q
            join queen.partitions p on p.queue_id = q.id
            where q.name = p_queue and q.deleted_at is null
            order by p.name limit p_limit offset p_offset
        ) y
        offset 0
    ) x
    left join lateral (
        select l, g.name, queen.waiting(l, x.p, g.skip_before) as waiting,
            coalesce(l.lease_expires_at > coalesce(p_now, clock_timestamp()), false) as live
        from queen.partition_leases l
        join queen.consumer_groups g on g.id = l.group_id and g.registered
        where l.partition_id = (x.p).id
        offset 0
    ) z on true
    order by (x.p).name, z.name
$$;

-- The seq of a stored message, by the name its caller gave it or by what its id says; null: there is none.
create or replace function queen.stored_message(p_partition bigint, p_name text, p_seq bigint, p_stamp bigint)
returns bigint language sql volatile set jit = off as $$
    select coalesce(
        (select m.seq from queen.messages m where m.transaction_id = p_name and m.partition_id = p.id),
        (
            select m.seq from queen.messages m
            where m.partition_id = p.id and m.seq = p_seq and queen.stamp(m.created_at) = p_stamp
        )
    )
    from queen.partitions p
    join queen.queues q on q.id = p.queue_id and q.deleted_at is null
    where p.id = p_partition
$$;

create or replace function queen.read_message(p_partition bigint, p_name text, p_seq bigint, p_stamp bigint)
returns table (
    queue_name text, partition_name text, partition_id bigint, seq bigint, created_at timestamptz,
    transaction_id text, trace_id uuid, payload json
) language sql volatile set jit = off as $$
    select q.name, p.name, p.id, m.seq, m.created_at, m.transaction_id, m.trace_id, m.payload
    from queen.messages m
    join queen.partitions p on p.id = m.partition_id
    join queen.queues q on q.id = p.queue_id and q.deleted_at is null
    where m.partition_id = p_partition and m.seq = queen.stored_message(p_partition, p_name, p_seq, p_stamp)
$$;

-- The stored message of a name, in whichever partition: the oldest that has one, in the order of the index
-- on (transaction_id, partition_id). p_partition, p_seq, p_stamp: what the name says if it reads as an id.
create or replace function queen.read_named_message(p_name text, p_partition bigint, p_seq bigint, p_stamp bigint)
returns table (
    queue_name text, partition_name text, partition_id bigint, seq bigint, created_at timestamptz,
    transaction_id text, trace_id uuid, payload json
) language sql volatile set jit = off as $$
    with found as materialized (
        (
            select m.partition_id, m.seq
            from queen.messages m
            join queen.partitions p on p.id = m.partition_id
            join queen.queues q on q.id = p.queue_id and q.deleted_at is null
            where m.transaction_id = p_name
            order by m.partition_id limit 1
        ) union all (
            select m.partition_id, m.seq
            from queen.messages m
            join queen.partitions p on p.id = m.partition_id
            join queen.queues q on q.id = p.queue_id and q.deleted_at is null
            where m.partition_id = p_partition and m.seq = p_seq and queen.stamp(m.created_at) = p_stamp
        )
    )
    select q.name, p.name, p.id, m.seq, m.created_at, m.transaction_id, m.trace_id, m.payload
    from (select * from found f order by f.partition_id limit 1) f
    join queen.messages m on m.partition_id = f.partition_id and m.seq = f.seq
    join queen.partitions p on p.id = m.partition_id
    join queen.queues q on q.id = p.queue_id
$$;

-- What of a partition has a status: for one group, or, p_group null, for all of them together, where the
-- first counts of dead_letter, failed, processing, pending, completed; p_status null: all there is for the
-- group. Told from the lanes' sets, from failures and dead letters, as queen.message_states tells it for one
-- message; no message is read.
create or replace function queen.seqs_with(p queen.partitions, p_status text, p_group text, p_now timestamptz)
returns int8multirange language plpgsql volatile as $$
declare
    v_stored int8multirange := queen.span(p.first_seq, p.last_seq) - p.holes;
    v_lane record;
    l queen.partition_leases;
    v_known boolean := false;
    v_some int8multirange;
    v_left int8multirange;
    v_dead int8multirange := '{}';
    v_failed int8multirange := '{}';
    v_processing int8multirange := '{}';
    v_pending int8multirange := '{}';
begin
    for v_lane in select x as lane, g.skip_before
        from queen.partition_leases x
        join queen.consumer_groups g on g.id = x.group_id and g.registered
        where x.partition_id = p.id and (p_group is null or g.name = p_group)
    loop
        v_known := true;
        exit when p_status is null;
        l := v_lane.lane;
        v_left := queen.waiting(l, p, v_lane.skip_before);
        if l.redriven_count > 0 then
            v_left := v_left + queen.redriven(l);
        end if;
        select range_agg(int8range(d.seq, d.seq + 1)) into v_some from queen.dead_letters d
        where d.partition_id = l.partition_id and d.group_id = l.group_id and d.redriven_at is null;
        v_dead := v_dead + coalesce(v_some, '{}');
        if l.lease_expires_at > coalesce(p_now, clock_timestamp()) then
            v_processing := v_processing + l.open;
            v_left := v_left - l.open;
        end if;
        if l.retrying then
            select range_agg(int8range(x.seq, x.seq + 1)) into v_some from queen.retries x
            where x.partition_id = l.partition_id and x.group_id = l.group_id and x.failures > 0;
            v_some := v_left * coalesce(v_some, '{}');
            v_failed := v_failed + v_some;
            v_left := v_left - v_some;
        end if;
        v_pending := v_pending + v_left;
    end loop;
    if not v_known then
        return case when p_group is null and p_status = 'pending' then v_stored else '{}' end;
    end if;
    return v_stored * case p_status
        when 'dead_letter' then v_dead
        when 'failed' then v_failed - v_dead
        when 'processing' then v_processing - v_dead - v_failed
        when 'pending' then v_pending - v_dead - v_failed - v_processing
        when 'completed' then v_stored - v_dead - v_failed - v_processing - v_pending
        else v_stored
    end;
end $$;

-- Messages newest first, by (created_at, partition, seq), which is the order of (created_at, id). Along seq
-- created_at never falls, so each partition is asked for its p_limit newest at most, from a seq that is found
-- by halving, and these are merged: the later pages cost what the first does (QA-6). With a status or a group
-- it is the newest of the seqs that have it, which are known before a message is read: as many ranges of them
-- are visited as make up a page, and what lies between costs nothing.
create or replace function queen.list_messages(
    p_queue text, p_partition text, p_namespace text, p_task text, p_status text, p_group text,
    p_from timestamptz, p_to timestamptz, p_before timestamptz, p_before_partition bigint,
    p_before_seq bigint, p_limit integer, p_now timestamptz
) returns table (
    queue_name text, partition_name text, partition_id bigint, seq bigint, created_at timestamptz,
    transaction_id text, trace_id uuid
) language sql volatile set jit = off as $$
    with place as materialized (
        select q.name as queue_name, p.name as partition_name, p.id,
            case when p_from is null then p.first_seq
                else queen.seq_before(p.id, p.first_seq, p.last_seq, p_from) + 1 end as first,
            least(
                case when p_to is null then p.last_seq
                    else queen.seq_before(p.id, p.first_seq, p.last_seq, p_to + interval '1 microsecond') end,
                case when p_before is null then p.last_seq
                    when p.id = p_before_partition then p_before_seq - 1
                    when p.id > p_before_partition
                    then queen.seq_before(p.id, p.first_seq, p.last_seq, p_before)
                    else queen.seq_before(p.id, p.first_seq, p.last_seq, p_before + interval '1 microsecond')
                end
            ) as last,
            case when p_status is not null or p_group is not null
                then queen.seqs_with(p, p_status, p_group, p_now)
                else queen.span(p.first_seq, p.last_seq) end as chosen
        from queen.queues q
        join queen.partitions p on p.queue_id = q.id
        where q.deleted_at is null and p.last_seq >= p.first_seq
            and (p_from is null or p.last_pushed_at >= p_from) -- of many partitions most are older
            and (p_queue is null or q.name = p_queue)
            and (p_partition is null or p.name = p_partition)
            and (p_namespace is null or q.namespace = p_namespace)
            and (p_task is null or q.task = p_task)
    )
    select x.queue_name, x.partition_name, x.id, y.seq, y.created_at, y.transaction_id, y.trace_id
    from place x, lateral (
        select m.* from (
            select lower(r) as first, upper(r) as behind,
                sum(upper(r) - lower(r)) over (order by lower(r) desc) - (upper(r) - lower(r)) as newer
            from unnest(x.chosen * queen.span(x.first, x.last)) r
        ) u, lateral (
            select m.seq, m.created_at, m.transaction_id, m.trace_id from queen.messages m
            where m.partition_id = x.id and m.seq >= u.first and m.seq < u.behind
            order by m.seq desc limit p_limit
        ) m
        where u.newer < p_limit
        order by m.seq desc limit p_limit
    ) y
    order by y.created_at desc, x.id desc, y.seq desc limit p_limit
$$;

-- The messages of one trace, oldest first (PLD-8); p_before is where the last page ended.
create or replace function queen.list_trace(
    p_trace uuid, p_queue text, p_partition text, p_namespace text, p_task text, p_status text, p_group text,
    p_from timestamptz, p_to timestamptz, p_before timestamptz, p_before_partition bigint,
    p_before_seq bigint, p_limit integer, p_now timestamptz
) returns table (
    queue_name text, partition_name text, partition_id bigint, seq bigint, created_at timestamptz,
    transaction_id text, trace_id uuid
) language sql volatile set jit = off as $$
    select q.name, p.name, p.id, m.seq, m.created_at, m.transaction_id, m.trace_id
    from queen.messages m
    join queen.partitions p on p.id = m.partition_id
    join queen.queues q on q.id = p.queue_id and q.deleted_at is null
    where m.trace_id = p_trace
        and (p_queue is null or q.name = p_queue)
        and (p_partition is null or p.name = p_partition)
        and (p_namespace is null or q.namespace = p_namespace)
        and (p_task is null or q.task = p_task)
        and (p_from is null or m.created_at >= p_from)
        and (p_to is null or m.created_at <= p_to)
        and (
            p_before is null
            or (m.created_at, m.partition_id, m.seq) > (p_before, p_before_partition, p_before_seq)
        )
        and case when p_status is not null or p_group is not null
            then queen.seqs_with(p, p_status, p_group, p_now) @> m.seq else true end
    order by m.created_at, m.partition_id, m.seq limit p_limit
$$;

-- What has become of some messages, for each registered group or for p_group alone: place is the message's
-- in the arguments. What a lane has settled is worked out once, not for each of its messages: where it is in
-- 10,000 pieces, 200 messages cost 0.6 s otherwise.
create or replace function queen.message_states(
    p_partitions bigint[], p_seqs bigint[], p_group text, p_now timestamptz
) returns table (
    place bigint, group_name text, status text, deliveries integer, failures integer, error text,
    lease_expires_at timestamptz
) language sql volatile set jit = off as $$
    with lane as materialized (
        select l, g.name, queen.waiting(l, p, g.skip_before) as waiting
        from (select distinct u.id from unnest(p_partitions) u(id)) u
        join queen.partitions p on p.id = u.id
        join queen.partition_leases l on l.partition_id = u.id
        join queen.consumer_groups g
            on g.id = l.group_id and g.registered and (p_group is null or g.name = p_group)
    )
    select s.o, s.name, s.status,
        case when s.status = 'dead_letter' then (s.d).deliveries
            when s.status <> 'completed'
            then coalesce((s.x).deliveries, 0) + (s.status = 'processing')::integer
            else 0 end,
        case when s.status = 'dead_letter' then (s.d).failures
            when s.status <> 'completed' then coalesce((s.x).failures, 0) else 0 end,
        case when s.status = 'dead_letter' then (s.d).error when s.status <> 'completed' then (s.x).error end,
        case when s.status = 'processing' then s.lease_expires_at end
    from (
        select u.o, z.name, x, d, (z.l).lease_expires_at,
            case
                when d.seq is not null and d.redriven_at is null then 'dead_letter'
                when (z.l).lease_expires_at > coalesce(p_now, clock_timestamp()) and (z.l).open @> u.seq
                then 'processing'
                when d.seq is null and not z.waiting @> u.seq then 'completed'
                when x.failures > 0 then 'failed'
                else 'pending'
            end as status
        from unnest(p_partitions, p_seqs) with ordinality u(id, seq, o)
        join lane z on (z.l).partition_id = u.id
        left join queen.retries x
            on x.partition_id = u.id and x.group_id = (z.l).group_id and x.seq = u.seq
        left join queen.dead_letters d
            on d.partition_id = u.id and d.group_id = (z.l).group_id and d.seq = u.seq
    ) s
    order by s.o, s.name
$$;
