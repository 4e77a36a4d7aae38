"""Rows of the file into values."""

from __future__ import annotations

from typing import Any

from queen_sync import ids, model as m
from queen_sync.backends.sqlite_connections import Row, bounded
from queen_sync.backends.sqlite_sealing import shown_payload
from queen_sync.encryption import KeyRing

OPTION_COLUMNS = tuple(m.OPTION_DEFAULTS)
"""The order of the options in ``queue_by_name`` and ``set_queue``."""


def queue_of(row: Row) -> m.Queue:
    """Return the queue in a row of ``queue_by_name``."""
    number, name, namespace, task, created_us, default, *options = row
    named = dict(zip(OPTION_COLUMNS, options, strict=True))
    for option, value in m.OPTION_DEFAULTS.items():
        if isinstance(value, bool):
            named[option] = bool(named[option])
    return m.Queue(
        id=ids.queue_id(number),
        name=name,
        namespace=namespace,
        task=task,
        options=m.QueueOptions(**named),
        default_partition_id=ids.partition_id(default),
        created_us=created_us,
    )


def settings_of(queue: m.Queue) -> dict[str, int | bool | str]:
    """Return all that a configure may change."""
    options = {name: getattr(queue.options, name) for name in OPTION_COLUMNS}
    return {"namespace": queue.namespace, "task": queue.task, **options}


def dead_letter_of(row: Row, keys: KeyRing | None) -> m.DeadLetter:
    """Return the dead letter in a row of ``list_dead_letters``."""
    (
        number, seq, created_us, transaction_id, trace_id, payload, queue, partition, group,
        error, failures, deliveries, failed_us, key,
    ) = row  # fmt: skip
    payload, unreadable = shown_payload(keys, (queue, partition, transaction_id), payload, key)
    message_id = ids.message_id(number, seq, created_us)
    return m.DeadLetter(
        id=message_id,
        transaction_id=transaction_id or message_id,
        queue=queue,
        partition=partition,
        partition_id=ids.partition_id(number),
        seq=seq,
        group=group,
        payload=payload,
        created_us=created_us,
        failed_us=failed_us,
        trace_id=trace_id,
        error=error,
        failure_count=failures,
        delivery_count=deliveries,
        encrypted=key is not None,
        unreadable=unreadable,
    )


def filter_of(wanted: m.DeadLetterFilter) -> tuple[Any, ...]:
    """Return the parameters by which the statements about dead letters choose.

    A transaction id may be the id of a message that its caller did not name.
    """
    partition = None
    if wanted.partition_id is not None:
        partition = ids.partition_number(wanted.partition_id) or 0
    name = wanted.transaction_id
    said = None if name is None else ids.address(name)
    instants = (wanted.failed_from_us, wanted.failed_to_us)
    return (
        wanted.queue,
        wanted.group,
        wanted.partition,
        partition,
        *(None if instant is None else bounded(instant) for instant in instants),
        name,
        *((None, None, None) if said is None else said),
    )


def removal_of(queue: str, row: Row) -> m.Removal:
    """Return what left a queue, from a row of ``list_removals``."""
    partition, kind, count, removed_us, group = row
    return m.Removal(
        queue=queue,
        partition=partition,
        kind=kind,
        count=count,
        removed_us=removed_us,
        group=group,
    )
