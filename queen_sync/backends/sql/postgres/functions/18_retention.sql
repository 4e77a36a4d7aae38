-- What retention removes, and how long the history of that is kept (C-09).

-- The next partitions of queues with retention that hold something that it may name, by their numbers; as
-- queen.next_lanes.
create or replace function queen.next_retained(
    p_limit integer, p_now timestamptz, out partition_ids bigint[], out more boolean
) language plpgsql volatile set jit = off as $$
#variable_conflict use_column
declare
    u queen.upkeep;
begin
    partition_ids := '{}';
    more := false;
    if not queen.may_sweep('retain') then
        return;
    end if;
    select * into u from queen.upkeep y where y.step = 'retain';
    if not u.under_way then
        u.began_at := coalesce(p_now, clock_timestamp());
        u.partition_id := 0;
    end if;
    select coalesce(array_agg(x.id order by x.id), '{}') into partition_ids from (
        select p.id from queen.queues q
        join queen.partitions p on p.queue_id = q.id
        where q.deleted_at is null and q.retention_enabled
            and (q.retention_seconds > 0 or q.completed_retention_seconds > 0)
            and p.last_seq >= p.first_seq and p.id > u.partition_id
        order by p.id limit p_limit
    ) x;
    more := cardinality(partition_ids) = p_limit;
    update queen.upkeep y
    set began_at = u.began_at, under_way = more, partition_id = coalesce(partition_ids[p_limit], 0)
    where y.step = 'retain' and (y.under_way or more);
end $$;

-- Remove a prefix of a partition, p_limit messages at most (C-09): what is older than retention_seconds,
-- read or not, and what every group had settled completed_retention_seconds ago. Neither reaches into
-- a live lease's batch. first_seq and all positions move past what goes in the same transaction, so that
-- depth and lag stay arithmetic. Returns how many went.
create or replace function queen.retain(p_partition bigint, p_limit integer, p_now timestamptz)
returns bigint language plpgsql volatile set jit = off as $$
declare
    p queen.partitions;
    q queen.queues;
    r queen.partition_leases;
    v_at timestamptz;
    v_expired timestamptz;
    v_settled bigint;
    v_barrier bigint;
    v_done bigint;
    v_aged bigint;
    v_to bigint;
    v_gone bigint;
begin
    perform queen.require_read_committed();
    select * into p from queen.partitions x where x.id = p_partition;
    select * into q from queen.queues x where x.id = p.queue_id and x.deleted_at is null for share;
    if not found or not q.retention_enabled then
        return 0;
    end if;
    select * into p from queen.partitions x where x.id = p_partition for no key update skip locked;
    if not found then
        return 0; -- a push holds it, for as long as its caller likes; there is another sweep
    end if;
    perform 1 from queen.partition_leases l where l.partition_id = p_partition
    order by l.group_id for no key update;
    v_at := coalesce(p_now, clock_timestamp());
    -- While the messages are still there: one that ends here as a dead letter takes its copy along.
    for r in select * from queen.partition_leases l
        where l.partition_id = p_partition and l.lease_expires_at <= v_at order by l.group_id
    loop
        v_expired := r.lease_expires_at; -- it keeps its place in the line
        r := queen.expire(r, q, v_at);
        r.ready_at := queen.next_ready(r, q, v_expired);
        perform queen.store(r);
    end loop;
    select min(l.position), min(case
            when l.lease_id is not null and l.lease_expires_at > v_at and not l.redriving
            then lower(l.batch) - 1 end)
    into v_settled, v_barrier
    from queen.partition_leases l where l.partition_id = p_partition;

    -- A position has no time, so what is settled is noted now and then (ten times per period at most) and
    -- taken once the note is old enough: never early, a tenth and a sweep late at the most. Without groups
    -- nothing is settled.
    v_settled := coalesce(v_settled, p.first_seq - 1);
    v_done := p.first_seq - 1;
    if q.completed_retention_seconds > 0 then
        update queen.position_marks m set position = v_settled
        where m.partition_id = p_partition and m.position > v_settled;
        select greatest(v_done, max(m.position)) into v_done from queen.position_marks m
        where m.partition_id = p_partition
            and m.marked_at <= v_at - make_interval(secs => q.completed_retention_seconds);
        delete from queen.position_marks m where m.partition_id = p_partition and m.position <= v_done;
        if v_settled > v_done and not exists (
            select 1 from queen.position_marks m
            where m.partition_id = p_partition and (
                m.position = v_settled
                or m.marked_at > v_at - make_interval(secs => q.completed_retention_seconds / 10.0)
            )
        ) then
            insert into queen.position_marks values (p_partition, v_at, v_settled)
            on conflict do nothing;
        end if;
    end if;
    v_aged := p.first_seq - 1;
    if q.retention_seconds > 0 then
        v_aged := queen.seq_before(p_partition, p.first_seq, p.last_seq,
            v_at - make_interval(secs => q.retention_seconds) + interval '1 microsecond');
    end if;
    v_to := least(greatest(v_done, v_aged), v_barrier, p.first_seq - 1 + p_limit);
    if v_to < p.first_seq then
        return 0;
    end if;

    insert into queen.removals (queue_id, partition_name, kind, count, removed_at)
    select q.id, p.name, x.kind, x.count, v_at
    from (values
        ('completed', queen.size(queen.span(p.first_seq, least(v_to, v_done)) - p.holes)),
        ('expired', queen.size(queen.span(greatest(v_done + 1, p.first_seq), v_to) - p.holes))
    ) x(kind, count)
    where x.count > 0;
    delete from queen.messages m
    where m.partition_id = p_partition and m.seq >= p.first_seq and m.seq <= v_to;
    delete from queen.traces t where t.partition_id = p_partition and t.seq <= v_to;
    v_gone := queen.size(queen.span(p.first_seq, v_to) - p.holes);
    p.first_seq := v_to + 1;
    perform queen.store_holes(p);
    for r in select * from queen.partition_leases l
        where l.partition_id = p_partition and l.position < v_to order by l.group_id
    loop
        delete from queen.retries y
        where r.retrying and y.partition_id = p_partition and y.group_id = r.group_id and y.seq <= v_to
            and not exists (
                select 1 from queen.dead_letters d
                where d.partition_id = y.partition_id and d.group_id = y.group_id and d.seq = y.seq
            );
        r.retrying := r.retrying and exists (
            select 1 from queen.retries y where y.partition_id = p_partition and y.group_id = r.group_id
        );
        r := queen.advance_to(r, v_to);
        if r.lease_id is null then
            r.ready_at := queen.next_ready(r, q, v_at);
        end if;
        perform queen.store(r);
    end loop;
    return v_gone;
end $$;

-- The history is kept for a week.
create or replace function queen.forget_removals(p_limit integer, p_now timestamptz) returns bigint
language plpgsql volatile as $$
declare
    v_total bigint;
begin
    if not queen.may_sweep('removals') then
        return 0;
    end if;
    delete from queen.removals r using (
        select x.id from queen.removals x
        where x.removed_at < coalesce(p_now, clock_timestamp()) - interval '7 days' order by x.id limit p_limit
    ) y where r.id = y.id;
    get diagnostics v_total = row_count;
    return v_total;
end $$;
