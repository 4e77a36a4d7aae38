"""What a push, pop and ack cost, in pages touched: the same however much there is (QA-5, O-41).

Counted, not timed: pg_stat_statements adds up the pages that each call reads, those of the
statements inside its function included. A page that is read twice counts twice.
"""

from __future__ import annotations

import secrets
import statistics
from collections.abc import Callable, Iterator
from typing import Any

import msgspec
import pytest

from queen_sync import model as m
from queen_sync.backends import postgres_catalogue
from queen_sync.backends.postgres import PostgresBackend
from tests.databases import TestServer
from tests.postgres.sessions import (
    acks,
    connect,
    execute,
    message,
    open_transaction,
    until,
    value,
)

QUEUE = "large"
LANES = 24
"""How many partitions the tests themselves push to and pop from."""
# Of four partitions each is in another state for the group g: drained, leased, delayed, ready. The
# group idle has nothing that it could be given in any of them.
FILL = """
insert into queen.partitions (queue_id, name, created_at, last_seq, last_pushed_at)
select q.id, 'lane-' || i, now(), 4, now() from queen.queues q, generate_series({first}, {last}) i
where q.name = 'large';
insert into queen.messages (partition_id, seq, created_at, payload)
select p.id, s, now(), '1' from queen.partitions p, generate_series(1, 4) s
where p.id > {after} and p.id % 4 > 0;
insert into queen.partition_leases
    (partition_id, group_id, position, lease_id, lease_expires_at, batch, open, ready_at)
select p.id, g.id, case when x.state = 0 then 4 else 0 end,
    case when x.state = 1 then queen.new_lease_id(p.id) end,
    case when x.state = 1 then now() + interval '1 day' end,
    case when x.state = 1 then queen.span(1, 4) else '{{}}' end,
    case when x.state = 1 then queen.span(1, 4) else '{{}}' end,
    case x.state when 1 then now() + interval '1 day' when 2 then now() + interval '1 hour'
        when 3 then now() - interval '1 hour' end
from queen.partitions p, queen.consumer_groups g,
    lateral (select case when p.id % 4 = 3 and g.name = 'idle' then 0 else p.id % 4 end as state) x
where p.id > {after} and g.queue_id = p.queue_id
"""
DRAIN_IDLE = """
update queen.partition_leases l set position = p.last_seq, ready_at = null
from queen.partitions p, queen.consumer_groups g
where p.id = l.partition_id and g.id = l.group_id and g.name = 'idle' and l.ready_at <= now()
"""
TOUCHED = (
    "select coalesce(sum(shared_blks_hit + shared_blks_read), 0)::bigint from pg_stat_statements s"
    " join pg_database d on d.oid = s.dbid where d.datname = current_database()"
    " and query like '%queen.%'"
)
SCANS = (
    "select sum(seq_scan)::bigint from pg_stat_user_tables where schemaname = 'queen'"
    " and relname in ('messages', 'partitions', 'partition_leases')"
)
Call = Callable[[], Any]


class Meter:
    """A backend on one connection, and what its calls touch."""

    def __init__(self, dsn: str) -> None:
        self.dsn = dsn
        self.backend = PostgresBackend(dsn, migrate=False, pool_size=1)
        self._session = connect(dsn)
        self._session.execute("create extension if not exists pg_stat_statements")

    def close(self) -> None:
        self.backend.close()
        self._session.close()

    def pages(self, *steps: Call, rounds: int = 9) -> list[int]:
        """Run the steps in turn, round by round; return for each how many pages it touches.

        The middle one of the rounds, after as many that bring plans and caches to rest.
        """
        found: list[list[int]] = [[] for _ in steps]
        for number in range(2 * rounds):
            for place, step in enumerate(steps):
                self._session.execute("select pg_stat_statements_reset()")
                step()
                row = self._session.execute(TOUCHED).fetchone()
                assert row is not None
                if number >= rounds:
                    found[place].append(row[0])
        return [round(statistics.median(pages)) for pages in found]

    def scans(self) -> int:
        """Return how often a large table was read from end to end."""
        self.backend._db.call(lambda c: c.execute("select pg_stat_force_next_flush()").fetchone())
        return int(value(self.dsn, SCANS))


