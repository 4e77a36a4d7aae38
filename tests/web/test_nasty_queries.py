"""Whatever stands in the query of a listing, the answer is figures or a refusal."""

import pytest

from queen_sync.backends.base import Backend
from queen_sync.backends.memory import MemoryBackend
from queen_sync.backends.postgres import PostgresBackend
from queen_sync.backends.sqlite import SqliteBackend
from queen_sync.broker import Broker
from queen_sync.web import create_app
from tests.web.conftest import Http

PATHS = (
    "resources/queues",
    "resources/queues/q",
    "resources/partitions",
    "consumer-groups",
    "consumer-groups/g",
    "consumer-groups/lagging",
    "status",
    "status/queues",
    "status/queues/q",
    "status/analytics",
    "status/leases",
    "status/lanes",
    "analytics/queues",
    "analytics/queue-depths",
    "analytics/throughput",
    "analytics/queue-lag",
    "analytics/queue-stats",
)
STORED = ("consumer-groups/lagging", "status", "status/analytics", "status/lanes")
"""Those that hand instants and pages on to the store, which must be able to take them."""
NAMES = (
    "limit",
    "offset",
    "from",
    "to",
    "interval",
    "minLagSeconds",
    "minDepth",
    "order",
    "waitingSince",
    "leased",
    "queue",
    "namespace",
    "task",
    "consumerGroup",
    "partition",
    "search",
    "fromDateTime",
)
VALUES = (
    "",
    "0",
    "-1",
    "1e3",
    "٣",
    "9" * 30,
    "2147483647",
    "x" * 300,
    "\0",
    "..",
    "null",
    "%",
    "'; drop table queues; --",
    "0001-01-01T00:00:00Z",
    "0001-01-01T00:00:00+14:00",
    "9999-12-31T23:59:59.999999-14:00",
    "2026-02-30",
)


@pytest.fixture
def backend(request, store, tmp_path, clock) -> Backend:
    if store == "memory":
        return MemoryBackend(clock)
    if store == "sqlite":
        return SqliteBackend(tmp_path / "q.db", clock=clock)
    dsn = request.getfixturevalue("postgres_dsn")
    return PostgresBackend(dsn, clock=clock, migrate=False)


@pytest.fixture
def http(backend, settings, clock):
    broker = Broker(backend, settings, clock)
    http = Http(create_app(broker, settings))
    http.push("q", 1)
    http.pop("q", consumerGroup="g")
    yield http
    broker.close()


@pytest.mark.parametrize(
    ("store", "path"),
    [
        *(("memory", path) for path in PATHS),
        *((store, path) for store in ("sqlite", "postgres") for path in STORED),
    ],
)
def test_no_query_is_a_bug(http, path):
    """INV-NO-500: each parameter with each value, alone."""
    for name in NAMES:
        for value in VALUES:
            answer = http.get(f"/api/v1/{path}", query_string={name: value})
            assert answer.status_code in (200, 400, 404), (name, value, answer.get_data())
            if answer.status_code == 400:
                assert answer.get_json()["code"] == "INVALID_REQUEST"
                assert answer.get_json()["field"]
