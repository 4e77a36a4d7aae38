-- Payloads at rest: which key sealed them. Null: the payload is what was pushed. It is never told from the
-- payload's looks, since what was pushed may look like an envelope.
alter table queen.messages add column encryption_key_id text collate "C";
alter table queen.dead_letters add column encryption_key_id text collate "C";

-- Whether some of a queue's messages may be sealed: its option is on, or once was.
alter table queen.queues add column sealed boolean not null default false;
update queen.queues set sealed = encryption_enabled where encryption_enabled;

-- Functions whose arguments or rows have become others; they are made anew right after the migrations.
drop function if exists queen.push(
    text, text[], integer[], text[], text[], uuid[], bigint[], bigint[], bigint[], boolean, integer, text, timestamptz
);
drop function if exists queen.pop(text, text, text, integer, integer, boolean, text, timestamptz, timestamptz);
drop function if exists queen.claimed(uuid, timestamptz);
