"""Messages and partitions that are taken out by hand while others work: nothing is miscounted."""

from __future__ import annotations

import itertools
import random
import time
from collections import Counter
from collections.abc import Callable
from typing import Any

from queen_sync import inspection as i, model as m
from queen_sync.backends.postgres import PostgresBackend
from queen_sync.errors import MessageNotFound, QueueFull
from queen_sync.payloads import JsonText
from tests.postgres.sessions import (
    SESSIONS,
    Call,
    acks,
    deadlocks,
    delay_commits,
    drain,
    fresh,
    message,
    number_of,
    open_transaction,
    repaired,
    together,
    until,
    until_blocked,
    value,
)

STORED = (
    "select count(*) from queen.messages y join queen.partitions p on p.id = y.partition_id"
    " join queen.queues q on q.id = p.queue_id and q.deleted_at is null"
    " where q.name = %s and p.name = %s"
)
DELETE = "select queen.delete_message(%s, %s, null, null, null)"
REGISTER = "select queen.register_partitions(%s, 0, 1000, null)"
BEGIN = "select group_id from queen.begin_group(%s, %s, 'all', null, false, null)"
PARTITIONS = [f"p{n}" for n in range(4)]
SECONDS = 3.0


class Workers:
    """What is done to two queues at once, for a while; each call is one thread's work."""

    def __init__(self, backend: PostgresBackend) -> None:
        self.backend = backend
        self.queues = [fresh("plain"), fresh("limited")]
        backend.configure(
            self.queues[0],
            {"retry_limit": 1, "lease_seconds": 1, "retry_delay_milliseconds": 200},
        )
        backend.configure(self.queues[1], {"retry_limit": 1, "max_queue_size": 300})
        for queue in self.queues:
            for group in "gh":
                backend.subscribe(queue, group, m.Subscription())
        self.ends = time.monotonic() + SECONDS
        self.done: Counter[str] = Counter()

    def push(self, number: int) -> None:
        dice = random.Random(number)
        while time.monotonic() < self.ends:
            queue = dice.choice(self.queues)
            names = [f"t{dice.randrange(2_000)}" for _ in range(dice.randint(1, 8))]
            items = [message(queue, name, dice.choice(PARTITIONS)) for name in names]
            try:
                self.backend.push(items)
                self.done["pushed"] += 1
            except QueueFull:
                time.sleep(0.005)

    def consume(self, number: int) -> None:
        dice = random.Random(number)
        while time.monotonic() < self.ends:
            claim = self.backend.pop(
                m.PopRequest(
                    queue=dice.choice(self.queues),
                    group=dice.choice("gh"),
                    max_messages=dice.randint(1, 6),
                    max_partitions=dice.randint(1, 3),
                )
            )
            outcome: m.Outcome = dice.choice(["completed", "completed", "failed", "dlq", "retry"])
            if claim and dice.random() < 0.9:
                self.backend.ack(acks(claim, outcome))
                self.done[outcome] += 1

    def clean(self, number: int) -> None:
        dice = random.Random(number)
        for turn in itertools.count():
            if time.monotonic() > self.ends:
                return
            queue = self.queues[turn % 2]
            status: i.MessageStatus | None = dice.choice([None, None, "failed", "pending"])
            page = self.backend.messages(i.MessageFilter(queue=queue, status=status, limit=50))
            for found in dice.sample(page.items, min(5, len(page.items))):
                place = found.partition_id, found.id
                if dice.random() < 0.2 and self.backend.message(*place):
                    self.done["buried"] += self._by_hand(self.backend.bury, *place)
                elif status == "failed":
                    self.done["hurried"] += self._by_hand(self.backend.retry_now, *place)
                else:
                    self.done["deleted"] += self.backend.delete_message(*place)
            if turn % 8 < 2:
                self.done["cleared"] += self.backend.clear(queue)
            elif turn % 8 < 6:
                gone = self.backend.delete_partition(queue, dice.choice(PARTITIONS))
                self.done["partitions"] += gone

    def _by_hand(self, call: Callable[[str, str], int], partition_id: str, name: str) -> int:
        try:
            return call(partition_id, name)
        except MessageNotFound:
            return 0  # another cleaner was faster

    def move(self) -> None:
        dice = random.Random(0)
        while time.monotonic() < self.ends:
            queue = dice.choice(self.queues)
            group = dice.choice("ghxy")
            self.backend.seek(m.Seek(queue=queue, group=group, to=dice.choice(["start", "end"])))
            if group in "xy":
                self.backend.delete_group(group, queue=queue)
                self.backend.subscribe(queue, group, m.Subscription())
            self.backend.redrive(m.DeadLetterFilter(queue=queue, group=group))
            self.backend.sweep()
            self.done["moved"] += 1
            time.sleep(0.02)


def test_counts_stay_exact_while_everything_happens_at_once(
    dsn: str, backend: PostgresBackend
) -> None:
    """INV-COUNTERS, O-30, O-54, C-16: no deadlock, no ghost, no lost wake-up, no wrong number."""
    delay_commits(dsn)
    workers = Workers(backend)
    together(
        *(lambda n=n: workers.push(n) for n in range(3)),
        *(lambda n=n: workers.consume(n) for n in range(3)),
        *(lambda n=n: workers.clean(n) for n in range(2)),
        workers.move,
    )
    assert all(workers.done[what] for what in ("pushed", "deleted", "cleared", "partitions"))
    time.sleep(1.1)  # the plain queue's last leases run out; those that die of it do so here
    backend.sweep()
    for queue in workers.queues:
        lags: Counter[str] = Counter()
        for state in backend.partitions(queue):
            assert state.stored_count == value(dsn, STORED, [queue, state.name])
            assert 0 <= state.waiting_count <= state.stored_count <= state.pushed_count
            for group in state.groups:
                lags[group.name] += group.lag
        assert lags == Counter({found.name: found.lag for found in backend.groups(queue)})
        if queue == workers.queues[0]:  # the other's last leases live on
            drained = Counter({name: len(drain(backend, queue, name)) for name in lags})
            assert drained == lags
    backend.close()
    until(lambda: value(dsn, SESSIONS) == 0)
    assert deadlocks(dsn) == 0
    assert repaired(dsn) == 0