@pytest.fixture
def meter(counting_server: TestServer) -> Iterator[Meter]:
    with counting_server.database(migrated=True) as dsn:
        found = Meter(dsn)
        try:
            yield found
        finally:
            found.close()


def fill(meter: Meter, first: int, last: int) -> None:
    after = value(meter.dsn, "select max(id) from queen.partitions")
    execute(meter.dsn, *FILL.format(first=first, last=last, after=after).split(";\n"))
    execute(meter.dsn, "analyze queen.partitions, queen.messages, queen.partition_leases")


def cost(meter: Meter, queue: str = QUEUE) -> dict[str, int]:
    """Measure the hot calls, on partitions that belong to the test."""
    backend = meter.backend
    held: list[m.Claim] = []
    count = iter(range(1_000_000))

    def lane() -> str:
        return f"own-{next(count) % LANES}"

    def push(size: int) -> None:
        name = lane()
        backend.push([message(queue, None, name)] * size)

    def pop(size: int) -> None:
        held.append(backend.pop(m.PopRequest(queue=queue, group="g", max_messages=size)))
        assert held[-1]

    def ack() -> None:
        assert all(answer.ok for answer in backend.ack(acks(held.pop())))

    steps: dict[str, Call] = {
        "push": lambda: push(1),
        "push of 100": lambda: push(100),
        "push with a name": lambda: backend.push([message(queue, secrets.token_hex(8), lane())]),
        "pop": lambda: pop(1),
        "ack": ack,
        "pop of 100": lambda: pop(100),
        "ack of 100": ack,
    }
    idle = m.PopRequest(queue=queue, group="idle")
    quiet: dict[str, Call] = {
        "empty pop": lambda: quiet_pop(backend, idle),
        "time of the next": lambda: backend.next_ready_in(idle),
        "probe": lambda: backend.ready_now([idle]),
    }
    found = dict(zip(quiet, meter.pages(*quiet.values()), strict=True))
    return found | dict(zip(steps, meter.pages(*steps.values()), strict=True))


def quiet_pop(backend: PostgresBackend, request: m.PopRequest) -> None:
    assert not backend.pop(request)


def drain_idle(meter: Meter) -> None:
    """Let the group idle have settled what the others were measured with."""
    execute(meter.dsn, DRAIN_IDLE)


def prepare(meter: Meter, queue: str = QUEUE) -> None:
    meter.backend.configure(queue)
    for group in ("g", "idle"):
        meter.backend.subscribe(queue, group, m.Subscription())
    meter.backend.push([message(queue, None, f"own-{i}") for i in range(LANES)])
    drain_idle(meter)


def assert_alike(small: dict[str, int], large: dict[str, int], at_most: int = 60) -> None:
    """Assert that no call touches more pages than a few more levels of its indexes explain."""
    print(small, large, sep="\n")
    for name, pages in large.items():
        assert pages <= 2 * small[name] + 10, (name, small, large)
        assert pages <= at_most * (10 if name == "push of 100" else 1), (name, large)


def test_the_hot_calls_touch_as_much_with_one_partition_as_with_100_000(meter: Meter) -> None:
    """QA-5, O-41: drained, leased, delayed and ready partitions cost nothing."""
    grow(meter, 10_000, 100_000)


@pytest.mark.slow
@pytest.mark.timeout(600)
def test_the_hot_calls_touch_as_much_with_one_partition_as_with_1_000_000(meter: Meter) -> None:
    """QA-5, O-41: the long form."""
    grow(meter, 1_000_000)


def grow(meter: Meter, *sizes: int) -> None:
    prepare(meter)
    fill(meter, 1, 1)
    smallest, last = cost(meter), 1
    for size in sizes:
        fill(meter, last + 1, size)
        drain_idle(meter)
        last = size
        scans = meter.scans()
        assert_alike(smallest, cost(meter))
        assert meter.scans() == scans  # not one of them read a large table from end to end


@pytest.mark.parametrize("limit", [0, 10_000_000])
def test_the_hot_calls_touch_as_much_with_a_backlog_of_100_000_as_with_one(
    meter: Meter, limit: int
) -> None:
    """QA-5, O-43: in one partition; a limit is checked without counting messages."""
    prepare(meter)
    meter.backend.configure(QUEUE, {"max_queue_size": limit})
    small = cost(meter)
    backlog(meter, position=0)
    # A limit is checked against the positions in the partitions that have something.
    assert_alike(small, cost(meter), at_most=300 if limit else 60)


