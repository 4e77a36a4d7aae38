"""The same backend, after somebody added dead letters in a hurry."""

from zipped_backend import ZippedBackend

from queen_sync.backends.base import Backend
from queen_sync.backends.memory import MemoryBackend
from queen_sync.clock import Clock
from queen_sync.model import DeadLetterFilter, DeadLetters


class HastyBackend(ZippedBackend):
    """Lists dead letters as the store keeps them."""

    def __init__(self, store: Backend) -> None:
        super().__init__(store)
        offered = self.capabilities
        self.capabilities = type(offered)(features=offered.features | {"dlq"})

    def dead_letters(self, wanted: DeadLetterFilter) -> DeadLetters:
        return self.store.dead_letters(wanted)


def hasty(clock: Clock) -> HastyBackend:
    return HastyBackend(MemoryBackend(clock=clock))
