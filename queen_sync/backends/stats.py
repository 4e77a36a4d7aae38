"""The contract, its part about numbers: how a store is doing, and what happened in it.

It is part of `queen_sync.backends.base.Backend`.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence

from queen_sync import stats as s


class Statistics(ABC):
    """What a backend tells about queues, groups and lanes as a whole; all of it is optional."""

    def queue_stats(self, queue: str | None = None) -> Sequence[s.QueueStats]:
        """Return how a queue stands, or all queues by name; none for a missing one.

        Told from positions, none of it by reading messages, and added up where the data is: a
        queue of 100,000 partitions is one row (INV-COUNTERS). Needs ``stats``.
        """
        raise self._lacks("stats", queue)

    def group_stats(
        self, group: str | None = None, queue: str | None = None
    ) -> Sequence[s.GroupStats]:
        """Return how a group stands in a queue; without one, or the other, in or of all.

        Registered groups only, by group and queue. Needs ``stats``.
        """
        raise self._lacks("stats", (group, queue))

    def lanes(self, wanted: s.LaneFilter) -> Sequence[s.LaneStats]:
        """Return a page of lanes of registered groups: live leases, the furthest behind and so on.

        Needs ``stats``.
        """
        raise self._lacks("stats", wanted)

    def add_counts(self, counts: Sequence[s.QueueCounts]) -> None:
        """Add to the counts of minutes and queues, all or nothing.

        ``start_us`` is any instant of the minute. A queue need not exist (any more). Two calls
        add twice: whoever is told that the outcome is unknown may choose which error he prefers.
        Needs ``counters``.
        """
        raise self._lacks("counters", counts)

    def counts(self, wanted: s.CountFilter) -> Sequence[s.QueueCounts]:
        """Return the counts of a span in buckets, by instant and queue; none where nothing was.

        Needs ``counters``.
        """
        raise self._lacks("counters", wanted)

    def forget_counts(self, before_us: int) -> int:
        """Delete the counts of minutes that began before an instant; return how many rows.

        Needs ``counters``.
        """
        raise self._lacks("counters", before_us)

    @abstractmethod
    def _lacks(self, feature: str, asked: object) -> NotImplementedError:
        """Refuse an operation that the backend does not offer."""
