"""What the suite is pointed at: the backend of the tutorial, with a store behind it."""

from zipped_backend import ZippedBackend

from queen_sync.backends.memory import MemoryBackend
from queen_sync.clock import Clock


def zipped(clock: Clock) -> ZippedBackend:
    return ZippedBackend(MemoryBackend(clock=clock))
