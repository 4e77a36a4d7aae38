-- Give messages of one lease their outcomes. Per item: p_seqs, the seq that its transaction id says if
-- that reads as a message id of this partition (p_stamps: its stamp), and p_names, the id as text;
-- p_outcomes: c completed, f failed, r retry, d dead letter (null as a whole: all completed).
--
-- The lease row is locked first and the clock read after it: a clock read before a wait would let an
-- expired lease pass. Answers: verdict
--   live, closed   the items were judged; `results` has one character each, null means all completed:
--                  c f r d  done now;  C F R D  had that outcome already;  n  no such message;
--                  l  not covered by the lease
--   lost           the lease is neither live nor the last closed one; n or l for each item
--   required       no lease id was given and the queue wants one; n or q for each item
-- released: no message of the lease is open any more. more: the partition has work, now or when a delay
-- is over; whoever sleeps until the lease would have run out must be told.
create or replace function queen.ack(
    p_partition bigint, p_group text, p_lease uuid, p_names text[], p_seqs bigint[], p_stamps bigint[],
    p_outcomes text[], p_errors text[], p_now timestamptz,
    out verdict text, out results text[], out queue_name text, out partition_name text,
    out released boolean, out more boolean, out queue_id bigint
) language plpgsql volatile set jit = off set enable_seqscan = off set enable_bitmapscan = off as $$
#variable_conflict use_column
declare
    q queen.queues;
    r queen.partition_leases;
    x queen.retries;
    v_place record;
    v_group bigint;
    v_count integer := cardinality(p_names);
    v_at timestamptz;
    v_asked int8multirange;
    v_seqs bigint[];
    v_live boolean;
    v_one int8multirange;
    v_outcome text;
    v_touched boolean := false;
