"""The state of a group in a partition: its place, its lease, its failures and dead letters.

Plain data under the one lock of `queen_sync.backends.memory`. A group's progress in a
partition is a position (everything at or before it is settled), the settled messages past it,
the history of those that failed or were given back, the dead letters that were given back to
it, one live lease and the last closed one. Numbers such as C-03 are those of the contract.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from queen_sync import model as m
from queen_sync.backends.memory_leases import Hold, Lease, Snapshot
from queen_sync.backends.memory_partition import Partition
from queen_sync.backends.memory_values import FRESH, History, Redriven, Stored
from queen_sync.clock import MILLISECOND, SECOND

WINDOW_CAP = 10
"""After so many windows the oldest waiting message opens its partition (C-08)."""
EXHAUSTED = "Retries exhausted"


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
        self.redriven: dict[int, Redriven] = {}
        """Dead letters given back and not settled since; they stand before all others (C-12)."""
        self.hold: Hold | None = None
        """The live lease; one that has run out stays until it is taken back."""
        self.closed: Hold | None = None
        self.ended_us = 0
        """When the last lease of the group ended here (C-05)."""

    # --------------------------------------------------------------- what waits

    def skip_too_old(self) -> None:
        """Move past what was pushed before the group's starting time (C-07)."""
        if self.from_us:
            self.position = max(self.position, self.partition.last_before(self.from_us))
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
            quiet_us = self.partition.messages[-1].created_us + window_us
            due_us = max(due_us, min(quiet_us, head.created_us + WINDOW_CAP * window_us))
        return due_us

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

    # ------------------------------------------------------- leases and outcomes

    def take(self, lease: Lease, batch: Sequence[Stored]) -> None:
        """Put the batch under a lease."""
        seqs = {message.seq for message in batch}
        self.hold = Hold(lease, seqs, {}, redriven=batch[0].seq in self.redriven)
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

    def first_leased(self) -> int | None:
        """Return the first stored message of the live lease's batch, or None (C-09)."""
        hold = self.hold
        if hold is None or hold.redriven:
            return None
        return min({*hold.open, *hold.outcomes})

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
        if self.redriven.pop(seq, None) is None:
            self.settled.add(seq)
            self._advance()

    def _advance(self) -> None:
        """Let the position pass what is settled behind it."""
        while self.position + 1 in self.settled:
            self.position += 1
            self.settled.remove(self.position)

    def _bury(self, seq: int, history: History, now_us: int) -> None:
        message = self.message(seq)
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

    # ------------------------------------------------ what the operator and age do

    def redrive(self, seq: int, now_us: int) -> None:
        """Give a dead letter back to the group, from its own copy (C-12)."""
        letter = self.dead.pop(seq)
        copy = Stored(
            seq,
            letter.id,
            letter.transaction_id,
            letter.payload,
            letter.created_us,
            letter.trace_id,
        )
        self.redriven[seq] = Redriven(copy, now_us)

    def seek(self, position: int, now_us: int) -> None:
        """Begin again behind a position (C-20).

        What is no longer stored is out of its reach, as a dead letter and when redriven.
        """
        self.forget()
        self.position = position
        self.from_us = 0
        self.settled = set()
        removed = self.partition.removed
        self.redriven = {seq: again for seq, again in self.redriven.items() if seq <= removed}
        self.histories = {
            seq: history for seq, history in self.histories.items() if seq in self.redriven
        }
        self.dead = {seq: letter for seq, letter in self.dead.items() if seq <= position}
        self.ended_us = now_us
        self.partition.unsettle(position)

    def evict(self, now_us: int) -> int:
        """Settle what has waited too long, but for a live lease's batch (C-09); return how many."""
        options = self.partition.queue.options
        limits = [seconds for seconds in (options.ttl_seconds, options.max_wait_seconds) if seconds]
        if not limits:
            return 0
        too_old_us = now_us - min(limits) * SECOND
        self.skip_too_old()
        late = [seq for seq, again in self.redriven.items() if again.since_us <= too_old_us]
        for message in self.partition.after(self.position):
            if message.created_us > too_old_us:
                break
            if message.seq not in self.settled:
                late.append(message.seq)
        evicted = [seq for seq in late if self.hold is None or not self.hold.covers(seq)]
        for seq in evicted:
            self._settle(seq)
        partition = self.partition
        partition.queue.note_removal(partition.name, "evicted", len(evicted), now_us, self.group)
        return len(evicted)

    def pass_removed(self) -> None:
        """Move past what retention has taken out of the partition."""
        removed = self.partition.removed
        self.position = max(self.position, removed)
        self.settled = {seq for seq in self.settled if seq > self.position}
        self._advance()
        self.histories = {
            seq: history
            for seq, history in self.histories.items()
            if seq > removed or seq in self.redriven
        }

    # ------------------------------------------------------------ undo and the end

    def snapshot(self) -> Snapshot:
        """Return what an ack may change."""
        self.skip_too_old()
        return Snapshot(
            self.position,
            set(self.settled),
            dict(self.histories),
            dict(self.redriven),
            len(self.dead),
            None if self.hold is None else self.hold.copy(),
            self.closed,
            self.ended_us,
        )

    def restore(self, saved: Snapshot) -> None:
        """Undo every ack since the snapshot."""
        self.position = saved.position
        self.settled = saved.settled
        self.histories = saved.histories
        self.redriven = saved.redriven
        while len(self.dead) > saved.dead_count:
            self.dead.popitem()
        self.hold = saved.hold
        self.closed = saved.closed
        self.ended_us = saved.ended_us

    def forget(self) -> None:
        """Let go of both leases, so that their ids mean nothing here any more."""
        self.hold = self.closed = None
