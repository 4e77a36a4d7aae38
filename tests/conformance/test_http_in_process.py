"""The client and the server's application, without a socket, against the contract."""

import copy
from collections.abc import Iterator
from contextlib import contextmanager

import httpx
import pytest

from queen_sync.backends.base import Backend
from queen_sync.backends.memory import MemoryBackend
from queen_sync.backends.postgres import PostgresBackend
from queen_sync.broker import Broker
from queen_sync.client import ApplicationTransport, RemoteBackend
from queen_sync.clock import Clock, SystemClock
from queen_sync.config import Settings
from queen_sync.conformance import (
    BackendConformance,
    ConcurrencyConformance,
    ServerConformance,
)
from queen_sync.conformance.cases.encryption import KEYS
from queen_sync.encryption import KeyRing
from queen_sync.web import create_app

BASE_URL = "http://queen.test"


class InProcess:
    takes_clock = True

    @pytest.fixture
    def transport(self, store: Backend) -> Iterator[httpx.BaseTransport]:
        settings = Settings(max_concurrent_polls=200)
        broker = Broker(store, settings)
        yield ApplicationTransport(create_app(broker, settings))
        broker.close()

    @contextmanager
    def beside(self, keys: str) -> Iterator[RemoteBackend]:
        settings = Settings()
        broker = Broker(self.store_with(KeyRing.parse("", keys)), settings)
        transport = ApplicationTransport(create_app(broker, settings))
        with RemoteBackend(BASE_URL, transport=transport) as backend:
            yield backend
        broker.close()

    @pytest.fixture
    def backend(self, transport: httpx.BaseTransport) -> Iterator[RemoteBackend]:
        with RemoteBackend(BASE_URL, transport=transport) as backend:
            yield backend

    @pytest.fixture
    def http(self, transport: httpx.BaseTransport) -> Iterator[httpx.Client]:
        with httpx.Client(base_url=BASE_URL, transport=transport) as client:
            yield client


class OverMemory(InProcess):
    target_name = "http memory"

    @pytest.fixture
    def store(self, clock: Clock) -> Backend:
        self.first = MemoryBackend(clock=clock, keys=KEYS)
        return self.first

    def store_with(self, keys: KeyRing | None) -> Backend:
        backend = MemoryBackend(clock=self.first._clock, keys=keys)
        backend._store = copy.copy(self.first._store)
        backend._store.keys = keys
        return backend


class OverPostgres(InProcess):
    target_name = "http postgres"

    @pytest.fixture
    def store(self, clock: Clock, postgres_dsn: str) -> Backend:
        given = None if isinstance(clock, SystemClock) else clock
        self.dsn, self.given = postgres_dsn, given
        return PostgresBackend(
            postgres_dsn, clock=given, keys=KEYS, repair_interval_seconds=0, migrate=False
        )

    def store_with(self, keys: KeyRing | None) -> Backend:
        return PostgresBackend(self.dsn, clock=self.given, keys=keys, migrate=False)


class TestHttpOverMemory(OverMemory, BackendConformance, ServerConformance):
    pass


class TestHttpOverMemoryUnderLoad(OverMemory, ConcurrencyConformance):
    pass


class TestHttpOverPostgres(OverPostgres, BackendConformance, ServerConformance):
    pass
