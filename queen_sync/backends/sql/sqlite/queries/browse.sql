-- Dead letters, newest first. A redriven one is none.
-- name: list_dead_letters
select d.partition_id, d.seq, d.created_us, d.transaction_id, d.trace_id, d.payload, d.queue_name,
    d.partition_name, d.group_name, d.error, d.failures, d.deliveries, d.failed_us, d.encryption_key_id
from dead_letters d
where d.redriven_us is null
    and (?1 is null or d.queue_name = ?1) and (?2 is null or d.group_name = ?2)
    and (?3 is null or d.partition_name = ?3) and (?4 is null or d.partition_id = ?4)
    and (?5 is null or d.failed_us >= ?5) and (?6 is null or d.failed_us <= ?6)
    and (?7 is null or d.transaction_id = ?7
        or (d.transaction_id is null and d.partition_id = ?8 and d.seq = ?9
            and (d.created_us & 4398046511103) = ?10))
order by d.failed_us desc, d.partition_id desc, d.seq desc, d.group_id desc
limit ?11 offset ?12;

-- name: count_dead_letters
select count(*) from dead_letters d
where d.redriven_us is null
    and (?1 is null or d.queue_name = ?1) and (?2 is null or d.group_name = ?2)
    and (?3 is null or d.partition_name = ?3) and (?4 is null or d.partition_id = ?4)
    and (?5 is null or d.failed_us >= ?5) and (?6 is null or d.failed_us <= ?6)
    and (?7 is null or d.transaction_id = ?7
        or (d.transaction_id is null and d.partition_id = ?8 and d.seq = ?9
            and (d.created_us & 4398046511103) = ?10));

-- name: find_dead_letters
select d.id, d.partition_id, d.group_id, d.queue_name from dead_letters d
where d.redriven_us is null
    and (?1 is null or d.queue_name = ?1) and (?2 is null or d.group_name = ?2)
    and (?3 is null or d.partition_name = ?3) and (?4 is null or d.partition_id = ?4)
    and (?5 is null or d.failed_us >= ?5) and (?6 is null or d.failed_us <= ?6)
    and (?7 is null or d.transaction_id = ?7
        or (d.transaction_id is null and d.partition_id = ?8 and d.seq = ?9
            and (d.created_us & 4398046511103) = ?10))
order by d.partition_id, d.group_id;

-- name: redrive
update dead_letters set redriven_us = ? where id = ?;

-- name: purge
delete from dead_letters where id = ?;

-- name: list_removals
select r.partition_name, r.kind, r.count, r.removed_us, r.group_name
from queues q
join removals r on r.queue_id = q.id
where q.name = ? and q.deleted_us is null order by r.id desc limit ?;
