"""From a request to the route that answers it."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING

from werkzeug.exceptions import MethodNotAllowed

from queen_sync.broker import Broker
from queen_sync.clock import Clock
from queen_sync.config import Settings
from queen_sync.web import paths
from queen_sync.web.admin import Admin
from queen_sync.web.answers import EVERYWHERE, STATUS_LINES, Answer, empty
from queen_sync.web.errors import answer_of
from queen_sync.web.flow import Flow
from queen_sync.web.messages import Messages
from queen_sync.web.resources import Resources
from queen_sync.web.routing import Handler
from queen_sync.web.status import Status

if TYPE_CHECKING:
    from _typeshed.wsgi import StartResponse, WSGIApplication, WSGIEnvironment

GROUPS = (Flow, Admin, Messages, Resources, Status)
"""Every module of routes."""


class Api:
    """Answers requests for the paths under ``/api/v1`` and for ``/health``."""

    def __init__(self, broker: Broker, settings: Settings, clock: Clock | None = None) -> None:
        self._table = paths.Table[Handler]()
        for group in GROUPS:
            for route in group(broker, settings, clock or broker.clock).table():
                self._table.add(*route)

    def answer(self, environ: WSGIEnvironment) -> Answer | None:
        """Answer a request, also where it is wrong; None where its path is none of ours."""
        method = environ["REQUEST_METHOD"]
        if method == "OPTIONS":
            return empty()
        try:
            found = self._table.find(paths.segments(environ))
            if found is None:
                return None
            methods, parameters = found
            handler = methods.get(method)
            if handler is None:
                return answer_of(MethodNotAllowed(valid_methods=list(methods)))
            return handler(environ, parameters)
        except Exception as error:  # noqa: BLE001  # every error is answered as JSON
            return answer_of(error)


class Direct:
    """Answers the API without a framework around it, and leaves every other path to an app.

    What a framework does for each request (contexts, routing, request and response objects)
    costs 50 µs, as much as all else that is done here for a push of one message.
    """

    def __init__(self, api: Api, app: WSGIApplication) -> None:
        self._api = api
        self._app = app

    def __call__(self, environ: WSGIEnvironment, start_response: StartResponse) -> Iterable[bytes]:
        """Answer a request."""
        answer = self._api.answer(environ)
        if answer is None:
            return self._app(environ, start_response)
        start_response(STATUS_LINES[answer.status], [*answer.headers, *EVERYWHERE])
        return () if environ["REQUEST_METHOD"] == "HEAD" else answer.parts
