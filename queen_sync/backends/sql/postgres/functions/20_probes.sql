-- Which of many waiting pops may find something now, in one statement: what a process whose consumers are
-- idle asks every two seconds, however many they are. Place by place a queue (empty: the scope of namespace
-- and task, null standing for any), a group and a partition (null: any). True also where a pop has something
-- else to do: to register its group. Each place costs a look into one index.
create or replace function queen.ready_now(
    p_queues text[], p_namespaces text[], p_tasks text[], p_groups text[], p_partitions text[], p_now timestamptz
) returns boolean[] language sql volatile
set jit = off set enable_seqscan = off set enable_bitmapscan = off set enable_sort = off as $$
    select array_agg(
        case when u.queue = ''
            then exists (select 1 from queen.scope_queues(u.namespace, u.task, u.consumer_group, p_now))
            else coalesce((
                select g.id is null or not g.registered or coalesce(
                    case when u.partition is null then (
                        select l.ready_at from queen.partition_leases l
                        where l.group_id = g.id and l.ready_at is not null
                        order by l.ready_at limit 1
                    ) else (
                        select l.ready_at from queen.partition_leases l
                        join queen.partitions p
                            on p.id = l.partition_id and p.queue_id = q.id and p.name = u.partition
                        where l.group_id = g.id
                    ) end <= coalesce(p_now, clock_timestamp()),
                    false
                )
                from queen.queues q
                left join queen.consumer_groups g on g.queue_id = q.id and g.name = u.consumer_group
                where q.name = u.queue and q.deleted_at is null
            ), false)
        end
        order by u.place
    )
    from unnest(p_queues, p_namespaces, p_tasks, p_groups, p_partitions)
        with ordinality u(queue, namespace, task, consumer_group, partition, place)
$$;
