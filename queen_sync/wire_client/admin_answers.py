"""Answers about queues, groups, dead letters and the server, read into values of the model."""

from __future__ import annotations

from datetime import datetime
from typing import Any, cast

import msgspec

from queen_sync import model as m
from queen_sync.backends.base import Capabilities
from queen_sync.wire.options import OPTION_NAMES
from queen_sync.wire_client.answers import Answer, MessageAnswer, seq_of, us

_OPTION_OF = {wire: name for name, wire in OPTION_NAMES.items()}


class _ConfiguredAnswer(Answer):
    queue: str
    queue_id: str = ""
    partition_id: str = ""
    namespace: str | None = None
    task: str | None = None
    options: dict[str, int | bool] = msgspec.field(default_factory=dict)
    created: bool = False
    created_at: datetime | None = None
    changes: dict[str, m.Change] = msgspec.field(default_factory=dict)


_CONFIGURED = msgspec.json.Decoder(_ConfiguredAnswer)


def decode_configured(body: bytes) -> m.Configured:
    """Read the answer to a configure; options of other servers are passed over."""
    answer = _CONFIGURED.decode(body)
    options = {_OPTION_OF[k]: v for k, v in answer.options.items() if k in _OPTION_OF}
    queue = m.Queue(
        id=answer.queue_id,
        name=answer.queue,
        namespace=answer.namespace or "",
        task=answer.task or "",
        options=m.QueueOptions(**cast(dict[str, Any], options)),
        default_partition_id=answer.partition_id,
        created_us=us(answer.created_at),
    )
    changes = {_OPTION_OF.get(key, key): change for key, change in answer.changes.items()}
    return m.Configured(queue=queue, created=answer.created, changes=changes)


class _CapabilitiesAnswer(Answer):
    features: list[str]
    durable: bool = False
    shared: bool = False
    max_batch: int = 10_000
    max_payload_bytes: int = 16 * 1024 * 1024
    clock_resolution_microseconds: int = 1


def decode_capabilities(body: bytes) -> Capabilities:
    """Read what a server says it can do."""
    answer = msgspec.json.decode(body, type=_CapabilitiesAnswer)
    return Capabilities(
        features=frozenset(answer.features),
        durable=answer.durable,
        shared=answer.shared,
        max_batch=answer.max_batch,
        max_payload_bytes=answer.max_payload_bytes,
        clock_resolution_us=answer.clock_resolution_microseconds,
    )


def decode_health(body: bytes) -> dict[str, Any]:
    """Read a health page."""
    return msgspec.json.decode(body, type=dict[str, Any])


class _Deleted(Answer):
    existed: bool = True


class _GroupDeleted(Answer):
    deleted_partitions: int = 0


class _Restarted(Answer):
    rows_updated: int = 0


def decode_deleted(body: bytes) -> bool:
    """Read the answer to the deletion of a queue: whether there was one."""
    return msgspec.json.decode(body, type=_Deleted).existed


def decode_group_deleted(body: bytes) -> int:
    """Read the answer to the deletion of a group: of how many partitions it knew."""
    return msgspec.json.decode(body, type=_GroupDeleted).deleted_partitions


def decode_restarted(body: bytes) -> int:
    """Read how many records of a group's start changed."""
    return msgspec.json.decode(body, type=_Restarted).rows_updated


class _DeadLetterAnswer(MessageAnswer):
    consumer_group: str | None = None
    failed_at: datetime | None = None
    is_encrypted: bool = False
    payload_error: str | None = None


class _DeadLettersAnswer(Answer):
    messages: list[_DeadLetterAnswer] = msgspec.field(default_factory=list)
    total: int | None = None


def decode_dead_letters(body: bytes) -> m.DeadLetters:
    """Read a page of dead letters."""
    answer = msgspec.json.decode(body, type=_DeadLettersAnswer) if body else _DeadLettersAnswer()
    items = [
        m.DeadLetter(
            id=found.id,
            transaction_id=found.transaction_id,
            queue=found.queue or "",
            partition=found.partition,
            partition_id=found.partition_id,
            seq=seq_of(found.id),
            group=found.consumer_group or m.QUEUE_MODE,
            payload=bytes(found.data),
            created_us=us(found.created_at),
            failed_us=us(found.failed_at),
            trace_id=found.trace_id,
            error=found.error_message,
            failure_count=found.retry_count or 0,
            delivery_count=(
                found.retry_count or 1 if found.delivery_count is None else found.delivery_count
            ),
            encrypted=found.is_encrypted,
            unreadable=found.payload_error,
        )
        for found in answer.messages
    ]
    return m.DeadLetters(items=items, total=len(items) if answer.total is None else answer.total)


class _Sought(Answer):
    partitions_updated: int = 0


class _Counted(Answer):
    count: int


def decode_sought(body: bytes) -> int:
    """Read the answer to a seek: how many partitions were moved."""
    return msgspec.json.decode(body, type=_Sought).partitions_updated


def decode_count(body: bytes) -> int:
    """Read to how many dead letters something was done."""
    return msgspec.json.decode(body, type=_Counted).count
