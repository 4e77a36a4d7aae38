-- The tables of the engine: a log of messages per partition, and a position per group in it.
-- Names are compared byte by byte (collate "C"): case, trailing spaces and Unicode forms stay apart.

create table queen.queues (
    id bigint generated always as identity primary key,
    name text collate "C" not null,
    namespace text not null default '',
    task text not null default '',
    created_at timestamptz not null,
    configured_at timestamptz not null,
    -- A deleted queue is a tombstone: its name is free at once, the sweep removes what it held.
    deleted_at timestamptz,
    lease_seconds integer not null default 300,
    retry_limit integer not null default 3,
    retry_delay_milliseconds integer not null default 0,
    max_queue_size integer not null default 0,
    ttl_seconds integer not null default 0,
    dead_letter_queue boolean not null default false,
    dlq_after_max_retries boolean not null default false,
    priority integer not null default 0,
    delayed_processing_seconds integer not null default 0,
    window_buffer_seconds integer not null default 0,
    retention_seconds integer not null default 0,
    completed_retention_seconds integer not null default 0,
    retention_enabled boolean not null default false,
    encryption_enabled boolean not null default false,
    max_wait_seconds integer not null default 0,
    require_lease_id boolean not null default true,
    spread_partitions integer not null default 0
);
create unique index queues_name on queen.queues (name) where deleted_at is null;

-- Every push updates its partition's row, and holds its lock to commit: seq order is commit order.
-- Half of each page stays free so that these updates stay on it (HOT).
create table queen.partitions (
    id bigint generated always as identity primary key,
    queue_id bigint not null,
    name text collate "C" not null,
    created_at timestamptz not null,
    first_seq bigint not null default 1,
    last_seq bigint not null default 0,
    -- Seqs past first_seq whose messages were deleted one by one; settled for every group, so that what is
    -- stored, lag and depth stay arithmetic. Never first_seq itself: it moves on instead.
    holes int8multirange not null default '{}',
    last_pushed_at timestamptz not null default '-infinity',
    spread_at timestamptz,  -- when it was last chosen for a push that named no partition
    unique (queue_id, name)
) with (fillfactor = 50, autovacuum_vacuum_scale_factor = 0.01, autovacuum_vacuum_cost_delay = 0);

create table queen.messages (
    partition_id bigint not null,
    seq bigint not null,
    created_at timestamptz not null,
    transaction_id text collate "C", -- null: the server named it, and its id says all
    trace_id uuid,
    payload json not null,           -- json, not jsonb: the text comes back byte for byte
    primary key (partition_id, seq)
) with (vacuum_truncate = off);
-- Dedup, ack by name and lookup by name. Only names given by callers are in it.
create unique index messages_transaction on queen.messages (transaction_id, partition_id)
    where transaction_id is not null;
-- All messages of a trace, in order.
create index messages_trace on queen.messages (trace_id, created_at, partition_id, seq)
    where trace_id is not null;

create table queen.consumer_groups (
    id bigint generated always as identity primary key,
    queue_id bigint not null,
    name text collate "C" not null,
    mode text not null check (mode in ('all', 'new', 'from')),
    start_at timestamptz,   -- of mode from; what its progress restarts from
    skip_before timestamptz, -- a start that was in the future: older messages are passed over
    registered boolean not null default false, -- false: some partitions may have no lease row yet
    created_at timestamptz not null,
    unique (queue_id, name)
);

-- One row per partition and group: how far the group is, and its lease.
create table queen.partition_leases (
    partition_id bigint not null,
    group_id bigint not null,
    position bigint not null default 0,              -- everything at or before it is settled
    settled int8multirange not null default '{}',    -- what is settled past the position
    lease_id uuid,
    lease_expires_at timestamptz,
    alone boolean not null default false,            -- the live claim is a single message in all
    redriving boolean not null default false,        -- the live lease is of redriven messages
    batch int8multirange not null default '{}',      -- what the live lease delivered
    open int8multirange not null default '{}',       -- of it, what has no outcome yet
    failed int8multirange,                           -- outcomes other than completed; null: none
    returned int8multirange,
    dead int8multirange,
    closed_lease_id uuid,                            -- the last lease that ended by its outcomes
    closed_batch int8multirange,
    closed_failed int8multirange,
    closed_returned int8multirange,
    closed_dead int8multirange,
    retrying boolean not null default false,         -- there are rows in retries
    sought boolean not null default false,           -- a seek has dropped the group's start time here
    redriven_count integer not null default 0,       -- dead letters given back and not yet settled
    ready_at timestamptz,                            -- when a pop may take the row; null: nothing known
    primary key (partition_id, group_id),
    constraint lease_is_ready_when_it_expires
        check (lease_id is null or (ready_at = lease_expires_at and not isempty(open)))
) with (fillfactor = 70, autovacuum_vacuum_scale_factor = 0.01, autovacuum_vacuum_cost_delay = 0);
-- How a pop finds work: the longest waiting first, then the older partition. Rows that are leased
-- or delayed lie in its future part and are never scanned.
create index partition_leases_ready on queen.partition_leases (group_id, ready_at, partition_id)
    where ready_at is not null;

