-- Notes about messages. They leave with their message; those of a deleted queue are passed over
-- until the sweep has removed them.

-- name: insert_trace
insert into traces (id, partition_id, seq, group_name, names, kind, data, created_us)
values (?, ?, ?, ?, ?, ?, ?, ?) returning number;

-- name: insert_trace_name
insert into trace_names (name, number, created_us) values (?, ?, ?);

-- name: message_traces
select t.id, q.name, p.name, t.partition_id, t.seq, m.created_us, m.transaction_id, t.group_name,
    t.names, t.kind, t.data, t.created_us
from traces t
join messages m on m.partition_id = t.partition_id and m.seq = t.seq
join partitions p on p.id = t.partition_id
join queues q on q.id = p.queue_id and q.deleted_us is null
where t.partition_id = ? and t.seq = ?
order by t.number;

-- The notes of one name in the order in which they were filed, which is that of the primary key.
-- name: named_traces
select t.id, q.name, p.name, t.partition_id, t.seq, m.created_us, m.transaction_id, t.group_name,
    t.names, t.kind, t.data, t.created_us
from trace_names n
cross join traces t on t.number = n.number
cross join messages m on m.partition_id = t.partition_id and m.seq = t.seq
cross join partitions p on p.id = t.partition_id
cross join queues q on q.id = p.queue_id and q.deleted_us is null
where n.name = ?1 and n.created_us >= ?2 and n.created_us <= ?3
order by n.number limit ?4 offset ?5;

-- name: count_named_traces
select count(*)
from trace_names n
cross join traces t on t.number = n.number
cross join partitions p on p.id = t.partition_id
cross join queues q on q.id = p.queue_id and q.deleted_us is null
where n.name = ?1 and n.created_us >= ?2 and n.created_us <= ?3;

-- name: list_trace_names
select x.name, sum(x.traces), count(*), max(x.last_us)
from (
    select n.name, count(*) as traces, max(n.created_us) as last_us
    from trace_names n
    cross join traces t on t.number = n.number
    cross join partitions p on p.id = t.partition_id
    cross join queues q on q.id = p.queue_id and q.deleted_us is null
    group by n.name, t.partition_id, t.seq
) x
group by x.name
order by max(x.last_us) desc, x.name limit ? offset ?;

-- name: delete_trace_names
delete from trace_names where (name, number) in (
    select j.value, t.number from traces t, json_each(t.names) j
    where t.partition_id = ? and t.seq >= ? and t.seq <= ?
);

-- name: delete_traces
delete from traces where partition_id = ? and seq >= ? and seq <= ?;

-- Up to which seq a partition has so many notes.
-- name: traced_up_to
select max(x.seq) from (
    select t.seq from traces t where t.partition_id = ? order by t.seq limit ?
) x;

-- name: count_trace_names
select count(distinct n.name)
from trace_names n
cross join traces t on t.number = n.number
cross join partitions p on p.id = t.partition_id
cross join queues q on q.id = p.queue_id and q.deleted_us is null;
