"""Kept connections: whoever asks is answered, however many stay open (O-19, O-23)."""

import http.client
import json
import time
from collections import Counter
from contextlib import ExitStack, closing

import pytest

from tests.serving import serve

THREADS = 8


@pytest.fixture(scope="module")
def address():
    environment = {"QUEEN_THREADS": str(THREADS), "QUEEN_WORKERS": "1"}
    with serve("--backend", "memory:", environment=environment) as url:
        yield url.removeprefix("http://")


def ask(connection):
    connection.request("GET", "/api/v1/capabilities")
    answer = connection.getresponse()
    assert answer.status == 200
    answer.read()


def test_a_connection_is_answered_at_once_and_after_a_pause(address):
    """A thread waits a moment for the next request, then the main loop does."""
    connection = http.client.HTTPConnection(address, timeout=20)
    for pause in (0, 0, 0.2, 0, 0.2):
        time.sleep(pause)
        ask(connection)
    connection.close()


def test_more_connections_than_threads_are_all_answered(address):
    """None of them holds a thread that another one needs."""
    with ExitStack() as stack:
        connections = []
        for _ in range(2 * THREADS):
            connection = http.client.HTTPConnection(address, timeout=20)
            stack.callback(connection.close)
            connections.append(connection)
        for _ in range(5):
            for connection in connections:
                ask(connection)


def test_two_requests_sent_at_once_are_both_answered(address):
    connection = http.client.HTTPConnection(address, timeout=20)
    connection.connect()
    assert connection.sock is not None
    request = b"GET /api/v1/capabilities HTTP/1.1\r\nHost: queen\r\n\r\n"
    connection.sock.sendall(request * 3)
    received = b""
    while received.count(b"HTTP/1.1 200") < 3:
        part = connection.sock.recv(65536)
        assert part
        received += part
    connection.close()


def answerer(connection):
    """Return which process holds a connection."""
    connection.request("GET", "/health")
    return json.load(connection.getresponse())["worker_id"]


def test_connections_are_shared_among_the_processes(served_dsn):
    """The process that holds fewer takes the next one; by chance alone they were seldom even."""
    environment = {"QUEEN_WORKERS": "2"}
    with serve("--backend", served_dsn, environment=environment) as url, ExitStack() as stack:

        def connect():
            connection = http.client.HTTPConnection(url.removeprefix("http://"), timeout=20)
            stack.callback(connection.close)
            return connection

        started = set()
        deadline = time.monotonic() + 30
        while len(started) < 2 and time.monotonic() < deadline:
            with closing(connect()) as connection:
                started.add(answerer(connection))
        held = Counter(answerer(connect()) for _ in range(32))
        assert held.keys() == started
        assert min(held.values()) > 8, held
