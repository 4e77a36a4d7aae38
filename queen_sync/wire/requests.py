"""Bodies of pushes, acks and transactions, read into values of the model.

What has passed the gate (`queen_sync.wire.bodies`) is sound to the last character, and so
are its payloads: they are taken as the bytes they are. What is wrong is refused with
InvalidRequest that names the key; of a push or a transaction nothing is done then.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import lru_cache
from typing import Any, NamedTuple

import msgspec
from msgspec import Raw

from queen_sync import model as m
from queen_sync.errors import InvalidRequest
from queen_sync.payloads import MAX_DEPTH, JsonText, depth
from queen_sync.wire.bodies import Body, decode_body, misfit
from queen_sync.wire.queries import dotted_queue
from queen_sync.wire.texts import read_lease_id, read_uuid

_NOTHING = Raw(b"")
_NULL = JsonText(b"null")


class _PushItem(Body, gc=False):
    queue: str
    ns: str | None = None
    task: str | None = None
    partition: str | None = None
    payload: Raw = _NOTHING
    data: Raw = _NOTHING
    transaction_id: str | None = None
    trace_id: str | None = None


class _PushConfig(Body):
    auto_create: bool = True


class _Push(Body):
    items: list[_PushItem]
    config: _PushConfig | None = None


class _Ack(Body, gc=False):
    transaction_id: str
    partition_id: str | None = None
    status: str | None = None
    consumer_group: str | None = None
    lease_id: str | None = None
    error: str | None = None


class _Acks(Body):
    acknowledgments: list[_Ack]
    consumer_group: str | None = None


class _RawAcks(Body):
    acknowledgments: list[Raw]
    consumer_group: str | None = None


class _Operation(Body):
    type: str
    items: list[_PushItem] | None = None
    queue: str | None = None
    ns: str | None = None
    task: str | None = None
    partition: str | None = None
    payload: Raw = _NOTHING
    data: Raw = _NOTHING
    transaction_id: str | None = None
    trace_id: str | None = None
    partition_id: str | None = None
    status: str | None = None
    consumer_group: str | None = None
    lease_id: str | None = None
    error: str | None = None


class _Transaction(Body):
    operations: list[_Operation]
    required_leases: list[str] | None = None
    kv: list[Any] | None = None
    timers: list[Any] | None = None


_PUSH = msgspec.json.Decoder(_Push)
_ACK = msgspec.json.Decoder(_Ack)
_ACKS = msgspec.json.Decoder(_Acks)
_RAW_ACKS = msgspec.json.Decoder(_RawAcks)
_TRANSACTION = msgspec.json.Decoder(_Transaction)
_ANY_ACK = msgspec.json.Decoder(dict[str, Any])

_OUTCOMES: Mapping[str, m.Outcome] = {
    "completed": "completed",
    "success": "completed",
    "failed": "failed",
    "retry": "retry",
    "dlq": "dlq",
    "dead_letter": "dlq",
}


class RefusedAck(msgspec.Struct, frozen=True):
    """An item of an ack batch that is malformed: it is answered, the others are done."""

    transaction_id: str | None
    error: InvalidRequest


# ------------------------------------------------------------------------- payloads


def _payload(item: _PushItem | _Operation, *, measure: bool) -> JsonText:
    text = JsonText(item.payload) or JsonText(item.data) or _NULL
    # The number of brackets bounds the depth and is nearly always small enough.
    if measure and text.count(b"[") + text.count(b"{") > MAX_DEPTH and depth(text) > MAX_DEPTH:
        raise InvalidRequest(f"payload is nested deeper than {MAX_DEPTH}", "payload")
    return text


def _may_be_deep(body: bytes) -> bool:
    """Return whether some payload of the body could be nested too deep."""
    return body.count(b"[") + body.count(b"{") > MAX_DEPTH


# ----------------------------------------------------------------------------- push


class Push(NamedTuple):
    """The messages of a push."""

    items: list[m.NewMessage]
    create: bool
    """Whether missing queues are to be made."""
    by_path: bool
    """Every item names its queue as older clients do, by namespace, task and last name."""


def decode_push(body: bytes) -> Push:
    """Return the messages of a push, and how they are to be stored and answered."""
    push = decode_body(_PUSH, body, "items array is required", "items")
    measure = _may_be_deep(body)
    create = push.config is None or push.config.auto_create
    return Push(
        items=[_new_message(item, measure=measure) for item in push.items],
        create=create,
        by_path=bool(push.items) and all(item.ns is not None for item in push.items),
    )


def _new_message(item: _PushItem | _Operation, *, measure: bool) -> m.NewMessage:
    trace_id = item.trace_id
    if trace_id is not None:
        trace_id = read_uuid(trace_id, "TraceId must be a UUID", "traceId")
    partition = item.partition
    queue = item.queue or ""
    if item.ns is not None:
        queue = dotted_queue(item.ns, item.task or "", queue)
    return m.NewMessage(
        queue=queue,
        payload=_payload(item, measure=measure),
        partition=m.DEFAULT_PARTITION if partition is None else partition,
        transaction_id=item.transaction_id or None,
        trace_id=trace_id,
    )


# ----------------------------------------------------------------------------- acks


def decode_ack(body: bytes) -> m.Ack:
    """Return the one ack of a body."""
    return _read_ack(decode_body(_ACK, body, "transactionId is required", "transactionId"), None)


def _read_ack(item: _Ack | _Operation, group: str | None) -> m.Ack:
    outcome = _OUTCOMES.get(item.status or "completed")
    if outcome is None:
        raise InvalidRequest("status must be one of completed, failed, retry, dlq", "status")
    return m.Ack(
        transaction_id=item.transaction_id or "",
        outcome=outcome,
        partition_id=_read_partition_id(item.partition_id) if item.partition_id else None,
        group=item.consumer_group or group or m.QUEUE_MODE,
        lease_id=read_lease_id(item.lease_id),
        error=item.error,
    )


@lru_cache(maxsize=1024)  # the acks of a batch name the same few over and over
def _read_partition_id(text: str) -> str:
    return read_uuid(text, "partitionId must be a UUID", "partitionId")


def decode_acks(body: bytes) -> list[m.Ack | RefusedAck]:
    """Return the acks of a batch, each malformed one as what is wrong with it."""
    try:
        batch = decode_body(_ACKS, body, "", "")
        group = batch.consumer_group or None
        if group is not None:
            m.check_name(group, "consumerGroup")
        return [_read_ack(item, group) for item in batch.acknowledgments]
    except InvalidRequest:
        return _decode_acks_apart(body)


def _decode_acks_apart(body: bytes) -> list[m.Ack | RefusedAck]:
    """Read a batch in which something is malformed, each item by itself."""
    batch = decode_body(_RAW_ACKS, body, "acknowledgments array is required", "acknowledgments")
    group = batch.consumer_group or None
    if group is not None:
        m.check_name(group, "consumerGroup")
    return [_ack_or_refusal(raw, group) for raw in batch.acknowledgments]


def _ack_or_refusal(raw: Raw, group: str | None) -> m.Ack | RefusedAck:
    try:
        return _read_ack(_ACK.decode(raw), group)
    except InvalidRequest as error:
        return RefusedAck(_transaction_id(raw), error)
    except msgspec.ValidationError as error:
        text = "Each acknowledgment must have a valid transactionId string"
        return RefusedAck(_transaction_id(raw), misfit(str(error), text, "transactionId"))


def _transaction_id(raw: Raw) -> str | None:
    """Return the transaction id of a malformed ack, where it has one, to name it in the answer."""
    try:
        found = _ANY_ACK.decode(raw).get("transactionId")
    except msgspec.ValidationError:
        return None
    return found if isinstance(found, str) else None


# --------------------------------------------------------------------- transactions


def decode_transaction(body: bytes) -> m.Transaction:
    """Return the acks and pushes of a transaction, one operation for each message."""
    given = decode_body(_TRANSACTION, body, "operations array required", "operations")
    for name, extra in (("kv", given.kv), ("timers", given.timers)):
        if extra:
            raise InvalidRequest(f"{name} is not part of this server's transactions", name)
    measure = _may_be_deep(body)
    operations: list[m.Ack | m.NewMessage] = []
    for operation in given.operations:
        if operation.type == "ack":
            if operation.transaction_id is None:
                raise InvalidRequest("transactionId is required", "transactionId")
            operations.append(_read_ack(operation, None))
        elif operation.type == "push":
            operations += _pushed(operation, measure=measure)
        else:
            raise InvalidRequest(f"Unknown operation type: {operation.type}", "type")
    leases = [read_lease_id(lease) for lease in given.required_leases or ()]
    return m.Transaction(
        operations=operations, required_leases=[lease for lease in leases if lease is not None]
    )


def _pushed(operation: _Operation, *, measure: bool) -> list[m.NewMessage]:
    items: Sequence[_PushItem | _Operation] | None = operation.items
    if items is None:
        if operation.queue is None:
            raise InvalidRequest("Queue must be a string", "queue")
        items = [operation]
    return [_new_message(item, measure=measure) for item in items]
