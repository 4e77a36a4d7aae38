"""The numbers of the PostgreSQL backend: queues, groups and lanes, and counts by the minute."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Sequence
from datetime import datetime
from typing import Any

import msgspec

from queen_sync import ids, stats as s
from queen_sync.backends.base import Backend
from queen_sync.backends.postgres_connections import POSTGRES_EPOCH_US, Connections
from queen_sync.backends.postgres_pop import instant
from queen_sync.backends.postgres_rows import subscription_of
from queen_sync.clock import to_datetime

_QUEUES = "select * from queen.queue_stats(%s, %s)"
_GROUPS = "select * from queen.group_stats(%s, %s, %s)"
_LANES = "select * from queen.list_lanes(%s, %s, %s, %s, %s, %s, %s::int4, %s::int4, %s)"
_ADD_COUNTS = "select queen.add_counts(%s::timestamptz[], %s::text[], %s::int8[])"
_COUNTS = "select * from queen.list_counts(%s, %s, %s::int4, %s::text[], %s)"
_FORGET_COUNTS = "select queen.forget_counts(%s)"
MAX_OFFSET = 2**31 - 1


class PostgresStatistics(Backend):
    """What `PostgresBackend` tells of itself as a whole."""

    _db: Connections

    @abstractmethod
    def _now(self) -> datetime | None:
        """Return the caller's clock, None where the server's decides."""

    def queue_stats(self, queue: str | None = None) -> Sequence[s.QueueStats]:
        rows = self._read(_QUEUES, [queue, self._now()])
        return [
            s.QueueStats(
                queue=name,
                partition_count=partitions,
                leased_count=leased,
                pushed_count=pushed,
                stored_count=stored,
                waiting_count=waiting,
                in_flight_count=in_flight,
                retrying_count=retrying,
                dead_count=dead,
            )
            for (
                name, partitions, leased, pushed, stored, waiting, in_flight, retrying, dead,
            ) in rows
        ]  # fmt: skip

    def group_stats(
        self, group: str | None = None, queue: str | None = None
    ) -> Sequence[s.GroupStats]:
        return [_group(row) for row in self._read(_GROUPS, [group, queue, self._now()])]

    def lanes(self, wanted: s.LaneFilter) -> Sequence[s.LaneStats]:
        which = [
            wanted.queue,
            wanted.group,
            wanted.partition,
            wanted.leased,
            instant(wanted.waiting_since_us),
            wanted.order,
            wanted.limit,
            min(wanted.offset, MAX_OFFSET),
            self._now(),
        ]
        return [_lane(row) for row in self._read(_LANES, which)]

    def add_counts(self, counts: Sequence[s.QueueCounts]) -> None:
        if not counts:
            return
        merged: dict[tuple[int, str], s.Counts] = {}
        for each in counts:
            # One statement cannot touch a row twice.
            key = s.minute_of(each.start_us), each.queue
            merged[key] = s.total([merged.get(key, s.Counts()), each.counts])
        arguments = [
            [to_datetime(minute_us) for minute_us, _ in merged],
            [queue for _, queue in merged],
            [number for each in merged.values() for number in msgspec.structs.astuple(each)],
        ]
        self._db.call(lambda cursor: cursor.execute(_ADD_COUNTS, arguments).fetchone())

    def counts(self, wanted: s.CountFilter) -> Sequence[s.QueueCounts]:
        which = [
            instant(wanted.from_us),
            instant(wanted.to_us),
            wanted.bucket_minutes,
            None if wanted.queues is None else list(wanted.queues),
            wanted.by_queue,
        ]
        return [
            s.QueueCounts(
                start_us=start + POSTGRES_EPOCH_US,
                queue=queue,
                counts=s.Counts(**dict(zip(s.COUNT_NAMES, numbers, strict=True))),
            )
            for start, queue, *numbers in self._read(_COUNTS, which)
        ]

    def forget_counts(self, before_us: int) -> int:
        row = self._db.call(
            lambda cursor: cursor.execute(_FORGET_COUNTS, [instant(before_us)]).fetchone()
        )
        assert row is not None
        return int(row[0])

    def _read(self, statement: str, arguments: Sequence[Any]) -> list[tuple[Any, ...]]:
        return self._db.call(
            lambda cursor: cursor.execute(statement, arguments).fetchall(), writes=False
        )


def _us(stored: int | None) -> int | None:
    return None if stored is None else stored + POSTGRES_EPOCH_US


def _group(row: tuple[Any, ...]) -> s.GroupStats:
    (
        queue, name, mode, start, created, partitions, lagging, leased, batch, lag, in_flight,
        retrying, dead, oldest, taken,
    ) = row  # fmt: skip
    return s.GroupStats(
        queue=queue,
        group=name,
        subscription=subscription_of(mode, start),
        created_us=created + POSTGRES_EPOCH_US,
        partition_count=partitions,
        lagging_count=lagging,
        leased_count=leased,
        lease_count=batch,
        lag=lag,
        in_flight_count=in_flight,
        retrying_count=retrying,
        dead_count=dead,
        oldest_waiting_us=_us(oldest),
        taken_us=_us(taken),
    )


def _lane(row: tuple[Any, ...]) -> s.LaneStats:
    (
        queue, partition, number, group, passed, lag, in_flight, leased, expires, oldest, taken,
    ) = row  # fmt: skip
    return s.LaneStats(
        queue=queue,
        partition=partition,
        partition_id=ids.partition_id(number),
        group=group,
        passed_count=passed,
        lag=lag,
        in_flight_count=in_flight,
        lease_count=leased,
        lease_expires_us=_us(expires),
        oldest_waiting_us=_us(oldest),
        taken_us=_us(taken),
    )
