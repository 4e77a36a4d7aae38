-- Looking into the store, on a reader's connection. What is stored, waiting or behind is told from
-- positions; nothing here counts messages.

-- The first columns are those of `place`.
-- name: partitions_of_queue
select p.id, p.name, p.first_seq, p.last_seq, p.last_pushed_us, q.id, q.name, q.lease_seconds,
    q.retry_limit, q.retry_delay_milliseconds, q.delayed_processing_seconds, q.window_buffer_seconds,
    q.require_lease_id, q.priority, q.ttl_seconds, q.max_wait_seconds,
    p.created_us, coalesce(h.hole_count, 0)
from queues q
join partitions p on p.queue_id = q.id
left join partition_holes h on h.partition_id = p.id
where q.name = ? and q.deleted_us is null
order by p.name limit ? offset ?;

-- The lanes of a queue by group: after the group's name the columns of `lane`.
-- name: lanes_of_queue
select g.name, l.partition_id, l.group_id, l.position, l.settled, l.from_us, l.ended_us, l.retry_count,
    l.redriven_count, l.ready_us, l.lease_id, l.lease_expires_us, l.alone, l.redriven, l.batch, l.open, l.failed, l.returned, l.dead,
    l.closed_lease_id, l.closed_batch, l.closed_failed, l.closed_returned, l.closed_dead
from queues q
cross join consumer_groups g on g.queue_id = q.id
cross join partition_leases l on l.group_id = g.id
where q.name = ? and q.deleted_us is null
order by g.name;

-- name: named_lanes
select g.name, l.partition_id, l.group_id, l.position, l.settled, l.from_us, l.ended_us, l.retry_count,
    l.redriven_count, l.ready_us, l.lease_id, l.lease_expires_us, l.alone, l.redriven, l.batch, l.open, l.failed, l.returned, l.dead,
    l.closed_lease_id, l.closed_batch, l.closed_failed, l.closed_returned, l.closed_dead
from partition_leases l
join consumer_groups g on g.id = l.group_id
where l.partition_id = ?
order by g.name;

-- name: dead_counts
select d.partition_id, d.group_id, count(*)
from queues q
join consumer_groups g on g.queue_id = q.id
join dead_letters d on d.group_id = g.id and d.redriven_us is null
where q.name = ? and q.deleted_us is null
group by d.partition_id, d.group_id;

-- A group's copy of a message: dead, or given back to it.
-- name: letter
select d.redriven_us, d.deliveries, d.failures, d.error from dead_letters d
where d.group_id = ? and d.partition_id = ? and d.seq = ?;

-- name: last_stored
select m.created_us from messages m where m.partition_id = ? order by m.seq desc limit 1;

-- Partitions that may have messages of a listing, each with the latest instant at which one may have been
-- created, in the order of (that instant, partition), falling. ?1: what is later is not wanted. ?2, ?3: nor
-- is what was created after that instant, or at it in a partition behind that one. ?8: of queues that
-- know the group. ?9: such in which something may have the status; what has it is found out there.
-- name: listed_partitions
select min(p.last_pushed_us, ?1, ?2 - (p.id > ?3)) as bound_us, p.last_pushed_us, p.id, p.first_seq, p.last_seq, q.name, p.name
from queues q
join partitions p on p.queue_id = q.id
where q.deleted_us is null and p.last_seq >= p.first_seq
    and (?4 is null or q.name = ?4) and (?5 is null or p.name = ?5)
    and (?6 is null or q.namespace = ?6) and (?7 is null or q.task = ?7)
    and (?8 is null or exists (
        select 1 from consumer_groups g where g.queue_id = q.id and g.name = ?8
    ))
    and case ?9
        when 'processing' then exists (
            select 1 from partition_leases l where l.partition_id = p.id and l.lease_id is not null
        )
        when 'failed' then exists (
            select 1 from partition_leases l where l.partition_id = p.id and l.retry_count > 0
        )
        when 'dead_letter' then exists (
            select 1 from partition_leases l
            join dead_letters d on d.group_id = l.group_id and d.partition_id = l.partition_id
            where l.partition_id = p.id
        )
        when 'pending' then not exists (
            select 1 from partition_leases l where l.partition_id = p.id
        ) or exists (
            select 1 from partition_leases l where l.partition_id = p.id and l.ready_us is not null
        )
        when 'completed' then exists (
            select 1 from partition_leases l
            where l.partition_id = p.id
                and (l.position >= p.first_seq or l.settled_count > 0 or l.from_us <> 0)
        )
        else 1 end
order by bound_us desc, p.id desc;

-- name: failed_seqs
select r.seq from retries r
where r.group_id = ? and r.partition_id = ? and r.failures > 0 order by r.seq;

-- name: dead_seqs
select d.seq from dead_letters d
where d.group_id = ? and d.partition_id = ? and d.redriven_us is null order by d.seq;

-- name: newest_messages
select m.created_us, m.partition_id, m.seq, m.transaction_id, m.trace_id from messages m
where m.partition_id = ? and m.seq >= ? and m.seq <= ? order by m.seq desc limit ?;

-- The messages of one trace behind a key, oldest first (PLD-8), by the index that is made for it.
-- name: traced_messages
select m.created_us, m.partition_id, m.seq, m.transaction_id, m.trace_id, q.name, p.name
from messages m
cross join partitions p on p.id = m.partition_id
cross join queues q on q.id = p.queue_id and q.deleted_us is null
where m.trace_id = ?1
    and (m.created_us, m.partition_id, m.seq) > (?2, ?3, ?4) and m.created_us <= ?5
    and (?6 is null or q.name = ?6) and (?7 is null or p.name = ?7)
    and (?8 is null or q.namespace = ?8) and (?9 is null or q.task = ?9)
    and (?10 is null or exists (
        select 1 from consumer_groups g where g.queue_id = q.id and g.name = ?10
    ))
order by m.created_us, m.partition_id, m.seq limit ?11;
