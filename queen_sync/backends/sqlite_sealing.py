"""Encrypted queues: payloads are sealed before they are written and opened when they are shown."""

from __future__ import annotations

import uuid

from queen_sync import model as m
from queen_sync.backends.sqlite_connections import Row, Session
from queen_sync.backends.sqlite_lane_records import Place
from queen_sync.encryption import KeyRing, open_envelope, shown
from queen_sync.errors import Undecryptable

Sealed = tuple[str, bytes, str]
"""A message's transaction id, its payload as it is stored, and the id of the key."""


def seal(keys: KeyRing, queue: str, partition: str, item: m.NewMessage) -> Sealed:
    """Return a message of an encrypted queue as it is stored.

    What an envelope is bound to includes the transaction id, so one is given where none is.
    """
    name = item.transaction_id or str(uuid.uuid4())
    return name, keys.seal(queue, partition, name, item.payload), keys.sealing_id


def opened(
    session: Session, place: Place, rows: list[Row]
) -> tuple[list[Row], Undecryptable | None]:
    """Return the rows of a batch up to the first that cannot be opened, and why it cannot.

    A row is (seq, created_us, transaction id, trace id, payload, key id).
    """
    for row in rows:
        if row[5] is not None:
            break
    else:
        return rows, None  # as nearly always
    found: list[Row] = []
    for row in rows:
        seq, created_us, name, trace_id, payload, key = row
        if key is not None:
            where = place.queue_name, place.partition_name, name
            try:
                payload = open_envelope(session.keys, *where, payload)
            except Undecryptable as error:
                return found, error
        found.append((seq, created_us, name, trace_id, payload, key))
    return found, None


def shown_payload(
    keys: KeyRing | None, place: tuple[str, str, str], payload: bytes, key: str | None
) -> tuple[bytes, str | None]:
    """Return a payload as a page shows it, and why it does not where it cannot."""
    return (payload, None) if key is None else shown(keys, *place, payload)
