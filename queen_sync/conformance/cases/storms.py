"""J, third part: load beside everything else that is done to a store, and load of great width."""

from __future__ import annotations

import random
import time
from collections import Counter
from collections.abc import Callable, Iterator
from functools import partial

from queen_sync import inspection as i, model as m
from queen_sync.conformance.base import STRESS_SECONDS, acks_of, needs
from queen_sync.conformance.cases.load import LoadCases
from queen_sync.conformance.workloads import PAUSE_SECONDS, Workload, together
from queen_sync.errors import Conflict, NotFound

WIDEST = 10_000
"""How many partitions a long run has; a short one has as many as its time allows."""
WIDTH_A_SECOND = 250
WIDE_SECONDS = 120.0
"""How long so many partitions may take; a machine that does other things needs some of it."""


class StormCases(LoadCases):
    @needs("dlq", "extend", "release", "delete")
    def test_j09_a_busy_queue_is_not_disturbed_by_what_is_done_around_it(self) -> None:
        """Queues are configured, cleared, deleted, made again and looked at all the while.

        Whoever works in a queue that vanishes is told so; the busy queue keeps every promise.
        INV-NO-500, INV-NO-LOSS, INV-CLAIM, INV-FIFO, INV-INTEGRITY, C-11, PL-16, QA-8.
        """
        queue = self.queue(lease_seconds=self.lease_seconds, retry_limit=2)
        work = Workload(self.target, queue, lease_seconds=self.lease_seconds, partitions=8)
        until = time.monotonic() + STRESS_SECONDS
        groups = [m.QUEUE_MODE, self.name("group")]
        consumers = [
            partial(work.consume, number, until, group)
            for number, group in enumerate(groups * 3, start=100)
        ]
        doomed = self.name("doomed")
        others = [partial(self.use_doomed, doomed, number, until) for number in range(3)]
        together(
            *(partial(work.produce, number, until) for number in range(4)),
            *consumers,
            *others,
            partial(self.disturb, queue, doomed, until),
        )
        work.drain(groups)
        self.verify(drained=True)

    def use_doomed(self, doomed: str, number: int, until: float) -> None:
        """Push, pop and ack in a queue that others delete; being told so is no failure."""
        dice = random.Random(number)
        while time.monotonic() < until:
            try:
                item = m.NewMessage.of(doomed, number, partition=f"p{dice.randrange(3)}")
                self.aside.push([item])
                claim = self.aside.pop(m.PopRequest(queue=doomed, max_messages=3))
                if claim and dice.random() < 0.8:
                    self.aside.ack(acks_of(claim))
            except (NotFound, Conflict):
                continue

    def disturb(self, busy: str, doomed: str, until: float) -> None:
        """Do in turn whatever the target offers to operators."""
        offered = self.target.capabilities.features
        always: list[Callable[[], object]] = [
            lambda: self.aside.configure(busy, {"retry_limit": 2}),
            lambda: self.aside.configure(doomed, {"lease_seconds": 5}),
            lambda: self.aside.delete_queue(doomed),
            lambda: self.aside.dead_letters(m.DeadLetterFilter(queue=busy)),
        ]
        where_offered: list[tuple[str, Callable[[], object]]] = [
            ("browse", lambda: self.aside.groups(busy)),
            ("browse", self.aside.queues),
            ("stats", lambda: self.aside.partitions(busy)),
            ("stats", self.aside.queue_stats),
            ("messages", lambda: self.aside.messages(i.MessageFilter(queue=busy))),
            ("cleanup", lambda: self.aside.clear(doomed)),
            ("cleanup", lambda: self.aside.delete_partition(doomed, "p1")),
        ]
        acts = always + [act for feature, act in where_offered if feature in offered]
        while time.monotonic() < until:
            for act in acts:
                try:
                    act()
                except NotFound:
                    continue
            time.sleep(PAUSE_SECONDS)

    def test_j13_every_one_of_very_many_partitions_is_served_once(self) -> None:
        """One message in each, 8 consumers: all come, none twice, and it ends.

        INV-LIVENESS, INV-CLAIM, INV-INTEGRITY, PLD-2, PLD-3, O-04.
        """
        width = min(WIDEST, int(WIDTH_A_SECOND * STRESS_SECONDS))
        queue = self.queue(lease_seconds=300)
        for start in range(0, width, 500):
            numbers = range(start, min(width, start + 500))
            self.target.push([m.NewMessage.of(queue, n, partition=f"p{n}") for n in numbers])
        until = time.monotonic() + WIDE_SECONDS
        served: list[int] = []

        def consume() -> None:
            while len(served) < width and time.monotonic() < until:
                claim = self.pop(queue, 4, max_partitions=4)
                served.extend(message.value for message in claim.messages)
                self.settle(claim)

        together(*[consume] * 8)
        assert Counter(served) == Counter(range(width))
        self.verify(drained=False)

    @needs("stats", "dlq", "extend", "release")
    def test_j14_what_is_told_of_a_busy_queue_adds_up_at_every_look(self) -> None:
        """No count falls that cannot fall; at rest everything has become of everything.

        INV-COUNTERS, INV-MONOTONIC-CURSOR, PL-9, PLD-10.
        """
        queue = self.queue(lease_seconds=self.lease_seconds, retry_limit=2)
        work = Workload(self.target, queue, lease_seconds=self.lease_seconds, partitions=6)
        groups = [m.QUEUE_MODE, self.name("group")]
        for group in groups:
            work.pop(group, 1)
        until = time.monotonic() + STRESS_SECONDS
        looks: list[i.PartitionState] = []

        def look() -> None:
            while time.monotonic() < until:
                looks.extend(self.aside.partitions(queue))
                time.sleep(PAUSE_SECONDS)

        together(
            *(partial(work.produce, number, until) for number in range(3)),
            *(
                partial(work.consume, number, until, group)
                for number, group in enumerate(groups * 2, start=100)
            ),
            look,
        )
        self.check_looks(looks)
        work.drain(groups)
        self.verify(drained=True)
        rest = self.aside.partitions(queue)
        stored = sum(receipt.status == "queued" for receipt in self.receipts())
        assert sum(partition.pushed_count for partition in rest) == stored
        assert {lane.lag for partition in rest for lane in partition.groups} == {0}
        dead = sum(lane.dead_count for partition in rest for lane in partition.groups)
        found = self.aside.dead_letters(m.DeadLetterFilter(queue=queue, limit=1))
        assert dead == found.total

    def check_looks(self, looks: list[i.PartitionState]) -> None:
        """Compare every look at a partition with the one before."""
        assert looks
        reached: dict[tuple[str, str], int] = {}
        for look in looks:
            assert 0 <= look.waiting_count <= look.stored_count <= look.pushed_count
            for lane in look.groups:
                assert 0 <= lane.in_flight_count + lane.retrying_count <= lane.lag
                assert lane.lag <= look.pushed_count
                settled = look.pushed_count - lane.lag
                place = look.id, lane.name
                assert settled >= reached.get(place, 0), f"{lane.name} went back in {look.name}"
                reached[place] = settled

    def receipts(self) -> Iterator[m.Receipt]:
        """Yield every receipt of the run."""
        for call in self.history.operations:
            if call.name == "push" and call.answer is not None:
                yield from call.answer
