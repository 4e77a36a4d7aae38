-- Push to one queue. p_names: the distinct partition names; p_items: for each payload the index of
-- its name (null: all go to the first). p_transactions, p_traces: per payload or null as a whole.
-- p_spread: over how many partitions the caller has spread what names Default; where that is not what the
-- queue says, the call is refused with the number (QS303).
-- p_key: the id of the key that sealed the payloads; null: they are as they were pushed. Where the queue
-- wants it otherwise, the call is refused with what it wants (QS304).
-- p_patience: how long to wait for a row that somebody else holds (a lock_timeout; null: the connection's).
-- p_own_*: where a transaction id reads as a message id of ours, what it says; null as a whole.
--
-- seq is drawn under the partition's row lock, which is held to commit: seq order is commit order,
-- without gaps, so no position can pass a message that commits later. created_at is the clock under
-- the same lock and never falls.
--
-- Returns per name the partition and the created_at of what was stored; per payload its seq (a
-- single number b stands for b, b + 1, …) and, where there is any duplicate, which ones are, with
-- the created_at and trace id of the first.
create or replace function queen.push(
    p_queue text, p_names text[], p_items integer[], p_payloads text[], p_transactions text[],
    p_traces uuid[], p_own_partitions bigint[], p_own_seqs bigint[], p_own_stamps bigint[],
    p_create boolean, p_spread integer, p_key text, p_patience text, p_now timestamptz,
    out queue_id bigint, out partition_ids bigint[], out created_ats timestamptz[], out seqs bigint[],
    out duplicates boolean[], out duplicate_ats timestamptz[], out duplicate_traces uuid[],
    out depth bigint, out max_queue_size integer
) language plpgsql volatile set jit = off set enable_seqscan = off set enable_bitmapscan = off
-- Planned once: planned for each call, the long way costs 0.3 ms more, half of all that two folded pushes take.
set plan_cache_mode = force_generic_plan as $$
#variable_conflict use_column
declare
    q queen.queues;
    v_count integer := cardinality(p_payloads);
    v_names integer := cardinality(p_names);
    v_stored integer;
    v_fresh integer;
    v_partition bigint;
    v_base bigint;
    v_at timestamptz;
    v_delay interval;
    v_lasts bigint[];
begin
    if current_setting('transaction_isolation') <> 'read committed' then
        perform queen.require_read_committed();
    end if;
    if p_patience is not null then
        perform set_config('lock_timeout', p_patience, true);
    end if;
    -- The usual call: one partition of a queue without limit or window. The update is the lock and the
    -- gate: it finds only a partition of a live queue. Of 130-byte payloads at batch 100 this way stores
    -- three times as many as the long way below.
    if v_names = 1 and p_own_seqs is null then
        for attempt in 1..2 loop
            update queen.partitions p
            set last_seq = p.last_seq + v_count,
                last_pushed_at = greatest(p.last_pushed_at, coalesce(p_now, clock_timestamp()))
            from queen.queues x
            where x.name = p_queue and x.deleted_at is null and x.max_queue_size = 0
                and (p_transactions is null or x.window_buffer_seconds = 0)
                and (
                    x.spread_partitions = p_spread
                    or (p_spread = 0 and (x.spread_partitions < 2 or p_names[1] <> 'Default'))
                )
                and x.encryption_enabled = (p_key is not null)
                and p.queue_id = x.id and p.name = p_names[1]
            returning x.id, p.id, p.last_seq - v_count, p.last_pushed_at,
                make_interval(secs => greatest(x.delayed_processing_seconds, x.window_buffer_seconds))
            into queue_id, v_partition, v_base, v_at, v_delay;
            exit when v_partition is not null or attempt = 2;
            perform queen.lock_partitions(array[p_queue], p_names, p_create, p_now);
        end loop;
        if v_partition is not null then
            if p_transactions is null then
                insert into queen.messages (partition_id, seq, created_at, trace_id, payload, encryption_key_id)
                select v_partition, v_base + u.o, v_at, u.trace, u.payload::json, p_key
                from unnest(p_payloads, p_traces) with ordinality u(payload, trace, o);
                v_stored := v_count;
            elsif exists (
                select 1 from queen.messages m
                where m.transaction_id = p_transactions[1] and m.partition_id = v_partition
            ) then
                v_stored := 0; -- a repeated call nearly always begins with a duplicate
            else
                insert into queen.messages
                    (partition_id, seq, created_at, transaction_id, trace_id, payload, encryption_key_id)
                select v_partition, v_base + u.o, v_at, u.transaction, u.trace, u.payload::json, p_key
                from unnest(p_payloads, p_transactions, p_traces) with ordinality u(payload, transaction, trace, o)
                on conflict (transaction_id, partition_id) where transaction_id is not null do nothing;
                get diagnostics v_stored = row_count;
                if v_stored < v_count then
                    delete from queen.messages m where m.partition_id = v_partition and m.seq > v_base;
                end if;
            end if;
            if v_stored = v_count then
                -- A statement of its own, after the partition's lock: only so does it see a row that an
                -- ack cleared a moment ago (in one statement with the update, wake-ups were lost).
                perform 1 from queen.partition_leases l
                where l.partition_id = v_partition and l.ready_at is null
                order by l.group_id for no key update;
                if found then
                    update queen.partition_leases l set ready_at = v_at + v_delay
                    where l.partition_id = v_partition and l.ready_at is null;
                end if;
                partition_ids := array[v_partition];
                created_ats := array[v_at];
                seqs := array[v_base + 1];
                max_queue_size := 0;
                return;
            end if;
            -- Duplicates: take back what was done and go the long way, still under the lock.
            update queen.partitions p set last_seq = v_base where p.id = v_partition;
        end if;
    end if;

    -- The long way. A queue or partition that is deleted between two statements is looked up again.
    p_items := coalesce(p_items, array_fill(1, array[v_count]));
    for attempt in 1..3 loop
        perform queen.lock_partitions(array_fill(p_queue, array[v_names]), p_names, p_create, p_now);
        select * into q from queen.queues x where x.name = p_queue and x.deleted_at is null;
        if q.max_queue_size > 0 then -- nearly always locked already; it may have been limited just now
            select * into q from queen.queues x where x.id = q.id and x.deleted_at is null for no key update;
        end if;
        select array_agg(p.id order by u.o), array_agg(p.last_seq order by u.o),
            array_agg(greatest(p.last_pushed_at, coalesce(p_now, clock_timestamp())) order by u.o)
        into partition_ids, v_lasts, created_ats
        from unnest(p_names) with ordinality u(name, o)
        join queen.partitions p on p.queue_id = q.id and p.name = u.name;
        exit when cardinality(partition_ids) = v_names;
        -- One of several was deleted. With the others in hand, making it again could wait for a push that
        -- makes it too and waits for one of them: the call begins anew, with empty hands.
        if attempt = 3 or cardinality(partition_ids) > 0 then
            raise exception 'a queue or partition was deleted meanwhile' using errcode = '40001';
        end if;
    end loop;
    if q.spread_partitions = 1 then
        q.spread_partitions := 0; -- over one partition is not at all
    end if;
    if q.spread_partitions <> p_spread and (p_spread > 0 or 'Default' = any (p_names)) then
        raise exception 'spread otherwise' using errcode = 'QS303',
            detail = json_build_object('queue', p_queue, 'count', q.spread_partitions)::text;
    end if;
    if q.encryption_enabled <> (p_key is not null) then
        raise exception 'sealed otherwise' using errcode = 'QS304',
            detail = json_build_object('queue', p_queue, 'sealed', q.encryption_enabled)::text;
    end if;
    queue_id := q.id;
    max_queue_size := q.max_queue_size;

    -- Two statements: this one sees all that was stored before the locks were taken. The limits keep the
    -- look-ups what they are: without them the planner may join with the whole table by hash.
    with item as (
        select u.o, u.i, u.transaction,
            u.transaction is null
                or row_number() over (partition by u.i, u.transaction order by u.o) = 1 as leads,
            coalesce(named.seq, own.seq) as seq,
            coalesce(named.created_at, own.created_at) as created_at,
            coalesce(named.trace_id, own.trace_id) as trace_id
        from unnest(p_items, p_transactions, p_own_partitions, p_own_seqs, p_own_stamps)
            with ordinality u(i, transaction, own_partition, own_seq, own_stamp, o)
        left join lateral (
            select m.seq, m.created_at, m.trace_id from queen.messages m
            where m.transaction_id = u.transaction and m.partition_id = partition_ids[u.i]
            limit 1
        ) named on true
        left join lateral (
            select m.seq, m.created_at, m.trace_id from queen.messages m
            where u.own_partition = partition_ids[u.i] and m.partition_id = u.own_partition
                and m.seq = u.own_seq and queen.stamp(m.created_at) = u.own_stamp
            limit 1
        ) own on true
    ), numbered as (
        select item.*,
            case when item.seq is null and item.leads
                then row_number() over (partition by item.i, item.seq is null and item.leads order by item.o)
            end as fresh
        from item
    ), final as (
        select n.o, n.fresh is null as duplicate,
            coalesce(n.seq, v_lasts[n.i] + coalesce(n.fresh, max(n.fresh) over (partition by n.i, n.transaction))) as seq,
            coalesce(n.created_at, created_ats[n.i]) as created_at,
            case when n.seq is not null then n.trace_id
                when n.fresh is not null then p_traces[n.o]
                else p_traces[min(n.o) over (partition by n.i, n.transaction)] end as trace_id
        from numbered n
    )
    select array_agg(f.seq order by f.o), array_agg(f.duplicate order by f.o),
        array_agg(f.created_at order by f.o), array_agg(f.trace_id order by f.o),
        count(*) filter (where not f.duplicate)
    into seqs, duplicates, duplicate_ats, duplicate_traces, v_fresh
    from final f;

    if q.max_queue_size > 0 then
        depth := queen.depth(q.id);
        if v_fresh > 0 and depth + v_fresh > q.max_queue_size then
            raise exception 'queue full' using errcode = 'QS429',
                detail = json_build_object('queue', p_queue, 'max', q.max_queue_size, 'depth', depth, 'pushed', v_fresh)::text;
        end if;
        depth := depth + v_fresh;
    end if;
    if v_fresh = 0 then
        return;
    end if;

    insert into queen.messages
        (partition_id, seq, created_at, transaction_id, trace_id, payload, encryption_key_id)
    select partition_ids[u.i], u.seq, created_ats[u.i], u.transaction, u.trace, u.payload::json, p_key
    from unnest(p_items, seqs, duplicates, p_payloads, p_transactions, p_traces) u(i, seq, duplicate, payload, transaction, trace)
    where not u.duplicate
    order by 1, 2;
    update queen.partitions p set last_seq = c.last_seq, last_pushed_at = c.created_at
    from (
        select partition_ids[u.i] as id, created_ats[u.i] as created_at, max(u.seq) as last_seq
        from unnest(p_items, seqs, duplicates) u(i, seq, duplicate)
        where not u.duplicate group by u.i
    ) c
    where p.id = c.id;
    perform 1 from queen.partition_leases l
    where l.partition_id = any (partition_ids) and l.ready_at is null
    order by l.partition_id, l.group_id for no key update;
    if found then
        update queen.partition_leases l
        set ready_at = p.last_pushed_at
            + make_interval(secs => greatest(q.delayed_processing_seconds, q.window_buffer_seconds))
        from queen.partitions p
        where l.partition_id = any (partition_ids) and l.ready_at is null and p.id = l.partition_id
            and p.last_seq > l.position;
    end if;
    if depth is not null and exists (
        select 1 from queen.consumer_groups g where g.queue_id = q.id and g.skip_before > created_ats[1]
    ) then
        depth := queen.depth(q.id); -- a group that begins later does not wait for these
    end if;
end $$;

-- Of the partitions that a queue spreads over, the one that was chosen longest ago. Looked at without a
-- lock: two pushes at once may choose the same.
create or replace function queen.least_spread(p_queue text, p_names text[]) returns text
language sql volatile set jit = off as $$
    select u.name
    from unnest(p_names) with ordinality u(name, o)
    left join queen.queues q on q.name = p_queue and q.deleted_at is null
    left join queen.partitions p on p.queue_id = q.id and p.name = u.name
    order by p.spread_at nulls first, u.o limit 1
$$;

create or replace function queen.mark_spread(p_queue bigint, p_name text, p_now timestamptz) returns void
language sql volatile as $$
    update queen.partitions p
    set spread_at = greatest(
        coalesce(p_now, clock_timestamp()),
        (select max(x.spread_at) + interval '1 microsecond' from queen.partitions x where x.queue_id = p_queue)
    )
    where p.queue_id = p_queue and p.name = p_name
$$;

-- The partition, of these, in which a message of that id is stored.
create or replace function queen.partition_storing(
    p_queue text, p_names text[], p_partition bigint, p_seq bigint, p_stamp bigint
) returns text language sql volatile set jit = off as $$
    select p.name
    from queen.messages m
    join queen.partitions p on p.id = m.partition_id and p.name = any (p_names)
    join queen.queues q on q.id = p.queue_id and q.name = p_queue and q.deleted_at is null
    where m.partition_id = p_partition and m.seq = p_seq and queen.stamp(m.created_at) = p_stamp
$$;
