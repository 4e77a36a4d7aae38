"""Hints between processes: which queues may have got something to pop.

A hint is a NOTIFY with queue ids, sent outside the transactions that cause it, on a connection of
its own, and coalesced: NOTIFY inside a push would serialise commits (a third of them, measured).
Hints may be lost; whoever waits looks by itself now and then.

Both connections notice when the other side is gone (O-26): a network that swallows packets says
nothing, so an answer that does not come in time counts as the end, and a listener that hears
nothing asks for an answer every few seconds.
"""

from __future__ import annotations

import contextlib
import logging
import random
import secrets
import select
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import psycopg
from psycopg.pq import ExecStatus

from queen_sync.backends.base import Hint
from queen_sync.errors import QueenError

log = logging.getLogger(__name__)

CHANNEL = "queen_hints"
INTERVAL_SECONDS = 0.01
"""Hints that follow one another this closely are sent as one: the first goes at once."""
MAX_IDS = 400
"""More than fit into one payload of 8,000 bytes mean: look everywhere."""
EVERYWHERE = "*"
BEAT_SECONDS = 5.0
"""How long a listener hears nothing before it asks whether it is still heard."""
ANSWER_SECONDS = 3.0
"""How long an answer may take before the connection counts as lost."""
QUIET_SECONDS = 10.0
"""How long nothing more is said in the log about connections that are lost again and again."""
FIRST_PAUSE_SECONDS = 0.1
MAX_PAUSE_SECONDS = 2.0
_LISTEN = f"listen {CHANNEL}".encode()
_NOTIFY = b"select pg_notify($1, $2)"


