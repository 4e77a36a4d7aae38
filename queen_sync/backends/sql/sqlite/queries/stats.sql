-- How queues, groups and lanes stand, on a reader's connection. All is told from positions and added up
-- here; only lanes whose figures stand in sets of seqs are looked at one by one, by their callers: those
-- under a live lease, with messages settled or given back out of their order, or with a start at a time.

-- One row per queue (?1 null: all). What waits in a partition lies behind its lowest position; partitions
-- with a lane of the other kind are left out of `waiting`, and are those of `knotty_partitions`.
-- name: queue_stats
with place as (
    select p.queue_id, p.last_seq, p.last_seq - p.first_seq + 1 - coalesce(h.hole_count, 0) as stored,
        coalesce(p.last_seq - max(min(l.position), p.first_seq - 1), 0) as waiting,
        coalesce(sum(l.retry_count), 0) as retrying,
        coalesce(max(l.settled is not null or l.redriven_count > 0 or l.from_us <> 0
            or coalesce(l.lease_expires_us > ?2, 0)), 0) as knotty
    from queues q
    join partitions p on p.queue_id = q.id
    left join partition_holes h on h.partition_id = p.id
    left join partition_leases l on l.partition_id = p.id and l.ready_us is not null
    where q.deleted_us is null and (?1 is null or q.name = ?1)
    group by p.id
)
select q.name, count(*), sum(x.last_seq), sum(x.stored),
    sum(case when not exists (select 1 from consumer_groups g where g.queue_id = q.id) then x.stored
        when x.knotty then 0 else x.waiting end),
    sum(x.retrying), (
        select count(*) from consumer_groups g
        join dead_letters d on d.group_id = g.id and d.redriven_us is null
        where g.queue_id = q.id
    )
from place x
join queues q on q.id = x.queue_id
group by q.id
order by q.name;

-- name: knotty_partitions
select distinct q.name, p.id
from queues q
join partitions p on p.queue_id = q.id
join partition_leases l on l.partition_id = p.id and l.ready_us is not null
where q.deleted_us is null and (?1 is null or q.name = ?1)
    and (l.settled is not null or l.redriven_count > 0 or l.from_us <> 0
        or coalesce(l.lease_expires_us > ?2, 0));

-- One row per group and queue (?1 and ?2 null: any), without the lanes of `knotty_lanes_of_group`.
-- name: group_stats
select g.id, q.name, g.name, g.mode, g.start_us, g.created_us, count(*),
    sum(l.ready_us is not null and not (l.from_us <> 0 or coalesce(l.lease_expires_us > ?3, 0))
        and p.last_seq - l.position - l.settled_count + l.redriven_count > 0),
    coalesce(sum(p.last_seq - l.position - l.settled_count + l.redriven_count) filter (
        where l.ready_us is not null and not (l.from_us <> 0 or coalesce(l.lease_expires_us > ?3, 0))
    ), 0),
    sum(l.retry_count), (
        select count(*) from dead_letters d where d.group_id = g.id and d.redriven_us is null
    ),
    min(case when l.ready_us is not null and l.from_us = 0 and l.position < p.last_seq then (
        select m.created_us from messages m
        where m.partition_id = l.partition_id and m.seq > l.position order by m.seq limit 1
    ) end), max(l.taken_us)
from queues q
join consumer_groups g on g.queue_id = q.id and (?1 is null or g.name = ?1)
join partitions p on p.queue_id = q.id
join partition_leases l on l.partition_id = p.id and l.group_id = g.id
where q.deleted_us is null and (?2 is null or q.name = ?2)
group by g.id
order by g.name, q.name;

-- name: knotty_lanes_of_group
select p.id
from consumer_groups g
join partitions p on p.queue_id = g.queue_id
join partition_leases l on l.partition_id = p.id and l.group_id = g.id and l.ready_us is not null
where g.id = ?1 and (l.from_us <> 0 or l.lease_expires_us > ?2);

