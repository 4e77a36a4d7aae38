"""Sweeps of several processes over one database: each thing is done once, in small bites."""

from __future__ import annotations

import logging

import pytest

from queen_sync import model as m
from queen_sync.backends import postgres_sweep
from queen_sync.backends.postgres import PostgresBackend
from queen_sync.clock import ManualClock
from tests.postgres.conftest import MakeBackend
from tests.postgres.sessions import (
    Call,
    acks,
    drain,
    execute,
    fresh,
    message,
    number_of,
    open_transaction,
    push_in,
    repaired,
    together,
    until_blocked,
    value,
)

HOLD_STEP = "select queen.may_sweep('{step}')"
LOSE_WAKE_UPS = "update queen.partition_leases set ready_at = null"
OLD = "update queen.messages set created_at = created_at - interval '1 hour'"
LEASED = "select count(*) from queen.partition_leases where lease_id is not null"


def fill(dsn: str, queue: str, first: int, last: int) -> None:
    """Make the partitions p-first to p-last with one message each, that every group is owed."""
    execute(
        dsn,
        "insert into queen.partitions (queue_id, name, created_at, last_seq, last_pushed_at)"
        f" select q.id, 'p-' || i, now(), 1, now() from queen.queues q,"
        f" generate_series({first}, {last}) i where q.name = '{queue}'",
        "insert into queen.messages (partition_id, seq, created_at, payload)"
        " select p.id, 1, now(), '1' from queen.partitions p where p.name like 'p-%'"
        " on conflict do nothing",
        "insert into queen.partition_leases (partition_id, group_id, ready_at)"
        " select p.id, g.id, now() - interval '1 minute' from queen.partitions p"
        " join queen.consumer_groups g on g.queue_id = p.queue_id on conflict do nothing",
    )


def expire_all(dsn: str) -> None:
    """Let every live lease have run out long ago."""
    execute(
        dsn,
        "update queen.partition_leases set lease_expires_at = now() - interval '1 hour',"
        " ready_at = now() - interval '1 hour' where lease_id is not null",
    )


def broken_lanes(dsn: str, backend: PostgresBackend, count: int = 1) -> None:
    """Lose the wake-ups of that many partitions."""
    queue = fresh()
    backend.subscribe(queue, "g", m.Subscription())
    backend.push([message(queue, None, f"p{i}") for i in range(count)])
    execute(dsn, LOSE_WAKE_UPS)


def test_an_expired_lease_is_found_behind_any_number_of_rows_that_are_due(
    dsn: str, backend: PostgresBackend
) -> None:
    """O-09, PLD-5: 2,500 partitions with a backlog have waited longer than the lease has run."""
    queue = fresh()
    backend.subscribe(queue, "g", m.Subscription())
    backend.push([message(queue, "held")])
    claim = backend.pop(m.PopRequest(queue=queue, group="g"))
    fill(dsn, queue, 1, 2_500)
    execute(
        dsn,
        "update queen.partition_leases set lease_expires_at = now(), ready_at = now()"
        " where lease_id is not null",
    )
    assert len(claim.messages) == 1
    assert backend.sweep().expired == 1
    assert backend.sweep().expired == 0
    assert value(dsn, LEASED) == 0


def test_what_is_too_old_is_found_behind_any_number_of_rows_that_cannot_go_yet(
    dsn: str, backend: PostgresBackend
) -> None:
    """C-09, O-09: 1,200 heads are too old and in a live lease, so that only the last one goes."""
    queue = fresh()
    backend.configure(queue, {"ttl_seconds": 60})
    backend.subscribe(queue, "g", m.Subscription())
    fill(dsn, queue, 1, 1_201)
    for _ in range(12):
        request = m.PopRequest(queue=queue, group="g", max_messages=100, max_partitions=100)
        assert len(backend.pop(request).messages) == 100
    execute(dsn, OLD)
    assert backend.sweep().evicted == 1
    assert value(dsn, LEASED) == 1_200


def test_a_sweep_that_ends_early_is_gone_on_with_by_the_next_process(
    dsn: str, make_backend: MakeBackend, monkeypatch: pytest.MonkeyPatch
) -> None:
    """O-45: how far a step has got is kept in the database, not in the process."""
    monkeypatch.setattr(postgres_sweep, "ROWS", 10)
    monkeypatch.setattr(postgres_sweep, "MAX_CHUNKS", 2)
    one, other = make_backend(), make_backend()
    queue = fresh()
    one.subscribe(queue, "g", m.Subscription())
    one.push([message(queue, None, f"p{i}") for i in range(50)])
    for _ in range(50):
        one.pop(m.PopRequest(queue=queue, group="g"))
    expire_all(dsn)
    assert [one.sweep().expired, other.sweep().expired, one.sweep().expired] == [20, 20, 10]
    assert value(dsn, LEASED) == 0


