"""A database of its own for each test here: they leave triggers and broken rows behind."""

from __future__ import annotations

import shutil
import tempfile
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest

from queen_sync.backends.postgres import PostgresBackend
from queen_sync.embedded import Cluster
from tests.databases import TestServer

MakeBackend = Callable[..., PostgresBackend]


@pytest.fixture
def dsn(postgres_server: TestServer) -> Iterator[str]:
    with postgres_server.database(migrated=True) as address:
        yield address


@pytest.fixture
def make_backend(dsn: str) -> Iterator[MakeBackend]:
    """Return a maker of backends, which are closed after the test."""
    with ExitStack() as stack:

        def make(address: str = dsn, **options: Any) -> PostgresBackend:
            return stack.enter_context(PostgresBackend(address, migrate=False, **options))

        yield make


@pytest.fixture
def backend(make_backend: MakeBackend) -> PostgresBackend:
    return make_backend()


@pytest.fixture(scope="session")
def counting_server() -> Iterator[TestServer]:
    """A PostgreSQL of its own that counts what each statement touched (pg_stat_statements)."""
    path = Path(tempfile.mkdtemp(prefix="queen-pg-"))
    path.rmdir()  # made again by the cluster, for the user that it runs as
    settings = {
        "shared_preload_libraries": "pg_stat_statements",
        "max_connections": "200",
        "fsync": "off",
        "autovacuum": "off",  # it would touch pages in between
    }
    try:
        with Cluster(path, settings=settings) as cluster:
            server = TestServer(cluster.dsn())
            server.prepare()
            yield server
    finally:
        shutil.rmtree(path, ignore_errors=True)
