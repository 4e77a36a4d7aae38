-- The state of a group in a partition. Callers hold the lock of the lease row and write it back.

-- Pull the position over what is settled right after it.
create or replace function queen.advance(inout r queen.partition_leases)
language plpgsql immutable as $$
begin
    if not isempty(r.settled) and lower(r.settled) <= r.position + 1 then
        r.position := (select upper(x) - 1 from unnest(r.settled) x limit 1);
        r.settled := r.settled - queen.span(0, r.position);
    end if;
end $$;

-- Settle messages: those of the log past the position, or, of a lease on redriven messages, those; in the
-- log they were settled when they died.
create or replace function queen.settle(inout r queen.partition_leases, p_seqs int8multirange)
language plpgsql volatile as $$
declare
    v_gone integer;
begin
    if r.redriving then
        delete from queen.dead_letters d
        where d.partition_id = r.partition_id and d.group_id = r.group_id and p_seqs @> d.seq
            and d.redriven_at is not null;
        get diagnostics v_gone = row_count;
        r.redriven_count := r.redriven_count - v_gone;
    else
        r.settled := r.settled + p_seqs;
    end if;
    if r.retrying then
        delete from queen.retries x
        where x.partition_id = r.partition_id and x.group_id = r.group_id and p_seqs @> x.seq;
        r.retrying := exists (
            select 1 from queen.retries x
            where x.partition_id = r.partition_id and x.group_id = r.group_id
        );
    end if;
    r := queen.advance(r);
end $$;

-- Set one message aside for the group, with a copy of its own, and settle it. A redriven one has its
-- copy already and goes back to being dead.
create or replace function queen.bury(
    inout r queen.partition_leases, p_seq bigint, p_error text, p_at timestamptz,
    p_failures integer, p_deliveries integer
) language plpgsql volatile as $$
begin
    if r.redriving then
        update queen.dead_letters d
        set redriven_at = null, error = p_error, failures = p_failures, deliveries = p_deliveries,
            failed_at = p_at
        where d.partition_id = r.partition_id and d.group_id = r.group_id and d.seq = p_seq;
        r.redriven_count := r.redriven_count - 1;
    else
        insert into queen.dead_letters (
            partition_id, group_id, seq, queue_id, queue_name, partition_name, group_name, transaction_id,
            trace_id, created_at, payload, error, failures, deliveries, failed_at, encryption_key_id
        )
        select m.partition_id, r.group_id, m.seq, q.id, q.name, p.name, g.name,
            m.transaction_id, m.trace_id, m.created_at, m.payload, p_error, p_failures, p_deliveries,
            p_at, m.encryption_key_id
        from queen.messages m
        join queen.partitions p on p.id = m.partition_id
        join queen.queues q on q.id = p.queue_id
        join queen.consumer_groups g on g.id = r.group_id
        where m.partition_id = r.partition_id and m.seq = p_seq
        on conflict (partition_id, group_id, seq) do update
            set error = excluded.error, failures = excluded.failures, redriven_at = null,
                deliveries = excluded.deliveries, failed_at = excluded.failed_at;
    end if;
    r := queen.settle(r, queen.one(p_seq));
end $$;

-- The end of a lease, as it stands in the row; what became of its messages is the caller's.
create or replace function queen.unlease(inout r queen.partition_leases) language plpgsql immutable as $$
begin
    r.lease_id := null; r.lease_expires_at := null; r.alone := false; r.redriving := false;
    r.batch := '{}'; r.open := '{}'; r.failed := null; r.returned := null; r.dead := null;
end $$;

-- Write the state back whole.
create or replace function queen.store(r queen.partition_leases) returns void language sql volatile as $$
    update queen.partition_leases l
    set position = r.position, settled = r.settled, lease_id = r.lease_id,
        lease_expires_at = r.lease_expires_at, alone = r.alone, redriving = r.redriving,
        batch = r.batch, open = r.open, failed = r.failed, returned = r.returned, dead = r.dead,
        closed_lease_id = r.closed_lease_id, closed_batch = r.closed_batch,
        closed_failed = r.closed_failed, closed_returned = r.closed_returned, closed_dead = r.closed_dead,
        retrying = r.retrying, redriven_count = r.redriven_count, sought = r.sought, taken_at = r.taken_at,
        ready_at = r.ready_at
    where l.partition_id = r.partition_id and l.group_id = r.group_id
$$;