-- Lanes in an order (?7), the first ?8 of them. Of a lane with a start at a time neither lag nor age is told
-- here: those are `late_lanes_of_scope`, of which there are few.
-- name: list_lanes
select q.name, p.name, g.name, l.partition_id, l.group_id,
    case when l.ready_us is null then 0
        else p.last_seq - l.position - l.settled_count + l.redriven_count end as lag,
    case when l.ready_us is not null and l.position < p.last_seq then (
        select m.created_us from messages m
        where m.partition_id = l.partition_id and m.seq > l.position order by m.seq limit 1
    ) end as oldest_us,
    case when l.lease_expires_us > ?6 then l.lease_expires_us end as expires_us
from queues q
join consumer_groups g on g.queue_id = q.id and (?2 is null or g.name = ?2)
join partitions p on p.queue_id = q.id and (?3 is null or p.name = ?3)
join partition_leases l on l.partition_id = p.id and l.group_id = g.id and l.from_us = 0
where q.deleted_us is null and (?1 is null or q.name = ?1)
    and (not ?4 or l.lease_expires_us > ?6) and (?5 is null or oldest_us <= ?5)
order by case ?7 when 'lag' then -lag when 'age' then coalesce(oldest_us, 9223372036854775807)
    when 'expiry' then coalesce(expires_us, 9223372036854775807) end, q.name, p.name, g.name
limit ?8;

-- name: late_lanes_of_scope
select q.name, p.name, g.name, l.partition_id, l.group_id
from queues q
join consumer_groups g on g.queue_id = q.id and (?2 is null or g.name = ?2)
join partitions p on p.queue_id = q.id and (?3 is null or p.name = ?3)
join partition_leases l on l.partition_id = p.id and l.group_id = g.id and l.from_us <> 0
where q.deleted_us is null and (?1 is null or q.name = ?1) and (not ?4 or l.lease_expires_us > ?5);

-- name: lane_taken
select l.taken_us from partition_leases l where l.partition_id = ? and l.group_id = ?;

-- name: add_counts
insert into metrics_minutes values (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)
on conflict (minute_us, queue_name) do update set
    push_requests = push_requests + excluded.push_requests,
    pushed = pushed + excluded.pushed,
    duplicates = duplicates + excluded.duplicates,
    pop_requests = pop_requests + excluded.pop_requests,
    pops_empty = pops_empty + excluded.pops_empty,
    popped = popped + excluded.popped,
    ack_requests = ack_requests + excluded.ack_requests,
    completed = completed + excluded.completed,
    failed = failed + excluded.failed,
    given_back = given_back + excluded.given_back,
    dead_lettered = dead_lettered + excluded.dead_lettered,
    refused = refused + excluded.refused,
    transactions = transactions + excluded.transactions,
    delay_milliseconds = delay_milliseconds + excluded.delay_milliseconds,
    max_delay_milliseconds = max(max_delay_milliseconds, excluded.max_delay_milliseconds);

-- The counts of the minutes of a span in buckets of ?3 microseconds; ?4: by queue; ?5: a JSON array of the
-- queues that are meant, null for all.
-- name: list_counts
select c.minute_us - c.minute_us % ?3 as start_us, case when ?4 then c.queue_name else '' end as name,
    sum(c.push_requests), sum(c.pushed), sum(c.duplicates), sum(c.pop_requests), sum(c.pops_empty),
    sum(c.popped), sum(c.ack_requests), sum(c.completed), sum(c.failed), sum(c.given_back),
    sum(c.dead_lettered), sum(c.refused), sum(c.transactions), sum(c.delay_milliseconds),
    max(c.max_delay_milliseconds)
from metrics_minutes c
where c.minute_us >= ?1 and c.minute_us <= ?2
    and (?5 is null or c.queue_name in (select j.value from json_each(?5) j))
group by start_us, name
order by start_us, name;

-- name: forget_counts
delete from metrics_minutes where minute_us < ?;