def test_the_hot_calls_touch_as_much_after_a_history_of_100_000(meter: Meter) -> None:
    """QA-5, O-43: all of it consumed by both groups and still stored."""
    prepare(meter)
    small = cost(meter)
    backlog(meter, position=100_000)
    assert_alike(small, cost(meter))


def backlog(meter: Meter, *, position: int) -> None:
    """Put 100,000 messages into each partition of the test that it used most."""
    execute(
        meter.dsn,
        # Behind what is stored: the rest goes first, so that the partition holds these alone.
        "delete from queen.messages m using queen.partitions p"
        " where p.id = m.partition_id and p.name = 'own-0'",
        "insert into queen.messages (partition_id, seq, created_at, payload)"
        " select p.id, s, now(), '1' from queen.partitions p, generate_series(1, 100000) s"
        " where p.name = 'own-0'",
        "update queen.partitions set last_seq = 100000, first_seq = 1 where name = 'own-0'",
        f"update queen.partition_leases l set position = {position}, lease_id = null,"
        " lease_expires_at = null, batch = '{}', open = '{}',"
        f" ready_at = case when {position} = 0 then now() - interval '1 hour' end"
        " from queen.partitions p where p.id = l.partition_id and p.name = 'own-0'",
        *DRAIN_IDLE.split(";"),
        "analyze queen.partitions, queen.messages, queen.partition_leases",
    )


def test_a_pop_over_a_thousand_queues_does_not_look_into_their_partitions(meter: Meter) -> None:
    """QA-5, C-17: one look into one index per queue, whatever lies behind it."""
    backend = meter.backend
    execute(
        meter.dsn,
        "select queen.make_queue('shop-' || i, null, 'shop', 'task-' || i % 10)"
        " from generate_series(1, 1000) i",
    )
    backend.push([message(f"shop-{i}", None) for i in range(1, 6)])

    def measure() -> list[int]:
        # One message for each of them that is measured; what is claimed stays claimed.
        steps = []
        for where in ({"namespace": "shop"}, {"task": "task-3"}, {"namespace": "no"}):
            request = m.PopRequest(queue="", group="g", auto_ack=True, **where)
            backend.pop(request)
            steps.append(lambda request=request: backend.pop(request))
        backend.push([message(f"shop-{i}", None) for i in range(3, 1000, 10)])
        return meter.pages(*steps, rounds=3)

    small = measure()
    execute(
        meter.dsn,
        "insert into queen.partitions (queue_id, name, created_at, last_seq, last_pushed_at)"
        " select q.id, 'p' || i, now(), 1, now() from queen.queues q, generate_series(1, 50) i",
        "insert into queen.partition_leases (partition_id, group_id, position, ready_at)"
        " select p.id, g.id, p.id % 2, case when p.id % 2 = 0 then now() + interval '1 hour' end"
        " from queen.consumer_groups g join queen.partitions p on p.queue_id = g.queue_id"
        " where p.name <> 'Default'",
        "analyze",
    )
    large = measure()
    print(small, large)
    assert max(large) <= 12 * 1_000
    for before, after in zip(small, large, strict=True):
        assert after <= 2 * before + 10


def test_ten_thousand_partitions_are_visited_one_by_one_among_as_many_empty_ones(
    meter: Meter,
) -> None:
    """O-41: no pop is empty while anything is left, and the last costs what the first did."""
    backend = meter.backend
    backend.configure(QUEUE)
    execute(
        meter.dsn,
        "insert into queen.partitions (queue_id, name, created_at, last_seq, last_pushed_at)"
        " select q.id, 'p' || i, now(), i % 2, now() from queen.queues q,"
        " generate_series(1, 20000) i",
        "insert into queen.messages (partition_id, seq, created_at, payload)"
        " select p.id, 1, now(), '1' from queen.partitions p where p.last_seq = 1",
    )
    request = m.PopRequest(queue=QUEUE, group="late", max_messages=100, max_partitions=100)
    seen: set[str] = set()
    pages: list[int] = []
    first = backend.pop(request)  # registers the group in all of them
    while claim := first if not seen else backend.pop(request):
        assert len(claim.messages) == 100
        seen |= {x.partition_id for x in claim.messages}
        pages.append(meter.pages(lambda c=claim: backend.ack(acks(c)), rounds=1)[0])
    assert len(seen) == 10_000
    assert statistics.median(pages[-10:]) <= 2 * statistics.median(pages[:10]) + 10


