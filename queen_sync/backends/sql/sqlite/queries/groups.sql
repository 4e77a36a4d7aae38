-- name: group_by_name
select g.id, g.mode, g.start_us from consumer_groups g where g.queue_id = ? and g.name = ?;

-- name: insert_group
insert into consumer_groups (queue_id, name, mode, start_us, from_us, created_us)
values (?, ?, ?, ?, ?, ?) returning id;

-- A group begins in every partition there is: behind what is stored (?3), or before it, with what was
-- deleted of it settled. A start at a time is not looked for here, one partition after the other: a pop
-- passes over what is too old when it comes to the lane.
-- name: insert_lanes_of_group
insert into partition_leases (partition_id, group_id, position, settled, settled_count, from_us, ended_us,
    ready_us)
select p.id, ?2, case when ?3 then p.last_seq else p.first_seq - 1 end,
    case when not ?3 then h.holes end, case when ?3 then 0 else coalesce(h.hole_count, 0) end, ?4, ?5,
    case when not ?3 and p.last_seq >= p.first_seq and p.last_pushed_us >= ?4 then ?5 end
from partitions p
left join partition_holes h on h.partition_id = p.id
where p.queue_id = ?1;

-- name: subscription
select s.mode, s.start_us, s.created_us from subscriptions s
where s.queue_name = ? and s.group_name = ?;

-- name: subscriptions_of_queue
select s.group_name, s.mode, s.start_us, s.created_us from subscriptions s
where s.queue_name = ? order by s.group_name;

-- name: keep_subscription
insert into subscriptions (queue_name, group_name, mode, start_us, created_us) values (?, ?, ?, ?, ?)
on conflict (queue_name, group_name) do update
    set mode = excluded.mode, start_us = excluded.start_us, created_us = excluded.created_us;

-- name: forget_subscription
delete from subscriptions where queue_name = ? and group_name = ?;

-- name: forget_subscriptions_of_queue
delete from subscriptions where queue_name = ?;

-- name: forget_subscriptions_of_group
delete from subscriptions where group_name = ?1 and (?2 is null or queue_name = ?2);

-- name: scope
select s.mode, s.start_us, s.created_us from scopes s
where s.group_name = ? and s.namespace = ? and s.task = ?;

-- name: insert_scope
insert into scopes (group_name, namespace, task, mode, start_us, created_us)
values (?, ?, ?, ?, ?, ?);

-- What the groups have asked for in whose scope a queue lies, the first made first.
-- name: scopes_over
select s.group_name, s.mode, s.start_us, s.created_us from scopes s
where (s.namespace = '' or s.namespace = ?1) and (s.task = '' or s.task = ?2)
    and (?3 is null or s.group_name = ?3)
order by s.id;

-- name: forget_scopes
delete from scopes where group_name = ?;

-- name: restart_scopes
update scopes set mode = 'from', start_us = ?2 where group_name = ?1;

-- name: groups_named
select g.id, g.queue_id, q.name, g.mode, g.start_us, g.created_us
from consumer_groups g
join queues q on q.id = g.queue_id and q.deleted_us is null
where g.name = ?1 and (?2 is null or q.name = ?2);

-- name: delete_lanes_of_group
delete from partition_leases
where group_id = ?1 and partition_id in (select p.id from partitions p where p.queue_id = ?2);

-- name: delete_retries_of_group
delete from retries where group_id = ?;

-- name: delete_dead_letters_of_group
delete from dead_letters where group_id = ?;

-- name: delete_group
delete from consumer_groups where id = ?;

-- name: restart_groups
update consumer_groups set mode = 'from', start_us = ?2
where name = ?1 and queue_id in (select q.id from queues q where q.deleted_us is null);

-- name: restart_subscriptions
update subscriptions set mode = 'from', start_us = ?2 where group_name = ?1;

-- The groups of a queue with their lag: arithmetic over lanes, never a scan of messages. Lanes with a
-- start that is not passed yet are counted apart.
-- name: list_groups
select g.id, g.name, g.mode, g.start_us, g.created_us,
    coalesce(sum(p.last_seq - l.position - l.settled_count + l.redriven_count)
        filter (where l.ready_us is not null and l.from_us = 0), 0),
    count(*) filter (where l.lease_id is not null and l.lease_expires_us > ?2)
from queues q
join consumer_groups g on g.queue_id = q.id
join partitions p on p.queue_id = q.id
join partition_leases l on l.partition_id = p.id and l.group_id = g.id
where q.name = ?1 and q.deleted_us is null
group by g.id
order by g.name;

-- name: late_lanes
select l.partition_id, p.last_seq, l.position, l.settled, l.from_us, l.redriven_count
from partition_leases l
join partitions p on p.id = l.partition_id
where l.group_id = ? and l.ready_us is not null and l.from_us <> 0;
