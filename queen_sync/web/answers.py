"""What a route answers, before anybody has decided how it is written."""

from __future__ import annotations

from collections.abc import Iterable
from http import HTTPStatus

from queen_sync.web.connection import ReceiptedBody

JSON = ("Content-Type", "application/json")
EVERYWHERE = (
    ("Access-Control-Allow-Origin", "*"),
    ("Access-Control-Allow-Methods", "GET, POST, PUT, DELETE, OPTIONS"),
    ("Access-Control-Allow-Headers", "Content-Type, Authorization"),
    ("Access-Control-Max-Age", "86400"),
    # Nothing here stays true, and a pop must never be answered by a cache (C-14).
    ("Cache-Control", "no-store"),
)
"""Headers of every answer."""
STATUS_LINES = {status.value: f"{status.value} {status.phrase}" for status in HTTPStatus}


class Answer:
    """A status, a body and the headers that are this answer's own."""

    __slots__ = ("body", "headers", "status")

    def __init__(
        self,
        status: int,
        body: bytes | ReceiptedBody = b"",
        headers: Iterable[tuple[str, str]] = (JSON,),
    ) -> None:
        self.status = status
        self.body = body
        self.headers = list(headers)
        if body:
            self.headers.append(("Content-Length", str(len(body))))

    @property
    def parts(self) -> Iterable[bytes]:
        """The body as a server wants it."""
        return (self.body,) if isinstance(self.body, bytes) else self.body


def json_answer(body: bytes, status: int = 200) -> Answer:
    """Return a JSON answer."""
    return Answer(status, body)


def empty() -> Answer:
    """Return an answer without a body."""
    return Answer(204, headers=())
