"""The sweeper: upkeep in the background, a little at a time."""

from __future__ import annotations

import logging
import random
import threading

from queen_sync.backends.base import Backend
from queen_sync.errors import QueenError

log = logging.getLogger(__name__)


class Sweeper:
    """Sweeps a backend every so often, in a thread of its own. Make it after a fork.

    Pops do not depend on it. It makes visible what nobody asks for (an expired lease that
    dead-letters its message), removes what deleted queues left behind, and repairs and
    reports broken invariants, of which there must be none.
    """

    def __init__(self, backend: Backend, interval_milliseconds: int) -> None:
        self._backend = backend
        self._interval_seconds = interval_milliseconds / 1000
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
        while not self._stopped.wait(pause):
            pause = self._interval_seconds
            try:
                report = self._backend.sweep()
            except QueenError as error:
                log.warning("a sweep failed and is tried again: %s", error)
                continue
            if report.repaired:
                log.error("a sweep repaired %d broken invariants", report.repaired)
            if report.removed or report.cleared:
                pause = min(pause, 0.1)  # there is more to remove
