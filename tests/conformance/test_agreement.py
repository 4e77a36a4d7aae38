"""Two backends, one random program: every answer must be the same."""

import itertools

import hypothesis
import msgspec
import pytest
from hypothesis.stateful import run_state_machine_as_test

from queen_sync.backends.memory import MemoryBackend
from queen_sync.backends.postgres import PostgresBackend
from queen_sync.backends.sqlite import SqliteBackend
from queen_sync.conformance.machine import agreement_with

# What the machine finds it prints as a program, so nothing has to be kept between runs.
SETTINGS = hypothesis.settings(
    max_examples=25,
    stateful_step_count=30,
    deadline=None,
    database=None,
    derandomize=True,
    suppress_health_check=list(hypothesis.HealthCheck),
)
# Shrinking a program on a database takes longer than a test may: it is shown as it was found.
WHOLE = hypothesis.settings(SETTINGS, phases=[hypothesis.Phase.generate])
# The same programs each time: whether a difference is found must not be a matter of luck.
SAME = hypothesis.settings(WHOLE, max_examples=500)


class Borrowed:
    """A clock that shows the time of whichever program runs."""

    def now_us(self):
        return self.clock.now_us()

    def of(self, backend):
        """Return what makes a program's subject: the one backend, on the program's clock."""

        def make(clock):
            self.clock = clock
            return backend

        return make


def run(make_subject, settings=SETTINGS):
    run_state_machine_as_test(agreement_with(MemoryBackend, make_subject), settings=settings)


def test_the_oracle_agrees_with_itself():
    run(MemoryBackend)


def test_sqlite_agrees_with_the_oracle(tmp_path):
    """Each program has a file of its own."""
    numbers = itertools.count()
    run(lambda clock: SqliteBackend(tmp_path / f"{next(numbers)}.db", clock=clock))


def test_postgres_agrees_with_the_oracle(postgres_dsn):
    """All programs share one backend: its pool is dearer than a program."""
    time = Borrowed()
    with PostgresBackend(postgres_dsn, clock=time, migrate=False) as backend:
        run(time.of(backend), WHOLE)


class SeeksOneTooFar(MemoryBackend):
    def seek(self, target):
        if target.from_us is not None:
            target = msgspec.structs.replace(target, from_us=target.from_us + 1)
        return super().seek(target)


class RedrivesNothing(MemoryBackend):
    def redrive(self, wanted):
        return super().purge(wanted)


class ForgetsAttempts(MemoryBackend):
    def pop(self, request):
        return super().pop(msgspec.structs.replace(request, attempt_id=None))


class NeverEvicts(MemoryBackend):
    def configure(self, queue, options=None, **names):
        ages = {"ttl_seconds", "max_wait_seconds"}
        kept = {name: value for name, value in (options or {}).items() if name not in ages}
        return super().configure(queue, kept, **names)


class IgnoresPriority(MemoryBackend):
    def configure(self, queue, options=None, **names):
        kept = {name: value for name, value in (options or {}).items() if name != "priority"}
        return super().configure(queue, kept, **names)


class SpreadsNothing(MemoryBackend):
    def configure(self, queue, options=None, **names):
        return super().configure(queue, {**(options or {}), "spread_partitions": 0}, **names)


@pytest.mark.parametrize(
    "broken",
    [
        SeeksOneTooFar,
        RedrivesNothing,
        ForgetsAttempts,
        NeverEvicts,
        IgnoresPriority,
        SpreadsNothing,
    ],
)
def test_a_backend_that_differs_is_found_out(broken):
    with pytest.raises(AssertionError, match="the oracle says"):
        run(broken, SAME)