def test_a_group_that_registers_meanwhile_does_not_wait_for_what_is_deleted(
    dsn: str, backend: PostgresBackend
) -> None:
    """INV-COUNTERS, C-07: its registrar waits for the deletion, and sees the hole."""
    queue = fresh()
    backend.push([message(queue, name) for name in "abc"])
    group = value(dsn, BEGIN, [queue, "g"])
    with open_transaction(dsn) as session:
        session.execute(DELETE, [number_of(dsn, queue), "b"])
        registering = Call(lambda: value(dsn, REGISTER, [group]))
        until_blocked(dsn)
    assert registering.result()
    backend.subscribe(queue, "g", m.Subscription())
    assert [found.lag for found in backend.groups(queue)] == [2]
    assert [x.transaction_id for x in drain(backend, queue, "g")] == ["a", "c"]


def test_a_deletion_waits_for_a_registration_that_it_cannot_see(
    dsn: str, backend: PostgresBackend
) -> None:
    """INV-COUNTERS, C-07: a lease row that is not committed yet would miss the hole."""
    queue = fresh()
    place = backend.push([message(queue, name) for name in "abc"])[1]
    group = value(dsn, BEGIN, [queue, "g"])
    with open_transaction(dsn) as session:
        session.execute(REGISTER, [group])
        deleting = Call(lambda: backend.delete_message(place.partition_id, "b"))
        until_blocked(dsn)
    assert deleting.result()
    backend.subscribe(queue, "g", m.Subscription())
    assert [found.lag for found in backend.groups(queue)] == [2]


def test_a_push_that_waits_for_a_deleted_partition_makes_a_new_one(
    dsn: str, backend: PostgresBackend
) -> None:
    """INV-NO-LOSS, C-16: named or not, limited or not, it is stored where groups look."""
    for options in ({}, {"max_queue_size": 9}):
        queue = fresh()
        backend.configure(queue, options)
        backend.subscribe(queue, "g", m.Subscription())
        old = backend.push([message(queue, "a", "p")])[0]
        with open_transaction(dsn) as session:
            session.execute("select queen.delete_partition(%s, 'p', null)", [queue])
            pushes = [
                Call(lambda queue=queue, name=name: backend.push([message(queue, name, "p")]))
                for name in ("a", "b")
            ]
            until_blocked(dsn, 2)
        receipts = [push.result()[0] for push in pushes]
        assert {receipt.status for receipt in receipts} == {"queued"}
        assert old.partition_id not in {receipt.partition_id for receipt in receipts}
        assert sorted(x.transaction_id for x in drain(backend, queue, "g")) == ["a", "b"]


def test_a_note_that_is_being_filed_goes_with_its_message(
    dsn: str, backend: PostgresBackend
) -> None:
    """INV-INTEGRITY: the deletion waits for it and takes it along."""
    queue = fresh()
    place = backend.push([message(queue, "a")])[0]
    with open_transaction(dsn) as session:
        session.execute(
            "select queen.add_trace(%s, 'a', null, null, null, array['n'], 'info', '1', null)",
            [number_of(dsn, queue)],
        )
        deleting = Call(lambda: backend.delete_message(place.partition_id, "a"))
        until_blocked(dsn)
    assert deleting.result()
    assert value(dsn, "select count(*) from queen.traces") == 0
    assert value(dsn, "select count(*) from queen.trace_names") == 0


def test_the_sweep_removes_what_a_deleted_partition_held(
    dsn: str, backend: PostgresBackend
) -> None:
    """INV-INTEGRITY, O-44: messages, lease rows, and the tombstone that it moved to."""
    queue = fresh()
    place = backend.push([message(queue, name, "p") for name in "abc"])[0]
    backend.subscribe(queue, "g", m.Subscription())
    backend.add_trace(
        i.Trace(partition_id=place.partition_id, transaction_id="a", data=JsonText.of(1))
    )
    assert backend.delete_partition(queue, "p")
    backend.sweep()
    counts: dict[str, Any] = {
        "messages": 0,
        "traces": 0,
        "partitions": 1,
        "partition_leases": 1,
        "queues": 1,
    }
    for table, count in counts.items():
        assert value(dsn, f"select count(*) from queen.{table}") == count, table


def test_many_holes_are_counted_out(backend: PostgresBackend) -> None:
    """INV-COUNTERS: every twentieth message deleted, from behind, before and behind a position."""
    queue, count = fresh(), 3_000
    backend.subscribe(queue, "g", m.Subscription())
    receipts = backend.push([message(queue, f"t{n}") for n in range(count)])
    for receipt in receipts[-2:1:-20]:
        assert backend.delete_message(receipt.partition_id, receipt.transaction_id)
    gone = len(receipts[-2:1:-20])
    state = backend.partitions(queue)[0]
    assert (state.stored_count, state.waiting_count) == (count - gone, count - gone)
    assert len(drain(backend, queue, "g")) == count - gone
