"""What holds for all routes: paths, methods, headers, bodies, errors, health."""

import io
from urllib.parse import quote

import flask
import httpx
import pytest

from queen_sync.broker import Broker
from queen_sync.errors import BackendError, BackendUnavailable, OutcomeUnknown
from queen_sync.web import create_app
from queen_sync.web.paths import segments

POSTS = [
    "/api/v1/configure",
    "/api/v1/push",
    "/api/v1/ack",
    "/api/v1/ack/batch",
    "/api/v1/transaction",
    "/api/v1/lease/x/extend",
    "/api/v1/consumer-groups/g/subscription",
]
NAMES = [
    "a b",
    "grüße",
    "a/b",
    "a%2Fb",
    "q?x=1",
    "q#x",
    "a+b",
    "*",
    "\U0001f451",
    "ü" * 255,
    "a\nb",
]

# ------------------------------------------------------------------------------ names


@pytest.mark.parametrize("name", NAMES)
def test_any_name_works_in_a_path(http, name):
    """C-18: a path is split first, and each segment is decoded once."""
    http.push(name, 1, partition=name, transactionId=name)
    claim = http.pop(name, name, consumerGroup=name)
    assert (claim["queue"], claim["partition"], claim["consumerGroup"]) == (name, name, name)
    assert http.ack(claim["messages"][0])["success"] is True
    group = http.delete(f"/api/v1/consumer-groups/{quote(name, safe='')}").get_json()
    assert (group["consumerGroup"], group["deletedPartitions"] > 0) == (name, True)
    queue = http.delete(f"/api/v1/resources/queues/{quote(name, safe='')}").get_json()
    assert (queue["queue"], queue["existed"]) == (name, True)


@pytest.mark.parametrize("queue", ["", "%2E%2E", "%00", "q" * 256])
def test_a_path_with_a_bad_name_is_refused(http, queue):
    """C-18."""
    answer = http.get(f"/api/v1/pop/queue/{queue}/partition/p")
    assert (answer.status_code, answer.get_json()["field"]) == (400, "queue")


@pytest.mark.parametrize("path", ["/api/v1/pop/queue/%FF", "/%C3", "/api/v1/pop/queue/q?x=%FF"])
def test_what_is_not_utf_8_is_refused(http, path):
    answer = http.get(path)
    assert (answer.status_code, answer.get_json()["code"]) == (400, "INVALID_REQUEST")


@pytest.mark.parametrize(
    ("environ", "expected"),
    [
        ({"RAW_URI": "/a%2Fb/c%20d?x=/y"}, ["a/b", "c d"]),
        ({"REQUEST_URI": "/a%252F"}, ["a%2F"]),
        ({"RAW_URI": "http://host:1/a/b#c"}, ["a", "b"]),
        ({"RAW_URI": "/m/a", "SCRIPT_NAME": "/m"}, ["a"]),
        ({"RAW_URI": "/gr\u00c3\u00bc"}, ["grü"]),
        ({"PATH_INFO": "/a b/%41"}, ["a b", "%41"]),
        ({"PATH_INFO": "/gr\u00c3\u00bc"}, ["grü"]),
        ({"PATH_INFO": "/gr\u00fc"}, ["grü"]),
        ({"PATH_INFO": "/\U0001f451"}, ["\U0001f451"]),
        ({"RAW_URI": "*"}, []),
        ({}, []),
    ],
)
def test_a_path_is_read_from_whatever_the_server_hands_over(environ, expected):
    assert segments(environ) == expected


def test_a_client_in_the_same_process_needs_no_raw_target(app):
    transport = httpx.WSGITransport(app=app)
    with httpx.Client(transport=transport, base_url="http://queue") as client:
        client.post("/api/v1/push", json={"items": [{"queue": "grüße an", "payload": 1}]})
        answer = client.get("/api/v1/pop/queue/grüße an")
        assert answer.json()["queue"] == "grüße an"
        assert client.get("/api/v1/pop/queue/grüße an").status_code == 204


# ------------------------------------------------------------------- methods, headers


@pytest.mark.parametrize("path", ["/api/v1/pop/queue/q", "/api/v1/pop/queue/q/partition/Default"])
def test_head_never_consumes(http, path):
    """C-14."""
    http.push("q", 1)
    answer = http.call("HEAD", path)
    assert (answer.status_code, answer.headers["Allow"]) == (405, "GET")
    assert http.pop("q") is not None


@pytest.mark.parametrize("path", ["/health", "/api/v1/capabilities", "/api/v1/dlq"])
def test_head_of_what_only_looks_has_no_body(http, path):
    answer = http.call("HEAD", path)
    assert (answer.status_code, answer.get_data()) == (200, b"")


