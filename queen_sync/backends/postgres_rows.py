"""Rows of the engine into values."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

from queen_sync import ids, model as m
from queen_sync.backends.postgres_connections import POSTGRES_EPOCH_US
from queen_sync.encryption import KeyRing, open_envelope, shown
from queen_sync.errors import Undecryptable

UNREGISTERED = "unregistered"
IGNORED = "ignored"
OPTION_COLUMNS = tuple(m.OPTION_DEFAULTS)
QUEUE_COLUMNS = (
    "q.id, q.name, q.namespace, q.task, q.created_at,"
    " (select p.id from queen.partitions p where p.queue_id = q.id and p.name = 'Default'), "
    + ", ".join(f"q.{name}" for name in OPTION_COLUMNS)
)


class Closed(NamedTuple):
    """From where on a partition's part of a batch could not be opened, and why."""

    partition: int
    seq: int
    error: Undecryptable


class Popped(NamedTuple):
    """What a pop was given: the claim of what could be opened, its lease, and what could not."""

    claim: m.Claim
    lease: str | None
    closed: list[Closed]


def popped_of(rows: Sequence[tuple[Any, ...]], group: str, keys: KeyRing | None) -> Popped | None:
    """Return what the rows of ``queen.pop`` say, None where the group is unregistered.

    Of each partition a claim holds what comes before the first payload that cannot be opened.
    """
    messages: list[m.Message] = []
    closed: list[Closed] = []
    lease = expires = None
    partitions = 0
    ignored = False
    queue = partition = partition_id = ""
    opened = b""
    priority = before = 0
    for (
        number,
        seq,
        created,
        transaction,
        trace,
        payload,
        deliveries,
        failures,
        note,
        lease_id,
        ends,
        key,
    ) in rows:
        if seq is not None:
            created_us = created + POSTGRES_EPOCH_US
            message_id = ids.message_id(number, seq, created_us)
            if closed and closed[-1].partition == number:
                continue
            if key is not None:
                try:
                    opened = open_envelope(keys, queue, partition, transaction, payload)
                except Undecryptable as error:
                    closed.append(Closed(number, seq, error))
                    partitions -= len(messages) == before
                    continue
            messages.append(
                m.Message(
                    id=message_id,
                    transaction_id=transaction or message_id,
                    queue=queue,
                    partition=partition,
                    partition_id=partition_id,
                    seq=seq,
                    payload=payload if key is None else opened,
                    created_us=created_us,
                    trace_id=trace,
                    delivery_count=(deliveries or 0) + 1,
                    failure_count=failures or 0,
                    error=note,
                    priority=priority,
                )
            )
        elif number is not None:
            queue, priority = transaction, failures
            partition, partition_id = note, ids.partition_id(number)
            partitions += 1
            before = len(messages)
            lease, expires = lease_id, ends
        elif note == UNREGISTERED:
            return None
        else:
            ignored = True
    claim = m.Claim(
        messages=messages,
        lease_id=lease if messages else None,
        group=group,
        expires_us=expires + POSTGRES_EPOCH_US if messages and expires is not None else None,
        partition_count=partitions,
        subscription_ignored=ignored,
    )
    return Popped(claim, lease, closed)


def queue_of(row: tuple[Any, ...]) -> m.Queue:
    """Return the queue in a row of `QUEUE_COLUMNS`."""
    number, name, namespace, task, created, default, *options = row
    return m.Queue(
        id=ids.queue_id(number),
        name=name,
        namespace=namespace,
        task=task,
        options=m.QueueOptions(**dict(zip(OPTION_COLUMNS, options, strict=True))),
        default_partition_id=ids.partition_id(default),
        created_us=created + POSTGRES_EPOCH_US,
    )


def subscription_of(mode: m.SubscriptionMode, start: int | None) -> m.Subscription:
    """Return where a group begins, from its mode and start as stored."""
    from_us = start + POSTGRES_EPOCH_US if mode == "from" and start is not None else None
    return m.Subscription(mode=mode, from_us=from_us)


def dead_letter_of(row: tuple[Any, ...], keys: KeyRing | None) -> m.DeadLetter:
    """Return the dead letter in a row of ``queen.list_dead_letters``."""
    (
        number, seq, created, transaction, trace, payload, queue, partition, group,
        error, failures, deliveries, failed, key,
    ) = row  # fmt: skip
    unreadable = None
    if key is not None:
        payload, unreadable = shown(keys, queue, partition, transaction, payload)
    created_us = created + POSTGRES_EPOCH_US
    message_id = ids.message_id(number, seq, created_us)
    return m.DeadLetter(
        id=message_id,
        transaction_id=transaction or message_id,
        queue=queue,
        partition=partition,
        partition_id=ids.partition_id(number),
        seq=seq,
        group=group,
        payload=payload,
        created_us=created_us,
        failed_us=failed + POSTGRES_EPOCH_US,
        trace_id=trace,
        error=error,
        failure_count=failures,
        delivery_count=deliveries,
        encrypted=key is not None,
        unreadable=unreadable,
    )
