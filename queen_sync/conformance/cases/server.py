"""L, in part, and J11: what a server owes over HTTP beside the backend's promises."""

from __future__ import annotations

import socket
import time
from urllib.parse import quote, urlsplit

import httpx
import pytest

from queen_sync.conformance.base import NOT_OFFERED, Cases, values_of

GONE = 6
"""How many waiting clients leave without a word."""
SETTLE_SECONDS = 0.5
LATEST_SECONDS = 30.0
POP_ROUTES = ("/api/v1/pop/queue/{queue}", "/api/v1/pop/queue/{queue}/partition/Default")


class ServerCases(Cases):
    @pytest.fixture
    def http(self) -> httpx.Client:
        raise pytest.UsageError(f"{type(self).__name__} needs a fixture 'http'")

    @pytest.fixture
    def address(self) -> str | None:
        """Return where the server listens; None where it is asked without a socket."""
        return None

    def test_l03_head_takes_nothing_from_a_queue(self, http: httpx.Client) -> None:
        """HEAD on a pop route is refused and claims nothing. C-14, INV-NO-500."""
        queue = self.name()
        self.push(queue, 1)
        for route in POP_ROUTES:
            answer = http.head(route.format(queue=quote(queue)))
            assert (answer.status_code, answer.headers["Allow"]) == (405, "GET")
        assert self.drain(queue) == [1]

    def test_l03_no_answer_of_a_pop_may_be_cached(self, http: httpx.Client) -> None:
        """Full, empty and refused ones. C-14."""
        queue = self.name()
        self.push(queue, 1)
        for query, status in (("", 200), ("", 204), ("?subscriptionMode=never", 400)):
            answer = http.get(POP_ROUTES[0].format(queue=quote(queue)) + query)
            assert (answer.status_code, answer.headers["Cache-Control"]) == (status, "no-store")

    def test_j11_a_waiting_client_that_left_takes_no_message_for_good(
        self, address: str | None
    ) -> None:
        """What comes meanwhile reaches the others, once the lease is over at the latest.

        INV-LIVENESS, INV-NO-LOSS, PL-8, O-15.
        """
        if address is None:
            pytest.skip(f"{NOT_OFFERED}sockets")
        queue = self.queue(lease_seconds=1, retry_limit=9)
        path = POP_ROUTES[0].format(queue=quote(queue))
        where = urlsplit(address)
        connections = []
        for _ in range(GONE):
            connection = socket.create_connection((where.hostname, where.port or 80), 10)
            wanted = f"GET {path}?wait=true&timeout=20000 HTTP/1.1\r\nHost: {where.netloc}\r\n\r\n"
            connection.sendall(wanted.encode())
            connections.append(connection)
        time.sleep(SETTLE_SECONDS)  # most of them wait by now; for the others nothing changes
        for connection in connections:
            connection.close()
        for n in range(GONE):
            self.push(queue, n, partition=f"p{n}")
        served: list[int] = []
        until = time.monotonic() + LATEST_SECONDS
        while len(served) < GONE and time.monotonic() < until:
            claim = self.pop(queue, GONE, max_partitions=GONE)
            if not claim:
                time.sleep(SETTLE_SECONDS / 10)
                continue
            served += values_of(claim)
            self.settle(claim)
        assert sorted(served) == list(range(GONE))
