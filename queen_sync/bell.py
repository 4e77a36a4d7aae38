"""What a thread sleeps on until another one rings."""

from __future__ import annotations

import contextlib
import threading


class Bell:
    """An event for one sleeper: rung once or often, it ends one wait, the present or the next.

    It is a bare lock. `threading.Event` does the same with a condition, a queue and a lock for
    each wait: 1.3 kB more for each waiting pop, of which there may be ten thousand.
    """

    __slots__ = ("_silence",)

    def __init__(self) -> None:
        self._silence = threading.Lock()
        self._silence.acquire()

    def ring(self) -> None:
        """End the wait."""
        with contextlib.suppress(RuntimeError):  # it is ringing already
            self._silence.release()

    def hush(self) -> None:
        """Forget that it was rung."""
        self._silence.acquire(blocking=False)

    def wait(self, seconds: float | None = None) -> bool:
        """Sleep until it is rung, at most for so many seconds; say whether it was."""
        return self._silence.acquire(timeout=-1 if seconds is None else seconds)