-- End a lease that ran out (C-03). Messages without an outcome come back, each charged with a
-- failure, but none past its limit unless it was alone in its claim and, with a limit of 0, had
-- been through an expiry before.
create or replace function queen.expire(
    inout r queen.partition_leases, q queen.queues, p_at timestamptz
) language plpgsql volatile as $$
declare
    x queen.retries;
    v_seq bigint;
    v_charged boolean;
begin
    if r.alone then
        v_seq := lower(r.open);
        select * into x from queen.retries y
        where y.partition_id = r.partition_id and y.group_id = r.group_id and y.seq = v_seq;
        v_charged := q.retry_limit > 0 or coalesce(x.expired, false);
        x.failures := coalesce(x.failures, 0) + v_charged::integer;
        x.deliveries := coalesce(x.deliveries, 0) + 1;
        if v_charged and x.failures > q.retry_limit then
            r := queen.bury(r, v_seq, 'Partition lease expired', p_at, x.failures, x.deliveries);
        else
            insert into queen.retries as y (partition_id, group_id, seq, deliveries, failures, expired, error)
            values (r.partition_id, r.group_id, v_seq, x.deliveries, x.failures, true, 'Partition lease expired')
            on conflict (partition_id, group_id, seq) do update
                set deliveries = excluded.deliveries, failures = excluded.failures, expired = true,
                    error = excluded.error;
            r.retrying := true;
        end if;
    else
        insert into queen.retries as y (partition_id, group_id, seq, deliveries, failures, expired, error)
        select r.partition_id, r.group_id, e, 1, least(1, q.retry_limit), true, 'Partition lease expired'
        from queen.elements(r.open) e
        on conflict (partition_id, group_id, seq) do update
            set deliveries = y.deliveries + 1,
                failures = greatest(y.failures, least(y.failures + 1, q.retry_limit)),
                expired = true, error = excluded.error;
        r.retrying := true;
    end if;
    r := queen.unlease(r);
end $$;

-- Settle as evicted what is too old to be delivered and not in a live lease's batch (C-09), and say so in
-- the history. created_at never falls along seq, so one look at the oldest message tells most times.
create or replace function queen.evict(
    inout r queen.partition_leases, q queen.queues, p_last bigint, p_at timestamptz, out evicted bigint
) language plpgsql volatile as $$
declare
    v_until timestamptz := p_at - make_interval(secs => least(nullif(q.ttl_seconds, 0), nullif(q.max_wait_seconds, 0)));
    v_old int8multirange;
    v_redriven int8multirange;
begin
    evicted := 0;
    -- created_at + limit <= now
    v_old := queen.span(r.position + 1,
            queen.seq_before(r.partition_id, r.position + 1, p_last, v_until + interval '1 microsecond'))
        - r.settled - case when r.lease_id is null or r.redriving then '{}' else r.batch end;
    evicted := queen.size(v_old);
    if evicted > 0 then
        r.settled := r.settled + v_old;
        delete from queen.retries x
        where r.retrying and x.partition_id = r.partition_id and x.group_id = r.group_id and v_old @> x.seq;
        r := queen.advance(r);
    end if;
    if r.redriven_count > 0 then
        with gone as (
            delete from queen.dead_letters d
            where d.partition_id = r.partition_id and d.group_id = r.group_id and d.redriven_at <= v_until
                and not (r.redriving and r.batch @> d.seq)
            returning d.seq
        )
        select range_agg(int8range(g.seq, g.seq + 1)) into v_redriven from gone g;
        if v_redriven is not null then
            delete from queen.retries x
            where r.retrying and x.partition_id = r.partition_id and x.group_id = r.group_id and v_redriven @> x.seq;
            r.redriven_count := r.redriven_count - queen.size(v_redriven)::integer;
            evicted := evicted + queen.size(v_redriven);
        end if;
    end if;
    if evicted > 0 then
        r.retrying := r.retrying and exists (
            select 1 from queen.retries x
            where x.partition_id = r.partition_id and x.group_id = r.group_id
        );
        insert into queen.removals (queue_id, partition_name, group_name, kind, count, removed_at)
        select q.id, p.name, g.name, 'evicted', evicted, p_at
        from queen.partitions p, queen.consumer_groups g
        where p.id = r.partition_id and g.id = r.group_id;
    end if;
end $$;

