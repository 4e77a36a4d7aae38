-- name: insert_message
insert into messages (partition_id, seq, created_us, transaction_id, trace_id, payload, encryption_key_id)
values (?, ?, ?, ?, ?, ?, ?);

-- name: advance_partition
update partitions set last_seq = ?, last_pushed_us = ? where id = ?;

-- Lanes that had nothing to take now have; the others keep their place. A group that begins later
-- is not woken by what is too old for it.
-- name: wake_lanes
update partition_leases set ready_us = max(?2, ended_us)
where partition_id = ?1 and ready_us is null and from_us <= ?3;

-- Which of the names the partition stores. `cross join` keeps the order: one probe of the index a name.
-- name: named_messages
select m.seq, m.created_us, m.transaction_id, m.trace_id
from json_each(?2) j
cross join messages m on m.transaction_id = j.value and m.partition_id = ?1;

-- name: numbered_messages
select m.seq, m.created_us, m.transaction_id, m.trace_id
from json_each(?2) j
cross join messages m on m.partition_id = ?1 and m.seq = j.value;

-- The first of what is stored between two seqs: there may be holes.
-- name: first_stored
select m.seq, m.created_us from messages m
where m.partition_id = ? and m.seq >= ? and m.seq <= ? order by m.seq limit 1;

-- name: message_at
select m.created_us from messages m where m.partition_id = ? and m.seq = ?;

-- name: partitions_of_name
select m.partition_id, m.seq
from messages m
join partitions p on p.id = m.partition_id
join queues q on q.id = p.queue_id and q.deleted_us is null
where m.transaction_id = ? order by m.partition_id;

-- name: sealing_key
select m.encryption_key_id from messages m
where m.partition_id = ? and m.seq = ? and m.encryption_key_id is not null;

-- created_us never falls along seq, so the bound cuts the rest off as a whole.
-- name: read_batch
select m.seq, m.created_us, m.transaction_id, m.trace_id, m.payload, m.encryption_key_id
from messages m
where m.partition_id = ? and m.seq >= ? and m.seq < ? and m.created_us <= ?
order by m.seq;

-- name: stored_in_queue
select sum(p.last_seq - p.first_seq + 1 - coalesce(h.hole_count, 0))
from partitions p
left join partition_holes h on h.partition_id = p.id
where p.queue_id = ?;

-- Lanes of a queue with something to settle, by partition. Where one lane waits, or none has settled
-- anything past its position, the depth is arithmetic; lanes without ready_us have nothing left.
-- name: plain_depth
select coalesce(sum(p.last_seq - w.low - w.settled), 0)
from (
    select l.partition_id, count(*) as lanes, min(l.position) as low, max(l.settled_count) as settled,
        max(l.from_us <> 0 or l.redriven_count > 0) as knotty
    from partition_leases l
    where l.ready_us is not null
        and l.group_id in (select g.id from consumer_groups g where g.queue_id = ?)
    group by l.partition_id
) w
join partitions p on p.id = w.partition_id
where (w.lanes = 1 or w.settled = 0) and not w.knotty;

-- The other lanes: their sets have to be united.
-- name: knotty_lanes
select l.partition_id, l.group_id, p.first_seq, p.last_seq, l.position, l.settled, l.from_us,
    l.redriven_count
from (
    select l.partition_id
    from partition_leases l
    where l.ready_us is not null
        and l.group_id in (select g.id from consumer_groups g where g.queue_id = ?1)
    group by l.partition_id
    having (count(*) > 1 and max(l.settled_count) > 0)
        or max(l.from_us <> 0 or l.redriven_count > 0)
) w
join partitions p on p.id = w.partition_id
join partition_leases l on l.partition_id = w.partition_id and l.ready_us is not null
order by l.partition_id;

-- name: count_groups
select count(*), coalesce(max(g.from_us), 0) from consumer_groups g where g.queue_id = ?;

-- From the front: the groups that had not come so far yet have settled it from now on.
-- name: delete_messages_up_to
delete from messages where partition_id = ? and seq <= ?;

-- name: set_first_seq
update partitions set first_seq = ? where id = ?;