def test_no_pop_of_another_group_waits_while_one_is_registered(meter: Meter) -> None:
    """O-41: a chunk of partitions is in the registrar's hands, for as long as it likes."""
    prepare(meter)
    late = meter.backend._db.call(
        lambda c: c.execute(
            "select group_id from queen.begin_group(%s, 'late', 'all', null, false, null)", [QUEUE]
        ).fetchone()
    )
    assert late is not None
    request = m.PopRequest(queue=QUEUE, group="g", max_messages=LANES, max_partitions=LANES)
    with open_transaction(meter.dsn) as registrar:
        registrar.execute("select queen.register_partitions(%s, 0, 1000, null)", late)
        claim = meter.backend.pop(request)
        assert len(claim.messages) == LANES
        assert all(answer.ok for answer in meter.backend.ack(acks(claim)))
    assert len(meter.backend.pop(msgspec.structs.replace(request, group="late")).messages) == LANES


def test_the_tables_that_every_call_updates_are_narrow_and_swept_often(meter: Meter) -> None:
    """O-49: payloads are never updated, a push stays on its page, and vacuum comes early."""
    prepare(meter)
    cost(meter)
    meter.scans()  # hands over what was counted
    counts = (
        "select json_object_agg(relname, json_build_array(n_tup_upd, n_tup_hot_upd))"
        " from pg_stat_user_tables where schemaname = 'queen'"
    )
    found = value(meter.dsn, counts)
    assert found["messages"] == [0, 0]
    updates, on_the_page = found["partitions"]
    assert updates > 50
    assert on_the_page >= 0.8 * updates
    settings = (
        "select array_to_string(reloptions, ' ') from pg_class where oid = 'queen.{}'::regclass"
    )
    for table in ("partitions", "partition_leases"):
        said = value(meter.dsn, settings.format(table))
        assert "autovacuum_vacuum_scale_factor=0.01" in said
        assert "fillfactor=" in said


def test_a_held_snapshot_costs_little_and_nothing_once_it_is_gone(meter: Meter) -> None:
    """O-49, H18: what it may still see of 600 taken rows is not walked over at every pop."""
    prepare(meter)
    before = cost(meter)
    request = m.PopRequest(queue=QUEUE, group="g", max_messages=100)
    with connect(meter.dsn) as session, session.transaction():
        session.execute("set transaction isolation level repeatable read")
        session.execute("select count(*) from queen.queues")
        for _ in range(600):
            meter.backend.push([message(QUEUE, None, "own-0")])
            meter.backend.ack(acks(meter.backend.pop(request)))
        drain_idle(meter)
        held = cost(meter)
        print(before, held, sep="\n")
        assert {name for name, pages in held.items() if pages > before[name] + 100} == set()
    drain_idle(meter)
    execute(meter.dsn, "vacuum queen.partitions, queen.partition_leases")
    assert_alike(before, cost(meter))


def test_a_snapshot_that_is_held_and_the_dead_rows_are_on_the_health_page(
    meter: Meter, monkeypatch: pytest.MonkeyPatch
) -> None:
    """O-49: with a warning once it is old, since pops become slower until it ends."""
    prepare(meter)
    monkeypatch.setattr(postgres_catalogue, "OLD_SNAPSHOT_SECONDS", 1)
    assert meter.backend.check()["oldest_snapshot_seconds"] == 0
    cost(meter)
    meter.scans()  # hands over what was counted
    assert meter.backend.check()["dead_rows"] > 0
    with connect(meter.dsn) as session, session.transaction():
        session.execute("set transaction isolation level repeatable read")
        session.execute("select count(*) from queen.queues")
        facts = until(
            lambda: (found := meter.backend.check())["oldest_snapshot_seconds"] >= 1 and found
        )
        assert any("open for" in warning for warning in facts["warnings"])
    assert meter.backend.check()["warnings"] == [
        "fsync is off: a message that was acknowledged can be lost"
    ]
