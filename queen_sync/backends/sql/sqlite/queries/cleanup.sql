-- Taking things out by hand. Whatever leaves the store is settled for every group in the same
-- transaction, so that lag and depth stay arithmetic.

-- name: holes
select h.holes from partition_holes h where h.partition_id = ?;

-- name: save_holes
insert into partition_holes (partition_id, holes, hole_count) values (?, ?, ?)
on conflict (partition_id) do update set holes = excluded.holes, hole_count = excluded.hole_count;

-- name: delete_holes
delete from partition_holes where partition_id = ?;

-- name: delete_message
delete from messages where partition_id = ? and seq = ?;

-- name: forget_dead
delete from dead_letters where group_id = ? and partition_id = ? and seq = ? and redriven_us is null;

-- name: numbers_of_partitions
select p.id from partitions p where p.queue_id = ? order by p.id;

-- A deleted partition moves to a tombstone of its own, whose contents the sweep removes like those
-- of a deleted queue.
-- name: insert_tombstone
insert into queues (name, created_us, configured_us, deleted_us)
select q.name, ?2, ?2, ?2 from queues q where q.id = ?1 returning id;

-- name: move_partition
update partitions set queue_id = ? where id = ?;