begin
    if current_setting('transaction_isolation') <> 'read committed' then
        perform queen.require_read_committed();
    end if;
    released := false;
    more := false;
    select y as queue, p.name as partition_name, g.id as group_id into v_place
    from queen.partitions p
    join queen.queues y on y.id = p.queue_id and y.deleted_at is null
    left join queen.consumer_groups g on g.queue_id = y.id and g.name = p_group
    where p.id = p_partition;
    if not found then
        verdict := 'lost';
        results := array_fill('n'::text, array[v_count]);
        return;
    end if;
    q := v_place.queue;
    queue_id := q.id;
    queue_name := q.name;
    partition_name := v_place.partition_name;
    v_group := v_place.group_id;
    select y.* into r from queen.partition_leases y
    where y.partition_id = p_partition and y.group_id = v_group for no key update;
    v_at := coalesce(p_now, clock_timestamp());

    v_live := r.lease_id is not null and v_at < r.lease_expires_at;

    -- The usual call: everything completed under the live lease, each message named once, in order and
    -- open, by its id. One look at the rows of the batch checks the stamps (100 acks: 0.3 ms in all; the
    -- general way below takes three times as long).
    if v_live and r.lease_id = p_lease and p_outcomes is null and not r.redriving
        and array_position(p_seqs, null) is null
    then
        select range_agg(int8range(s, s + 1)) into v_asked from unnest(p_seqs) s;
        if v_asked <@ r.open and queen.size(v_asked) = v_count and p_stamps = (
            select array_agg(queen.stamp(m.created_at) order by m.seq) from queen.messages m
            where m.partition_id = p_partition and m.seq >= lower(v_asked) and m.seq < upper(v_asked)
                and v_asked @> m.seq
        ) then
            verdict := 'live';
            r.open := r.open - v_asked;
            if isempty(r.settled) and not r.retrying and v_asked = queen.span(r.position + 1, r.position + v_count) then
                r.position := r.position + v_count;
            else
                r := queen.settle(r, v_asked);
            end if;
            v_touched := true;
        end if;
    end if;

    if not v_touched then
    -- Which messages are meant: an id of ours only if the row is there and the stamp agrees. Redriven
    -- messages may be stored as dead letters only, and their names in the log may be others' by now.
    select array_agg(x.seq order by u.o), range_agg(int8range(x.seq, x.seq + 1)) into v_seqs, v_asked
    from unnest(p_names, p_seqs, p_stamps) with ordinality u(name, seq, stamp, o)
    left join lateral (
        select m.seq from queen.messages m
        where m.partition_id = p_partition and m.seq = u.seq and queen.stamp(m.created_at) = u.stamp
        limit 1
    ) own on true
    left join lateral (
        select m.seq from queen.messages m
        where own.seq is null and m.transaction_id = u.name and m.partition_id = p_partition
        limit 1
    ) named on true
    left join lateral (
        select d.seq from queen.dead_letters d
        where r.redriving and d.partition_id = p_partition and d.group_id = v_group and r.batch @> d.seq
            and (d.transaction_id = u.name or (d.seq = u.seq and queen.stamp(d.created_at) = u.stamp))
        limit 1
    ) redriven on true
    left join lateral ( -- given back since: a repeat under the lease that closed is still `already`
        select d.seq from queen.dead_letters d
        where own.seq is null and named.seq is null and d.redriven_at is not null
            and d.partition_id = p_partition and d.group_id = v_group and r.closed_batch @> d.seq
            and (d.transaction_id = u.name or (d.seq = u.seq and queen.stamp(d.created_at) = u.stamp))
        limit 1
    ) given_back on true,
    lateral (select coalesce(redriven.seq, own.seq, named.seq, given_back.seq) as seq) x;

    verdict := case
        when p_lease is null then case when q.require_lease_id then 'required' else 'unfenced' end
        when v_live and r.lease_id = p_lease then 'live'
        when r.closed_lease_id = p_lease then 'closed'
        else 'lost'
    end;
    if verdict in ('lost', 'required') then
        select array_agg(case when s is null then 'n' when verdict = 'lost' then 'l' else 'q' end order by o)
        into results from unnest(v_seqs) with ordinality u(s, o);
        return;
    end if;

    -- Everything completed, each message named once and open.
    if p_outcomes is null and verdict = 'live' and v_asked <@ r.open and queen.size(v_asked) = v_count then
        r.open := r.open - v_asked;
        r := queen.settle(r, v_asked);
        v_touched := true;
    else
        results := array_fill('l'::text, array[v_count]);
        for i in 1..v_count loop
            if v_seqs[i] is null then
                results[i] := 'n';
                continue;
            end if;
            v_one := queen.one(v_seqs[i]);
            if verdict <> 'closed' and v_live and r.batch @> v_seqs[i] then
                if not r.open @> v_seqs[i] then
                    results[i] := case
                        when coalesce(r.failed @> v_seqs[i], false) then 'F'
                        when coalesce(r.returned @> v_seqs[i], false) then 'R'
                        when coalesce(r.dead @> v_seqs[i], false) then 'D'
                        else 'C'
                    end;
                    continue;
                end if;
            elsif verdict <> 'live' and coalesce(r.closed_batch @> v_seqs[i], false) then
                results[i] := case
                    when coalesce(r.closed_failed @> v_seqs[i], false) then 'F'
                    when coalesce(r.closed_returned @> v_seqs[i], false) then 'R'
                    when coalesce(r.closed_dead @> v_seqs[i], false) then 'D'
                    else 'C'
                end;
                continue;
            else
                continue;
            end if;

            v_touched := true;
            r.open := r.open - v_one;
            v_outcome := coalesce(p_outcomes[i], 'c');
            results[i] := v_outcome;
            if v_outcome = 'c' then
                r := queen.settle(r, v_one);
                continue;
            end if;
            x := null;
            if r.retrying then
                select * into x from queen.retries y
                where y.partition_id = p_partition and y.group_id = v_group and y.seq = v_seqs[i];
            end if;
            x.deliveries := coalesce(x.deliveries, 0) + 1;
            x.failures := coalesce(x.failures, 0) + (v_outcome = 'f')::integer;
            x.error := coalesce(p_errors[i], x.error);
            if v_outcome = 'd' or x.failures > q.retry_limit then
                results[i] := 'd';
                r.dead := coalesce(r.dead, '{}') + v_one;
                r := queen.bury(r, v_seqs[i],
                    case when v_outcome = 'd' then x.error else coalesce(x.error, 'Retries exhausted') end,
                    v_at, x.failures, x.deliveries);
                continue;
            end if;
            if v_outcome = 'f' then
                r.failed := coalesce(r.failed, '{}') + v_one;
                x.not_before := v_at + q.retry_delay_milliseconds * interval '1 millisecond';
            else
                r.returned := coalesce(r.returned, '{}') + v_one;
                x.not_before := v_at;
            end if;
            insert into queen.retries as y (partition_id, group_id, seq, deliveries, failures, not_before, error)
            values (p_partition, v_group, v_seqs[i], x.deliveries, x.failures, x.not_before, x.error)
            on conflict (partition_id, group_id, seq) do update
                set deliveries = excluded.deliveries, failures = excluded.failures,
                    not_before = excluded.not_before, error = excluded.error;
            r.retrying := true;
        end loop;
    end if;
    end if;

    if not v_touched then
        released := verdict = 'closed' or (verdict = 'unfenced' and not v_live);
        if verdict = 'unfenced' then
            verdict := 'closed';
        end if;
        return;
    end if;
    verdict := 'live';
    released := isempty(r.open);
    if released then
        r.closed_lease_id := r.lease_id; r.closed_batch := r.batch; r.closed_failed := r.failed;
        r.closed_returned := r.returned; r.closed_dead := r.dead;
        r := queen.unlease(r);
        r.ready_at := queen.next_ready(r, q, v_at);
        more := r.ready_at is not null; -- sooner than the lease would have run out, if not at once
    end if;
    perform queen.store(r);
