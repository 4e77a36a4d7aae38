"""What routes that show figures share: queues with how they stand, and counts of a time."""

from __future__ import annotations

from collections.abc import Sequence

from queen_sync import errors, model as m, stats as s, wire
from queen_sync.backends.base import Backend
from queen_sync.web.routing import Routes


class Views(Routes):
    """Reads of the backend that more than one route needs."""

    @property
    def _backend(self) -> Backend:
        return self._broker.backend

    def _rows(self, choice: wire.Choice) -> list[tuple[m.Queue, s.QueueStats]]:
        """Return the queues that are meant, by name, each with how it stands."""
        if choice.queue is not None:
            queue = self._backend.queue(choice.queue)
            queues = [] if queue is None else [queue]
        else:
            queues = list(self._backend.queues())
        known = {stats.queue: stats for stats in self._backend.queue_stats(choice.queue)}
        # One that was made or deleted between the two reads is not there yet, or no more.
        return [
            (queue, known[queue.name])
            for queue in queues
            if choice.covers(queue) and queue.name in known
        ]

    def _row(self, name: str) -> tuple[m.Queue, s.QueueStats]:
        """Return one queue with how it stands, or raise QueueNotFound."""
        m.check_name(name, "queue")
        rows = self._rows(wire.Choice(queue=name))
        if not rows:
            raise errors.QueueNotFound(f"Queue '{name}' not found")
        return rows[0]

    def _chosen(self, choice: wire.Choice) -> list[tuple[m.Queue, s.QueueStats]]:
        """Return the queues that are meant; QueueNotFound where one is named that is not there."""
        return self._rows(choice) if choice.queue is None else [self._row(choice.queue)]

    def _counts(
        self,
        choice: wire.Choice,
        span: wire.Span,
        minutes: int,
        *,
        by_queue: bool = False,
    ) -> Sequence[s.QueueCounts]:
        """Return what happened in the queues that are meant; nothing where nobody counts."""
        if "counters" not in self._broker.capabilities.features:
            return []
        # What was counted a moment ago is to be seen too.
        self._broker.flush_counts()
        names = None
        if not choice.everything:
            queues = self._backend.queues()
            names = [queue.name for queue in queues if choice.covers(queue)]
        # A bucket that has begun before the span belongs to it with the minutes that it has there.
        return self._backend.counts(
            s.CountFilter(
                from_us=s.minute_of(span.from_us),
                to_us=span.to_us,
                bucket_minutes=minutes,
                queues=names,
                by_queue=by_queue,
            )
        )
