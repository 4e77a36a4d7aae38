"""Through a real pgbouncer in transaction mode: few sessions, no state in any (O-29, K18)."""

from __future__ import annotations

import time
from collections.abc import Iterator

import psycopg
import pytest

from queen_sync import model as m
from queen_sync.backends.base import Backend
from queen_sync.backends.postgres import PostgresBackend, migrate
from queen_sync.clock import Clock, SystemClock
from queen_sync.conformance import BackendConformance
from queen_sync.errors import BackendUnavailable
from tests.databases import TestServer
from tests.postgres.conftest import MakeBackend
from tests.postgres.pooler import SESSIONS, pooled
from tests.postgres.sessions import (
    acks,
    connect,
    drain,
    fresh,
    message,
    open_transaction,
    push_in,
    repaired,
    together,
    value,
)
from tests.postgres.test_hints import Ear


@pytest.fixture
def way(dsn: str) -> Iterator[str]:
    with pooled(dsn) as through:
        yield through


@pytest.fixture
def behind(dsn: str, way: str, make_backend: MakeBackend) -> PostgresBackend:
    return make_backend(way, pooled=True, listen_dsn=dsn, pool_size=12)


def test_many_callers_over_few_sessions_get_every_message_once(
    dsn: str, behind: PostgresBackend
) -> None:
    """O-29, INV-COMPLETE: pushes, pops, acks, transactions, a registration, all at once."""
    queue = fresh()
    behind.configure(queue, {"max_queue_size": 100_000})
    taken: list[str] = []

    def produce(number: int) -> None:
        for n in range(40):
            behind.push([message(queue, f"{number}-{n}", f"p{n % 5}")])

    def consume() -> None:
        for _ in range(60):
            claim = behind.pop(m.PopRequest(queue=queue, max_messages=3, max_partitions=2))
            if claim:
                behind.transact(m.Transaction(operations=acks(claim)))
                taken.extend(x.transaction_id for x in claim.messages)

    together(
        *(lambda n=n: produce(n) for n in range(4)),
        *[consume] * 4,
        lambda: behind.pop(m.PopRequest(queue=queue, group="late")),
        behind.sweep,
    )
    taken.extend(x.transaction_id for x in drain(behind, queue, m.QUEUE_MODE))
    assert sorted(taken) == sorted(f"{number}-{n}" for number in range(4) for n in range(40))
    assert repaired(dsn) == 0


def test_the_limits_go_with_each_transaction_and_stay_in_none(
    dsn: str, way: str, make_backend: MakeBackend
) -> None:
    """O-29, QA-2: whoever gets the session next has its own."""
    backend = make_backend(way, pooled=True, listen_dsn=dsn, lock_timeout_milliseconds=200)
    queue = fresh()
    backend.push([message(queue)])
    with open_transaction(dsn) as holder:
        push_in(holder, queue)
        began = time.monotonic()
        with pytest.raises(BackendUnavailable):
            backend.push([message(queue)])
        assert time.monotonic() - began < 10
    said = backend._db.call(
        lambda c: c.execute(
            "select current_setting('lock_timeout'), current_setting('statement_timeout'),"
            " current_setting('transaction_isolation')"
        ).fetchone()
    )
    assert said == ("200ms", "30s", "read committed")
    with psycopg.connect(way, autocommit=True) as other:
        assert other.execute("show lock_timeout").fetchone() == ("0",)
        assert other.execute("show statement_timeout").fetchone() == ("0",)


def test_nothing_is_prepared_in_a_session(dsn: str, way: str, behind: PostgresBackend) -> None:
    """O-29: a statement that is used a hundred times neither, and the sessions are few."""
    queue = fresh()
    for _ in range(100):
        behind.push([message(queue)])
        assert behind.pop(m.PopRequest(queue=queue, auto_ack=True))
    with psycopg.connect(way, autocommit=True, prepare_threshold=None) as session:
        prepared = session.execute("select count(*) from pg_prepared_statements").fetchone()
    assert prepared == (0,)
    used = "select count(*) from pg_stat_activity where datname = current_database()"
    with connect(dsn) as session:
        count = session.execute(f"{used} and pid <> pg_backend_pid()").fetchone()
    assert count is not None
    assert count[0] <= SESSIONS + 1  # the listener goes past the pooler


def test_wake_ups_come_by_the_direct_way(behind: PostgresBackend) -> None:
    """O-15, O-29: sent through the pooler, heard past it."""
    queue = fresh()
    ear = Ear(behind)
    behind.push([message(queue)])
    ear.until(frozenset({queue}))
    ear.stop()


def test_a_schema_is_made_through_the_pooler(postgres_server: TestServer) -> None:
    """O-29, O-33: in one transaction, and found up to date the second time."""
    with postgres_server.database(migrated=False) as dsn, pooled(dsn) as through:
        assert migrate(through)
        assert not migrate(through)
        assert value(dsn, "select count(*) from queen.queues") == 0


def test_in_session_mode_it_needs_to_be_told_nothing(dsn: str, make_backend: MakeBackend) -> None:
    """O-29: as the page says, where the pooler passes over start-up options."""
    with pooled(dsn, mode="session", ignored="options") as through:
        backend = make_backend(through, pool_size=2)
        queue = fresh()
        ear = Ear(backend)
        for _ in range(20):
            backend.push([message(queue)])
        ear.until(frozenset({queue}))
        assert len(drain(backend, queue, m.QUEUE_MODE)) == 20
        ear.stop()
        backend.close()


def test_health_is_asked_through_the_pooler(behind: PostgresBackend) -> None:
    """O-27: with the same facts."""
    facts = behind.check()
    assert facts["repaired"] == 0
    assert facts["max_connections"] > 0


@pytest.fixture(scope="module")
def ways(postgres_server: TestServer) -> Iterator[tuple[str, str]]:
    """Return the direct way to a database, and one through a pooler, for many tests."""
    with postgres_server.database(migrated=True) as dsn, pooled(dsn) as through:
        yield dsn, through


@pytest.mark.slow
@pytest.mark.timeout(600)
class TestPooled(BackendConformance):
    """K18: the whole contract."""

    target_name = "postgres"

    @pytest.fixture
    def backend(self, clock: Clock, ways: tuple[str, str]) -> Iterator[Backend]:
        dsn, through = ways
        given = None if isinstance(clock, SystemClock) else clock
        with PostgresBackend(
            through,
            clock=given,
            listen_dsn=dsn,
            pooled=True,
            repair_interval_seconds=0,
            migrate=False,
        ) as backend:
            yield backend
