"""Hints between processes: soon, and never silently gone."""

from __future__ import annotations

import queue as queues
import statistics
import time
from collections.abc import Iterator

import pytest

from queen_sync.backends.base import Hint
from queen_sync.backends.postgres import PostgresBackend
from queen_sync.backends.postgres_hints import CHANNEL
from tests.postgres.conftest import MakeBackend
from tests.postgres.sessions import connect, execute, fresh, message, open_transaction

KILL = (
    "select pg_terminate_backend(pid) from pg_stat_activity where datname = current_database()"
    " and pid <> pg_backend_pid() and query ilike '{query}%'"
)
SOON_SECONDS = 10.0


class Ear:
    """A listener of one backend object, as another process would be."""

    def __init__(self, backend: PostgresBackend) -> None:
        self.heard: queues.SimpleQueue[Hint] = queues.SimpleQueue()
        self.stop = backend.listen(self.heard.put)
        assert self.next() is None  # said once listening: whatever was before may have been missed

    def next(self, seconds: float = SOON_SECONDS) -> Hint:
        return self.heard.get(timeout=seconds)

    def until(self, wanted: Hint) -> None:
        ends = time.monotonic() + SOON_SECONDS
        while self.next(max(0.01, ends - time.monotonic())) != wanted:
            pass


@pytest.fixture
def ear(make_backend: MakeBackend) -> Iterator[Ear]:
    listener = Ear(make_backend(lock_timeout_milliseconds=100))
    yield listener
    listener.stop()


def test_a_push_wakes_another_process_within_a_tenth_of_a_second(
    backend: PostgresBackend, ear: Ear
) -> None:
    """O-15: the middle one of nine, so that a busy machine does not decide."""
    queue = fresh()
    backend.configure(queue)
    ear.until(frozenset({queue}))
    delays = []
    for _ in range(9):
        backend.push([message(queue)])
        pushed = time.monotonic()
        ear.until(frozenset({queue}))
        delays.append(time.monotonic() - pushed)
    assert statistics.median(delays) < 0.1


def test_a_listener_whose_connection_is_killed_comes_back_and_says_look_everywhere(
    dsn: str, backend: PostgresBackend, ear: Ear
) -> None:
    """O-15: what was said while it was deaf is not known, so any queue may have work."""
    execute(dsn, KILL.format(query=f"listen {CHANNEL}"))
    assert ear.next() is None
    queue = fresh()
    backend.push([message(queue)])
    ear.until(frozenset({queue}))


def test_a_hint_waits_for_a_connection_that_can_send_it(
    dsn: str, backend: PostgresBackend, ear: Ear
) -> None:
    """O-15: the connection that sends hints died after the last one."""
    first, second = fresh(), fresh()
    backend.push([message(first)])
    ear.until(frozenset({first}))
    execute(dsn, KILL.format(query="select pg_notify"))
    backend.push([message(second)])
    ear.until(frozenset({second}))


def test_a_name_that_cannot_be_looked_up_does_not_end_the_listener(
    dsn: str, backend: PostgresBackend, ear: Ear
) -> None:
    """O-15: it says "look everywhere" instead, and hears what comes later."""
    queue = fresh()
    with open_transaction(dsn) as holder:
        holder.execute("lock table queen.queues in access exclusive mode")
        execute(dsn, f"notify {CHANNEL}, 'another:1'")
        assert ear.next() is None
    backend.push([message(queue)])
    ear.until(frozenset({queue}))


def test_a_listener_that_fails_takes_neither_the_others_nor_the_push_with_it(
    backend: PostgresBackend, ear: Ear, caplog: pytest.LogCaptureFixture
) -> None:
    """O-15: its own fault is logged and stays its own."""

    def fail(_hint: Hint) -> None:
        raise ZeroDivisionError

    queue = fresh()
    stop = backend.listen(fail)
    mine = Ear(backend)
    backend.push([message(queue)])
    mine.until(frozenset({queue}))
    ear.until(frozenset({queue}))
    stop()
    mine.stop()
    assert "a listener failed on a hint" in caplog.text


def test_hints_for_very_many_queues_become_one_that_means_everywhere(
    dsn: str, ear: Ear, make_backend: MakeBackend
) -> None:
    """O-15, P14: a payload is bounded at 8,000 bytes."""
    other = make_backend()
    with connect(dsn) as session:
        session.execute(
            "insert into queen.queues (name, created_at, configured_at)"
            " select 'many-' || i, now(), now() from generate_series(1, 500) i"
        )
    other._hints.changed({number: f"many-{number}" for number in range(1, 501)})
    assert ear.next() is None
