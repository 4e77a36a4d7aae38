"""An application that does nothing, to find out what Flask under gunicorn costs by itself."""

from __future__ import annotations

import flask

app = flask.Flask(__name__)


@app.get("/<path:path>")
def nothing(path: str) -> flask.Response:  # noqa: ARG001 - every path is answered
    """Answer as small as can be."""
    return flask.Response(b"{}", content_type="application/json")
