"""Counts by the minute on PostgreSQL: many processes add to the same rows."""

from __future__ import annotations

import random
from concurrent.futures import ThreadPoolExecutor

import psycopg

from queen_sync import model as m, stats as s

QUEUES = [f"q{n}" for n in range(20)]
DEADLOCKS = "select deadlocks from pg_stat_database where datname = current_database()"


def test_processes_that_add_at_once_neither_wait_in_a_circle_nor_lose_anything(backend, dsn):
    """PL-9, INV-COUNTERS: each sends its rows in another order."""

    def add(seed: int) -> None:
        rows = [
            s.QueueCounts(
                start_us=minute * s.MINUTE,
                queue=queue,
                counts=s.Counts(pushed=1, max_delay_milliseconds=seed),
            )
            for queue in QUEUES
            for minute in range(3)
        ]
        random.Random(seed).shuffle(rows)
        backend.add_counts(rows)

    with ThreadPoolExecutor(8) as pool:
        list(pool.map(add, range(40)))
    rows = backend.counts(s.CountFilter(from_us=0, to_us=2 * s.MINUTE, by_queue=True))
    assert len(rows) == 60
    assert all(row.counts == s.Counts(pushed=40, max_delay_milliseconds=39) for row in rows)
    backend.close()  # what its connections know of deadlocks is told by then
    with psycopg.connect(dsn) as connection:
        assert connection.execute(DEADLOCKS).fetchone() == (0,)


def test_whoever_counts_is_not_in_the_way_of_a_push(backend, make_backend, dsn):
    """PL-9: the rows of counts may be locked for as long as anybody likes."""
    row = s.QueueCounts(start_us=0, queue="q", counts=s.Counts(pushed=1))
    backend.add_counts([row])
    other = make_backend(lock_timeout_milliseconds=1_000)
    with psycopg.connect(dsn) as connection:
        connection.execute("select 1 from queen.metrics_minutes for update")
        assert other.push([m.NewMessage.of("q", 1)])
        assert other.pop(m.PopRequest(queue="q"))
        assert other.forget_counts(s.MINUTE) == 0
        connection.execute("rollback")
    assert other.forget_counts(s.MINUTE) == 1
