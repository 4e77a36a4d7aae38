"""`delete from queen.queues` in plain SQL, as administrators and the official test suites do it."""

from __future__ import annotations

import pytest

from queen_sync import inspection as i, model as m
from queen_sync.backends.postgres import PostgresBackend
from queen_sync.errors import QueenError
from tests.postgres.conftest import MakeBackend
from tests.postgres.sessions import (
    Call,
    acks,
    connect,
    deadlocks,
    drain,
    execute,
    fresh,
    message,
    open_transaction,
    push_in,
    repaired,
    together,
    until_blocked,
    value,
)

DELETE = "delete from queen.queues where name like 'test-%'"
FILLED = (
    "queues", "partitions", "messages", "consumer_groups", "partition_leases", "retries",
    "dead_letters", "subscriptions", "claims", "removals", "position_marks", "traces",
    "trace_names",
)  # fmt: skip


def count(dsn: str, table: str) -> int:
    return int(value(dsn, f"select count(*) from queen.{table}"))


def sweep_all(backend: PostgresBackend) -> None:
    for _ in range(50):
        if not backend.sweep().cleared:
            return


def use(backend: PostgresBackend, queue: str) -> None:
    """Leave a row of the queue in every table there is."""
    backend.configure(
        queue,
        {"retention_enabled": True, "completed_retention_seconds": 3600, "ttl_seconds": 3600},
    )
    backend.push([message(queue, f"m{n}", f"p{n}") for n in range(4)])
    claim = backend.pop(m.PopRequest(queue=queue, max_messages=4, max_partitions=4))
    assert len(claim.messages) == 4
    done, failed, dead, _ = acks(claim)
    backend.ack([done, *(m.Ack(**_fields(x, o)) for x, o in ((failed, "failed"), (dead, "dlq")))])
    backend.add_trace(
        i.Trace(
            partition_id=str(failed.partition_id),
            transaction_id=failed.transaction_id,
            names=("a trace",),
        )
    )


def _fields(ack: m.Ack, outcome: m.Outcome) -> dict[str, object]:
    return {
        "transaction_id": ack.transaction_id,
        "partition_id": ack.partition_id,
        "group": ack.group,
        "lease_id": ack.lease_id,
        "outcome": outcome,
    }


def test_a_plain_delete_of_queues_removes_all_that_they_hold_and_nothing_else(
    dsn: str, backend: PostgresBackend
) -> None:
    """C-16: the names are free at once; the sweep empties every table of what they held."""
    kept = fresh("kept")
    for queue in ("test-a", "test-b", kept):
        use(backend, queue)
    backend.sweep()
    backend.subscribe("test-missing", "g", m.Subscription())
    execute(
        dsn,
        "insert into queen.removals (queue_id, partition_name, kind, count, removed_at)"
        " select q.id, 'p0', 'evicted', 1, now() from queen.queues q",
    )
    before = {table: count(dsn, table) for table in FILLED}
    assert min(before.values()) > 0
    with connect(dsn) as session:
        assert session.execute(DELETE).rowcount == 2  # as many as it named
    assert [queue.name for queue in backend.queues()] == [kept]
    assert backend.queue("test-a") is None
    assert backend.dead_letters(m.DeadLetterFilter(queue="test-a")).items == []
    assert not backend.pop(m.PopRequest(queue="test-a", group="another"))
    sweep_all(backend)
    after = {table: count(dsn, table) for table in FILLED}
    shared = {"subscriptions", "claims"}
    assert {t: n for t, n in after.items() if t not in shared} == {
        t: n // 3 for t, n in before.items() if t not in shared
    }
    assert after["claims"] == 1
    assert [letter.queue for letter in backend.dead_letters(m.DeadLetterFilter()).items] == [kept]


def test_what_a_deleted_queue_held_is_refused_and_its_successor_is_empty(
    dsn: str, backend: PostgresBackend
) -> None:
    """C-16: leases, groups and transaction ids of the old one mean nothing in the new one."""
    queue = "test-again"
    backend.push([message(queue, "name")])
    claim = backend.pop(m.PopRequest(queue=queue, group="g"))
    execute(dsn, DELETE)
    [receipt] = backend.push([message(queue, "name")])
    assert not receipt.duplicate
    assert receipt.seq == 1
    assert not any(answer.ok for answer in backend.ack(acks(claim)))
    sweep_all(backend)
    assert len(drain(backend, queue, "g")) == 1
    assert repaired(dsn) == 0


def test_a_push_in_flight_ends_in_the_old_queue_and_never_in_its_successor(
    dsn: str, backend: PostgresBackend
) -> None:
    """C-16: the delete does not wait for it, and what it stores goes with the old queue."""
    queue = "test-flight"
    backend.subscribe(queue, "g", m.Subscription())
    backend.push([message(queue, "before")])
    with open_transaction(dsn) as pusher:
        push_in(pusher, queue, value="in flight")
        Call(lambda: execute(dsn, DELETE)).result()
        backend.push([message(queue, "after")])
    assert [x.transaction_id for x in drain(backend, queue, "g")] == ["after"]
    sweep_all(backend)
    assert [(x.queue, x.transaction_id) for x in backend.messages(i.MessageFilter()).items] == [
        (queue, "after")
    ]
    assert count(dsn, "messages") == 1


@pytest.mark.parametrize("limit", [0, 1_000])
def test_a_delete_that_is_not_committed_yet_holds_up_no_push_of_an_unlimited_queue(
    dsn: str, backend: PostgresBackend, *, limit: int
) -> None:
    """C-16, O-30: only one that takes the queue's own row waits, and then finds it gone."""
    queue = "test-open"
    backend.configure(queue, {"max_queue_size": limit})
    backend.push([message(queue, "before")])
    with open_transaction(dsn) as deleter:
        deleter.execute(DELETE)
        push = Call(lambda: backend.push([message(queue, "during")]))
        if limit:
            until_blocked(dsn)
        else:
            assert push.result()[0].seq == 2
    [receipt] = push.result()
    found = [x.transaction_id for x in drain(backend, queue, "g")]
    assert (receipt.seq, found) == ((1, ["during"]) if limit else (2, []))


def test_deletes_between_pushes_pops_and_sweeps_neither_fail_nor_deadlock(
    dsn: str, make_backend: MakeBackend
) -> None:
    """C-16, O-30: what comes out of the last queue of that name was pushed to it."""
    backend, sweeper = make_backend(), make_backend(repair_interval_seconds=0)
    queue = "test-storm"

    def produce(number: int) -> None:
        for n in range(60):
            backend.push([message(queue, None, f"p{(n + k) % 4}") for k in range(2)])
            if n % 5 == number:
                execute(dsn, DELETE)
            if n % 10 == number:
                backend.configure(queue, {"max_queue_size": 100_000 * (n % 20 == number)})

    def consume() -> None:
        for _ in range(60):
            claim = backend.pop(m.PopRequest(queue=queue, group="g", max_messages=5))
            try:
                backend.ack(acks(claim))
            except QueenError as error:
                raise AssertionError("an ack is answered item by item") from error

    def sweep() -> None:
        for _ in range(15):
            assert sweeper.sweep().repaired == 0

    together(lambda: produce(1), lambda: produce(2), consume, consume, sweep)
    execute(dsn, DELETE)
    sweep_all(sweeper)
    assert {table: count(dsn, table) for table in FILLED if count(dsn, table)} == {}
    backend.close()
    sweeper.close()
    assert deadlocks(dsn) == 0
