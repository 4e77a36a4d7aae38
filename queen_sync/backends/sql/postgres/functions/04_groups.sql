-- Registration of a group (C-07), in steps that no push and no new partition can slip through:
-- begin (one short transaction), chunks of partitions (one each), done. Whoever finds a group that is
-- not registered carries the steps on, so a registrar that died does no harm.

-- Step 1. The queue's lock waits for transactions that make partitions (they hold its share lock)
-- and holds off later ones, which then see the group. Null: no such queue; the wish is remembered.
create or replace function queen.begin_group(
    p_queue text, p_group text, p_mode text, p_from timestamptz, p_scoped boolean, p_now timestamptz,
    out group_id bigint, out mode text, out start_at timestamptz
) language plpgsql volatile as $$
#variable_conflict use_column
declare
    v_queue bigint;
    v_at timestamptz;
    v_new_from timestamptz;
    s queen.subscriptions;
begin
    perform queen.require_read_committed();
    select q.id into v_queue from queen.queues q
    where q.name = p_queue and q.deleted_at is null for no key update;
    v_at := coalesce(p_now, clock_timestamp());
    if v_queue is null then
        insert into queen.subscriptions (queue_name, group_name, mode, start_at, created_at)
        values (p_queue, p_group, p_mode, p_from, v_at)
        on conflict (queue_name, group_name) do nothing;
        select x.mode, x.start_at into mode, start_at from queen.subscriptions x
        where x.queue_name = p_queue and x.group_name = p_group;
        return;
    end if;
    select g.id, g.mode, g.start_at into group_id, mode, start_at
    from queen.consumer_groups g where g.queue_id = v_queue and g.name = p_group;
    if found then
        return;
    end if;
    -- Asked for while the queue did not exist (whoever made it may not have seen that), or kept when
    -- its progress was deleted: that start counts. `new` from before the queue is everything.
    delete from queen.subscriptions x where x.queue_name = p_queue and x.group_name = p_group
    returning * into s;
    v_new_from := '-infinity'; -- `new` from before the queue is everything
    if not found then -- a pop over a namespace or task
        select p_queue, c.group_name, c.mode, c.start_at, c.created_at,
            case when c.created_at < q.created_at then v_new_from else c.created_at end
        into s.queue_name, s.group_name, s.mode, s.start_at, s.created_at, v_new_from
        from queen.scopes c
        join queen.queues q on q.id = v_queue
        where c.group_name = p_group and c.namespace in ('', q.namespace) and c.task in ('', q.task)
            and (p_scoped or c.created_at < q.created_at)
        order by c.created_at limit 1;
    end if;
    mode := coalesce(s.mode, p_mode);
    start_at := case when s.mode is null then p_from else s.start_at end;
    insert into queen.consumer_groups (queue_id, name, mode, start_at, skip_before, created_at)
    values (v_queue, p_group, mode, start_at, case when s.mode = 'new' then v_new_from else start_at end, coalesce(s.created_at, v_at))
    returning id into group_id;
end $$;

-- Step 2. Give the group its lease rows in the next partitions. The share lock of a partition makes
-- its last_seq exact; one that a push holds is passed by with the committed last_seq (the push runs
-- at the same time as the registration, so it may fall on either side) and looked at again by a pop.
-- Whoever holds the group's row does the next part, after what others have done: sixteen first pops of a
-- queue of 100,000 partitions take as long as one.
-- Returns the last partition done, null when none is left.
create or replace function queen.register_partitions(
    p_group bigint, p_after bigint, p_limit integer, p_now timestamptz
) returns bigint language plpgsql volatile as $$
declare
    g queen.consumer_groups;
    q queen.queues;
    r queen.partition_leases;
    x record;
    v_position bigint;
    v_held bigint[];
    v_done bigint;
    v_at timestamptz := coalesce(p_now, clock_timestamp());
begin
    perform queen.require_read_committed();
    select * into g from queen.consumer_groups y where y.id = p_group for no key update;
    if not found or g.registered then
        return null;
    end if;
    p_after := greatest(p_after, g.registered_through);
    select * into q from queen.queues y where y.id = g.queue_id;
    select array_agg(h.id) into v_held from (
        select p.id from queen.partitions p
        where p.id in (
            select y.id from queen.partitions y
            where y.queue_id = g.queue_id and y.id > p_after order by y.id limit p_limit
        )
        order by p.id for share skip locked
    ) h;
    for x in select p.id, p.first_seq, p.last_seq, p.last_pushed_at, p.holes from queen.partitions p
        where p.queue_id = g.queue_id and p.id > p_after order by p.id limit p_limit
    loop
        v_position := case
            when g.mode = 'new' and g.skip_before is null then x.last_seq
            when g.mode = 'new' then queen.seq_before(x.id, x.first_seq, x.last_seq, g.skip_before)
            when g.mode = 'from' and x.last_pushed_at < g.start_at then x.last_seq
            when g.mode = 'from' then queen.seq_before(x.id, x.first_seq, x.last_seq, g.start_at)
            else x.first_seq - 1
        end;
        r.position := v_position;
        r.settled := x.holes - queen.span(0, v_position);
        r := queen.advance(r);
        v_position := r.position;
        insert into queen.partition_leases (partition_id, group_id, position, settled, ready_at)
        values (
            x.id, g.id, v_position, r.settled,
            case
                when v_position < x.last_seq then greatest(v_at, (
                    select queen.due(m.created_at, x.last_pushed_at, q) from queen.messages m
                    where m.partition_id = x.id and m.seq = v_position + 1
                ))
                when x.id <> all (coalesce(v_held, '{}')) then v_at
            end
        )
        on conflict (partition_id, group_id) do nothing;
        update queen.position_marks m set position = v_position
        where m.partition_id = x.id and m.position > v_position;
        v_done := x.id;
    end loop;
    update queen.consumer_groups y set registered_through = v_done where y.id = g.id and v_done is not null;
    return v_done;
