"""Concurrent work on a backend: threads that start together, and consumers with bad habits."""

from __future__ import annotations

import random
import threading
import time
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from typing import TypeVar

from queen_sync import model as m
from queen_sync.backends.base import Backend
from queen_sync.conformance.base import acks_of
from queen_sync.errors import LeaseLost
from queen_sync.payloads import JsonText

Answer = TypeVar("Answer")

DEATHS = 0.06
ZOMBIES = 0.06
EXTENSIONS = 0.04
RELEASES = 0.03
FAILURES = 0.05
REPEATED_PUSHES = 0.1
POISON = 0.004
DRAIN_SECONDS = 60
QUIET_LEASES = 2.5
"""How many leases of nothing but empty pops end a drain: whatever was held has come back."""
PAUSE_SECONDS = 0.02


def together(*jobs: Callable[[], Answer]) -> list[Answer]:
    """Run the jobs in threads that begin at the same moment; return their answers in order."""
    start = threading.Barrier(len(jobs))

    def run(job: Callable[[], Answer]) -> Answer:
        start.wait()
        return job()

    with ThreadPoolExecutor(len(jobs)) as pool:
        return [future.result() for future in [pool.submit(run, job) for job in jobs]]


class Workload:
    """Producers and consumers of one queue. Everything they do is in the target's history."""

    def __init__(self, target: Backend, queue: str, *, lease_seconds: int, partitions: int) -> None:
        self.target = target
        self.queue = queue
        self.lease_seconds = lease_seconds
        self.partitions = [f"p{n}" for n in range(partitions)]

    # ----------------------------------------------------------------- producing

    def produce(self, number: int, until: float) -> None:
        """Push small batches, some of them twice, now and then a message that nobody can handle."""
        dice = random.Random(number)
        pushed: list[m.NewMessage] = []
        while time.monotonic() < until:
            names = [f"{number}-{len(pushed) + n}" for n in range(dice.randint(1, 4))]
            items = [self._message(dice, name) for name in names]
            pushed += items
            if dice.random() < REPEATED_PUSHES:
                items.append(dice.choice(pushed))
            self.target.push(items)
            time.sleep(dice.random() * PAUSE_SECONDS)

    def _message(self, dice: random.Random, name: str) -> m.NewMessage:
        value = {"name": name, "poison": dice.random() < POISON}
        partition = dice.choice(self.partitions)
        return m.NewMessage.of(self.queue, value, partition=partition, transaction_id=name)

    # ----------------------------------------------------------------- consuming

    def consume(self, number: int, until: float, group: str = m.QUEUE_MODE) -> None:
        """Pop and ack as consumers do that crash, dawdle, fail and change their minds."""
        dice = random.Random(number)
        late: list[tuple[float, m.Claim]] = []
        while time.monotonic() < until:
            claim = self.pop(group, dice.randint(1, 8), partitions=dice.randint(1, 2))
            while late and late[0][0] < time.monotonic():
                self._come_back(late.pop(0)[1])
            if not claim:
                time.sleep(dice.random() * PAUSE_SECONDS)
                continue
            roll = dice.random()
            if roll < DEATHS:
                continue
            if roll < DEATHS + ZOMBIES:
                late.append((time.monotonic() + self.lease_seconds + PAUSE_SECONDS, claim))
                continue
            self._handle(dice, claim)

    def _handle(self, dice: random.Random, claim: m.Claim) -> None:
        lease = claim.lease_id or ""
        roll = dice.random()
        try:
            if roll < EXTENSIONS:
                self.target.extend(lease, self.lease_seconds)
            elif roll < EXTENSIONS + RELEASES:
                self.target.release(lease)
                return
        except LeaseLost:
            return
        acks = [
            ack
            for place, message in enumerate(claim.messages)
            for ack in acks_of(claim, self._verdict(dice, message), only=[place])
        ]
        dice.shuffle(acks)
        cut = dice.randint(0, len(acks))
        for part in (acks[:cut], acks[cut:]):
            if part:
                self.target.ack(part)

    def _verdict(self, dice: random.Random, message: m.Message) -> m.Outcome:
        if message.value["poison"]:
            return "failed"
        roll = dice.random()
        if roll < FAILURES:
            return dice.choice(("failed", "failed", "retry", "dlq"))
        return "completed"

    def _come_back(self, claim: m.Claim) -> None:
        """Do what a consumer does that slept past its lease and does not know it."""
        self.target.ack(acks_of(claim))
        for late in (self.target.release, self.target.extend):
            try:
                late(claim.lease_id or "")
            except LeaseLost:
                continue

    def pop(self, group: str, count: int, *, partitions: int = 1) -> m.Claim:
        """Pop from any partition."""
        return self.target.pop(
            m.PopRequest(
                queue=self.queue, group=group, max_messages=count, max_partitions=partitions
            )
        )

    # ------------------------------------------------------------------ draining

    def drain(self, groups: Sequence[str] = (m.QUEUE_MODE,)) -> None:
        """Complete whatever is left, then list the dead letters; fail if that never ends."""
        together(*(partial(self._drain, group) for group in groups))
        offset, page = 0, 100
        while True:
            wanted = m.DeadLetterFilter(queue=self.queue, limit=page, offset=offset)
            letters = self.target.dead_letters(wanted)
            offset += page
            if offset >= letters.total:
                return

    def _drain(self, group: str) -> None:
        deadline = time.monotonic() + DRAIN_SECONDS
        quiet_since = time.monotonic()
        while time.monotonic() < quiet_since + QUIET_LEASES * self.lease_seconds:
            assert time.monotonic() < deadline, f"the drain of {group} does not end"
            claim = self.pop(group, 100, partitions=len(self.partitions))
            if claim:
                self.target.ack(acks_of(claim))
                quiet_since = time.monotonic()
            else:
                time.sleep(PAUSE_SECONDS)


class Pipeline:
    """Consumers that turn each input into one output, in one transaction with the ack."""

    def __init__(self, target: Backend, source: str, output: str, *, lease_seconds: int) -> None:
        self.target = target
        self.source = source
        self.output = output
        self.lease_seconds = lease_seconds
        self.refused: list[m.Claim] = []

    def work(self, number: int, until: float, *, deaths: float, zombies: float) -> None:
        """Take inputs until nothing has come for longer than a lease."""
        dice = random.Random(number)
        quiet_since = time.monotonic()
        while time.monotonic() < min(until, quiet_since + QUIET_LEASES * self.lease_seconds):
            wanted = m.PopRequest(queue=self.source, max_messages=dice.randint(1, 5))
            claim = self.target.pop(wanted)
            if not claim:
                time.sleep(dice.random() * PAUSE_SECONDS)
                continue
            quiet_since = time.monotonic()
            roll = dice.random()
            if roll < deaths:
                continue
            if roll < deaths + zombies:
                time.sleep(self.lease_seconds + PAUSE_SECONDS)
                self._come_back(claim)
            self._commit(claim)

    def _commit(self, claim: m.Claim) -> None:
        outputs = [self._output(message) for message in claim.messages]
        try:
            self.target.transact(m.Transaction(operations=[*acks_of(claim), *outputs]))
        except LeaseLost:
            self.refused.append(claim)

    def _come_back(self, claim: m.Claim) -> None:
        try:
            self.target.extend(claim.lease_id or "")
        except LeaseLost:
            self.target.ack(acks_of(claim))

    def _output(self, message: m.Message) -> m.NewMessage:
        return m.NewMessage(
            queue=self.output, payload=JsonText(message.payload), partition=message.partition
        )