-- When may a pop take the row next? Never before p_from. Null means nothing to read, and is said
-- only under the partition's share lock, which keeps pushes out until commit. The lock is tried,
-- never waited for: whoever holds a lease row must not wait for a partition, since a push holds
-- the partition and waits for lease rows. Measured: waiting deadlocks (40P01), not locking at all
-- loses up to 4 wake-ups in 6 s, trying loses none.
create or replace function queen.next_ready(
    r queen.partition_leases, q queen.queues, p_from timestamptz
) returns timestamptz language plpgsql volatile as $$
declare
    v_last bigint;
    v_pushed timestamptz;
    v_at timestamptz := p_from;
    v_not_before timestamptz;
    v_created timestamptz;
begin
    if r.redriven_count > 0 then -- they come first, and wait for nothing but a retry delay
        if r.retrying then
            select x.not_before into v_not_before
            from queen.dead_letters d
            left join queen.retries x
                on x.partition_id = d.partition_id and x.group_id = d.group_id and x.seq = d.seq
            where d.partition_id = r.partition_id and d.group_id = r.group_id and d.redriven_at is not null
            order by d.seq limit 1;
        end if;
        return greatest(v_at, v_not_before);
    end if;
    select p.last_seq, p.last_pushed_at into v_last, v_pushed
    from queen.partitions p where p.id = r.partition_id;
    if r.position >= v_last then
        select p.last_seq, p.last_pushed_at into v_last, v_pushed
        from queen.partitions p where p.id = r.partition_id for share skip locked;
        if not found then
            return p_from + interval '5 milliseconds'; -- a push is in flight: look again at once
        end if;
        if r.position >= v_last then
            return null;
        end if;
    end if;
    if r.retrying then
        select x.not_before into v_not_before from queen.retries x
        where x.partition_id = r.partition_id and x.group_id = r.group_id and x.seq = r.position + 1;
        v_at := greatest(v_at, v_not_before);
    end if;
    if q.delayed_processing_seconds > 0 or q.window_buffer_seconds > 0 then
        select m.created_at into v_created from queen.messages m
        where m.partition_id = r.partition_id and m.seq = r.position + 1;
        v_at := greatest(v_at, queen.due(v_created, v_pushed, q));
    end if;
    return v_at;
end $$;

-- When its queue lets a partition be delivered whose oldest waiting message is of p_created: after
-- the delay, and after the window since the newest message, though no later than ten windows (C-08).
create or replace function queen.due(p_created timestamptz, p_pushed timestamptz, q queen.queues)
returns timestamptz language sql immutable as $$
    select greatest(
        p_created + make_interval(secs => q.delayed_processing_seconds),
        least(
            p_pushed + make_interval(secs => q.window_buffer_seconds),
            p_created + make_interval(secs => 10 * q.window_buffer_seconds)
        )
    )
$$;

-- What a pop may deliver of the partition: redriven messages, else the lowest unsettled ones, at most
-- p_room, cut before the first that is not due and around one that must go alone (C-01, C-03, C-12).
create or replace function queen.cut(
    r queen.partition_leases, q queen.queues, p_last bigint, p_room integer, p_at timestamptz,
    out batch int8multirange, out size integer, out first_alone boolean
) language sql volatile as $$
    with candidate as materialized (
        (
            select d.seq from queen.dead_letters d
            where r.redriven_count > 0 and d.partition_id = r.partition_id and d.group_id = r.group_id
                and d.redriven_at is not null
            order by d.seq limit p_room
        ) union all (
            select e as seq
            from queen.elements(
                queen.span(r.position + 1, least(p_last, r.position + p_room + queen.size(r.settled))) - r.settled
            ) e
            where r.redriven_count = 0
            order by e
            limit p_room
        )
    ), judged as materialized (
        select c.seq,
            c.seq = min(c.seq) over () as heads,
            coalesce(x.expired and x.failures >= q.retry_limit, false) as alone,
            coalesce(x.not_before > p_at, false) or (
                r.redriven_count = 0 and q.delayed_processing_seconds > 0
                and (
                    select m.created_at from queen.messages m
                    where m.partition_id = r.partition_id and m.seq = c.seq
                ) > p_at - make_interval(secs => q.delayed_processing_seconds)
            ) as waits
        from candidate c
        left join queen.retries x
            on r.retrying and x.partition_id = r.partition_id and x.group_id = r.group_id and x.seq = c.seq
    ), stop as (
        select min(j.seq) as seq from judged j where j.waits or (j.alone and not j.heads)
    )
    select coalesce(range_agg(int8range(j.seq, j.seq + 1)), '{}'), count(*)::integer,
        coalesce(bool_or(j.heads and j.alone), false)
    from judged j, stop s
    where (s.seq is null or j.seq < s.seq)
        and (j.heads or not exists (select 1 from judged h where h.heads and h.alone))
$$;