class Hints:
    """Sends this process's hints to the others, and theirs to this process's listeners."""

    def __init__(
        self,
        connect: Callable[[], psycopg.Connection[Any]],
        name_of: Callable[[int], str | None],
        connect_listener: Callable[[], psycopg.Connection[Any]] | None = None,
    ) -> None:
        self._connect = connect
        self._connect_listener = connect_listener or connect
        self._name_of = name_of
        self._token = secrets.token_hex(6)
        self._listeners: list[Callable[[Hint], None]] = []
        self._pending: set[int] = set()
        self._wake = threading.Condition()
        self._closed = False
        self._threads: dict[str, threading.Thread] = {}

    def close(self) -> None:
        """Send what is pending and stop both threads."""
        with self._wake:
            self._closed = True
            self._wake.notify_all()
        for thread in list(self._threads.values()):
            thread.join(timeout=5)

    def listen(self, callback: Callable[[Hint], None]) -> Callable[[], None]:
        """Call back with hints from now on, of this process and of others."""
        with self._wake:
            self._listeners.append(callback)
        self._start("queen-listen", self._listen)

        def stop() -> None:
            with self._wake, contextlib.suppress(ValueError):
                self._listeners.remove(callback)

        return stop

    def changed(self, queues: Mapping[int, str]) -> None:
        """Say that these queues (id to name) may have something to pop."""
        self._tell(frozenset(queues.values()))
        with self._wake:
            if self._closed:
                return
            self._pending.update(queues)
            self._wake.notify_all()
        self._start("queen-notify", self._notify)

    def _tell(self, hint: Hint) -> None:
        for callback in tuple(self._listeners):
            try:
                callback(hint)
            except Exception:  # one listener's fault is not the others', nor the pusher's
                log.exception("a listener failed on a hint")

    def _start(self, name: str, target: Callable[[], None]) -> None:
        if name in self._threads:
            return
        with self._wake:
            if name not in self._threads and not self._closed:
                self._threads[name] = thread = threading.Thread(
                    target=target, name=name, daemon=True
                )
                thread.start()

    def _notify(self) -> None:
        connection: psycopg.Connection[Any] | None = None
        pause = 0.0
        sent_at = float("-inf")
        while True:
            with self._wake:
                self._wake.wait_for(lambda: self._pending or self._closed)
                if self._closed and not self._pending:
                    break
            time.sleep(max(pause, sent_at + INTERVAL_SECONDS - time.monotonic(), 0.0))
            with self._wake:
                ids, self._pending = self._pending, set()
            where = ",".join(map(str, ids)) if len(ids) <= MAX_IDS else EVERYWHERE
            try:
                if connection is None:
                    connection = self._connect()
                ask(connection, _NOTIFY, [CHANNEL, f"{self._token}:{where}"])
                pause, sent_at = 0.0, time.monotonic()
            except psycopg.Error as error:
                # Kept until it is sent; waiting pops find the work at their next own look.
                log.debug("a hint was not sent: %s", error)
                if connection is not None:
                    connection.close()
                connection = None
                pause = min(MAX_PAUSE_SECONDS, pause * 2 or FIRST_PAUSE_SECONDS)
                if self._closed:
                    break
                with self._wake:
                    self._pending |= ids
        if connection is not None:
            connection.close()

    def _listen(self) -> None:
        pause = 0.0
        quiet_until = 0.0
        while not self._closed:
            connection: psycopg.Connection[Any] | None = None
            try:
                connection = self._connect_listener()
                ask(connection, _LISTEN)
                pause = 0.0
                self._tell(None)  # what was said while nobody listened
                self._hear(connection)
            except psycopg.Error as error:
                if time.monotonic() >= quiet_until:
                    log.warning("the connection for wake-ups was lost: %s", error)
                    quiet_until = time.monotonic() + QUIET_SECONDS
                pause = min(MAX_PAUSE_SECONDS, pause * 2 or FIRST_PAUSE_SECONDS)
            finally:
                if connection is not None:
                    connection.close()
            # Processes that lost the same server do not all come back in one instant.
            with self._wake:
                wait = pause * random.uniform(0.5, 1.5)  # noqa: S311  # jitter, no secret
                self._wake.wait_for(lambda: self._closed, timeout=wait)

    def _hear(self, connection: psycopg.Connection[Any]) -> None:
        """Pass on what is heard until this is closed; raises where the connection is lost."""
        beat_at = time.monotonic() + BEAT_SECONDS
        while not self._closed:
            for notice in connection.notifies(timeout=0.5, stop_after=1):
                beat_at = time.monotonic() + BEAT_SECONDS
                self._heard(notice.payload)
            if time.monotonic() >= beat_at:
                ask(connection, _LISTEN)
                while notify := connection.pgconn.notifies():  # what came beside the answer
                    self._heard(notify.extra.decode())
                beat_at = time.monotonic() + BEAT_SECONDS

    def _heard(self, payload: str) -> None:
        token, _, where = payload.partition(":")
        if token == self._token:
            return
        if where == EVERYWHERE:
            self._tell(None)
            return
        try:
            names = {self._name_of(int(number)) for number in where.split(",") if number.isdigit()}
        except QueenError:  # the name could not be looked up; the listener must not end for it
            self._tell(None)
            return
        if names != {None}:
            self._tell(frozenset(name for name in names if name is not None))


def ask(
    connection: psycopg.Connection[Any], statement: bytes, arguments: Sequence[str] = ()
) -> None:
    """Run a statement whose result does not matter; raise OperationalError if no answer comes.

    The driver itself waits for an answer for as long as the connection seems to stand.
    """
    raw = connection.pgconn
    deadline = time.monotonic() + ANSWER_SECONDS
    if arguments:
        raw.send_query_params(statement, [argument.encode() for argument in arguments])
    else:
        raw.send_query(statement)
    poll = select.poll()
    poll.register(raw.socket, select.POLLIN)
    while True:
        raw.flush()
        while raw.is_busy():
            left = deadline - time.monotonic()
            if left <= 0 or not poll.poll(left * 1000):
                raise psycopg.OperationalError("no answer in time")
            raw.consume_input()
        result = raw.get_result()
        if result is None:
            return
        if result.status == ExecStatus.FATAL_ERROR:
            raise psycopg.OperationalError(result.get_error_message())
