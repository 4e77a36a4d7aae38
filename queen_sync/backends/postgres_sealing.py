"""Encrypted queues: what is pushed to them is sealed here, before the database sees it.

Whether a queue is encrypted is its option; the functions of the engine refuse payloads that come
otherwise and say how they want them, which is remembered here and tried with once more. So what
is stored never depends on what this process happens to remember.
"""

from __future__ import annotations

import uuid
from collections.abc import Callable, Iterable, Sequence
from typing import Any, TypeVar

import msgspec

from queen_sync import ids, inspection as i, model as m
from queen_sync.backends.postgres_connections import Cursor, SealedOtherwise
from queen_sync.encryption import KeyRing, no_key, shown
from queen_sync.errors import BackendUnavailable
from queen_sync.payloads import JsonText

T = TypeVar("T")
MAX_TRIES = 5

_SEALING_KEYS = "select place from queen.sealing_keys(%b::int8[], %b::int8[])"


class Seals:
    """What is known of the queues that are encrypted."""

    def __init__(self, keys: KeyRing | None) -> None:
        self._keys = keys
        self._queues: frozenset[str] = frozenset()

    def run(self, work: Callable[[], T]) -> T:
        """Do the work with what is known; where a queue says otherwise, learn and do it again.

        Raises NotSupported where a queue wants its payloads sealed and there is no key.
        """
        for _ in range(MAX_TRIES):
            try:
                return work()
            except SealedOtherwise as error:
                if error.sealed and self._keys is None:
                    refusal = no_key(error.queue)
                    refusal.index = error.index
                    raise refusal from error
                changed = frozenset({error.queue})
                known = self._queues
                self._queues = known | changed if error.sealed else known - changed
        raise BackendUnavailable("the queue keeps being configured")

    def seal(self, items: Sequence[m.NewMessage]) -> tuple[Sequence[m.NewMessage], str | None]:
        """Return items of one queue as they are to be stored, and the id of the key, if any.

        Their partitions are the final ones. What an envelope is bound to includes the
        transaction id, so a message without one is given one.
        """
        if self._keys is None or items[0].queue not in self._queues:
            return items, None
        sealed = []
        for item in items:
            name = item.transaction_id or str(uuid.uuid4())
            envelope = self._keys.seal(item.queue, item.partition, name, item.payload)
            sealed.append(
                msgspec.structs.replace(item, transaction_id=name, payload=JsonText(envelope))
            )
        return sealed, self._keys.sealing_id


# -------------------------------------------------------------------------- what is shown


def sealed_among(cursor: Cursor, rows: Sequence[tuple[Any, ...]]) -> frozenset[int]:
    """Return which of some messages are sealed, counted from 1; rows have partition and seq."""
    where = [[row[2] for row in rows], [row[3] for row in rows]]
    return frozenset(place for (place,) in cursor.execute(_SEALING_KEYS, where).fetchall())


def opened(message: i.StoredMessage, keys: KeyRing | None) -> i.StoredMessage:
    """Return a message with its payload opened where it is sealed."""
    if not message.encrypted:
        return message
    place = message.queue, message.partition, message.transaction_id
    payload, unreadable = shown(keys, *place, message.payload)
    return msgspec.structs.replace(message, payload=payload, unreadable=unreadable)


def with_unreadable(
    partitions: Sequence[i.PartitionState],
    heads: Iterable[tuple[Any, ...]],
    keys: KeyRing | None,
) -> Sequence[i.PartitionState]:
    """Return partitions with what their lanes wait for that cannot be opened here."""
    queue = partitions[0].queue if partitions else ""
    why: dict[tuple[str, str], str] = {}
    for number, group, partition, transaction, payload in heads:
        _, unreadable = shown(keys, queue, partition, transaction, payload)
        if unreadable is not None:
            why[ids.partition_id(number), group] = unreadable
    if not why:
        return partitions
    return [
        msgspec.structs.replace(
            partition,
            groups=[
                msgspec.structs.replace(group, unreadable=why.get((partition.id, group.name)))
                for group in partition.groups
            ],
        )
        for partition in partitions
    ]
