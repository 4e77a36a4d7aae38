"""The sweeper: upkeep in the background, a little at a time."""

from __future__ import annotations

import logging
import math
import random
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass

from queen_sync.backends.base import Backend
from queen_sync.clock import SECOND, SystemClock
from queen_sync.errors import QueenError

log = logging.getLogger(__name__)
DAY = 86_400 * SECOND


@dataclass(frozen=True, slots=True, kw_only=True)
class Metrics:
    """What is to be done about the counts of a process: write them now and then, forget old ones.

    ``flush`` writes what was counted and takes care of its own errors.
    """

    flush: Callable[[], None]
    interval_milliseconds: int
    retention_days: int


class Sweeper:
    """Sweeps a backend every so often, in a thread of its own. Make it after a fork.

    Pops do not depend on it. It makes visible what nobody asks for (an expired lease that
    dead-letters its message), removes what deleted queues left behind, and repairs and
    reports broken invariants, of which there must be none. Where there are counts it has them
    written too, more often than it sweeps, and forgets old ones.
    """

    def __init__(
        self, backend: Backend, interval_milliseconds: int, metrics: Metrics | None = None
    ) -> None:
        self._backend = backend
        self._interval_seconds = interval_milliseconds / 1000
        self._metrics = metrics
        self._forgets = metrics is not None and "counters" in backend.capabilities.features
        self._stopped = threading.Event()
        self._thread = threading.Thread(target=self._run, name="queen-sweep", daemon=True)
        self._thread.start()

    def close(self) -> None:
        """Stop; a sweep that is running is waited for."""
        self._stopped.set()
        self._thread.join()

    def _run(self) -> None:
        # Processes that start together do not sweep together.
        pause = random.uniform(0, self._interval_seconds)  # noqa: S311  # spread, not secret
        sweep_at = time.monotonic() + pause
        flush_at = self._next_flush()
        while not self._stopped.wait(max(0.0, min(sweep_at, flush_at) - time.monotonic())):
            now = time.monotonic()
            if self._metrics is not None and now >= flush_at:
                self._metrics.flush()
                flush_at = self._next_flush()
            if now >= sweep_at:
                sweep_at = self._sweep() + time.monotonic()

    def _next_flush(self) -> float:
        if self._metrics is None:
            return math.inf
        return time.monotonic() + self._metrics.interval_milliseconds / 1000

    def _sweep(self) -> float:
        """Make one pass; return after how many seconds the next is due."""
        try:
            report = self._backend.sweep()
            if self._metrics is not None and self._forgets:
                oldest_us = SystemClock().now_us() - self._metrics.retention_days * DAY
                self._backend.forget_counts(oldest_us)
        except QueenError as error:
            log.warning("a sweep failed and is tried again: %s", error)
            return self._interval_seconds
        if report.repaired:
            log.error("a sweep repaired %d broken invariants", report.repaired)
        if report.removed or report.cleared:
            return min(self._interval_seconds, 0.1)  # there is more to remove
        return self._interval_seconds
