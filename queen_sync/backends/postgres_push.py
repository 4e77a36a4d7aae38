"""Messages into arguments of ``queen.push``, and its answer into receipts."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from datetime import datetime
from typing import Any

from queen_sync import ids, model as m
from queen_sync.backends.postgres_connections import POSTGRES_EPOCH_US, Cursor
from queen_sync.backends.postgres_sealing import Seals

_PUSH = (
    "select queue_id, partition_ids, created_ats, seqs, duplicates, duplicate_ats,"
    " duplicate_traces::text[], depth, max_queue_size"
    " from queen.push(%s, %b::text[], %b::int8[]::int4[], %b::text[], %b::text[],"
    " %b::text[]::uuid[], %b::int8[], %b::int8[], %b::int8[], %s, %s::int4, %s, %s, %s)"
)
_LOCK_PARTITIONS = "select queen.lock_partitions(%b::text[], %b::text[], %s, %s)"
_OUR_LENGTH = 36
_OUR_VERSION = "8"


def address_of(name: str) -> ids.Address | None:
    """Return what a transaction id says if it may be a message id of ours, quickly None if not."""
    if len(name) == _OUR_LENGTH and name[14] == _OUR_VERSION:
        return ids.address(name)
    return None


def lock_partitions(
    cursor: Cursor, items: Iterable[m.NewMessage], now: datetime | None, *, create: bool
) -> tuple[list[str], list[str]]:
    """Lock all that the items go to, in the engine's order; return queue and partition names."""
    places = sorted({(item.queue, item.partition) for item in items})
    queues = [queue for queue, _ in places]
    names = [name for _, name in places]
    cursor.execute(_LOCK_PARTITIONS, [queues, names, create, now])
    return queues, names


def push_to_one(
    cursor: Cursor,
    items: Sequence[m.NewMessage],
    seals: Seals,
    now: datetime | None,
    *,
    create: bool,
    spread: int = 0,
    patience: str | None = None,
) -> tuple[int, list[m.Receipt]]:
    """Push items of one queue; return the queue's number and a receipt each, in order.

    ``spread`` says over how many partitions those for ``Default`` have been spread, ``patience``
    how long to wait for a row that somebody else holds.
    """
    items, key = seals.seal(items)
    names: dict[str, int] = {}
    places = [names.setdefault(item.partition, len(names) + 1) for item in items]
    named = [item.transaction_id for item in items]
    traces = [item.trace_id for item in items]
    own = [None if name is None else address_of(name) for name in named]
    says_ours = any(own)
    cursor.execute(
        _PUSH,
        [
            items[0].queue,
            list(names),
            places if len(names) > 1 else None,
            [str(item.payload, "utf-8") for item in items],
            named if any(named) else None,
            traces if any(traces) else None,
            [a and a.partition for a in own] if says_ours else None,
            [a and a.seq for a in own] if says_ours else None,
            [a and a.stamp for a in own] if says_ours else None,
            create,
            spread,
            key,
            patience,
            now,
        ],
    )
    row = cursor.fetchone()
    assert row is not None
    return row[0], _receipts(items, places, row)


def _receipts(
    items: Sequence[m.NewMessage], places: Sequence[int], row: tuple[Any, ...]
) -> list[m.Receipt]:
    _, partitions, created, seqs, duplicates, first_created, first_traces, depth, limit = row
    if len(seqs) < len(items):
        seqs = range(seqs[0], seqs[0] + len(items))
    remaining = max(0, limit - depth) if limit else None
    partition_ids = [ids.partition_id(number) for number in partitions]
    receipts = []
    for index, item in enumerate(items):
        place = places[index] - 1
        duplicate = duplicates is not None and duplicates[index]
        created_us = (first_created[index] if duplicate else created[place]) + POSTGRES_EPOCH_US
        message_id = ids.message_id(partitions[place], seqs[index], created_us)
        receipts.append(
            m.Receipt(
                status="duplicate" if duplicate else "queued",
                id=message_id,
                transaction_id=item.transaction_id or message_id,
                queue=item.queue,
                partition=item.partition,
                partition_id=partition_ids[place],
                seq=seqs[index],
                trace_id=first_traces[index] if duplicate else item.trace_id,
                depth=depth if limit else None,
                remaining=remaining,
            )
        )
    return receipts
