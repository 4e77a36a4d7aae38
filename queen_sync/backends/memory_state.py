"""The states of the memory backend: a partition's messages, and a group's progress in them.

Everything here is plain data under the one lock of `queen_sync.backends.memory`. A group's
progress in a partition is a position (everything at or before it is settled), the settled
messages past it, the history of those that failed or were given back, one live lease and the
last closed one. Numbers such as C-03 are those of the contract.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Sequence
from typing import NamedTuple

from queen_sync import ids
from queen_sync import model as m
from queen_sync.backends.memory_values import FRESH, History, QueueRecord, Stored
from queen_sync.clock import MILLISECOND, SECOND

WINDOW_CAP = 10
"""After so many windows the oldest waiting message opens its partition (C-08)."""
EXHAUSTED = "Retries exhausted"


class Partition:
    """An ordered lane: the message of seq n stands at index n - 1, and none is ever taken out."""

    def __init__(self, number: int, name: str, queue: QueueRecord) -> None:
        self.number = number
        self.id = ids.partition_id(number)
        self.name = name
        self.queue = queue
        self.messages: list[Stored] = []
        self.by_name: dict[str, Stored] = {}
        """Messages whose caller named them; the others are found through their id."""
        self.groups: dict[str, GroupState] = {}

    def find(self, name: str) -> Stored | None:
        """Return the message of that transaction id or message id, or None."""
        named = self.by_name.get(name)
        if named is not None:
            return named
        address = ids.address(name)
        if address is None or address.partition != self.number:
            return None
        if not 0 < address.seq <= len(self.messages):
            return None
        message = self.messages[address.seq - 1]
        return message if message.id == name else None

    def append(self, item: m.NewMessage, now_us: int) -> Stored:
        """Store a message behind the last one, never dated before it."""
        seq = len(self.messages) + 1
        created_us = max(now_us, self.messages[-1].created_us) if self.messages else now_us
        message_id = ids.message_id(self.number, seq, created_us)
        name = item.transaction_id
        stored = Stored(
            seq, message_id, name or message_id, item.payload, created_us, item.trace_id
        )
        self.messages.append(stored)
        if name is not None:
            self.by_name[name] = stored
        return stored

    def depth(self) -> int:
        """Return how many messages some registered group has still to settle (C-06)."""
        states = list(self.groups.values())
        if not states:
            return len(self.messages)
        for state in states:
            state.skip_too_old()
        # Whoever stands lowest has settled what all have settled, so its set is enough.
        lowest = min(states, key=lambda state: state.position)
        settled_by_all = sum(
            all(state.has_settled(seq) for state in states) for seq in lowest.settled
        )
        return len(self.messages) - lowest.position - settled_by_all


class Lease:
    """The right that one pop gave: one id and expiry over the partitions that it took.

    The states that hold it, live or as their last closed one, are all that keeps it alive:
    when the last of them lets go, its id means nothing any more.
    """

    __slots__ = ("__weakref__", "alone", "expires_us", "group", "id", "states")

    def __init__(self, lease_id: str, group: str, expires_us: int, *, alone: bool) -> None:
        self.id = lease_id
        self.group = group
        self.expires_us = expires_us
        self.alone = alone
        """Its pop delivered exactly one message, all partitions together."""
        self.states: list[GroupState] = []


class Hold:
    """A lease in one partition: which messages are open and what became of the others."""

    __slots__ = ("lease", "open", "outcomes")

    def __init__(self, lease: Lease, open_: set[int], outcomes: dict[int, m.Status]) -> None:
        self.lease = lease
        self.open = open_
        self.outcomes = outcomes

    def covers(self, seq: int) -> bool:
        return seq in self.open or seq in self.outcomes

    def live(self, now_us: int) -> bool:
        return now_us < self.lease.expires_us


class Snapshot(NamedTuple):
    """A state's changeable parts, to be put back when a transaction is refused."""

    position: int
    settled: set[int]
    histories: dict[int, History]
    dead_count: int
    hold: Hold | None
    closed: Hold | None
    ended_us: int


