"""Load over HTTP that costs little itself: prepared bytes over kept sockets, one thread.

An HTTP library takes longer to make a request than the server to answer one, so what is
measured with it is the library. Here each connection is a socket in one selector loop,
pushes are made ready before the clock runs, and of an answer only the status, the length
and, for a pop, what its ack needs is read.
"""

from __future__ import annotations

import selectors
import socket
import time
from collections.abc import Iterator
from contextlib import ExitStack
from typing import NamedTuple
from urllib.parse import quote, urlsplit

import msgspec

from queen_sync.bench.plan import (
    EMPTY_LIMIT,
    EMPTY_PAUSE_SECONDS,
    LoadError,
    Plan,
    Tally,
    new_messages as messages_of,
)
from queen_sync.model import Ack
from queen_sync.wire_client import encode_acks, encode_push

ANSWER_SECONDS = 30.0
"""A call that takes longer than this ends the measurement."""


class _Popped(msgspec.Struct, rename="camel"):
    id: str
    transaction_id: str
    partition_id: str


class _Claim(msgspec.Struct, rename="camel"):
    lease_id: str
    messages: list[_Popped]


_CLAIM = msgspec.json.Decoder(_Claim)


class Answer(NamedTuple):
    """A whole answer."""

    status: int
    body: bytes


class Wire:
    """One kept connection with at most one request in flight."""

    def __init__(self, host: str, port: int) -> None:
        self.socket = socket.create_connection((host, port), timeout=ANSWER_SECONDS)
        self.socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self.sent_at = 0.0
        self._received = b""

    def send(self, request: bytes) -> None:
        self.sent_at = time.monotonic()
        self.socket.sendall(request)

    def receive(self) -> Answer | None:
        """Read what has come; return the answer once it is whole."""
        more = self.socket.recv(1 << 18)
        if not more:
            raise LoadError("the server closed the connection")
        self._received += more
        head, blank, body = self._received.partition(b"\r\n\r\n")
        if not blank:
            return None
        status = int(head[9:12])
        length = 0 if status == 204 else _length(head)
        if len(body) < length:
            return None
        self._received = b""
        return Answer(status, body)


def _length(head: bytes) -> int:
    for line in head.split(b"\r\n")[1:]:
        name, _, value = line.partition(b":")
        if name.lower() == b"content-length":
            return int(value)
    raise LoadError("an answer without Content-Length")


class Next(NamedTuple):
    """What a caller does next."""

    request: bytes
    pause_seconds: float = 0.0
    owed: bool = False
    """To be sent also when the time is up: the ack of a claim that was taken."""


class _Requests:
    """The bytes of the requests of a plan."""

    def __init__(self, plan: Plan) -> None:
        address = urlsplit(plan.target)
        self.host = address.hostname or "127.0.0.1"
        self.port = address.port or 80
        self._base = address.path.rstrip("/")
        self.pop = self._request(
            "GET", f"/pop/queue/{quote(plan.queue, safe='')}?batch={plan.batch}"
        )
        self.pushes = (
            [
                self._request("POST", "/push", encode_push(messages_of(plan, number), create=True))
                for number in range(plan.partitions)
            ]
            if plan.operation == "push"
            else []
        )

    def ack(self, claim: _Claim) -> bytes:
        acks = [
            Ack(
                transaction_id=each.transaction_id,
                partition_id=each.partition_id,
                lease_id=claim.lease_id,
            )
            for each in claim.messages
        ]
        return self._request("POST", "/ack/batch", encode_acks(acks))

    def _request(self, method: str, path: str, body: bytes = b"") -> bytes:
        head = (
            f"{method} {self._base}/api/v1{path} HTTP/1.1\r\nHost: {self.host}:{self.port}\r\n"
            f"Content-Type: application/json\r\nContent-Length: {len(body)}\r\n\r\n"
        )
        return head.encode() + body


class _Pusher:
    """A caller that pushes to one partition after the other."""

    def __init__(self, requests: _Requests, plan: Plan, number: int) -> None:
        self._requests = requests
        self._batch = plan.batch
        self._next = number

    def first(self) -> bytes:
        self._next += 1
        return self._requests.pushes[self._next % len(self._requests.pushes)]

    def after(self, _answer: Answer, sent_at: float, tally: Tally) -> Next | None:
        """Count an answer and say what comes next."""
        tally.count("push", sent_at, self._batch)
        return Next(self.first())


class _Drainer:
    """A caller that pops, acks and pops again, until nothing comes any more."""

    def __init__(self, requests: _Requests) -> None:
        self._requests = requests
        self._claim: _Claim | None = None
        self._empty = 0

    def first(self) -> bytes:
        return self._requests.pop

    def after(self, answer: Answer, sent_at: float, tally: Tally) -> Next | None:
        """Count an answer and say what comes next; None when the queue is drained."""
        if self._claim is not None:
            tally.count("ack", sent_at, len(self._claim.messages))
            self._claim = None
            return Next(self._requests.pop)
        if answer.status == 204:
            self._empty += 1
            if self._empty >= EMPTY_LIMIT:
                return None
            return Next(self._requests.pop, pause_seconds=EMPTY_PAUSE_SECONDS)
        tally.count("pop", sent_at)
        self._empty = 0
        self._claim = _CLAIM.decode(answer.body)
        return Next(self._requests.ack(self._claim), owed=True)


class HttpLoad:
    """The callers of one process, connected and ready to start."""

    def __init__(self, plan: Plan) -> None:
        self._plan = plan
        self._requests = _Requests(plan)
        self._open = ExitStack()
        self._selector = self._open.enter_context(selectors.DefaultSelector())
        self._callers: dict[Wire, _Pusher | _Drainer] = {}
        for number in range(plan.connections):
            wire = Wire(self._requests.host, self._requests.port)
            self._open.enter_context(wire.socket)
            self._selector.register(wire.socket, selectors.EVENT_READ, wire)
            self._callers[wire] = (
                _Pusher(self._requests, plan, number)
                if plan.operation == "push"
                else _Drainer(self._requests)
            )

    def close(self) -> None:
        self._open.close()

    def run(self) -> Tally:
        """Keep every caller busy for the time of the plan, then let the last calls finish."""
        tally = Tally()
        tally.begin()
        deadline = tally.began + self._plan.seconds
        paused: dict[Wire, tuple[float, bytes]] = {}
        busy = 0
        for wire, caller in self._callers.items():
            wire.send(caller.first())
            busy += 1
        while busy or paused:
            now = time.monotonic()
            for wire in [each for each, (until, _) in paused.items() if until <= now]:
                _, request = paused.pop(wire)
                if now < deadline:
                    wire.send(request)
                    busy += 1
            for wire, answer in self._answers(paused=bool(paused)):
                busy -= 1
                if answer.status >= 300:
                    raise LoadError(f"HTTP {answer.status}: {answer.body[:200]!r}")
                step = self._callers[wire].after(answer, wire.sent_at, tally)
                now = time.monotonic()
                if step is None or (now >= deadline and not step.owed):
                    continue
                if step.pause_seconds:
                    paused[wire] = (now + step.pause_seconds, step.request)
                else:
                    wire.send(step.request)
                    busy += 1
        return tally

    def _answers(self, *, paused: bool) -> Iterator[tuple[Wire, Answer]]:
        ready = self._selector.select(EMPTY_PAUSE_SECONDS if paused else ANSWER_SECONDS)
        if not ready and not paused:
            raise LoadError(f"no answer within {ANSWER_SECONDS:.0f} s")
        for key, _ in ready:
            answer = key.data.receive()
            if answer is not None:
                yield key.data, answer
