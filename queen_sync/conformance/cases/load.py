"""J, second half, with I05: load whose whole history is recorded and checked afterwards."""

from __future__ import annotations

import itertools
import random
import time
from contextlib import AbstractContextManager, nullcontext, suppress
from functools import partial
from typing import ClassVar

import pytest

from queen_sync import model as m
from queen_sync.conformance.base import STRESS_SECONDS, Cases, acks_of, needs
from queen_sync.conformance.checkers import violations
from queen_sync.conformance.workloads import PAUSE_SECONDS, Pipeline, Workload, together
from queen_sync.errors import LeaseLost, NotSupported, QueueFull

SHOWN_VIOLATIONS = 3
ENDLESS_RETRIES = 10_000
TAIL_BATCHES = 20
SHORT_PAUSE_SECONDS = 0.001
SETTLE_SECONDS = 60.0
LATEST_SECONDS = 20.0
"""How much longer a busy machine may take to get to the point."""


class LoadCases(Cases):
    lease_seconds: ClassVar[int] = 1

    @pytest.fixture
    def delayed_commits(self) -> AbstractContextManager[None]:
        """Give a context in which commits take their time; a target that has none, runs plainly."""
        return nullcontext()

    def verify(self, *, drained: bool) -> None:
        """Check the recorded history against every rule, and publish it where that is asked."""
        self.publish(drained=drained)
        found = violations(self.history.operations, drained=drained)
        shown = "\n".join(str(violation) for violation in found[:SHOWN_VIOLATIONS])
        assert not found, f"{len(found)} violations\n{shown}"

    def codes(self) -> set[str | None]:
        """Return how acks were answered: None for one that was accepted.

        A run in which nothing went wrong has proved nothing.
        """
        acks = (call for call in self.history.operations if call.name == "ack" and call.answer)
        return {answer.code for call in acks for answer in call.answer}

    @needs("dlq", "extend", "release")
    def test_j02_a_busy_queue_keeps_every_promise(self) -> None:
        """8 producers, 8 consumers for each of 3 groups, 20 partitions; crashes, zombies, poison.

        INV-INTEGRITY, INV-NO-LOSS, INV-DEDUP, INV-ORDER, INV-FIFO, INV-CLAIM, INV-FENCE,
        INV-DURABLE-ACK, INV-RETRY, INV-DLQ, INV-FANOUT, PL-16, QA-8, QB-1, O-03, O-05, O-10.
        """
        queue = self.queue(lease_seconds=self.lease_seconds, retry_limit=2)
        work = Workload(self.target, queue, lease_seconds=self.lease_seconds, partitions=20)
        groups = [m.QUEUE_MODE, self.name("one"), self.name("two")]
        until = time.monotonic() + STRESS_SECONDS
        consumers = [
            partial(work.consume, number, until, group)
            for number, group in enumerate(groups * 8, start=100)
        ]
        together(*(partial(work.produce, number, until) for number in range(8)), *consumers)
        work.drain(groups)
        self.verify(drained=True)
        assert {None, LeaseLost.code} <= self.codes()

    @needs("dlq")
    def test_j04_a_push_that_commits_late_is_not_passed_over(
        self, delayed_commits: AbstractContextManager[None]
    ) -> None:
        """16 producers on one partition and consumers at its very tail: no gap, nothing lost.

        INV-FIFO, INV-NO-LOSS, INV-ORDER, O-01, O-02.
        """
        queue = self.queue(lease_seconds=30)
        work = Workload(self.target, queue, lease_seconds=self.lease_seconds, partitions=1)
        groups = [self.name("leasing"), self.name("auto")]
        until = time.monotonic() + STRESS_SECONDS
        all_there_is, finished = 10_000, []
        batches = dict.fromkeys(groups, 0)

        def produce(number: int) -> None:
            for n in itertools.count():
                self.push(queue, f"{number}-{n}", partition="p0")
                time.sleep(SHORT_PAUSE_SECONDS)
                # Only at the tail can a gap be seen; whoever lags behind sees what has long been
                # there. A busy machine gets the time to come back to the tail often enough.
                often = min(batches.values()) > TAIL_BATCHES
                now = time.monotonic()
                if (often and (n >= 200 or now > until)) or now > until + LATEST_SECONDS:
                    break
            finished.append(number)

        def tail(group: str, auto_ack: bool) -> None:
            while len(finished) < len(producers):
                claim = self.pop(queue, all_there_is, group=group, auto_ack=auto_ack)
                batches[group] += bool(claim)
                if claim.lease_id is not None:
                    self.target.ack(acks_of(claim))
                time.sleep(SHORT_PAUSE_SECONDS)

        producers = [partial(produce, number) for number in range(16)]
        with delayed_commits:
            together(*producers, partial(tail, groups[0], False), partial(tail, groups[1], True))
        work.drain(groups)
        self.verify(drained=True)
        assert min(batches.values()) > TAIL_BATCHES

    @needs("cap")
    def test_j05_a_limit_is_exact_while_many_push_and_pop(self) -> None:
        """Room for 10, 16 pushers, 8 consumers: never 11, and never full without need.

        C-06, INV-CAPACITY, PLD-9.
        """
        queue = self.queue(max_queue_size=10)
        until = time.monotonic() + STRESS_SECONDS / 2

        def produce(number: int) -> None:
            dice = random.Random(number)
            while time.monotonic() < until:
                try:
                    self.push(queue, *[number] * dice.randint(1, 3), partition=f"p{number % 5}")
                except QueueFull:
                    time.sleep(dice.random() * PAUSE_SECONDS)

        def consume(number: int) -> None:
            dice = random.Random(number)
            while time.monotonic() < until:
                claim = self.pop(queue, dice.randint(1, 3))
                time.sleep(dice.random() * PAUSE_SECONDS)
                if claim:
                    self.target.ack(acks_of(claim))

        jobs = [partial(produce, number) for number in range(16)]
        together(*jobs, *(partial(consume, number) for number in range(100, 108)))
        self.verify(drained=False)
        refusals = [call for call in self.history.operations if isinstance(call.error, QueueFull)]
        assert refusals

    @needs("txn")
    def test_i05_every_input_becomes_one_output_though_consumers_die(self) -> None:
        """Deaths between pop and commit: outputs are inputs, once each, in order.

        C-15, INV-ATOMIC, INV-NO-LOSS, PL-16.
        """
        self.run_pipeline(deaths=0.05, zombies=0.0)

    @needs("txn", "extend")
    def test_j06_zombies_change_nothing(self) -> None:
        """Consumers that sleep past their lease and then ack, extend and commit are refused.

        INV-FENCE, INV-ATOMIC, C-04, C-15, O-07.
        """
        self.run_pipeline(deaths=0.0, zombies=0.1)

    def run_pipeline(self, *, deaths: float, zombies: float) -> None:
        """Send inputs through consumers with these habits and compare what comes out."""
        source = self.queue(lease_seconds=self.lease_seconds, retry_limit=ENDLESS_RETRIES)
        output = self.name("output")
        partitions = [f"p{n}" for n in range(10)]
        inputs = range(int(100 * STRESS_SECONDS))
        for n in inputs:
            self.push(source, n, partition=partitions[n % len(partitions)])
        line = Pipeline(self.target, source, output, lease_seconds=self.lease_seconds)
        until = time.monotonic() + SETTLE_SECONDS
        together(
            *(
                partial(line.work, number, until, deaths=deaths, zombies=zombies)
                for number in range(4)
            )
        )
        for place, partition in enumerate(partitions):
            expected = list(inputs[place :: len(partitions)])
            assert self.drain(output, partition=partition) == expected
        assert line.refused or not zombies
        self.verify(drained=False)

    def test_j07_acks_that_race_the_expiry_count_or_do_not(self) -> None:
        """Consumers ack around the instant at which their lease ends, and sweeps run all along.

        INV-CLAIM, INV-DURABLE-ACK, INV-FENCE, C-03, C-04, O-08.
        """
        queue = self.queue(lease_seconds=self.lease_seconds, retry_limit=ENDLESS_RETRIES)
        partitions = range(40)
        for n in partitions:
            self.push(queue, *range(50), partition=f"p{n}")
        until = time.monotonic() + STRESS_SECONDS

        def consume(number: int) -> None:
            dice = random.Random(number)
            while time.monotonic() < until:
                held = [(time.monotonic(), self.pop(queue, 3)) for _ in range(4)]
                for popped_at, claim in held:
                    ends_at = popped_at + self.lease_seconds
                    time.sleep(max(0, ends_at + dice.uniform(-0.3, 0.1) - time.monotonic()))
                    if claim:
                        self.target.ack(acks_of(claim))

        def sweep() -> None:
            with suppress(NotSupported):  # a server sweeps by itself
                while time.monotonic() < until:
                    assert self.target.sweep().repaired == 0
                    time.sleep(PAUSE_SECONDS)

        together(*(partial(consume, number) for number in range(8)), sweep)
        self.verify(drained=False)
        assert self.codes() == {None, LeaseLost.code}
