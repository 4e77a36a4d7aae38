"""The memory backend and every other one, given the same random programs, answer alike.

The programs of the ordinary run are few and always the same; those marked slow are many, and
others each time.
"""

from collections.abc import Callable, Iterator
from functools import partial
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

    def partitions(self, queue, **page):
        return self.store.partitions(queue, **page)

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


class Restarted:
    """A backend that is opened anew every few calls: whatever it knows has to be in the store."""

    def __init__(self, open_store: Callable[[], Backend]) -> None:
        self.open = open_store
        self.store = open_store()
        self.calls = 0

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.store.close()

    def __getattr__(self, name):
        attribute = getattr(self.store, name)
        return partial(self.call, name) if callable(attribute) else attribute

    def call(self, name, *args, **kwargs):
        self.calls += 1
        # A prime, so that every kind of call is one day the first of a new process.
        if self.calls % 7 == 0:
            self.store.close()
            self.store = self.open()
        return getattr(self.store, name)(*args, **kwargs)


def sqlite_at(path: Path, clock) -> Backend:
    # Nothing here is to survive a power failure.
    return SqliteBackend(path / "queues.db", clock=clock, synchronous="normal")


def postgres_at(dsn: str, clock) -> Backend:
    return PostgresBackend(dsn, clock=clock, repair_interval_seconds=0, migrate=False)


class Subject(NamedTuple):
    make: Callable[[SharedClock, Path, Callable[[str], str]], Backend]
    programs: int
    oracle: MakeBackend = memory


SUBJECTS = {
    "memory": Subject(lambda clock, *_: MemoryBackend(clock=clock), 40),
    "sqlite": Subject(lambda clock, path, _: sqlite_at(path, clock), 60),
    "sqlite, restarted": Subject(
        lambda clock, path, _: Restarted(lambda: sqlite_at(path, clock)), 15
    ),
    "http": Subject(
        lambda clock, *_: Behind(MemoryBackend(clock=clock)),
        60,
        lambda clock: WithoutQueueModeStarts(clock=clock),
    ),
    "postgres": Subject(lambda clock, _, ask: postgres_at(ask("postgres_dsn"), clock), 40),
    "postgres, restarted": Subject(
        lambda clock, _, ask: Restarted(lambda: postgres_at(ask("postgres_dsn"), clock)), 4
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
