"""Answers about single messages, cleanup and traces, read into the values that they were."""

from __future__ import annotations

from datetime import datetime

import msgspec

from queen_sync import inspection as i, model as m
from queen_sync.clock import to_us
from queen_sync.wire.texts import instant_of
from queen_sync.wire_client.answers import Answer, seq_of, us

# ------------------------------------------------------------------------- messages


class _GroupAnswer(Answer):
    name: str
    status: i.MessageStatus
    delivery_count: int = 0
    retry_count: int = 0
    error_message: str | None = None
    lease_expires_at: datetime | None = None


class _StoredAnswer(Answer):
    id: str
    transaction_id: str
    partition_id: str
    queue: str
    partition: str
    created_at: datetime
    trace_id: str | None = None
    payload: msgspec.Raw = msgspec.Raw(b"null")
    consumer_groups: list[_GroupAnswer] = msgspec.field(default_factory=list)
    is_encrypted: bool = False
    payload_error: str | None = None


class _Place(Answer):
    last_created_at: datetime
    last_id: str


class _MessagesAnswer(Answer):
    messages: list[_StoredAnswer]
    next_cursor: _Place | None = None


_MESSAGE = msgspec.json.Decoder(_StoredAnswer)
_MESSAGES = msgspec.json.Decoder(_MessagesAnswer)


def decode_message(body: bytes) -> i.StoredMessage:
    """Read all about one message."""
    return _message(_MESSAGE.decode(body))


def decode_messages(body: bytes) -> i.MessagePage:
    """Read a page of messages."""
    answer = _MESSAGES.decode(body)
    place = answer.next_cursor
    return i.MessagePage(
        items=[_message(found) for found in answer.messages],
        next_before=None if place is None else (to_us(place.last_created_at), place.last_id),
    )


def _message(found: _StoredAnswer) -> i.StoredMessage:
    return i.StoredMessage(
        id=found.id,
        transaction_id=found.transaction_id,
        queue=found.queue,
        partition=found.partition,
        partition_id=found.partition_id,
        seq=seq_of(found.id),
        payload=bytes(found.payload),
        created_us=instant_of(us(found.created_at), found.id),
        trace_id=found.trace_id,
        states=[_state(state) for state in found.consumer_groups],
        encrypted=found.is_encrypted,
        unreadable=found.payload_error,
    )


def _state(found: _GroupAnswer) -> i.MessageState:
    expires = found.lease_expires_at
    return i.MessageState(
        group=found.name,
        status=found.status,
        delivery_count=found.delivery_count,
        failure_count=found.retry_count,
        error=found.error_message,
        lease_expires_us=None if expires is None else to_us(expires),
    )


# ----------------------------------------------------------------------------- traces


class _Filed(Answer):
    trace_id: str


class _TraceAnswer(msgspec.Struct):
    id: str
    event_type: str
    data: msgspec.Raw
    created_at: datetime
    message_id: str
    transaction_id: str
    partition_id: str
    queue_name: str
    partition_name: str
    consumer_group: str | None = None
    trace_names: list[str] = msgspec.field(default_factory=list)


class _TracesAnswer(msgspec.Struct):
    traces: list[_TraceAnswer]
    total: int = 0


class _NameAnswer(msgspec.Struct):
    trace_name: str
    trace_count: int
    message_count: int
    last_seen: datetime


class _NamesAnswer(msgspec.Struct):
    trace_names: list[_NameAnswer]
    total: int


_TRACES = msgspec.json.Decoder(_TracesAnswer)
_NAMES = msgspec.json.Decoder(_NamesAnswer)


def decode_trace_filed(body: bytes) -> str:
    """Read the id of a note that was filed."""
    return msgspec.json.decode(body, type=_Filed).trace_id


def decode_traces(body: bytes) -> i.TracePage:
    """Read notes: those about a message, or a page of those of a name."""
    answer = _TRACES.decode(body)
    return i.TracePage(items=[_trace(found) for found in answer.traces], total=answer.total)


def _trace(found: _TraceAnswer) -> i.TraceRecord:
    return i.TraceRecord(
        id=found.id,
        queue=found.queue_name,
        partition=found.partition_name,
        partition_id=found.partition_id,
        message_id=found.message_id,
        transaction_id=found.transaction_id,
        group=found.consumer_group or m.QUEUE_MODE,
        names=found.trace_names,
        kind=found.event_type,
        data=bytes(found.data),
        created_us=to_us(found.created_at),
    )


def decode_trace_names(body: bytes) -> tuple[list[i.TraceName], int]:
    """Read a page of the names of notes, and how many there are in all."""
    answer = _NAMES.decode(body)
    names = [
        i.TraceName(
            name=found.trace_name,
            trace_count=found.trace_count,
            message_count=found.message_count,
            last_us=to_us(found.last_seen),
        )
        for found in answer.trace_names
    ]
    return names, answer.total
