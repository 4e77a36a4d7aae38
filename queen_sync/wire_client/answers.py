"""Answers to pushes, pops, acks and transactions, read into values of the model.

They are read leniently, since an older server leaves keys out: an id that is none of ours
gives ``seq`` 0, and a code that is missing is told from the text. What makes no sense at
all is a ValueError.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import Literal, cast

import msgspec

from queen_sync import ids, model as m
from queen_sync.clock import to_us

_REASON_CODES = (
    ("not found", "MESSAGE_NOT_FOUND"),
    ("leaseid is required", "LEASE_REQUIRED"),
    ("lease", "LEASE_LOST"),
    ("not being processed", "LEASE_LOST"),
    ("capacity", "QUEUE_FULL"),
)
_STATUS_OF: Mapping[m.Outcome, m.Status] = {
    "completed": "completed",
    "failed": "failed",
    "retry": "pending",
    "dlq": "dead_letter",
}


_STATUSES: frozenset[str] = frozenset(_STATUS_OF.values())


def us(at: datetime | None) -> int:
    """Return an instant of an answer; 0 where it is missing."""
    return 0 if at is None else to_us(at)


def seq_of(message_id: str) -> int:
    """Return the seq that a message id holds; 0 where it is none of ours."""
    found = ids.address(message_id)
    return 0 if found is None else found.seq


def code_of(reason: str | None, otherwise: str) -> str:
    """Return the code that a refusal without one would carry, told from its text."""
    text = (reason or "").lower()
    return next((code for part, code in _REASON_CODES if part in text), otherwise)


class Answer(msgspec.Struct, rename="camel"):
    """Part of an answer: keys that it does not name are passed over."""


# ----------------------------------------------------------------------------- push


class _ReceiptAnswer(Answer):
    status: str
    index: int | None = None
    message_id: str = msgspec.field(name="message_id", default="")
    transaction_id: str | None = msgspec.field(name="transaction_id", default=None)
    partition_id: str = msgspec.field(name="partition_id", default="")
    trace_id: str | None = msgspec.field(name="trace_id", default=None)
    partition: str | None = None
    queue_depth: int | None = None
    remaining_capacity: int | None = None


_RECEIPTS = msgspec.json.Decoder(list[_ReceiptAnswer])


def decode_receipts(body: bytes, items: Sequence[m.NewMessage]) -> list[m.Receipt]:
    """Read the answer to a push; ValueError where an item was neither stored nor known."""
    answers = _RECEIPTS.decode(body)
    if len(answers) != len(items):
        raise ValueError(f"{len(answers)} receipts for {len(items)} messages")
    if all(answer.index is not None for answer in answers):
        answers.sort(key=lambda answer: answer.index or 0)
    return [
        m.Receipt(
            status=_stored(answer.status),
            id=answer.message_id,
            transaction_id=answer.transaction_id or item.transaction_id or answer.message_id,
            queue=item.queue,
            partition=answer.partition or item.partition,
            partition_id=answer.partition_id,
            seq=seq_of(answer.message_id),
            trace_id=answer.trace_id,
            depth=answer.queue_depth,
            remaining=answer.remaining_capacity,
        )
        for answer, item in zip(answers, items, strict=True)
    ]


def _stored(status: str) -> Literal["queued", "duplicate"]:
    if status in {"queued", "duplicate"}:
        return cast(Literal["queued", "duplicate"], status)
    raise ValueError(f"a message was answered {status!r}, neither queued nor duplicate")


# ------------------------------------------------------------------------------ pop


class MessageAnswer(Answer):
    id: str
    transaction_id: str
    partition_id: str
    data: msgspec.Raw
    created_at: datetime | None = None
    queue: str | None = None
    partition: str = m.DEFAULT_PARTITION
    trace_id: str | None = None
    delivery_count: int | None = None
    retry_count: int | None = None
    error_message: str | None = None
    priority: int = 0


class _ClaimAnswer(Answer):
    messages: list[MessageAnswer | None] = []
    lease_id: str | None = None
    lease_expires_at: datetime | None = None
    partitions_claimed: int | None = None


_CLAIM = msgspec.json.Decoder(_ClaimAnswer)


def decode_claim(body: bytes, request: m.PopRequest, *, ignored: bool) -> m.Claim:
    """Read the answer to a pop; an empty body is an empty claim."""
    answer = _CLAIM.decode(body) if body else _ClaimAnswer()
    messages = [_message(found, request) for found in answer.messages if found is not None]
    if not messages:
        return m.Claim(group=request.group, subscription_ignored=ignored)
    expires = answer.lease_expires_at
    return m.Claim(
        messages=messages,
        lease_id=answer.lease_id or None,
        group=request.group,
        expires_us=None if expires is None else to_us(expires),
        partition_count=answer.partitions_claimed or len({f.partition_id for f in messages}),
        subscription_ignored=ignored,
    )


def _message(found: MessageAnswer, request: m.PopRequest) -> m.Message:
    failures = found.retry_count or 0
    return m.Message(
        id=found.id,
        transaction_id=found.transaction_id,
        queue=found.queue or request.queue,
        partition=found.partition,
        partition_id=found.partition_id,
        seq=seq_of(found.id),
        payload=bytes(found.data),
        created_us=us(found.created_at),
        trace_id=found.trace_id,
        delivery_count=found.delivery_count or failures + 1,
        failure_count=failures,
        error=found.error_message,
        priority=found.priority,
    )


# ------------------------------------------------------------------- ack and extend


class _AckedAnswer(Answer):
    success: bool = False
    status: str | None = None
    already: bool = False
    code: str | None = None
    error: str | None = None
    queue_name: str | None = None
    partition_name: str | None = None
    lease_released: bool = False
    dlq: bool = False
    consumer_group: str | None = None


_ACKED = msgspec.json.Decoder(list[_AckedAnswer])


def decode_acked(body: bytes, acks: Sequence[m.Ack]) -> list[m.Acked]:
    """Read the answer to an ack batch, in the order of the request."""
    answers = _ACKED.decode(body or b"[]")
    if len(answers) != len(acks):
        raise ValueError(f"{len(answers)} answers for {len(acks)} acks")
    return [_acked(answer, ack) for answer, ack in zip(answers, acks, strict=True)]


def _acked(answer: _AckedAnswer, ack: m.Ack) -> m.Acked:
    status: m.Status | None = None
    code = reason = None
    if not answer.success:
        code, reason = answer.code or code_of(answer.error, "LEASE_LOST"), answer.error
    elif answer.status in _STATUSES:
        status = cast(m.Status, answer.status)
    else:
        status = "dead_letter" if answer.dlq else _STATUS_OF[ack.outcome]
    return m.Acked(
        transaction_id=ack.transaction_id,
        status=status,
        already=answer.already,
        code=code,
        reason=reason,
        queue=answer.queue_name,
        partition=answer.partition_name,
        # A transaction may take the group from the lease; only it says which.
        group=answer.consumer_group or ack.group,
        lease_released=answer.lease_released,
    )


class _ExtendedAnswer(Answer):
    success: bool = False
    error: str | None = None
    expires_at: datetime | None = None


_EXTENDED = msgspec.json.Decoder(_ExtendedAnswer | list[_ExtendedAnswer])


def decode_extended(body: bytes) -> int | str:
    """Read the answer to an extend: the new expiry, or the text of the refusal."""
    answer = _EXTENDED.decode(body)
    first = answer if isinstance(answer, _ExtendedAnswer) else answer[0]
    if first.success and first.expires_at is not None:
        return to_us(first.expires_at)
    return first.error or "Invalid or expired lease"


# ------------------------------------------------------------------------- transact


class _Result(_AckedAnswer):
    """One result of a transaction: that of an ack, or of one pushed message."""

    message_id: str | None = None
    transaction_id: str | None = None
    partition_id: str | None = None
    trace_id: str | None = None
    partition: str | None = None
    duplicate: bool = False
    queue_depth: int | None = None
    remaining_capacity: int | None = None


class _TransactedAnswer(Answer):
    success: bool = False
    repeated: bool = False
    results: list[_Result] = []


_TRANSACTED = msgspec.json.Decoder(_TransactedAnswer)


def decode_transacted(body: bytes, transaction: m.Transaction) -> m.Transacted | None:
    """Read the answer to a transaction; None where it was refused as a whole."""
    answer = _TRANSACTED.decode(body)
    if not answer.success:
        return None
    if len(answer.results) != len(transaction.operations):
        raise ValueError(
            f"{len(answer.results)} results for {len(transaction.operations)} operations"
        )
    pairs = zip(answer.results, transaction.operations, strict=True)
    results = [
        _acked(result, operation) if isinstance(operation, m.Ack) else _pushed(result, operation)
        for result, operation in pairs
    ]
    return m.Transacted(results=results, repeated=answer.repeated)


def _pushed(result: _Result, item: m.NewMessage) -> m.Receipt:
    message_id = result.message_id or ""
    duplicate = result.duplicate or result.status == "duplicate"
    return m.Receipt(
        status="duplicate" if duplicate else "queued",
        id=message_id,
        transaction_id=result.transaction_id or item.transaction_id or message_id,
        queue=item.queue,
        partition=result.partition or item.partition,
        partition_id=result.partition_id or "",
        seq=seq_of(message_id),
        trace_id=result.trace_id,
        depth=result.queue_depth,
        remaining=result.remaining_capacity,
    )
