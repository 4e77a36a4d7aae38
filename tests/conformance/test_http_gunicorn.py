"""A real server process on PostgreSQL against the contract, in real time."""

from collections.abc import Iterator

import httpx
import pytest

from queen_sync.client import RemoteBackend
from queen_sync.clock import Clock, SystemClock
from queen_sync.conformance import (
    BackendConformance,
    ConcurrencyConformance,
    ServerConformance,
)
from queen_sync.conformance.cases.core import CoreCases
from queen_sync.conformance.cases.dedup import DedupCases
from queen_sync.conformance.cases.leases import LeaseCases
from queen_sync.conformance.cases.payloads import PayloadCases
from tests.serving import serve


@pytest.fixture(scope="module")
def address(served_dsn: str) -> Iterator[str]:
    with serve("--backend", served_dsn, "--workers", "2") as url:
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


class TestGunicorn(Gunicorn, CoreCases, PayloadCases, DedupCases, LeaseCases, ServerConformance):
    """What does not wait; the rest of the suite meets the server's code in test_http_in_process."""


@pytest.mark.slow
class TestGunicornInRealTime(Gunicorn, BackendConformance, ServerConformance):
    """Everything, in the time that it takes."""

    target_name = "http gunicorn, all"


class TestGunicornUnderLoad(Gunicorn, ConcurrencyConformance):
    pass
