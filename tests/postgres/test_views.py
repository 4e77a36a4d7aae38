"""The views for people who read the database: each says what the backend itself answers."""

from __future__ import annotations

import random
from datetime import datetime
from typing import Any

import psycopg
import pytest
from psycopg.rows import dict_row

from queen_sync import ids, inspection as i, model as m
from queen_sync.backends.postgres import PostgresBackend
from tests.pages import DOCS
from tests.postgres.sessions import acks, execute, fresh, message, value

VIEWS = (
    "messages_status",
    "queue_depths",
    "active_leases",
    "partition_utilisation",
    "stuck_partitions",
)
OUTCOMES: tuple[m.Outcome, ...] = ("completed", "completed", "failed", "retry", "dlq")
GROUPS = ("g1", "g2", m.QUEUE_MODE)


def rows(dsn: str, view: str, order: str = "queue_name") -> list[dict[str, Any]]:
    with psycopg.connect(dsn, row_factory=dict_row) as session:
        return session.execute(f"select * from queen.{view} order by {order}").fetchall()


def play(dsn: str, backend: PostgresBackend, seed: int) -> list[str]:
    """Run a random program over three queues, one limited and one that nobody reads."""
    dice = random.Random(seed)
    read, limited, unread = queues = [fresh(name) for name in ("read", "limited", "unread")]
    backend.configure(limited, {"max_queue_size": 200, "retry_limit": 1}, namespace="shop")
    backend.configure(read, {"lease_seconds": 29, "completed_retention_seconds": 3600})
    backend.configure(read, {"retention_enabled": True})
    held: list[m.Claim] = []
    for step in range(120):
        queue = dice.choice(queues)
        group = dice.choice(GROUPS)
        choice = dice.random()
        if choice < 0.35 or queue == unread:
            names = [f"{step}-{n}" if dice.random() < 0.5 else None for n in range(3)]
            backend.push([message(queue, name, f"p{dice.randrange(4)}") for name in names])
        elif choice < 0.65:
            claim = backend.pop(
                m.PopRequest(
                    queue=queue, group=group, max_messages=dice.randrange(1, 6),
                    max_partitions=dice.randrange(1, 3), auto_ack=dice.random() < 0.1,
                )
            )  # fmt: skip
            if claim.lease_id is not None:
                held.append(claim)
        elif choice < 0.9 and held:
            claim = held.pop(dice.randrange(len(held)))
            some = [ack for ack in acks(claim, dice.choice(OUTCOMES)) if dice.random() < 0.8]
            backend.ack(some)
        elif choice < 0.94:
            backend.redrive(m.DeadLetterFilter(queue=queue, limit=1))
        elif choice < 0.97 and held:
            backend.extend(dice.choice(held).lease_id or "", 600)
        else:
            found = backend.messages(i.MessageFilter(queue=queue, limit=5)).items
            if found:
                backend.delete_message(found[-1].partition_id, found[-1].id)
    # Some leases run out without anybody taking them back.
    execute(
        dsn,
        "update queen.partition_leases set lease_expires_at = now() - interval '1 second',"
        " ready_at = now() - interval '1 second'"
        " where lease_id is not null and partition_id % 3 = 0",
    )
    return queues


@pytest.fixture(params=range(3))
def played(request: pytest.FixtureRequest, dsn: str, backend: PostgresBackend) -> list[str]:
    return play(dsn, backend, request.param)


def test_every_message_has_the_states_that_a_look_up_gives(
    dsn: str, backend: PostgresBackend, played: list[str]
) -> None:
    """PLD-10, H24: messages_status, one row per message and registered group."""
    said: dict[tuple[str, str | None], tuple[Any, ...]] = {}
    for row in rows(dsn, "messages_status"):
        key = (str(row["message_id"]), row["consumer_group"])
        assert key not in said
        said[key] = (
            row["queue_name"], row["partition_name"], row["seq"], row["created_at"],
            row["transaction_id"], row["status"], row["retry_count"], row["error_message"],
            row["lease_expires_at"],
        )  # fmt: skip
        assert row["partition_id"] == ids.address(key[0]).partition
        assert row["completed_at"] is None
    known: dict[tuple[str, str | None], tuple[Any, ...]] = {}
    for queue in played:
        for x in backend.messages(i.MessageFilter(queue=queue, limit=1_000)).items:
            where = (x.queue, x.partition, x.seq, x.created_at, x.transaction_id)
            for state in x.states:
                known[x.id, state.group] = (
                    *where, state.status, state.failure_count, state.error,
                    _at(state.lease_expires_us),
                )  # fmt: skip
            if not x.states:
                known[x.id, None] = (*where, "pending", 0, None, None)
    assert said == known
    assert len({status for *_, status, _, _, _ in said.values()}) >= 4


def test_a_completed_message_is_dated_by_what_retention_noted(
    dsn: str, backend: PostgresBackend
) -> None:
    """H24: a position has no time, so there is none before the note."""
    queue = fresh()
    backend.configure(queue, {"retention_enabled": True, "completed_retention_seconds": 3600})
    backend.push([message(queue, name) for name in "ab"])
    claim = backend.pop(m.PopRequest(queue=queue))
    backend.ack(acks(claim))
    noted = "select count(completed_at) from queen.messages_status"
    assert value(dsn, noted) == 0
    backend.sweep()
    assert value(dsn, f"{noted} where transaction_id = 'a'") == 1
    assert value(dsn, f"{noted} where transaction_id = 'b'") == 0


