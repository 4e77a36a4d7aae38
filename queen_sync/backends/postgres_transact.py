"""A transaction of acks and pushes: locks first, in the engine's order, then acks, then pushes."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime

import msgspec
import psycopg

from queen_sync import ids, model as m
from queen_sync.backends.postgres_acks import (
    Work,
    lease_text,
    lock_leases,
    raise_first_refusal,
    settle,
)
from queen_sync.backends.postgres_connections import Cursor, refusal_of
from queen_sync.backends.postgres_push import address_of, lock_partitions, push_to_one
from queen_sync.backends.postgres_sealing import Seals
from queen_sync.backends.postgres_spread import Counts, mark, spread
from queen_sync.errors import AlreadySettled, LeaseLost, QueueFull

_STANDING = "select lease_id::text from queen.standing_leases(%s::uuid[], %s)"
_COVERING = (
    "select lease_id::text, partition_id, group_name"
    " from queen.covering_lease(%s::uuid[], %s, %s, %s::int8, %s::int8, %s)"
)


def transact(
    cursor: Cursor,
    transaction: m.Transaction,
    counts: Counts,
    seals: Seals,
    now: datetime | None,
) -> tuple[m.Transacted, Work]:
    """Apply a transaction inside the caller's, who rolls back what this raises."""
    acks: list[tuple[int, m.Ack]] = []
    pushes: list[tuple[int, m.NewMessage]] = []
    for index, operation in enumerate(transaction.operations):
        if isinstance(operation, m.Ack):
            acks.append((index, operation))
        else:
            pushes.append((index, operation))
    required = [lease_text(lease) for lease in transaction.required_leases]
    items = [item for _, item in pushes]
    placed = spread(cursor, items, counts)
    lock(cursor, [ack for _, ack in acks], placed, required, now)
    cursor.execute(_STANDING, [required, now])
    standing = {lease for (lease,) in cursor.fetchall()}
    if any(lease not in standing for lease in required):
        raise LeaseLost("Invalid or expired lease")

    bound = [_bind(cursor, ack, required, now) for _, ack in acks]
    answers, work = settle(cursor, bound, now)
    indexes = [index for index, _ in acks]
    raise_first_refusal(zip(indexes, answers, strict=True))
    stood = _stood_before(bound, answers)
    repeats = AlreadySettled("the transaction was applied before; a push of it would be repeated")
    repeats.index = next((i for i, stands in zip(indexes, stood, strict=True) if stands), None)
    try:
        places = [index for index, _ in pushes]
        receipts, pushed = push_all(
            cursor, list(zip(places, placed, strict=True)), counts, seals, now, create=True
        )
    except QueueFull as error:
        raise repeats if any(stood) else error from error
    mark(cursor, items, placed, counts, now)
    work.update(pushed)
    queued = any(not receipt.duplicate for receipt in receipts.values())
    if any(stood) and queued:
        raise repeats
    results: dict[int, m.Acked | m.Receipt] = dict(zip(indexes, answers, strict=True))
    results.update(receipts)
    return (
        m.Transacted(
            results=[results[index] for index in sorted(results)],
            repeated=all(stood) and not queued,
        ),
        work,
    )


def lock(
    cursor: Cursor,
    acks: Sequence[m.Ack],
    items: Sequence[m.NewMessage],
    leases: Sequence[str | None],
    now: datetime | None,
    *,
    create: bool = True,
) -> None:
    """Lock everything a call touches: queues, partitions, then lease rows, each by id."""
    queues: list[str] = []
    names: list[str] = []
    if items:
        queues, names = lock_partitions(cursor, items, now, create=create)
    partitions = set()
    for ack in acks:
        said = address_of(ack.transaction_id)
        named = ack.partition_id and ids.partition_number(ack.partition_id)
        partitions.add(named or (said.partition if said else None))
    everything = {*leases, *(lease_text(ack.lease_id) for ack in acks)}
    groups = {ack.group for ack in acks}
    lock_leases(cursor, everything, partitions, groups, (queues, names))


def push_all(
    cursor: Cursor,
    pushes: Sequence[tuple[int, m.NewMessage]],
    counts: Counts,
    seals: Seals,
    now: datetime | None,
    *,
    create: bool,
) -> tuple[dict[int, m.Receipt], Work]:
    """Push to any number of queues, whose rows are locked; return receipts by index."""
    by_queue: dict[str, list[tuple[int, m.NewMessage]]] = {}
    for index, item in pushes:
        by_queue.setdefault(item.queue, []).append((index, item))
    receipts: dict[int, m.Receipt] = {}
    work: Work = {}
    for queue in sorted(by_queue):
        chosen = by_queue[queue]
        try:
            number, given = push_to_one(
                cursor,
                [item for _, item in chosen],
                seals,
                now,
                create=create,
                spread=counts.get(queue, 0),
            )
        except psycopg.Error as error:
            refusal = refusal_of(error)
            if refusal is None:
                raise
            refusal.index = chosen[0][0]
            raise refusal from error
        work[number] = queue
        receipts.update(zip((index for index, _ in chosen), given, strict=True))
    return receipts, work


def _bind(
    cursor: Cursor, ack: m.Ack, required: Sequence[str | None], now: datetime | None
) -> m.Ack:
    """Give an ack the lease and group that it leaves to the transaction."""
    if ack.group != m.QUEUE_MODE and ack.lease_id is not None:
        return ack
    leases = [lease_text(ack.lease_id)] if ack.lease_id is not None else required
    number = ids.partition_number(ack.partition_id) if ack.partition_id is not None else None
    said = address_of(ack.transaction_id)
    cursor.execute(
        _COVERING,
        [leases, number, ack.transaction_id, said and said.seq, said and said.partition, now],
    )
    rows = cursor.fetchall()
    if ack.group != m.QUEUE_MODE:
        rows = [row for row in rows if row[2] == ack.group]
    if len(rows) != 1:
        return ack
    lease, partition, group = rows[0]
    return msgspec.structs.replace(
        ack, lease_id=lease, group=group, partition_id=ids.partition_id(partition)
    )


def _stood_before(acks: Sequence[m.Ack], answers: Sequence[m.Acked]) -> list[bool]:
    """Say of each ack whether its outcome stood before this transaction began."""
    seen: set[tuple[str | None, str, str | None, str]] = set()
    stood = []
    for ack, answer in zip(acks, answers, strict=True):
        key = (ack.partition_id, ack.group, ack.lease_id, ack.transaction_id)
        stood.append(answer.already and key not in seen)
        if not answer.already:
            seen.add(key)
    return stood
