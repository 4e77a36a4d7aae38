"""A way to the server that can be cut at a chosen message."""

from __future__ import annotations

import contextlib
import socket
import threading
from collections.abc import Iterator
from pathlib import Path

from psycopg.conninfo import conninfo_to_dict, make_conninfo

CHUNK = 65_536


class Proxy:
    """Forwards TCP connections to a PostgreSQL; `cut_before` and `cut_after` break them.

    Both wait for a request that holds the given bytes. `cut_before` never forwards it: the
    server does not see it. `cut_after` forwards it, and loses the answer once it is there, so
    the server has done what was asked.
    """

    def __init__(self, dsn: str) -> None:
        self._target = conninfo_to_dict(dsn)
        self._listener = socket.create_server(("127.0.0.1", 0))
        self._open: set[socket.socket] = set()
        self._before: bytes | None = None
        self._after: bytes | None = None
        self._silenced: list[threading.Event] = []
        self.cuts = 0
        threading.Thread(target=self._accept, daemon=True).start()

    @property
    def dsn(self) -> str:
        """The address of the same database through this way."""
        port = self._listener.getsockname()[1]
        return make_conninfo(**{**self._target, "host": "127.0.0.1", "port": port})

    def cut_before(self, request: bytes) -> None:
        self._before = request

    def cut_after(self, request: bytes) -> None:
        self._after = request

    def silence(self) -> None:
        """Let nothing more through on any connection there is; none of them ends."""
        for silent in self._silenced:
            silent.set()

    def cut_all(self) -> None:
        """Break every connection at once."""
        for side in tuple(self._open):
            _shut(side)

    def close(self) -> None:
        self._listener.close()
        self.cut_all()

    def _accept(self) -> None:
        with contextlib.suppress(OSError):
            while True:
                client, _ = self._listener.accept()
                server = self._connect()
                self._open |= {client, server}
                lost, silent = threading.Event(), threading.Event()
                self._silenced.append(silent)
                for work in (self._requests, self._answers):
                    threading.Thread(
                        target=work, args=[client, server, lost, silent], daemon=True
                    ).start()

    def _connect(self) -> socket.socket:
        host, port = str(self._target["host"]), int(self._target.get("port") or 5432)
        if host.startswith("/"):
            server = socket.socket(socket.AF_UNIX)
            server.connect(str(Path(host) / f".s.PGSQL.{port}"))
            return server
        return socket.create_connection((host, port))

    def _requests(
        self,
        client: socket.socket,
        server: socket.socket,
        lost: threading.Event,
        silent: threading.Event,
    ) -> None:
        for data in _read(client):
            if silent.is_set():
                continue
            if self._before is not None and self._before in data:
                self._before = None
                self.cuts += 1
                break
            if self._after is not None and self._after in data:
                self._after = None
                self.cuts += 1
                lost.set()
            if not _send(server, data):
                break
        self._end(client, server)

    def _answers(
        self,
        client: socket.socket,
        server: socket.socket,
        lost: threading.Event,
        silent: threading.Event,
    ) -> None:
        for data in _read(server):
            if silent.is_set():
                continue
            if lost.is_set() or not _send(client, data):
                break
        self._end(client, server)

    def _end(self, *sides: socket.socket) -> None:
        for side in sides:
            _shut(side)
            self._open.discard(side)


def _read(side: socket.socket) -> Iterator[bytes]:
    with contextlib.suppress(OSError):
        while data := side.recv(CHUNK):
            yield data


def _send(side: socket.socket, data: bytes) -> bool:
    try:
        side.sendall(data)
    except OSError:
        return False
    return True


def _shut(side: socket.socket) -> None:
    with contextlib.suppress(OSError):
        side.shutdown(socket.SHUT_RDWR)
    side.close()
