"""A real server process on PostgreSQL against the contract, in real time."""

import json
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import httpx
import pytest

from queen_sync.client import RemoteBackend
from queen_sync.clock import Clock, SystemClock
from queen_sync.conformance import ConcurrencyConformance, ServerConformance
from queen_sync.conformance.cases.core import CoreCases
from queen_sync.conformance.cases.dedup import DedupCases
from queen_sync.conformance.cases.encryption import OLD, EncryptionCases
from queen_sync.conformance.cases.leases import LeaseCases
from queen_sync.conformance.cases.payloads import PayloadCases
from tests.serving import serve

COMMAND = (sys.executable, "-m", "queen_sync.cli", "conformance")


@pytest.fixture(scope="module")
def url(served_dsn: str) -> Iterator[str]:
    keys = {"QUEEN_ENCRYPTION_KEYS": OLD}
    with serve("--backend", served_dsn, "--workers", "2", environment=keys) as url:
        yield url


class Gunicorn:
    target_name = "http gunicorn"

    @pytest.fixture
    def address(self, url: str) -> str:
        return url

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


class TestGunicorn(
    Gunicorn,
    CoreCases,
    PayloadCases,
    DedupCases,
    LeaseCases,
    EncryptionCases,
    ServerConformance,
):
    """What does not wait; the rest of the suite meets the server's code in test_http_in_process."""


@pytest.mark.slow
@pytest.mark.timeout(900)
def test_the_command_finds_every_promise_kept(url: str, tmp_path: Path) -> None:
    """Everything, in real time, as somebody runs it who has only the address."""
    report = tmp_path / "report.json"
    levels = ("--level", "full", "--level", "wire")
    done = subprocess.run(
        [*COMMAND, url, *levels, "--report", report],
        check=False,
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    (counts,) = json.loads(report.read_text())["targets"].values()
    assert set(counts) == {"pass", "not offered"}
    assert counts["pass"] > 200
    print(done.stdout.splitlines()[-1])


class TestGunicornUnderLoad(Gunicorn, ConcurrencyConformance):
    pass
