"""The gunicorn worker that serves queues: many waiting requests, and an end without a wait.

gunicorn's threaded worker ends gracefully by waiting for its requests; a waiting pop would
hold it for a minute. This one tells the application to drain as soon as ``alive`` turns false,
whoever turned it (a signal, a changed parent, a request limit), so waiting pops are answered
at once and the worker is gone when the work that it had accepted is done.
"""

from __future__ import annotations

import ctypes
import select
import socket
import sys
import threading
import time
from types import FrameType
from typing import Any

from gunicorn.http import message
from gunicorn.workers.gthread import TConn, ThreadWorker

from queen_sync.web.gunicorn_limits import REQUEST_LINE_BYTES

THREAD_STACK_BYTES = 512 * 1024
"""A thousand waiting threads must not reserve eight gigabytes of address space."""
_M_ARENA_MAX = -8
LINGER_MILLISECONDS = 50
"""How long a thread waits for the next request of the connection that it has just answered."""
FEW_CONNECTIONS = 64
ACCEPT_PAUSE_SECONDS = 0.001
_MALLOC_ARENAS = 2
"""glibc gives each thread an arena of its own, up to eight per core, and rarely empties one."""


class QueueWorker(ThreadWorker):  # type: ignore[misc]  # gunicorn has no types
    """A threaded worker whose application can ``drain()`` and ``close()``."""

    _is_alive = True
    _hurried = False
    _linger_limit = 0

    @property
    def alive(self) -> bool:
        """Whether the worker takes new connections."""
        return self._is_alive

    @alive.setter
    def alive(self, value: bool) -> None:
        ending = self._is_alive and not value
        self._is_alive = value
        if ending and self.poller is not None:
            # This may be a signal handler, so the draining itself is left to the main loop.
            self.method_queue.defer(self._drain)

    def init_process(self) -> None:
        message.MAX_REQUEST_LINE = REQUEST_LINE_BYTES  # gunicorn's own bound is no setting
        threading.stack_size(THREAD_STACK_BYTES)
        if sys.platform == "linux":
            mallopt = getattr(ctypes.CDLL(None), "mallopt", None)  # other C libraries lack it
            if mallopt is not None:
                mallopt(_M_ARENA_MAX, _MALLOC_ARENAS)
        self._linger_limit = self.cfg.threads // 2
        super().init_process()

    def is_parent_alive(self) -> bool:
        """Look for the arbiter; without it the worker ends like any other, drained."""
        if super().is_parent_alive():
            return True
        self.alive = False
        return False

    def run(self) -> None:
        try:
            super().run()
        finally:
            self._drain()
            self.wsgi.close()

    def handle_quit(self, sig: int, frame: FrameType | None) -> None:  # noqa: ARG002 - gunicorn calls it so
        """End without waiting for requests.

        gunicorn shuts the thread pool down here, in the signal handler, where it deadlocks if
        the signal came while the main loop held the pool's lock. So this only leaves a note.
        """
        self._hurried = True
        self.alive = False

    def wait_for_and_dispatch_events(self, timeout: float) -> None:
        super().wait_for_and_dispatch_events(timeout)
        if self._hurried:
            raise SystemExit(0)

    def accept(self, listener: socket.socket) -> None:
        """Take a new connection, after a pause that grows with what this process holds already.

        All processes see it at once and the first one has it, so the one with less to do is to
        be the first. Left to chance, eight connections split two to six as often as evenly, and
        one core has little to do. Where there are many, chance is even enough.
        """
        if self.nr_conns < FEW_CONNECTIONS:
            time.sleep(ACCEPT_PAUSE_SECONDS * self.nr_conns / (self.nr_conns + 8))
        super().accept(listener)

    def handle(self, conn: TConn) -> Any:
        """Answer the requests of a connection for as long as they follow each other closely.

        gunicorn hands a connection back to its main loop after each answer, and the next request
        to another thread: three switches between threads for each request, and as many fights
        for the interpreter.
        """
        again = super().handle(conn)
        while again is True and self._follows(conn):
            again = super().handle(conn)
        return again

    def _follows(self, conn: TConn) -> bool:
        """Wait a moment for the next request, where there are threads enough for everybody."""
        if not self.alive or conn.is_http2 or self.nr_conns > self._linger_limit:
            return False
        if conn.parser.unreader.buf.tell():
            return True
        poll = select.poll()
        poll.register(conn.sock, select.POLLIN)
        return bool(poll.poll(LINGER_MILLISECONDS))

    def _drain(self) -> None:
        self.wsgi.drain()