-- Written only for messages that were not simply completed.
create table queen.retries (
    partition_id bigint not null,
    group_id bigint not null,
    seq bigint not null,
    deliveries integer not null,
    failures integer not null,
    expired boolean not null default false,
    not_before timestamptz not null default '-infinity',
    error text,
    primary key (partition_id, group_id, seq)
);

-- A dead letter is a copy: it outlives its message. Given back, it is delivered from here.
create table queen.dead_letters (
    partition_id bigint not null,
    group_id bigint not null,
    seq bigint not null,
    queue_id bigint not null,
    queue_name text collate "C" not null,
    partition_name text collate "C" not null,
    group_name text collate "C" not null,
    transaction_id text collate "C",
    trace_id uuid,
    created_at timestamptz not null,
    payload json not null,
    error text,
    failures integer not null,
    deliveries integer not null,
    failed_at timestamptz not null,
    redriven_at timestamptz, -- null: dead
    primary key (partition_id, group_id, seq)
);
create index dead_letters_newest on queen.dead_letters (queue_name, failed_at, partition_id, seq);

-- What a group asked for before its queue existed, or keeps after its progress was deleted.
create table queen.subscriptions (
    queue_name text collate "C" not null,
    group_name text collate "C" not null,
    mode text not null check (mode in ('all', 'new', 'from')),
    start_at timestamptz,
    created_at timestamptz not null,
    primary key (queue_name, group_name)
);

-- The same for pops over a namespace or task; the empty text stands for any.
create table queen.scopes (
    namespace text collate "C" not null,
    task text collate "C" not null,
    group_name text collate "C" not null,
    mode text not null check (mode in ('all', 'new', 'from')),
    start_at timestamptz,
    created_at timestamptz not null,
    primary key (group_name, namespace, task)
);

-- Claims over several partitions or with an attempt id; any other is found from its lease id alone.
create table queen.claims (
    lease_id uuid primary key,
    partition_ids bigint[] not null,
    created_at timestamptz not null,
    attempt text collate "C" -- scope, group and attempt id in one
);
create unique index claims_attempt on queen.claims (attempt) where attempt is not null;

-- How far every group had settled a partition at some instants: what a completed message's age is
-- told from, since a position has no time.
create table queen.position_marks (
    partition_id bigint not null,
    marked_at timestamptz not null,
    position bigint not null,
    primary key (partition_id, marked_at)
);

-- What left a queue other than by an ack.
create table queen.removals (
    id bigint generated always as identity primary key,
    queue_id bigint not null,
    partition_name text collate "C" not null,
    group_name text collate "C",
    kind text not null check (kind in ('evicted', 'completed', 'expired')),
    count bigint not null,
    removed_at timestamptz not null
);
create index removals_newest on queen.removals (queue_id, id);

-- Notes about messages; one row per name under which each is filed stands in trace_names.
create table queen.traces (
    id uuid primary key default gen_random_uuid(),
    number bigint generated always as identity,
    partition_id bigint not null,
    seq bigint not null,
    group_name text collate "C",
    names text[] collate "C" not null,
    kind text collate "C" not null,
    data json not null,
    created_at timestamptz not null
);
create index traces_message on queen.traces (partition_id, seq, number);
create table queen.trace_names (
    name text collate "C" not null,
    created_at timestamptz not null,
    number bigint not null,
    trace_id uuid not null references queen.traces on delete cascade,
    primary key (name, created_at, number)
);
create index trace_names_trace on queen.trace_names (trace_id);
