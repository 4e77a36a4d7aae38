"""Bodies of answers about how things go: throughput, lag, leases, depths, by queue and over time.

A number that this server has no means of telling is null, never an invented zero.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import msgspec

from queen_sync import inspection as i, model as m, stats as s
from queen_sync.clock import SECOND
from queen_sync.wire.analytics_answers import Rows, delays, depth_row, percent
from queen_sync.wire.listing_queries import Page, Span
from queen_sync.wire.options import OPTION_NAMES
from queen_sync.wire.resource_answers import (
    maybe_instant,
    pagination,
    per_second,
    seconds_since,
    six,
    six_of_all,
)
from queen_sync.wire.texts import instant

STUCK_SECONDS = 30
"""A lease that ends so soon is about to be lost by whoever holds it."""
_UNKNOWN_HERE = (
    "avgEventLoopLagMs",
    "maxEventLoopLagMs",
    "minFreeSlots",
    "dbErrors",
    "queenCpuUserPct",
    "queenCpuSysPct",
    "queenRssMb",
    "dbPoolActive",
    "dbPoolIdle",
    "dbPoolSize",
)
"""What other servers keep by the minute and this one does not."""
_CONFIG = (
    "lease_seconds",
    "retry_limit",
    "retry_delay_milliseconds",
    "ttl_seconds",
    "dead_letter_queue",
)
_json = msgspec.json.encode


class Worker(msgspec.Struct, frozen=True, kw_only=True):
    """The process that answers."""

    worker_id: int
    hostname: str
    free_slots: int
    message_count: int


# ---------------------------------------------------------------------- one queue


def encode_queue_status(
    queue: m.Queue, stats: s.QueueStats, partitions: Iterable[i.PartitionState], page: Page
) -> bytes:
    """Return a queue, what matters of its options, and a page of its partitions."""
    config = {OPTION_NAMES[name]: getattr(queue.options, name) for name in _CONFIG}
    return _json(
        {
            "queue": {
                "id": queue.id,
                "name": queue.name,
                "namespace": queue.namespace,
                "task": queue.task,
                "priority": queue.options.priority,
                "createdAt": instant(queue.created_us),
                "config": {**config, "maxQueueSize": queue.options.max_queue_size},
            },
            "partitions": [_partition_status(state) for state in partitions],
            "totals": {"messages": six(stats), **six(stats)},
            "pagination": pagination(page, stats.partition_count),
        }
    )


def _partition_status(state: i.PartitionState) -> dict[str, Any]:
    counts = six(s.of_partition(state))
    return {
        "id": state.id,
        "name": state.name,
        "createdAt": instant(state.created_us),
        "messages": counts,
        "stats": counts,
        "cursor": {"totalConsumed": counts["completed"], "batchesConsumed": None},
        "lastActivity": maybe_instant(state.newest_us),
        "oldestMessage": maybe_instant(state.oldest_us),
        "newestMessage": maybe_instant(state.newest_us),
    }


# --------------------------------------------------------------------- over time


def encode_status(
    span: Span,
    buckets: Sequence[s.QueueCounts],
    rows: Rows,
    groups: Sequence[s.GroupStats],
    worker: Worker,
) -> bytes:
    """Return the whole status page, the newest of the throughput first."""
    minutes = span.bucket_minutes
    counts = s.total([bucket.counts for bucket in buckets])
    stats = [each for _, each in rows]
    return _json(
        {
            "timeRange": {"from": instant(span.from_us), "to": instant(span.to_us)},
            "bucketMinutes": minutes,
            "pointCount": len(buckets),
            "throughput": [_point(bucket, minutes) for bucket in reversed(buckets)],
            "queues": [
                {
                    "id": queue.id,
                    "name": queue.name,
                    "namespace": queue.namespace,
                    "task": queue.task,
                    "partitions": each.partition_count,
                    "totalConsumed": each.completed_count,
                }
                for queue, each in rows
            ],
            "messages": {**six_of_all(stats), **_requests(counts)},
            "leases": {
                "active": sum(group.leased_count for group in groups),
                "partitionsWithLeases": sum(each.leased_count for each in stats),
                "totalBatchSize": sum(group.lease_count for group in groups),
                "totalAcked": sum(group.lease_count - group.in_flight_count for group in groups),
            },
            "deadLetterQueue": {
                "totalMessages": sum(each.dead_count for each in stats),
                "affectedPartitions": None,
                "topErrors": [],
            },
            "workers": [
                {
                    "workerId": worker.worker_id,
                    "hostname": worker.hostname,
                    "freeSlots": worker.free_slots,
                    "dbConnections": None,
                    "jobQueueSize": None,
                    "messagesProcessed": worker.message_count,
                    "avgEventLoopLagMs": None,
                    "maxEventLoopLagMs": None,
                }
            ],
            "errors": {
                "dbErrors": None,
                "ackFailed": counts.refused,
                "dlqMessages": counts.dead_lettered,
            },
            "statsAge": 0,
        }
    )


def _point(bucket: s.QueueCounts, minutes: int) -> dict[str, Any]:
    counts = bucket.counts
    processed = counts.completed + counts.dead_lettered
    return {
        "timestamp": instant(bucket.start_us),
        "ingested": counts.pushed,
        "processed": processed,
        "popMessages": counts.popped,
        "ingestedPerSecond": per_second(counts.pushed, minutes),
        "processedPerSecond": per_second(processed, minutes),
        "popPerSecond": per_second(counts.popped, minutes),
        **delays(counts),
        "ackFailed": counts.refused,
        "dlqCount": counts.dead_lettered,
        **dict.fromkeys(_UNKNOWN_HERE),
    }


def _requests(counts: s.Counts) -> dict[str, Any]:
    acked = counts.completed + counts.failed + counts.given_back + counts.dead_lettered
    pairs = {
        "push": (counts.pushed + counts.duplicates, counts.push_requests),
        "pop": (counts.popped, counts.pop_requests),
        "ack": (acked + counts.refused, counts.ack_requests),
    }
    return {
        "requests": {name: requests for name, (_, requests) in pairs.items()},
        "batchEfficiency": {
            name: round(messages / requests, 2) if requests else None
            for name, (messages, requests) in pairs.items()
        },
    }


# ------------------------------------------------------------------------- leases


def encode_leases(
    leases: Sequence[s.LaneStats],
    soonest: Sequence[s.LaneStats],
    rows: Rows,
    counts: s.Counts,
    page: Page,
    now_us: int,
) -> bytes:
    """Return who holds what (PLD-10): live leases, those about to end, how much is leased.

    ``soonest`` are the leases that end first, of which the stuck ones are told.
    """
    partitions = sum(stats.partition_count for _, stats in rows)
    leased = sum(stats.leased_count for _, stats in rows)
    given = counts.completed + counts.failed + counts.given_back + counts.dead_lettered
    held = [seconds_since(lane.taken_us, now_us) for lane in soonest]
    return _json(
        {
            "leases": [_lease(lane, now_us) for lane in leases],
            "stuck": [
                _lease(lane, now_us)
                for lane in soonest
                if _seconds_left(lane, now_us) <= STUCK_SECONDS
            ],
            "utilisation": [
                {
                    "queue": queue.name,
                    "partitions": stats.partition_count,
                    "leasedPartitions": stats.leased_count,
                    "percentLeased": percent(stats.leased_count, stats.partition_count),
                }
                for queue, stats in rows
            ],
            "depths": [depth_row(queue, stats) for queue, stats in rows],
            "metrics": {
                "percentLeased": percent(leased, partitions),
                "averageSecondsHeld": round(sum(held) / len(held), 2) if held else None,
                "maxSecondsHeld": max(held, default=None),
                "percentCompleted": percent(counts.completed, given),
            },
            "pagination": {"limit": page.limit, "offset": page.offset},
        }
    )


def _seconds_left(lane: s.LaneStats, now_us: int) -> float:
    return max(0, (lane.lease_expires_us or 0) - now_us) / SECOND


def _lease(lane: s.LaneStats, now_us: int) -> dict[str, Any]:
    return {
        **_lane(lane),
        "secondsLeft": round(_seconds_left(lane, now_us), 3),
        "secondsHeld": seconds_since(lane.taken_us, now_us),
    }


def _lane(lane: s.LaneStats) -> dict[str, Any]:
    return {
        "queue": lane.queue,
        "partition": lane.partition,
        "partitionId": lane.partition_id,
        "consumerGroup": lane.group,
        "totalConsumed": lane.passed_count,
        "lag": lane.lag,
        "processing": lane.in_flight_count,
        "batchSize": lane.lease_count,
        "leaseExpiresAt": maybe_instant(lane.lease_expires_us),
        "oldestWaitingAt": maybe_instant(lane.oldest_waiting_us),
        "takenAt": maybe_instant(lane.taken_us),
    }


def encode_lanes(lanes: Iterable[s.LaneStats], page: Page) -> bytes:
    """Return a page of lanes."""
    return _json(
        {
            "lanes": [_lane(lane) for lane in lanes],
            "pagination": {"limit": page.limit, "offset": page.offset},
        }
    )


def encode_buffers(worker_id: int, *, healthy: bool) -> bytes:
    """Return the state of a buffer that this server does not have: a push is stored or refused."""
    nothing: Mapping[str, int] = {"pending": 0, "failed": 0}
    return _json({**nothing, "dbHealthy": healthy, "worker": worker_id})
