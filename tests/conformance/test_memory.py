"""The memory backend against the contract."""

from collections.abc import Iterator

import pytest

from queen_sync.backends.memory import MemoryBackend
from queen_sync.clock import Clock
from queen_sync.conformance import BackendConformance, ConcurrencyConformance


class Memory:
    target_name = "memory"

    @pytest.fixture
    def backend(self, clock: Clock) -> Iterator[MemoryBackend]:
        with MemoryBackend(clock=clock) as backend:
            yield backend


class TestMemory(Memory, BackendConformance):
    pass


class TestMemoryUnderLoad(Memory, ConcurrencyConformance):
    pass
