"""The SQLite backend against the oracle: one random program, and every answer must be the same."""

import hypothesis
import pytest
from hypothesis.stateful import run_state_machine_as_test

from queen_sync.backends.memory import MemoryBackend
from queen_sync.backends.sqlite import SqliteBackend
from queen_sync.backends.sqlite_lanes import Lane
from queen_sync.clock import SystemClock
from queen_sync.conformance.machine import agreement_with

SETTINGS = hypothesis.settings(
    max_examples=60,
    stateful_step_count=40,
    deadline=None,
    database=None,
    # A program that was found is shrunk, but not explained: that takes minutes.
    phases=[hypothesis.Phase.generate, hypothesis.Phase.shrink],
    suppress_health_check=list(hypothesis.HealthCheck),
)
# The same programs each time: whether a difference is found must not be a matter of luck.
UNSHRUNK = hypothesis.settings(
    SETTINGS, max_examples=500, phases=[hypothesis.Phase.generate], derandomize=True
)


class Deciding:
    """A clock that is another in every program: one file serves them all."""

    def __init__(self):
        self.clock = SystemClock()

    def now_us(self):
        return self.clock.now_us()


def agree(path, settings):
    deciding = Deciding()
    # Nothing here is to survive a power failure.
    with SqliteBackend(path, clock=deciding, synchronous="normal") as backend:

        def make_subject(clock):
            deciding.clock = clock
            return backend

        machine = agreement_with(MemoryBackend, make_subject)
        run_state_machine_as_test(machine, settings=settings)


def test_sqlite_agrees_with_the_oracle(path):
    agree(path, SETTINGS)


@pytest.mark.slow
@pytest.mark.timeout(600)
def test_sqlite_agrees_with_the_oracle_at_length(path):
    agree(path, hypothesis.settings(SETTINGS, max_examples=1_000))


def charges_neighbours(monkeypatch):
    """Expire every lease as if its message had been alone in the claim."""
    expire = Lane.expire

    def wrong(self):
        self.alone = 1
        expire(self)

    monkeypatch.setattr(Lane, "expire", wrong)


def forgets_the_last_lease(monkeypatch):
    """Wait since the message came due, however lately the lane was served."""
    ready = Lane.ready

    def wrong(self):
        self.ended_us = 0
        return ready(self)

    monkeypatch.setattr(Lane, "ready", wrong)


def keeps_redriven_behind(monkeypatch):
    """Give what is stored before what was redriven."""
    monkeypatch.setattr(Lane, "batch", Lane._stored_batch)


def evicts_under_a_lease(monkeypatch):
    """Evict what somebody is working on."""
    evict = Lane.evict

    def wrong(self):
        hold, self.hold = self.hold, None
        try:
            return evict(self)
        finally:
            self.hold = hold

    monkeypatch.setattr(Lane, "evict", wrong)


@pytest.mark.parametrize(
    "broken",
    [
        charges_neighbours,
        forgets_the_last_lease,
        keeps_redriven_behind,
        pytest.param(evicts_under_a_lease, marks=pytest.mark.slow),  # needs many programs
    ],
)
def test_a_wrong_engine_is_found_out(path, monkeypatch, broken):
    broken(monkeypatch)
    with pytest.raises(AssertionError):
        agree(path, UNSHRUNK)
