"""The bytes of the requests, made ready before the clock runs, and the answers read back.

What differs from one push to the next (the partition, the caller's ids) has a fixed width, so
a request is a template with a few bytes put in, and its length never changes.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any
from urllib.parse import quote, urlencode, urlsplit
from uuid import uuid4

import msgspec

from queen_sync.bench.connection import Answer
from queen_sync.bench.plan import Plan

_READY_BYTES = 64 << 20
"""How much of the pushes is kept ready; with more partitions they are put together as needed."""
_LANE = "lane-######"
_ID = "%012d"
_EMPTY_REASONS = frozenset({None, "no_available_partition", "partition_not_found", "lease_held"})


class _Item(msgspec.Struct, rename="camel", omit_defaults=True):
    queue: str
    partition: str
    payload: msgspec.Raw
    transaction_id: str | None = None


class _Message(msgspec.Struct, rename="camel"):
    transaction_id: str
    partition_id: str | None = None
    lease_id: str | None = None


class _Pop(msgspec.Struct, rename="camel"):
    messages: list[_Message | None] = []
    lease_id: str | None = None
    success: bool = True
    error: str | None = None


class _Ack(msgspec.Struct, rename="camel"):
    transaction_id: str
    partition_id: str | None
    lease_id: str | None
    status: str = "completed"


class _Acks(msgspec.Struct, rename="camel"):
    acknowledgments: list[_Ack]
    consumer_group: str | None


_POP = msgspec.json.Decoder(_Pop)
_ARRAY = msgspec.json.Decoder(list[_Message | None])
_ENCODER = msgspec.json.Encoder()


class Popped(msgspec.Struct):
    """What a pop brought: messages under a lease, or why there are none."""

    messages: list[_Message]
    lease_id: str | None = None
    error: str | None = None


def read_pop(answer: Answer) -> Popped:
    """Read the answer of a pop, of this server or of another that speaks the wire.

    Nothing to pop is 204, or 200 with an empty body, an empty array, or an object without
    messages that says why; messages come in such an object or as a bare array.
    """
    body = answer.body
    if answer.status == 204 or not body:
        return Popped([])
    try:
        found = _Pop(messages=_ARRAY.decode(body)) if body[:1] == b"[" else _POP.decode(body)
    except msgspec.MsgspecError as error:
        return Popped([], error=f"an answer to a pop that cannot be read: {error}")
    messages = [message for message in found.messages if message is not None]
    if not messages and found.error not in _EMPTY_REASONS:
        return Popped([], error=found.error)
    return Popped(messages, found.lease_id)


def refusal(call: str, answer: Answer) -> str | None:
    """Return what an answer says went wrong, or None. Some servers say it inside a 200."""
    if answer.status >= 300:
        return f"{call}: HTTP {answer.status}"
    body = answer.body.replace(b" ", b"") if call != "pop" else b""
    if call == "ack" and b'"success":false' in body:
        return "ack: refused"
    if call == "push":
        for status in ("failed", "buffered", "duplicate"):
            if f'"status":"{status}"'.encode() in body:
                return f"push: {status}"
    return None


class Requests:
    """The requests of a plan."""

    def __init__(self, plan: Plan) -> None:
        address = urlsplit(plan.target)
        self.host = address.hostname or "127.0.0.1"
        self.port = address.port or 80
        self._base = address.path.rstrip("/")
        self._plan = plan
        self._named = 0
        self._push = self._push_template()
        lanes = plan.partitions
        self._ready = (
            [self._of_lane(number) for number in range(lanes)]
            if lanes * len(self._push) <= _READY_BYTES
            else None
        )
        self.health = self._request("GET", "/health")

    def configure(self) -> bytes:
        """Return what makes the queue of the plan."""
        body = _ENCODER.encode({"queue": self._plan.queue, "options": {}})
        return self._request("POST", "/api/v1/configure", body)

    def delete(self) -> bytes:
        """Return what removes the queue of the plan with all that is in it."""
        queue = quote(self._plan.queue, safe="")
        return self._request("DELETE", f"/api/v1/resources/queues/{queue}")

    def pop(self, group: str | None = None, **more: str) -> bytes:
        """Return a pop of the plan's batch."""
        query = {"batch": str(self._plan.batch), **more}
        if group is not None:
            query["consumerGroup"] = group
        path = f"/api/v1/pop/queue/{quote(self._plan.queue, safe='')}?{urlencode(query)}"
        return self._request("GET", path)

    def push(self, number: int) -> bytes:
        """Return a push to the partition of that number; its ids were never used before."""
        lane = number % self._plan.partitions
        request = self._of_lane(lane) if self._ready is None else self._ready[lane]
        if self._plan.named:
            first = self._named
            self._named += self._plan.batch
            request %= tuple(range(first, self._named))
        return request

    def ack(self, popped: Popped, group: str | None) -> bytes:
        """Return the ack of all that a pop brought."""
        acks = [
            _Ack(each.transaction_id, each.partition_id, each.lease_id or popped.lease_id)
            for each in popped.messages
        ]
        return self._request("POST", "/api/v1/ack/batch", _ENCODER.encode(_Acks(acks, group)))

    def make_lanes(self, numbers: Sequence[int]) -> bytes:
        """Return one push with a message for each of several partitions."""
        names = [self._plan.partition(number) for number in numbers]
        return self._request("POST", "/api/v1/push", self._items(names, None))

    def _push_template(self) -> bytes:
        plan = self._plan
        mine = f"{uuid4().hex}-{_ID}" if plan.named else None
        body = self._items([_LANE] * plan.batch, mine)
        # What a template stands for is as long as itself but for the ids.
        length = len(body) + (len(_ID % 0) - len(_ID)) * plan.batch * plan.named
        request = self._request("POST", "/api/v1/push", body, length)
        if not plan.named:
            return request
        head, blank, items = request.partition(b"\r\n\r\n")
        return head.replace(b"%", b"%%") + blank + items

    def _of_lane(self, number: int) -> bytes:
        return self._push.replace(_LANE.encode(), self._plan.partition(number).encode())

    def _items(self, partitions: list[str], transaction_id: str | None) -> bytes:
        payload = msgspec.Raw(self._plan.payload)
        items: list[Any] = [
            _Item(self._plan.queue, partition, payload, transaction_id) for partition in partitions
        ]
        return _ENCODER.encode({"items": items})

    def _request(self, method: str, path: str, body: bytes = b"", length: int = -1) -> bytes:
        head = (
            f"{method} {self._base}{path} HTTP/1.1\r\nHost: {self.host}:{self.port}\r\n"
            f"Content-Type: application/json\r\n"
            f"Content-Length: {len(body) if length < 0 else length}\r\n\r\n"
        )
        return head.encode() + body
