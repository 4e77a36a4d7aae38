"""Clients that leave: while they wait, and before they were answered. Real sockets."""

import socket
import time
from concurrent.futures import ThreadPoolExecutor

import pytest

from queen_sync.backends.memory import MemoryBackend
from queen_sync.web.connection import ReceiptedBody, hang_up_check

POP = "/api/v1/pop/queue/q"
LEAVE = {
    "closed": lambda client: client.close(),
    "half closed": lambda client: client.shutdown(socket.SHUT_WR),
    "reset": lambda client: (
        client.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, b"\1\0\0\0\0\0\0\0"),
        client.close(),
    ),
}


@pytest.fixture
def connection():
    """The server's end and the client's end of a TCP connection."""
    with socket.create_server(("127.0.0.1", 0)) as listener:
        client = socket.create_connection(listener.getsockname())
        server, _ = listener.accept()
    with server, client:
        yield server, client


@pytest.fixture
def backend() -> MemoryBackend:
    return MemoryBackend()


def _is_gone(server) -> bool:
    return hang_up_check({"gunicorn.socket": server})()


def test_a_client_that_waits_is_there(connection):
    server, client = connection
    assert not _is_gone(server)
    client.sendall(b"GET / HTTP/1.1\r\n")
    time.sleep(0.01)
    assert not _is_gone(server)
    assert server.recv(100) == b"GET / HTTP/1.1\r\n"


@pytest.mark.parametrize("way", LEAVE)
@pytest.mark.parametrize("sent", [b"", b"the next request"])
def test_a_client_that_left_is_gone(connection, way, sent):
    """O-15."""
    server, client = connection
    client.sendall(sent)
    LEAVE[way](client)
    time.sleep(0.01)
    assert _is_gone(server)


@pytest.mark.parametrize("timeout", [None, 0, 5])
def test_asking_takes_no_time_whatever_the_socket_is_set_to(connection, timeout):
    server, _ = connection
    server.settimeout(timeout)
    begun = time.monotonic()
    assert not _is_gone(server)
    assert time.monotonic() - begun < 0.05


def test_a_socket_that_the_server_has_closed_is_gone(connection):
    server, _ = connection
    ask = hang_up_check({"gunicorn.socket": server})
    server.close()
    assert ask()


def test_without_a_socket_nobody_can_be_asked():
    assert hang_up_check({}) is None
    assert hang_up_check({"gunicorn.socket": "x"}) is None


@pytest.mark.parametrize("way", LEAVE)
@pytest.mark.parametrize("auto_ack", ["false", "true"])
def test_a_waiting_request_whose_client_left_takes_nothing(http, app, connection, way, auto_ack):
    """O-15."""
    server, client = connection
    query = {"wait": "true", "timeout": "20000", "autoAck": auto_ack}
    with ThreadPoolExecutor(1) as pool:
        dead = pool.submit(
            app.test_client().get,
            POP,
            query_string=query,
            environ_overrides={"gunicorn.socket": server},
        )
        deadline = time.monotonic() + 5
        while http.get("/health").get_json()["stats"]["waiting"] == 0:
            assert time.monotonic() < deadline
        LEAVE[way](client)
        http.push("q", 1)
        assert http.pop("q", wait="true", timeout="1500")["messages"][0]["data"] == 1
        assert dead.result(3).status_code == 204


# ------------------------------------------------------------------- answers that got lost


def _start(app) -> tuple[str, object]:
    """Ask for a pop as a server does, and return the status and the body before it is written."""
    builder = app.test_client()._request_from_builder_args((POP,), {})
    statuses = []
    body = app(builder.environ, lambda status, *_: statuses.append(status))
    return statuses[0], body


def test_an_answer_that_was_never_written_gives_its_claim_back(http, app):
    """O-15."""
    http.push("q", 1)
    status, body = _start(app)
    assert status.startswith("200")
    assert http.pop("q") is None
    body.close()
    (message,) = http.pop("q")["messages"]
    assert (message["retryCount"], message["deliveryCount"]) == (0, 2)


def test_an_answer_that_broke_off_gives_its_claim_back(http, app):
    """O-15: a server asks for the next part only when it has written the one before."""
    http.push("q", 1)
    _, body = _start(app)
    assert next(iter(body))
    body.close()
    assert http.pop("q") is not None


def test_an_answer_that_was_written_keeps_its_claim(http, app):
    http.push("q", 1)
    _, body = _start(app)
    assert b"".join(body)
    body.close()
    assert http.pop("q") is None


def test_an_auto_ack_claim_cannot_be_given_back(http, app):
    """C-19: at most once."""
    http.push("q", 1)
    assert http.pop("q", autoAck="true")
    assert http.pop("q") is None


def test_a_lost_body_is_reported_once():
    lost = []
    body = ReceiptedBody(b"x", lambda: lost.append(1))
    body.close()
    body.close()
    assert lost == [1]