@pytest.mark.parametrize("step", ["expire", "evict", "retain", "leftovers", "repair"])
def test_a_step_that_another_process_is_at_is_left_to_it(
    dsn: str, make_backend: MakeBackend, step: str
) -> None:
    """O-45: the others go on with their other steps, and wait for nobody."""
    backend = make_backend(repair_interval_seconds=0)
    leased, aging, kept, dead, lost = names = [fresh() for _ in range(5)]
    backend.configure(aging, {"ttl_seconds": 60})
    backend.configure(kept, {"retention_enabled": True, "retention_seconds": 60})
    for name in names:
        backend.subscribe(name, "g", m.Subscription())
        backend.push([message(name)])
    backend.pop(m.PopRequest(queue=leased, group="g"))
    backend.delete_queue(dead)
    expire_all(dsn)
    execute(dsn, OLD, f"{LOSE_WAKE_UPS} where partition_id = {number_of(dsn, lost)}")

    def work(report: m.SweepReport) -> dict[str, bool]:
        return {
            "expire": report.expired > 0,
            "evict": report.evicted > 0,
            "retain": report.removed > 0,
            "leftovers": report.cleared > 0,
            "repair": report.repaired > 0,
        }

    with open_transaction(dsn) as other:
        assert other.execute(HOLD_STEP.format(step=step)).fetchone() == (True,)
        first = work(backend.sweep())
    assert [name for name, done in first.items() if not done] == [step]
    then = work(backend.sweep())
    assert [name for name, done in then.items() if done] == [step]


def test_two_processes_that_sweep_together_do_each_thing_once(
    dsn: str, make_backend: MakeBackend
) -> None:
    """O-30, O-45: what both report adds up to what there was, and nothing deadlocks."""
    backends = [make_backend(repair_interval_seconds=0) for _ in range(2)]
    queue, kept = fresh(), fresh()
    backends[0].configure(kept, {"retention_enabled": True, "retention_seconds": 60})
    for name in (queue, kept):
        backends[0].subscribe(name, "g", m.Subscription())
    backends[0].push([message(queue, None, f"p{i}") for i in range(300)])
    backends[0].push([message(kept, None, f"p{i % 10}") for i in range(3_000)])
    for _ in range(300):
        assert backends[0].pop(m.PopRequest(queue=queue, group="g"))
    expire_all(dsn)
    execute(dsn, OLD)
    reports = []
    for _ in range(3):  # whoever loses a step to the other may be the only one left to end it
        reports += together(*(backend.sweep for backend in backends))
    assert sum(report.expired for report in reports) == 300
    assert sum(report.removed for report in reports) == 3_000
    assert [report.repaired for report in reports] == [0] * 6


def test_the_self_check_runs_once_in_its_interval_however_many_processes_sweep(
    dsn: str, make_backend: MakeBackend
) -> None:
    """INV-COMPLETE: its last run is in the database; the interval is the same for all."""
    clock = ManualClock()
    one = make_backend(clock=clock, repair_interval_seconds=600)
    other = make_backend(clock=clock, repair_interval_seconds=600)
    broken_lanes(dsn, one)
    assert [one.sweep().repaired, other.sweep().repaired] == [1, 0]
    execute(dsn, LOSE_WAKE_UPS)
    clock.advance(599)
    assert [one.sweep().repaired, other.sweep().repaired] == [0, 0]
    clock.advance(1)
    assert [other.sweep().repaired, one.sweep().repaired] == [1, 0]


def test_a_self_check_by_a_clock_that_was_put_back_does_not_wait_for_it(
    dsn: str, make_backend: MakeBackend
) -> None:
    """O-56: the database's clock was an hour ahead at the last run."""
    clock = ManualClock()
    backend = make_backend(clock=clock)
    broken_lanes(dsn, backend)
    assert backend.sweep().repaired == 1
    execute(dsn, LOSE_WAKE_UPS, "update queen.upkeep set began_at = began_at + interval '1 hour'")
    assert backend.sweep().repaired == 1


def test_the_self_check_goes_through_the_store_in_chunks(
    dsn: str, make_backend: MakeBackend, monkeypatch: pytest.MonkeyPatch
) -> None:
    """O-45: ten partitions a transaction, and the next sweep goes on where this one stopped."""
    monkeypatch.setattr(postgres_sweep, "ROWS", 10)
    monkeypatch.setattr(postgres_sweep, "MAX_CHUNKS", 2)
    backend = make_backend(repair_interval_seconds=600)
    broken_lanes(dsn, backend, 44)  # and the queue's Default, which has nothing
    counts = [backend.sweep().repaired for _ in range(4)]
    assert sum(counts) == 44
    assert max(counts) <= 20
    assert counts[-1] == 0
    assert repaired(dsn) == 0


def test_what_the_self_check_found_is_on_the_health_page(
    dsn: str, make_backend: MakeBackend
) -> None:
    """INV-COMPLETE: a count that must be 0 is shown, with a sentence when it is not."""
    backend = make_backend(repair_interval_seconds=0)
    assert backend.check()["repaired"] == 0
    broken_lanes(dsn, backend, 2)
    assert backend.sweep().repaired == 2
    facts = make_backend().check()
    assert facts["repaired"] == 2
    assert any("repaired" in warning for warning in facts["warnings"])


