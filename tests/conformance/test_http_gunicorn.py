"""A real server process on PostgreSQL against the contract, in real time."""

from collections.abc import Callable, Iterator

import httpx
import pytest

from queen_sync.client import RemoteBackend
from queen_sync.clock import Clock, SystemClock
from queen_sync.conformance import (
    BackendConformance,
    ConcurrencyConformance,
    ServerConformance,
)
from tests.serving import serve


@pytest.fixture(scope="module")
def address(postgres_dsn: str) -> Iterator[str]:
    with serve("--backend", postgres_dsn, "--workers", "2") as url:
        yield url


class Gunicorn:
    target_name = "http gunicorn"

    @pytest.fixture
    def clock(self) -> Clock:
        return SystemClock()

    @pytest.fixture
    def backend(self, address: str) -> Iterator[RemoteBackend]:
        with RemoteBackend(address) as backend:
            yield backend

    @pytest.fixture
    def http(self, address: str) -> Iterator[httpx.Client]:
        with httpx.Client(base_url=address, trust_env=False) as client:
            yield client

    @pytest.fixture
    def waiting_pop(self, backend: RemoteBackend) -> Callable:
        return backend.pop_waiting


class TestGunicorn(Gunicorn, BackendConformance, ServerConformance):
    pass


class TestGunicornUnderLoad(Gunicorn, ConcurrencyConformance):
    pass
