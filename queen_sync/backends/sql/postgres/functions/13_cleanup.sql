-- Taking things out by hand. Whatever leaves the store is settled for every group in the same transaction,
-- so that lag and depth stay arithmetic.

-- Keep where a partition's messages begin and which of the later ones are missing: a first one that is
-- missing is none, the partition begins behind it.
create or replace function queen.store_holes(p queen.partitions) returns void
language plpgsql volatile as $$
begin
    p.holes := p.holes - queen.span(0, p.first_seq - 1);
    if not isempty(p.holes) and lower(p.holes) = p.first_seq then
        p.first_seq := (select upper(x) from unnest(p.holes) x limit 1);
        p.holes := p.holes - queen.span(0, p.first_seq - 1);
    end if;
    update queen.partitions x set first_seq = p.first_seq, holes = p.holes where x.id = p.id;
end $$;

-- Lock a partition with all its lease rows, in the order in which everybody does: queue, partition, lease
-- rows. A group that is being registered could still get a row here; its registrar holds the group's
-- share lock while it makes some, so that the stronger one lets it finish and then sees what happens
-- here. Nulls: there is no such partition (any more).
create or replace function queen.lock_lanes(p_partition bigint, out q queen.queues, out p queen.partitions)
language plpgsql volatile as $$
begin
    perform queen.require_read_committed();
    select x.* into q from queen.queues x
    where x.deleted_at is null and x.id = (select y.queue_id from queen.partitions y where y.id = p_partition)
    for share;
    if q.id is null then
        return;
    end if;
    perform 1 from queen.consumer_groups g where g.queue_id = q.id and not g.registered
    order by g.id for no key update;
    select x.* into p from queen.partitions x
    where x.id = p_partition and x.queue_id = q.id for no key update;
    if p.id is null then
        q := null;
        return;
    end if;
    perform 1 from queen.partition_leases l where l.partition_id = p_partition
    order by l.group_id for no key update;
end $$;

-- When a row may be taken after its first message may have become another one: it keeps its place in the
-- line, behind the due of what is first now.
create or replace function queen.ready_again(
    r queen.partition_leases, q queen.queues, p_from timestamptz, p_at timestamptz
) returns timestamptz language plpgsql volatile as $$
declare
    v_created timestamptz;
begin
    if r.redriven_count = 0 then
        select m.created_at into v_created from queen.messages m
        where m.partition_id = r.partition_id and m.seq = r.position + 1;
    end if;
    return queen.next_ready(r, q, greatest(v_created, least(coalesce(p_from, r.ready_at), p_at)));
end $$;

-- Remove one message for all groups, under its name or by what its id says. Returns the queue; null: there
-- is no such message.
create or replace function queen.delete_message(
    p_partition bigint, p_name text, p_seq bigint, p_stamp bigint, p_now timestamptz
) returns bigint language plpgsql volatile set jit = off as $$
declare
    v_place record;
    q queen.queues;
    p queen.partitions;
    r queen.partition_leases;
    v_seq bigint;
    v_one int8multirange;
    v_at timestamptz;
    v_from timestamptz;
    v_redriven timestamptz;
begin
    select * into v_place from queen.lock_lanes(p_partition);
    q := v_place.q;
    p := v_place.p;
    v_seq := queen.stored_message(p.id, p_name, p_seq, p_stamp);
    if v_seq is null then
        return null;
    end if;
    v_at := coalesce(p_now, clock_timestamp());
    v_one := queen.one(v_seq);
    for r in select * from queen.partition_leases l where l.partition_id = p.id order by l.group_id loop
        v_from := null;
        if r.lease_expires_at <= v_at then
            v_from := r.lease_expires_at;
            r := queen.expire(r, q, v_at);
        end if;
        v_redriven := null;
        delete from queen.dead_letters d
        where d.partition_id = p.id and d.group_id = r.group_id and d.seq = v_seq
        returning d.redriven_at into v_redriven;
        if v_redriven is not null then
            r.redriven_count := r.redriven_count - 1;
        end if;
        if r.retrying then
            delete from queen.retries x
            where x.partition_id = p.id and x.group_id = r.group_id and x.seq = v_seq;
            r.retrying := exists (
                select 1 from queen.retries x where x.partition_id = p.id and x.group_id = r.group_id
            );
        end if;
        if v_seq > r.position then
            r.settled := r.settled + v_one;
            r := queen.advance(r);
        end if;
        if r.batch @> v_seq then
            r.batch := r.batch - v_one;
            r.open := r.open - v_one;
            if isempty(r.open) then
                r.closed_lease_id := r.lease_id; r.closed_batch := r.batch; r.closed_failed := r.failed;
                r.closed_returned := r.returned; r.closed_dead := r.dead;
                r := queen.unlease(r);
                v_from := v_at;
            end if;
        end if;
        if r.lease_id is null and (v_from is not null or r.ready_at is not null) then
            r.ready_at := queen.ready_again(r, q, v_from, v_at);
        end if;
        perform queen.store(r);
    end loop;
    -- In this order: whoever is filing a note holds the message's row.
    delete from queen.messages m where m.partition_id = p.id and m.seq = v_seq;
    delete from queen.traces t where t.partition_id = p.id and t.seq = v_seq;
    p.holes := p.holes + v_one;
    perform queen.store_holes(p);
    return q.id;
