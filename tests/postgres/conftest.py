"""A database of its own for each test here: they leave triggers and broken rows behind."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import ExitStack
from typing import Any

import pytest

from queen_sync.backends.postgres import PostgresBackend
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
