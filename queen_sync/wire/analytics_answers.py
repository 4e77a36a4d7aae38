"""Bodies of answers with figures: of queues as they stand, and of what happened over time."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

import msgspec

from queen_sync import model as m, stats as s
from queen_sync.wire.listing_queries import Span
from queen_sync.wire.resource_answers import per_second, six, six_of_all
from queen_sync.wire.texts import instant

Rows = Sequence[tuple[m.Queue, s.QueueStats]]
_json = msgspec.json.encode

# ------------------------------------------------------------------ figures by queue


def figures(queue: m.Queue, stats: s.QueueStats, name: str | None = None) -> dict[str, Any]:
    """Return the figures of one queue, where asked under another name."""
    return {
        "queue": queue.name if name is None else name,
        "namespace": queue.namespace,
        "task": queue.task,
        "partitions": stats.partition_count,
        **six(stats),
        "stored": stats.stored_count,
        "waiting": stats.waiting_count,
        "leasedPartitions": stats.leased_count,
    }


def encode_figures(queue: m.Queue, stats: s.QueueStats) -> bytes:
    """Return the figures of one queue."""
    return _json(figures(queue, stats))


def encode_all_figures(rows: Rows, *, as_paths: bool = False) -> bytes:
    """Return the figures of queues; ``as_paths``: named by namespace, task and last name."""
    return _json(
        {
            "queues": [
                figures(queue, stats, queue_path(queue) if as_paths else None)
                for queue, stats in rows
            ]
        }
    )


def queue_path(queue: m.Queue) -> str:
    """Return the queue as a path of three parts, as older clients call it."""
    short = queue.name.removeprefix(f"{queue.namespace}.{queue.task}.")
    return f"{queue.namespace}/{queue.task}/{short}"


def encode_depths(rows: Rows) -> bytes:
    """Return how much waits in each queue, against its limit."""
    return _json({"depths": [depth_row(queue, stats) for queue, stats in rows]})


def depth_row(queue: m.Queue, stats: s.QueueStats) -> dict[str, Any]:
    """Return how much waits in a queue, against its limit."""
    limit = queue.options.max_queue_size
    return {
        "queue": queue.name,
        "depth": stats.waiting_count,
        "processing": stats.in_flight_count,
        "partitions": stats.partition_count,
        "maxQueueSize": limit,
        "remainingCapacity": max(0, limit - stats.waiting_count) if limit else None,
        "percentFull": percent(stats.waiting_count, limit),
    }


def percent(part: int, whole: int) -> float | None:
    """Return a share; None where there is nothing to have a share in."""
    return round(100 * part / whole, 2) if whole else None


# --------------------------------------------------------------------- over time


def delays(counts: s.Counts) -> dict[str, Any]:
    """Return how long messages had waited when they were popped."""
    found = counts.pop_requests - counts.pops_empty
    return {
        "avgLagMs": round(counts.delay_milliseconds / found, 2) if found else None,
        "maxLagMs": counts.max_delay_milliseconds if found else None,
    }


def encode_series(buckets: Sequence[s.QueueCounts], interval: str, span: Span) -> bytes:
    """Return how many messages came in each interval, the oldest first."""
    return _json(
        {
            "dataPoints": [
                {"timestamp": instant(bucket.start_us), "messages": bucket.counts.pushed}
                for bucket in buckets
            ],
            "interval": interval,
            "from": instant(span.from_us),
            "to": instant(span.to_us),
        }
    )


def encode_throughput(buckets: Sequence[s.QueueCounts], minutes: int) -> bytes:
    """Return what went in and out, by time, the newest first."""

    def flow(count: int) -> dict[str, float]:
        return {
            "messagesPerMinute": round(count / minutes, 2),
            "messagesPerSecond": per_second(count, minutes),
        }

    rows = []
    for bucket in reversed(buckets):
        counts = bucket.counts
        found = counts.pop_requests - counts.pops_empty
        average = counts.delay_milliseconds / found if found else 0
        rows.append(
            {
                "timestamp": instant(bucket.start_us),
                "incoming": flow(counts.pushed),
                "completed": flow(counts.completed),
                "processing": flow(counts.popped),
                "failed": flow(counts.failed),
                "deadLetter": flow(counts.dead_lettered),
                "lag": {
                    "avgSeconds": round(average / 1000, 3),
                    "avgMilliseconds": round(average, 2),
                    "sampleCount": found,
                },
            }
        )
    return _json({"throughput": rows})


def encode_queue_lag(buckets: Iterable[s.QueueCounts]) -> bytes:
    """Return how long messages had waited when they were popped, by time and queue."""
    return _json(
        [
            {
                "bucketTime": instant(bucket.start_us),
                "queueName": bucket.queue,
                "popCount": bucket.counts.popped,
                **delays(bucket.counts),
            }
            for bucket in buckets
            if bucket.counts.popped
        ]
    )


def encode_queue_stats(rows: Rows, counts: s.Counts, span: Span) -> bytes:
    """Return how queues stand together and what happened in them in a time."""
    return _json(
        {
            "timeRange": {"from": instant(span.from_us), "to": instant(span.to_us)},
            "queues": [figures(queue, stats) for queue, stats in rows],
            "totals": six_of_all(stats for _, stats in rows),
            "counts": {_camel(name): getattr(counts, name) for name in s.COUNT_NAMES},
        }
    )


def _camel(name: str) -> str:
    first, *others = name.split("_")
    return first + "".join(other.capitalize() for other in others)
