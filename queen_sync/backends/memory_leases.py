"""Leases of the memory backend: the right that a pop gave, and what became of it by partition."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from queen_sync import model as m
from queen_sync.backends.memory_values import History, Redriven

if TYPE_CHECKING:
    from queen_sync.backends.memory_state import GroupState


class Lease:
    """The right that one pop gave: one id and expiry over the partitions that it took.

    The states that hold it, live or as their last closed one, are all that keeps it alive:
    when the last of them lets go, its id means nothing any more.
    """

    __slots__ = ("__weakref__", "alone", "expires_us", "group", "id", "states")

    def __init__(self, lease_id: str, group: str, expires_us: int, *, alone: bool) -> None:
        self.id = lease_id
        self.group = group
        self.expires_us = expires_us
        self.alone = alone
        """Its pop delivered exactly one message, all partitions together."""
        self.states: list[GroupState] = []

    def live_in(self, now_us: int) -> list[GroupState]:
        """Return the states that it holds now; none where it has run out."""
        if self.expires_us <= now_us:
            return []
        return [state for state in self.states if state.hold and state.hold.lease is self]


class Hold:
    """A lease in one partition: which messages are open and what became of the others."""

    __slots__ = ("lease", "open", "outcomes", "redriven")

    def __init__(
        self, lease: Lease, open_: set[int], outcomes: dict[int, m.Status], *, redriven: bool
    ) -> None:
        self.lease = lease
        self.open = open_
        self.outcomes = outcomes
        self.redriven = redriven
        """It covers copies of dead letters, not what is stored."""

    def covers(self, seq: int) -> bool:
        return seq in self.open or seq in self.outcomes

    def live(self, now_us: int) -> bool:
        return now_us < self.lease.expires_us

    def copy(self) -> Hold:
        """Return one that can be put back after the original has changed."""
        return Hold(self.lease, set(self.open), dict(self.outcomes), redriven=self.redriven)


class Snapshot(NamedTuple):
    """A state's changeable parts, to be put back when a transaction is refused."""

    position: int
    settled: set[int]
    histories: dict[int, History]
    redriven: dict[int, Redriven]
    dead_count: int
    hold: Hold | None
    closed: Hold | None
    ended_us: int
