-- What a pop needs to know before it takes the write lock: the group, and whether any lane is ready.
-- Most pops of an idle queue end here, on a reader's connection, and wait for nobody.
-- name: peek
select g.mode, g.start_us, exists (
    select 1 from partition_leases l where l.group_id = g.id and l.ready_us <= ?3
)
from queues q
join consumer_groups g on g.queue_id = q.id and g.name = ?2
where q.name = ?1 and q.deleted_us is null;

-- name: peek_partition
select g.mode, g.start_us, exists (
    select 1 from partitions p
    join partition_leases l on l.partition_id = p.id and l.group_id = g.id and l.ready_us <= ?3
    where p.queue_id = q.id and p.name = ?4
)
from queues q
join consumer_groups g on g.queue_id = q.id and g.name = ?2
where q.name = ?1 and q.deleted_us is null;

-- The same for a pop over a scope: 1 where some lane is ready or some queue does not know the group.
-- name: peek_scope
select s.mode, s.start_us, exists (
    select 1 from queues q
    left join consumer_groups g on g.queue_id = q.id and g.name = ?1
    where q.deleted_us is null and (?2 = '' or q.namespace = ?2) and (?3 = '' or q.task = ?3)
        and (g.id is null or exists (
            select 1 from partition_leases l where l.group_id = g.id and l.ready_us <= ?4
        ))
)
from scopes s where s.group_name = ?1 and s.namespace = ?2 and s.task = ?3;

-- The group in each queue of a scope that has a lane ready, by priority. One probe a queue.
-- name: ready_in_scope
select q.priority, g.id from queues q
join consumer_groups g on g.queue_id = q.id and g.name = ?1
where q.deleted_us is null and (?2 = '' or q.namespace = ?2) and (?3 = '' or q.task = ?3)
    and exists (select 1 from partition_leases l where l.group_id = g.id and l.ready_us <= ?4)
order by q.priority desc, q.id;

-- The next lane in line after a given place. The index (group_id, ready_us, partition_id) is walked
-- from that place: one row is read, however many partitions there are.
-- name: next_lane
select l.partition_id, l.group_id, l.position, l.settled, l.from_us, l.ended_us, l.retry_count,
    l.redriven_count, l.ready_us, l.lease_id, l.lease_expires_us, l.alone, l.redriven, l.batch, l.open, l.failed, l.returned, l.dead,
    l.closed_lease_id, l.closed_batch, l.closed_failed, l.closed_returned, l.closed_dead
from partition_leases l
where l.group_id = ? and l.ready_us <= ? and (l.ready_us, l.partition_id) > (?, ?)
order by l.ready_us, l.partition_id limit 1;

-- name: lane_by_partition_name
select l.partition_id, l.group_id, l.position, l.settled, l.from_us, l.ended_us, l.retry_count,
    l.redriven_count, l.ready_us, l.lease_id, l.lease_expires_us, l.alone, l.redriven, l.batch, l.open, l.failed, l.returned, l.dead,
    l.closed_lease_id, l.closed_batch, l.closed_failed, l.closed_returned, l.closed_dead
from consumer_groups g
join partitions p on p.queue_id = g.queue_id and p.name = ?2
join partition_leases l on l.partition_id = p.id and l.group_id = g.id
where g.id = ?1 and l.ready_us <= ?3;

-- name: lane
select l.partition_id, l.group_id, l.position, l.settled, l.from_us, l.ended_us, l.retry_count,
    l.redriven_count, l.ready_us, l.lease_id, l.lease_expires_us, l.alone, l.redriven, l.batch, l.open, l.failed, l.returned, l.dead,
    l.closed_lease_id, l.closed_batch, l.closed_failed, l.closed_returned, l.closed_dead
from partition_leases l where l.partition_id = ? and l.group_id = ?;

-- name: save_lane
update partition_leases
set position = ?, settled = ?, settled_count = ?, from_us = ?, ended_us = ?, retry_count = ?,
    redriven_count = ?, ready_us = ?, lease_id = ?, lease_expires_us = ?, alone = ?, redriven = ?, batch = ?, open = ?, failed = ?,
    returned = ?, dead = ?, closed_lease_id = ?, closed_batch = ?, closed_failed = ?,
    closed_returned = ?, closed_dead = ?, taken_us = coalesce(?, taken_us)
where partition_id = ? and group_id = ?;

-- The lanes of a partition in which a lease is the live or the last closed one.
-- name: lanes_of_lease
select l.partition_id, l.group_id, g.name
from partition_leases l
join consumer_groups g on g.id = l.group_id
join queues q on q.id = g.queue_id and q.deleted_us is null
where l.partition_id = ?1 and (l.lease_id = ?2 or l.closed_lease_id = ?2);

