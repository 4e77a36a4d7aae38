-- Moving a group back and forth, and giving dead letters another chance.

-- Move a group's position in some partitions of its queue (C-20): the first p_limit after p_after, or the
-- one named. The partition's share lock comes before the lease row, as everywhere, and makes last_seq
-- exact. Returns the last partition done and how many were moved.
create or replace function queen.seek(
    p_queue text, p_group text, p_partition text, p_to text, p_from timestamptz,
    p_after bigint, p_limit integer, p_now timestamptz, out last_id bigint, out moved bigint
) language plpgsql volatile set jit = off as $$
#variable_conflict use_column
declare
    q queen.queues;
    r queen.partition_leases;
    x record;
    v_group bigint;
    v_at timestamptz;
    v_position bigint;
    v_ids bigint[];
    v_gone integer;
begin
    perform queen.require_read_committed();
    moved := 0;
    select * into q from queen.queues y where y.name = p_queue and y.deleted_at is null;
    select g.id into v_group from queen.consumer_groups g where g.queue_id = q.id and g.name = p_group;
    -- All partitions before the first lease row: a loop over the locking query would fetch it in portions
    -- and wait for the later partitions with lease rows in hand.
    select array_agg(h.id) into v_ids from (
        select p.id from queen.partitions p
        where p.id in (
            select y.id from queen.partitions y
            where y.queue_id = q.id and y.id > p_after and (p_partition is null or y.name = p_partition)
            order by y.id limit p_limit
        )
        order by p.id for share
    ) h;
    for x in select p.id, p.first_seq, p.last_seq, p.holes from queen.partitions p
        where p.id = any (v_ids) order by p.id
    loop
        last_id := x.id;
        select l.* into r from queen.partition_leases l
        where l.partition_id = x.id and l.group_id = v_group for no key update;
        continue when not found;
        v_at := coalesce(p_now, clock_timestamp());
        v_position := case p_to
            when 'start' then x.first_seq - 1
            when 'end' then x.last_seq
            else queen.seq_before(x.id, x.first_seq, x.last_seq, p_from)
        end;
        r := queen.unlease(r);
        r.closed_lease_id := null; r.closed_batch := null; r.closed_failed := null;
        r.closed_returned := null; r.closed_dead := null;
        r.position := v_position;
        r.sought := true;
        r.settled := x.holes - queen.span(0, v_position);
        r := queen.advance(r);
        -- What comes again is no dead letter any more. What was given back comes in its place, or is passed
        -- over, unless it is gone from the log: then it stays as it is.
        with gone as (
            delete from queen.dead_letters d
            where d.partition_id = x.id and d.group_id = v_group and d.seq >= x.first_seq
                and (d.seq > v_position or d.redriven_at is not null)
            returning d.redriven_at
        )
        select count(*) filter (where g.redriven_at is not null) into v_gone from gone g;
        r.redriven_count := r.redriven_count - v_gone;
        delete from queen.retries y
        where y.partition_id = x.id and y.group_id = v_group and not exists (
            select 1 from queen.dead_letters d
            where d.partition_id = x.id and d.group_id = v_group and d.seq = y.seq
        );
        r.retrying := exists (
            select 1 from queen.retries y where y.partition_id = x.id and y.group_id = v_group
        );
        update queen.position_marks m set position = v_position
        where m.partition_id = x.id and m.position > v_position;
        r.ready_at := queen.next_ready(r, q, v_at);
        perform queen.store(r);
        moved := moved + 1;
    end loop;
end $$;

-- Give dead letters back to their groups (C-12): they are delivered from their copies, before anything of
-- the log. A live lease is not disturbed. Returns the queues that have work, with how many each.
create or replace function queen.redrive(
    p_queue text, p_group text, p_partition text, p_from timestamptz, p_to timestamptz,
    p_partition_id bigint, p_name text, p_said bigint, p_seq bigint, p_stamp bigint, p_now timestamptz
) returns table (queue_id bigint, queue_name text, count bigint)
language plpgsql volatile set jit = off as $$
#variable_conflict use_column
declare
    x record;
    v_at timestamptz;
    v_count integer;
begin
    perform queen.require_read_committed();
    for x in select d.partition_id, d.group_id, min(d.queue_id) as queue_id, min(d.queue_name) as queue_name,
            array_agg(d.seq order by d.seq) as seqs
        from queen.find_dead_letters(p_queue, p_group, p_partition, p_from, p_to, p_partition_id, p_name,
            p_said, p_seq, p_stamp) d
        group by d.partition_id, d.group_id
        order by d.partition_id, d.group_id
    loop
        perform 1 from queen.partition_leases l
        where l.partition_id = x.partition_id and l.group_id = x.group_id for no key update;
        continue when not found;
        v_at := coalesce(p_now, clock_timestamp());
        update queen.dead_letters d set redriven_at = v_at
        where d.partition_id = x.partition_id and d.group_id = x.group_id and d.seq = any (x.seqs)
            and d.redriven_at is null;
        get diagnostics v_count = row_count;
        continue when v_count = 0;
        update queen.partition_leases l
        set redriven_count = l.redriven_count + v_count,
            ready_at = case when l.lease_id is null then v_at else l.ready_at end
        where l.partition_id = x.partition_id and l.group_id = x.group_id;
        queue_id := x.queue_id; queue_name := x.queue_name; count := v_count;
        return next;
    end loop;
end $$;

create or replace function queen.purge(
    p_queue text, p_group text, p_partition text, p_from timestamptz, p_to timestamptz,
    p_partition_id bigint, p_name text, p_said bigint, p_seq bigint, p_stamp bigint
) returns bigint language plpgsql volatile set jit = off as $$
declare
    v_total bigint;
begin
    with chosen as materialized (
        select d.partition_id, d.group_id, d.seq
        from queen.find_dead_letters(p_queue, p_group, p_partition, p_from, p_to, p_partition_id, p_name,
            p_said, p_seq, p_stamp) d
        order by d.partition_id, d.group_id, d.seq
    )
    delete from queen.dead_letters d using chosen c
    where d.partition_id = c.partition_id and d.group_id = c.group_id and d.seq = c.seq
        and d.redriven_at is null;
    get diagnostics v_total = row_count;
    return v_total;
end $$;
