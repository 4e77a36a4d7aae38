"""The official client, unmodified, against a real server."""

from __future__ import annotations

import asyncio
import re
import signal
from collections.abc import Awaitable, Callable, Iterator
from typing import Any
from uuid import uuid4

import httpx
import pytest
from queen import Queen

from tests.serving import Server, started

CASE_SECONDS = 60
Case = Callable[[Queen], Awaitable[Any]]


class Traffic:
    """What went over the wire: the client hides 5xx and broken connections by trying again."""

    def __init__(self) -> None:
        self.answers: list[str] = []
        self.unanswered: dict[httpx.Request, str] = {}

    async def sent(self, request: httpx.Request) -> None:
        self.unanswered[request] = f"{request.method} {request.url}"

    async def answered(self, response: httpx.Response) -> None:
        call = self.unanswered.pop(response.request)
        self.answers.append(f"{response.status_code} {call}")

    def check(self) -> None:
        assert not self.unanswered, "broken connections"
        assert [answer for answer in self.answers if answer.startswith("5")] == []


@pytest.fixture(scope="session")
def server(served_dsn: str) -> Iterator[Server]:
    key = {"QUEEN_ENCRYPTION_KEY": "0f" * 32}
    with started("--backend", served_dsn, "--workers", "2", environment=key) as running:
        yield running
        assert re.search(r"Traceback|CRITICAL", running.output) is None, running.output


@pytest.fixture
def queue(request: pytest.FixtureRequest) -> str:
    """A queue name that nobody else uses."""
    return f"{request.node.originalname.removeprefix('test_')[:60]}-{uuid4().hex[:8]}"


@pytest.fixture
def run(server: Server) -> Iterator[Callable[[Case], Any]]:
    """Play a case with a client of its own; fail where the client had to try anything twice."""
    traffic = Traffic()

    async def play(case: Case) -> Any:
        async with Queen(server.url) as queen:
            hooks = {"request": [traffic.sent], "response": [traffic.answered]}
            queen._http_client._client.event_hooks = hooks
            return await asyncio.wait_for(case(queen), CASE_SECONDS)

    # The client takes the process's signals and gives back the system's defaults.
    taken = {number: signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM)}
    yield lambda case: asyncio.run(play(case))
    for number, handler in taken.items():
        signal.signal(number, handler)
    traffic.check()
