-- Notes about messages, and the listing of the messages that one trace id ties together.

-- number is the order in which they were filed; a number is never given twice.
-- name: traces
create table traces (
    number integer primary key autoincrement,
    id text not null,
    partition_id integer not null,
    seq integer not null,
    group_name text,
    names text not null, -- a JSON array
    kind text not null,
    data blob not null,
    created_us integer not null
);

-- name: traces_message
create index traces_message on traces (partition_id, seq);

-- name: trace_names
create table trace_names (
    name text not null,
    number integer not null,
    created_us integer not null,
    primary key (name, number)
) without rowid;

-- In the order of the listing. Only messages that say a trace id are in it.
-- name: messages_trace
create index messages_trace on messages (trace_id, created_us, partition_id, seq)
    where trace_id is not null;
