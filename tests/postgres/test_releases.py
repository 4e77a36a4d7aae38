"""The schema under releases that come and go (O-33)."""

from __future__ import annotations

import psycopg
import pytest

from queen_sync import model as m
from queen_sync.backends import postgres_migrations
from queen_sync.backends.postgres import PostgresBackend, migrate
from queen_sync.errors import BackendError, BackendUnavailable
from tests.postgres.sessions import drain, execute, fresh, message, value

MARK = "comment on function queen.require_read_committed() is 'of another release'"
MARKED = "select obj_description('queen.require_read_committed()'::regprocedure)"
TAMPER = (
    "create or replace function queen.one(p_seq bigint) returns int8multirange language sql as"
    " $$ select '{}'::int8multirange $$"
)
ONE = "select queen.one(7) = '{[7,8)}'"
STAMPS = (
    "select array_agg(xmin::text order by oid) from pg_proc"
    " where pronamespace = 'queen'::regnamespace"
)


def test_a_second_run_changes_nothing(empty_database_dsn: str) -> None:
    """O-33: what every start of every process does, on a database that is up to date."""
    assert migrate(empty_database_dsn) is True
    before = value(empty_database_dsn, STAMPS)
    assert migrate(empty_database_dsn) is False
    assert value(empty_database_dsn, STAMPS) == before


def test_functions_that_differ_from_this_release_are_replaced(empty_database_dsn: str) -> None:
    """O-33: their digest says so; the tables stay."""
    dsn = empty_database_dsn
    migrate(dsn)
    with PostgresBackend(dsn) as backend:
        queue = fresh()
        backend.push([message(queue, "kept")])
        execute(dsn, TAMPER, "update queen.functions set digest = 'of another text'")
        assert value(dsn, ONE) is False
        assert migrate(dsn) is True
        assert value(dsn, ONE) is True
        assert [x.transaction_id for x in drain(backend, queue, "g")] == ["kept"]


@pytest.mark.parametrize(
    "newer",
    [
        "update queen.functions set release = release + 1, digest = 'newer'",
        "insert into queen.migrations (version, name) values (9999, 'of a later release')",
    ],
)
def test_an_older_release_leaves_a_newer_database_alone_and_serves(
    empty_database_dsn: str, newer: str
) -> None:
    """O-33: old and new processes run side by side while a release is rolled out."""
    dsn = empty_database_dsn
    migrate(dsn)
    execute(dsn, MARK, newer)
    before = value(dsn, STAMPS)
    with PostgresBackend(dsn) as older:
        assert value(dsn, STAMPS) == before
        assert value(dsn, MARKED) == "of another release"
        queue = fresh()
        older.push([message(queue, "m")])
        assert older.pop(m.PopRequest(queue=queue))


def test_a_newer_release_replaces_the_functions_of_an_older_one(
    empty_database_dsn: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """O-33: the same text under a new release number is noted, so that the older stays away."""
    dsn = empty_database_dsn
    migrate(dsn)
    release = postgres_migrations.FUNCTIONS_RELEASE
    monkeypatch.setattr(postgres_migrations, "FUNCTIONS_RELEASE", release + 1)
    assert migrate(dsn) is True
    assert value(dsn, "select release from queen.functions") == release + 1
    monkeypatch.setattr(postgres_migrations, "FUNCTIONS_RELEASE", release)
    assert migrate(dsn) is False
    assert value(dsn, "select release from queen.functions") == release + 1


def test_a_migration_that_fails_leaves_nothing_behind(empty_database_dsn: str) -> None:
    """O-33: it is one transaction, and the driver's error does not escape."""
    dsn = empty_database_dsn
    execute(dsn, "create schema queen", "create table queen.messages (mine text)")
    with pytest.raises(BackendError) as failed:
        migrate(dsn)
    assert isinstance(failed.value.__cause__, psycopg.Error)
    assert value(dsn, "select count(*) from pg_tables where schemaname = 'queen'") == 1


def test_a_database_that_is_not_there_is_unavailable(empty_database_dsn: str) -> None:
    """O-27: the error says that nothing happened and that trying again may help."""
    with pytest.raises(BackendUnavailable):
        migrate(f"{empty_database_dsn}&dbname={fresh('none')}")
