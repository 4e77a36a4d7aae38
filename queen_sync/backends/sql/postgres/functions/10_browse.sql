-- The groups of a queue with their lag: arithmetic over lease rows, never a scan of messages.
create or replace function queen.list_groups(p_queue text, p_now timestamptz)
returns table (name text, mode text, start_at timestamptz, created_at timestamptz, lag bigint, leased bigint)
language sql volatile as $$
    select g.name, g.mode, g.start_at, g.created_at,
        coalesce(sum(queen.size(queen.waiting(l, p, g.skip_before)) + l.redriven_count), 0)::bigint,
        count(*) filter (where l.lease_id is not null and l.lease_expires_at > coalesce(p_now, clock_timestamp()))
    from queen.queues q
    join queen.consumer_groups g on g.queue_id = q.id
    left join queen.partition_leases l on l.group_id = g.id
    left join queen.partitions p on p.id = l.partition_id
    where q.name = p_queue and q.deleted_at is null
    group by g.id
    order by g.name
$$;

-- Dead letters that a filter finds; null asks nothing. p_said, p_seq, p_stamp: what p_name says if it
-- reads as a message id. Of living queues: an ack that was in flight when its queue was deleted may have
-- left one, which must not turn up under a new queue of the same name.
create or replace function queen.find_dead_letters(
    p_queue text, p_group text, p_partition text, p_from timestamptz, p_to timestamptz,
    p_partition_id bigint, p_name text, p_said bigint, p_seq bigint, p_stamp bigint
) returns setof queen.dead_letters language sql stable as $$
    select d.*
    from queen.dead_letters d
    join queen.queues q on q.id = d.queue_id and q.deleted_at is null
    where d.redriven_at is null
        and (p_queue is null or d.queue_name = p_queue)
        and (p_group is null or d.group_name = p_group)
        and (p_partition is null or d.partition_name = p_partition)
        and (p_from is null or d.failed_at >= p_from)
        and (p_to is null or d.failed_at <= p_to)
        and (p_partition_id is null or d.partition_id = p_partition_id)
        and (
            p_name is null or d.transaction_id = p_name
            or (d.partition_id = p_said and d.seq = p_seq and queen.stamp(d.created_at) = p_stamp)
        )
$$;

create or replace function queen.list_removals(p_queue text, p_limit integer)
returns table (partition_name text, group_name text, kind text, count bigint, removed_at timestamptz)
language sql volatile as $$
    select r.partition_name, r.group_name, r.kind, r.count, r.removed_at
    from queen.queues q
    join queen.removals r on r.queue_id = q.id
    where q.name = p_queue and q.deleted_at is null
    order by r.id desc limit p_limit
$$;
