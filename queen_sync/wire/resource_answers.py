"""Bodies of answers that list what there is: queues, partitions, groups and what they hold.

The six counts of messages are told from positions (`queen_sync.stats`): ``total`` is all that was
ever pushed to the partitions that exist, ``pending`` and ``processing`` what some group has still
to settle, in nobody's hands and in somebody's, ``completed`` and ``deadLetter`` what became of the
rest; ``failed`` ones are among the pending: they were delivered before and come again.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from statistics import fmean, median
from typing import Any

import msgspec

from queen_sync import inspection as i, model as m, stats as s
from queen_sync.clock import SECOND
from queen_sync.wire.listing_queries import Page
from queen_sync.wire.options import write_options
from queen_sync.wire.texts import instant

LAGGING_SECONDS = 300
_json = msgspec.json.encode


def six(stats: s.QueueStats) -> dict[str, int]:
    """Return the six counts of messages."""
    return {
        "total": stats.pushed_count,
        "pending": stats.pending_count,
        "processing": stats.in_flight_count,
        "completed": stats.completed_count,
        "failed": stats.retrying_count,
        "deadLetter": stats.dead_count,
    }


def maybe_instant(instant_us: int | None) -> str | None:
    """Return an instant as a text, None where there is none."""
    return None if instant_us is None else instant(instant_us)


def seconds_since(instant_us: int | None, now_us: int) -> int:
    """Return how many whole seconds ago an instant was; 0 where there is none."""
    return 0 if instant_us is None else max(0, now_us - instant_us) // SECOND


# --------------------------------------------------------------------------- queues


def queue_row(queue: m.Queue, stats: s.QueueStats) -> dict[str, Any]:
    """Return a queue as a row of a listing."""
    return {
        **_head(queue),
        "partitions": stats.partition_count,
        "leasedPartitions": stats.leased_count,
        "messages": {**six(stats), "stored": stats.stored_count},
    }


def _head(queue: m.Queue) -> dict[str, Any]:
    return {
        "id": queue.id,
        "name": queue.name,
        "namespace": queue.namespace,
        "task": queue.task,
        "priority": queue.options.priority,
        "createdAt": instant(queue.created_us),
        "partitionId": queue.default_partition_id,
        "options": write_options(queue.options),
    }


def encode_queues(rows: Iterable[tuple[m.Queue, s.QueueStats]], page: Page, total: int) -> bytes:
    """Return a page of queues."""
    return _json(
        {
            "queues": [queue_row(queue, stats) for queue, stats in rows],
            "pagination": pagination(page, total),
        }
    )


def pagination(page: Page, total: int) -> dict[str, int]:
    """Return which part of how many a page is."""
    return {"limit": page.limit, "offset": page.offset, "total": total}


def encode_queue(
    queue: m.Queue, stats: s.QueueStats, partitions: Sequence[i.PartitionState], page: Page
) -> bytes:
    """Return a queue with a page of its partitions; the totals are those of all of them."""
    return _json(
        {
            **_head(queue),
            "leasedPartitions": stats.leased_count,
            "partitions": [partition_row(partition) for partition in partitions],
            "totals": {**six(stats), "stored": stats.stored_count},
            "pagination": pagination(page, stats.partition_count),
        }
    )


def partition_row(state: i.PartitionState) -> dict[str, Any]:
    """Return a partition with the groups as they stand in it."""
    return {
        "id": state.id,
        "name": state.name,
        "createdAt": instant(state.created_us),
        "stats": six(s.of_partition(state)),
        "stored": state.stored_count,
        "waiting": state.waiting_count,
        "oldestMessage": maybe_instant(state.oldest_us),
        "newestMessage": maybe_instant(state.newest_us),
        "consumerGroups": [_partition_group(group) for group in state.groups],
    }


def _partition_group(group: i.PartitionGroup) -> dict[str, Any]:
    return {
        "name": group.name,
        "lag": group.lag,
        "processing": group.in_flight_count,
        "failed": group.retrying_count,
        "deadLetter": group.dead_count,
        "leaseExpiresAt": maybe_instant(group.lease_expires_us),
        "batchSize": group.lease_count,
        "oldestWaitingAt": maybe_instant(group.oldest_waiting_us),
        "unreadable": group.unreadable,
    }


def encode_partitions(rows: Iterable[tuple[m.Queue, i.PartitionState]]) -> bytes:
    """Return partitions of any queues."""
    return _json({"partitions": [_depth_row(queue, state) for queue, state in rows]})


def _depth_row(queue: m.Queue, state: i.PartitionState) -> dict[str, Any]:
    return {
        "id": state.id,
        "name": state.name,
        "queue": queue.name,
        "namespace": queue.namespace,
        "task": queue.task,
        "queuePriority": queue.options.priority,
        "createdAt": instant(state.created_us),
        "depth": state.waiting_count,
        "processing": s.of_partition(state).in_flight_count,
        "total": state.pushed_count,
    }


def encode_labels(what: str, field: str, labels: Mapping[str, Sequence[s.QueueStats]]) -> bytes:
    """Return namespaces, or tasks, each with the queues that carry it taken together."""
    return _json(
        {
            what: [
                {
                    field: name,
                    "queues": len(queues),
                    "partitions": sum(stats.partition_count for stats in queues),
                    "messages": {
                        "total": sum(stats.pushed_count for stats in queues),
                        "pending": sum(stats.pending_count for stats in queues),
                    },
                }
                for name, queues in sorted(labels.items())
            ]
        }
    )


def six_of_all(every: Iterable[s.QueueStats]) -> dict[str, int]:
    """Return the six counts of several queues together."""
    names = ("total", "pending", "processing", "completed", "failed", "deadLetter")
    rows = [six(stats) for stats in every]
    return {name: sum(row[name] for row in rows) for name in names}


def encode_overview(
    queues: Sequence[m.Queue],
    every: Sequence[s.QueueStats],
    groups: Sequence[s.GroupStats],
    last_minutes: s.Counts,
    minutes: int,
    now_us: int,
) -> bytes:
    """Return everything in a few numbers; ``last_minutes`` is what happened in so many minutes."""
    seconds = [seconds_since(group.oldest_waiting_us, now_us) for group in groups]
    finished = last_minutes.completed + last_minutes.dead_lettered
    return _json(
        {
            "queues": len(queues),
            "partitions": sum(stats.partition_count for stats in every),
            "namespaces": len({queue.namespace for queue in queues} - {""}),
            "tasks": len({queue.task for queue in queues} - {""}),
            "messages": six_of_all(every),
            "lag": {
                "time": _spread(seconds),
                "offset": _spread([group.lag for group in groups]),
            },
            "throughput": {
                "ingestedPerSecond": per_second(last_minutes.pushed, minutes),
                "processedPerSecond": per_second(finished, minutes),
            },
            "timestamp": instant(now_us),
            "statsAge": 0,
        }
    )


def _spread(numbers: Sequence[int]) -> dict[str, float]:
    if not numbers:
        return {"avg": 0, "median": 0, "min": 0, "max": 0}
    return {
        "avg": round(fmean(numbers), 2),
        "median": median(numbers),
        "min": min(numbers),
        "max": max(numbers),
    }


def per_second(count: int, minutes: int) -> float:
    """Return how many of something there were in a second, of so many in so many minutes."""
    return round(count / (60 * minutes), 2)


# --------------------------------------------------------------------------- groups


def encode_groups(groups: Iterable[s.GroupStats], now_us: int) -> bytes:
    """Return one row for each group and queue."""
    return _json([_group_row(group, now_us) for group in groups])


def _group_row(group: s.GroupStats, now_us: int) -> dict[str, Any]:
    return {
        "name": group.group,
        "queueName": group.queue,
        "topics": [group.queue],
        "members": group.partition_count,
        "partitionsWithLag": group.lagging_count,
        "totalLag": group.lag,
        "maxTimeLag": seconds_since(group.oldest_waiting_us, now_us),
        "state": _state(group, now_us),
        "subscriptionMode": group.subscription.mode,
        "subscriptionTimestamp": maybe_instant(group.subscription.from_us),
        "subscriptionCreatedAt": instant(group.created_us),
        "activeLeases": group.leased_count,
        "batchSize": group.lease_count,
        "processing": group.in_flight_count,
        "failed": group.retrying_count,
        "deadLetter": group.dead_count,
        "oldestWaitingAt": maybe_instant(group.oldest_waiting_us),
        "lastConsumedAt": maybe_instant(group.taken_us),
    }


def _state(group: s.GroupStats, now_us: int) -> str:
    """Return how a group is: ``Dead`` where it has never taken anything."""
    if seconds_since(group.oldest_waiting_us, now_us) > LAGGING_SECONDS:
        return "Lagging"
    return "Dead" if group.taken_us is None else "Stable"


def encode_group(lanes: Iterable[s.LaneStats], queues: Iterable[str], now_us: int) -> bytes:
    """Return a page of the partitions of a group, by queue."""
    found: dict[str, dict[str, list[dict[str, Any]]]] = {
        queue: {"partitions": []} for queue in queues
    }
    for lane in lanes:
        found.setdefault(lane.queue, {"partitions": []})["partitions"].append(
            {
                "partition": lane.partition,
                "workerId": None,
                "lastConsumedAt": maybe_instant(lane.taken_us),
                "totalConsumed": lane.passed_count,
                "offsetLag": lane.lag,
                "timeLagSeconds": seconds_since(lane.oldest_waiting_us, now_us),
                "leaseActive": lane.lease_expires_us is not None,
            }
        )
    return _json(found)


def encode_lagging(lanes: Iterable[s.LaneStats], now_us: int) -> bytes:
    """Return the lanes that are late, the latest first."""
    return _json(
        [
            {
                "consumer_group": lane.group,
                "queue_name": lane.queue,
                "partition_name": lane.partition,
                "partition_id": lane.partition_id,
                "worker_id": None,
                "offset_lag": lane.lag,
                "time_lag_seconds": seconds_since(lane.oldest_waiting_us, now_us),
                "lag_hours": round(seconds_since(lane.oldest_waiting_us, now_us) / 3600, 2),
                "oldest_unconsumed_at": maybe_instant(lane.oldest_waiting_us),
                "last_consumed_at": maybe_instant(lane.taken_us),
            }
            for lane in lanes
        ]
    )


def encode_refreshed(queue_count: int) -> bytes:
    """Return the answer of a refresh: figures are always fresh, so it names what there is."""
    nothing: dict[str, int] = {}
    return _json(
        {
            "success": True,
            "partition": nothing,
            "queue": {"queuesUpdated": queue_count},
            "namespace": nothing,
            "task": nothing,
            "system": nothing,
            "cleanup": nothing,
        }
    )
