"""Bodies of answers about single messages, cleanup and traces."""

from __future__ import annotations

from base64 import urlsafe_b64encode
from collections.abc import Iterable, Mapping, Sequence
from typing import Any
from uuid import UUID

import msgspec

from queen_sync import inspection as i, model as m
from queen_sync.errors import QueenError
from queen_sync.wire.options import OPTION_NAMES
from queen_sync.wire.refusals import error_answer
from queen_sync.wire.texts import instant, instant_milliseconds

_json = msgspec.json.encode
_SHOWN_OPTIONS = (
    "lease_seconds",
    "retry_limit",
    "retry_delay_milliseconds",
    "ttl_seconds",
    "priority",
)

# ------------------------------------------------------------------------- messages


def encode_messages(page: i.MessagePage, queues: Mapping[str, m.Queue]) -> bytes:
    """Return a page of messages and where it goes on; ``queues`` are those it is about."""
    return _json(
        {
            "messages": [_listed(each, queues.get(each.queue)) for each in page.items],
            "mode": _mode(state.group for each in page.items for state in each.states),
            "nextCursor": _next(page.next_before),
            "cursor": _cursor(page.next_before),
        }
    )


def encode_queue_messages(page: i.MessagePage) -> bytes:
    """Return a page of one queue's messages, briefly."""
    return _json([_brief(each) for each in page.items])


def encode_message(message: i.StoredMessage, queue: m.Queue | None) -> bytes:
    """Return all about one message."""
    dead = next((state for state in message.states if state.status == "dead_letter"), None)
    answer = _brief(message) | {
        "namespace": queue.namespace if queue is not None else None,
        "task": queue.task if queue is not None else None,
        "payload": msgspec.Raw(message.payload),
        "isEncrypted": message.encrypted,
        "traceId": message.trace_id,
        "producerSub": None,
        "errorMessage": None if dead is None else dead.error,
        "retryCount": None if dead is None else dead.failure_count,
        "leaseExpiresAt": _lease_expires_at(message.states),
        "queueConfig": None if queue is None else _config(queue.options),
        "mode": _mode(state.group for state in message.states)
        | {"consumedByGroups": sum(state.status == "completed" for state in _bus(message))},
        "consumerGroups": _groups(message),
    }
    if message.unreadable is not None:
        answer["payloadError"] = message.unreadable
    return _json(answer)


def _brief(message: i.StoredMessage) -> dict[str, Any]:
    return {
        "id": message.id,
        "transactionId": message.transaction_id,
        "partitionId": message.partition_id,
        "queuePath": f"{message.queue}/{message.partition}",
        "queue": message.queue,
        "partition": message.partition,
        "status": message.status,
        "createdAt": instant_milliseconds(message.created_us),
    }


def _listed(message: i.StoredMessage, queue: m.Queue | None) -> dict[str, Any]:
    bus = _bus(message)
    own = next((state for state in message.states if state.group == m.QUEUE_MODE), None)
    return _brief(message) | {
        "namespace": queue.namespace if queue is not None else None,
        "task": queue.task if queue is not None else None,
        "queueStatus": None if own is None else own.status,
        "busStatus": {
            "consumedBy": sum(state.status == "completed" for state in bus),
            "totalGroups": len(bus),
        },
        "traceId": message.trace_id,
        "producerSub": None,
        "queuePriority": 0 if queue is None else queue.options.priority,
        "leaseExpiresAt": _lease_expires_at(message.states),
        "isEncrypted": message.encrypted,
        "consumerGroups": _groups(message),
    }


def _bus(message: i.StoredMessage) -> list[i.MessageState]:
    """Return the states for the groups that have a name."""
    return [state for state in message.states if state.group != m.QUEUE_MODE]


def _groups(message: i.StoredMessage) -> list[dict[str, Any]]:
    return [
        {
            "name": state.group,
            "consumed": state.status == "completed",
            "status": state.status,
            "deliveryCount": state.delivery_count,
            "retryCount": state.failure_count,
            "errorMessage": state.error,
            "leaseExpiresAt": None
            if state.lease_expires_us is None
            else instant(state.lease_expires_us),
        }
        for state in message.states
    ]


def _lease_expires_at(states: Sequence[i.MessageState]) -> str | None:
    """Return until when the last of the leases holds a message."""
    known = [state.lease_expires_us for state in states if state.lease_expires_us is not None]
    return instant_milliseconds(max(known)) if known else None


def _config(options: m.QueueOptions) -> dict[str, int | bool]:
    return {OPTION_NAMES[name]: getattr(options, name) for name in _SHOWN_OPTIONS}


