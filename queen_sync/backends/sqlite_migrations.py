"""The schema of the SQLite backend, brought up to date on start.

Tables change by numbered files that are never edited once released. Everything happens in one
transaction that begins with the write lock, so that any number of processes may start at once
and one that dies half-way leaves nothing behind (O-33). Which files were applied is kept by
sqlite-utils in the file itself.
"""

from __future__ import annotations

import random
import sqlite3
import time
from pathlib import Path

from sqlite_utils import Database
from sqlite_utils.migrations import Migrations

from queen_sync.backends.sqlite_statements import folder, named
from queen_sync.errors import BackendUnavailable

APPLICATION_ID = int.from_bytes(b"quee", "big")
"""What the file says it is, in its header."""
PAGE_BYTES = 8192
"""Of 130-byte messages, a push at batch 100 is about 5 % faster than with pages of 4,096."""
PATIENCE_SECONDS = 60
OLDEST = (3, 35)
"""The first version with ``returning``."""

_migrations = Migrations("queen-sync")


def _add(name: str, text: str) -> None:
    @_migrations(name=name)
    def apply(db: Database) -> None:
        for statement in named(text).values():
            db.execute(statement)


for _name, _text in folder("migrations").items():
    _add(_name, _text)


def migrate(path: str | Path) -> bool:
    """Bring the file up to date, made where it is missing; return whether anything was to do.

    Raises BackendUnavailable where the file cannot be opened, is another program's, or was made
    by a newer version than this one.
    """
    if sqlite3.sqlite_version_info < OLDEST:
        raise BackendUnavailable(f"SQLite 3.35 or later is needed, not {sqlite3.sqlite_version}")
    try:
        connection = sqlite3.connect(path, timeout=PATIENCE_SECONDS, isolation_level=None)
    except sqlite3.Error as error:
        raise BackendUnavailable(f"{path} cannot be opened: {error}") from error
    try:
        return _migrate(connection, path)
    except sqlite3.Error as error:
        raise BackendUnavailable(f"{path} cannot be used: {error}") from error
    finally:
        connection.close()


def _migrate(connection: sqlite3.Connection, path: str | Path) -> bool:
    # Both are fixed when the file gets its first page; unused pages can be given back.
    connection.execute(f"pragma page_size = {PAGE_BYTES}")
    connection.execute("pragma auto_vacuum = incremental")
    connection.execute("pragma synchronous = full")
    db = Database(connection, recursive_triggers=False, execute_plugins=False)
    connection.execute("begin immediate")
    try:
        _check_owner(db, path)
        pending = _migrations.pending(db)
        if pending:
            _migrations.apply(db)
            connection.execute(f"pragma application_id = {APPLICATION_ID}")
        connection.execute("commit")
    finally:
        if connection.in_transaction:
            connection.execute("rollback")
    _use_wal(connection, path)
    return bool(pending)


def _check_owner(db: Database, path: str | Path) -> None:
    """Refuse a file of another program, and one of a newer version of this one."""
    ((application,),) = db.execute("pragma application_id").fetchall()
    if application != APPLICATION_ID and (application or db.table_names()):
        raise BackendUnavailable(f"{path} holds something else than queues")
    known = {migration.name for migration in _migrations.pending(db)}
    newer = [done.name for done in _migrations.applied(db) if done.name not in _names()]
    if newer:
        raise BackendUnavailable(f"{path} was made by a newer queen-sync: it has {newer[-1]}")
    assert known <= _names()


def _names() -> set[str]:
    return set(folder("migrations"))


def _use_wal(connection: sqlite3.Connection, path: str | Path) -> None:
    """Turn on the write-ahead log, which stays on.

    The change wants the file for itself and does not wait for it, so it is tried again.
    """
    deadline = time.monotonic() + PATIENCE_SECONDS
    while True:
        try:
            ((mode,),) = connection.execute("pragma journal_mode = wal").fetchall()
            break
        except sqlite3.OperationalError as error:
            busy = error.sqlite_errorcode & 0xFF == sqlite3.SQLITE_BUSY
            if not busy or time.monotonic() >= deadline:
                raise
            time.sleep(random.uniform(0.001, 0.02))  # noqa: S311 - spreads rivals, keeps no secret
    if mode != "wal":
        raise BackendUnavailable(f"{path} lies where SQLite cannot keep a write-ahead log")
