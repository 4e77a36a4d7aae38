"""How far a group is in a partition: its place, what it has failed at, and what comes next.

Plain data under the one lock of `queen_sync.backends.memory`. A group's progress in a
partition is a position (everything at or before it is settled), the settled messages past it,
the history of those that failed or were given back, the dead letters that were given back to
it, one live lease and the last closed one. Numbers such as C-03 are those of the contract.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from queen_sync import model as m
from queen_sync.backends.memory_leases import Hold
from queen_sync.backends.memory_partition import Partition
from queen_sync.backends.memory_values import FRESH, History, Redriven, Stored
from queen_sync.clock import SECOND

WINDOW_CAP = 10
"""After so many windows the oldest waiting message opens its partition (C-08)."""


class Progress:
    """How far one group is in one partition, and what it may be given next."""

    def __init__(self, partition: Partition, group: str, position: int, from_us: int) -> None:
        self.partition = partition
        self.group = group
        self.position = position
        self.from_us = from_us
        """Messages from before this instant are not for the group; 0 once it is passed."""
        self.settled: set[int] = set()
        self.begin(position)
        self.histories: dict[int, History] = {}
        self.dead: dict[int, m.DeadLetter] = {}
        self.redriven: dict[int, Redriven] = {}
        """Dead letters given back and not settled since; they stand before all others (C-12)."""
        self.hold: Hold | None = None
        """The live lease; one that has run out stays until it is taken back."""
        self.closed: Hold | None = None
        self.ended_us = 0
        """When the last lease of the group ended here (C-05)."""
        self.rests_until_us = 0
        """Until when the lane is left alone: its next payload could not be opened."""
        self.taken_us: int | None = None
        """When the group last took messages here."""

    # --------------------------------------------------------------- what waits

    def begin(self, position: int) -> None:
        """Stand at a position: of what lies behind it, only what was deleted is settled."""
        self.position = position
        self.settled = {seq for seq in self.partition.holes if seq > position}
        self._advance()

    def _pass(self, seq: int) -> None:
        """Settle everything up to a seq."""
        if seq > self.position:
            self.position = seq
            self.settled = {settled for settled in self.settled if settled > seq}
            self._advance()

    def _advance(self) -> None:
        """Let the position pass what is settled behind it."""
        while self.position + 1 in self.settled:
            self.position += 1
            self.settled.remove(self.position)

    def skip_too_old(self) -> None:
        """Move past what was pushed before the group's starting time (C-07)."""
        if self.from_us:
            self._pass(self.partition.last_before(self.from_us))
            if self.position < self.partition.last_seq:
                self.from_us = 0

    def has_passed(self, seq: int) -> bool:
        """Whether the message of the log is settled, given back or not."""
        return seq <= self.position or seq in self.settled

    def left(self) -> int:
        """Return how many messages are still to settle."""
        self.skip_too_old()
        unsettled = self.partition.last_seq - self.position - len(self.settled)
        return unsettled + len(self.redriven)

    def waiting(self) -> Iterator[Stored]:
        """Yield what may be delivered next, in order: the redriven, or else the unsettled."""
        if self.redriven:
            for seq in sorted(self.redriven):
                yield self.redriven[seq].message
            return
        yield from self.unsettled()

    def unsettled(self) -> Iterator[Stored]:
        """Yield what the group has still to settle of what is stored."""
        self.skip_too_old()
        for message in self.partition.after(self.position):
            if message.seq not in self.settled:
                yield message

    def message(self, seq: int) -> Stored:
        """Return an unsettled message: the redriven copy, or the stored one."""
        again = self.redriven.get(seq)
        return self.partition.at(seq) if again is None else again.message

    def named(self, name: str) -> list[int]:
        """Return the seqs that a transaction id or message id may mean to the group.

        The name of a redriven message that is no longer stored may have been used again.
        """
        seqs = {
            seq
            for seq, again in self.redriven.items()
            if name in (again.message.transaction_id, again.message.id)
        }
        stored = self.partition.find(name)
        if stored is not None:
            seqs.add(stored.seq)
        return sorted(seqs)

    def ready_us(self) -> int | None:
        """Return when the next message is due, its window counted; None without one."""
        head = next(self.waiting(), None)
        if head is None:
            return None
        due_us = self._due_us(head)
        window_us = self.partition.queue.options.window_buffer_seconds * SECOND
        if window_us and not self.redriven:
            quiet_us = self.partition.newest_us + window_us
            due_us = max(due_us, min(quiet_us, head.created_us + WINDOW_CAP * window_us))
        return max(due_us, self.rests_until_us)

    def _due_us(self, message: Stored) -> int:
        again = self.redriven.get(message.seq)
        if again is None:
            delay_us = self.partition.queue.options.delayed_processing_seconds * SECOND
            due_us = message.created_us + delay_us
        else:
            due_us = again.since_us
        return max(due_us, self.histories.get(message.seq, FRESH).not_before_us)

    def next_ready_us(self) -> int | None:
        """Return from when a pop may find something here, by time alone; None: never."""
        ready_us = self.ready_us()
        if ready_us is None or self.hold is None:
            return ready_us
        return max(ready_us, self.hold.lease.expires_us)

    def waiting_since_us(self, now_us: int) -> int | None:
        """Return since when the partition waits to be served (C-05); None where it does not.

        While a lease that has run out is not yet taken back it is the instant it did: what
        lies behind it cannot have waited longer.
        """
        if self.hold is not None:
            return None if self.hold.live(now_us) else self.hold.lease.expires_us
        ready_us = self.ready_us()
        if ready_us is None or ready_us > now_us:
            return None
        return max(ready_us, self.ended_us)

    def goes_alone(self, seq: int) -> bool:
        """Whether a message is on its last attempt and has been through an expiry (C-03)."""
        history = self.histories.get(seq, FRESH)
        return history.expired and history.failures >= self.partition.queue.options.retry_limit

    def batch(self, room: int, now_us: int) -> list[Stored]:
        """Return the first of the waiting messages, as many as may be delivered together.

        The batch is cut before the first that is not due and before one that goes alone.
        """
        found: list[Stored] = []
        names: set[str] = set()
        for message in self.waiting():
            # Two redriven messages may have had one name, which has to mean one under a lease.
            if self._due_us(message) > now_us or message.transaction_id in names:
                break
            if self.goes_alone(message.seq):
                return found or [message]
            found.append(message)
            names.add(message.transaction_id)
            if len(found) == room:
                break
        return found

    def deliver(self, batch: Sequence[Stored]) -> list[m.Message]:
        """Return messages as their receiver sees them."""
        partition = self.partition
        delivered = []
        for message in batch:
            history = self.histories.get(message.seq, FRESH)
            delivered.append(
                m.Message(
                    id=message.id,
                    transaction_id=message.transaction_id,
                    queue=partition.queue.name,
                    partition=partition.name,
                    partition_id=partition.id,
                    seq=message.seq,
                    payload=message.payload,
                    created_us=message.created_us,
                    trace_id=message.trace_id,
                    delivery_count=history.deliveries + 1,
                    failure_count=history.failures,
                    error=history.error,
                    priority=partition.queue.options.priority,
                )
            )
        return delivered

    def live(self, now_us: int) -> Hold | None:
        """Return the live lease, or None."""
        return self.hold if self.hold is not None and self.hold.live(now_us) else None
