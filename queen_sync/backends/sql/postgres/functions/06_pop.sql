-- Claim for a group: lock the lease row that has waited longest, look at it, write the lease, read
-- the batch. The candidate comes from one index, (group_id, ready_at, partition_id) up to now; rows
-- of live leases and delayed partitions lie beyond it. v_at is a variable because clock_timestamp()
-- in the condition would be a filter (an empty pop over 100,000 delayed rows: 10 ms against 0.06),
-- and the planner is held to the index: sorting all ready rows would cost milliseconds each time.
-- p_floor: from where to look, a hint that saves passing over what a snapshot held open keeps of rows
-- that were taken long ago (after 12,000 pops 1.9 ms against 0.03). Nothing is overlooked for it for
-- long: what lies below is looked for where nothing is found above, and the caller leaves the hint out
-- once a second.
-- skip locked passes over rows that another pop or an ack holds; a row's own lock does not hide it
-- from this call, so whatever is looked at and not taken gets a ready_at to come, or is in v_passed.
--
-- Rows: where seq is null, one of
--   note 'unregistered'   no such queue, or the group is not (wholly) registered: register, then pop
--   note 'ignored'        the group began otherwise than asked
--   otherwise             a claimed partition: its id, name (note), lease id (null: autoAck), expiry,
--                         since when it was due (created_at), and of its queue the name (transaction_id) and priority (failures)
-- and after each claimed partition its messages: seq, created_at, transaction_id (null: the server's),
-- trace_id, payload, deliveries before this one, failures, last error (note), and the id of the key that
-- sealed the payload (null: none did). Of a queue that may hold sealed messages an autoAck pop is given a
-- lease like any other: the caller opens them, settles what it could open and puts the rest off.
create or replace function queen.pop(
    p_queue text, p_group text, p_partition text, p_messages integer, p_partitions integer,
    p_auto_ack boolean, p_mode text, p_from timestamptz, p_floor timestamptz, p_now timestamptz
) returns table (
    partition_id bigint, seq bigint, created_at timestamptz, transaction_id text, trace_id uuid,
    payload json, deliveries integer, failures integer, note text, lease_id uuid, expires_at timestamptz,
    key_id text
) language plpgsql volatile
set jit = off set enable_seqscan = off set enable_bitmapscan = off set enable_sort = off as $$
#variable_conflict use_column
declare
    q queen.queues;
    g queen.consumer_groups;
    r queen.partition_leases;
    v_place record;
    v_at timestamptz := coalesce(p_now, clock_timestamp());
    v_floor timestamptz := coalesce(p_floor, '-infinity');
    v_whole boolean := p_floor is null;
    v_due timestamptz;
    v_only bigint;
    v_name text;
    v_last bigint;
    v_first bigint;
    v_room integer := p_messages;
    v_size integer;
    v_batch int8multirange;
    v_alone boolean;
    v_plain boolean;
    v_ready timestamptz;
    v_lease uuid;
    v_ends timestamptz;
    v_claimed bigint[] := '{}';
    v_passed bigint[] := '{}';
    v_first_alone boolean;
begin
    if current_setting('transaction_isolation') <> 'read committed' then
        perform queen.require_read_committed();
    end if;
    select x as queue, y as consumer_group into v_place
    from queen.queues x
    join queen.consumer_groups y on y.queue_id = x.id and y.name = p_group
    where x.name = p_queue and x.deleted_at is null;
    q := v_place.queue;
    g := v_place.consumer_group;
    if g.id is null or not g.registered then
        note := 'unregistered';
        return next;
        return;
    end if;
    if p_mode is not null and (g.mode, g.start_at) is distinct from (p_mode, p_from) then
        note := 'ignored';
        return next;
    end if;
    p_auto_ack := p_auto_ack and not q.sealed;
    if p_partition is not null then
        select p.id into v_only from queen.partitions p where p.queue_id = q.id and p.name = p_partition;
        if not found then
            return;
        end if;
    end if;

    -- Each round claims a partition or puts it off; the bound is for a crowd of rows put off by 5 ms.
    for round in 1 .. 64 + p_partitions loop
        exit when v_room <= 0 or cardinality(v_claimed) >= p_partitions;
        if v_only is not null then
            select x.* into r from queen.partition_leases x
            where x.partition_id = v_only and x.group_id = g.id and x.ready_at <= v_at
                and x.partition_id <> all (v_claimed)
            for no key update skip locked;
        elsif cardinality(v_passed) = 0 then
            select x.* into r from queen.partition_leases x
            where x.group_id = g.id and x.ready_at >= v_floor and x.ready_at <= v_at
            order by x.ready_at, x.partition_id limit 1
            for no key update skip locked;
        else
            select x.* into r from queen.partition_leases x
            where x.group_id = g.id and x.ready_at >= v_floor and x.ready_at <= v_at
                and x.partition_id <> all (v_passed)
            order by x.ready_at, x.partition_id limit 1
            for no key update skip locked;
        end if;
        if not found then
            exit when v_only is not null or v_whole;
            v_floor := '-infinity';
            v_whole := true;
            continue;
        end if;
        v_due := r.ready_at;
        v_floor := v_due; -- what this call has taken already is not passed over once more each round

        -- A row that is due and holds a lease is one whose lease ran out.
        if r.lease_id is not null then
            r := queen.expire(r, q, v_at);
        end if;
        select p.last_seq, p.first_seq, p.name into v_last, v_first, v_name
        from queen.partitions p where p.id = r.partition_id;
        if r.position < v_first - 1 then
            r := queen.advance_to(r, v_first - 1);
        end if;
        if g.skip_before is not null then
            r := queen.skip_to_start(r, v_last, g.skip_before);
        end if;

        -- A row that came up too early (its window has opened again, its delay has grown) is put off as it is.
        if (q.ttl_seconds > 0 or q.max_wait_seconds > 0) and queen.next_ready(r, q, v_at) <= v_at then
            select e.r as r into v_place from queen.evict(r, q, v_last, v_at) e;
            r := v_place.r;
        end if;

        v_plain := isempty(r.settled) and not r.retrying and r.redriven_count = 0
            and q.delayed_processing_seconds = 0 and q.window_buffer_seconds = 0;
        if v_plain then
            v_size := least(v_room, v_last - r.position);
            v_alone := false;
        else
            v_size := 0;
            if q.window_buffer_seconds = 0 or r.redriven_count > 0 or queen.next_ready(r, q, v_at) <= v_at then
                select c.batch, c.size, c.first_alone into v_batch, v_size, v_alone
                from queen.cut(r, q, v_last, v_room, v_at) c;
            end if;
        end if;

        if v_size <= 0 then
            v_ready := queen.next_ready(r, q, v_at);
            if v_ready <= v_at then
                v_ready := v_at + interval '5 milliseconds';
            end if;
            r.ready_at := v_ready;
            perform queen.store(r);
            exit when v_only is not null;
            continue;
        end if;

        -- A message that must go alone, met by a claim that already holds some: for a later pop. It keeps
        -- its place; what an expiry did to it just now must not be done again.
        if v_alone and cardinality(v_claimed) > 0 then
            perform queen.store(r);
            v_passed := v_passed || r.partition_id;
            continue;
        end if;
        if v_plain then
            v_batch := queen.span(r.position + 1, r.position + v_size);
        end if;

        partition_id := r.partition_id;
        note := v_name;
        seq := null; created_at := v_due; trace_id := null; payload := null; deliveries := null;
        transaction_id := q.name; failures := q.priority;
        if p_auto_ack then
            lease_id := null; expires_at := null;
            return next;
        else
            if v_lease is null then
                v_lease := queen.new_lease_id(r.partition_id);
                v_ends := v_at + make_interval(secs => case when q.lease_seconds = 0 then 60 else q.lease_seconds end);
                v_first_alone := v_size = 1;
            end if;
            lease_id := v_lease; expires_at := v_ends;
            return next;
        end if;
        if v_plain then
            return query
            select m.partition_id, m.seq, m.created_at, m.transaction_id, m.trace_id, m.payload,
                null::integer, null::integer, null::text, null::uuid, null::timestamptz,
                m.encryption_key_id
            from queen.messages m
            where m.partition_id = r.partition_id and m.seq > r.position and m.seq <= r.position + v_size
            order by m.seq;
        elsif r.redriven_count > 0 then
            return query
            select d.partition_id, d.seq, d.created_at, d.transaction_id, d.trace_id, d.payload,
                y.deliveries, y.failures, y.error, null::uuid, null::timestamptz, d.encryption_key_id
            from queen.dead_letters d
            left join queen.retries y
                on r.retrying and y.partition_id = d.partition_id and y.group_id = d.group_id and y.seq = d.seq
            where d.partition_id = r.partition_id and d.group_id = r.group_id and v_batch @> d.seq
            order by d.seq;
        else
            return query
            select m.partition_id, m.seq, m.created_at, m.transaction_id, m.trace_id, m.payload,
                y.deliveries, y.failures, y.error, null::uuid, null::timestamptz, m.encryption_key_id
            from queen.messages m
            left join queen.retries y
                on r.retrying and y.partition_id = m.partition_id and y.group_id = r.group_id and y.seq = m.seq
            where m.partition_id = r.partition_id and m.seq >= lower(v_batch) and m.seq < upper(v_batch)
                and v_batch @> m.seq
            order by m.seq;
        end if;

        if p_auto_ack then
            if v_plain then
                r.position := r.position + v_size;
            else
                r.redriving := r.redriven_count > 0;
                r := queen.settle(r, v_batch);
                r.redriving := false;
            end if;
            r.taken_at := v_at;
            r.ready_at := queen.next_ready(r, q, v_at);
            perform queen.store(r);
            v_passed := v_passed || r.partition_id; -- what is left of it waits for a later pop
        else
            update queen.partition_leases x
            set position = r.position, settled = r.settled, retrying = r.retrying,
                redriven_count = r.redriven_count, redriving = r.redriven_count > 0,
                lease_id = v_lease, lease_expires_at = v_ends, ready_at = v_ends, taken_at = v_at,
                alone = v_size = 1 and p_partitions = 1, batch = v_batch, open = v_batch,
                failed = null, returned = null, dead = null
            where x.partition_id = r.partition_id and x.group_id = r.group_id;
        end if;
        v_claimed := v_claimed || r.partition_id;
        v_room := v_room - v_size;
        exit when v_only is not null or v_alone;
    end loop;

    if p_partitions > 1 and not p_auto_ack then
        if cardinality(v_claimed) > 1 then
            insert into queen.claims (lease_id, partition_ids, created_at)
            values (v_lease, v_claimed, v_at);
        elsif v_first_alone then
            update queen.partition_leases x set alone = true
            where x.partition_id = v_claimed[1] and x.group_id = g.id;
        end if;
    end if;
end $$;

-- Pass over what is older than the start that a group asked for, unless a seek has dropped that here.
create or replace function queen.skip_to_start(
    inout r queen.partition_leases, p_last bigint, p_start timestamptz
) language plpgsql volatile as $$
begin
    if not r.sought then
        r := queen.advance_to(r, queen.seq_before(r.partition_id, r.position + 1, p_last, p_start));
    end if;
end $$;

create or replace function queen.advance_to(inout r queen.partition_leases, p_position bigint)
language plpgsql volatile as $$
begin
    if p_position > r.position then
        r.position := p_position;
        r.settled := r.settled - queen.span(0, p_position);
        r := queen.advance(r);
    end if;
end $$;

-- What a repeated pop gets: what is still open of the lease, where it is still live. Rows as of queen.pop.
create or replace function queen.claimed(p_lease uuid, p_now timestamptz)
returns table (
    partition_id bigint, seq bigint, created_at timestamptz, transaction_id text, trace_id uuid,
    payload json, deliveries integer, failures integer, note text, lease_id uuid, expires_at timestamptz,
    key_id text
) language sql volatile set jit = off as $$
    with live as materialized (
        select l.*, p.name as partition_name, q.name as queue_name, q.priority, x.place
        from unnest(queen.partitions_of_lease(p_lease)) with ordinality x(id, place)
        join queen.partition_leases l on l.partition_id = x.id and l.lease_id = p_lease
        join queen.partitions p on p.id = x.id
        join queen.queues q on q.id = p.queue_id and q.deleted_at is null
        where l.lease_expires_at > coalesce(p_now, clock_timestamp())
    ), found as (
        select l.place, l.partition_id, null::bigint as seq, null::timestamptz as created_at,
            l.queue_name as transaction_id, null::uuid as trace_id, null::json as payload,
            null::integer as deliveries, l.priority as failures, l.partition_name as note, l.lease_id,
            l.lease_expires_at as expires_at, null::text as key_id
        from live l
        union all
        select l.place, m.partition_id, m.seq, m.created_at, m.transaction_id, m.trace_id, m.payload,
            y.deliveries, coalesce(y.failures, 0), y.error, null, null, m.encryption_key_id
        from live l
        join queen.messages m on not l.redriving and m.partition_id = l.partition_id
            and m.seq >= lower(l.open) and m.seq < upper(l.open) and l.open @> m.seq
        left join queen.retries y
            on y.partition_id = m.partition_id and y.group_id = l.group_id and y.seq = m.seq
        union all
        select l.place, d.partition_id, d.seq, d.created_at, d.transaction_id, d.trace_id, d.payload,
            y.deliveries, coalesce(y.failures, 0), y.error, null, null, d.encryption_key_id
        from live l
        join queen.dead_letters d on l.redriving and d.partition_id = l.partition_id
            and d.group_id = l.group_id and l.open @> d.seq
        left join queen.retries y
            on y.partition_id = d.partition_id and y.group_id = d.group_id and y.seq = d.seq
    )
    select f.partition_id, f.seq, f.created_at, f.transaction_id, f.trace_id, f.payload,
        f.deliveries, f.failures, f.note, f.lease_id, f.expires_at, f.key_id
    from found f order by f.place, f.seq nulls first
$$;

-- Take back what a pop was just given of a partition, from the message on whose payload could not be opened,
-- as if it had not been given: nothing is charged, nothing remembered. A lane of which nothing is left rests
-- until p_seconds have passed, so that it does not stand in front of others at every pop.
create or replace function queen.put_off(
    p_lease uuid, p_partition bigint, p_from bigint, p_seconds integer, p_now timestamptz
) returns void language plpgsql volatile set jit = off as $$
declare
    r queen.partition_leases;
begin
    select l.* into r from queen.partition_leases l
    where l.partition_id = p_partition and l.lease_id = p_lease for no key update;
    if not found then
        return;
    end if;
    r.batch := r.batch * queen.span(0, p_from - 1);
    r.open := r.open * r.batch;
    if isempty(r.open) then
        r := queen.unlease(r);
        r.ready_at := coalesce(p_now, clock_timestamp()) + make_interval(secs => p_seconds);
    end if;
    perform queen.store(r);
end $$;

-- Which lease an attempt id stands for, if any; repeats of one id wait here for each other until commit.
create or replace function queen.attempted(p_attempt text) returns uuid language plpgsql volatile as $$
begin
    perform pg_advisory_xact_lock(hashtextextended(p_attempt, 6632));
    return (select c.lease_id from queen.claims c where c.attempt = p_attempt);
end $$;

create or replace function queen.remember_attempt(p_attempt text, p_lease uuid, p_now timestamptz)
returns void language plpgsql volatile as $$
begin
    update queen.claims c set attempt = null where c.attempt = p_attempt and c.lease_id <> p_lease;
    insert into queen.claims as c (lease_id, partition_ids, created_at, attempt)
    values (p_lease, queen.partitions_of_lease(p_lease), coalesce(p_now, clock_timestamp()), p_attempt)
    on conflict (lease_id) do update set attempt = excluded.attempt;
end $$;

-- The queues of a namespace and task, null standing for any: first those in which the group is not
-- registered, then those that have something due for it, in the order in which to look (C-17).
create or replace function queen.scope_queues(p_namespace text, p_task text, p_group text, p_now timestamptz)
returns table (queue_name text, registered boolean)
language sql volatile set jit = off set enable_seqscan = off as $$
    select q.name, coalesce(g.registered, false)
    from queen.queues q
    left join queen.consumer_groups g on g.queue_id = q.id and g.name = p_group
    left join lateral (
        select l.ready_at, l.partition_id from queen.partition_leases l
        -- Selected, the time is read once and is a condition of the index; as a call it would be a filter,
        -- and every delayed or leased row of the group would be looked at.
        where l.group_id = g.id and l.ready_at <= (select coalesce(p_now, clock_timestamp()))
        order by l.ready_at, l.partition_id limit 1
    ) x on true
    where q.deleted_at is null
        and (p_namespace is null or q.namespace = p_namespace)
        and (p_task is null or q.task = p_task)
        and (x.ready_at is not null or not coalesce(g.registered, false))
    order by coalesce(g.registered, false), q.priority desc, x.ready_at, x.partition_id
$$;

create or replace function queen.scope_ready_in(p_namespace text, p_task text, p_group text, p_now timestamptz)
returns double precision language sql volatile set jit = off as $$
    select case when exists (
            select 1 from queen.queues q
            join queen.partitions p on p.queue_id = q.id and p.last_seq >= p.first_seq
            where q.deleted_at is null
                and (p_namespace is null or q.namespace = p_namespace)
                and (p_task is null or q.task = p_task)
                and not exists (
                    select 1 from queen.consumer_groups g where g.queue_id = q.id and g.name = p_group
                )
        )
        then 0
        when min(x.ready_at) is not null
        then greatest(0, extract(epoch from min(x.ready_at) - coalesce(p_now, clock_timestamp())))::double precision
    end
    from queen.queues q
    join queen.consumer_groups g on g.queue_id = q.id and g.name = p_group,
    lateral (
        select l.ready_at from queen.partition_leases l
        where l.group_id = g.id and l.ready_at is not null
        order by l.ready_at limit 1
    ) x
    where q.deleted_at is null
        and (p_namespace is null or q.namespace = p_namespace)
        and (p_task is null or q.task = p_task)
$$;

-- In how many seconds something may come due for a group by time alone; null: nothing known.
create or replace function queen.next_ready_in(p_queue text, p_group text, p_partition text, p_now timestamptz)
returns double precision language sql volatile set jit = off as $$
    -- greatest passes over nulls, so nothing known has to be told apart first.
    select case when r.at is not null
        then greatest(0, extract(epoch from r.at - coalesce(p_now, clock_timestamp())))::double precision
    end
    from queen.queues q
    join queen.consumer_groups g on g.queue_id = q.id and g.name = p_group,
    lateral (
        select case
            when p_partition is null then (
                select l.ready_at from queen.partition_leases l
                where l.group_id = g.id and l.ready_at is not null
                order by l.ready_at limit 1
            )
            else (
                select l.ready_at from queen.partition_leases l
                join queen.partitions p on p.id = l.partition_id and p.queue_id = q.id and p.name = p_partition
                where l.group_id = g.id
            )
        end as at
    ) r
    where q.name = p_queue and q.deleted_at is null
$$;
