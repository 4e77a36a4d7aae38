"""From a request to the route that answers it."""

from __future__ import annotations

import flask
from werkzeug.exceptions import MethodNotAllowed

from queen_sync.broker import Broker
from queen_sync.clock import Clock, SystemClock
from queen_sync.config import Settings
from queen_sync.web import paths
from queen_sync.web.admin import Admin
from queen_sync.web.flow import Flow
from queen_sync.web.routing import Handler, empty

GROUPS = (Flow, Admin)
"""Every module of routes."""


class Api:
    """Answers requests for the paths under ``/api/v1`` and for ``/health``."""

    def __init__(self, broker: Broker, settings: Settings, clock: Clock | None = None) -> None:
        self._table = paths.Table[Handler]()
        for group in GROUPS:
            for route in group(broker, settings, clock or SystemClock()).table():
                self._table.add(*route)

    def answer(self) -> flask.Response | None:
        """Answer the request at hand; None where its path is none of ours."""
        environ = flask.request.environ
        method = environ["REQUEST_METHOD"]
        if method == "OPTIONS":
            return empty()
        found = self._table.find(paths.segments(environ))
        if found is None:
            return None
        methods, parameters = found
        handler = methods.get(method)
        if handler is None:
            raise MethodNotAllowed(valid_methods=list(methods))
        return handler(environ, parameters)
