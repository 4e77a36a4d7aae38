"""The schema of the PostgreSQL backend, brought up to date on start.

Tables change by numbered files that are never edited once released; functions are replaced as a
whole. Everything happens in one transaction under an advisory lock, so that any number of
processes may start at once and one that dies half-way leaves nothing behind (O-33). A database
that is newer than this code is left as it is: functions whose signature changes get a new name
and the old one stays for a release, so an older server goes on serving.
"""

from __future__ import annotations

import hashlib
from importlib import resources

import psycopg

from queen_sync.errors import BackendError, BackendUnavailable

_ROOT = resources.files("queen_sync.backends") / "sql" / "postgres"
FUNCTIONS_RELEASE = 1
"""Raised by every release that changes a function: an older server does not put its own back."""
_LOCK = int.from_bytes(hashlib.sha256(b"queen-sync migrations").digest()[:8], "big", signed=True)


def _files(folder: str) -> list[tuple[str, str]]:
    """Return (name, text) of the SQL files of a folder, in order."""
    found = [f for f in (_ROOT / folder).iterdir() if f.name.endswith(".sql")]
    return [(f.name, f.read_text("utf-8")) for f in sorted(found, key=lambda f: f.name)]


def migrate(dsn: str) -> bool:
    """Bring the schema ``queen`` up to date; return whether anything had to be done."""
    try:
        # Nothing prepared: a pooler would hand the statement's session to somebody else.
        connection = psycopg.connect(dsn, prepare_threshold=None)
    except psycopg.OperationalError as error:
        raise BackendUnavailable("the database cannot be reached") from error
    # What another migration commits while this one waits must be seen, whatever the default is.
    connection.isolation_level = psycopg.IsolationLevel.READ_COMMITTED
    try:
        return _migrate(connection)
    except psycopg.OperationalError as error:
        raise BackendUnavailable("the database was lost or cannot be migrated now") from error
    except psycopg.Error as error:
        raise BackendError(f"the schema could not be brought up to date: {error}") from error


def _migrate(connection: psycopg.Connection) -> bool:
    steps = _files("migrations")
    functions = "\n".join(text for _, text in _files("functions"))
    version = len(steps)
    digest = hashlib.sha256(functions.encode()).hexdigest()
    with connection:
        # A migration waits for its turn however long the one before it takes.
        connection.execute("set local statement_timeout = 0")
        connection.execute("set local lock_timeout = 0")
        connection.execute("select pg_advisory_xact_lock(%s)", [_LOCK])
        present, release, present_digest = _present(connection)
        if present > version or release > FUNCTIONS_RELEASE:
            return False
        if (present, release, present_digest) == (version, FUNCTIONS_RELEASE, digest):
            return False
        for number, (name, text) in enumerate(steps, 1):
            if number > present:
                connection.execute(text)
                connection.execute("insert into queen.migrations values (%s, %s)", [number, name])
        connection.execute(functions)
        connection.execute(
            "update queen.functions set release = %s, digest = %s", [FUNCTIONS_RELEASE, digest]
        )
    return True


def _present(connection: psycopg.Connection) -> tuple[int, int, str]:
    """Return what the database has: migrations, release and digest of its functions."""
    row = connection.execute("select to_regclass('queen.migrations')").fetchone()
    assert row is not None
    if row[0] is None:
        connection.execute("create schema if not exists queen")
        connection.execute(
            "create table queen.migrations (version integer primary key, name text not null,"
            " applied_at timestamptz not null default clock_timestamp())"
        )
        connection.execute(
            "create table queen.functions (release integer not null, digest text not null)"
        )
        connection.execute("insert into queen.functions values (0, '')")
    row = connection.execute(
        "select (select coalesce(max(version), 0) from queen.migrations), release, digest"
        " from queen.functions"
    ).fetchone()
    assert row is not None
    return row[0], row[1], row[2]
