"""J, first half, with G09 and I06: many threads at one small thing, with an exact answer."""

from __future__ import annotations

import itertools
import math
import time
from collections import Counter
from collections.abc import Callable, Iterator
from functools import partial
from typing import ClassVar

import pytest

from queen_sync import model as m
from queen_sync.broker import Broker
from queen_sync.clock import Clock, SystemClock
from queen_sync.config import Settings
from queen_sync.conformance.base import STRESS_SECONDS, Cases, needs
from queen_sync.conformance.workloads import together

WaitingPop = Callable[[m.PopRequest, float], m.Claim]

THREADS = 16
MAX_ROUNDS = 1000
MAX_WAIT_SECONDS = 20.0


class ConcurrencyCases(Cases):
    waiters: ClassVar[int] = 50
    """How many pops wait at once; a server must have a thread for each."""
    wake_seconds: ClassVar[float] = 1.0
    """How soon after a push 99 of 100 waiting pops are answered."""

    @pytest.fixture
    def clock(self) -> Clock:
        """Return the system's clock: threads run in real time."""
        return SystemClock()

    @pytest.fixture
    def waiting_pop(self) -> Iterator[WaitingPop]:
        """Give a pop that waits: the target's own, as a server has, or a broker's before it."""
        own: WaitingPop | None = getattr(self.target, "pop_waiting", None)
        if own is not None:
            yield own
            return
        broker = Broker(self.target, Settings(max_concurrent_polls=10 * self.waiters))
        yield broker.pop
        broker.close()

    def rounds(self, seconds: float = STRESS_SECONDS / 4) -> Iterator[int]:
        """Yield numbers until the time is over, at least one."""
        until = time.monotonic() + seconds
        for number in range(MAX_ROUNDS):
            yield number
            if time.monotonic() > until:
                return

    def test_j01_of_many_pops_one_gets_the_message(self) -> None:
        """16 threads, one message, one pop each: one winner, time and again.

        INV-CLAIM, C-04, PLD-1, SQ-7, QA-8, O-03.
        """
        for _ in self.rounds():
            queue = self.name()
            self.push(queue, 1)
            claims = together(*[partial(self.pop, queue)] * THREADS)
            assert sum(bool(claim) for claim in claims) == 1

    def test_j03_of_many_pushes_of_one_id_one_is_queued(self) -> None:
        """16 threads, first touch of the queue included: the others name that message.

        C-16, INV-DEDUP, PL-3.
        """
        for number in self.rounds():
            queue = self.name()
            if number % 2:
                self.push(queue, "first")
            pushes = [partial(self.push, queue, n, ids=["x"]) for n in range(THREADS)]
            receipts = [receipt for (receipt,) in together(*pushes)]
            assert Counter(r.status for r in receipts) == {"queued": 1, "duplicate": THREADS - 1}
            assert len({(r.id, r.seq) for r in receipts}) == 1

    def test_j08_pushes_in_flight_hide_nothing_from_a_pop(self) -> None:
        """With a backlog, no pop comes back empty while others push, nor for another group's lease.

        INV-LIVENESS, INV-FANOUT, PLD-6, O-04.
        """
        queue, one, two = self.name(), self.name("one"), self.name("two")
        backlog = 300
        self.push(queue, *range(backlog))
        until = time.monotonic() + STRESS_SECONDS / 2

        def produce() -> int:
            for number in itertools.count():
                self.push(queue, f"later {number}")
                if time.monotonic() > until:
                    return 0
            return 0

        def consume(group: str) -> int:
            empty = 0
            for _ in range(backlog):
                claim = self.pop(queue, group=group)
                empty += not claim
                self.settle(claim)
                if time.monotonic() > until:
                    break
            return empty

        jobs: list[Callable[[], int]] = [partial(consume, one), partial(consume, two)]
        jobs += [produce] * 4
        assert together(*jobs) == [0] * len(jobs)

    @needs("sub_new")
    def test_g09_two_first_pops_at_once_agree_on_one_beginning(self) -> None:
        """One of `all` and `new` wins, for both and for all partitions.

        C-07, INV-SUBSCRIBE, O-37, QB-2.
        """
        for _ in self.rounds():
            queue, group = self.name(), self.name("group")
            for partition in ("a", "b"):
                self.push(queue, "old", partition=partition)
            asked = (m.Subscription(mode="all"), m.Subscription(mode="new"))
            first, second = together(
                *(partial(self.pop, queue, group=group, subscription=each) for each in asked)
            )
            assert [first.subscription_ignored, second.subscription_ignored].count(True) == 1
            for partition in ("a", "b"):
                self.push(queue, "new", partition=partition)
            for claim in (first, second):
                self.settle(claim)
            seen = [x.value for claim in (first, second) for x in claim.messages]
            seen += self.drain(queue, group=group)
            olds = 0 if first.subscription_ignored else 2
            assert Counter(seen) == Counter({"new": 2} | ({"old": olds} if olds else {}))

    @needs("txn")
    def test_i06_transactions_over_the_same_partitions_do_not_fail_each_other(self) -> None:
        """In opposite order, from many threads: no deadlock reaches the caller.

        C-15, INV-LIVENESS, QA-3.
        """
        queue = self.name()
        rounds = 50

        def run(order: tuple[str, str]) -> int:
            for n in range(rounds):
                pushes = [m.NewMessage.of(queue, n, partition=partition) for partition in order]
                self.target.transact(m.Transaction(operations=pushes))
            return rounds

        orders = (("a", "b"), ("b", "a")) * 2
        assert together(*(partial(run, order) for order in orders)) == [rounds] * 4
        for partition in ("a", "b"):
            assert len(self.drain(queue, partition=partition)) == 4 * rounds

    def test_j10_waiting_pops_are_answered_when_messages_come(
        self, waiting_pop: WaitingPop
    ) -> None:
        """As many pushes as waiters: each is served once, soon, and none waits on.

        INV-LIVENESS, PL-8, PL-14, O-40.
        """
        queue = self.queue(retry_limit=3)
        pushed: dict[int, float] = {}

        def wait() -> tuple[int, float]:
            claim = waiting_pop(m.PopRequest(queue=queue), MAX_WAIT_SECONDS)
            answered = time.monotonic()
            (message,) = claim.messages
            self.settle(claim)
            return int(message.value), answered

        def push() -> tuple[int, float]:
            time.sleep(0.5)
            for n in range(self.waiters):
                pushed[n] = time.monotonic()
                self.push(queue, n, partition=f"p{n}")
            return -1, 0.0

        *served, _ = together(*[wait] * self.waiters, push)
        assert sorted(n for n, _ in served) == list(range(self.waiters))
        waits = sorted(answered - pushed[n] for n, answered in served)
        slowest = waits[math.ceil(0.99 * len(waits)) - 1]
        assert slowest < self.wake_seconds

    def test_j10_a_waiting_pop_ends_with_its_time(self, waiting_pop: WaitingPop) -> None:
        """Nothing came: an empty answer, neither early nor late. INV-LIVENESS, PL-2."""
        queue = self.queue(retry_limit=3)
        began = time.monotonic()
        assert not waiting_pop(m.PopRequest(queue=queue), 1.0)
        assert 0.9 <= time.monotonic() - began < 1.0 + self.wake_seconds

    @needs("sub_new")
    def test_j10_what_is_pushed_while_a_first_pop_waits_is_delivered(
        self, waiting_pop: WaitingPop
    ) -> None:
        """A waiting `new` group has begun when its pop arrived. C-07, INV-SUBSCRIBE, O-37."""
        queue, group = self.name(), self.name("group")
        self.push(queue, "old")
        wanted = m.PopRequest(queue=queue, group=group, subscription=m.Subscription(mode="new"))

        def push() -> m.Claim:
            time.sleep(0.5)
            self.push(queue, "new")
            return m.Claim()

        claim, _ = together(partial(waiting_pop, wanted, MAX_WAIT_SECONDS), push)
        assert [message.value for message in claim.messages] == ["new"]
