-- Views for people and dashboards that read the database itself (PLD-10, docs/reference/views.md). None takes
-- a lock or reads what it is not asked for; a lease that ran out is none, whether or not anybody has taken it
-- back. They are made anew on every upgrade, so their columns may change: what is built on them needs `drop … cascade`
-- to say so.
drop view if exists queen.messages_status, queen.queue_depths, queen.active_leases,
    queen.partition_utilisation, queen.stuck_partitions;

-- The id of a message, as the interfaces say it: 36 bits of partition, 44 of seq and 42 of created_at around
-- the version and variant of a UUID. The last 16 digits begin with the variant, the sign bit of the number.
create or replace function queen.message_id(p_partition bigint, p_seq bigint, p_created timestamptz)
returns uuid language sql stable parallel safe as $$
    select (
        lpad(to_hex(p_partition), 9, '0') || lpad(to_hex(p_seq >> 32), 3, '0')
        || '8' || lpad(to_hex((p_seq >> 20) & 4095), 3, '0')
        || to_hex((-9223372036854775808) | ((p_seq & 1048575) << 42) | queen.stamp(p_created))
    )::uuid
$$;

-- What has become of each stored message for each registered group, told from positions; a queue without
-- groups has a row without a group per message. Select by queue_name, or by partition_id and seq: these are
-- passed on to indexes, the message_id is not.
create view queen.messages_status as
select queen.message_id(m.partition_id, m.seq, m.created_at) as message_id,
    coalesce(m.transaction_id, queen.message_id(m.partition_id, m.seq, m.created_at)::text) as transaction_id,
    m.trace_id, q.name as queue_name, p.name as partition_name, m.partition_id, m.seq, m.created_at,
    s.consumer_group, coalesce(s.status, 'pending') as status, s.lease_expires_at,
    coalesce(s.retry_count, 0) as retry_count, s.error_message,
    -- A position has no time. Retention notes now and then what all groups had settled.
    case when s.status = 'completed' then (
        select min(k.marked_at) from queen.position_marks k
        where k.partition_id = m.partition_id and k.position >= m.seq
    ) end as completed_at
from queen.queues q
join queen.partitions p on p.queue_id = q.id
join queen.messages m on m.partition_id = p.id and m.seq >= p.first_seq
left join lateral (
    select j.*,
        case j.status when 'dead_letter' then j.dead_failures when 'completed' then 0 else coalesce(j.failures, 0) end
            as retry_count,
        case j.status when 'dead_letter' then j.dead_error when 'completed' then null else j.error end
            as error_message
    from (
        select g.name as consumer_group, x.failures, x.error, d.failures as dead_failures, d.error as dead_error,
            case
                when d.seq is not null and d.redriven_at is null then 'dead_letter'
                when l.lease_expires_at > clock_timestamp() and l.open @> m.seq then 'processing'
                when d.seq is null and not queen.waiting(l, p, g.skip_before) @> m.seq then 'completed'
                when x.failures > 0 then 'failed'
                else 'pending'
            end as status,
            case when l.lease_expires_at > clock_timestamp() and l.open @> m.seq then l.lease_expires_at end
                as lease_expires_at
        from queen.partition_leases l
        join queen.consumer_groups g on g.id = l.group_id and g.registered
        left join queen.retries x
            on x.partition_id = l.partition_id and x.group_id = l.group_id and x.seq = m.seq
        left join queen.dead_letters d
            on d.partition_id = l.partition_id and d.group_id = l.group_id and d.seq = m.seq
        where l.partition_id = m.partition_id
    ) j
) s on true
where q.deleted_at is null;

-- How much each queue holds, and how much more it takes: current_depth is what a push compares with the limit.
create view queen.queue_depths as
select q.name as queue_name, q.namespace, q.task, x.total_partitions, x.stored_count, d.depth as current_depth,
    q.max_queue_size,
    case when q.max_queue_size > 0 then greatest(0, q.max_queue_size - d.depth) end as remaining_capacity,
    case when q.max_queue_size > 0 then round(100.0 * d.depth / q.max_queue_size, 2) end as utilisation_pct
from queen.queues q,
lateral (
    select count(*) as total_partitions,
        coalesce(sum(p.last_seq - p.first_seq + 1 - queen.size(p.holes)), 0)::bigint as stored_count
    from queen.partitions p where p.queue_id = q.id
) x,
lateral (select queen.depth(q.id) as depth) d
where q.deleted_at is null;

-- The live leases: message_count messages were delivered, open_count of them have no outcome yet.
create view queen.active_leases as
select q.name as queue_name, p.name as partition_name, p.id as partition_id, g.name as consumer_group,
    l.lease_id, l.taken_at as leased_at, l.lease_expires_at,
    queen.size(l.batch) as message_count, queen.size(l.open) as open_count, l.redriving,
    extract(epoch from l.lease_expires_at - clock_timestamp()) as seconds_remaining
from queen.partition_leases l
join queen.consumer_groups g on g.id = l.group_id
join queen.queues q on q.id = g.queue_id and q.deleted_at is null
join queen.partitions p on p.id = l.partition_id
where l.lease_id is not null and l.lease_expires_at > clock_timestamp();

-- What share of each queue's partitions each group has under a live lease. A queue without groups: one row,
-- without a group.
create view queen.partition_utilisation as
select q.name as queue_name, g.name as consumer_group, x.total_partitions,
    coalesce(y.leased_partitions, 0) as leased_partitions,
    round(100.0 * coalesce(y.leased_partitions, 0) / nullif(x.total_partitions, 0), 2) as utilisation_pct
from queen.queues q
cross join lateral (
    select count(*) as total_partitions from queen.partitions p where p.queue_id = q.id
) x
left join queen.consumer_groups g on g.queue_id = q.id and g.registered
left join lateral (
    select count(*) as leased_partitions from queen.partition_leases l
    where l.group_id = g.id and l.ready_at > clock_timestamp() and l.lease_id is not null
) y on true
where q.deleted_at is null;

-- Leases that end within 30 seconds, and those that ran out and that nobody has taken back: whoever holds them
-- is slow, or gone.
create view queen.stuck_partitions as
select q.name as queue_name, p.name as partition_name, p.id as partition_id, g.name as consumer_group,
    l.lease_id, l.taken_at as lease_started_at, l.lease_expires_at, queen.size(l.open) as open_count,
    extract(epoch from clock_timestamp() - l.taken_at) as lease_held_seconds,
    extract(epoch from l.lease_expires_at - clock_timestamp()) as seconds_remaining
from queen.partition_leases l
join queen.consumer_groups g on g.id = l.group_id
join queen.queues q on q.id = g.queue_id and q.deleted_at is null
join queen.partitions p on p.id = l.partition_id
where l.lease_id is not null and l.ready_at < clock_timestamp() + interval '30 seconds';
