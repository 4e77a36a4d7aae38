"""The functions decide in READ COMMITTED only, and the backend brings it along."""

from __future__ import annotations

import psycopg
import pytest

from queen_sync import model as m
from queen_sync.backends.postgres import migrate
from queen_sync.backends.postgres_migrations import _LOCK
from tests.postgres.conftest import MakeBackend
from tests.postgres.sessions import (
    Call,
    acks,
    connect,
    execute,
    fresh,
    message,
    until_blocked,
    value,
)

STRICT = """
do $$ begin execute format(
    'alter database %I set default_transaction_isolation to serializable', current_database()
); end $$
"""
FUNCTIONS = (
    "push", "pop", "ack", "extend", "release", "begin_group", "register_partitions",
    "delete_group", "delete_queue", "seek", "redrive", "expire_lease", "retain", "repair",
)  # fmt: skip
NULLS = (
    "select string_agg('null::' || format_type(t.type, null), ', ' order by t.place)"
    " from pg_proc f, unnest(f.proargtypes) with ordinality t(type, place)"
    " where f.pronamespace = 'queen'::regnamespace and f.proname = %s"
)


@pytest.mark.parametrize("level", ["repeatable read", "serializable"])
def test_a_stricter_isolation_level_is_refused(dsn: str, level: str) -> None:
    """C-07: under one snapshot a new partition would miss a group that was just registered."""
    with connect(dsn) as session:
        for name in FUNCTIONS:
            arguments = value(dsn, NULLS, [name])
            session.execute(f"begin isolation level {level}")
            with pytest.raises(psycopg.Error) as refused:
                session.execute(f"select queen.{name}({arguments})")
            session.execute("rollback")
            assert refused.value.sqlstate == "25001", name


def test_a_database_whose_default_is_stricter_serves_all_the_same(
    dsn: str, make_backend: MakeBackend
) -> None:
    """O-29: the level is said with each connection and each transaction."""
    execute(dsn, STRICT)
    backend = make_backend()
    queues = [fresh(), fresh()]
    backend.push([message(queue, "m") for queue in queues])
    claim = backend.pop(m.PopRequest(queue=queues[0]))
    operations = [*acks(claim), message(queues[1], "n")]
    assert not backend.transact(m.Transaction(operations=operations)).repeated
    assert backend.sweep().repaired == 0


def test_migrations_that_race_under_a_stricter_default_see_each_other(
    empty_database_dsn: str,
) -> None:
    """O-33: the one that waited for its turn must not judge by what it saw before."""
    execute(empty_database_dsn, STRICT)
    with connect(empty_database_dsn) as other, other.transaction():
        other.execute("select pg_advisory_xact_lock(%s)", [_LOCK])
        racers = [Call(lambda: migrate(empty_database_dsn)) for _ in range(3)]
        until_blocked(empty_database_dsn, 3)
    assert sorted(racer.result() for racer in racers) == [False, False, True]
