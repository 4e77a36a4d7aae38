"""The shipped suite, bound to the target that pytest's command line names.

::

    pytest -p queen_sync.conformance.plugin --pyargs queen_sync.conformance.bound
        --queen-backend pkg.module:factory

``factory(clock)`` returns a `Backend`, a fresh one or a shared one: no case needs it empty.
"""

from __future__ import annotations

from collections.abc import Iterator

import httpx
import pytest

from queen_sync.backends.base import Backend
from queen_sync.clock import Clock, ManualClock, SystemClock
from queen_sync.conformance.base import NOT_OFFERED, Cases
from queen_sync.conformance.suite import (
    BackendConformance,
    ConcurrencyConformance,
    ServerConformance,
)
from queen_sync.conformance.target import TARGET, Target


class Bound(Cases):
    """Takes what differs between targets from the command line."""

    @classmethod
    def column(cls, config: pytest.Config) -> str:
        return config.stash[TARGET].name if TARGET in config.stash else super().column(config)

    def known_failure(self, case: str, config: pytest.Config) -> str | None:
        return config.stash[TARGET].known_failures.get(case)

    @pytest.fixture
    def queen_target(self, pytestconfig: pytest.Config) -> Target:
        if TARGET not in pytestconfig.stash:
            raise pytest.UsageError("name a target: --queen-backend pkg.module:factory")
        return pytestconfig.stash[TARGET]

    @pytest.fixture
    def clock(self, queen_target: Target) -> Clock:
        return ManualClock() if queen_target.address is None else SystemClock()

    @pytest.fixture
    def backend(self, queen_target: Target, clock: Clock) -> Iterator[Backend]:
        with queen_target.make(clock) as backend:
            yield backend


class TestBackend(Bound, BackendConformance):
    pass


class TestConcurrency(Bound, ConcurrencyConformance):
    @pytest.fixture
    def clock(self) -> Clock:
        return SystemClock()


class TestServer(Bound, ServerConformance):
    @pytest.fixture
    def http(self, queen_target: Target) -> Iterator[httpx.Client]:
        if queen_target.address is None:
            pytest.skip(f"{NOT_OFFERED}http")
        with httpx.Client(base_url=queen_target.address, trust_env=False) as client:
            yield client
