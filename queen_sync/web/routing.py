"""What the modules of routes share: their form, and how they read a request."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

from werkzeug.exceptions import HTTPException, RequestEntityTooLarge
from werkzeug.wsgi import get_input_stream

from queen_sync import errors
from queen_sync.broker import Broker
from queen_sync.clock import Clock
from queen_sync.config import Settings
from queen_sync.web.answers import Answer

Handler = Callable[[dict[str, Any], list[str]], Answer]
"""Answers a request: its WSGI environment, and the parameters of its path."""
Route = tuple[str, str, Handler]
"""A method, a pattern of paths (`queen_sync.web.paths`) and who answers."""


class Routes:
    """A group of routes around one broker."""

    def __init__(self, broker: Broker, settings: Settings, clock: Clock) -> None:
        """Answer for a broker; the clock only dates answers, the backend's decides."""
        self._broker = broker
        self._settings = settings
        self._clock = clock

    def table(self) -> Iterable[Route]:
        """Return the routes."""
        raise NotImplementedError

    def _body(self, environ: dict[str, Any]) -> bytes:
        """Return the whole body of a request."""
        limit = self._settings.max_body_bytes
        length: str = environ.get("CONTENT_LENGTH", "")
        try:
            if length.isdecimal() and (count := int(length)) <= limit:
                body: bytes = environ["wsgi.input"].read(count)
                whole = len(body) == count
            else:
                # One byte more than is allowed, so that what has no length shows that it is longer.
                body = get_input_stream(environ, max_content_length=limit + 1).read()
                whole = True
        except HTTPException:
            raise
        except Exception as error:
            # Each server has its own exceptions for a body that breaks off or is framed wrong.
            raise errors.InvalidRequest("the body could not be read", "body") from error
        if not whole:
            raise errors.InvalidRequest("the body could not be read", "body")
        if len(body) > limit:
            raise RequestEntityTooLarge
        return body


def reads(pattern: str, handler: Handler) -> Iterable[Route]:
    """Return the routes of a path that only reads: a HEAD of it is answered as well."""
    return ("GET", pattern, handler), ("HEAD", pattern, handler)


def with_optional(parameters: list[str]) -> tuple[str, str | None]:
    """Return the parameters of a path whose second one may be missing."""
    first, *second = parameters
    return first, second[0] if second else None
