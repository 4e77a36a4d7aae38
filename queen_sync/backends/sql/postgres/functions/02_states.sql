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

create or replace function queen.settle(inout r queen.partition_leases, p_seqs int8multirange)
language plpgsql volatile as $$
begin
    r.settled := r.settled + p_seqs;
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

-- Set one message aside for the group, with a copy of its own, and settle it.
create or replace function queen.bury(
    inout r queen.partition_leases, p_seq bigint, p_error text, p_at timestamptz,
    p_failures integer, p_deliveries integer
) language plpgsql volatile as $$
begin
    insert into queen.dead_letters
    select m.partition_id, r.group_id, m.seq, q.id, q.name, p.name, g.name,
        m.transaction_id, m.trace_id, m.created_at, m.payload, p_error, p_failures, p_deliveries, p_at
    from queen.messages m
    join queen.partitions p on p.id = m.partition_id
    join queen.queues q on q.id = p.queue_id
    join queen.consumer_groups g on g.id = r.group_id
    where m.partition_id = r.partition_id and m.seq = p_seq
    on conflict (partition_id, group_id, seq) do update
        set error = excluded.error, failures = excluded.failures,
            deliveries = excluded.deliveries, failed_at = excluded.failed_at;
    r := queen.settle(r, queen.one(p_seq));
end $$;

-- End a lease that ran out (C-03). Messages without an outcome come back, each charged with a
-- failure, but none past its limit unless it was alone in its claim and, with a limit of 0, had
-- been through an expiry before.
create or replace function queen.expire(
    inout r queen.partition_leases, q queen.queues, p_at timestamptz
) language plpgsql volatile as $$
declare
    x queen.retries;
    v_seq bigint;
begin
    if r.alone then
        v_seq := lower(r.open);
        select * into x from queen.retries y
        where y.partition_id = r.partition_id and y.group_id = r.group_id and y.seq = v_seq;
        x.failures := coalesce(x.failures, 0)
            + case when q.retry_limit > 0 or coalesce(x.expired, false) then 1 else 0 end;
        x.deliveries := coalesce(x.deliveries, 0) + 1;
        if x.failures > q.retry_limit then
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
    r.lease_id := null; r.lease_expires_at := null; r.alone := false;
    r.batch := '{}'; r.open := '{}'; r.failed := null; r.returned := null; r.dead := null;
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

-- What a pop may deliver of the partition: the lowest unsettled messages, at most p_room, cut before
-- the first that is not due and around one that must go alone (C-01, C-03).
create or replace function queen.cut(
    r queen.partition_leases, q queen.queues, p_last bigint, p_room integer, p_at timestamptz,
    out batch int8multirange, out size integer, out first_alone boolean
) language sql volatile as $$
    with candidate as materialized (
        select e as seq
        from queen.elements(
            queen.span(r.position + 1, least(p_last, r.position + p_room + queen.size(r.settled))) - r.settled
        ) e
        order by e
        limit p_room
    ), judged as materialized (
        select c.seq,
            c.seq = min(c.seq) over () as heads,
            coalesce(x.expired and x.failures >= q.retry_limit, false) as alone,
            coalesce(x.not_before > p_at, false) or (
                q.delayed_processing_seconds > 0
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
