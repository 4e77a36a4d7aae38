"""Answers about queues, partitions, groups and lanes, read into values of the model."""

from __future__ import annotations

from datetime import datetime
from typing import Any, cast

import msgspec

from queen_sync import inspection as i, model as m, stats as s
from queen_sync.clock import to_us
from queen_sync.wire.options import OPTION_NAMES
from queen_sync.wire.texts import instant
from queen_sync.wire_client.answers import Answer, us

_OPTION_OF = {wire: name for name, wire in OPTION_NAMES.items()}


def _maybe_us(at: datetime | None) -> int | None:
    return None if at is None else to_us(at)


class _Pagination(Answer):
    total: int


# --------------------------------------------------------------------------- queues


class _Queue(Answer):
    id: str
    name: str
    partition_id: str
    created_at: datetime
    options: dict[str, int | bool]
    namespace: str = ""
    task: str = ""

    def value(self) -> m.Queue:
        options = {_OPTION_OF[k]: v for k, v in self.options.items() if k in _OPTION_OF}
        return m.Queue(
            id=self.id,
            name=self.name,
            namespace=self.namespace,
            task=self.task,
            options=m.QueueOptions(**cast(dict[str, Any], options)),
            default_partition_id=self.partition_id,
            created_us=to_us(self.created_at),
        )


class _Queues(Answer):
    queues: list[_Queue]
    pagination: _Pagination


def decode_queue(body: bytes) -> m.Queue:
    """Read one queue."""
    return msgspec.json.decode(body, type=_Queue).value()


def decode_queues(body: bytes) -> tuple[list[m.Queue], int]:
    """Read a page of queues, and how many there are in all."""
    answer = msgspec.json.decode(body, type=_Queues)
    return [queue.value() for queue in answer.queues], answer.pagination.total


class _PartitionGroup(Answer):
    name: str
    lag: int
    processing: int
    failed: int
    dead_letter: int
    batch_size: int
    lease_expires_at: datetime | None = None
    oldest_waiting_at: datetime | None = None
    unreadable: str | None = None

    def value(self) -> i.PartitionGroup:
        return i.PartitionGroup(
            name=self.name,
            lag=self.lag,
            in_flight_count=self.processing,
            retrying_count=self.failed,
            dead_count=self.dead_letter,
            lease_expires_us=_maybe_us(self.lease_expires_at),
            lease_count=self.batch_size,
            oldest_waiting_us=_maybe_us(self.oldest_waiting_at),
            unreadable=self.unreadable,
        )


class _Six(Answer):
    total: int


class _Partition(Answer):
    id: str
    name: str
    created_at: datetime
    stats: _Six
    stored: int
    waiting: int
    oldest_message: datetime | None
    newest_message: datetime | None
    consumer_groups: list[_PartitionGroup]


class _QueueDetail(Answer):
    partitions: list[_Partition]
    pagination: _Pagination


def decode_partitions(body: bytes, queue: str) -> tuple[list[i.PartitionState], int]:
    """Read a page of the partitions of a queue, and how many there are in all."""
    answer = msgspec.json.decode(body, type=_QueueDetail)
    states = [
        i.PartitionState(
            queue=queue,
            id=found.id,
            name=found.name,
            created_us=to_us(found.created_at),
            pushed_count=found.stats.total,
            stored_count=found.stored,
            waiting_count=found.waiting,
            oldest_us=_maybe_us(found.oldest_message),
            newest_us=_maybe_us(found.newest_message),
            groups=[group.value() for group in found.consumer_groups],
        )
        for found in answer.partitions
    ]
    return states, answer.pagination.total


class _Figures(Answer):
    queue: str
    partitions: int
    total: int
    processing: int
    failed: int
    dead_letter: int
    stored: int
    waiting: int
    leased_partitions: int


class _AllFigures(Answer):
    queues: list[_Figures]


def decode_figures(body: bytes) -> list[s.QueueStats]:
    """Read how queues stand."""
    return [
        s.QueueStats(
            queue=found.queue,
            partition_count=found.partitions,
            leased_count=found.leased_partitions,
            pushed_count=found.total,
            stored_count=found.stored,
            waiting_count=found.waiting,
            in_flight_count=found.processing,
            retrying_count=found.failed,
            dead_count=found.dead_letter,
        )
        for found in msgspec.json.decode(body, type=_AllFigures).queues
    ]


# --------------------------------------------------------------------------- groups


class _Group(Answer):
    name: str
    queue_name: str
    members: int
    partitions_with_lag: int
    total_lag: int
    subscription_mode: m.SubscriptionMode
    active_leases: int
    batch_size: int
    processing: int
    failed: int
    dead_letter: int
    subscription_created_at: datetime
    subscription_timestamp: datetime | None = None
    oldest_waiting_at: datetime | None = None
    last_consumed_at: datetime | None = None


def decode_groups(body: bytes) -> list[s.GroupStats]:
    """Read how groups stand, one for each group and queue."""
    return [
        s.GroupStats(
            queue=found.queue_name,
            group=found.name,
            subscription=m.Subscription(
                mode=found.subscription_mode, from_us=_maybe_us(found.subscription_timestamp)
            ),
            created_us=us(found.subscription_created_at),
            partition_count=found.members,
            lagging_count=found.partitions_with_lag,
            leased_count=found.active_leases,
            lease_count=found.batch_size,
            lag=found.total_lag,
            in_flight_count=found.processing,
            retrying_count=found.failed,
            dead_count=found.dead_letter,
            oldest_waiting_us=_maybe_us(found.oldest_waiting_at),
            taken_us=_maybe_us(found.last_consumed_at),
        )
        for found in msgspec.json.decode(body, type=list[_Group])
    ]


class _Lane(Answer):
    queue: str
    partition: str
    partition_id: str
    consumer_group: str
    total_consumed: int
    lag: int
    processing: int
    batch_size: int
    lease_expires_at: datetime | None = None
    oldest_waiting_at: datetime | None = None
    taken_at: datetime | None = None


class _Lanes(Answer):
    lanes: list[_Lane]


def decode_lanes(body: bytes) -> list[s.LaneStats]:
    """Read a page of lanes."""
    return [
        s.LaneStats(
            queue=found.queue,
            partition=found.partition,
            partition_id=found.partition_id,
            group=found.consumer_group,
            passed_count=found.total_consumed,
            lag=found.lag,
            in_flight_count=found.processing,
            lease_count=found.batch_size,
            lease_expires_us=_maybe_us(found.lease_expires_at),
            oldest_waiting_us=_maybe_us(found.oldest_waiting_at),
            taken_us=_maybe_us(found.taken_at),
        )
        for found in msgspec.json.decode(body, type=_Lanes).lanes
    ]


def lane_query(wanted: s.LaneFilter) -> dict[str, str]:
    """Return the query that asks for lanes."""
    since = None if wanted.waiting_since_us is None else instant(wanted.waiting_since_us)
    given = {
        "queue": wanted.queue,
        "consumerGroup": wanted.group,
        "partition": wanted.partition,
        "waitingSince": since,
    }
    query = {name: value for name, value in given.items() if value is not None}
    if wanted.leased:
        query["leased"] = "true"
    return query | {
        "order": wanted.order,
        "limit": str(wanted.limit),
        "offset": str(wanted.offset),
    }
