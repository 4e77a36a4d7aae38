-- The groups of a queue with their lag: arithmetic over lease rows, never a scan of messages.
create or replace function queen.list_groups(p_queue text, p_now timestamptz)
returns table (name text, mode text, start_at timestamptz, created_at timestamptz, lag bigint, leased bigint)
language sql volatile as $$
    select g.name, g.mode, g.start_at, g.created_at,
        coalesce(sum(queen.size(queen.waiting(l, p, g.skip_before))), 0)::bigint,
        count(*) filter (where l.lease_id is not null and l.lease_expires_at > coalesce(p_now, clock_timestamp()))
    from queen.queues q
    join queen.consumer_groups g on g.queue_id = q.id
    left join queen.partition_leases l on l.group_id = g.id
    left join queen.partitions p on p.id = l.partition_id
    where q.name = p_queue and q.deleted_at is null
    group by g.id
    order by g.name
$$;

-- Dead letters, newest first.
create or replace function queen.list_dead_letters(
    p_queue text, p_group text, p_partition text, p_from timestamptz, p_to timestamptz,
    p_limit bigint, p_offset bigint
) returns table (
    partition_id bigint, seq bigint, created_at timestamptz, transaction_id text, trace_id uuid,
    payload json, queue_name text, partition_name text, group_name text, error text,
    failures integer, deliveries integer, failed_at timestamptz
) language sql volatile as $$
    select d.partition_id, d.seq, d.created_at, d.transaction_id, d.trace_id, d.payload,
        d.queue_name, d.partition_name, d.group_name, d.error, d.failures, d.deliveries, d.failed_at
    from queen.dead_letters d
    where (p_queue is null or d.queue_name = p_queue)
        and (p_group is null or d.group_name = p_group)
        and (p_partition is null or d.partition_name = p_partition)
        and (p_from is null or d.failed_at >= p_from)
        and (p_to is null or d.failed_at <= p_to)
    order by d.failed_at desc, d.partition_id desc, d.seq desc, d.group_id desc
    limit p_limit offset p_offset
$$;

create or replace function queen.count_dead_letters(
    p_queue text, p_group text, p_partition text, p_from timestamptz, p_to timestamptz
) returns bigint language sql volatile as $$
    select count(*)
    from queen.dead_letters d
    where (p_queue is null or d.queue_name = p_queue)
        and (p_group is null or d.group_name = p_group)
        and (p_partition is null or d.partition_name = p_partition)
        and (p_from is null or d.failed_at >= p_from)
        and (p_to is null or d.failed_at <= p_to)
$$;
