"""Queues that spread what is pushed to ``Default`` over several partitions (PLD-12).

How many a queue has is its option; the functions of the engine refuse a push that was spread
otherwise and say the number, which is remembered here and tried with once more.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from datetime import datetime
from typing import TypeVar

import msgspec

from queen_sync import model as m
from queen_sync.backends.postgres_connections import Cursor, SpreadOtherwise
from queen_sync.backends.postgres_push import address_of
from queen_sync.errors import BackendUnavailable

T = TypeVar("T")
Counts = dict[str, int]
"""Over how many partitions each queue spreads; a queue that is not in it does not."""
MAX_TRIES = 5

_LEAST = "select queen.least_spread(%s, %s::text[])"
_MARK = (
    "select queen.mark_spread(q.id, %s, %s) from queen.queues q"
    " where q.name = %s and q.deleted_at is null"
)
_STORING = "select queen.partition_storing(%s, %s::text[], %s, %s, %s)"


class Spreads:
    """What is known of the queues that spread."""

    def __init__(self) -> None:
        self._counts: Counts = {}

    def run(self, work: Callable[[Counts], T]) -> T:
        """Do the work with what is known; where a queue says otherwise, learn and do it again."""
        for _ in range(MAX_TRIES):
            try:
                return work(self._counts)
            except SpreadOtherwise as error:
                counts = {**self._counts, error.queue: error.count}
                self._counts = {queue: count for queue, count in counts.items() if count}
        raise BackendUnavailable("the queue keeps being configured")


def spread(cursor: Cursor, items: Sequence[m.NewMessage], counts: Counts) -> list[m.NewMessage]:
    """Return the items with the partitions that their queues spread them to.

    A named message goes where its name says, so that a repeat meets it; all others of one queue
    go together to the partition that was chosen longest ago.
    """
    chosen: dict[str, str] = {}
    placed = []
    for item in items:
        count = counts.get(item.queue, 0)
        if not count or item.partition != m.DEFAULT_PARTITION:
            placed.append(item)
            continue
        names = [m.spread_name(index) for index in range(count)]
        if item.transaction_id is not None:
            partition = _named(cursor, item.queue, item.transaction_id, names)
        elif item.queue in chosen:
            partition = chosen[item.queue]
        else:
            partition = chosen[item.queue] = _first(cursor, _LEAST, [item.queue, names])
        placed.append(msgspec.structs.replace(item, partition=partition))
    return placed


def mark(
    cursor: Cursor,
    items: Sequence[m.NewMessage],
    placed: Sequence[m.NewMessage],
    counts: Counts,
    now: datetime | None,
) -> None:
    """Remember which partitions were chosen for want of a name."""
    for queue, partition in {
        (after.queue, after.partition)
        for before, after in zip(items, placed, strict=True)
        if counts.get(before.queue)
        and before.partition == m.DEFAULT_PARTITION
        and before.transaction_id is None
    }:
        cursor.execute(_MARK, [partition, now, queue])


def _named(cursor: Cursor, queue: str, transaction_id: str, names: list[str]) -> str:
    said = address_of(transaction_id)
    if said is not None:
        stored = _first(cursor, _STORING, [queue, names, *said])
        if stored:
            return stored
    return names[m.spread_index(transaction_id, len(names))]


def _first(cursor: Cursor, statement: str, arguments: Sequence[object]) -> str:
    row = cursor.execute(statement, arguments).fetchone()
    return "" if row is None else row[0] or ""
