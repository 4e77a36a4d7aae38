-- What is needed to show encrypted messages; queues that never were encrypted pay one look at their row.

-- The keys that sealed some messages: place is the message's in the arguments; none where none did.
create or replace function queen.sealing_keys(p_partitions bigint[], p_seqs bigint[])
returns table (place bigint, key_id text) language sql volatile set jit = off as $$
    select u.o, m.encryption_key_id
    from unnest(p_partitions, p_seqs) with ordinality u(id, seq, o), lateral (
        -- by the key, one by one: joined, the few sealed ones are looked for in the whole table
        select x.encryption_key_id from queen.messages x
        where x.partition_id = u.id and x.seq = u.seq offset 0
    ) m
    where m.encryption_key_id is not null
$$;

-- The messages that come next in the lanes of a queue, where they are sealed: the lowest redriven one, from
-- its copy, or the lowest that waits.
create or replace function queen.sealed_heads(p_queue text)
returns table (
    partition_id bigint, group_name text, partition_name text, transaction_id text, payload json
) language sql volatile set jit = off as $$
    select p.id, g.name, p.name, x.transaction_id, x.payload
    from queen.queues q
    join queen.partitions p on p.queue_id = q.id
    join queen.partition_leases l on l.partition_id = p.id
    join queen.consumer_groups g on g.id = l.group_id and g.registered,
    lateral (select case when l.redriven_count = 0 then queen.waiting(l, p, g.skip_before) end as waiting) w,
    lateral (
        (
            select d.transaction_id, d.payload, d.encryption_key_id from queen.dead_letters d
            where l.redriven_count > 0 and d.partition_id = p.id and d.group_id = l.group_id
                and d.redriven_at is not null
            order by d.seq limit 1
        ) union all (
            select m.transaction_id, m.payload, m.encryption_key_id from queen.messages m
            where l.redriven_count = 0 and m.partition_id = p.id and m.seq = lower(w.waiting)
        )
    ) x
    where q.name = p_queue and q.deleted_at is null and q.sealed and x.encryption_key_id is not null
$$;
