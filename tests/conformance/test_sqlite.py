"""The SQLite backend against the contract."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from queen_sync.backends.sqlite import SqliteBackend
from queen_sync.clock import Clock
from queen_sync.conformance import BackendConformance, ConcurrencyConformance


class Sqlite:
    target_name = "sqlite"

    @pytest.fixture
    def backend(self, clock: Clock, tmp_path: Path) -> Iterator[SqliteBackend]:
        with SqliteBackend(tmp_path / "queues.db", clock=clock) as backend:
            yield backend


class TestSqlite(Sqlite, BackendConformance):
    pass


class TestSqliteUnderLoad(Sqlite, ConcurrencyConformance):
    pass
