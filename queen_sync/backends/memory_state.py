"""The state of a group in a partition: what leases, outcomes, age and the operator do to it.

Plain data under the one lock of `queen_sync.backends.memory`. Where the group stands is in
`memory_progress`. Numbers such as C-03 are those of the contract.
"""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

from queen_sync import model as m
from queen_sync.backends.memory_leases import Hold, Lease, Snapshot
from queen_sync.backends.memory_progress import Progress
from queen_sync.backends.memory_values import FRESH, History, Redriven, Stored
from queen_sync.clock import MILLISECOND, SECOND

EXHAUSTED = "Retries exhausted"


class GroupState(Progress):
    """The progress of one group in one partition, and everything that changes it."""

    # ------------------------------------------------------- leases and outcomes

    def take(self, lease: Lease, batch: Sequence[Stored], now_us: int) -> None:
        """Put the batch under a lease."""
        self.taken_us = now_us
        seqs = {message.seq for message in batch}
        self.hold = Hold(lease, seqs, {}, redriven=batch[0].seq in self.redriven)
        lease.states.append(self)

    def complete_now(self, batch: Sequence[Stored], now_us: int) -> None:
        """Settle a batch on delivery, without a lease (C-19)."""
        for message in batch:
            self._settle(message.seq)
        self.taken_us = self.ended_us = now_us

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
        self._close_if_done(now_us)
        return status

    def _close_if_done(self, now_us: int) -> None:
        if self.hold is not None and not self.hold.open:
            self.closed = self.hold
            self.hold = None
            self.ended_us = now_us

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
            encrypted=message.encrypted,
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
            letter.encrypted,
        )
        self.redriven[seq] = Redriven(copy, now_us)

    def seek(self, position: int, now_us: int) -> None:
        """Begin again behind a position (C-20).

        What is no longer stored is out of its reach, as a dead letter and when redriven.
        """
        self.forget()
        self.from_us = 0
        self.begin(position)
        holds = self.partition.holds
        self.redriven = {seq: again for seq, again in self.redriven.items() if not holds(seq)}
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
        self._pass(removed)
        self.histories = {
            seq: history
            for seq, history in self.histories.items()
            if seq > removed or seq in self.redriven
        }

    def bury(self, seq: int, error: str | None, now_us: int) -> bool:
        """Set a stored message aside by hand; False where it is settled, or under a live lease."""
        self._take_back(now_us)
        self.skip_too_old()
        if self.hold is not None and self.hold.covers(seq):
            return False
        if self.has_passed(seq) and seq not in self.redriven:
            return False
        old = self.histories.get(seq, FRESH)
        reason = old.error if error is None else error
        self._bury(seq, History(old.failures, old.deliveries, error=reason), now_us)
        return True

    def retry_now(self, seq: int, now_us: int) -> bool:
        """End the retry delay of a message; False where it has not failed, or is in flight."""
        self._take_back(now_us)
        self.skip_too_old()
        history = self.histories.get(seq, FRESH)
        in_flight = self.hold is not None and seq in self.hold.open
        if in_flight or not history.failures:
            return False
        if history.not_before_us > now_us:
            self.histories[seq] = msgspec.structs.replace(history, not_before_us=now_us)
        return True

    def drop(self, seq: int, now_us: int) -> None:
        """Settle a message that leaves the store, and forget all that was known of it."""
        self._take_back(now_us)
        self.skip_too_old()
        self.dead.pop(seq, None)
        if seq in self.redriven or not self.has_passed(seq):
            self._settle(seq)
        if self.hold is not None and self.hold.covers(seq):
            self.hold.open.discard(seq)
            self.hold.outcomes.pop(seq, None)
            self._close_if_done(now_us)

    def clear(self, now_us: int) -> None:
        """Settle everything, redriven messages too; only dead letters stay."""
        if self.hold is not None:
            self.ended_us = now_us
        self.forget()
        self.redriven = {}
        self.histories = {}
        self._pass(self.partition.last_seq)

    def _take_back(self, now_us: int) -> None:
        if self.hold is not None and not self.hold.live(now_us):
            self.expire(now_us)

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
        self.rests_until_us = 0
