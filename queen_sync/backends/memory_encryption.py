"""Encrypted queues of the memory backend: sealed when stored, opened when shown.

Memory keeps nothing secret; it does the same as the stores on disk because it is what they are
compared with.
"""

from __future__ import annotations

import uuid
from collections.abc import Sequence

import msgspec

from queen_sync import model as m
from queen_sync.backends.memory_partition import Partition
from queen_sync.backends.memory_values import Stored
from queen_sync.encryption import KeyRing, no_key, open_envelope, shown
from queen_sync.errors import Undecryptable
from queen_sync.payloads import JsonText


def seal(keys: KeyRing | None, partition: Partition, item: m.NewMessage) -> m.NewMessage:
    """Return a message of an encrypted queue as it is stored: named, since the name is bound."""
    if keys is None:
        raise no_key(item.queue)
    name = item.transaction_id or str(uuid.uuid4())
    envelope = keys.seal(partition.queue.name, partition.name, name, item.payload)
    return msgspec.structs.replace(item, transaction_id=name, payload=JsonText(envelope))


def opened(
    keys: KeyRing | None, partition: Partition, batch: Sequence[Stored]
) -> tuple[list[Stored], Undecryptable | None]:
    """Return the messages up to the first that cannot be opened, and why it cannot."""
    found: list[Stored] = []
    for message in batch:
        if not message.encrypted:
            found.append(message)
            continue
        try:
            payload = open_envelope(
                keys,
                partition.queue.name,
                partition.name,
                message.transaction_id,
                message.payload,
            )
        except Undecryptable as error:
            return found, error
        found.append(msgspec.structs.replace(message, payload=payload))
    return found, None


def shown_message(
    keys: KeyRing | None, partition: Partition, message: Stored
) -> tuple[bytes, str | None]:
    """Return the payload as a page shows it, and why it does not where it cannot."""
    if not message.encrypted:
        return message.payload, None
    place = partition.queue.name, partition.name, message.transaction_id
    return shown(keys, *place, message.payload)


def shown_letter(keys: KeyRing | None, letter: m.DeadLetter) -> m.DeadLetter:
    """Return a dead letter as a page shows it."""
    if not letter.encrypted:
        return letter
    place = letter.queue, letter.partition, letter.transaction_id
    payload, unreadable = shown(keys, *place, letter.payload)
    return msgspec.structs.replace(letter, payload=payload, unreadable=unreadable)
