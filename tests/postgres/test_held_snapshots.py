"""A snapshot that somebody holds open, as a dump does, and what pops cost meanwhile (O-49)."""

from __future__ import annotations

import psycopg

from queen_sync import model as m
from queen_sync.backends import postgres_pop
from queen_sync.backends.postgres import PostgresBackend
from queen_sync.clock import ManualClock
from tests.databases import TestServer
from tests.postgres.sessions import acks, connect, fresh, message
from tests.postgres.test_cost import Meter

PARTITIONS = 250
ROUNDS = 500


def test_a_pop_does_not_pass_over_all_that_a_held_snapshot_keeps(
    counting_server: TestServer,
) -> None:
    """Every pop and ack leaves a dead index entry behind; only a look at everything meets them."""
    queue = fresh()
    with counting_server.database(migrated=True) as dsn:
        meter = Meter(dsn)
        clock = ManualClock()
        backend = PostgresBackend(dsn, clock=clock, migrate=False, pool_size=1)
        try:
            backend.subscribe(queue, "g", m.Subscription())
            for _ in range(ROUNDS // PARTITIONS + 2):
                backend.push([message(queue, None, f"p{i}") for i in range(PARTITIONS)])

            def cycle() -> None:
                clock.advance(2)
                claim = backend.pop(m.PopRequest(queue=queue, group="g"))
                assert claim
                assert all(answer.ok for answer in backend.ack(acks(claim)))

            cycle()
            with psycopg.connect(dsn) as holder:
                holder.isolation_level = psycopg.IsolationLevel.REPEATABLE_READ
                holder.execute("select count(*) from queen.queues").fetchone()
                (before,) = meter.pages(cycle, rounds=3)
                for _ in range(ROUNDS):
                    cycle()
                # The first of these may look at everything; the middle one looks from the floor.
                (after,) = meter.pages(cycle, rounds=3)
                backend._pops._floors = _Everywhere()
                (everything,) = meter.pages(cycle, rounds=3)
        finally:
            backend.close()
            meter.close()
    assert everything > 3 * before
    assert after < 2 * before


class _Everywhere(postgres_pop.Floors):
    def of(self, queue: str, request: m.PopRequest) -> None:
        return None


def test_what_lies_below_the_floor_is_found_where_nothing_lies_above(
    dsn: str, backend: PostgresBackend
) -> None:
    """C-05: work that came due long ago but was committed only now, by a push held open."""
    queue = fresh()
    backend.push([message(queue, "first", "a"), message(queue, "late", "b")])
    claim = backend.pop(m.PopRequest(queue=queue, group="g"))
    assert [x.transaction_id for x in claim.messages] == ["first"]
    with connect(dsn) as session:
        session.execute(
            "update queen.partition_leases set ready_at = now() - interval '1 hour'"
            " where ready_at < now()"
        )
    assert backend.pop(m.PopRequest(queue=queue, group="g")).messages[0].transaction_id == "late"
