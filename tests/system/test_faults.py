"""Crashes under load: nothing answered is missing, nothing acked comes back, nothing is twice."""

import os
import signal
import time
from itertools import pairwise

import httpx
import pytest

from tests.serving import started

CRASHES = 3
OPTIONS = {"leaseTime": 1, "retryLimit": 100}


def wait_for_answers(load, more):
    """Wait until that many more pushes are answered."""
    goal = len(load.answered) + more
    deadline = time.monotonic() + 30
    while len(load.answered) < goal:
        assert time.monotonic() < deadline, load.failures[-3:]
        time.sleep(0.01)


def rest(url, queue, drain, wanted):
    """Drain until everything wanted was found, leases that died with their holder included."""
    found = {}
    deadline = time.monotonic() + 10
    while True:
        for partition, lane in drain(url, queue).items():
            found.setdefault(partition, []).extend(lane)
        names = [name for lane in found.values() for name, _ in lane]
        if wanted <= set(names) or time.monotonic() > deadline:
            return found, names
        time.sleep(0.1)


@pytest.fixture
def crash(request, cluster):
    """Two ways to crash: the database with all its processes, or one worker of the server."""

    def kill_postgresql(server):
        cluster.kill()
        cluster.start()

    def kill_a_worker(server):
        os.kill(server.workers[0], signal.SIGKILL)

    return {"postgresql": kill_postgresql, "worker": kill_a_worker}[request.param]


@pytest.mark.parametrize("crash", ["postgresql", "worker"], indirect=True)
def test_no_answered_push_is_lost_doubled_or_out_of_order(cluster, crash, push_load, drain):
    """K01 and K02 in short, PL-16, O-27: nobody restarts the server."""
    with started("--backend", cluster.dsn(), "--workers", "2") as server:
        with push_load(server.url, "pushed") as load:
            for _ in range(CRASHES):
                wait_for_answers(load, 50)
                crash(server)
            wait_for_answers(load, 50)
        found, names = rest(server.url, "pushed", drain, set(load.answered))
    assert load.failures, "the crashes were not felt: this proved nothing"
    assert set(load.answered) <= set(names), "an answered push is missing"
    assert len(names) == len(set(names)), "a message was stored twice"
    for lane in found.values():
        assert all(before < after for (_, before), (_, after) in pairwise(lane)), "out of order"


@pytest.mark.parametrize("crash", ["postgresql", "worker"], indirect=True)
def test_an_answered_ack_holds_and_what_was_not_acked_comes_back(
    cluster, crash, push_load, consumer_load, drain
):
    """K01 and K02 in short, PL-16, C-04."""
    with started("--backend", cluster.dsn(), "--workers", "2") as server:
        body = {"queue": "acked", "options": OPTIONS}
        made = httpx.post(f"{server.url}/api/v1/configure", json=body, timeout=30)
        assert made.status_code == 201, made.text
        with (
            push_load(server.url, "acked", threads=2) as pushed,
            consumer_load(server.url, "acked") as consumed,
        ):
            for _ in range(CRASHES):
                wait_for_answers(pushed, 50)
                crash(server)
            wait_for_answers(pushed, 50)
        owed = set(pushed.answered) - consumed.acked - consumed.uncertain
        _, names = rest(server.url, "acked", drain, owed)
    assert consumed.acked, "nothing was acked: this proved nothing"
    assert consumed.delivered_again == set(), "an acked message was delivered again"
    assert consumed.acked.isdisjoint(names), "an acked message was delivered again"
    assert owed <= set(names), "a message that nobody acked is missing"
    assert len(names) == len(set(names)), "a message was delivered twice without a reason"
