-- Queues and partitions come into being here and nowhere else, so that every partition of a queue
-- has a lease row of every group of the queue.

-- Make a queue with its Default partition unless it exists. Groups that asked for it before it
-- existed begin here, with everything (C-07).
create or replace function queen.make_queue(p_queue text, p_now timestamptz, p_namespace text default null, p_task text default null)
returns boolean language plpgsql volatile as $$
declare
    v_id bigint;
    v_at timestamptz := coalesce(p_now, clock_timestamp());
begin
    insert into queen.queues (name, namespace, task, created_at, configured_at)
    values (
        p_queue,
        coalesce(p_namespace, case when p_task is null and position('.' in p_queue) > 0 then split_part(p_queue, '.', 1) end, ''),
        coalesce(p_task, case when p_namespace is null and position('.' in p_queue) > 0 then split_part(p_queue, '.', 2) end, ''),
        v_at, v_at
    )
    on conflict (name) where deleted_at is null do nothing
    returning id into v_id;
    if v_id is null then
        return false;
    end if;
    with asked as (
        delete from queen.subscriptions s where s.queue_name = p_queue
        returning s.group_name, s.mode, s.start_at, s.created_at
    )
    insert into queen.consumer_groups (queue_id, name, mode, start_at, skip_before, registered, created_at)
    select v_id, a.group_name, a.mode, a.start_at, a.start_at, true, a.created_at from asked a
    order by a.group_name;
    insert into queen.consumer_groups (queue_id, name, mode, start_at, skip_before, registered, created_at)
    select v_id, s.group_name, s.mode, s.start_at, s.start_at, true, s.created_at
    from queen.scopes s
    join queen.queues q on q.id = v_id
    where s.namespace in ('', q.namespace) and s.task in ('', q.task)
    order by s.group_name, s.created_at
    on conflict (queue_id, name) do nothing;
    perform queen.make_partitions(v_id, array['Default'], p_now);
    return true;
end $$;

-- Make those partitions that do not exist, with a lease row for every group. The queue's share lock
-- holds off registrations (which take it for no key update); the groups are read in a later
-- statement, so that none is missed. On a limited queue the caller already has the stronger lock.
create or replace function queen.make_partitions(p_queue bigint, p_names text[], p_now timestamptz)
returns void language plpgsql volatile as $$
declare
    v_ids bigint[];
begin
    perform 1 from queen.queues q where q.id = p_queue and q.deleted_at is null for share;
    if not found then
        return; -- deleted meanwhile: the caller finds no partition and looks the name up again
    end if;
    with made as (
        insert into queen.partitions (queue_id, name, created_at)
        select p_queue, n, coalesce(p_now, clock_timestamp()) from unnest(p_names) n order by n collate "C"
        on conflict (queue_id, name) do nothing
        returning id
    )
    select array_agg(id order by id) into v_ids from made;
    insert into queen.partition_leases (partition_id, group_id)
    select i, g.id from unnest(v_ids) i, queen.consumer_groups g
    where g.queue_id = p_queue
    order by i, g.id
    on conflict do nothing;
end $$;

-- Lock everything that a call will push to: queue rows (limited ones), new partitions, partition
-- rows by id. One call that pushes to several queues, and every transaction, begins with it.
create or replace function queen.lock_partitions(p_queues text[], p_names text[], p_create boolean, p_now timestamptz)
returns void language plpgsql volatile set plan_cache_mode = force_generic_plan as $$
declare
    x record;
begin
    for x in select distinct u.queue collate "C" as queue from unnest(p_queues) u(queue)
        where not exists (select 1 from queen.queues q where q.name = u.queue and q.deleted_at is null)
        order by 1
    loop
        if not p_create then
            raise exception 'no such queue' using errcode = 'QS404', detail = x.queue;
        end if;
        perform queen.make_queue(x.queue, p_now);
    end loop;
    for x in select q.id from queen.queues q
        where q.name = any (p_queues) and q.deleted_at is null and q.max_queue_size > 0
        order by q.id
    loop
        perform 1 from queen.queues q where q.id = x.id for no key update;
    end loop;
    for x in select q.id, array_agg(distinct u.name order by u.name) as names
        from unnest(p_queues, p_names) u(queue, name)
        join queen.queues q on q.name = u.queue and q.deleted_at is null
        where not exists (select 1 from queen.partitions p where p.queue_id = q.id and p.name = u.name)
        group by q.id order by q.id
    loop
        perform queen.make_partitions(x.id, x.names, p_now);
    end loop;
    perform 1 from queen.partitions p
    where p.id in (
        select y.id from unnest(p_queues, p_names) u(queue, name)
        join queen.queues q on q.name = u.queue and q.deleted_at is null
        join queen.partitions y on y.queue_id = q.id and y.name = u.name
    )
    order by p.id for no key update;
end $$;

-- The last seq whose message is older than an instant: created_at never falls along seq, so halve.
create or replace function queen.seq_before(p_partition bigint, p_first bigint, p_last bigint, p_at timestamptz)
returns bigint language plpgsql volatile as $$
declare
    v_low bigint := p_first - 1;
    v_high bigint := p_last;
    v_middle bigint;
    v_created timestamptz;