@pytest.mark.parametrize(
    ("method", "path", "allowed"),
    [
        ("GET", "/api/v1/push", "POST"),
        ("POST", "/api/v1/pop/queue/q", "GET"),
        ("PUT", "/api/v1/resources/queues/q", "DELETE, GET, HEAD"),
        ("POST", "/health", "GET, HEAD"),
    ],
)
def test_a_wrong_method_is_told_the_right_one(http, method, path, allowed):
    answer = http.call(method, path)
    assert (answer.status_code, answer.headers["Allow"]) == (405, allowed)
    assert answer.get_json() == {"error": "Method Not Allowed", "code": "METHOD_NOT_ALLOWED"}


@pytest.mark.parametrize(
    "path", ["/", "/api/v1/nope", "/api/v1/push/", "//api/v1/push", "/health/x", "/%2e%2e/health"]
)
@pytest.mark.parametrize("method", ["GET", "POST", "DELETE"])
def test_an_unknown_path_is_404_in_json(http, path, method):
    answer = http.call(method, path)
    assert answer.status_code == 404
    assert answer.get_json() == {"error": "Not Found", "code": "NOT_FOUND"}


@pytest.mark.parametrize(
    ("method", "path"),
    [
        ("GET", "/health"),
        ("GET", "/nope"),
        ("GET", "/api/v1/push"),
        ("POST", "/api/v1/push"),
        ("GET", "/api/v1/pop/queue/q"),
        ("GET", f"/api/v1/pop/queue/{'q' * 256}"),
        ("HEAD", "/api/v1/pop/queue/q"),
        ("OPTIONS", "/api/v1/pop/queue/q"),
    ],
)
def test_every_answer_may_be_read_by_any_page_and_kept_by_no_cache(http, method, path):
    """C-14, O-53: errors too, and never together with credentials."""
    headers = http.call(method, path).headers
    assert headers["Access-Control-Allow-Origin"] == "*"
    assert headers["Access-Control-Allow-Methods"] == "GET, POST, PUT, DELETE, OPTIONS"
    assert headers["Access-Control-Allow-Headers"] == "Content-Type, Authorization"
    assert headers["Access-Control-Max-Age"] == "86400"
    assert headers["Cache-Control"] == "no-store"
    assert "Access-Control-Allow-Credentials" not in headers


@pytest.mark.parametrize("path", ["/", "/api/v1/push", "/nope"])
def test_options_is_answered_204_with_nothing(http, path):
    """O-53."""
    answer = http.call("OPTIONS", path)
    assert (answer.status_code, answer.get_data()) == (204, b"")


# ----------------------------------------------------------------------------- bodies


@pytest.mark.parametrize("route", POSTS)
def test_a_body_over_the_limit_is_413(http, backend, route):
    answer = http.send(route, b'{"queue":"' + b"q" * 1_000_000 + b'"}')
    assert answer.status_code == 413
    assert answer.get_json() == {"error": "Request body too large", "code": "PAYLOAD_TOO_LARGE"}
    assert backend.queues() == []


@pytest.mark.parametrize(
    "kind",
    [
        "text/plain",
        "application/json; charset=utf-8",
        "application/x-www-form-urlencoded",
        "multipart/form-data",
        "no kind at all",
        "",
        None,
    ],
)
def test_the_content_type_of_a_request_does_not_matter(http, kind):
    """O-53: what the body says counts."""
    body = b'{"items":[{"queue":"q","payload":1}]}'
    assert http.send("/api/v1/push", body, content_type=kind).status_code == 201


def test_a_chunked_body_is_read_to_its_end(http):
    body = b'{"items":[{"queue":"q","payload":1}]}'
    chunked = {"wsgi.input_terminated": True, "HTTP_TRANSFER_ENCODING": "chunked"}
    answer = http.call(
        "POST", "/api/v1/push", input_stream=io.BytesIO(body), environ_overrides=chunked
    )
    assert answer.status_code == 201


def test_a_chunked_body_over_the_limit_is_413(http):
    chunked = {"wsgi.input_terminated": True, "HTTP_TRANSFER_ENCODING": "chunked"}
    stream = io.BytesIO(b" " * 1_000_001)
    answer = http.call("POST", "/api/v1/push", input_stream=stream, environ_overrides=chunked)
    assert answer.status_code == 413


def test_a_body_of_exactly_the_limit_is_read(http):
    body = b'{"items":[{"queue":"q","payload":1}]}'.ljust(1_000_000)
    chunked = {"wsgi.input_terminated": True, "HTTP_TRANSFER_ENCODING": "chunked"}
    assert http.send("/api/v1/push", body).status_code == 201
    stream = io.BytesIO(body)
    answer = http.call("POST", "/api/v1/push", input_stream=stream, environ_overrides=chunked)
    assert answer.status_code == 201


class _Broken:
    """A body that fails when it is read, as each server does it in its own way."""

    def __init__(self, error):
        self._error = error

    def read(self, _):
        raise self._error


