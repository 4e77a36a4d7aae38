"""A WSGI application as the other end of a client, in the same process."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import httpx

if TYPE_CHECKING:
    from _typeshed.wsgi import StartResponse, WSGIApplication, WSGIEnvironment


class ApplicationTransport(httpx.BaseTransport):
    """Calls a WSGI application directly: no sockets, no threads.

    Two things differ from `httpx.WSGITransport`. The raw target is handed over as ``RAW_URI``,
    as gunicorn does: ``PATH_INFO`` is decoded, so a slash in a name could not be told from a
    path's. And ``PATH_INFO`` holds the bytes of the path as Latin-1, as WSGI wants it.
    """

    def __init__(self, application: WSGIApplication) -> None:
        self._application = application

    def handle_request(self, request: httpx.Request) -> httpx.Response:
        target = {
            "RAW_URI": request.url.raw_path.decode("ascii"),
            "PATH_INFO": request.url.path.encode().decode("latin-1"),
        }

        def with_target(environ: WSGIEnvironment, start: StartResponse) -> Any:
            return self._application({**environ, **target}, start)

        return httpx.WSGITransport(app=with_target).handle_request(request)