class GroupState:
    """The progress of one group in one partition."""

    def __init__(self, partition: Partition, group: str, position: int, from_us: int) -> None:
        self.partition = partition
        self.group = group
        self.position = position
        self.from_us = from_us
        """Messages from before this instant are not for the group; 0 once it is passed."""
        self.settled: set[int] = set()
        self.histories: dict[int, History] = {}
        self.dead: dict[int, m.DeadLetter] = {}
        self.hold: Hold | None = None
        """The live lease; one that has run out stays until it is taken back."""
        self.closed: Hold | None = None
        self.ended_us = 0
        """When the last lease of the group ended here (C-05)."""

    # --------------------------------------------------------------- what waits

    def skip_too_old(self) -> None:
        """Move past what was pushed before the group's starting time (C-07)."""
        if self.from_us:
            messages = self.partition.messages
            self.position = bisect_left(
                messages, self.from_us, lo=self.position, key=lambda message: message.created_us
            )
            if self.position < len(messages):
                self.from_us = 0

    def has_settled(self, seq: int) -> bool:
        return seq <= self.position or seq in self.settled

    def left(self) -> int:
        """Return how many messages are still to settle."""
        self.skip_too_old()
        return len(self.partition.messages) - self.position - len(self.settled)

    def ready_us(self) -> int | None:
        """Return when the lowest unsettled message is due, its window counted; None without one."""
        self.skip_too_old()
        messages = self.partition.messages
        if self.position == len(messages):
            return None
        head = messages[self.position]
        due_us = self._due_us(head)
        window_us = self.partition.queue.options.window_buffer_seconds * SECOND
        if window_us:
            quiet_us = messages[-1].created_us + window_us
            due_us = max(due_us, min(quiet_us, head.created_us + WINDOW_CAP * window_us))
        return due_us

    def _due_us(self, message: Stored) -> int:
        delay_us = self.partition.queue.options.delayed_processing_seconds * SECOND
        history = self.histories.get(message.seq, FRESH)
        return max(message.created_us + delay_us, history.not_before_us)

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
        """Return the lowest unsettled messages that may be delivered together.

        The batch is cut before the first that is not due and before one that goes alone.
        """
        found: list[Stored] = []
        messages = self.partition.messages
        for index in range(self.position, len(messages)):
            message = messages[index]
            if message.seq in self.settled:
                continue
            if self._due_us(message) > now_us:
                break
            if self.goes_alone(message.seq):
                return found or [message]
            found.append(message)
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

    # ------------------------------------------------------- leases and outcomes

    def take(self, lease: Lease, batch: Sequence[Stored]) -> None:
        """Put the batch under a lease."""
        self.hold = Hold(lease, {message.seq for message in batch}, {})
        lease.states.append(self)

    def complete_now(self, batch: Sequence[Stored], now_us: int) -> None:
        """Settle a batch on delivery, without a lease (C-19)."""
        for message in batch:
            self._settle(message.seq)
        self.ended_us = now_us

    def held(self, lease_id: str, now_us: int) -> Hold | None:
        """Return the live or last closed lease of that id, or None."""
        hold = self.hold
        if hold is not None and hold.lease.id == lease_id and hold.live(now_us):
            return hold
        closed = self.closed
        return closed if closed is not None and closed.lease.id == lease_id else None

    def covering(self, seq: int, now_us: int) -> Hold | None:
        """Return the live lease that covers a message, else the last closed one, or None."""
        if self.hold is not None and self.hold.live(now_us) and self.hold.covers(seq):
            return self.hold
        return self.closed if self.closed is not None and self.closed.covers(seq) else None

    def give(self, seq: int, outcome: m.Outcome, error: str | None, now_us: int) -> m.Status:
        """Give an open message of the live lease its outcome; close the lease after the last."""
        hold = self.hold
        assert hold is not None
        assert seq in hold.open
        status = self._outcome(seq, outcome, error, now_us)
        hold.open.remove(seq)
        hold.outcomes[seq] = status
        if not hold.open:
            self.closed = hold
            self.hold = None
            self.ended_us = now_us
        return status

    def _outcome(self, seq: int, outcome: m.Outcome, error: str | None, now_us: int) -> m.Status:
        if outcome == "completed":
            self._settle(seq)
            return "completed"
        old = self.histories.get(seq, FRESH)
        deliveries = old.deliveries + 1
        if outcome == "retry":
            self.histories[seq] = History(old.failures, deliveries, old.expired, now_us, old.error)
            return "pending"
        reason = old.error if error is None else error
        if outcome == "dlq":
            self._bury(seq, History(old.failures, deliveries, error=reason), now_us)
            return "dead_letter"
        options = self.partition.queue.options
        failures = old.failures + 1
        if failures > options.retry_limit:
            reason = EXHAUSTED if reason is None else reason
            self._bury(seq, History(failures, deliveries, error=reason), now_us)
            return "dead_letter"
        not_before_us = now_us + options.retry_delay_milliseconds * MILLISECOND
        self.histories[seq] = History(failures, deliveries, old.expired, not_before_us, reason)
        return "failed"

    def release(self, now_us: int) -> None:
        """Give back what is open under the live lease, uncharged."""
        assert self.hold is not None
        for seq in sorted(self.hold.open):
            self.give(seq, "retry", None, now_us)

    def expire(self, now_us: int) -> None:
        """Take back a lease that has run out, and charge what has no outcome under it (C-03).

        The charge takes a message past its limit only when it was alone in its claim, and
        with a limit of 0 only at its second expiry: so its neighbours never die for its sake.
        """
        hold = self.hold
        assert hold is not None
        assert not hold.live(now_us)
        limit = self.partition.queue.options.retry_limit
        for seq in sorted(hold.open):
            old = self.histories.get(seq, FRESH)
            in_full = hold.lease.alone and (limit > 0 or old.expired)
            failures = old.failures + 1
            if not in_full:
                failures = max(old.failures, min(failures, limit))
            new = History(failures, old.deliveries + 1, True, old.not_before_us, m.EXPIRED)
            if in_full and failures > limit:
                self._bury(seq, new, now_us)
            else:
                self.histories[seq] = new
        self.hold = None
        self.ended_us = hold.lease.expires_us

    def _settle(self, seq: int) -> None:
        self.histories.pop(seq, None)
        self.settled.add(seq)
        while self.position + 1 in self.settled:
            self.position += 1
            self.settled.remove(self.position)

    def _bury(self, seq: int, history: History, now_us: int) -> None:
        message = self.partition.messages[seq - 1]
        self.dead[seq] = m.DeadLetter(
            id=message.id,
            transaction_id=message.transaction_id,
            queue=self.partition.queue.name,
            partition=self.partition.name,
            partition_id=self.partition.id,
            seq=seq,
            group=self.group,
            payload=message.payload,
            created_us=message.created_us,
            failed_us=now_us,
            trace_id=message.trace_id,
            error=history.error,
            failure_count=history.failures,
            delivery_count=history.deliveries,
        )
        self._settle(seq)

    # ------------------------------------------------------------ undo and the end

    def snapshot(self) -> Snapshot:
        """Return what an ack may change."""
        self.skip_too_old()
        hold = self.hold
        kept = None if hold is None else Hold(hold.lease, set(hold.open), dict(hold.outcomes))
        return Snapshot(
            self.position,
            set(self.settled),
            dict(self.histories),
            len(self.dead),
            kept,
            self.closed,
            self.ended_us,
        )

    def restore(self, saved: Snapshot) -> None:
        """Undo every ack since the snapshot."""
        self.position = saved.position
        self.settled = saved.settled
        self.histories = saved.histories
        while len(self.dead) > saved.dead_count:
            self.dead.popitem()
        self.hold = saved.hold
        self.closed = saved.closed
        self.ended_us = saved.ended_us

    def forget(self) -> None:
        """Let go of both leases, so that their ids mean nothing here any more."""
        self.hold = self.closed = None
