"""Bodies of requests, read into values of the model.

A body passes one gate, whole: UTF-8, no byte order mark, JSON to the last character. Its
payloads are then sound too and are taken as the bytes they are. What is wrong is refused
with InvalidRequest that names the key; of a push or a transaction nothing is done then.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Any, TypeVar

import msgspec
from msgspec import Raw

from queen_sync import model as m
from queen_sync.errors import InvalidRequest
from queen_sync.payloads import MAX_DEPTH, JsonText, depth
from queen_sync.wire.options import read_options
from queen_sync.wire.texts import read_instant, read_lease_id, read_uuid

_T = TypeVar("_T")
_BOM = b"\xef\xbb\xbf"
_NOTHING = Raw(b"")
_NULL = JsonText(b"null")
_PLACE = re.compile(r" - at `\$(?P<path>[^`]*)`$")
_MISSING = re.compile(r"missing required field `(?P<name>\w+)`")
_KEY = re.compile(r"\.(\w+)")

_TEXTS: Mapping[str, str] = {
    "items": "items array is required",
    "items[]": "Queue must be a string",
    "queue": "Queue must be a string",
    "partition": "Partition must be a string",
    "transactionId": "TransactionId must be a string",
    "traceId": "TraceId must be a string",
    "operations": "operations array required",
    "operations[]": "Each operation must be an object",
    "acknowledgments": "acknowledgments array is required",
}
"""What is said about a key of the wrong type, where more is to be said than its type."""


class _Body(msgspec.Struct, rename="camel"):
    """Part of a request: keys that it does not name are passed over."""


class _PushItem(_Body, gc=False):
    queue: str
    partition: str | None = None
    payload: Raw = _NOTHING
    data: Raw = _NOTHING
    transaction_id: str | None = None
    trace_id: str | None = None


class _PushConfig(_Body):
    auto_create: bool = True


class _Push(_Body):
    items: list[_PushItem]
    config: _PushConfig | None = None


class _Ack(_Body, gc=False):
    transaction_id: str
    partition_id: str | None = None
    status: str | None = None
    consumer_group: str | None = None
    lease_id: str | None = None
    error: str | None = None


class _Acks(_Body):
    acknowledgments: list[Raw]
    consumer_group: str | None = None


class _Operation(_Body):
    type: str
    items: list[_PushItem] | None = None
    queue: str | None = None
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


class _Transaction(_Body):
    operations: list[_Operation]
    required_leases: list[str] | None = None
    kv: list[Any] | None = None
    timers: list[Any] | None = None


class _Configure(_Body):
    queue: str
    namespace: str | None = None
    task: str | None = None
    options: dict[str, Any] | None = None


class _Extend(_Body):
    seconds: Any = None


class _Restart(_Body):
    subscription_timestamp: str


_PUSH = msgspec.json.Decoder(_Push)
_ACK = msgspec.json.Decoder(_Ack)
_ACKS = msgspec.json.Decoder(_Acks)
_TRANSACTION = msgspec.json.Decoder(_Transaction)
_CONFIGURE = msgspec.json.Decoder(_Configure)
_EXTEND = msgspec.json.Decoder(_Extend)
_RESTART = msgspec.json.Decoder(_Restart)
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


# ------------------------------------------------------------------------- the gate


def _decode(decoder: msgspec.json.Decoder[_T], body: bytes, otherwise: str, field: str) -> _T:
    """Read a body; where it is not of the right form, ``otherwise`` says what was expected."""
    if not body.isascii():
        if body.startswith(_BOM):
            raise InvalidRequest("Invalid JSON: byte order mark", "body")
        try:
            body.decode()
        except UnicodeDecodeError as error:
            raise InvalidRequest("Invalid JSON: not UTF-8", "body") from error
    try:
        return decoder.decode(body)
    except msgspec.ValidationError as error:
        raise _misfit(str(error), otherwise, field) from error
    except msgspec.DecodeError as error:
        if not body.strip():
            raise InvalidRequest("Empty request body", "body") from error
        raise InvalidRequest(f"Invalid JSON: {error}", "body") from error
    except RecursionError as error:
        raise InvalidRequest(f"body is nested deeper than {MAX_DEPTH}", "body") from error


def _misfit(problem: str, otherwise: str, field: str) -> InvalidRequest:
    """Return the refusal of sound JSON with a wrong type at some key."""
    place = _PLACE.search(problem)
    path = place["path"] if place is not None else ""
    missing = _MISSING.search(problem)
    keys = _KEY.findall(path)
    if missing is not None:
        name = missing["name"]
    elif keys:
        name = keys[-1]
    else:
        return InvalidRequest(otherwise, field)
    if missing is None and path.endswith("]"):
        return InvalidRequest(
            _TEXTS.get(f"{name}[]", f"{name} has an element of the wrong type"), name
        )
    if missing is not None:
        text = otherwise if name == field else _TEXTS.get(name, f"{name} is required")
        return InvalidRequest(text, name)
    wanted = problem.partition(",")[0].removeprefix("Expected ").replace("`", "")
    return InvalidRequest(_TEXTS.get(name, f"{name} must be: {wanted}"), name)


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


def decode_push(body: bytes) -> tuple[list[m.NewMessage], bool]:
    """Return the messages of a push, and whether missing queues are to be made."""
    push = _decode(_PUSH, body, "items array is required", "items")
    measure = _may_be_deep(body)
    create = push.config is None or push.config.auto_create
    return [_new_message(item, measure=measure) for item in push.items], create


def _new_message(item: _PushItem | _Operation, *, measure: bool) -> m.NewMessage:
    trace_id = item.trace_id
    if trace_id is not None:
        trace_id = read_uuid(trace_id, "TraceId must be a UUID", "traceId")
    partition = item.partition
    return m.NewMessage(
        queue=item.queue or "",
        payload=_payload(item, measure=measure),
        partition=m.DEFAULT_PARTITION if partition is None else partition,
        transaction_id=item.transaction_id or None,
        trace_id=trace_id,
    )


# ----------------------------------------------------------------------------- acks


def decode_ack(body: bytes) -> m.Ack:
    """Return the one ack of a body."""
    return _read_ack(_decode(_ACK, body, "transactionId is required", "transactionId"), None)


def _read_ack(item: _Ack | _Operation, group: str | None) -> m.Ack:
    outcome = _OUTCOMES.get(item.status or "completed")
    if outcome is None:
        raise InvalidRequest("status must be one of completed, failed, retry, dlq", "status")
    partition_id = item.partition_id or None
    if partition_id is not None:
        partition_id = read_uuid(partition_id, "partitionId must be a UUID", "partitionId")
    return m.Ack(
        transaction_id=item.transaction_id or "",
        outcome=outcome,
        partition_id=partition_id,
        group=item.consumer_group or group or m.QUEUE_MODE,
        lease_id=read_lease_id(item.lease_id),
        error=item.error,
    )


def decode_acks(body: bytes) -> list[m.Ack | RefusedAck]:
    """Return the acks of a batch, each malformed one as what is wrong with it."""
    batch = _decode(_ACKS, body, "acknowledgments array is required", "acknowledgments")
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
        return RefusedAck(_transaction_id(raw), _misfit(str(error), text, "transactionId"))


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
    given = _decode(_TRANSACTION, body, "operations array required", "operations")
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


# ----------------------------------------------------------------- queues, groups, leases


class Configure(msgspec.Struct, frozen=True):
    """A queue and what to change of it."""

    queue: str
    options: dict[str, int | bool]
    namespace: str | None
    task: str | None


def decode_configure(body: bytes) -> Configure:
    """Return the queue of a configure, its options under our names, namespace and task."""
    try:
        given = _decode(_CONFIGURE, body, "queue is required", "queue")
    except InvalidRequest as error:
        if error.field == "queue":
            raise InvalidRequest("queue is required", "queue") from error
        raise
    m.check_name(given.queue, "queue")
    for name, field in ((given.namespace, "namespace"), (given.task, "task")):
        if name:
            m.check_name(name, field)
    return Configure(given.queue, read_options(given.options), given.namespace, given.task)


def decode_extend(body: bytes) -> int | None:
    """Return for how many seconds a lease is wanted; None where the body does not say."""
    if body.strip() in (b"", b"[]"):
        return None
    seconds = _decode(_EXTEND, body, "seconds must be an integer", "seconds").seconds
    if seconds is None:
        return None
    if isinstance(seconds, bool) or not isinstance(seconds, int):
        raise InvalidRequest("seconds must be an integer", "seconds")
    if not 1 <= seconds <= m.MAX_LEASE_SECONDS:
        raise InvalidRequest(f"seconds must be 1 to {m.MAX_LEASE_SECONDS}", "seconds")
    return seconds


def decode_restart(body: bytes) -> int:
    """Return the instant at which a group is to begin."""
    text = "Missing subscriptionTimestamp in request body"
    if body.strip() in (b"", b"[]"):
        raise InvalidRequest(text, "subscriptionTimestamp")
    given = _decode(_RESTART, body, text, "subscriptionTimestamp")
    return read_instant(given.subscription_timestamp, "subscriptionTimestamp")
