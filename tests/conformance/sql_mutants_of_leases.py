# ruff: noqa: E501 - texts of SQL files, to the letter
"""SQL functions that are broken on purpose: leases, acks, groups and upkeep."""

import time

from queen_sync import model as m
from queen_sync.clock import ManualClock, to_datetime
from tests.conformance.sql_mutants import case, directed, mutant
from tests.postgres import test_registration, test_upkeep
from tests.postgres.sessions import (
    Call,
    ack_in,
    acks,
    connect,
    fresh,
    message,
    open_transaction,
    until_blocked,
)


def an_ack_that_waited_past_the_end_of_its_lease_is_late(dsn, backend):
    queue = fresh()
    backend.configure(queue, {"lease_seconds": 1})
    backend.push([message(queue, "m")])
    claim = backend.pop(m.PopRequest(queue=queue))
    with connect(dsn) as other, other.transaction():
        other.execute("select from queen.partition_leases for update")
        ack = Call(lambda: backend.ack(acks(claim)))
        until_blocked(dsn)
        time.sleep(1.1)
    assert [answer.code for answer in ack.result()] == ["LEASE_LOST"]


def a_sweep_beside_an_ack_leaves_what_was_acked(dsn, make_backend):
    clock = ManualClock()
    backend = make_backend(clock=clock)
    queue = fresh()
    backend.configure(queue, {"lease_seconds": 10})
    backend.push([message(queue, "m")])
    claim = backend.pop(m.PopRequest(queue=queue))
    with open_transaction(dsn) as acker:
        ack_in(acker, claim, now=to_datetime(clock.now_us()))
        clock.advance(11)
        sweep = Call(backend.sweep)
        time.sleep(0.3)
    sweep.result()
    assert not backend.pop(m.PopRequest(queue=queue))


# ----------------------------------------------------------------------------- leases

mutant(
    "the clock read before the lock",
    (
        "ack",
        "    released := false;\n    more := false;\n    select y as queue",
        "    v_at := coalesce(p_now, clock_timestamp());\n    released := false;\n    more := false;\n    select y as queue",
    ),
    ("ack", "    v_at := coalesce(p_now, clock_timestamp());\n\n    v_live", "    v_live"),
    killers=(directed(an_ack_that_waited_past_the_end_of_its_lease_is_late),),
)
mutant(
    "now() for clock_timestamp()",
    ("ack", "coalesce(p_now, clock_timestamp())", "coalesce(p_now, now())"),
    killers=(directed(an_ack_that_waited_past_the_end_of_its_lease_is_late),),
)
mutant(
    "a lease that is good at the instant of its end",
    ("ack", "v_at < r.lease_expires_at", "v_at <= r.lease_expires_at"),
    killers=(case("test_e05_a_late_ack_is_refused_though_nobody_else_came"),),
)
mutant(
    "any lease id while one is live",
    ("ack", "if v_live and r.lease_id = p_lease and p_outcomes", "if v_live and p_outcomes"),
    ("ack", "when v_live and r.lease_id = p_lease then 'live'", "when v_live then 'live'"),
    killers=(case("test_e03_a_late_ack_after_another_took_over_is_refused"),),
)
mutant(
    "the first ack ends the lease",
    ("ack", "released := isempty(r.open);", "released := true;"),
    killers=(case("test_d03_acking_a_part_frees_nothing"),),
)
mutant(
    "an ack of one is an ack of all before it",
    (
        "settle",
        "r.settled := r.settled + p_seqs;",
        "r.settled := r.settled + queen.span(r.position + 1, upper(p_seqs) - 1);",
    ),
    killers=(case("test_d05_acking_the_last_does_not_ack_the_others"),),
)
mutant(
    "an extension that may shorten",
    (
        "extend",
        "greatest(r.lease_expires_at, v_at + make_interval(secs => v_seconds))",
        "v_at + make_interval(secs => v_seconds)",
    ),
    killers=(case("test_e06_an_extension_never_shortens"),),
)
mutant(
    "an expiry that nobody is charged with",
    (
        "expire",
        "failures = greatest(y.failures, least(y.failures + 1, q.retry_limit)),",
        "failures = y.failures,",
    ),
    killers=(case("test_e09_its_neighbours_are_not_dead_lettered_for_its_sake"),),
)
mutant(
    "a dead letter without its copy",
    (
        "bury",
        "where m.partition_id = r.partition_id and m.seq = p_seq\n        on conflict",
        "where false\n        on conflict",
    ),
    killers=(case("test_f04_a_batch_that_always_fails_is_dead_lettered_whole"),),
)

# ----------------------------------------------------------------------------- groups, upkeep

mutant(
    "a group that begins with new begins with everything",
    (
        "register_partitions",
        "when g.mode = 'new' and g.skip_before is null then x.last_seq",
        "when g.mode = 'new' and g.skip_before is null then x.first_seq - 1",
    ),
    killers=(case("test_g05_a_new_group_gets_what_is_pushed_after_its_first_pop"),),
)
mutant(
    "a registration without the queue's lock",
    (
        "begin_group",
        "where q.name = p_queue and q.deleted_at is null for no key update;",
        "where q.name = p_queue and q.deleted_at is null;",
    ),
    killers=(
        directed(
            test_registration.test_a_group_registered_beside_a_push_that_makes_a_partition_reads_it
        ),
    ),
)
mutant(
    "a seek that leaves the leases alone",
    (
        "seek",
        "        r := queen.unlease(r);\n        r.closed_lease_id := null;",
        "        r.closed_lease_id := null;",
    ),
    killers=(case("test_g10_leases_end_where_a_group_is_moved"),),
)
mutant(
    "the sweep takes a lease back without its lock",
    (
        "expire_lease",
        "where l.partition_id = p_partition and l.group_id = p_group for no key update skip locked;",
        "where l.partition_id = p_partition and l.group_id = p_group;",
    ),
    killers=(directed(a_sweep_beside_an_ack_leaves_what_was_acked),),
)
mutant(
    "the sweep does not look again under the lock",
    (
        "expire_lease",
        "if r.lease_id is null or r.lease_expires_at > coalesce(p_now, clock_timestamp()) then",
        "if r.lease_id is null then",
    ),
    killers=(
        directed(
            test_upkeep.test_a_lease_found_expired_and_given_again_meanwhile_survives_the_sweep
        ),
    ),
)
mutant(
    "eviction from under a live lease",
    (
        "evict",
        "case when r.lease_id is null or r.redriving then '{}' else r.batch end;",
        "'{}'::int8multirange;",
    ),
    killers=(case("test_h09_nothing_is_evicted_from_under_a_live_lease"),),
)
mutant(
    "retention from under a live lease",
    ("retain", "greatest(v_done, v_aged), v_barrier,", "greatest(v_done, v_aged),"),
    killers=(case("test_h10_nothing_is_removed_from_under_a_live_lease"),),
)
