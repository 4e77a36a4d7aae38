"""HTTP calls to a queen-sync server: one pool of connections, paths, answers, errors."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from functools import partial
from typing import TypeVar
from urllib.parse import quote

import httpx
import msgspec

from queen_sync import errors
from queen_sync.client import failures

T = TypeVar("T")

IDLE_SECONDS = 1.0
"""How long an idle connection is kept: below the 2 s after which gunicorn drops it, since a
request on a connection that is just being dropped is a call of unknown outcome."""


class Calls:
    """The way to one server; safe to share between threads."""

    def __init__(
        self,
        base_url: str,
        *,
        transport: httpx.BaseTransport | None,
        timeout_seconds: float,
        connect_timeout_seconds: float,
        max_connections: int,
    ) -> None:
        if not base_url.startswith(("http://", "https://")):
            raise errors.InvalidRequest(f"no http:// address: {base_url!r}", "base_url")
        self._timeout = httpx.Timeout(timeout_seconds, connect=connect_timeout_seconds)
        self._open = partial(
            httpx.Client,
            base_url=base_url,
            transport=transport,
            limits=httpx.Limits(
                max_connections=max_connections,
                max_keepalive_connections=max_connections,
                keepalive_expiry=IDLE_SECONDS,
            ),
            headers={"Content-Type": "application/json"},
            # The address is the one that the caller gave: no proxies of the environment.
            trust_env=False,
        )
        self._pool = (os.getpid(), self._open())

    def close(self) -> None:
        """Close the connections."""
        self._http.close()

    @property
    def _http(self) -> httpx.Client:
        """The pool of this process: after a fork, connections belong to the parent."""
        process_id, pool = self._pool
        if process_id != os.getpid():
            pool = self._open()
            self._pool = (os.getpid(), pool)
        return pool

    def send(
        self,
        method: str,
        *segments: str,
        query: Mapping[str, str] | None = None,
        body: bytes | None = None,
        reads: bool = False,
        read_timeout_seconds: float | None = None,
    ) -> httpx.Response:
        """Make one call and return its answer, a success; every other end raises.

        ``segments`` are the parts of the path, each encoded whole, so that a slash in a
        name is part of the name (C-18). ``reads`` says that the call changes nothing, and
        that its failure is therefore definite. Nothing is tried twice.
        """
        path = "/" + "/".join(quote(segment, safe="") for segment in segments)
        call = f"{method} {path}"
        timeout = self._timeout
        if read_timeout_seconds is not None:
            timeout = httpx.Timeout(
                read_timeout_seconds, connect=timeout.connect, pool=timeout.pool
            )
        try:
            response = self._http.request(method, path, params=query, content=body, timeout=timeout)
        except httpx.TransportError as error:
            raise failures.of_transport(error, call, reads=reads) from error
        except httpx.DecodingError as error:
            raise failures.of_unreadable(error, call, b"", reads=reads) from error
        if not response.is_success:
            raise failures.of_answer(response, call, reads=reads)
        return response

    def read(
        self, response: httpx.Response, decode: Callable[[bytes], T], *, reads: bool = False
    ) -> T:
        """Return what ``decode`` makes of an answer; one that it cannot read is a BackendError."""
        try:
            return decode(response.content)
        except (msgspec.DecodeError, errors.InvalidRequest, ValueError, LookupError) as error:
            call = f"{response.request.method} {response.request.url.path}"
            raise failures.of_unreadable(error, call, response.content, reads=reads) from error
