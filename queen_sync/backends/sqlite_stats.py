"""The numbers of the SQLite backend: queues, groups and lanes, and counts by the minute.

What positions say is added up in SQL. What stands in sets of seqs, which SQL cannot read, is
looked at here, lane by lane; there are no more such lanes than consumers, give or take.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from typing import NamedTuple

import msgspec

from queen_sync import ids, stats as s
from queen_sync.backends.base import Backend
from queen_sync.backends.sqlite_connections import MAX_INTEGER, Connections, Session, bounded
from queen_sync.backends.sqlite_groups import Registration, begins
from queen_sync.backends.sqlite_lane_records import place_of
from queen_sync.backends.sqlite_lanes import Lane, lane_of
from queen_sync.backends.sqlite_seqs import united


class SqliteStatistics(Backend):
    """What `SqliteBackend` tells of itself as a whole."""

    _db: Connections

    def queue_stats(self, queue: str | None = None) -> Sequence[s.QueueStats]:
        return self._db.read(lambda session: _queues(session, queue), snapshot=True)

    def group_stats(
        self, group: str | None = None, queue: str | None = None
    ) -> Sequence[s.GroupStats]:
        return self._db.read(lambda session: _groups(session, group, queue), snapshot=True)

    def lanes(self, wanted: s.LaneFilter) -> Sequence[s.LaneStats]:
        return self._db.read(lambda session: _lanes(session, wanted), snapshot=True)

    def add_counts(self, counts: Sequence[s.QueueCounts]) -> None:
        rows = [
            (bounded(s.minute_of(each.start_us)), each.queue, *msgspec.structs.astuple(each.counts))
            for each in counts
        ]
        if rows:
            self._db.write(lambda session: session.many("add_counts", rows))

    def counts(self, wanted: s.CountFilter) -> Sequence[s.QueueCounts]:
        rows = self._db.read(
            lambda session: session.rows(
                "list_counts",
                bounded(wanted.from_us),
                bounded(wanted.to_us),
                bounded(wanted.bucket_minutes * s.MINUTE),
                wanted.by_queue,
                None if wanted.queues is None else json.dumps(list(wanted.queues)),
            )
        )
        return [
            s.QueueCounts(
                start_us=start_us,
                queue=queue,
                counts=s.Counts(**dict(zip(s.COUNT_NAMES, numbers, strict=True))),
            )
            for start_us, queue, *numbers in rows
        ]

    def forget_counts(self, before_us: int) -> int:
        return self._db.write(lambda session: session.run("forget_counts", bounded(before_us)))


# ------------------------------------------------------------------------------ queues


class _Knots(NamedTuple):
    """What partitions add to the figures of their queue that SQL could not tell."""

    leased: int = 0
    waiting: int = 0
    in_flight: int = 0
    not_retrying: int = 0


def _queues(session: Session, name: str | None) -> list[s.QueueStats]:
    knots: dict[str, list[_Knots]] = {}
    for queue, partition in session.rows("knotty_partitions", name, session.now_us):
        knots.setdefault(queue, []).append(_untied(session, partition))
    found = []
    for queue, partitions, pushed, stored, waiting, retrying, dead in session.rows(
        "queue_stats", name, session.now_us
    ):
        more = _Knots(*map(sum, zip(*knots.get(queue, [_Knots()]), strict=True)))
        found.append(
            s.QueueStats(
                queue=queue,
                partition_count=partitions,
                leased_count=more.leased,
                pushed_count=pushed,
                stored_count=stored,
                waiting_count=waiting + more.waiting,
                in_flight_count=more.in_flight,
                retrying_count=retrying - more.not_retrying,
                dead_count=dead,
            )
        )
    return found


def _untied(session: Session, partition: int) -> _Knots:
    place = place_of(session, partition)
    assert place is not None, "it is of a living queue"
    lanes = [Lane(session, place, tuple(row)) for _, *row in session.rows("named_lanes", partition)]
    ranges = []
    for lane in lanes:
        lane.skip_too_old()
        ranges += lane.waiting()
        ranges += [(seq, seq + 1) for seq in lane.redriven_seqs() if seq >= place.first_seq]
    waiting = united(ranges)
    live = [lane for lane in lanes if lane.live()]
    most = max((len(lane.open) for lane in live), default=0)
    return _Knots(
        leased=int(bool(live)),
        waiting=waiting,
        in_flight=min(waiting, most),
        not_retrying=sum(map(_retried, live)),
    )


def _retried(lane: Lane) -> int:
    """Return how many messages are open under a live lease that have been delivered before."""
    if not lane.retry_count:
        return 0
    lane.look_at(lane.open.edges[0], lane.open.edges[-1])
    return sum(seq in lane.open for seq in lane.known())


# ------------------------------------------------------------------------------ groups


def _groups(session: Session, group: str | None, queue: str | None) -> list[s.GroupStats]:
    found = []
    for (
        number, queue_name, name, mode, start_us, created_us, partitions, lagging, lag, retrying,
        dead, oldest_us, taken_us,
    ) in session.rows("group_stats", group, queue, session.now_us):  # fmt: skip
        knots = [
            lane
            for (partition,) in session.rows("knotty_lanes_of_group", number, session.now_us)
            if (lane := lane_of(session, partition, number)) is not None
        ]
        behind = [_lag(lane) for lane in knots]
        live = [lane for lane in knots if lane.live()]
        instants = [oldest_us, *(_oldest_us(lane) for lane in knots)]
        found.append(
            s.GroupStats(
                queue=queue_name,
                group=name,
                subscription=begins(Registration(mode, start_us, created_us)),
                created_us=created_us,
                partition_count=partitions,
                lagging_count=lagging + sum(each > 0 for each in behind),
                leased_count=len(live),
                lease_count=sum(len(lane.hold.batch) for lane in live if lane.hold is not None),
                lag=lag + sum(behind),
                in_flight_count=sum(len(lane.open) for lane in live),
                retrying_count=retrying - sum(map(_retried, live)),
                dead_count=dead,
                oldest_waiting_us=min((at for at in instants if at is not None), default=None),
                taken_us=taken_us,
            )
        )
    return found


def _lag(lane: Lane) -> int:
    lane.skip_too_old()
    return sum(end - first for first, end in lane.waiting()) + int(lane.redriven_count)


def _oldest_us(lane: Lane) -> int | None:
    lane.skip_too_old()
    waiting = lane.waiting()
    row = None
    if waiting:
        row = lane.session.row("message_at", lane.place.partition, waiting[0][0])
    return None if row is None else int(row[0])


# ------------------------------------------------------------------------------- lanes


class _Key(NamedTuple):
    """A lane with what it is ordered by."""

    rank: int
    queue: str
    partition_name: str
    group_name: str
    partition: int
    group: int


def _lanes(session: Session, wanted: s.LaneFilter) -> list[s.LaneStats]:
    end = wanted.offset + wanted.limit
    keys = [*_listed(session, wanted, end), *_late(session, wanted)]
    page = sorted(keys)[wanted.offset : end]
    return [_lane(session, key) for key in page]


def _listed(session: Session, wanted: s.LaneFilter, end: int) -> Iterator[_Key]:
    since_us = wanted.waiting_since_us
    rows = session.rows(
        "list_lanes",
        wanted.queue,
        wanted.group,
        wanted.partition,
        wanted.leased,
        None if since_us is None else bounded(since_us),
        session.now_us,
        wanted.order,
        bounded(end),
    )
    for queue, partition_name, group_name, partition, group, lag, oldest_us, expires_us in rows:
        rank = _rank(wanted.order, lag, oldest_us, expires_us)
        yield _Key(rank, queue, partition_name, group_name, partition, group)


def _late(session: Session, wanted: s.LaneFilter) -> Iterator[_Key]:
    """Yield the lanes of groups that have still to pass over what is too old for them."""
    scope = (wanted.queue, wanted.group, wanted.partition, wanted.leased, session.now_us)
    for queue, partition_name, group_name, partition, group in session.rows(
        "late_lanes_of_scope", *scope
    ):
        lane = lane_of(session, partition, group)
        assert lane is not None, "it is of a living queue"
        oldest_us = _oldest_us(lane)
        since_us = wanted.waiting_since_us
        if since_us is None or (oldest_us is not None and oldest_us <= since_us):
            expires_us = lane.expires_us if lane.live() else None
            rank = _rank(wanted.order, _lag(lane), oldest_us, expires_us)
            yield _Key(rank, queue, partition_name, group_name, partition, group)


def _rank(order: s.LaneOrder, lag: int, oldest_us: int | None, expires_us: int | None) -> int:
    if order == "lag":
        return -lag
    if order == "age":
        return MAX_INTEGER if oldest_us is None else oldest_us
    if order == "expiry":
        return MAX_INTEGER if expires_us is None else expires_us
    return 0


def _lane(session: Session, key: _Key) -> s.LaneStats:
    lane = lane_of(session, key.partition, key.group)
    taken = session.row("lane_taken", key.partition, key.group)
    assert lane is not None, "it was found in this snapshot"
    assert taken is not None
    live = lane.live()
    lane.skip_too_old()
    waiting = sum(end - first for first, end in lane.waiting())
    return s.LaneStats(
        queue=key.queue,
        partition=key.partition_name,
        partition_id=ids.partition_id(key.partition),
        group=key.group_name,
        passed_count=lane.place.last_seq - waiting,
        lag=waiting + lane.redriven_count,
        in_flight_count=len(lane.open) if live else 0,
        lease_count=len(lane.hold.batch) if live and lane.hold is not None else 0,
        lease_expires_us=lane.expires_us if live else None,
        oldest_waiting_us=_oldest_us(lane),
        taken_us=taken[0],
    )