-- name: partitions_of_claim
select c.partition_id from claims c where c.lease_id = ? order by c.number;

-- name: insert_claim
insert into claims (lease_id, number, partition_id) values (?, ?, ?);

-- name: attempt
select a.lease_id from attempts a
where a.group_name = ? and a.attempt_id = ? and a.queue_name = ? and a.namespace = ? and a.task = ?;

-- name: save_attempt
insert into attempts (group_name, attempt_id, queue_name, namespace, task, lease_id, expires_us)
values (?, ?, ?, ?, ?, ?, ?)
on conflict (group_name, attempt_id, queue_name, namespace, task) do update
    set lease_id = excluded.lease_id, expires_us = excluded.expires_us;

-- name: retry
select r.failures, r.deliveries, r.expired, r.not_before_us, r.error
from retries r where r.group_id = ? and r.partition_id = ? and r.seq = ?;

-- name: retries_between
select r.seq, r.failures, r.deliveries, r.expired, r.not_before_us, r.error
from retries r where r.group_id = ? and r.partition_id = ? and r.seq >= ? and r.seq < ?;

-- name: save_retry
insert into retries (group_id, partition_id, seq, failures, deliveries, expired, not_before_us, error)
values (?, ?, ?, ?, ?, ?, ?, ?)
on conflict (group_id, partition_id, seq) do update
    set failures = excluded.failures, deliveries = excluded.deliveries, expired = excluded.expired,
        not_before_us = excluded.not_before_us, error = excluded.error;

-- name: delete_retries_between
delete from retries where group_id = ? and partition_id = ? and seq >= ? and seq < ?;

-- name: delete_retry
delete from retries where group_id = ? and partition_id = ? and seq = ?;

-- A dead letter is a copy of its own: it outlives the message.
-- name: insert_dead_letter
insert into dead_letters (group_id, partition_id, seq, queue_name, partition_name, group_name,
    transaction_id, trace_id, created_us, payload, encryption_key_id, error, failures, deliveries, failed_us)
select g.id, m.partition_id, m.seq, q.name, p.name, g.name, m.transaction_id, m.trace_id,
    m.created_us, m.payload, m.encryption_key_id, ?4, ?5, ?6, ?7
from messages m
join partitions p on p.id = m.partition_id
join queues q on q.id = p.queue_id
join consumer_groups g on g.id = ?1
where m.partition_id = ?2 and m.seq = ?3;

-- A redriven message that dies once more is one dead letter again.
-- name: bury_again
update dead_letters
set redriven_us = null, error = ?4, failures = ?5, deliveries = ?6, failed_us = ?7
where group_id = ?1 and partition_id = ?2 and seq = ?3;

-- name: redriven_messages
select d.seq, d.created_us, d.transaction_id, d.trace_id, d.payload, d.encryption_key_id, d.redriven_us
from dead_letters d
where d.group_id = ? and d.partition_id = ? and d.seq >= ? and d.redriven_us is not null
order by d.seq limit ?;

-- name: redriven_seqs
select d.seq, d.created_us, d.transaction_id, d.redriven_us from dead_letters d
where d.group_id = ? and d.partition_id = ? and d.redriven_us is not null order by d.seq;

-- name: forget_redriven
delete from dead_letters
where group_id = ? and partition_id = ? and seq = ? and redriven_us is not null;

-- name: forget_redriven_after
delete from dead_letters
where group_id = ? and partition_id = ? and seq > ? and redriven_us is not null;

-- name: forget_dead_after
delete from dead_letters
where group_id = ? and partition_id = ? and seq > ? and redriven_us is null;

-- name: redriven_of_name
select d.partition_id from dead_letters d
join consumer_groups g on g.id = d.group_id and g.name = ?2
where d.transaction_id = ?1 and d.redriven_us is not null;

-- name: lanes_of_group
select l.partition_id from partition_leases l
join partitions p on p.id = l.partition_id
where p.queue_id = ?1 and l.group_id = ?2 order by l.partition_id;

-- name: insert_removal
insert into removals (queue_id, partition_name, kind, count, removed_us, group_name)
values (?1, ?2, ?3, ?4, ?5, (select g.name from consumer_groups g where g.id = ?6));

-- name: unsettle
update position_marks set seq = min(seq, ?2) where partition_id = ?1;

-- name: unsettle_queue
update position_marks
set seq = min(seq, (select p.first_seq - 1 from partitions p where p.id = position_marks.partition_id))
where partition_id in (select p.id from partitions p where p.queue_id = ?);

-- name: next_ready
select min(l.ready_us) from partition_leases l where l.group_id = ? and l.ready_us is not null;

-- name: next_ready_in_partition
select l.ready_us from partitions p
join partition_leases l on l.partition_id = p.id and l.group_id = ?3
where p.queue_id = ?1 and p.name = ?2;
