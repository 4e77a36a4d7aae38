"""Bodies of answers about queues, groups, dead letters and the server itself."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

import msgspec

from queen_sync import model as m
from queen_sync.wire.options import OPTION_NAMES, write_options
from queen_sync.wire.texts import instant

_json = msgspec.json.encode

# ------------------------------------------------------------------------- queues


def encode_configured(done: m.Configured, *, by_path: bool = False) -> bytes:
    """Return the answer of a configure: the queue as it now is, and what changed.

    ``by_path``: it was named by namespace, task and last name, and is shown so.
    """
    queue = done.queue
    named = {"queue": queue.name}
    if by_path:
        named = {"queue": queue.name.replace(".", "/", 2), "ns": queue.namespace}
    return _json(
        {
            "configured": True,
            **named,
            "namespace": queue.namespace,
            "task": queue.task,
            "queueId": queue.id,
            "partitionId": queue.default_partition_id,
            "options": write_options(queue.options),
            "created": done.created,
            "createdAt": instant(queue.created_us),
            "changes": {OPTION_NAMES.get(name, name): each for name, each in done.changes.items()},
        }
    )


def encode_deleted_queue(queue: str, *, existed: bool) -> bytes:
    """Return the answer of the deletion of a queue."""
    return _json({"deleted": True, "queue": queue, "existed": existed})


def encode_deleted_group(
    group: str, queue: str | None, partition_count: int, *, metadata_deleted: bool
) -> bytes:
    """Return the answer of the deletion of a group's progress, of one queue or of all."""
    answer: dict[str, Any] = {"success": True, "consumerGroup": group}
    if queue is not None:
        answer["queueName"] = queue
    answer |= {"deletedPartitions": partition_count, "metadataDeleted": metadata_deleted}
    return _json(answer)


def encode_restarted(group: str, from_us: int, changed_count: int) -> bytes:
    """Return the answer of a group's new start."""
    return _json(
        {
            "success": True,
            "consumerGroup": group,
            "newTimestamp": instant(from_us),
            "rowsUpdated": changed_count,
        }
    )


def encode_sought(target: m.Seek, moved_count: int) -> bytes:
    """Return the answer of a seek: what was moved, and where to."""
    time = None if target.from_us is None else instant(target.from_us)
    answer: dict[str, Any] = {
        "success": True,
        "consumerGroup": target.group,
        "queueName": target.queue,
        "seekToStart": target.to == "start",
        "seekToEnd": target.to == "end",
        "targetTimestamp": time,
        "partitionsUpdated": moved_count,
    }
    if target.partition is not None:
        answer |= {
            "partitionName": target.partition,
            "updated": moved_count > 0,
            "cursorMovedTo": time or target.to,
        }
    return _json(answer)


def encode_count(count: int) -> bytes:
    """Return the answer of what was done to so many things."""
    return _json({"success": True, "count": count})


def encode_retried(partition_id: str, transaction_id: str, group_count: int) -> bytes:
    """Return the answer of a message that was given back to so many of its groups."""
    return _json(
        {
            "success": True,
            "retried": True,
            "transactionId": transaction_id,
            "partitionId": partition_id,
            "count": group_count,
        }
    )


def encode_dead_letters(page: m.DeadLetters, wanted: m.DeadLetterFilter) -> bytes:
    """Return a page of dead letters and how many there are in all."""
    return _json(
        {
            "messages": [_dead_letter(each) for each in page.items],
            "pagination": {"limit": wanted.limit, "offset": wanted.offset, "total": page.total},
            "total": page.total,
        }
    )


def _dead_letter(letter: m.DeadLetter) -> dict[str, Any]:
    payload = msgspec.Raw(letter.payload)
    answer = {
        "id": letter.id,
        "transactionId": letter.transaction_id,
        "traceId": letter.trace_id,
        "partitionId": letter.partition_id,
        "queue": letter.queue,
        "partition": letter.partition,
        "consumerGroup": letter.group,
        "errorMessage": letter.error,
        "retryCount": letter.failure_count,
        "deliveryCount": letter.delivery_count,
        "data": payload,
        "payload": payload,
        "isEncrypted": letter.encrypted,
        "producerSub": None,
        "createdAt": instant(letter.created_us),
        "failedAt": instant(letter.failed_us),
    }
    if letter.unreadable is not None:
        answer["payloadError"] = letter.unreadable
    return answer


# --------------------------------------------------------------------------- server


def encode_capabilities(
    *,
    features: Iterable[str],
    durable: bool,
    shared: bool,
    max_batch: int,
    max_payload_bytes: int,
    clock_resolution_us: int,
    version: str,
) -> bytes:
    """Return what the server can do."""
    return _json(
        {
            "features": sorted(features),
            "durable": durable,
            "shared": shared,
            "maxBatch": max_batch,
            "maxPayloadBytes": max_payload_bytes,
            "clockResolutionMicroseconds": clock_resolution_us,
            "version": version,
        }
    )


def encode_health(
    *,
    healthy: bool,
    version: str,
    worker_id: int,
    uptime_seconds: float,
    draining: bool,
    stats: Mapping[str, int],
    facts: Mapping[str, Any],
) -> bytes:
    """Return the health page; ``facts`` is what the store said of itself."""
    return _json(
        {
            "status": "healthy" if healthy else "unhealthy",
            "database": "connected" if healthy else "disconnected",
            "server": "queen-sync",
            "version": version,
            "worker_id": worker_id,
            "uptime": f"{int(uptime_seconds)}s",
            "connections": facts.get("connections", 0),
            "draining": draining,
            "stats": {_camel(name): number for name, number in stats.items()},
            "backend": facts,
        }
    )


def _camel(name: str) -> str:
    first, *others = name.split("_")
    return first + "".join(other.capitalize() for other in others)
