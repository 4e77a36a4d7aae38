"""The smallest values of the memory backend: a message as kept, and what has happened to it."""

from __future__ import annotations

from collections import deque
from typing import Literal

import msgspec

from queen_sync import model as m

REMOVALS_KEPT = 10_000
"""How many records of removals a queue keeps; the oldest go first."""


class Stored(msgspec.Struct, frozen=True, gc=False):
    """A message as it is kept; the same for all groups."""

    seq: int
    id: str
    transaction_id: str
    payload: bytes
    created_us: int
    trace_id: str | None
    encrypted: bool = False
    """Whether the payload is an envelope."""


class Redriven(msgspec.Struct, frozen=True, gc=False):
    """A dead letter given back to its group: its own copy of the message, and since when."""

    message: Stored
    since_us: int


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
        self.removals: deque[m.Removal] = deque(maxlen=REMOVALS_KEPT)
        """The newest first."""

    def note_removal(
        self,
        partition: str,
        kind: Literal["evicted", "completed", "expired"],
        count: int,
        now_us: int,
        group: str | None = None,
    ) -> None:
        """Write down that messages left other than by an ack; nothing where none did (QA-7)."""
        if count:
            self.removals.appendleft(
                m.Removal(
                    queue=self.name,
                    partition=partition,
                    kind=kind,
                    count=count,
                    removed_us=now_us,
                    group=group,
                )
            )
