"""Databases for tests: each test process gets its own, on one PostgreSQL for the whole run."""

from __future__ import annotations

import secrets
import shutil
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from urllib.parse import urlsplit, urlunsplit

import psycopg
import pytest
from psycopg import sql

from queen_sync.backends.postgres import migrate
from queen_sync.binaries import find_binaries
from queen_sync.embedded import Cluster
from queen_sync.errors import BackendUnavailable


class TestServer:
    """A PostgreSQL that tests may make databases on; what they made is dropped at the end."""

    __test__ = False

    def __init__(self, dsn: str, run: str | None = None) -> None:
        self.dsn = dsn
        self.run = run or f"queen_test_{secrets.token_hex(4)}"

    @property
    def template(self) -> str:
        return f"{self.run}_template"

    def prepare(self) -> None:
        """Make the migrated database that the others are copied from."""
        self._execute("create database {}", self.template)
        migrate(self.address(self.template))

    def address(self, database: str) -> str:
        """Return the DSN of another database of this server."""
        return urlunsplit(urlsplit(self.dsn)._replace(path=f"/{database}"))

    @contextmanager
    def database(self, *, migrated: bool) -> Iterator[str]:
        """Make a database of its own and yield its DSN."""
        name = f"{self.run}_{secrets.token_hex(4)}"
        if migrated:
            self._execute("create database {} template {}", name, self.template)
        else:
            self._execute("create database {}", name)
        try:
            yield self.address(name)
        finally:
            self._execute("drop database if exists {} with (force)", name)

    def clean(self) -> None:
        """Drop the template."""
        self._execute("drop database if exists {} with (force)", self.template)

    def _execute(self, statement: str, *names: str) -> None:
        with psycopg.connect(self.dsn, autocommit=True) as connection:
            connection.execute(sql.SQL(statement).format(*map(sql.Identifier, names)))


@contextmanager
def postgres_of(major: int) -> Iterator[str]:
    """Start a PostgreSQL of that version with a migrated database; skip where it is not found."""
    try:
        binaries = find_binaries(major=major)
    except BackendUnavailable as error:
        pytest.skip(str(error))
    path = Path(tempfile.mkdtemp(prefix="queen-pg-"))
    path.rmdir()  # made again by the cluster, for the user that it runs as
    try:
        with Cluster(path, binaries=binaries, settings={"fsync": "off"}) as cluster:
            migrate(cluster.dsn())
            yield cluster.dsn()
    finally:
        shutil.rmtree(path, ignore_errors=True)
