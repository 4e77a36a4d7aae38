"""Rows of the engine into values."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from queen_sync import ids, model as m
from queen_sync.backends.postgres_connections import POSTGRES_EPOCH_US

UNREGISTERED = "unregistered"
IGNORED = "ignored"
OPTION_COLUMNS = tuple(m.OPTION_DEFAULTS)
QUEUE_COLUMNS = (
    "q.id, q.name, q.namespace, q.task, q.created_at,"
    " (select p.id from queen.partitions p where p.queue_id = q.id and p.name = 'Default'), "
    + ", ".join(f"q.{name}" for name in OPTION_COLUMNS)
)


def claim_of(rows: Sequence[tuple[Any, ...]], group: str) -> m.Claim | None:
    """Return the claim that the rows of ``queen.pop`` say, None where the group is unregistered."""
    messages: list[m.Message] = []
    lease = expires = None
    partitions = 0
    ignored = False
    queue = partition = partition_id = ""
    priority = 0
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
        *rest,
    ) in rows:
        if seq is not None:
            created_us = created + POSTGRES_EPOCH_US
            message_id = ids.message_id(number, seq, created_us)
            messages.append(
                m.Message(
                    id=message_id,
                    transaction_id=transaction or message_id,
                    queue=queue,
                    partition=partition,
                    partition_id=partition_id,
                    seq=seq,
                    payload=payload,
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
            lease, expires = rest
        elif note == UNREGISTERED:
            return None
        else:
            ignored = True
    return m.Claim(
        messages=messages,
        lease_id=lease,
        group=group,
        expires_us=None if expires is None else expires + POSTGRES_EPOCH_US,
        partition_count=partitions,
        subscription_ignored=ignored,
    )


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


def dead_letter_of(row: tuple[Any, ...]) -> m.DeadLetter:
    """Return the dead letter in a row of ``queen.list_dead_letters``."""
    (
        number, seq, created, transaction, trace, payload, queue, partition, group,
        error, failures, deliveries, failed,
    ) = row  # fmt: skip
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
    )
