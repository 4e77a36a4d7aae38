"""What all tests share: a PostgreSQL for the run, and databases on it.

The PostgreSQL is started when the first test asks for one; under xdist the controller starts
it and tells the workers. It ends with the process that started it, also when that is killed.
``QUEEN_TEST_DSN`` names another one, on which the tests may make and drop databases.
"""

from __future__ import annotations

import fcntl
import os
import shutil
import tempfile
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest

from queen_sync.embedded import Cluster
from tests.databases import TestServer

PREFIX = "queen-pg-"
SETTINGS = {"max_connections": "200", "autovacuum_naptime": "5s"}


class TestPostgres:
    """The PostgreSQL of this run, started on first use."""

    __test__ = False

    def __init__(self) -> None:
        self._server: TestServer | None = None
        self._cluster: Cluster | None = None

    def server(self) -> TestServer:
        if self._server is None:
            dsn = os.environ.get("QUEEN_TEST_DSN") or self._start()
            self._server = TestServer(dsn)
            self._server.prepare()
        return self._server

    def _start(self) -> str:
        _remove_leftovers()
        path = Path(tempfile.mkdtemp(prefix=PREFIX))
        path.rmdir()  # made again by the cluster, for the user that it runs as
        self._cluster = Cluster(path, settings=SETTINGS)
        self._cluster.start()
        return self._cluster.dsn()

    def stop(self) -> None:
        if self._cluster is not None:
            self._cluster.stop()
            shutil.rmtree(self._cluster.path)
        elif self._server is not None:
            self._server.clean()
        self._server = self._cluster = None


def _remove_leftovers() -> None:
    """Remove what runs left that were killed: directories that no process holds."""
    for path in Path(tempfile.gettempdir()).glob(f"{PREFIX}*"):
        with suppress(OSError):
            lock = os.open(path / "lock", os.O_RDWR)
            try:
                fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
                shutil.rmtree(path)
            finally:
                os.close(lock)


POSTGRES = pytest.StashKey[TestPostgres]()


def pytest_configure(config: pytest.Config) -> None:
    config.stash[POSTGRES] = TestPostgres()


def pytest_unconfigure(config: pytest.Config) -> None:
    config.stash[POSTGRES].stop()


@pytest.hookimpl(optionalhook=True)
def pytest_configure_node(node: Any) -> None:
    server = node.config.stash[POSTGRES].server()
    node.workerinput["queen_dsn"] = server.dsn
    node.workerinput["queen_run"] = server.run


@pytest.fixture(scope="session")
def postgres_server(pytestconfig: pytest.Config) -> TestServer:
    given = getattr(pytestconfig, "workerinput", None)
    if given is not None:
        return TestServer(given["queen_dsn"], given["queen_run"])
    return pytestconfig.stash[POSTGRES].server()


@pytest.fixture(scope="session")
def postgres_dsn(postgres_server: TestServer) -> Iterator[str]:
    """A migrated database of this test process."""
    with postgres_server.database(migrated=True) as dsn:
        yield dsn


@pytest.fixture(scope="session")
def served_dsn(postgres_server: TestServer) -> Iterator[str]:
    """A migrated database for servers, which sweep by the real time while tests move clocks."""
    with postgres_server.database(migrated=True) as dsn:
        yield dsn


@pytest.fixture
def empty_database_dsn(postgres_server: TestServer) -> Iterator[str]:
    """A fresh database without anything in it, dropped after the test."""
    with postgres_server.database(migrated=False) as dsn:
        yield dsn
