-- Notes about messages. They leave with their message: whatever deletes it deletes them.

-- File a note; null: there is no such message. The message's row is locked, so that it cannot leave in between.
create or replace function queen.add_trace(
    p_partition bigint, p_name text, p_seq bigint, p_stamp bigint, p_group text, p_names text[], p_kind text,
    p_data text, p_now timestamptz
) returns uuid language plpgsql volatile set jit = off as $$
declare
    v_seq bigint;
    v_trace queen.traces;
begin
    perform queen.require_read_committed();
    v_seq := queen.stored_message(p_partition, p_name, p_seq, p_stamp);
    perform 1 from queen.messages m where m.partition_id = p_partition and m.seq = v_seq for key share;
    if not found then
        return null;
    end if;
    insert into queen.traces (partition_id, seq, group_name, names, kind, data, created_at)
    values (p_partition, v_seq, p_group, p_names, p_kind, p_data::json, coalesce(p_now, clock_timestamp()))
    returning * into v_trace;
    insert into queen.trace_names (name, created_at, number, trace_id)
    select n, v_trace.created_at, v_trace.number, v_trace.id from unnest(p_names) n order by n collate "C";
    return v_trace.id;
end $$;

-- Rows of queen.traces with the message that each is about, of living queues.
create or replace function queen.shown_traces(p_ids uuid[])
returns table (
    id uuid, queue_name text, partition_name text, partition_id bigint, seq bigint,
    message_created_at timestamptz, transaction_id text, group_name text, names text[], kind text, data json,
    created_at timestamptz
) language sql volatile set jit = off as $$
    select t.id, q.name, p.name, p.id, m.seq, m.created_at, m.transaction_id, t.group_name, t.names, t.kind,
        t.data, t.created_at
    from queen.traces t
    join queen.messages m on m.partition_id = t.partition_id and m.seq = t.seq
    join queen.partitions p on p.id = t.partition_id
    join queen.queues q on q.id = p.queue_id and q.deleted_at is null
    where t.id = any (p_ids)
    order by t.created_at, t.number
$$;

create or replace function queen.message_traces(p_partition bigint, p_name text, p_seq bigint, p_stamp bigint)
returns setof uuid language sql volatile set jit = off as $$
    select t.id from queen.traces t
    where t.partition_id = p_partition
        and t.seq = queen.stored_message(p_partition, p_name, p_seq, p_stamp)
$$;

-- The notes of one name, oldest first, by the primary key of trace_names; those of deleted queues are passed
-- over until the sweep has removed them. total: how many there are in all.
create or replace function queen.named_traces(
    p_name text, p_from timestamptz, p_to timestamptz, p_limit integer, p_offset bigint
) returns table (ids uuid[], total bigint) language sql volatile set jit = off as $$
    with found as materialized (
        select n.trace_id, row_number() over (order by n.created_at, n.number) as place
        from queen.trace_names n
        join queen.traces t on t.id = n.trace_id
        join queen.partitions p on p.id = t.partition_id
        join queen.queues q on q.id = p.queue_id and q.deleted_at is null
        where n.name = p_name and (p_from is null or n.created_at >= p_from)
            and (p_to is null or n.created_at <= p_to)
    )
    select array_agg(f.trace_id) filter (where f.place > p_offset and f.place <= p_offset + p_limit), count(*)
    from found f
$$;

create or replace function queen.list_trace_names(p_limit integer, p_offset bigint)
returns table (name text, traces bigint, messages bigint, last_at timestamptz)
language sql volatile set jit = off as $$
    select n.name, count(*), count(distinct (t.partition_id, t.seq)), max(n.created_at)
    from queen.trace_names n
    join queen.traces t on t.id = n.trace_id
    join queen.partitions p on p.id = t.partition_id
    join queen.queues q on q.id = p.queue_id and q.deleted_at is null
    group by n.name
    order by max(n.created_at) desc, n.name
    limit p_limit offset p_offset
$$;

create or replace function queen.count_trace_names() returns bigint language sql volatile set jit = off as $$
    select count(distinct n.name)
    from queen.trace_names n
    join queen.traces t on t.id = n.trace_id
    join queen.partitions p on p.id = t.partition_id
    join queen.queues q on q.id = p.queue_id and q.deleted_at is null
$$;
