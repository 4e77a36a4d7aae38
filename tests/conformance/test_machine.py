"""The memory backend and every other one, given the same random programs, answer alike.

The programs of the ordinary run are few and always the same; those marked slow are many, and
others each time.
"""

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import NamedTuple

import msgspec
import pytest

from queen_sync.backends.base import Backend
from queen_sync.backends.memory import MemoryBackend
from queen_sync.backends.postgres import PostgresBackend
from queen_sync.backends.sqlite import SqliteBackend
from queen_sync.broker import Broker
from queen_sync.client import ApplicationTransport, RemoteBackend
from queen_sync.config import Settings
from queen_sync.conformance.agreement import (
    MakeBackend,
    SharedClock,
    assert_agreement,
    regression_test,
    sharing,
)
from queen_sync.model import QUEUE_MODE
from queen_sync.web import create_app


def memory(clock) -> Backend:
    return MemoryBackend(clock=clock)


class Behind(RemoteBackend):
    """A server and its store as one: what the wire does not carry is asked of the store."""

    def __init__(self, store: Backend) -> None:
        settings = Settings()
        self.broker = Broker(store, settings)
        application = create_app(self.broker, settings)
        super().__init__("http://queen.test", transport=ApplicationTransport(application))
        self.store = store
        features = self.capabilities.features | {"browse"}
        self.__dict__["capabilities"] = msgspec.structs.replace(
            self.capabilities, features=features
        )

    def close(self):
        super().close()
        self.broker.close()

    def queue(self, name):
        return self.store.queue(name)

    def groups(self, queue):
        return self.store.groups(queue)

    def partitions(self, queue):
        return self.store.partitions(queue)

    def removals(self, queue):
        return self.store.removals(queue)

    def sweep(self):
        return self.store.sweep()

    def next_ready_in(self, request):
        return self.store.next_ready_in(request)


class WithoutQueueModeStarts(MemoryBackend):
    """The oracle of a server: over HTTP, consumers without a group cannot say where to begin."""

    def pop(self, request):
        if request.group == QUEUE_MODE:
            request = msgspec.structs.replace(request, subscription=None)
        return super().pop(request)


class Subject(NamedTuple):
    make: Callable[[SharedClock, Path, Callable[[str], str]], Backend]
    programs: int
    oracle: MakeBackend = memory


SUBJECTS = {
    "memory": Subject(lambda clock, *_: MemoryBackend(clock=clock), 40),
    "sqlite": Subject(lambda clock, path, _: SqliteBackend(path / "queues.db", clock=clock), 60),
    "http": Subject(
        lambda clock, *_: Behind(MemoryBackend(clock=clock)),
        60,
        lambda clock: WithoutQueueModeStarts(clock=clock),
    ),
    "postgres": Subject(
        lambda clock, _, ask: PostgresBackend(ask("postgres_dsn"), clock=clock, migrate=False), 40
    ),
}
MORE = 15
"""How many times as many programs a slow run has."""


@pytest.fixture(params=list(SUBJECTS))
def subject(request, tmp_path) -> Iterator[tuple[MakeBackend, MakeBackend, int]]:
    make, programs, oracle = SUBJECTS[request.param]
    clock = SharedClock()
    with make(clock, tmp_path, request.getfixturevalue) as backend:
        yield oracle, sharing(clock, backend), programs


@pytest.mark.timeout(600)  # finding the shortest program takes its time; agreeing does not
def test_a_backend_agrees_with_the_memory_backend(subject):
    make_oracle, make_subject, programs = subject
    assert_agreement(make_oracle, make_subject, programs=programs)


@pytest.mark.slow
@pytest.mark.timeout(1800)
def test_a_backend_agrees_with_the_memory_backend_for_long(subject):
    make_oracle, make_subject, programs = subject
    assert_agreement(make_oracle, make_subject, programs=MORE * programs, random=True)


# ------------------------------------------------------------------- what a failure says


class ForgetsAttempts(MemoryBackend):
    def pop(self, request):
        return super().pop(msgspec.structs.replace(request, attempt_id=None))


def forgetful(clock) -> Backend:
    return ForgetsAttempts(clock=clock)


@pytest.fixture(scope="module")
def disagreement() -> AssertionError:
    with pytest.raises(AssertionError) as caught:
        assert_agreement(memory, forgetful, programs=400, steps=15)
    return caught.value


def test_a_disagreement_tells_both_answers(disagreement):
    assert "the oracle says ('ok', " in str(disagreement)
    assert ", the subject ('ok', " in str(disagreement)


def test_a_disagreement_leaves_a_test_that_can_be_kept(disagreement):
    """The printed program fails on the backend that is wrong, and passes on one that is right."""
    (text,) = [note for note in disagreement.__notes__ if "as a test to keep" in note]
    program = text.partition("keep:\n")[2]
    assert program.strip() == regression_test(disagreement).strip()
    names = {}
    exec(compile(program, "the printed test", "exec"), names)
    test = names["test_a_program_on_which_two_backends_disagreed"]
    test(memory, memory)
    with pytest.raises(AssertionError, match="the oracle says"):
        test(memory, forgetful)


def test_a_shared_backend_follows_the_clock_of_the_present_program():
    clock = SharedClock()
    make = sharing(clock, MemoryBackend(clock=clock))
    moments = []

    def subject(present):
        backend = make(present)
        moments.append((clock.now_us(), present.now_us()))
        return backend

    assert_agreement(memory, subject, programs=5, steps=5)
    assert len(moments) >= 5
    assert all(shared == own for shared, own in moments)
