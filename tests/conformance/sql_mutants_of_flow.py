# ruff: noqa: E501 - texts of SQL files, to the letter
"""SQL functions that are broken on purpose: pushing and popping.

Some mutations of other engines have no place in this one: no lock is stronger for a foreign key's
sake, and no claim is a join with a limited subquery.
"""

from contextlib import nullcontext

from tests.conformance.sql_mutants import TRIES, case, directed, late_commits, load, mutant
from tests.postgres import test_claims, test_lock_order, test_wake_ups

# ----------------------------------------------------------------------------- pushing

mutant(
    "seq from a sequence, outside the partition's lock",
    (
        "push",
        """\
            update queen.partitions p
            set last_seq = p.last_seq + v_count,
                last_pushed_at = greatest(p.last_pushed_at, coalesce(p_now, clock_timestamp()))
            from queen.queues x
            where x.name = p_queue""",
        """\
            select x.id, p.id, nextval('public.places') - 1, clock_timestamp(), interval '0'
            into queue_id, v_partition, v_base, v_at, v_delay
            from queen.queues x, queen.partitions p
            where x.name = p_queue""",
    ),
    (
        "push",
        """\
            returning x.id, p.id, p.last_seq - v_count, p.last_pushed_at,
                make_interval(secs => greatest(x.delayed_processing_seconds, x.window_buffer_seconds))
            into queue_id, v_partition, v_base, v_at, v_delay;""",
        ";",
    ),
    (
        "push",
        "            if v_stored = v_count then\n",
        """\
            if v_stored = v_count then
                update queen.partitions p set last_seq = greatest(p.last_seq, v_base + v_count)
                where p.id = v_partition;
""",
    ),
    setup="create sequence public.places",
    killers=(late_commits("test_j04_a_push_that_commits_late_is_not_passed_over", nullcontext()),),
)
mutant(
    "capacity without the queue's lock",
    (
        "lock_partitions",
        "perform 1 from queen.queues q where q.id = x.id for no key update;",
        "perform 1 from queen.queues q where q.id = x.id;",
    ),
    (
        "push",
        "where x.id = q.id and x.deleted_at is null for no key update;",
        "where x.id = q.id and x.deleted_at is null;",
    ),
    killers=(load("test_j05_a_limit_is_exact_while_many_push_and_pop"),),
)
mutant(
    "partitions locked in any order",
    ("lock_partitions", "order by p.id for no key update;", "order by random() for no key update;"),
    killers=(
        directed(
            test_lock_order.test_transactions_in_opposite_directions_do_not_deadlock, tries=TRIES
        ),
    ),
)
mutant(
    "a repeat leaves a hole",
    (
        "push",
        "update queen.partitions p set last_seq = v_base where p.id = v_partition;",
        "",
    ),
    killers=(case("test_c01_a_repeat_leaves_no_gap"),),
)
mutant(
    "a push wakes nobody",
    (
        "push",
        "if found then\n                    update queen.partition_leases l set ready_at = v_at + v_delay",
        "if false then\n                    update queen.partition_leases l set ready_at = v_at + v_delay",
    ),
    killers=(case("test_a10_a_queue_that_was_drained_takes_new_messages"),),
)

# ----------------------------------------------------------------------------- popping

mutant(
    "a lease is given whether or not another is live",
    (
        "pop",
        "x.ready_at >= v_floor and x.ready_at <= v_at\n            order by",
        "x.ready_at is not null\n            order by",
    ),
    killers=(
        case("test_d01_a_leased_partition_is_passed_over_and_another_found"),
        load("test_j01_of_many_pops_one_gets_the_message"),
    ),
)
mutant(
    "a pop waits for a lease row that somebody holds",
    (
        "pop",
        """\
            where x.group_id = g.id and x.ready_at >= v_floor and x.ready_at <= v_at
            order by x.ready_at, x.partition_id limit 1
            for no key update skip locked;""",
        """\
            where x.group_id = g.id and x.ready_at >= v_floor and x.ready_at <= v_at
            order by x.ready_at, x.partition_id limit 1
            for no key update;""",
    ),
    killers=(directed(test_claims.test_a_partition_that_somebody_holds_is_passed_by),),
)
mutant(
    "a batch in the order of created_at",
    (
        "pop",
        """\
            where m.partition_id = r.partition_id and m.seq > r.position and m.seq <= r.position + v_size
            order by m.seq;""",
        """\
            where m.partition_id = r.partition_id and m.seq > r.position and m.seq <= r.position + v_size
            order by m.created_at, m.payload::text;""",
    ),
    killers=(case("test_a04_a_batch_comes_out_in_request_order"),),
)
mutant(
    "a pop forgets to take an expired lease back",
    (
        "pop",
        "if r.lease_id is not null then\n            r := queen.expire(r, q, v_at);",
        "if false then\n            r := queen.expire(r, q, v_at);",
    ),
    killers=(case("test_e01_an_expired_batch_comes_again_whole_and_in_order"),),
)
mutant(
    "the lower priority first",
    ("scope_queues", "q.priority desc", "q.priority"),
    killers=(case("test_h12_the_higher_priority_is_served_first"),),
)
mutant(
    "a window without its cap",
    (
        "due",
        "p_created + make_interval(secs => 10 * q.window_buffer_seconds)",
        "p_created + make_interval(secs => 1000 * q.window_buffer_seconds)",
    ),
    killers=(case("test_h08_a_steady_trickle_cannot_hold_a_partition_for_ever"),),
)
mutant(
    "nothing to read, said without the partition's lock",
    (
        "next_ready",
        "from queen.partitions p where p.id = r.partition_id for share skip locked;",
        "from queen.partitions p where p.id = r.partition_id;",
    ),
    killers=(
        directed(
            test_wake_ups.test_a_pop_that_finds_nothing_beside_an_open_push_keeps_the_partition_in_sight
        ),
    ),
)
mutant(
    "whoever holds a lease row waits for the partition",
    (
        "next_ready",
        "from queen.partitions p where p.id = r.partition_id for share skip locked;",
        "from queen.partitions p where p.id = r.partition_id for share;",
    ),
    killers=(directed(test_wake_ups.test_a_draining_ack_behind_an_open_push_answers_at_once),),
)
