-- Small things that the operations are written in. Sets of seqs are multiranges: a batch of
-- 10,000 is one range, an ack is an intersection.

-- Every operation decides by statements that each see what was committed before they began.
-- Under a stricter isolation level a group that was just registered would stay unseen.
create or replace function queen.require_read_committed() returns void language plpgsql as $$
begin
    if current_setting('transaction_isolation') <> 'read committed' then
        raise exception 'queen functions run in read committed transactions only'
            using errcode = '25001';
    end if;
end $$;

create or replace function queen.one(p_seq bigint) returns int8multirange
language sql immutable parallel safe as
$$ select int8multirange(int8range(p_seq, p_seq + 1)) $$;

create or replace function queen.span(p_first bigint, p_last bigint) returns int8multirange
language sql immutable parallel safe as
$$ select int8multirange(int8range(p_first, greatest(p_first, p_last + 1))) $$;

create or replace function queen.elements(p_set int8multirange) returns setof bigint
language sql immutable parallel safe as
$$ select generate_series(lower(r), upper(r) - 1) from unnest(p_set) r $$;

create or replace function queen.size(p_set int8multirange) returns bigint
language sql immutable parallel safe as
$$ select coalesce(sum(upper(r) - lower(r)), 0)::bigint from unnest(p_set) r $$;

-- The low 42 bits of an instant, as message ids carry them. Declared stable, as date_part is, so that it
-- is inlined (as a call it costs 10 us); a float8 holds the microseconds of any date before 2200.
create or replace function queen.stamp(p_at timestamptz) returns bigint
language sql stable parallel safe as
$$ select round(date_part('epoch', p_at) * 1000000)::bigint & 4398046511103 $$;

-- A lease id carries the number of its (first) partition in its first 36 bits; the rest is random.
-- gen_random_uuid is version 4: its version digit becomes 8, the variant stays.
create or replace function queen.new_lease_id(p_partition bigint) returns uuid
language plpgsql volatile as $$
declare
    h text := replace(gen_random_uuid()::text, '-', '');
begin
    return (lpad(to_hex(p_partition), 9, '0') || substr(h, 10, 3) || '8' || substr(h, 14))::uuid;
end $$;

create or replace function queen.partitions_of_lease(p_lease uuid) returns bigint[]
language sql stable as $$
    select coalesce(
        (select c.partition_ids from queen.claims c where c.lease_id = p_lease),
        array[('x' || substr(replace(p_lease::text, '-', ''), 1, 9))::bit(36)::bigint]
    )
$$;
