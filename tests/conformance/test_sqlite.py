"""The SQLite backend against the contract."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from queen_sync.backends.sqlite import SqliteBackend
from queen_sync.clock import Clock
from queen_sync.conformance import BackendConformance, ConcurrencyConformance
from queen_sync.conformance.cases.encryption import KEYS
from queen_sync.encryption import KeyRing


class Sqlite:
    target_name = "sqlite"

    @pytest.fixture
    def backend(self, clock: Clock, tmp_path: Path) -> Iterator[SqliteBackend]:
        self.path, self.its_clock = tmp_path / "queues.db", clock
        with SqliteBackend(self.path, clock=clock, keys=KEYS) as backend:
            yield backend

    def beside(self, keys: str) -> SqliteBackend:
        ring = KeyRing.parse("", keys)
        return SqliteBackend(self.path, clock=self.its_clock, keys=ring)


class TestSqlite(Sqlite, BackendConformance):
    pass


class TestSqliteUnderLoad(Sqlite, ConcurrencyConformance):
    pass
