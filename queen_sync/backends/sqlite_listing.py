"""Pages of messages: in which order, and which of them a status leaves.

The status of a message is told from positions, leases, failures and dead letters, as sets of
seqs. So what a listing passes over is never read.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from heapq import heappop, heappush
from itertools import chain, islice

from queen_sync import ids, inspection as i
from queen_sync.backends.sqlite_connections import MAX_INTEGER, Row, Session, bounded
from queen_sync.backends.sqlite_holes import holes_of, seq_before
from queen_sync.backends.sqlite_lane_records import Place, place_of
from queen_sync.backends.sqlite_lanes import Lane
from queen_sync.backends.sqlite_seqs import Range, Seqs, together

FIRST_CHUNK = 16
LONGEST_CHUNK = 1_024
"""So many messages of a partition are read at once: few at first, since many partitions share a
page, and twice as many each time."""

Listed = tuple[int, int, int, str | None, str | None, str, str]
"""created_us, partition, seq, transaction id, trace id, and the queue's and partition's names."""

_Heads = list[tuple[tuple[int, int, int], Listed, Iterator[Listed]]]
"""The next message of each partition that is being read, with what orders it and what follows."""


def page_of(session: Session, wanted: i.MessageFilter) -> tuple[Sequence[Listed], bool]:
    """Return the rows of a page, and whether there are more behind it."""
    listing = _newest_first if wanted.trace_id is None else _traced
    end = wanted.offset + wanted.limit
    rows = list(islice(listing(session, wanted), wanted.offset, end + 1))
    return rows[: wanted.limit], len(rows) > wanted.limit


# -------------------------------------------------------------------------- the orders


def _newest_first(session: Session, wanted: i.MessageFilter) -> Iterator[Listed]:
    """Yield messages by (created_us, partition, seq), falling: the order of (created_us, id).

    Along seq created_us never falls, so this merges the partitions, each read backwards and only
    as far as it is needed. One in which nothing can come before what is in hand is not opened.
    """
    heads: _Heads = []
    to_us = MAX_INTEGER if wanted.to_us is None else bounded(wanted.to_us)
    before_us, partition, _ = _key(wanted) or (MAX_INTEGER, MAX_INTEGER, 0)
    closed = iter(
        session.rows(
            "listed_partitions", to_us, before_us, partition, *_which(wanted), wanted.status
        )
    )
    place = next(closed, None)
    while place is not None or heads:
        if place is not None and (not heads or (-place[0], -place[2]) <= heads[0][0][:2]):
            _open(heads, _backwards(session, place, wanted))
            place = next(closed, None)
            continue
        _, row, rest = heappop(heads)
        yield row
        _open(heads, rest)


def _key(wanted: i.MessageFilter) -> tuple[int, int, int] | None:
    """Return where the last page ended as it orders: (created_us, partition, seq)."""
    said = None if wanted.before is None else ids.address(wanted.before[1])
    if wanted.before is None or said is None:
        return None
    return bounded(wanted.before[0]), said.partition, said.seq


def _open(heads: _Heads, rows: Iterator[Listed]) -> None:
    """Take the next message of a partition in hand."""
    row = next(rows, None)
    if row is not None:
        heappush(heads, ((-row[0], -row[1], -row[2]), row, rows))


def _which(wanted: i.MessageFilter) -> tuple[str | None, ...]:
    return wanted.queue, wanted.partition, wanted.namespace, wanted.task, wanted.group


def _backwards(session: Session, row: Row, wanted: i.MessageFilter) -> Iterator[Listed]:
    """Yield what is wanted of a partition, the last message first."""
    _, pushed_us, partition, first, last, queue_name, partition_name = row
    if wanted.to_us is not None and wanted.to_us < pushed_us:
        last = seq_before(session, partition, first - 1, last, bounded(wanted.to_us) + 1)
    key = _key(wanted)
    if key is not None:
        last = min(last, _last_before(session, row, key))
    if wanted.from_us is not None:
        first = seq_before(session, partition, first - 1, last, bounded(wanted.from_us)) + 1
    ranges: list[Range] = [(first, last + 1)]
    if wanted.status is not None:
        found = with_status(session, partition, wanted.group, wanted.status)
        ranges = list(found.within(first, last + 1).ranges())
    chunk = FIRST_CHUNK
    for low, high in reversed(ranges):
        end = high
        while low < end:
            rows = session.rows("newest_messages", partition, low, end - 1, chunk)
            for each in rows:
                yield (*each, queue_name, partition_name)
            if len(rows) < chunk:
                break
            end = rows[-1][2]
            chunk = min(2 * chunk, LONGEST_CHUNK)


def _last_before(session: Session, row: Row, key: tuple[int, int, int]) -> int:
    """Return the last seq of a partition that stands behind a key in the listing."""
    _, pushed_us, partition, first, last, *_ = row
    key_us, key_partition, key_seq = key

    def until(instant_us: int) -> int:
        if pushed_us < instant_us:
            return int(last)
        return seq_before(session, partition, first - 1, last, instant_us)

    # Of several messages of one instant those of the lower partition stand behind.
    if partition > key_partition:
        return until(key_us)
    if partition < key_partition:
        return until(key_us + 1)
    return max(until(key_us), min(until(key_us + 1), key_seq - 1))


def _traced(session: Session, wanted: i.MessageFilter) -> Iterator[Listed]:
    """Yield the messages of a trace, the oldest first."""
    after = _key(wanted) or (-MAX_INTEGER, 0, 0)
    if wanted.from_us is not None:
        after = max(after, (bounded(wanted.from_us), 0, 0))
    to_us = MAX_INTEGER if wanted.to_us is None else bounded(wanted.to_us)
    statuses: dict[int, Seqs] = {}
    while True:
        rows = session.rows(
            "traced_messages", wanted.trace_id, *after, to_us, *_which(wanted), LONGEST_CHUNK
        )
        for row in rows:
            partition, seq = row[1:3]
            if wanted.status is not None and partition not in statuses:
                statuses[partition] = with_status(session, partition, wanted.group, wanted.status)
            if wanted.status is None or seq in statuses[partition]:
                yield row
        if len(rows) < LONGEST_CHUNK:
            return
        after = rows[-1][:3]


# ------------------------------------------------------------------------ the statuses


def with_status(
    session: Session, partition: int, group: str | None, status: i.MessageStatus
) -> Seqs:
    """Return the stored messages of a partition that have a status.

    For one group, or for all together: then it is the first of `STATUSES` that counts.
    """
    place = place_of(session, partition)
    if place is None:
        return Seqs()
    whole = Seqs.of([(place.first_seq, place.last_seq + 1)])
    stored = whole.minus(holes_of(session, partition))
    lanes = lanes_of_partition(session, place, group)
    if not lanes:
        return stored if status == "pending" else Seqs()
    sets = [_Statuses(lane, stored) for _, lane in lanes]
    found = Seqs()
    above = Seqs()
    for each in i.STATUSES:
        found = together(chain.from_iterable(one.of(each).ranges() for one in sets))
        if each == status:
            break
        above = together(chain(above.ranges(), found.ranges()))
    # What has left the store may still be dead, or be given back and in flight.
    return found.minus(above).both(stored)


def lanes_of_partition(session: Session, place: Place, group: str | None) -> list[tuple[str, Lane]]:
    """Return the lanes of a partition by group, moved over what is not for their groups."""
    lanes = []
    for name, *row in session.rows("named_lanes", place.partition):
        if group in (None, name):
            lane = Lane(session, place, tuple(row))
            lane.skip_too_old()
            lanes.append((name, lane))
    return lanes


class _Statuses:
    """What the messages of a lane are for its group, as sets of seqs, worked out when asked for."""

    def __init__(self, lane: Lane, stored: Seqs) -> None:
        self._lane = lane
        self._stored = stored

    def of(self, status: i.MessageStatus) -> Seqs:
        sets: dict[i.MessageStatus, Callable[[], Seqs]] = {
            "dead_letter": self._dead,
            "failed": self._failed,
            "processing": self._processing,
            "pending": self._waiting,  # also what failed or is in flight, which comes before it
            "completed": self._completed,
        }
        return sets[status]()

    def _seqs(self, statement: str) -> Seqs:
        lane = self._lane
        rows = lane.session.rows(statement, lane.group, lane.place.partition)
        return Seqs.of((row[0], row[0] + 1) for row in rows)

    def _dead(self) -> Seqs:
        return self._seqs("dead_seqs")

    def _processing(self) -> Seqs:
        return self._lane.open if self._lane.live() else Seqs()

    def _failed(self) -> Seqs:
        if not self._lane.retry_count:
            return Seqs()
        return self._seqs("failed_seqs").minus(self._processing())

    def _waiting(self) -> Seqs:
        again = [(seq, seq + 1) for seq in self._lane.redriven_seqs()]
        return together([*self._lane.waiting(), *again])

    def _completed(self) -> Seqs:
        return self._stored.minus(self._waiting()).minus(self._dead())
