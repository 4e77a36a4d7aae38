"""A partition that has something is never forgotten, and nobody waits for an open push."""

from __future__ import annotations

import random
import threading
import time

from queen_sync import model as m
from queen_sync.backends.postgres import PostgresBackend
from tests.postgres.sessions import (
    acks,
    delay_commits,
    drain,
    fresh,
    message,
    open_transaction,
    push_in,
    repaired,
    together,
    value,
)


def test_no_wake_up_is_lost_between_pushes_pops_and_acks(
    dsn: str, backend: PostgresBackend
) -> None:
    """INV-COMPLETE, O-15: small claims on two hot partitions, commits late on purpose."""
    queue = fresh()
    groups = ("g1", "g2")
    for group in groups:
        backend.subscribe(queue, group, m.Subscription())
    backend.configure(queue)
    delay_commits(dsn)
    done = threading.Event()
    pushed: list[str] = []
    taken: dict[str, list[str]] = {group: [] for group in groups}

    def produce(number: int) -> None:
        dice = random.Random(number)
        for count in range(90):
            name = f"{number}-{count}"
            backend.push([message(queue, name, f"p{dice.randrange(2)}")])
            pushed.append(name)
            time.sleep(dice.uniform(0, 0.01))

    def consume(group: str) -> None:
        request = m.PopRequest(queue=queue, group=group, max_messages=3)
        while True:
            finished = done.is_set()
            claim = backend.pop(request)
            if claim:
                assert all(answer.ok for answer in backend.ack(acks(claim)))
                taken[group].extend(x.transaction_id for x in claim.messages)
            elif finished and backend.next_ready_in(request) is None:
                return

    def produce_all() -> None:
        together(*(lambda n=n: produce(n) for n in range(3)))
        done.set()

    together(produce_all, *(lambda g=g: consume(g) for g in (*groups, *groups)))
    assert repaired(dsn) == 0
    for group in groups:
        assert sorted(taken[group]) == sorted(pushed)


def test_a_draining_ack_behind_an_open_push_answers_at_once(
    dsn: str, backend: PostgresBackend
) -> None:
    """O-04, O-15: whoever holds a lease row only tries the partition."""
    queue = fresh()
    backend.push([message(queue, "first")])
    claim = backend.pop(m.PopRequest(queue=queue))
    with open_transaction(dsn) as pusher:
        push_in(pusher, queue, value="second")
        began = time.monotonic()
        [answer] = backend.ack(acks(claim))
        assert answer.ok
        assert not backend.pop(m.PopRequest(queue=queue))
        assert time.monotonic() - began < 2  # lock_timeout is 5 s
    assert [x.value for x in drain(backend, queue, m.QUEUE_MODE)] == ["second"]
    assert repaired(dsn) == 0


def test_a_pop_that_finds_nothing_beside_an_open_push_keeps_the_partition_in_sight(
    dsn: str, backend: PostgresBackend
) -> None:
    """INV-COMPLETE: "nothing known" is said only under the partition's share lock."""
    queue = fresh()
    backend.push([message(queue, "first")])
    assert backend.pop(m.PopRequest(queue=queue, auto_ack=True))
    ready = "select count(*) from queen.partition_leases where ready_at is not null"
    assert value(dsn, ready) == 0
    backend.push([message(queue, "second")])
    with open_transaction(dsn) as pusher:
        push_in(pusher, queue, value="third")
        assert backend.pop(m.PopRequest(queue=queue, auto_ack=True))
        assert value(dsn, ready) == 1
    assert [x.value for x in drain(backend, queue, m.QUEUE_MODE)] == ["third"]


def test_a_nack_with_a_delay_is_hinted_since_it_comes_before_the_lease_would_have_ended(
    backend: PostgresBackend,
) -> None:
    """C-02, O-16: who sleeps until the lease runs out must look at the clock again."""
    queue = fresh()
    backend.configure(queue, {"retry_delay_milliseconds": 1_000, "lease_seconds": 300})
    backend.push([message(queue, "bad")])
    claim = backend.pop(m.PopRequest(queue=queue))
    hints: list[frozenset[str] | None] = []
    stop = backend.listen(hints.append)
    backend.ack(acks(claim, "failed"))
    stop()
    assert frozenset({queue}) in hints


def test_a_push_that_read_the_old_delay_does_not_keep_its_message_back(
    dsn: str, backend: PostgresBackend
) -> None:
    """C-11: the options changed between its start and its commit; the sweep looks once more."""
    queue = fresh()
    backend.configure(queue, {"delayed_processing_seconds": 3600})
    backend.subscribe(queue, m.QUEUE_MODE, m.Subscription())
    with open_transaction(dsn) as pusher:
        push_in(pusher, queue)
        backend.configure(queue, {"delayed_processing_seconds": 0})
    assert backend.sweep().repaired == 0
    assert len(drain(backend, queue, m.QUEUE_MODE)) == 1


def test_a_drained_queue_says_that_time_alone_brings_nothing(backend: PostgresBackend) -> None:
    """O-16: a waiting pop then sleeps until it is told, instead of asking again and again."""
    queue = fresh()
    backend.configure(queue, {"lease_seconds": 60}, namespace=queue)
    request = m.PopRequest(queue=queue)
    scope = m.PopRequest(queue="", namespace=queue)
    named = m.PopRequest(queue=queue, partition=m.DEFAULT_PARTITION)
    backend.push([message(queue, "only")])
    assert backend.next_ready_in(request) is None  # not registered: a pop has to come first
    claim = backend.pop(request)
    for asked in (request, scope, named):
        seconds = backend.next_ready_in(asked)
        assert seconds is not None
        assert 50 < seconds <= 60
    backend.ack(acks(claim))
    assert [backend.next_ready_in(asked) for asked in (request, scope, named)] == [None] * 3