begin
    while v_low < v_high loop
        v_middle := (v_low + v_high + 1) / 2;
        select m.created_at into v_created from queen.messages m
        where m.partition_id = p_partition and m.seq <= v_middle
        order by m.seq desc limit 1;
        if v_created is null or v_created < p_at then
            v_low := v_middle;
        else
            v_high := v_middle - 1;
        end if;
    end loop;
    return v_low;
end $$;

-- What a group has still to settle of a partition.
create or replace function queen.waiting(
    l queen.partition_leases, p queen.partitions, p_skip_before timestamptz
) returns int8multirange language sql volatile as $$
    select queen.span(
        greatest(
            l.position,
            case when p_skip_before is not null and not l.sought
                then queen.seq_before(p.id, l.position + 1, p.last_seq, p_skip_before)
            end
        ) + 1,
        p.last_seq
    ) - l.settled
$$;

create or replace function queen.redriven(l queen.partition_leases) returns int8multirange
language sql volatile as $$
    select coalesce(range_agg(int8range(d.seq, d.seq + 1)), '{}') from queen.dead_letters d
    where d.partition_id = l.partition_id and d.group_id = l.group_id and d.redriven_at is not null
$$;

-- Stored messages that some group has still to settle (C-06); all of them while there is no group,
-- and while one is being registered, whose lease rows are not all there yet.
-- Called under the queue row's lock: pushes wait for it, and acks can only lower the number. A row
-- without ready_at has nothing left and is not looked at (10,000 partitions x 3 groups: 8 ms).
create or replace function queen.depth(p_queue bigint) returns bigint language sql volatile as $$
    select case
        when not exists (select 1 from queen.consumer_groups g where g.queue_id = p_queue)
            or exists (select 1 from queen.consumer_groups g where g.queue_id = p_queue and not g.registered)
        then (
            select coalesce(sum(p.last_seq - p.first_seq + 1 - queen.size(p.holes)), 0)::bigint
            from queen.partitions p where p.queue_id = p_queue
        )
        else (
            select coalesce(sum(queen.size(w.waiting)), 0)::bigint
            from (
                select range_agg(x) as waiting
                from queen.partitions p
                join queen.partition_leases l on l.partition_id = p.id and l.ready_at is not null
                join queen.consumer_groups g on g.id = l.group_id,
                    unnest(
                        queen.waiting(l, p, g.skip_before)
                        + case when l.redriven_count > 0 then queen.redriven(l) * queen.span(p.first_seq, p.last_seq)
                            else '{}' end
                    ) x
                where p.queue_id = p_queue
                group by p.id
            ) w
        )
    end
$$;

-- Mark the rows of a queue that lie in the future for another reason than a lease as takeable now: a
-- pop looks at them with the present options and puts back what is not due. Used after delay or
-- window were changed.
create or replace function queen.restamp(p_queue bigint, p_now timestamptz) returns void
language plpgsql volatile as $$
declare
    v_at timestamptz := coalesce(p_now, clock_timestamp());
begin
    with due as materialized (
        select l.partition_id, l.group_id
        from queen.partition_leases l
        join queen.consumer_groups g on g.id = l.group_id
        where g.queue_id = p_queue and l.lease_id is null and l.ready_at > v_at
        order by l.partition_id, l.group_id
        for no key update of l skip locked
    )
    update queen.partition_leases l set ready_at = v_at
    from due where l.partition_id = due.partition_id and l.group_id = due.group_id;
end $$;

-- The same for rows that lie further ahead than their queue's present options can mean: a push that had
-- read the old ones when they were changed may have stamped them after restamp looked. Returns how many.
create or replace function queen.restamp_late(p_limit integer, p_now timestamptz) returns bigint
language plpgsql volatile set jit = off as $$
declare
    v_at timestamptz := coalesce(p_now, clock_timestamp());
    v_count bigint;
begin
    with late as materialized (
        select x.partition_id, x.group_id, x.ready_at
        from queen.consumer_groups g
        join queen.queues q on q.id = g.queue_id and q.deleted_at is null,
        lateral (
            select l.partition_id, l.group_id, l.ready_at, l.lease_id from queen.partition_leases l
            where l.group_id = g.id and l.ready_at > v_at
                + make_interval(secs => 1 + greatest(q.delayed_processing_seconds, q.window_buffer_seconds))
                + q.retry_delay_milliseconds * interval '1 millisecond'
            order by l.ready_at desc limit p_limit
        ) x
        where x.lease_id is null
    ), held as materialized (
        select l.partition_id, l.group_id from queen.partition_leases l
        join late on late.partition_id = l.partition_id and late.group_id = l.group_id
        where l.lease_id is null and l.ready_at = late.ready_at
        order by l.partition_id, l.group_id for no key update of l skip locked
    )
    update queen.partition_leases l set ready_at = v_at
    from held where l.partition_id = held.partition_id and l.group_id = held.group_id;
    get diagnostics v_count = row_count;
    return v_count;
end $$;

create or replace function queen.delete_queue(p_queue text, p_now timestamptz) returns boolean
language plpgsql volatile as $$
declare
    v_id bigint;
begin
    perform queen.require_read_committed();
    update queen.queues q set deleted_at = coalesce(p_now, clock_timestamp())
    where q.name = p_queue and q.deleted_at is null returning q.id into v_id;
    if v_id is null then
        return false;
    end if;
    delete from queen.subscriptions s where s.queue_name = p_queue;
    delete from queen.dead_letters d where d.queue_id = v_id;
    return true;
end $$;
