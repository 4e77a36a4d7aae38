"""The plans of the hot functions on a large installation, by counted work instead of time.

50,000 lease rows of one group, in every state, and statistics that know nothing of them as well
as ones that do. Plans are read from auto_explain, on connections that have never run the
function before, as a pool's new connection has not.
"""

from __future__ import annotations

import json
import secrets
from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

import pytest

from queen_sync import model as m
from queen_sync.backends.postgres import PostgresBackend
from tests.databases import TestServer, postgres_of
from tests.postgres.sessions import acks, execute, message

QUEUE = "large"
LANES = 50_000
# Of 50 lanes: 15 drained, 20 leased, 14 delayed, 1 ready; each has had 4 messages.
FILL = f"""
insert into queen.partitions (queue_id, name, created_at, last_seq, last_pushed_at)
select q.id, 'lane-' || i, now(), 4, now() from queen.queues q, generate_series(1, {LANES}) i
where q.name = '{QUEUE}';
insert into queen.messages (partition_id, seq, created_at, transaction_id, payload)
select p.id, s, now(), case when s = 2 then 'name-' || p.id end, '{{"a": 1}}'
from queen.partitions p, generate_series(1, 4) s where p.name like 'lane-%';
insert into queen.partition_leases
    (partition_id, group_id, position, lease_id, lease_expires_at, batch, open, ready_at)
select p.id, g.id, case when p.id % 50 < 15 then 4 else 0 end,
    case when p.id % 50 between 15 and 34 then queen.new_lease_id(p.id) end,
    case when p.id % 50 between 15 and 34 then now() + interval '1 day' end,
    case when p.id % 50 between 15 and 34 then queen.span(1, 4) else '{{}}' end,
    case when p.id % 50 between 15 and 34 then queen.span(1, 4) else '{{}}' end,
    case when p.id % 50 < 15 then null
        when p.id % 50 < 35 then now() + interval '1 day'
        when p.id % 50 < 49 then now() + interval '1 hour'
        else now() - interval '1 hour' end
from queen.partitions p, queen.consumer_groups g where p.name like 'lane-%' and g.name = 'g';
insert into queen.partition_leases (partition_id, group_id, ready_at)
select p.id, g.id, now() + interval '1 hour'
from queen.partitions p, queen.consumer_groups g
where p.name like 'lane-%' and p.id % 5 = 0 and g.name = 'waiting';
"""
# For every new connection of the database: psycopg hands notices over as they come.
EXPLAIN = """
do $$
declare
    setting record;
begin
    for setting in select * from (values
        ('session_preload_libraries', 'auto_explain'),
        ('auto_explain.log_min_duration', '0'), ('auto_explain.log_nested_statements', 'on'),
        ('auto_explain.log_analyze', 'on'), ('auto_explain.log_buffers', 'on'),
        ('auto_explain.log_timing', 'off'), ('auto_explain.log_format', 'json'),
        ('auto_explain.log_level', 'notice')
    ) s(name, value) loop
        execute format(
            'alter database %I set %s = %L', current_database(), setting.name, setting.value
        );
    end loop;
end $$;
"""
LARGE = ("partitions", "messages", "partition_leases")
INDEXED = {"Index Scan", "Index Only Scan", "Bitmap Heap Scan"}


class Node(NamedTuple):
    """One node of a plan that was run: what it read, how, and how much it touched."""

    kind: str
    relation: str | None
    index: str | None
    rows: float
    buffers: int


class Plans:
    """All plans that one call ran, the nested ones included."""

    def __init__(self, texts: list[str]) -> None:
        self.text = "\n".join(texts)
        self.nodes: list[Node] = []
        for text in texts:
            _, found, plan = text.partition("plan:\n")
            if found:
                top = json.loads(plan)["Plan"]
                self.nodes.extend(_nodes(top))

    def reads(self, relation: str) -> list[Node]:
        return [node for node in self.nodes if node.relation == relation and "Scan" in node.kind]

    @property
    def pages(self) -> int:
        """Pages of the large tables and their indexes that were touched to read them."""
        return sum(node.buffers for relation in LARGE for node in self.reads(relation))

    def check(self) -> None:
        """Assert that no large table is read but through an index, and nothing is compiled."""
        assert self.nodes
        assert "JIT" not in self.text
        for relation in LARGE:
            for node in self.reads(relation):
                assert node.kind in INDEXED, node


def _nodes(plan: dict[str, Any]) -> Iterator[Node]:
    yield Node(
        kind=plan["Node Type"],
        relation=plan.get("Relation Name"),
        index=plan.get("Index Name"),
        rows=plan.get("Actual Rows", 0) * plan.get("Actual Loops", 1),
        buffers=plan.get("Shared Hit Blocks", 0) + plan.get("Shared Read Blocks", 0),
    )
    for child in plan.get("Plans", ()):
        yield from _nodes(child)


def _fill(dsn: str, *, analyzed: bool) -> None:
    with PostgresBackend(dsn, migrate=False) as backend:
        backend.configure(QUEUE)
        for group in ("g", "waiting"):
            backend.subscribe(QUEUE, group, m.Subscription())
    execute(
        dsn,
        *(f"alter table queen.{table} set (autovacuum_enabled = off)" for table in LARGE),
        *FILL.split(";\n"),
        *(["analyze"] if analyzed else []),
        EXPLAIN,
    )


