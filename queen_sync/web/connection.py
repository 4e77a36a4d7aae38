"""The client at the other end: whether it is still there, and whether it was answered.

Both save a message from being leased to nobody (O-15, O-16). What they cannot see is a
network that was cut without a word; there the lease runs out.
"""

from __future__ import annotations

import select
import socket
from collections.abc import Callable, Iterator, Mapping
from typing import Any

_RDHUP = getattr(select, "POLLRDHUP", 0)
_GONE = select.POLLHUP | select.POLLERR | select.POLLNVAL | _RDHUP


def hang_up_check(environ: Mapping[str, Any]) -> Callable[[], bool] | None:
    """Return how to ask whether the client has hung up; None where the server gives no socket."""
    connection = environ.get("gunicorn.socket") or environ.get("werkzeug.socket")
    if not isinstance(connection, socket.socket):
        return None
    return lambda: _has_hung_up(connection)


def _has_hung_up(connection: socket.socket) -> bool:
    """Look at a connection without waiting and without taking anything from it.

    A client that has closed its sending half counts as gone: no client that waits for an
    answer does that.
    """
    poll = select.poll()
    try:
        poll.register(connection, select.POLLIN | _RDHUP)
        events = poll.poll(0)
        if not events:
            return False
        if events[0][1] & _GONE:
            return True
        # Something can be read: the next request, or, where the system does not tell, the end.
        # The plain socket's method, since one of TLS cannot look ahead.
        return socket.socket.recv(connection, 1, socket.MSG_PEEK) == b""
    except (OSError, ValueError):
        return True


class ReceiptedBody:
    """The body of an answer that must arrive: closed before it was written, it says so.

    A server asks for the next part only after it has written the one before.
    """

    def __init__(self, body: bytes, lost: Callable[[], None]) -> None:
        self._length = len(body)
        self._body: bytes | None = body
        self._lost: Callable[[], None] | None = lost

    def __len__(self) -> int:
        return self._length

    def __iter__(self) -> Iterator[bytes]:
        return self

    def __next__(self) -> bytes:
        if self._body is None:
            self._lost = None
            raise StopIteration
        body, self._body = self._body, None
        return body

    def close(self) -> None:
        lost, self._lost = self._lost, None
        if lost is not None:
            lost()
