"""Bodies and queries that a client sends, written from values of the model."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import msgspec

from queen_sync import model as m
from queen_sync.wire.options import OPTION_NAMES
from queen_sync.wire.texts import instant


def encode_configure(
    queue: str,
    options: Mapping[str, int | bool],
    namespace: str | None,
    task: str | None,
) -> bytes:
    """Return the body of a configure; what is None or not named keeps its value."""
    wire = {OPTION_NAMES[name]: value for name, value in options.items()}
    return msgspec.json.encode(
        {"queue": queue, "namespace": namespace, "task": task, "options": wire}
    )


def _push_item(item: m.NewMessage) -> dict[str, Any]:
    wire: dict[str, Any] = {
        "queue": item.queue,
        "partition": item.partition,
        "payload": msgspec.Raw(item.payload),
    }
    if item.transaction_id is not None:
        wire["transactionId"] = item.transaction_id
    if item.trace_id is not None:
        wire["traceId"] = item.trace_id
    return wire


def encode_push(items: Sequence[m.NewMessage], *, create: bool) -> bytes:
    """Return the body of a push."""
    body: dict[str, Any] = {"items": [_push_item(item) for item in items]}
    if not create:
        body["config"] = {"autoCreate": False}
    return msgspec.json.encode(body)


def pop_query(request: m.PopRequest, wait_seconds: float) -> dict[str, str]:
    """Return the query of a pop: what has its default is left out."""
    query = {"batch": str(request.max_messages)}
    if request.namespace is not None:
        query["namespace"] = request.namespace
    if request.task is not None:
        query["task"] = request.task
    if request.attempt_id is not None:
        query["attemptId"] = request.attempt_id
    if request.group != m.QUEUE_MODE:
        query["consumerGroup"] = request.group
    if request.max_partitions > 1:
        query["partitions"] = str(request.max_partitions)
    if request.auto_ack:
        query["autoAck"] = "true"
    if wait_seconds > 0:
        query["wait"] = "true"
        query["timeout"] = str(max(1, round(wait_seconds * 1000)))
    subscription = request.subscription
    if subscription is not None and subscription.from_us is not None:
        query["subscriptionFrom"] = instant(subscription.from_us)
    elif subscription is not None:
        query["subscriptionMode"] = subscription.mode
    return query


def _ack_item(ack: m.Ack) -> dict[str, Any]:
    wire: dict[str, Any] = {"transactionId": ack.transaction_id, "status": ack.outcome}
    if ack.partition_id is not None:
        wire["partitionId"] = ack.partition_id
    if ack.lease_id is not None:
        wire["leaseId"] = ack.lease_id
    if ack.error is not None:
        wire["error"] = ack.error
    if ack.group != m.QUEUE_MODE:
        wire["consumerGroup"] = ack.group
    return wire


def encode_acks(acks: Sequence[m.Ack]) -> bytes:
    """Return the body of an ack batch; a group that all share is named at the top as well."""
    groups = {ack.group for ack in acks}
    shared = groups.pop() if len(groups) == 1 else m.QUEUE_MODE
    group = None if shared == m.QUEUE_MODE else shared
    return msgspec.json.encode(
        {"acknowledgments": [_ack_item(ack) for ack in acks], "consumerGroup": group}
    )


def encode_extend(seconds: int | None) -> bytes:
    """Return the body of an extend; None leaves the length to the server."""
    return msgspec.json.encode({} if seconds is None else {"seconds": seconds})


def encode_transaction(transaction: m.Transaction) -> bytes:
    """Return the body of a transaction: one operation for each ack and each message."""
    operations = [
        {"type": "ack", **_ack_item(operation)}
        if isinstance(operation, m.Ack)
        else {"type": "push", "items": [_push_item(operation)]}
        for operation in transaction.operations
    ]
    return msgspec.json.encode(
        {"operations": operations, "requiredLeases": list(transaction.required_leases)}
    )


def encode_restart(from_us: int) -> bytes:
    """Return the body that sets a group's recorded start."""
    return msgspec.json.encode({"subscriptionTimestamp": instant(from_us)})


def encode_seek(target: m.Seek) -> bytes:
    """Return the body that moves a group's position."""
    if target.from_us is not None:
        return msgspec.json.encode({"timestamp": instant(target.from_us)})
    return msgspec.json.encode({"toStart": True} if target.to == "start" else {"toEnd": True})


def dead_letter_filters(wanted: m.DeadLetterFilter) -> dict[str, str]:
    """Return what dead letters are chosen by; names are checked, since a filter checks none.

    One that the wire would take for none must not go out: it would choose them all.
    """
    start, end = wanted.failed_from_us, wanted.failed_to_us
    given = {
        "queue": wanted.queue,
        "consumerGroup": wanted.group,
        "partition": wanted.partition,
        "partitionId": wanted.partition_id,
        "transactionId": wanted.transaction_id,
        "from": None if start is None else instant(start),
        "to": None if end is None else instant(end),
    }
    filters = {name: value for name, value in given.items() if value is not None}
    for name, value in filters.items():
        m.check_name(value, name)
    return filters


def dead_letter_query(wanted: m.DeadLetterFilter) -> dict[str, str]:
    """Return the query of a dead-letter listing."""
    return {
        "limit": str(wanted.limit),
        "offset": str(wanted.offset),
        **dead_letter_filters(wanted),
    }


def dead_letter_body(wanted: m.DeadLetterFilter) -> bytes:
    """Return the body that chooses the dead letters of a redrive."""
    return msgspec.json.encode(dead_letter_filters(wanted))
