"""A lane: how far a group is in a partition, its leases, and what becomes of a message there.

A `Lane` is a row of ``partition_leases`` in the hands of one call, under the write lock. Whoever
changes it saves it. Numbers such as C-03 are those of the contract.
"""

from __future__ import annotations

from collections.abc import Iterable

from queen_sync import ids, model as m
from queen_sync.backends.sqlite_connections import MAX_INTEGER, Row, Session, bounded
from queen_sync.backends.sqlite_holes import holes_of, seq_before
from queen_sync.backends.sqlite_lane_records import (
    History,
    Hold,
    LaneRecord,
    place_of,
)
from queen_sync.backends.sqlite_seqs import Range, Seqs
from queen_sync.clock import MILLISECOND, SECOND

WINDOW_CAP = 10
"""After so many windows the oldest waiting message opens its partition (C-08)."""
EXHAUSTED = "Retries exhausted"


class Lane(LaneRecord):
    """The progress of one group in one partition, and what becomes of its messages."""

    # ----------------------------------------------------------------- what waits

    def skip_too_old(self) -> None:
        """Move past what was pushed before the group's starting time (C-07)."""
        if self.from_us:
            partition, last_seq = self.place.partition, self.place.last_seq
            self.move_to(seq_before(self.session, partition, self.position, last_seq, self.from_us))
            if self.position < self.place.last_seq:
                self.from_us = 0

    def ready(self) -> int | None:
        """Return since when, or from when, the lane waits to be served; None: nothing waits (C-05).

        It is the later of two instants: its lowest unsettled message came due, its last
        lease ended. The window of the queue is counted.
        """
        if self.redriven_count:
            again = self._redriven(1)[0]
            due_us = max(again[6], self.history(again[0]).not_before_us)
            return int(max(due_us, self.ended_us))
        self.skip_too_old()
        place = self.place
        head = self.position + 1
        if head > place.last_seq:
            return None
        row = self.session.row("message_at", place.partition, head)
        assert row is not None, "every lane has settled what is not stored"
        created_us = row[0]
        due_us = max(
            created_us + place.delayed_processing_seconds * SECOND,
            self.history(head).not_before_us,
        )
        window_us = place.window_buffer_seconds * SECOND
        if window_us:
            quiet_us = place.last_pushed_us + window_us
            due_us = max(due_us, min(quiet_us, created_us + WINDOW_CAP * window_us))
        return int(max(due_us, self.ended_us))

    def waiting(self) -> list[Range]:
        """Return what of the log is unsettled, once what is too old was skipped."""
        return self.settled.gaps(self.position + 1, self.place.last_seq + 1, MAX_INTEGER)

    def has_passed(self, seq: int) -> bool:
        """Whether the message of the log is settled, given back or not."""
        return seq <= self.position or seq in self.settled

    def owes(self, seq: int) -> bool:
        """Whether a stored message is still to be settled, in the log or as one given back."""
        if not self.has_passed(seq):
            return True
        again = self._redriven(1, seq) if self.redriven_count else ()
        return any(row[0] == seq for row in again)

    def goes_alone(self, seq: int) -> bool:
        """Whether a message is on its last attempt and has been through an expiry (C-03)."""
        history = self.history(seq)
        return bool(history.expired) and history.failures >= self.place.retry_limit

    def batch(self, room: int) -> tuple[list[Row], bool]:
        """Return the rows of what may be delivered together, and whether it goes alone.

        They are the lowest redriven messages, or else the lowest unsettled ones, cut before the
        first that is not due and before one that goes alone.
        """
        return self._redriven_batch(room) if self.redriven_count else self._stored_batch(room)

    def _redriven_batch(self, room: int) -> tuple[list[Row], bool]:
        rows: list[Row] = []
        names: set[str | None] = set()
        for *row, since_us in self._redriven(room):
            seq, name = row[0], row[2]
            late = max(since_us, self.history(seq).not_before_us) > self.session.now_us
            # Two redriven messages may have had one name, which has to mean one under a lease.
            if late or (name is not None and name in names):
                break
            if self.goes_alone(seq):
                return (rows, False) if rows else ([tuple(row)], True)
            rows.append(tuple(row))
            names.add(name)
        return rows, False

    def _redriven(self, room: int, first: int = 0) -> list[Row]:
        """Return redriven messages from a seq on, each with the instant at which it came back."""
        where = (self.group, self.place.partition)
        return self.session.rows("redriven_messages", *where, first, bounded(room))

    def _stored_batch(self, room: int) -> tuple[list[Row], bool]:
        place, now_us = self.place, self.session.now_us
        ranges = self.settled.gaps(self.position + 1, place.last_seq + 1, room)
        alone = False
        if self.retry_count and ranges:
            self.look_at(ranges[0][0], ranges[-1][1])
            stop = next((seq for seq in self._histories(ranges) if self._stops(seq)), None)
            if stop is not None:
                alone = stop == ranges[0][0]
                end = stop + alone
                ranges = [(low, min(high, end)) for low, high in ranges if low < end]
        created_us = now_us - place.delayed_processing_seconds * SECOND
        if not place.delayed_processing_seconds:
            created_us = MAX_INTEGER  # the clock may stand behind that of an earlier push
        rows: list[Row] = []
        for first, end in ranges:
            found = self.session.rows("read_batch", place.partition, first, end, created_us)
            rows += found
            if len(found) < end - first:
                break
        return rows, alone

    def head(self) -> list[Row]:
        """Return the row of what comes next, whether it is due or not; none where nothing waits."""
        if self.redriven_count:
            return [self._redriven(1)[0][:6]]
        where = self.place.partition
        first = self.settled.gaps(self.position + 1, self.place.last_seq + 1, 1)
        return [
            row
            for seq, end in first
            for row in self.session.rows("read_batch", where, seq, end, MAX_INTEGER)
        ]

    def open_rows(self) -> list[Row]:
        """Return the rows of what the live lease has still open."""
        if self.hold is not None and self.hold.redriven:
            found = [self._redriven(1, seq)[0] for seq in self.open]
            return [row[:6] for row in found]
        where = self.place.partition
        return [
            row
            for first, end in self.open.ranges()
            for row in self.session.rows("read_batch", where, first, end, MAX_INTEGER)
        ]

    def redriven_seqs(self) -> list[int]:
        """Return the seqs of messages that were given back and not settled since."""
        if not self.redriven_count:
            return []
        where = (self.group, self.place.partition)
        return [row[0] for row in self.session.rows("redriven_seqs", *where)]

    def named(self, name: str) -> list[int]:
        """Return the seqs of redriven messages that a transaction id or message id may mean."""
        if not self.redriven_count:
            return []
        found = []
        where = (self.group, self.place.partition)
        for seq, created_us, transaction_id, _ in self.session.rows("redriven_seqs", *where):
            message_id = ids.message_id(self.place.partition, seq, created_us)
            if name in (transaction_id, message_id):
                found.append(seq)
        return found

    def _histories(self, ranges: list[Range]) -> list[int]:
        """Return which messages of the ranges have a history: only they may stop a batch."""
        wanted = Seqs.of(ranges)
        return [seq for seq in self.known() if seq in wanted]

    def _stops(self, seq: int) -> bool:
        return self.history(seq).not_before_us > self.session.now_us or self.goes_alone(seq)

    # --------------------------------------------------------- leases and outcomes

    def live(self) -> bool:
        """Whether there is a lease that has not run out."""
        return self.hold is not None and self.session.now_us < self.expires_us

    def take_back(self) -> None:
        """Take back the lease where it has run out."""
        if self.hold is not None and not self.live():
            self.expire()

    def take(self, lease: str, expires_us: int, seqs: Seqs, *, alone: bool) -> None:
        """Put a batch under a lease."""
        redriven = int(self.redriven_count > 0)  # they stand before all others
        self.hold = Hold(lease, redriven, seqs, Seqs(), Seqs(), Seqs())
        self.open = seqs.copy()
        self.expires_us = expires_us
        self.alone = int(alone)
        self.taken_us = self.session.now_us

    def held(self, lease: str) -> Hold | None:
        """Return the live or last closed lease of that id, or None."""
        if self.hold is not None and self.hold.lease == lease and self.live():
            return self.hold
        return self.closed if self.closed is not None and self.closed.lease == lease else None

    def covering(self, seq: int) -> Hold | None:
        """Return the live lease that covers a message, else the last closed one, or None."""
        if self.hold is not None and self.live() and seq in self.hold.batch:
            return self.hold
        return self.closed if self.closed is not None and seq in self.closed.batch else None

    def first_outcome(self, hold: Hold, seq: int) -> m.Status | None:
        """Return the outcome that a message has under a lease, None while it is open."""
        if hold is self.hold and seq in self.open:
            return None
        return hold.status(seq)

    def complete_now(self, seqs: Iterable[int]) -> None:
        """Settle a batch on delivery, without a lease (C-19)."""
        for seq in seqs:
            self.settle(seq)
        self.taken_us = self.ended_us = self.session.now_us

    def give(self, seq: int, outcome: m.Outcome, error: str | None) -> m.Status:
        """Give an open message of the live lease its outcome; close the lease after the last."""
        hold = self.hold
        assert hold is not None
        self.open.discard(seq)
        if outcome == "completed":
            self.settle(seq)
            status: m.Status = "completed"
        else:
            status = self._failed(hold, seq, outcome, error)
        if not self.open:
            self.close()
        return status

    def close(self) -> None:
        """End the live lease, under which nothing is open any more."""
        self.closed, self.hold = self.hold, None
        self.ended_us = self.session.now_us

    def _failed(self, hold: Hold, seq: int, outcome: m.Outcome, error: str | None) -> m.Status:
        old = self.history(seq)
        now_us = self.session.now_us
        deliveries = old.deliveries + 1
        if outcome == "retry":
            hold.returned.add(seq)
            self.record(seq, old._replace(deliveries=deliveries, not_before_us=max(now_us, 0)))
            return "pending"
        reason = old.error if error is None else error
        failures = old.failures + (outcome == "failed")
        if outcome == "dlq" or failures > self.place.retry_limit:
            hold.dead.add(seq)
            if outcome == "failed" and reason is None:
                reason = EXHAUSTED
            self.bury(seq, failures, deliveries, reason)
            return "dead_letter"
        hold.failed.add(seq)
        not_before_us = now_us + self.place.retry_delay_milliseconds * MILLISECOND
        self.record(seq, History(failures, deliveries, old.expired, not_before_us, reason))
        return "failed"

    def release(self) -> None:
        """Give back what is open under the live lease, uncharged."""
        for seq in list(self.open):
            self.give(seq, "retry", None)

    def expire(self) -> None:
        """Take back a lease that has run out, and charge what has no outcome under it (C-03).

        The charge takes a message past its limit only when it was alone in its claim, and
        with a limit of 0 only at its second expiry: so its neighbours never die for its sake.
        """
        assert self.hold is not None
        limit = self.place.retry_limit
        if self.open:
            self.look_at(self.open.edges[0], self.open.edges[-1])
        for seq in self.open:
            old = self.history(seq)
            in_full = bool(self.alone) and (limit > 0 or bool(old.expired))
            failures = old.failures + 1
            if not in_full:
                failures = max(old.failures, min(failures, limit))
            if in_full and failures > limit:
                self.bury(seq, failures, old.deliveries + 1, m.EXPIRED)
            else:
                new = History(failures, old.deliveries + 1, 1, old.not_before_us, m.EXPIRED)
                self.record(seq, new)
        self.hold = None
        self.open = Seqs()
        self.ended_us = self.expires_us

    def settle(self, seq: int) -> None:
        """Give up a message for good, and pull the position over what is settled behind it."""
        if self._known(seq) is not None:
            self._changed[seq] = None
        where = (self.group, self.place.partition, seq)
        if self.redriven_count and self.session.run("forget_redriven", *where):
            self.redriven_count -= 1  # in the log it was settled before
            return
        if seq == self.position + 1:
            self.position = self.settled.take_head(seq + 1) - 1
        else:
            self.settled.add(seq)

    def bury(self, seq: int, failures: int, deliveries: int, error: str | None) -> None:
        """Set a message aside as a dead letter of the group."""
        what = (
            self.group,
            self.place.partition,
            seq,
            error,
            failures,
            deliveries,
            self.session.now_us,
        )
        if self.redriven_count and self.session.run("bury_again", *what):
            self.redriven_count -= 1
            if self._known(seq) is not None:
                self._changed[seq] = None
        else:
            self.session.run("insert_dead_letter", *what)
            self.settle(seq)

    # ------------------------------------------------ what the operator and age do

    def seek(self, position: int) -> None:
        """Begin again behind a position (C-20).

        What is no longer stored is out of its reach, as a dead letter and when redriven.
        """
        where = (self.group, self.place.partition)
        removed = self.place.first_seq - 1
        self.redriven_count -= self.session.run("forget_redriven_after", *where, removed)
        self.session.run("forget_dead_after", *where, position)
        self.forget_histories(removed + 1, MAX_INTEGER)
        self.forget_leases()
        self.from_us = 0
        self.settled = holes_of(self.session, self.place.partition)
        self.move_to(position)
        self.ended_us = self.session.now_us
        self.session.run("unsettle", self.place.partition, position)

    def evict(self) -> int:
        """Settle what has waited too long, but for a live lease's batch; return how many (C-09)."""
        if not self.place.patience_seconds:
            return 0
        self.skip_too_old()
        too_old_us = self.session.now_us - self.place.patience_seconds * SECOND
        held = Seqs() if self.hold is None else self.hold.batch
        evicted = 0
        if self.redriven_count:
            where = (self.group, self.place.partition)
            rows = self.session.rows("redriven_seqs", *where)
            for seq in [row[0] for row in rows if row[3] <= too_old_us and row[0] not in held]:
                self.settle(seq)
                evicted += 1
        last = seq_before(
            self.session, self.place.partition, self.position, self.place.last_seq, too_old_us + 1
        )
        waiting = self.settled.gaps(self.position + 1, last + 1, MAX_INTEGER)
        if held and waiting:
            for seq in list(Seqs.of(waiting)):
                if seq not in held:
                    self.settle(seq)
                    evicted += 1
        elif waiting:
            evicted += sum(end - first for first, end in waiting)
            self.forget_histories(self.position + 1, last + 1)
            self.move_to(last)
        if evicted:
            self.session.run(
                "insert_removal",
                self.place.queue,
                self.place.partition_name,
                "evicted",
                evicted,
                self.session.now_us,
                self.group,
            )
        return evicted

    def pass_removed(self, removed: int) -> None:
        """Move past what retention has taken out of the partition."""
        if self.retry_count:
            rows = self.session.rows("redriven_seqs", self.group, self.place.partition)
            kept = Seqs.of((row[0], row[0] + 1) for row in rows)
            for first, end in kept.gaps(1, removed + 1, MAX_INTEGER):
                self.forget_histories(first, end)
        if self.position < removed:
            self.move_to(removed)

    def forget_leases(self) -> None:
        """Let go of both leases, so that their ids mean nothing here any more."""
        self.hold = self.closed = None
        self.open = Seqs()

    def move_to(self, position: int) -> None:
        """Put the position further on, and pull it over what is settled behind it."""
        self.settled.drop_until(position + 1)
        self.position = self.settled.take_head(position + 1) - 1


def lane_of(session: Session, partition: int, group: int) -> Lane | None:
    """Return a group's lane in a partition of a live queue, or None."""
    place = place_of(session, partition)
    row = session.row("lane", partition, group)
    return None if place is None or row is None else Lane(session, place, row)
