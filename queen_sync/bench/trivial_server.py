"""A server that does nothing, to find out how much load the generator can make at most.

It counts bytes: the requests of a plan have lengths that are known beforehand, so it need not
look at what it reads, and it answers with bytes that were made before. What remains of a run
against it is the cost of the generator, and of the kernel.
"""

from __future__ import annotations

import selectors
import socket
from collections.abc import Sequence
from typing import NamedTuple

_READ_BYTES = 1 << 18


class Turn(NamedTuple):
    """A request that comes, by its length, and the answer to it."""

    length: int
    answer: bytes


class _Peer:
    """A connection, and how far it is in its turns."""

    def __init__(self, connection: socket.socket, turns: Sequence[Turn]) -> None:
        self.connection = connection
        self._turns = turns
        self._at = 0
        self._received = 0

    def serve(self) -> bool:
        """Read what has come and answer what is whole; False when the peer is gone."""
        more = len(self.connection.recv(_READ_BYTES))
        self._received += more
        turn = self._turns[self._at]
        while more and self._received >= turn.length:
            self._received -= turn.length
            self.connection.sendall(turn.answer)
            self._at = (self._at + 1) % len(self._turns)
            turn = self._turns[self._at]
        return more > 0


def serve(listener: socket.socket, turns: Sequence[Turn]) -> None:
    """Answer on a listening socket until the process is ended."""
    with listener, selectors.DefaultSelector() as selector:
        selector.register(listener, selectors.EVENT_READ)
        while True:
            for key, _ in selector.select():
                if key.data is None:
                    connection, _ = listener.accept()
                    connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
                    selector.register(connection, selectors.EVENT_READ, _Peer(connection, turns))
                elif not _served(key.data):
                    selector.unregister(key.data.connection)
                    key.data.connection.close()


def _served(peer: _Peer) -> bool:
    try:
        return peer.serve()
    except OSError:
        return False
