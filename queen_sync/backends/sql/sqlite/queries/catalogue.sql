-- Queues and partitions. A deleted queue keeps its row until the sweep has emptied it, so every
-- look-up by name or number says that it wants a live one.

-- name: queue_by_name
select q.id, q.name, q.namespace, q.task, q.created_us,
    (select p.id from partitions p where p.queue_id = q.id and p.name = 'Default'),
    q.lease_seconds, q.retry_limit, q.retry_delay_milliseconds, q.max_queue_size, q.ttl_seconds,
    q.dead_letter_queue, q.dlq_after_max_retries, q.priority, q.delayed_processing_seconds,
    q.window_buffer_seconds, q.retention_seconds, q.completed_retention_seconds,
    q.retention_enabled, q.encryption_enabled, q.max_wait_seconds, q.require_lease_id,
    q.spread_partitions
from queues q where q.name = ? and q.deleted_us is null;

-- name: all_queues
select q.id, q.name, q.namespace, q.task, q.created_us,
    (select p.id from partitions p where p.queue_id = q.id and p.name = 'Default'),
    q.lease_seconds, q.retry_limit, q.retry_delay_milliseconds, q.max_queue_size, q.ttl_seconds,
    q.dead_letter_queue, q.dlq_after_max_retries, q.priority, q.delayed_processing_seconds,
    q.window_buffer_seconds, q.retention_seconds, q.completed_retention_seconds,
    q.retention_enabled, q.encryption_enabled, q.max_wait_seconds, q.require_lease_id,
    q.spread_partitions
from queues q where q.deleted_us is null order by q.name;

-- name: queue_number
select q.id from queues q where q.name = ? and q.deleted_us is null;

-- name: push_target
select q.id, q.max_queue_size, q.spread_partitions, q.encryption_enabled
from queues q where q.name = ? and q.deleted_us is null;

-- name: insert_queue
insert into queues (name, namespace, task, created_us, configured_us) values (?, ?, ?, ?, ?)
returning id;

-- name: set_queue
update queues
set namespace = ?, task = ?, configured_us = ?, lease_seconds = ?, retry_limit = ?,
    retry_delay_milliseconds = ?, max_queue_size = ?, ttl_seconds = ?, dead_letter_queue = ?,
    dlq_after_max_retries = ?, priority = ?, delayed_processing_seconds = ?,
    window_buffer_seconds = ?, retention_seconds = ?, completed_retention_seconds = ?,
    retention_enabled = ?, encryption_enabled = ?, max_wait_seconds = ?, require_lease_id = ?,
    spread_partitions = ?
where id = ?;

-- name: queues_in_scope
select q.id, q.name from queues q
where q.deleted_us is null and (?1 is null or q.namespace = ?1) and (?2 is null or q.task = ?2)
order by q.id;

-- name: bury_queue
update queues set deleted_us = ? where name = ? and deleted_us is null returning id;

-- name: partition_by_name
select p.id, p.last_seq, p.last_pushed_us, q.window_buffer_seconds, q.delayed_processing_seconds
from queues q
join partitions p on p.queue_id = q.id
where q.name = ? and q.deleted_us is null and p.name = ?;

-- name: insert_partition
insert into partitions (queue_id, name, created_us) values (?, ?, ?) returning id;

-- Every partition of a queue has a lane of every group of the queue.
-- name: insert_lanes_of_partition
insert into partition_leases (partition_id, group_id, position, from_us, ended_us)
select ?1, g.id, 0, g.from_us, 0 from consumer_groups g where g.queue_id = ?2;

-- The partitions that a queue may spread over, with the number of the call that last did so.
-- name: spread_places
select p.name, p.spread_at from partitions p
where p.queue_id = ? and (p.name = 'Default' or p.name glob 'Default-[0-9]*');

-- name: count_spread
update queues set spreads = spreads + 1 where id = ? returning spreads;

-- name: mark_spread
update partitions set spread_at = ? where id = ?;

-- name: partition_of_queue
select p.name from partitions p where p.queue_id = ? and p.id = ?;

-- name: partition_exists
select p.id from partitions p where p.queue_id = ? and p.name = ?;

-- A partition with what its queue says about delivery.
-- name: place
select p.id, p.name, p.first_seq, p.last_seq, p.last_pushed_us, q.id, q.name, q.lease_seconds,
    q.retry_limit, q.retry_delay_milliseconds, q.delayed_processing_seconds, q.window_buffer_seconds,
    q.require_lease_id, q.priority, q.ttl_seconds, q.max_wait_seconds
from partitions p
join queues q on q.id = p.queue_id and q.deleted_us is null
where p.id = ?;

-- Lanes that wait by themselves are dated anew when delay (?2) or window (?3) change. Where only the
-- oldest message counts it is done here (100,000 lanes: 0.5 s); for the others the end of their last
-- lease is a safe bound, before which no lane can be taken, and pops put it right one by one.
-- name: restamp
update partition_leases
set ready_us = max(ended_us, case
    when retry_count > 0 or redriven_count > 0 or from_us <> 0 then ended_us
    else (
        select max(m.created_us + ?2, case when ?3 > 0
            then min(p.last_pushed_us + ?3, m.created_us + 10 * ?3) else m.created_us end)
        from partitions p
        join messages m on m.partition_id = p.id and m.seq = partition_leases.position + 1
        where p.id = partition_leases.partition_id
    )
end)
where ready_us is not null and lease_id is null
    and group_id in (select g.id from consumer_groups g where g.queue_id = ?1);
