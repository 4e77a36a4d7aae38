"""What real servers count reaches the store, while they run and when they end."""

from __future__ import annotations

import time

import httpx
import pytest

from queen_sync import stats as s
from queen_sync.backends.sqlite import SqliteBackend
from queen_sync.clock import SystemClock
from tests.serving import started

SECONDS = 30


def pushed(path) -> int:
    """Return how many pushed messages the file knows of."""
    with SqliteBackend(path) as backend:
        now_us = SystemClock().now_us()
        rows = backend.counts(s.CountFilter(from_us=now_us - 10 * s.MINUTE, to_us=now_us))
        return sum(row.counts.pushed for row in rows)


def push(url: str, count: int) -> None:
    items = [{"queue": "q", "payload": n} for n in range(count)]
    assert httpx.post(f"{url}/api/v1/push", json={"items": items}).status_code == 201


@pytest.mark.parametrize("pushes", [1, 3])
def test_a_server_that_is_stopped_writes_what_it_counted(tmp_path, pushes):
    """PL-9: nothing was written before, the interval being ten minutes."""
    path = tmp_path / "q.db"
    environment = {"METRICS_COLLECTION_INTERVAL": "600000"}
    with started("--backend", f"sqlite:///{path}", environment=environment) as server:
        for _ in range(pushes):
            push(server.url, 5)
        assert pushed(path) == 0
        assert server.stop() == 0
    assert pushed(path) == 5 * pushes


def test_a_server_writes_its_counts_while_it_runs(tmp_path):
    """PL-9."""
    path = tmp_path / "q.db"
    environment = {"METRICS_COLLECTION_INTERVAL": "100"}
    with started("--backend", f"sqlite:///{path}", environment=environment) as server:
        push(server.url, 3)
        deadline = time.monotonic() + SECONDS
        while pushed(path) < 3:
            assert time.monotonic() < deadline
            time.sleep(0.05)
