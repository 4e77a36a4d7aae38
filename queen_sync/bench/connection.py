"""One kept HTTP connection: bytes out, the status and body of the answer in."""

from __future__ import annotations

import socket
import time
from typing import NamedTuple

from queen_sync.bench.plan import LoadError

ANSWER_SECONDS = 30.0
"""A call that takes longer than this is given up."""
_READ_BYTES = 1 << 18


class Answer(NamedTuple):
    """A whole answer."""

    status: int
    body: bytes


class Lost(Exception):  # noqa: N818 - what happened to the connection, no error of a caller
    """The connection ended in the middle of a call."""


class Wire:
    """A kept connection with at most one request in flight."""

    def __init__(self, host: str, port: int) -> None:
        self._address = host, port
        self.socket = self._connect()
        self.sent_at = 0.0
        self._received = b""

    def _connect(self) -> socket.socket:
        try:
            connected = socket.create_connection(self._address, timeout=ANSWER_SECONDS)
        except OSError as error:
            raise LoadError(f"cannot connect to {self._address[0]}: {error}") from error
        connected.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        return connected

    def reconnect(self) -> None:
        """Begin again on a fresh connection."""
        self.socket.close()
        self._received = b""
        self.socket = self._connect()

    def close(self) -> None:
        self.socket.close()

    def send(self, request: bytes) -> None:
        self.sent_at = time.monotonic()
        try:
            self.socket.sendall(request)
        except OSError as error:
            raise Lost(type(error).__name__) from error

    def receive(self) -> Answer | None:
        """Read what has come; return the answer once it is whole."""
        try:
            more = self.socket.recv(_READ_BYTES)
        except OSError as error:
            raise Lost(type(error).__name__) from error
        if not more:
            raise Lost("the server closed the connection")
        self._received = self._received + more if self._received else more
        found = parse(self._received)
        if found is not None:
            self._received = b""
        return found

    def call(self, request: bytes) -> Answer:
        """Send a request and wait for its answer."""
        self.send(request)
        while (answer := self.receive()) is None:
            pass
        return answer


def parse(received: bytes) -> Answer | None:
    """Return the answer that was received, or None while some of it is missing."""
    end = received.find(b"\r\n\r\n")
    if end < 0:
        return None
    status = int(received[9:12])
    if status == 204:
        return Answer(status, b"")
    begin = end + 4
    head = received[:end].lower()
    at = head.find(b"\r\ncontent-length:")
    if at >= 0:
        line_end = head.find(b"\r\n", at + 2)
        length = int(head[at + 17 : line_end if line_end > 0 else end])
        return Answer(status, received[begin:]) if len(received) >= begin + length else None
    if b"\r\ntransfer-encoding: chunked" in head:
        body = _unchunked(received, begin)
        return None if body is None else Answer(status, body)
    raise Lost("an answer without a length")


def _unchunked(received: bytes, at: int) -> bytes | None:
    """Return the body that was sent in chunks, or None while some of it is missing."""
    chunks: list[bytes] = []
    while (line_end := received.find(b"\r\n", at)) >= 0:
        size = int(received[at:line_end].split(b";")[0], 16)
        begin = line_end + 2
        if size == 0:
            # No trailers are asked for, so one empty line ends it.
            return b"".join(chunks) if received.startswith(b"\r\n", begin) else None
        chunks.append(received[begin : begin + size])
        at = begin + size + 2
    return None
