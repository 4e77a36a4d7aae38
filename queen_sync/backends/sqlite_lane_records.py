"""A row of ``partition_leases`` in the hands of one call, and the histories that belong to it.

What is done with them is in `sqlite_lanes`.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import NamedTuple

from queen_sync import model as m
from queen_sync.backends.sqlite_connections import Row, Session
from queen_sync.backends.sqlite_seqs import Seqs


class Place(NamedTuple):
    """A partition, and what its queue says about delivery."""

    partition: int
    partition_name: str
    first_seq: int
    last_seq: int
    last_pushed_us: int
    queue: int
    queue_name: str
    lease_seconds: int
    retry_limit: int
    retry_delay_milliseconds: int
    delayed_processing_seconds: int
    window_buffer_seconds: int
    require_lease_id: int
    priority: int
    ttl_seconds: int
    max_wait_seconds: int

    @property
    def patience_seconds(self) -> int:
        """After how long a waiting message is evicted, 0 for never (C-09)."""
        limits = [seconds for seconds in (self.ttl_seconds, self.max_wait_seconds) if seconds]
        return min(limits, default=0)

    @property
    def effective_lease_seconds(self) -> int:
        """How long a lease lasts: 0 means 60."""
        return self.lease_seconds or m.DEFAULT_LEASE_SECONDS


def place_of(session: Session, partition: int) -> Place | None:
    """Return a partition of a live queue, or None."""
    row = session.row("place", partition)
    return None if row is None else Place._make(row)


class History(NamedTuple):
    """What has happened to an unsettled message that was delivered before."""

    failures: int = 0
    deliveries: int = 0
    expired: int = 0
    not_before_us: int = 0
    error: str | None = None


FRESH = History()


class Hold(NamedTuple):
    """A lease in a lane: what it delivered and the outcomes that are not ``completed``."""

    lease: str
    redriven: int
    """It covers copies of dead letters, not what is stored; of no account once it is closed."""
    batch: Seqs
    failed: Seqs
    returned: Seqs
    dead: Seqs

    def status(self, seq: int) -> m.Status:
        """Return what became of a message that has its outcome."""
        if seq in self.failed:
            return "failed"
        if seq in self.returned:
            return "pending"
        return "dead_letter" if seq in self.dead else "completed"


class LaneRecord(ABC):
    """What is stored of the progress of one group in one partition."""

    def __init__(self, session: Session, place: Place, row: Row) -> None:
        (
            _, self.group, self.position, settled, self.from_us, self.ended_us, self.retry_count,
            self.redriven_count, self.ready_us, lease, self.expires_us, self.alone, redriven, batch,
            open_, failed, returned, dead, closed, closed_batch, closed_failed, closed_returned,
            closed_dead,
        ) = row  # fmt: skip
        self.session = session
        self.place = place
        decode = Seqs.decode
        self.settled = decode(settled)
        self.open = decode(open_)
        self.hold: Hold | None = None
        """The live lease; one that has run out stays until it is taken back."""
        self.closed: Hold | None = None
        self.taken_us: int | None = None
        """Now, where the group has just taken messages."""
        if lease is not None:
            self.hold = Hold(lease, redriven, *map(decode, (batch, failed, returned, dead)))
        if closed is not None:
            blobs = (closed_batch, closed_failed, closed_returned, closed_dead)
            self.closed = Hold(closed, 0, *map(decode, blobs))
        self._stored: dict[int, History | None] = {}
        self._looked_at = (0, 0)
        self._changed: dict[int, History | None] = {}

    @abstractmethod
    def ready(self) -> int | None:
        """Return when a pop may take the lane, None where nothing waits."""

    def save(self, *, ready: bool = True) -> None:
        """Write the row and the histories; ``ready``: work out anew when a pop may come."""
        if self.hold is not None:
            self.ready_us = self.expires_us
        elif ready:
            self.ready_us = self.ready()
        self._save_histories()
        hold, closed = self.hold, self.closed
        live = (
            (None, None, 0, 0, None, None, None, None, None)
            if hold is None
            else (
                hold.lease,
                self.expires_us,
                self.alone,
                hold.redriven,
                hold.batch.encode(),
                self.open.encode(),
                hold.failed.encode(),
                hold.returned.encode(),
                hold.dead.encode(),
            )
        )
        last = (
            (None, None, None, None, None)
            if closed is None
            else (
                closed.lease,
                closed.batch.encode(),
                closed.failed.encode(),
                closed.returned.encode(),
                closed.dead.encode(),
            )
        )
        self.session.run(
            "save_lane",
            self.position,
            self.settled.encode(),
            len(self.settled),
            self.from_us,
            self.ended_us,
            self.retry_count,
            self.redriven_count,
            self.ready_us,
            *live,
            *last,
            self.taken_us,
            self.place.partition,
            self.group,
        )

    # -------------------------------------------------------------- what has happened

    def history(self, seq: int) -> History:
        """Return what has happened to a message."""
        return self._known(seq) or FRESH

    def _known(self, seq: int) -> History | None:
        if seq in self._changed:
            return self._changed[seq]
        if not self.retry_count:
            return None
        first, end = self._looked_at
        if seq not in self._stored and not first <= seq < end:
            row = self.session.row("retry", self.group, self.place.partition, seq)
            self._stored[seq] = None if row is None else History._make(row)
        return self._stored.get(seq)

    def look_at(self, first: int, end: int) -> None:
        """Read the histories from ``first`` to before ``end`` at once."""
        if self.retry_count:
            rows = self.session.rows(
                "retries_between", self.group, self.place.partition, first, end
            )
            self._stored.update((seq, History._make(rest)) for seq, *rest in rows)
            self._looked_at = (first, end)

    def known(self) -> list[int]:
        """Return which of the messages that were looked at have a history, ascending."""
        return sorted(seq for seq, history in self._stored.items() if history is not None)

    def _save_histories(self) -> None:
        if not self._changed:
            return
        where = (self.group, self.place.partition)
        kept = [(seq, new) for seq, new in self._changed.items() if new is not None]
        gone = [seq for seq, new in self._changed.items() if new is None]
        self.session.many("save_retry", [(*where, seq, *new) for seq, new in kept])
        self.session.many("delete_retry", [(*where, seq) for seq in gone])
        self.retry_count += sum(self._stored.get(seq) is None for seq, _ in kept)
        self.retry_count -= sum(self._stored.get(seq) is not None for seq in gone)
        self._stored.update(self._changed)
        self._changed = {}

    def record(self, seq: int, history: History) -> None:
        """Keep what has happened to a message."""
        self._known(seq)  # so that saving knows whether there is a row
        self._changed[seq] = history

    def forget_histories(self, first: int, end: int) -> None:
        """Forget what has happened to the messages from ``first`` to before ``end``."""
        self._save_histories()
        where = (self.group, self.place.partition)
        if self.retry_count:
            self.retry_count -= self.session.run("delete_retries_between", *where, first, end)
        self._stored = {}
        self._looked_at = (0, 0)
