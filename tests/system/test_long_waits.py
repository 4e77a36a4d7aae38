"""Pops that wait longer than gunicorn's worker timeout, and than clients keep a connection."""

import http.client
import json
import os
import sys
import threading
import time

import pytest

from tests.serving import started

GUNICORN = [sys.executable, "-m", "gunicorn", "-c", "python:queen_sync.web.gunicorn_conf"]


def waited(address, seconds, milliseconds):
    """Push so many seconds after a pop began to wait; return what it got, and after how long."""
    answers = []

    def pop():
        began = time.monotonic()
        connection = http.client.HTTPConnection(address, timeout=90)
        path = f"/api/v1/pop/queue/long?wait=true&autoAck=true&timeout={milliseconds}"
        connection.request("GET", path)
        answer = connection.getresponse()
        body = answer.read()
        answers.append((answer.status, body, time.monotonic() - began))
        connection.close()

    popping = threading.Thread(target=pop)
    popping.start()
    time.sleep(seconds)
    pusher = http.client.HTTPConnection(address, timeout=30)
    item = {"queue": "long", "payload": "late"}
    pusher.request("POST", "/api/v1/push", json.dumps({"items": [item]}))
    assert pusher.getresponse().status == 201
    pusher.close()
    popping.join(60)
    ((status, body, took),) = answers
    assert status == 200, body
    assert [message["data"] for message in json.loads(body)["messages"]] == ["late"]
    return took


def test_a_pop_waits_longer_than_the_timeout_of_a_worker():
    """O-22: that timeout is for a worker that hangs; one whose pops wait is alive."""
    environment = {**os.environ, "QUEEN_BACKEND": "memory:", "PORT": "0"}
    with started(command=[*GUNICORN, "--timeout", "2"], environment=environment) as server:
        assert waited(server.url.removeprefix("http://"), 5, 20_000) >= 5
    assert "WORKER TIMEOUT" not in server.said


@pytest.mark.slow
def test_a_pop_gets_what_is_pushed_late_in_its_wait(served_dsn):
    """O-22: after 45 seconds of 55, with the settings as they are shipped."""
    with started("--backend", served_dsn) as server:
        assert waited(server.url.removeprefix("http://"), 45, 55_000) >= 45