def test_retention_of_very_much_is_many_short_deletes_with_other_work_between(
    dsn: str, make_backend: MakeBackend
) -> None:
    """O-45: 8,000 messages go by 1,000; a push that waits is in long before the last is gone."""
    backend = make_backend()
    queue = fresh()
    backend.configure(queue, {"retention_enabled": True, "retention_seconds": 60})
    backend.push([message(queue) for _ in range(8_000)])
    execute(
        dsn,
        OLD,
        # How many each transaction removes, and what it sees of the push meanwhile.
        "create table public.bites (transaction xid8, removed bigint, seen bigint)",
        "create function public.bite() returns trigger language plpgsql as $$ begin"
        " insert into public.bites select pg_current_xact_id(), (select count(*) from gone),"
        " (select count(*) from queen.messages where transaction_id is not null);"
        " perform pg_sleep(0.1); return null; end $$",
        "create trigger bite after delete on queen.messages referencing old table as gone"
        " for each statement execute function public.bite()",
    )
    sweep = Call(backend.sweep)
    while value(dsn, "select count(*) from queen.messages") == 8_000:
        assert sweep.running
    backend.push([message(queue, "while it runs")])
    # A partition that a push holds is left to the next sweep, so it may take several.
    removed = sweep.result().removed
    while gone := backend.sweep().removed:
        removed += gone
    assert removed == 8_000
    bites = "select {} from public.bites where removed > 0"
    assert value(dsn, bites.format("max(removed)")) == 1_000
    assert value(dsn, bites.format("count(distinct transaction)")) == 8
    assert value(dsn, bites.format("max(seen)")) == 1
    assert [x.transaction_id for x in drain(backend, queue, "g")] == ["while it runs"]


def test_retention_that_is_killed_keeps_what_it_did_and_is_gone_on_with_at_once(
    dsn: str, make_backend: MakeBackend, caplog: pytest.LogCaptureFixture
) -> None:
    """O-45: its session ends in the middle; the failed step is in the log, not recorded as done."""
    backend = make_backend(lock_timeout_milliseconds=60_000)
    queue = fresh()
    backend.configure(queue, {"retention_enabled": True, "retention_seconds": 60})
    backend.push([message(queue) for _ in range(3_000)])
    execute(dsn, OLD)
    with open_transaction(dsn) as holder:
        holder.execute("select from queen.messages where seq = 1500 for update")
        with caplog.at_level(logging.CRITICAL, "queen_sync"):
            sweep = Call(backend.sweep)
            [pid] = until_blocked(dsn)
            execute(dsn, f"select pg_terminate_backend({pid})")
            assert sweep.result().removed == 1_000
    assert value(dsn, "select min(seq) from queen.messages") == 1_001
    assert backend.sweep().removed == 2_000
    assert value(dsn, "select sum(count) from queen.removals") == 3_000


def test_a_sweep_beside_pushes_and_acks_makes_none_of_them_fail(
    dsn: str, make_backend: MakeBackend
) -> None:
    """O-30, O-45: retention, expiry and deletion run while the queue is used."""
    backend, sweeper = make_backend(), make_backend(repair_interval_seconds=0)
    queue = fresh()
    backend.configure(
        queue, {"retention_enabled": True, "completed_retention_seconds": 1, "lease_seconds": 1}
    )
    backend.subscribe(queue, "g", m.Subscription())
    deleted = [fresh("dead") for _ in range(10)]

    def produce() -> None:
        for i in range(60):
            backend.push([message(queue, None, f"p{j}") for j in range(i % 5 + 1)])
            if i % 6 == 0:
                backend.push([message(deleted[i // 6])])
                backend.delete_queue(deleted[i // 6])

    def consume() -> int:
        taken = 0
        request = m.PopRequest(queue=queue, group="g", max_messages=5)
        for _ in range(60):
            claim = backend.pop(request)
            if claim:
                taken += sum(answer.ok for answer in backend.ack(acks(claim)))
        return taken

    def sweep() -> int:
        return sum(sweeper.sweep().repaired for _ in range(20))

    _, first, second, mended = together(produce, consume, consume, sweep)
    assert mended == 0
    assert repaired(dsn) == 0
    assert first + second + len(drain(backend, queue, "g")) == sum(i % 5 + 1 for i in range(60))
    for _ in range(20):
        if not sweeper.sweep().cleared:
            break
    assert value(dsn, "select count(*) from queen.queues where deleted_at is not null") == 0


def test_a_sweep_waits_for_no_partition_that_a_push_holds(
    dsn: str, make_backend: MakeBackend
) -> None:
    """O-30: the self check tries the partition; what a push has in hand is no fault."""
    backend = make_backend(repair_interval_seconds=0)
    queue = fresh()
    backend.subscribe(queue, "g", m.Subscription())
    backend.push([message(queue)])
    execute(dsn, LOSE_WAKE_UPS)
    with open_transaction(dsn) as pusher:
        push_in(pusher, queue)
        assert Call(backend.sweep).result().repaired == 0
    assert repaired(dsn) == 0  # that push has woken the partition again
    assert len(drain(backend, queue, "g")) == 2
