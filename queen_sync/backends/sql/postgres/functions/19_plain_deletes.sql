-- `delete from queen.queues where …`, as administrators and the official clients' test suites write it, is
-- as good as queen.delete_queue: the names are free at once, and all that the queues held goes.
--
-- The deleted row comes back as a tombstone with the same number, in the same statement. So the delete itself
-- touches nothing that a push, pop or ack holds: it waits for no more than the row locks of the queues
-- themselves, takes them one by one like any delete does, and never a partition's or a lease row's. The
-- sweep removes what lies under the tombstone, in chunks and in the engine's lock order. A push that was in
-- flight ends under the tombstone too: its partition belongs to that number, never to a successor's.
create or replace function queen.entomb() returns trigger language plpgsql as $$
begin
    insert into queen.queues overriding system value
    select (json_populate_record(old, json_build_object('deleted_at', clock_timestamp()))).*;
    delete from queen.subscriptions s where s.queue_name = old.name;
    delete from queen.dead_letters d where d.queue_id = old.id;
    return null;
end $$;

create or replace trigger queues_entomb after delete on queen.queues
for each row when (old.deleted_at is null) execute function queen.entomb();

-- A tombstone stays for as long as anything lies under it, or nobody would find that any more; the same
-- condition may name it again. Nothing new comes under a tombstone, so the sweep may remove an empty one.
create or replace function queen.keep_tombstone() returns trigger language plpgsql as $$
begin
    if exists (select 1 from queen.partitions p where p.queue_id = old.id) then
        return null;
    end if;
    return old;
end $$;

create or replace trigger queues_keep_tombstone before delete on queen.queues
for each row when (old.deleted_at is not null) execute function queen.keep_tombstone();