def test_queue_depths_are_what_pushes_compare_with_the_limit(
    dsn: str, backend: PostgresBackend, played: list[str]
) -> None:
    """PLD-9, PLD-10: depth, capacity and partitions, as the backend sums them up."""
    for row in rows(dsn, "queue_depths"):
        partitions = backend.partitions(row["queue_name"])
        queue = backend.queue(row["queue_name"])
        assert queue is not None
        depth = sum(partition.waiting_count for partition in partitions)
        limit = queue.options.max_queue_size
        assert row == {
            "queue_name": queue.name,
            "namespace": queue.namespace,
            "task": queue.task,
            "total_partitions": len(partitions),
            "stored_count": sum(partition.stored_count for partition in partitions),
            "current_depth": depth,
            "max_queue_size": limit,
            "remaining_capacity": limit - depth if limit else None,
            "utilisation_pct": pytest.approx(100 * depth / limit, abs=0.01) if limit else None,
        }
    assert {row["queue_name"] for row in rows(dsn, "queue_depths")} == set(played)
    [receipt] = backend.push([message(played[1])])
    assert receipt.depth == value(
        dsn, f"select current_depth from queen.queue_depths where queue_name = '{played[1]}'"
    )


def test_active_leases_and_utilisation_are_those_of_the_partitions(
    dsn: str, backend: PostgresBackend, played: list[str]
) -> None:
    """PLD-10: what is live by the database's clock; what has run out is none."""
    leases = {
        (row["queue_name"], row["partition_name"], row["consumer_group"]): row
        for row in rows(dsn, "active_leases")
    }
    utilisation = {
        (row["queue_name"], row["consumer_group"]): row
        for row in rows(dsn, "partition_utilisation")
    }
    found = set()
    for queue in played:
        partitions = backend.partitions(queue)
        taken: dict[str | None, int] = dict.fromkeys((g.name for g in backend.groups(queue)), 0)
        for partition in partitions:
            for group in partition.groups:
                if group.lease_expires_at is None:
                    continue
                taken[group.name] = (taken[group.name] or 0) + 1
                key = (queue, partition.name, group.name)
                found.add(key)
                row = leases[key]
                assert ids.partition_id(row["partition_id"]) == partition.id
                assert row["lease_expires_at"] == group.lease_expires_at
                assert row["message_count"] == group.lease_count
                assert row["open_count"] == group.in_flight_count
                assert 0 < row["seconds_remaining"] <= 3_600
                assert row["leased_at"] < row["lease_expires_at"]
        for name, count in (taken or {None: 0}).items():
            row = utilisation.pop((queue, name))
            assert row["total_partitions"] == len(partitions)
            assert row["leased_partitions"] == count
            assert row["utilisation_pct"] == pytest.approx(100 * count / len(partitions), abs=0.01)
    assert set(leases) == found
    assert utilisation == {}
    assert leases


def test_stuck_partitions_are_leases_that_end_soon_or_have_ended(
    dsn: str, backend: PostgresBackend, played: list[str]
) -> None:
    """PLD-10: with how long each has been held; leases of 300 s are not among them."""
    stuck = rows(dsn, "stuck_partitions", "lease_expires_at")
    assert stuck
    assert all(row["lease_held_seconds"] >= 0 for row in stuck)
    assert all(row["seconds_remaining"] < 30 for row in stuck)
    ending = {row["lease_id"] for row in stuck if row["seconds_remaining"] > 0}
    live = rows(dsn, "active_leases")
    assert ending == {row["lease_id"] for row in live if row["seconds_remaining"] < 30}
    gone = value(dsn, "select count(*) from queen.partition_leases where lease_expires_at < now()")
    assert len([row for row in stuck if row["seconds_remaining"] <= 0]) == gone > 0


def test_a_message_id_in_sql_is_the_one_of_the_interfaces(dsn: str) -> None:
    """H12: at the edges of its fields too."""
    at = datetime.fromisoformat("2026-03-04T05:06:07.891011+00:00")
    for partition in (1, 2**36 - 1):
        for seq in (1, 2**20, 2**32 + 5, 2**44 - 1):
            said = value(
                dsn, "select queen.message_id(%s::int8, %s::int8, %s)::text", [partition, seq, at]
            )
            assert said == ids.message_id(partition, seq, round(at.timestamp() * 1_000_000))


def test_the_views_page_names_every_column(dsn: str) -> None:
    """PLD-10: and no column that is not there."""
    page = (DOCS / "reference/views.md").read_text()
    for view in VIEWS:
        section = page.split(f"## queen.{view}\n")[1].split("\n## ")[0]
        table = [line.split("|")[1] for line in section.splitlines() if line.startswith("| `")]
        named = [name.strip(" `") for cell in table for name in cell.split(",")]
        columns = value(
            dsn,
            "select array_agg(attname::text order by attnum) from pg_attribute"
            f" where attrelid = 'queen.{view}'::regclass and attnum > 0",
        )
        assert sorted(named) == sorted(columns)


def test_the_grants_on_the_views_page_are_enough(dsn: str, backend: PostgresBackend) -> None:
    """PLD-10: a role that may only read reads all five views."""
    page = (DOCS / "reference/views.md").read_text()
    role = fresh("watcher").replace("-", "_")
    grants = page.split("```sql\n")[1].split("```")[0].replace("watcher", role)
    backend.push([message(fresh())])
    try:
        execute(dsn, *(grant for grant in grants.split(";\n") if grant.strip()))
        with psycopg.connect(dsn, autocommit=True) as session:
            session.execute(f"set role {role}")
            for view in VIEWS:
                session.execute(f"select * from queen.{view}").fetchall()
            with pytest.raises(psycopg.errors.InsufficientPrivilege):
                session.execute("delete from queen.queues")
    finally:
        execute(dsn, f"drop owned by {role}", f"drop role {role}")


def _at(us: int | None) -> datetime | None:
    return None if us is None else i.to_datetime(us)
