-- What happened, by minute and queue: added to by the serving processes every few seconds, never on the way
-- of a push, pop or ack. By the queue's name, so that a deleted queue's past can still be read.
create table queen.metrics_minutes (
    minute timestamptz not null,
    queue_name text collate "C" not null,
    push_requests bigint not null default 0,
    pushed bigint not null default 0,
    duplicates bigint not null default 0,
    pop_requests bigint not null default 0,
    pops_empty bigint not null default 0,
    popped bigint not null default 0,
    ack_requests bigint not null default 0,
    completed bigint not null default 0,
    failed bigint not null default 0,
    given_back bigint not null default 0,
    dead_lettered bigint not null default 0,
    refused bigint not null default 0,
    transactions bigint not null default 0,
    delay_milliseconds bigint not null default 0,
    max_delay_milliseconds bigint not null default 0, -- the largest; all others are sums
    primary key (minute, queue_name)
);

-- When the group last took messages here. Written in the update that takes them, and in no index, so that
-- it costs that update nothing but its eight bytes.
alter table queen.partition_leases add column taken_at timestamptz;
