"""The memory backend against the contract."""

import copy
from collections.abc import Iterator

import pytest

from queen_sync.backends.memory import MemoryBackend
from queen_sync.clock import Clock
from queen_sync.conformance import BackendConformance, ConcurrencyConformance
from queen_sync.conformance.cases.encryption import KEYS
from queen_sync.encryption import KeyRing


class Memory:
    target_name = "memory"

    @pytest.fixture
    def backend(self, clock: Clock) -> Iterator[MemoryBackend]:
        with MemoryBackend(clock=clock, keys=KEYS) as backend:
            self.first = backend
            yield backend

    def beside(self, keys: str) -> MemoryBackend:
        return sharing(self.first, keys)


def sharing(first: MemoryBackend, keys: str) -> MemoryBackend:
    """Return a backend with other keys on the queues of the first."""
    ring = KeyRing.parse("", keys)
    backend = MemoryBackend(clock=first._clock, keys=ring)
    backend._store = copy.copy(first._store)
    backend._store.keys = ring
    return backend


class TestMemory(Memory, BackendConformance):
    pass


class TestMemoryUnderLoad(Memory, ConcurrencyConformance):
    pass
