-- Upkeep, a little at a time, so that no push waits long for the write lock.

-- A lane whose lease ran out is ready and still carries it. Pops take them back by themselves; the
-- sweep makes it visible where nobody pops.
-- name: expired_lanes
select l.partition_id, l.group_id, q.name
from queues q
cross join consumer_groups g on g.queue_id = q.id
cross join partition_leases l on l.group_id = g.id
where q.deleted_us is null and l.ready_us <= ?1 and l.lease_id is not null
limit ?2;

-- Lanes of queues that evict: the oldest message that waits there is too old, or a redriven one is.
-- name: evictable_lanes
select l.partition_id, l.group_id, q.name
from queues q
cross join consumer_groups g on g.queue_id = q.id
cross join partition_leases l on l.group_id = g.id and l.ready_us is not null
where q.deleted_us is null and (q.ttl_seconds > 0 or q.max_wait_seconds > 0)
    and (l.redriven_count > 0 or l.from_us <> 0 or (
        select m.created_us from messages m
        where m.partition_id = l.partition_id and m.seq = l.position + 1
    ) <= ?1 - 1000000 * min(coalesce(nullif(q.ttl_seconds, 0), q.max_wait_seconds),
        coalesce(nullif(q.max_wait_seconds, 0), q.ttl_seconds)))
limit ?2;

-- Partitions of queues with retention that hold anything, after a given one.
-- name: retained_partitions
select p.id from queues q
cross join partitions p on p.queue_id = q.id
where q.deleted_us is null and q.retention_enabled and p.last_seq >= p.first_seq
    and (q.retention_seconds > 0 or q.completed_retention_seconds > 0);

-- name: retention
select p.name, p.first_seq, p.last_seq, q.id, q.retention_seconds, q.completed_retention_seconds
from partitions p
join queues q on q.id = p.queue_id and q.deleted_us is null
where p.id = ? and q.retention_enabled;

-- name: lanes_of_partition
select l.group_id from partition_leases l where l.partition_id = ? order by l.group_id;

-- name: last_mark
select k.at_us, k.seq from position_marks k where k.partition_id = ? order by k.at_us desc limit 1;

-- name: insert_mark
insert into position_marks (partition_id, at_us, seq) values (?, ?, ?)
on conflict (partition_id, at_us) do update set seq = excluded.seq;

-- name: ripe_mark
select k.at_us, k.seq from position_marks k where k.partition_id = ? and k.at_us <= ?
order by k.at_us desc limit 1;

-- name: delete_marks_before
delete from position_marks where partition_id = ? and at_us < ?;

-- Marks of partitions that no retention reads any more.
-- name: idle_marks
select distinct k.partition_id from position_marks k
left join partitions p on p.id = k.partition_id
left join queues q on q.id = p.queue_id and q.deleted_us is null and q.retention_enabled
    and q.completed_retention_seconds > 0
where q.id is null limit ?;

-- name: delete_marks
delete from position_marks where partition_id = ?;

-- A queue keeps so many records of removals.
-- name: removals_to_trim
select r.queue_id, (
    select x.id from removals x where x.queue_id = r.queue_id order by x.id desc limit 1 offset ?1
)
from removals r group by r.queue_id having count(*) > ?1;

-- name: trim_removals
delete from removals where queue_id = ? and id <= ?;

-- name: delete_removals_of_queue
delete from removals where queue_id = ?;

-- name: ended_attempts
select a.group_name, a.attempt_id, a.queue_name, a.namespace, a.task, a.lease_id from attempts a
where a.expires_us <= ? limit ?;

-- name: delete_attempt
delete from attempts
where group_name = ? and attempt_id = ? and queue_name = ? and namespace = ? and task = ?;

-- Of deleted queues, and those that were deleted alone.
-- name: deleted_partitions
select p.id from queues q join partitions p on p.queue_id = q.id
where q.deleted_us is not null limit ?;

-- name: delete_messages
delete from messages where id in (select m.id from messages m where m.partition_id = ? limit ?);

-- name: delete_lanes_of_partition
delete from partition_leases where partition_id = ?;

-- name: delete_partition
delete from partitions where id = ?;

-- A deleted queue that has no partition any more.
-- name: emptied_queues
select q.id from queues q
where q.deleted_us is not null and not exists (select 1 from partitions p where p.queue_id = q.id);

-- name: groups_of_queue
select g.id from consumer_groups g where g.queue_id = ?;

-- name: delete_queue_row
delete from queues where id = ?;

-- Claims over several partitions that no lane carries any more.
-- name: outlived_claims
select c.lease_id, c.partition_id from claims c
left join partition_leases l on l.partition_id = c.partition_id
    and (l.lease_id = c.lease_id or l.closed_lease_id = c.lease_id)
where l.partition_id is null limit ?;

-- name: delete_claim
delete from claims where lease_id = ? and partition_id = ?;

-- Two things that must never be found: a lane that says it has nothing in front of stored messages,
-- and a partition without a lane of a group of its queue.
-- name: lost_lanes
select l.partition_id, l.group_id
from partition_leases l
join partitions p on p.id = l.partition_id
where l.ready_us is null and ((l.from_us = 0 and l.position < p.last_seq) or l.redriven_count > 0)
limit ?;

-- name: missing_lanes
select p.id, g.id, g.from_us, p.first_seq - 1, h.holes, coalesce(h.hole_count, 0)
from consumer_groups g
join queues q on q.id = g.queue_id and q.deleted_us is null
join partitions p on p.queue_id = q.id
left join partition_holes h on h.partition_id = p.id
left join partition_leases l on l.partition_id = p.id and l.group_id = g.id
where l.partition_id is null limit ?;

-- name: repair_lane
update partition_leases set ready_us = ended_us
where partition_id = ? and group_id = ? and ready_us is null;

-- name: insert_lane
insert into partition_leases (partition_id, group_id, position, settled, settled_count, from_us, ended_us,
    ready_us)
values (?1, ?2, ?4, ?5, ?6, ?3, 0, 0)
on conflict (partition_id, group_id) do nothing;