end $$;

-- Acks of several leases in one call: for each its partition, group, lease and how many of the items,
-- which stand one after the other, are its own. All rows are locked first, in their order.
create or replace function queen.ack_many(
    p_partitions bigint[], p_groups text[], p_leases uuid[], p_counts integer[], p_names text[],
    p_seqs bigint[], p_stamps bigint[], p_outcomes text[], p_errors text[], p_patience text, p_now timestamptz
) returns table (
    verdict text, results text[], queue_name text, partition_name text, released boolean, more boolean,
    queue_id bigint
) language plpgsql volatile set jit = off as $$
declare
    v_low integer := 1;
    v_high integer;
begin
    if p_patience is not null then
        perform set_config('lock_timeout', p_patience, true);
    end if;
    perform queen.lock_leases(p_leases, p_partitions, p_groups, '{}', '{}');
    for i in 1..cardinality(p_partitions) loop
        v_high := v_low + p_counts[i] - 1;
        return query select a.* from queen.ack(
            p_partitions[i], p_groups[i], p_leases[i], p_names[v_low:v_high], p_seqs[v_low:v_high],
            p_stamps[v_low:v_high], p_outcomes[v_low:v_high], p_errors[v_low:v_high], p_now
        ) a;
        v_low := v_high + 1;
    end loop;
end $$;

-- Where an ack without a partition may belong: wherever a message of that name is stored, and whether
-- its lease (or, without one, the live or last closed lease of the group) covers that message.
create or replace function queen.find_acked(p_name text, p_lease uuid, p_group text)
returns table (partition_id bigint, covered boolean, requires_lease boolean)
language sql volatile set jit = off as $$
    select p.id,
        coalesce(l.batch @> m.seq and (p_lease is null or l.lease_id = p_lease), false)
            or coalesce(l.closed_batch @> m.seq and (p_lease is null or l.closed_lease_id = p_lease), false),
        q.require_lease_id
    from (
        select y.partition_id, y.seq from queen.messages y where y.transaction_id = p_name
        union -- redriven messages, which may not be in the log any more
        select d.partition_id, d.seq
        from unnest(queen.partitions_of_lease(p_lease)) x(id)
        join queen.partition_leases y on y.partition_id = x.id and y.lease_id = p_lease and y.redriving
        join queen.dead_letters d on d.partition_id = y.partition_id and d.group_id = y.group_id
            and y.batch @> d.seq and d.transaction_id = p_name
    ) m
    join queen.partitions p on p.id = m.partition_id
    join queen.queues q on q.id = p.queue_id and q.deleted_at is null
    left join queen.consumer_groups g on g.queue_id = q.id and g.name = p_group
    left join queen.partition_leases l on l.partition_id = p.id and l.group_id = g.id
    order by p.id
