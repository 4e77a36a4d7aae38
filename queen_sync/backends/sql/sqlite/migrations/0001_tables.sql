-- The tables of the engine: a log of messages per partition, and a position per group in it.
-- Text is compared byte by byte (SQLite's own collation, binary): case, trailing spaces and
-- Unicode forms stay apart. Instants are microseconds since 1970 and end in _us. A set of seqs is
-- a blob of its edges (see sqlite_seqs.py), null where it is empty. Numbers of queues, partitions
-- and groups are in ids that callers keep, hence autoincrement: none is ever given twice.

-- name: queues
create table queues (
    id integer primary key autoincrement,
    name text not null,
    namespace text not null default '',
    task text not null default '',
    created_us integer not null,
    configured_us integer not null,
    -- A deleted queue is a tombstone: its name is free at once, the sweep removes what it held.
    deleted_us integer,
    lease_seconds integer not null default 300,
    retry_limit integer not null default 3,
    retry_delay_milliseconds integer not null default 0,
    max_queue_size integer not null default 0,
    ttl_seconds integer not null default 0,
    dead_letter_queue integer not null default 0 check (dead_letter_queue in (0, 1)),
    dlq_after_max_retries integer not null default 0 check (dlq_after_max_retries in (0, 1)),
    priority integer not null default 0,
    delayed_processing_seconds integer not null default 0,
    window_buffer_seconds integer not null default 0,
    retention_seconds integer not null default 0,
    completed_retention_seconds integer not null default 0,
    retention_enabled integer not null default 0 check (retention_enabled in (0, 1)),
    encryption_enabled integer not null default 0 check (encryption_enabled in (0, 1)),
    max_wait_seconds integer not null default 0,
    require_lease_id integer not null default 1 check (require_lease_id in (0, 1)),
    spread_partitions integer not null default 0,
    spreads integer not null default 0 -- how many calls have spread unnamed messages
);

-- name: queues_name
create unique index queues_name on queues (name) where deleted_us is null;

-- name: queues_scope
create index queues_scope on queues (namespace, task) where deleted_us is null;

-- name: queues_deleted
create index queues_deleted on queues (id) where deleted_us is not null;

-- name: partitions
create table partitions (
    id integer primary key autoincrement,
    queue_id integer not null,
    name text not null,
    created_us integer not null,
    first_seq integer not null default 1, -- retention has removed what lies before
    last_seq integer not null default 0,
    last_pushed_us integer not null default 0,
    spread_at integer not null default 0, -- the number of the call that last spread messages here
    unique (queue_id, name)
);

-- A table with a rowid: payloads of every size are stored compactly (a row of an index tree, as
-- `without rowid` makes it, spills what is longer than a quarter of a page), and a push appends.
-- name: messages
create table messages (
    id integer primary key,
    partition_id integer not null,
    seq integer not null,
    created_us integer not null,
    transaction_id text, -- null: the server named it, and its id says all
    trace_id text,
    payload blob not null -- bytes as they came: text functions would stop at a NUL
);

-- name: messages_seq
create unique index messages_seq on messages (partition_id, seq);

-- Dedup, ack by name and lookup by name. Only names given by callers are in it.
-- name: messages_transaction
create unique index messages_transaction on messages (transaction_id, partition_id)
    where transaction_id is not null;

-- name: consumer_groups
create table consumer_groups (
    id integer primary key autoincrement,
    queue_id integer not null,
    name text not null,
    mode text not null check (mode in ('all', 'new', 'from')),
    start_us integer,                  -- of mode from; what its progress restarts from
    from_us integer not null default 0, -- messages created before are not for it; restarts leave it alone
    created_us integer not null,
    unique (queue_id, name)
);

-- One row per partition and group, a lane: how far the group is, and its lease.
-- name: partition_leases
create table partition_leases (
    partition_id integer not null,
    group_id integer not null,
    position integer not null,                  -- everything at or before it is settled
    settled blob,                               -- what is settled past the position
    settled_count integer not null default 0,   -- how many those are: lag is arithmetic
    from_us integer not null,                   -- still to be passed over: what was created before; 0: nothing
    ended_us integer not null,                  -- when the last lease ended, or the group was registered
    retry_count integer not null default 0,     -- rows in retries; 0 spares a pop the look
    redriven_count integer not null default 0,  -- dead letters given back: they stand before all others
    ready_us integer,                           -- not before this can a pop take it; null: nothing to take
    lease_id text,
    lease_expires_us integer,
    alone integer not null default 0,           -- the live claim is a single message in all
    redriven integer not null default 0,        -- the live lease covers copies of dead letters
    batch blob,                                 -- what the live lease delivered
    open blob,                                  -- of it, what has no outcome yet
    failed blob,                                -- outcomes other than completed
    returned blob,
    dead blob,
    closed_lease_id text,                       -- the last lease that ended by its outcomes
    closed_batch blob,
    closed_failed blob,
    closed_returned blob,
    closed_dead blob,
    primary key (partition_id, group_id),
    check ((lease_id is null) = (lease_expires_us is null) and (lease_id is null) = (open is null)),
    check (lease_id is null or ready_us = lease_expires_us)
) without rowid;

-- How a pop finds work: the longest waiting first, then the older partition. Lanes that are leased
-- or delayed lie in its future part and are never looked at.
-- name: partition_leases_ready
create index partition_leases_ready on partition_leases (group_id, ready_us, partition_id)
    where ready_us is not null;

-- Written only for messages that were not simply completed.
-- name: retries
create table retries (
    group_id integer not null,
    partition_id integer not null,
    seq integer not null,
    failures integer not null,
    deliveries integer not null,
    expired integer not null,
    not_before_us integer not null,
    error text,
    primary key (group_id, partition_id, seq)
) without rowid;

-- name: dead_letters
create table dead_letters (
    id integer primary key,
    group_id integer not null,
    partition_id integer not null,
    seq integer not null,
    queue_name text not null,
    partition_name text not null,
    group_name text not null,
    transaction_id text,
    trace_id text,
    created_us integer not null,
    payload blob not null,
    error text,
    failures integer not null,
    deliveries integer not null,
    failed_us integer not null,
    redriven_us integer -- given back to the group: a copy to be delivered, no dead letter any more
);

-- name: dead_letters_message
create unique index dead_letters_message on dead_letters (group_id, partition_id, seq);

-- name: dead_letters_newest
create index dead_letters_newest on dead_letters (failed_us, partition_id, seq)
    where redriven_us is null;

-- name: dead_letters_redriven
create index dead_letters_redriven on dead_letters (group_id, partition_id, seq)
    where redriven_us is not null;

-- name: dead_letters_redriven_name
create index dead_letters_redriven_name on dead_letters (transaction_id)
    where redriven_us is not null and transaction_id is not null;

-- What a group asked for before its queue existed, or keeps after its progress was deleted.
-- name: subscriptions
create table subscriptions (
    queue_name text not null,
    group_name text not null,
    mode text not null check (mode in ('all', 'new', 'from')),
    start_us integer,
    created_us integer not null,
    primary key (queue_name, group_name)
) without rowid;

-- What groups that pop over a namespace, a task or both have asked for; the first made counts first.
-- name: scopes
create table scopes (
    id integer primary key,
    namespace text not null, -- empty: any
    task text not null,
    group_name text not null,
    mode text not null check (mode in ('all', 'new', 'from')),
    start_us integer,
    created_us integer not null,
    unique (group_name, namespace, task)
);

-- The partitions of claims over several, in the order in which they were taken; that of a claim of one
-- is in its lease id.
-- name: claims
create table claims (
    lease_id text not null,
    partition_id integer not null,
    number integer not null,
    primary key (lease_id, partition_id)
) without rowid;

-- Pops that may be repeated: what they asked for, and the lease that they got.
-- name: attempts
create table attempts (
    group_name text not null,
    attempt_id text not null,
    queue_name text not null, -- empty: a pop over a scope
    namespace text not null,
    task text not null,
    lease_id text not null,
    expires_us integer not null,
    primary key (group_name, attempt_id, queue_name, namespace, task)
) without rowid;

-- name: attempts_expiry
create index attempts_expiry on attempts (expires_us);

-- That all groups had settled a partition up to seq at an instant: what retention goes by.
-- name: position_marks
create table position_marks (
    partition_id integer not null,
    at_us integer not null,
    seq integer not null,
    primary key (partition_id, at_us)
) without rowid;

-- What left a queue other than by an ack.
-- name: removals
create table removals (
    id integer primary key autoincrement,
    queue_id integer not null,
    partition_name text not null,
    kind text not null check (kind in ('evicted', 'completed', 'expired')),
    count integer not null,
    removed_us integer not null,
    group_name text
);

-- name: removals_newest
create index removals_newest on removals (queue_id, id);
