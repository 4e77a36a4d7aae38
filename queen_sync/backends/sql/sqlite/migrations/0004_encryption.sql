-- Payloads at rest: which key sealed them; null: the payload is what was pushed. It is never told from the
-- payload's looks, since what was pushed may look like an envelope.
-- name: key_of_messages
alter table messages add column encryption_key_id text;

-- name: key_of_dead_letters
alter table dead_letters add column encryption_key_id text;