$$;

-- The leases that a transaction lists, and whether each still stands: live, or the last closed one, in
-- at least one of its partitions. Locks nothing; the ack or the caller's lock decides.
create or replace function queen.standing_leases(p_leases uuid[], p_now timestamptz)
returns table (lease_id uuid, partition_id bigint, group_name text, batch int8multirange)
language sql volatile set jit = off as $$
    select u.lease, l.partition_id, g.name,
        case when l.lease_id = u.lease then l.batch else l.closed_batch end
    from unnest(p_leases) u(lease), unnest(queen.partitions_of_lease(u.lease)) p(id),
        queen.partition_leases l
    join queen.consumer_groups g on g.id = l.group_id
    join queen.queues q on q.id = g.queue_id and q.deleted_at is null
    where l.partition_id = p.id and (
        l.closed_lease_id = u.lease
        or (l.lease_id = u.lease and coalesce(p_now, clock_timestamp()) < l.lease_expires_at)
    )
$$;

-- Lock, in their order, every lease row that a call will touch: those of its leases, those of its acks
-- (p_partitions, p_groups), and those that its pushes may wake. Rows of other groups stay free: their
-- pops would pass over the partition. Each row is looked up by its key: a merge join, which the planner
-- takes where statistics are missing, walks the whole index up to the last partition asked for.
create or replace function queen.lock_leases(
    p_leases uuid[], p_partitions bigint[], p_groups text[], p_queues text[], p_names text[]
) returns void language sql volatile set jit = off
set enable_seqscan = off set enable_mergejoin = off set enable_hashjoin = off as $$
    with wanted as materialized (
        select l.partition_id, l.group_id
        from (
            select unnest(queen.partitions_of_lease(u.lease)) as id from unnest(p_leases) u(lease)
            union select unnest(p_partitions)
        ) p
        join queen.partition_leases l on l.partition_id = p.id
        where l.lease_id = any (p_leases) or l.closed_lease_id = any (p_leases)
            or l.group_id in (select g.id from queen.consumer_groups g where g.name = any (p_groups))
        union
        select l.partition_id, l.group_id
        from unnest(p_queues, p_names) u(queue, name)
        join queen.queues q on q.name = u.queue and q.deleted_at is null
        join queen.partitions p on p.queue_id = q.id and p.name = u.name
        join queen.partition_leases l on l.partition_id = p.id and l.ready_at is null
    ), locked as (
        select 1 from wanted w
        join queen.partition_leases l on l.partition_id = w.partition_id and l.group_id = w.group_id
        order by l.partition_id, l.group_id for no key update of l
    )
    select count(*) from locked
$$;

-- Which of some standing leases cover the message that a transaction's ack names: the ack takes lease
-- and group from it. p_seq and p_said: what its transaction id says if it reads as a message id.
create or replace function queen.covering_lease(
    p_leases uuid[], p_partition bigint, p_name text, p_seq bigint, p_said bigint, p_now timestamptz
) returns table (lease_id uuid, partition_id bigint, group_name text)
language sql volatile set jit = off as $$
    select s.lease_id, s.partition_id, s.group_name
    from queen.standing_leases(p_leases, p_now) s
    where (p_partition is null or s.partition_id = p_partition)
        and s.batch @> coalesce(
            case when p_said = s.partition_id then p_seq end,
            (select m.seq from queen.messages m where m.transaction_id = p_name and m.partition_id = s.partition_id),
            (select d.seq from queen.dead_letters d where d.transaction_id = p_name and d.partition_id = s.partition_id and s.batch @> d.seq limit 1)
        )
    order by s.lease_id, s.partition_id
$$;
