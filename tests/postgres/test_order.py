"""Seq order is commit order: nothing that commits late is passed over."""

from __future__ import annotations

import random
from datetime import timedelta

from queen_sync import model as m
from queen_sync.backends.postgres import PostgresBackend
from queen_sync.clock import ManualClock
from tests.postgres.conftest import MakeBackend
from tests.postgres.sessions import (
    HOLD,
    HOLD_BACK,
    Call,
    acks,
    connect,
    delay_commits,
    drain,
    execute,
    fresh,
    message,
    repaired,
    together,
    until_blocked,
)


def test_a_push_that_commits_late_is_never_skipped(dsn: str, backend: PostgresBackend) -> None:
    """O-01, INV-ORDER: what was pushed beside it waits, and comes after it."""
    queue = fresh()
    backend.configure(queue)
    execute(dsn, HOLD_BACK)
    with connect(dsn) as holder:
        holder.execute("select pg_advisory_lock(%s)", [HOLD])
        slow = Call(lambda: backend.push([message(queue, "slow")]))
        until_blocked(dsn, 1)
        fast = Call(lambda: backend.push([message(queue, "fast")]))
        until_blocked(dsn, 2)
        assert not backend.pop(m.PopRequest(queue=queue, max_messages=10))
        other_lane = backend.push([message(queue, "other", "lane")])
        assert not other_lane[0].duplicate  # O-04: no other lane waits
    [first], [second] = slow.result(), fast.result()
    assert (first.seq, second.seq) == (1, 2)
    lanes = drain(backend, queue, m.QUEUE_MODE)
    taken = [x.transaction_id for x in lanes if x.partition == m.DEFAULT_PARTITION]
    assert taken == ["slow", "fast"]


def test_a_consumer_beside_many_late_producers_of_one_partition_sees_each_seq_once(
    dsn: str, backend: PostgresBackend
) -> None:
    """O-01, INV-ORDER: gapless and in order while it is being written."""
    queue = fresh()
    backend.subscribe(queue, "g", m.Subscription())
    backend.configure(queue)
    delay_commits(dsn)
    total = 6 * 30

    def produce(number: int) -> None:
        dice = random.Random(number)
        for count in range(30):
            caller_named = dice.random() < 0.5
            item = message(queue, f"{number}-{count}" if caller_named else None)
            backend.push([item])

    def consume() -> list[m.Message]:
        taken: list[m.Message] = []
        while len(taken) < total:
            claim = backend.pop(m.PopRequest(queue=queue, group="g", max_messages=7))
            if claim:
                backend.ack(acks(claim))
                taken.extend(claim.messages)
        return taken

    taken = together(consume, *(lambda n=n: produce(n) for n in range(6)))[0]
    assert [x.seq for x in taken] == list(range(1, total + 1))
    created = [x.created_us for x in taken]
    assert created == sorted(created)
    assert repaired(dsn) == 0


def test_instants_a_microsecond_apart_keep_order_and_pages(make_backend: MakeBackend) -> None:
    """O-02: T, T and T + 1 microsecond; and one of ten microseconds, whose text is longer."""
    clock = ManualClock()
    clock.advance(timedelta(microseconds=9).total_seconds())
    backend = make_backend(clock=clock)
    queue = fresh()
    names = ["first", "second", "third", "fourth"]
    for name, step in zip(names, (0, 0, 1, 9), strict=True):
        clock.advance(timedelta(microseconds=step).total_seconds())
        backend.push([message(queue, name)])
    for name in names:
        claim = backend.pop(m.PopRequest(queue=queue))
        assert [x.transaction_id for x in claim.messages] == [name]
        backend.ack(acks(claim, "dlq"))
    assert not backend.pop(m.PopRequest(queue=queue))
    pages = [
        backend.dead_letters(m.DeadLetterFilter(queue=queue, limit=1, offset=offset)).items
        for offset in range(5)
    ]
    assert [[x.transaction_id for x in page] for page in pages] == [
        ["fourth"], ["third"], ["second"], ["first"], [],
    ]  # fmt: skip
