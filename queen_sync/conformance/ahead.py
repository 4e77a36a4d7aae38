"""Cases that wait in real time, begun ahead of their turn, so that they wait together.

A lease of a server runs out when it runs out, and a suite that watched one after another would
sleep for minutes. Each case has queues of its own, so all of them may be under way at once.
pytest knows nothing of it: it asks for one case after another, in its own order, and is given
the result of a run that began long before, or waits for it. Reports, known failures and the
choice of cases are what they are without this.

What is bounded is how many cases are awake at once. A case that has slept goes on at once, since
it looks at an instant; a new one begins only where few are awake.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor

import pytest

MAX_UNDER_WAY = 100
"""How many cases sleep or work at once, a thread for each."""
MAX_AWAKE = 4
"""How many may be awake for another one to begin: more of them only make each other late."""
TIME_UNIT_SECONDS = 2
"""The lease of timed cases. They wait together, so twice the room for delays costs little."""


class Gate:
    """Counts who is awake; lets nobody new in while there are enough."""

    def __init__(self, max_awake: int = MAX_AWAKE) -> None:
        self._max_awake = max_awake
        self._awake = 0
        self._changed = threading.Condition()

    def enter(self) -> None:
        """Wait until few are awake, and be one of them."""
        with self._changed:
            self._changed.wait_for(lambda: self._awake < self._max_awake)
            self._awake += 1

    def leave(self) -> None:
        with self._changed:
            self._awake -= 1
            self._changed.notify()

    def sleep(self, seconds: float) -> None:
        """Sleep without being counted, and go on at the instant, however many are awake."""
        self.leave()
        try:
            time.sleep(seconds)
        finally:
            with self._changed:
                self._awake += 1


class Ahead:
    """Runs under way, by name. Close it, or the last ones keep the process alive."""

    def __init__(self, max_under_way: int = MAX_UNDER_WAY, max_awake: int = MAX_AWAKE) -> None:
        self.gate = Gate(max_awake)
        self._threads = ThreadPoolExecutor(max_under_way, "queen-case")
        self._runs: dict[str, Future[None]] = {}

    def begin(self, name: str, run: Callable[[], None]) -> None:
        """Begin a run, now or when there is room for it."""
        self._runs[name] = self._threads.submit(self._run, run)

    def has_begun(self, name: str) -> bool:
        return name in self._runs

    def end(self, name: str) -> None:
        """Wait for a run and end as it ended."""
        self._runs[name].result()

    def rest(self) -> None:
        """Wait until nothing is under way, so that what follows has the machine for itself."""
        for run in self._runs.values():
            run.exception()

    def close(self) -> None:
        """Wait for what is under way and drop what has not begun."""
        self._threads.shutdown(cancel_futures=True)

    def _run(self, run: Callable[[], None]) -> None:
        self.gate.enter()
        try:
            run()
        finally:
            self.gate.leave()


AHEAD = pytest.StashKey[Ahead]()