def _mode(groups: Iterable[str]) -> dict[str, Any]:
    """Return how messages are read: by consumers without a group, by groups, or by both."""
    named = set(groups)
    queue_mode = m.QUEUE_MODE in named
    bus_count = len(named) - queue_mode
    kinds = {(True, True): "hybrid", (True, False): "queue", (False, True): "bus"}
    return {
        "hasQueueMode": queue_mode,
        "busGroupsCount": bus_count,
        "type": kinds.get((queue_mode, bus_count > 0), "none"),
    }


def _next(before: tuple[int, str] | None) -> dict[str, str] | None:
    if before is None:
        return None
    return {"lastCreatedAt": instant(before[0]), "lastId": before[1]}


def _cursor(before: tuple[int, str] | None) -> str | None:
    """Return the same key as one text that says nothing to anybody else."""
    if before is None:
        return None
    packed = before[0].to_bytes(8) + UUID(before[1]).bytes
    return urlsafe_b64encode(packed).decode()


# -------------------------------------------------------------------------- cleanup


def encode_deleted_message(partition_id: str, transaction_id: str) -> bytes:
    """Return the answer of the deletion of a message."""
    return _json(
        {
            "success": True,
            "deleted": True,
            "partitionId": partition_id,
            "transactionId": transaction_id,
            "message": "Message deleted successfully",
        }
    )


def encode_nothing_deleted(partition_id: str, transaction_id: str, error: QueenError) -> bytes:
    """Return the answer of the deletion of a message that is not there."""
    return _json(
        {
            "success": False,
            "deleted": False,
            "partitionId": partition_id,
            "transactionId": transaction_id,
            "message": error.message,
            **error_answer(error, error.message),
        }
    )


def encode_buried(partition_id: str, transaction_id: str, group_count: int) -> bytes:
    """Return the answer of a message that was dead-lettered by hand, for so many groups."""
    return _json(
        {
            "success": True,
            "movedToDLQ": True,
            "transactionId": transaction_id,
            "partitionId": partition_id,
            "count": group_count,
        }
    )


def encode_cleared(queue: str, partition: str | None, count: int) -> bytes:
    """Return the answer of a queue or partition of which all messages were removed."""
    named = "all" if partition is None else partition
    return _json({"cleared": True, "count": count, "queue": queue, "partition": named})


def encode_deleted_partition(queue: str, partition: str, *, existed: bool) -> bytes:
    """Return the answer of the deletion of a partition."""
    return _json({"deleted": True, "queue": queue, "partition": partition, "existed": existed})


# --------------------------------------------------------------------------- traces


def encode_trace_filed(trace_id: str) -> bytes:
    """Return the answer of a note that was filed."""
    return _json({"success": True, "traceId": trace_id})


def encode_trace_refused(error: QueenError) -> bytes:
    """Return the answer of a note about a message that is not there."""
    return _json({"success": False, **error_answer(error, error.message)})


def encode_traces(records: Sequence[i.TraceRecord]) -> bytes:
    """Return the notes about one message."""
    return _json({"traces": [_trace(record) for record in records]})


def encode_named_traces(
    page: i.TracePage, wanted: i.TraceFilter, payloads: Mapping[str, bytes]
) -> bytes:
    """Return a page of the notes of one name, with the payloads by message id."""
    return _json(
        {
            "traces": [
                _trace(record)
                | {"message_payload": msgspec.Raw(payloads.get(record.message_id, b"null"))}
                for record in page.items
            ],
            "total": page.total,
            "pagination": _pagination(wanted.limit, wanted.offset, page.total),
        }
    )


def _trace(record: i.TraceRecord) -> dict[str, Any]:
    return {
        "id": record.id,
        "event_type": record.kind,
        "data": msgspec.Raw(record.data),
        "consumer_group": record.group,
        "worker_id": None,
        "created_at": instant(record.created_us),
        "trace_names": record.names,
        "message_id": record.message_id,
        "transaction_id": record.transaction_id,
        "partition_id": record.partition_id,
        "queue_name": record.queue,
        "partition_name": record.partition,
    }


def encode_trace_names(names: Sequence[i.TraceName], limit: int, offset: int, total: int) -> bytes:
    """Return a page of the names under which notes are filed."""
    return _json(
        {
            "trace_names": [
                {
                    "trace_name": each.name,
                    "trace_count": each.trace_count,
                    "message_count": each.message_count,
                    "last_seen": instant(each.last_us),
                }
                for each in names
            ],
            "total": total,
            "pagination": _pagination(limit, offset, total),
        }
    )


def _pagination(limit: int, offset: int, total: int) -> dict[str, int]:
    return {"limit": limit, "offset": offset, "total": total}
