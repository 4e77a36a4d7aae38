"""What a process costs the database while its consumers have nothing to do."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager

import pytest

from queen_sync import model as m
from queen_sync.backends.postgres import PostgresBackend
from queen_sync.broker import Broker
from queen_sync.clock import ManualClock
from queen_sync.config import Settings
from queen_sync.upkeep import Sweeper
from tests.databases import TestServer
from tests.postgres.conftest import MakeBackend
from tests.postgres.sessions import execute, fresh, message, open_transaction, push_in, until, value

QUEUES = 20
WAITERS = 200
SECONDS = 6.0
CALLS = (
    "select coalesce(sum(calls), 0)::bigint from pg_stat_statements s"
    " join pg_database d on d.oid = s.dbid where d.datname = current_database()"
    " and query not like '%%pg_stat_statements%%'"
)


@contextmanager
def waiting(broker: Broker, requests: list[m.PopRequest]) -> Iterator[list[m.Claim]]:
    """Let pops wait in threads until the block ends; yield what they were given so far."""
    claims: list[m.Claim] = []
    threads = [
        threading.Thread(target=lambda r=request: claims.append(broker.pop(r, 60)), daemon=True)
        for request in requests
    ]
    for thread in threads:
        thread.start()
    try:
        lanes = broker._waiting._lanes
        until(lambda: sum(len(lane.asleep) for lane in list(lanes.values())) == len(requests), 60)
        yield claims
    finally:
        broker.close()
        for thread in threads:
            thread.join(20)


@pytest.fixture
def counted_dsn(counting_server: TestServer) -> Iterator[str]:
    with counting_server.database(migrated=True) as dsn:
        execute(dsn, "create extension pg_stat_statements")
        yield dsn


def test_two_hundred_waiting_pops_cost_a_few_statements_a_second(counted_dsn: str) -> None:
    """O-42: over 20 queues, some missing, some empty, some with all partitions leased by others."""
    backend = PostgresBackend(counted_dsn, migrate=False)
    broker = Broker(backend, Settings(backend="memory:"))
    queues = [fresh() for _ in range(QUEUES)]
    for number, queue in enumerate(queues):
        if number % 4:
            backend.configure(queue, namespace="shop")
        if number % 4 == 2:
            backend.push([message(queue, None, f"p{i}") for i in range(5)])
            for _ in range(5):
                assert backend.pop(m.PopRequest(queue=queue))
    asked = [
        m.PopRequest(queue=queues[n % QUEUES], group=m.QUEUE_MODE if n % 40 < QUEUES else "new")
        for n in range(WAITERS - 2)
    ]
    for request in asked:
        if request.group == "new" and backend.queue(request.queue) is not None:
            backend.subscribe(request.queue, "new", m.Subscription(mode="new"))
    asked += [m.PopRequest(queue="", namespace="shop", group="new")] * 2
    sweeper = Sweeper(backend, 10_000)
    with waiting(broker, asked) as claims:
        before, began = value(counted_dsn, CALLS), time.monotonic()
        time.sleep(SECONDS)
        calls, took = value(counted_dsn, CALLS) - before, time.monotonic() - began
        assert claims == []
        assert broker.health().waiting_count == WAITERS
        sweeper.close()
    print(f"{calls} statements in {took:.1f} s")
    assert 0 < calls <= 5 * took


def test_what_came_without_a_hint_is_found_by_the_shared_probe(
    dsn: str, make_backend: MakeBackend
) -> None:
    """O-26, O-42: somebody pushed in plain SQL; of many that wait only those are woken."""
    backend = make_backend()
    broker = Broker(backend, Settings(backend="memory:"))
    queues = [fresh() for _ in range(5)]
    for queue in queues:
        backend.configure(queue)
    with waiting(broker, [m.PopRequest(queue=queue) for queue in queues]) as claims:
        with open_transaction(dsn) as session:
            push_in(session, queues[3])
        until(lambda: claims)
        assert [x.queue for claim in claims for x in claim.messages] == [queues[3]]


def test_the_probe_says_of_each_pop_whether_there_is_something_for_it(
    make_backend: MakeBackend,
) -> None:
    """O-42: for each way to ask, before and after there is something, and once it is leased."""
    clock = ManualClock()
    backend = make_backend(clock=clock)
    queue, other, missing = fresh(), fresh(), fresh()
    backend.configure(queue, {"lease_seconds": 10}, namespace=queue, task="t")
    backend.configure(other)
    asked = {
        "any": m.PopRequest(queue=queue, group="g"),
        "partition": m.PopRequest(queue=queue, group="g", partition="p"),
        "other partition": m.PopRequest(queue=queue, group="g", partition="no"),
        "namespace": m.PopRequest(queue="", namespace=queue, group="g"),
        "namespace and task": m.PopRequest(queue="", namespace=queue, task="t", group="g"),
        "other task": m.PopRequest(queue="", namespace=queue, task="no", group="g"),
        "other queue": m.PopRequest(queue=other, group="g"),
        "missing queue": m.PopRequest(queue=missing, group="g"),
        "unregistered": m.PopRequest(queue=other, group="nobody"),
    }

    def ready() -> set[str]:
        said = backend.ready_now(list(asked.values()))
        return {name for name, ready in zip(asked, said, strict=True) if ready}

    for request in asked.values():
        if request.group == "g":
            backend.pop(request)
    assert ready() == {"unregistered"}
    backend.push([message(queue, None, "p")])
    found = {"any", "partition", "namespace", "namespace and task", "unregistered"}
    assert ready() == found
    assert backend.pop(asked["any"])
    assert ready() == {"unregistered"}
    clock.advance(10)
    assert ready() == found
    assert backend.ready_now([]) == []


def test_a_probe_that_fails_has_every_pop_look_for_itself(
    dsn: str, backend: PostgresBackend
) -> None:
    """O-42: whatever it is, they meet it too and can say so to their callers."""

    def fail(_requests: object) -> list[bool]:
        raise ZeroDivisionError

    queue = fresh()
    backend.configure(queue)
    broker = Broker(backend, Settings(backend="memory:"))
    broker._waiting._ready_now = fail
    with waiting(broker, [m.PopRequest(queue=queue)]) as claims:
        with open_transaction(dsn) as session:
            push_in(session, queue)
        until(lambda: claims)
        assert claims[0].messages
