"""Pops that wait, over HTTP."""

import time
from concurrent.futures import ThreadPoolExecutor

import pytest

from queen_sync.backends.memory import MemoryBackend
from queen_sync.config import Settings

POP = "/api/v1/pop/queue/q"


@pytest.fixture
def backend() -> MemoryBackend:
    return MemoryBackend()


@pytest.fixture
def settings() -> Settings:
    return Settings(
        backend="memory:",
        threads=4,
        max_concurrent_polls=2,
        default_timeout_milliseconds=300,
        max_timeout_milliseconds=600,
    )


def _wait_for_waiters(http, count: int) -> None:
    deadline = time.monotonic() + 5
    while http.get("/health").get_json()["stats"]["waiting"] != count:
        assert time.monotonic() < deadline


@pytest.mark.parametrize(
    ("query", "seconds"),
    [
        ("", 0.0),
        ("?timeout=500", 0.0),
        ("?wait=false&timeout=500", 0.0),
        ("?wait=true&timeout=0", 0.0),
        ("?wait=true&timeout=-5", 0.0),
        ("?wait=true&timeout=150", 0.15),
        ("?wait=1&timeout=abc", 0.3),
        ("?wait=TRUE", 0.3),
        ("?wait=true&timeout=99999999999999999999999", 0.6),
    ],
)
def test_an_empty_queue_is_answered_204_when_the_time_is_over(http, query, seconds):
    """A queue that does not exist waits too."""
    begun = time.monotonic()
    answer = http.get(POP + query)
    assert answer.status_code == 204
    assert seconds <= time.monotonic() - begun < seconds + 0.1


def test_a_push_answers_a_waiting_request_within_a_fifth_of_a_second(http):
    with ThreadPoolExecutor(1) as pool:
        waiting = pool.submit(http.pop, "q", wait="true", timeout="600")
        _wait_for_waiters(http, 1)
        begun = time.monotonic()
        http.push("q", 1)
        assert waiting.result()["messages"][0]["data"] == 1
        assert time.monotonic() - begun < 0.2


def test_one_waiter_too_many_is_429_and_everything_else_goes_on(http):
    """O-19: the word "connection" makes consume loops pause and go on."""
    with ThreadPoolExecutor(2) as pool:
        waiting = [pool.submit(http.get, f"{POP}?wait=true&timeout=600") for _ in range(2)]
        _wait_for_waiters(http, 2)
        answer = http.get(f"{POP}?wait=true")
        assert (answer.status_code, answer.headers["Retry-After"]) == (429, "1")
        assert answer.headers["Cache-Control"] == "no-store"
        assert answer.get_json() == {
            "error": "too many waiting connections",
            "code": "OVERLOADED",
        }
        assert http.get(POP).status_code == 204
        assert http.push("other", 1)
        assert [each.result().status_code for each in waiting] == [204, 204]


def test_a_drain_answers_waiting_requests_204(http, broker):
    """O-21."""
    with ThreadPoolExecutor(1) as pool:
        waiting = pool.submit(http.get, f"{POP}?wait=true")
        _wait_for_waiters(http, 1)
        broker.drain()
        assert waiting.result(0.2).status_code == 204
    assert http.get("/health").get_json()["draining"] is True
