-- What happened, by minute and queue: added to by the serving processes every few seconds, never on
-- the way of a push, pop or ack. By the queue's name, so that a deleted queue's past can still be read.
-- name: metrics_minutes
create table metrics_minutes (
    minute_us integer not null,
    queue_name text not null,
    push_requests integer not null,
    pushed integer not null,
    duplicates integer not null,
    pop_requests integer not null,
    pops_empty integer not null,
    popped integer not null,
    ack_requests integer not null,
    completed integer not null,
    failed integer not null,
    given_back integer not null,
    dead_lettered integer not null,
    refused integer not null,
    transactions integer not null,
    delay_milliseconds integer not null,
    max_delay_milliseconds integer not null, -- the largest; all others are sums
    primary key (minute_us, queue_name)
) without rowid;

-- When the group last took messages here.
-- name: partition_leases_taken
alter table partition_leases add column taken_us integer;
