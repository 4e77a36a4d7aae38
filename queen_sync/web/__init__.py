"""The HTTP server: a Flask app around a broker."""

from __future__ import annotations

import flask

from queen_sync.broker import Broker
from queen_sync.config import Settings
from queen_sync.web import errors
from queen_sync.web.api import Api

__all__ = ["create_app"]

_HEADERS = (
    ("Access-Control-Allow-Origin", "*"),
    ("Access-Control-Allow-Methods", "GET, POST, PUT, DELETE, OPTIONS"),
    ("Access-Control-Allow-Headers", "Content-Type, Authorization"),
    ("Access-Control-Max-Age", "86400"),
    # Nothing here stays true, and a pop must never be answered by a cache (C-14).
    ("Cache-Control", "no-store"),
)


def create_app(broker: Broker, settings: Settings) -> flask.Flask:
    """Return the app that serves a broker; whoever made the broker closes it.

    The API answers before Flask's own routing, which knows only decoded paths; every other
    path is Flask's, so that views and blueprints can be added as usual.
    """
    app = flask.Flask("queen_sync.web", static_folder=None)
    # One byte more than is allowed: a body without a length that goes on beyond this is cut, not
    # refused, so the API must be able to see that there was more.
    app.config["MAX_CONTENT_LENGTH"] = settings.max_body_bytes + 1
    # No redirects: they would be pages of HTML.
    app.url_map.strict_slashes = app.url_map.merge_slashes = False
    app.before_request(Api(broker, settings).answer)
    app.after_request(_add_headers)
    errors.register(app)
    return app


def _add_headers(response: flask.Response) -> flask.Response:
    response.headers.extend(_HEADERS)
    return response
