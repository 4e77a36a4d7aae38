"""The smallest values of the memory backend: a message as kept, and what has happened to it."""

from __future__ import annotations

import msgspec

from queen_sync import model as m


class Stored(msgspec.Struct, frozen=True, gc=False):
    """A message as it is kept; the same for all groups."""

    seq: int
    id: str
    transaction_id: str
    payload: bytes
    created_us: int
    trace_id: str | None


class History(msgspec.Struct, frozen=True, gc=False):
    """What has happened to an unsettled message that was delivered before."""

    failures: int = 0
    deliveries: int = 0
    expired: bool = False
    not_before_us: int = 0
    error: str | None = None


FRESH = History()


class QueueRecord:
    """What a partition needs to know of its queue."""

    def __init__(self, name: str, options: m.QueueOptions) -> None:
        self.name = name
        self.options = options
