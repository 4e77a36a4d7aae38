"""Servers for the client to talk to: scripted ones on real sockets, and the application itself."""

from __future__ import annotations

import socket
import struct
import threading
from collections.abc import Callable, Iterator
from contextlib import suppress

import pytest

from queen_sync.backends.memory import MemoryBackend
from queen_sync.broker import Broker
from queen_sync.client import ApplicationTransport, RemoteBackend
from queen_sync.clock import ManualClock
from queen_sync.config import Settings
from queen_sync.web import create_app

Script = Callable[[socket.socket, bytes], None]
"""What a server does with a connection once a whole request has been read."""


class ScriptedServer:
    """Accepts connections on a loopback port and plays one script on each request."""

    def __init__(self, script: Script) -> None:
        self.requests: list[bytes] = []
        self.done = threading.Event()
        self._script = script
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.url = f"http://127.0.0.1:{self._listener.getsockname()[1]}"
        self._thread = threading.Thread(target=self._serve)
        self._thread.start()

    def close(self) -> None:
        self.done.set()
        # Wakes accept(), which closing alone would not.
        with suppress(OSError), socket.create_connection(self._listener.getsockname()):
            pass
        self._thread.join(timeout=10)
        self._listener.close()

    def _serve(self) -> None:
        while not self.done.is_set():
            connection, _ = self._listener.accept()
            with connection, suppress(OSError):
                connection.settimeout(10)
                request = read_request(connection)
                if request:
                    self.requests.append(request)
                    self._script(connection, request)


def read_request(connection: socket.socket) -> bytes:
    """Read one request with its body; b"" where the other side said nothing."""
    data = b""
    while b"\r\n\r\n" not in data:
        more = connection.recv(65536)
        if not more:
            return b""
        data += more
    head, _, body = data.partition(b"\r\n\r\n")
    length = 0
    for line in head.split(b"\r\n"):
        name, _, value = line.partition(b":")
        if name.lower() == b"content-length":
            length = int(value)
    while len(body) < length:
        body += connection.recv(65536)
    return head + b"\r\n\r\n" + body


def answer(
    status: str, body: bytes, content_type: str = "application/json", headers: str = ""
) -> Script:
    """Return a script that sends a whole answer and closes."""

    def play(connection: socket.socket, request: bytes) -> None:
        head = (
            f"HTTP/1.1 {status}\r\nContent-Type: {content_type}\r\n"
            f"Content-Length: {len(body)}\r\nConnection: close\r\n{headers}\r\n"
        )
        connection.sendall(head.encode() + body)

    return play


def reset(connection: socket.socket, request: bytes) -> None:
    """Cut the connection the hard way, after half an answer."""
    connection.sendall(b'HTTP/1.1 200 OK\r\nContent-Length: 100\r\n\r\n[{"ind')
    connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
    connection.close()


def hang_up(connection: socket.socket, request: bytes) -> None:
    """Close without a word."""


@pytest.fixture
def scripted() -> Iterator[Callable[[Script], ScriptedServer]]:
    """Start scripted servers; all are gone after the test."""
    servers: list[ScriptedServer] = []

    def start(script: Script) -> ScriptedServer:
        servers.append(ScriptedServer(script))
        return servers[-1]

    yield start
    for server in servers:
        server.close()


@pytest.fixture
def scripts():
    """The scripts by name, since a test file cannot import its conftest."""
    return {"answer": answer, "reset": reset, "hang_up": hang_up}


@pytest.fixture
def clock():
    return ManualClock()


@pytest.fixture
def store(clock):
    return MemoryBackend(clock=clock)


@pytest.fixture
def queen(store):
    settings = Settings(backend="memory:")
    broker = Broker(store, settings)
    transport = ApplicationTransport(create_app(broker, settings))
    with RemoteBackend("http://in-process", transport=transport) as remote:
        yield remote
    broker.close()