@pytest.fixture(scope="module", params=["newest", "newest, analyzed", "15, analyzed"])
def large_dsn(request: pytest.FixtureRequest) -> Iterator[str]:
    """A database with 50,000 lanes, on the PostgreSQL of the run and on version 15."""
    version, _, analyzed = request.param.partition(", ")
    if version == "newest":
        server: TestServer = request.getfixturevalue("postgres_server")
        with server.database(migrated=True) as dsn:
            _fill(dsn, analyzed=bool(analyzed))
            yield dsn
        return
    with postgres_of(int(version)) as dsn:
        _fill(dsn, analyzed=bool(analyzed))
        yield dsn


class Watched:
    """A backend on one new connection, whose plans are kept call by call."""

    def __init__(self, backend: PostgresBackend) -> None:
        self.backend = backend
        self._texts: list[str] = []
        connection = backend._db._acquire()
        connection.add_notice_handler(
            lambda notice: self._texts.append(notice.message_primary or "")
        )
        backend._db._give_back(connection)

    def plans(self, call: Callable[[PostgresBackend], Any]) -> tuple[Any, Plans]:
        self._texts.clear()
        result = call(self.backend)
        return result, Plans(self._texts)


@pytest.fixture
def watched(large_dsn: str) -> Iterator[Watched]:
    with PostgresBackend(large_dsn, migrate=False, pool_size=1) as backend:
        yield Watched(backend)


@pytest.mark.parametrize("partitions", [1, 10])
def test_a_pop_goes_by_the_index_of_what_is_ready(watched: Watched, partitions: int) -> None:
    """O-04: drained, leased and delayed lanes cost it nothing."""
    request = m.PopRequest(queue=QUEUE, group="g", max_messages=40, max_partitions=partitions)
    claim, plans = watched.plans(lambda backend: backend.pop(request))
    assert claim.partition_count == partitions
    plans.check()
    found = [n for n in plans.reads("partition_leases") if n.index == "partition_leases_ready"]
    assert len(found) == partitions
    for node in found:
        assert node.rows == 1
        assert node.buffers <= 40  # dead entries of earlier pops are among them
    assert plans.pages < 150 * partitions


def test_a_pop_that_finds_nothing_looks_at_no_row_that_waits(watched: Watched) -> None:
    """O-04: what is due is a condition of the index, so 10,000 delayed lanes cost nothing."""
    request = m.PopRequest(queue=QUEUE, group="waiting", max_messages=10)
    claim, plans = watched.plans(lambda backend: backend.pop(request))
    assert not claim
    plans.check()
    assert plans.pages < 20


def test_when_time_alone_brings_something_is_known_from_the_same_index(watched: Watched) -> None:
    """O-16: one row of it is read."""
    request = m.PopRequest(queue=QUEUE, group="g")
    seconds, plans = watched.plans(lambda backend: backend.next_ready_in(request))
    assert seconds is not None
    plans.check()
    found = [n for n in plans.reads("partition_leases") if n.index == "partition_leases_ready"]
    assert found
    assert sum(node.rows for node in plans.reads("partition_leases")) <= len(found)


@pytest.mark.parametrize("named", [False, True])
@pytest.mark.parametrize("lanes", [1, 20])
def test_a_push_does_not_scan_messages(watched: Watched, lanes: int, *, named: bool) -> None:
    """O-31: its cost is that of its own messages, duplicates looked up by their index."""
    names = [secrets.token_hex(8) if named else None for _ in range(100)]
    items = [message(QUEUE, name, f"lane-{i % lanes + 1}") for i, name in enumerate(names)]
    for duplicates in (False, named):
        receipts, plans = watched.plans(lambda backend: backend.push(items))
        assert [receipt.duplicate for receipt in receipts] == [duplicates] * 100
        plans.check()
        assert sum(node.rows for node in plans.reads("messages")) <= 300
        assert plans.pages < 3_000


def test_an_ack_reads_the_messages_that_it_names(watched: Watched) -> None:
    """O-31: by their key, or by the index of their names."""
    request = m.PopRequest(queue=QUEUE, group="g", max_messages=4)
    for outcome in ("completed", "failed", "dlq"):
        claim = watched.backend.pop(request)
        assert len(claim.messages) == 4
        answers, plans = watched.plans(lambda b, c=claim, o=outcome: b.ack(acks(c, o)))
        assert all(answer.ok for answer in answers)
        plans.check()
        assert sum(node.rows for node in plans.reads("messages")) <= 16
        assert plans.pages < 200


def test_a_transaction_and_an_ack_of_many_lanes_lock_their_rows_by_key(watched: Watched) -> None:
    """C-15: neither looks at the lease rows of other lanes."""
    request = m.PopRequest(queue=QUEUE, group="g", max_messages=40, max_partitions=10)
    claim = watched.backend.pop(request)
    pushes = [message(QUEUE, None, f"lane-{i}") for i in (17, 4, 40)]
    transaction = m.Transaction(operations=[*acks(claim)[:20], *pushes])
    for call in (
        lambda backend: backend.transact(transaction),
        lambda backend: backend.ack(acks(claim)),
        lambda backend: backend.extend(backend.pop(request).lease_id),
    ):
        _, plans = watched.plans(call)
        plans.check()
        assert [node for node in plans.reads("partition_leases") if node.rows > 50] == []


def test_a_sweep_over_nothing_to_do_stays_small(watched: Watched) -> None:
    """O-09: expired leases are found in the same index; what is not due is not read."""
    found, plans = watched.plans(
        lambda backend: backend._db.call(
            lambda cursor: cursor.execute(
                "select partition_ids from queen.next_lanes('expire', 10000, null)"
            ).fetchone()
        )
    )
    assert found == ([],)
    plans.check()
    due = LANES // 50 + 50  # and the lanes that other tests pushed to
    assert sum(node.rows for node in plans.reads("partition_leases")) <= due