end $$;

-- Dead-letter a message now, for one group or all that have not settled it. Null queue_id: there is no such
-- message.
create or replace function queen.bury_message(
    p_partition bigint, p_name text, p_seq bigint, p_stamp bigint, p_group text, p_error text,
    p_now timestamptz, out queue_id bigint, out buried bigint
) language plpgsql volatile set jit = off as $$
#variable_conflict use_column
declare
    v_place record;
    v_lane record;
    q queen.queues;
    p queen.partitions;
    r queen.partition_leases;
    x queen.retries;
    v_seq bigint;
    v_at timestamptz;
    v_from timestamptz;
    v_redriving boolean;
    v_redriven boolean;
    v_owed boolean;
begin
    buried := 0;
    select * into v_place from queen.lock_lanes(p_partition);
    q := v_place.q;
    p := v_place.p;
    v_seq := queen.stored_message(p.id, p_name, p_seq, p_stamp);
    if v_seq is null then
        return;
    end if;
    queue_id := q.id;
    v_at := coalesce(p_now, clock_timestamp());
    for v_lane in select l as lane, g.skip_before
        from queen.partition_leases l
        join queen.consumer_groups g on g.id = l.group_id and g.registered
        where l.partition_id = p.id and (p_group is null or g.name = p_group)
        order by l.group_id
    loop
        r := v_lane.lane;
        v_from := null;
        if r.lease_expires_at <= v_at then
            v_from := r.lease_expires_at;
            r := queen.expire(r, q, v_at);
        end if;
        v_redriven := r.redriven_count > 0 and queen.redriven(r) @> v_seq;
        v_owed := (v_redriven or queen.waiting(r, p, v_lane.skip_before) @> v_seq) and not r.batch @> v_seq;
        if v_owed then
            x := null;
            if r.retrying then
                select * into x from queen.retries y
                where y.partition_id = p.id and y.group_id = r.group_id and y.seq = v_seq;
            end if;
            v_redriving := r.redriving;
            r.redriving := v_redriven;
            r := queen.bury(r, v_seq, coalesce(p_error, x.error), v_at,
                coalesce(x.failures, 0), coalesce(x.deliveries, 0));
            r.redriving := v_redriving;
            buried := buried + 1;
        end if;
        continue when not v_owed and v_from is null;
        if r.lease_id is null then
            r.ready_at := queen.ready_again(r, q, v_from, v_at);
        end if;
        perform queen.store(r);
    end loop;
end $$;

-- End the retry delay of a message, for one group or for all for which it has failed and is not in flight.
-- Null queue_id: there is no such message.
create or replace function queen.retry_message_now(
    p_partition bigint, p_name text, p_seq bigint, p_stamp bigint, p_group text, p_now timestamptz,
    out queue_id bigint, out failed bigint
) language plpgsql volatile set jit = off as $$
#variable_conflict use_column
declare
    v_place record;
    q queen.queues;
    p queen.partitions;
    r queen.partition_leases;
    x queen.retries;
    v_seq bigint;
    v_at timestamptz;
    v_from timestamptz;
