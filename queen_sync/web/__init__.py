"""The HTTP server: a Flask app around a broker."""

from __future__ import annotations

import flask

from queen_sync.broker import Broker
from queen_sync.config import Settings
from queen_sync.web.answers import EVERYWHERE
from queen_sync.web.api import Api, Direct
from queen_sync.web.errors import answer_of

__all__ = ["create_app"]


def create_app(broker: Broker, settings: Settings) -> flask.Flask:
    """Return the app that serves a broker; whoever made the broker closes it.

    The API answers before Flask does (`queen_sync.web.api.Direct`); every other path is
    Flask's, so that views and blueprints can be added as usual. A middleware put around
    ``wsgi_app`` sees all requests, ``before_request`` and ``after_request`` only Flask's.
    """
    app = flask.Flask("queen_sync.web", static_folder=None)
    # No redirects: they would be pages of HTML.
    app.url_map.strict_slashes = app.url_map.merge_slashes = False
    app.wsgi_app = Direct(Api(broker, settings), app.wsgi_app)  # type: ignore[method-assign]  # as Flask documents it
    app.register_error_handler(Exception, _of_error)
    app.after_request(_add_headers)
    return app


def _of_error(error: Exception) -> flask.Response:
    answer = answer_of(error)
    return flask.Response(answer.parts, answer.status, answer.headers)


def _add_headers(response: flask.Response) -> flask.Response:
    response.headers.extend(EVERYWHERE)
    return response
