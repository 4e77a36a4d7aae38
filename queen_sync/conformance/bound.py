"""The shipped suite, bound to the target that pytest's command line names.

::

    pytest -p queen_sync.conformance.plugin --pyargs queen_sync.conformance.bound
        --queen-backend pkg.module:factory

``factory(clock)`` returns a `Backend`, a fresh one or a shared one: no case needs it empty.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterator
from typing import Any

import httpx
import pytest

from queen_sync.backends.base import Backend
from queen_sync.clock import Clock, ManualClock, SystemClock
from queen_sync.conformance.ahead import AHEAD, TIME_UNIT_SECONDS, Ahead
from queen_sync.conformance.base import NOT_OFFERED, Cases
from queen_sync.conformance.suite import (
    BackendConformance,
    ConcurrencyConformance,
    ServerConformance,
)
from queen_sync.conformance.target import TARGET, Target


class Bound(Cases):
    """Takes what differs between targets from the command line."""

    can_run_ahead = False
    """Whether the cases may be under way together."""

    @classmethod
    def column(cls, config: pytest.Config) -> str:
        return config.stash[TARGET].name if TARGET in config.stash else super().column(config)

    def known_failure(self, case: str, config: pytest.Config) -> str | None:
        return config.stash[TARGET].known_failures.get(case)

    @classmethod
    def run_ahead(cls, case: str, target: Target, ahead: Ahead) -> None:
        """Run one case without pytest, among others."""
        clock = SystemClock()
        with target.make(clock) as backend:
            bound = cls()
            bound.time_unit_seconds = TIME_UNIT_SECONDS
            bound.sleep = ahead.gate.sleep
            bound.bind(backend, clock)
            if not bound.missing(case):
                bound.telling(getattr(bound, case))()

    def runner(self, request: pytest.FixtureRequest) -> Callable[..., Any]:
        ahead = request.config.stash.get(AHEAD, None)
        if ahead is not None:
            if ahead.has_begun(request.node.nodeid):
                # Named as the case itself, or the story of its failure would begin here.
                return functools.wraps(request.node.obj)(
                    functools.partial(ahead.end, request.node.nodeid)
                )
            ahead.rest()
        return super().runner(request)

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
    can_run_ahead = True


class TestConcurrency(Bound, ConcurrencyConformance):
    @pytest.fixture
    def clock(self) -> Clock:
        return SystemClock()


class TestServer(Bound, ServerConformance):
    @pytest.fixture
    def address(self, queen_target: Target) -> str | None:
        return queen_target.address

    @pytest.fixture
    def http(self, queen_target: Target) -> Iterator[httpx.Client]:
        if queen_target.address is None:
            pytest.skip(f"{NOT_OFFERED}http")
        with httpx.Client(base_url=queen_target.address, trust_env=False) as client:
            yield client
