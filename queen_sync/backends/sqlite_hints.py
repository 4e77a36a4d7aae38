"""Hints: which queues may have got something to pop, from this process and from others.

Within the process a hint is a call. Other processes are noticed by their commits: while anybody
listens, one look every 50 ms asks SQLite whether somebody else has changed the file, and then
everybody looks everywhere.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable

from queen_sync.backends.base import Hint
from queen_sync.errors import QueenError

log = logging.getLogger(__name__)

LOOK_SECONDS = 0.05


class Hints:
    """The listeners of this process, and the thread that looks for other processes."""

    def __init__(self, others_wrote: Callable[[], bool]) -> None:
        self._others_wrote = others_wrote
        self._listeners: dict[object, Callable[[Hint], None]] = {}
        self._changed = threading.Condition()
        self._closed = False
        self._thread: threading.Thread | None = None

    def listen(self, callback: Callable[[Hint], None]) -> Callable[[], None]:
        """Call back with hints from now on; return how to stop that."""
        token = object()
        with self._changed:
            self._listeners[token] = callback
            if self._thread is None and not self._closed:
                # Not before the first listener: threads do not survive a fork.
                self._thread = threading.Thread(
                    target=self._look, name="queen-sqlite-look", daemon=True
                )
                self._thread.start()
            self._changed.notify_all()

        def stop() -> None:
            with self._changed:
                self._listeners.pop(token, None)

        return stop

    def tell(self, hint: Hint) -> None:
        """Call the listeners; the change can be seen already."""
        if hint is not None and not hint:
            return
        for callback in list(self._listeners.values()):
            try:
                callback(hint)
            except Exception:
                log.exception("a listener failed; the change that it was told of stands")

    def close(self) -> None:
        with self._changed:
            self._closed = True
            self._listeners = {}
            self._changed.notify_all()
        if self._thread is not None and self._thread is not threading.current_thread():
            self._thread.join()

    def _look(self) -> None:
        failing = False
        while True:
            with self._changed:
                self._changed.wait_for(lambda: self._closed or self._listeners)
                if self._closed or self._changed.wait_for(lambda: self._closed, LOOK_SECONDS):
                    return
            try:
                others_wrote = self._others_wrote()
            except QueenError as error:
                if not failing:
                    log.warning("other processes cannot be noticed: %s", error)
                failing = True
                continue
            failing = False
            if others_wrote:
                self.tell(None)
