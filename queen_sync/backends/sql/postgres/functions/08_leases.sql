-- Lengthen a live lease in all its partitions: the later of its expiry and now + seconds (C-20).
-- Null: it is lost. Null seconds: the longer of 60 s and the queue's lease time.
create or replace function queen.extend(p_lease uuid, p_seconds integer, p_now timestamptz)
returns timestamptz language plpgsql volatile set jit = off set enable_seqscan = off as $$
declare
    r queen.partition_leases;
    v_at timestamptz;
    v_ends timestamptz;
    v_latest timestamptz;
    v_seconds integer;
begin
    perform queen.require_read_committed();
    for r in select l.* from queen.partition_leases l
        where l.partition_id = any (queen.partitions_of_lease(p_lease)) and l.lease_id = p_lease
        order by l.partition_id, l.group_id for no key update
    loop
        v_at := coalesce(p_now, clock_timestamp());
        continue when v_at >= r.lease_expires_at;
        select coalesce(p_seconds, greatest(60, q.lease_seconds)) into v_seconds
        from queen.consumer_groups g
        join queen.queues q on q.id = g.queue_id and q.deleted_at is null
        where g.id = r.group_id;
        continue when not found;
        v_ends := greatest(r.lease_expires_at, v_at + make_interval(secs => v_seconds));
        v_latest := greatest(v_latest, v_ends);
        update queen.partition_leases l set lease_expires_at = v_ends, ready_at = v_ends
        where l.partition_id = r.partition_id and l.group_id = r.group_id;
    end loop;
    return v_latest;
end $$;

-- Give back, uncharged, what a live lease still has open, in all its partitions: the outcome `retry`
-- for each message, which closes the lease. Returns the queues that have work again; none: lost.
create or replace function queen.release(p_lease uuid, p_now timestamptz) returns setof bigint
language plpgsql volatile set jit = off set enable_seqscan = off as $$
declare
    r queen.partition_leases;
    q queen.queues;
    v_at timestamptz;
begin
    perform queen.require_read_committed();
    for r in select l.* from queen.partition_leases l
        where l.partition_id = any (queen.partitions_of_lease(p_lease)) and l.lease_id = p_lease
        order by l.partition_id, l.group_id for no key update
    loop
        v_at := coalesce(p_now, clock_timestamp());
        continue when v_at >= r.lease_expires_at;
        select y.* into q from queen.consumer_groups g
        join queen.queues y on y.id = g.queue_id and y.deleted_at is null
        where g.id = r.group_id;
        continue when not found;
        insert into queen.retries as y (partition_id, group_id, seq, deliveries, failures, not_before)
        select r.partition_id, r.group_id, e, 1, 0, v_at from queen.elements(r.open) e
        on conflict (partition_id, group_id, seq) do update
            set deliveries = y.deliveries + 1, not_before = excluded.not_before;
        r.retrying := true;
        r.closed_lease_id := r.lease_id; r.closed_batch := r.batch; r.closed_failed := r.failed;
        r.closed_returned := coalesce(r.returned, '{}') + r.open; r.closed_dead := r.dead;
        r := queen.unlease(r);
        r.ready_at := queen.next_ready(r, q, v_at);
        perform queen.store(r);
        return next q.id;
    end loop;
end $$;