@pytest.mark.parametrize("error", [ValueError("bad chunk"), OSError("reset"), LookupError("x")])
def test_a_body_that_breaks_off_is_the_callers_mistake(http, error):
    broken = {"wsgi.input_terminated": True, "wsgi.input": _Broken(error)}
    answer = http.call("POST", "/api/v1/push", environ_overrides=broken)
    assert (answer.status_code, answer.get_json()["code"]) == (400, "INVALID_REQUEST")


@pytest.mark.parametrize(
    "body",
    [b"{", b"\xff", b"\xef\xbb\xbf{}", b"{'a':1}", b'{"queue":"\\ud800"}', b"{\x00}"],
)
@pytest.mark.parametrize("route", POSTS)
def test_a_body_that_is_no_json_is_refused_everywhere(http, route, body):
    """O-53: a byte order mark and bytes that are no UTF-8 among them."""
    answer = http.send(route, body)
    given = answer.get_json()
    assert (answer.status_code, given["code"], given["field"]) == (400, "INVALID_REQUEST", "body")
    assert given["error"].startswith("Invalid JSON: ")


@pytest.mark.parametrize("route", POSTS[:5])
@pytest.mark.parametrize("body", [b"", b"{}", b"[]", b"null", b'"x"', b"1"])
def test_an_empty_body_is_refused_where_something_is_required(http, route, body):
    """O-53: in JSON, with a code, and never as a fault of ours."""
    assert http.send(route, body).status_code == 400


# ---------------------------------------------------------------- views beside the API


def test_views_can_be_added_and_their_errors_are_json_too(app, http):
    @app.get("/page/")
    def page():
        return {"page": True}

    @app.get("/refused")
    def refused():
        flask.abort(415)

    for path in ("/page/", "/page"):
        assert http.get(path).get_json() == {"page": True}
    answer = http.get("/refused")
    assert (answer.status_code, answer.get_json()["code"]) == (415, "UNSUPPORTED_MEDIA_TYPE")
    assert http.post("/page/").headers["Allow"] == "GET, HEAD, OPTIONS"
    assert http.get("//page").status_code == 404


# ------------------------------------------------------------- the store and the server


class _Failing(Broker):
    """A broker whose store answers every call with one error."""

    error: Exception

    def push(self, *_, **__):
        raise self.error

    def pop(self, *_, **__):
        raise self.error


@pytest.mark.parametrize(
    ("error", "status", "code"),
    [
        (BackendUnavailable("could not connect: timeout at 10.0.0.1"), 503, "BACKEND_UNAVAILABLE"),
        (OutcomeUnknown("server closed the connection: timeout"), 504, "OUTCOME_UNKNOWN"),
        (BackendError('relation "queen.x" does not exist'), 500, "BACKEND_ERROR"),
        (ZeroDivisionError("a secret"), 500, "INTERNAL_ERROR"),
    ],
)
def test_what_the_store_says_stays_in_the_log(backend, settings, caplog, error, status, code):
    """No text of a driver reaches a client, and no error text of a pop holds "timeout"."""
    broker = _Failing(backend, settings)
    broker.error = error
    client = create_app(broker, settings).test_client()
    for answer in (
        client.get("/api/v1/pop/queue/q"),
        client.post("/api/v1/push", json={"items": [{"queue": "q"}]}),
    ):
        assert (answer.status_code, answer.get_json()["code"]) == (status, code)
        text = answer.get_json()["error"]
        assert str(error) not in text
        assert "timeout" not in text.lower()
    assert str(error) in caplog.text
    broker.close()


def test_health_says_how_things_are(http):
    http.push("q", 1)
    answer = http.get("/health")
    body = answer.get_json()
    assert answer.status_code == 200
    assert (body["status"], body["database"], body["server"]) == (
        "healthy",
        "connected",
        "queen-sync",
    )
    assert (body["stats"]["pushRequests"], body["stats"]["pushed"]) == (1, 1)
    assert body["stats"]["waiting"] == 0
    assert body["uptime"].endswith("s")
    assert body["draining"] is False


def test_health_is_503_while_the_store_cannot_be_reached(http, backend):
    backend.close()
    answer = http.get("/health")
    assert answer.status_code == 503
    assert (answer.get_json()["status"], answer.get_json()["database"]) == (
        "unhealthy",
        "disconnected",
    )


def test_capabilities_are_those_of_the_backend(http, backend, settings):
    body = http.get("/api/v1/capabilities").get_json()
    offered = backend.capabilities
    assert body.pop("version")
    assert body == {
        "features": sorted(offered.features),
        "durable": offered.durable,
        "shared": offered.shared,
        "maxBatch": offered.max_batch,
        "maxPayloadBytes": settings.max_body_bytes,
        "clockResolutionMicroseconds": offered.clock_resolution_us,
    }