end $$;

-- Step 3. From here on pops of the group are answered.
create or replace function queen.finish_group(p_group bigint) returns void
language sql volatile as $$
    update queen.consumer_groups g set registered = true,
        skip_before = case when g.mode = 'new' then null else g.skip_before end
    where g.id = p_group and not g.registered
$$;

-- Forget a group's progress; its row goes first, under the queue's lock, so that no partition that is
-- made meanwhile brings it back. Returns in how many partitions it had a place.
create or replace function queen.delete_group(p_queue text, p_group text, p_keep boolean, p_now timestamptz)
returns bigint language plpgsql volatile as $$
declare
    x record;
    v_count bigint;
    v_total bigint := 0;
begin
    perform queen.require_read_committed();
    perform 1 from queen.queues q -- all queues before any lease row
    where q.deleted_at is null and (p_queue is null or q.name = p_queue)
        and q.id in (select g.queue_id from queen.consumer_groups g where g.name = p_group)
    order by q.id for no key update;
    for x in select q.id as queue_id, q.name as queue_name, g.id, g.mode, g.start_at, g.created_at
        from queen.consumer_groups g
        join queen.queues q on q.id = g.queue_id and q.deleted_at is null
        where g.name = p_group and (p_queue is null or q.name = p_queue)
        order by q.id
    loop
        perform 1 from queen.queues q where q.id = x.queue_id for no key update;
        delete from queen.consumer_groups g where g.id = x.id;
        continue when not found;
        perform 1 from queen.partition_leases l where l.group_id = x.id
        order by l.partition_id for update;
        delete from queen.partition_leases l where l.group_id = x.id;
        get diagnostics v_count = row_count;
        v_total := v_total + v_count;
        delete from queen.retries r where r.group_id = x.id;
        delete from queen.dead_letters d where d.group_id = x.id;
        if p_keep then
            insert into queen.subscriptions (queue_name, group_name, mode, start_at, created_at)
            values (
                x.queue_name, p_group,
                case when x.mode = 'new' then 'from' else x.mode end,
                case when x.mode = 'new' then x.created_at else x.start_at end,
                x.created_at
            )
            on conflict (queue_name, group_name) do update
                set mode = excluded.mode, start_at = excluded.start_at;
        end if;
    end loop;
    if not p_keep and p_queue is null then
        delete from queen.scopes s where s.group_name = p_group;
    end if;
    if not p_keep then
        delete from queen.subscriptions s
        where s.group_name = p_group and (p_queue is null or s.queue_name = p_queue);
    end if;
    return v_total;
end $$;

-- Set the recorded start of a group to a time, wherever it is registered or waits for its queue.
create or replace function queen.restart_subscription(p_group text, p_from timestamptz) returns bigint
language plpgsql volatile as $$
declare
    v_count bigint;
    v_total bigint;
begin
    update queen.consumer_groups g set mode = 'from', start_at = p_from
    from queen.queues q
    where g.name = p_group and q.id = g.queue_id and q.deleted_at is null and g.registered;
    get diagnostics v_total = row_count;
    update queen.subscriptions s set mode = 'from', start_at = p_from where s.group_name = p_group;
    get diagnostics v_count = row_count;
    v_total := v_total + v_count;
    update queen.scopes s set mode = 'from', start_at = p_from where s.group_name = p_group;
    get diagnostics v_count = row_count;
    return v_total + v_count;
end $$;

-- Remember what a group asked of a namespace and task (the empty text: any); what was said first counts.
create or replace function queen.begin_scope(
    p_namespace text, p_task text, p_group text, p_mode text, p_from timestamptz, p_now timestamptz,
    out mode text, out start_at timestamptz, out made boolean
) language plpgsql volatile as $$
#variable_conflict use_column
begin
    perform queen.require_read_committed();
    made := false;
    for attempt in 1..2 loop
        select s.mode, s.start_at into mode, start_at from queen.scopes s
        where s.group_name = p_group and s.namespace = p_namespace and s.task = p_task;
        exit when found;
        insert into queen.scopes (namespace, task, group_name, mode, start_at, created_at)
        values (p_namespace, p_task, p_group, p_mode, p_from, coalesce(p_now, clock_timestamp()))
        on conflict (group_name, namespace, task) do nothing;
        made := found;
    end loop;
end $$;

-- The groups that a queue's namespace and task call for and that are not registered in it.
create or replace function queen.entering_groups(p_queue text) returns table (group_name text)
language sql volatile as $$
    select distinct s.group_name
    from queen.queues q
    join queen.scopes s on s.namespace in ('', q.namespace) and s.task in ('', q.task)
    where q.name = p_queue and q.deleted_at is null and not exists (
        select 1 from queen.consumer_groups g where g.queue_id = q.id and g.name = s.group_name
    )
    order by s.group_name
$$;