begin
    failed := 0;
    select * into v_place from queen.lock_lanes(p_partition);
    q := v_place.q;
    p := v_place.p;
    v_seq := queen.stored_message(p.id, p_name, p_seq, p_stamp);
    if v_seq is null then
        return;
    end if;
    queue_id := q.id;
    v_at := coalesce(p_now, clock_timestamp());
    for r in select l.*
        from queen.partition_leases l
        join queen.consumer_groups g on g.id = l.group_id and g.registered
        where l.partition_id = p.id and (p_group is null or g.name = p_group)
        order by l.group_id
    loop
        v_from := null;
        if r.lease_expires_at <= v_at then
            v_from := r.lease_expires_at;
            r := queen.expire(r, q, v_at);
        end if;
        x := null;
        if r.retrying and not r.open @> v_seq then
            select * into x from queen.retries y
            where y.partition_id = p.id and y.group_id = r.group_id and y.seq = v_seq and y.failures > 0;
        end if;
        if x.seq is not null then
            failed := failed + 1;
        end if;
        continue when v_from is null and not coalesce(x.not_before > v_at, false);
        update queen.retries y set not_before = v_at
        where y.partition_id = p.id and y.group_id = r.group_id and y.seq = x.seq and y.not_before > v_at;
        if r.lease_id is null then
            r.ready_at := queen.ready_again(r, q, v_from, v_at);
        end if;
        perform queen.store(r);
    end loop;
end $$;

-- Remove all messages of a partition, whatever the groups have done with them; only dead letters stay.
-- Null: there is no such partition.
create or replace function queen.clear_partition(p_partition bigint, p_now timestamptz) returns bigint
language plpgsql volatile set jit = off as $$
declare
    v_place record;
    p queen.partitions;
    r queen.partition_leases;
    v_count bigint;
begin
    select * into v_place from queen.lock_lanes(p_partition);
    p := v_place.p;
    if p.id is null then
        return null;
    end if;
    for r in select * from queen.partition_leases l where l.partition_id = p.id order by l.group_id loop
        r := queen.unlease(r);
        r.closed_lease_id := null; r.closed_batch := null; r.closed_failed := null;
        r.closed_returned := null; r.closed_dead := null;
        r.position := p.last_seq;
        r.settled := '{}';
        r.retrying := false;
        r.redriven_count := 0;
        r.ready_at := null; -- under the partition's lock: no push can stand behind it
        perform queen.store(r);
    end loop;
    delete from queen.retries x where x.partition_id = p.id;
    delete from queen.dead_letters d where d.partition_id = p.id and d.redriven_at is not null;
    delete from queen.messages m where m.partition_id = p.id and m.seq <= p.last_seq;
    get diagnostics v_count = row_count;
    delete from queen.traces t where t.partition_id = p.id;
    p.first_seq := p.last_seq + 1;
    perform queen.store_holes(p);
    return v_count;
end $$;

-- Delete a partition at once, however much it holds: it moves to a tombstone of its own, whose contents the
-- sweep removes like a deleted queue's. What makes it visible goes now. A queue is never without its
-- Default. Returns the queue; null: there was no such partition.
create or replace function queen.delete_partition(p_queue text, p_name text, p_now timestamptz)
returns bigint language plpgsql volatile set jit = off as $$
declare
    v_place record;
    q queen.queues;
    p queen.partitions;
    v_tomb bigint;
    v_at timestamptz;
begin
    select x.* into p from queen.queues y
    join queen.partitions x on x.queue_id = y.id and x.name = p_name
    where y.name = p_queue and y.deleted_at is null;
    select * into v_place from queen.lock_lanes(p.id);
    q := v_place.q;
    p := v_place.p;
    if p.id is null then
        return null;
    end if;
    v_at := coalesce(p_now, clock_timestamp());
    insert into queen.queues (name, created_at, configured_at, deleted_at)
    values (q.name, v_at, v_at, v_at) returning id into v_tomb;
    update queen.partitions x set queue_id = v_tomb where x.id = p.id;
    delete from queen.partition_leases l where l.partition_id = p.id;
    delete from queen.retries x where x.partition_id = p.id;
    delete from queen.dead_letters d where d.partition_id = p.id;
    delete from queen.traces t where t.partition_id = p.id;
    if p.name = 'Default' then
        perform queen.make_partitions(q.id, array['Default'], p_now);
    end if;
    return q.id;
end $$;
