"""The sweeper does upkeep by itself and stops when told."""

import threading

from queen_sync import model as m
from queen_sync.backends.memory import MemoryBackend
from queen_sync.clock import ManualClock
from queen_sync.errors import BackendUnavailable
from queen_sync.upkeep import Sweeper


def expired_poison(clock: ManualClock) -> MemoryBackend:
    """A backend in which only a sweep can move an exhausted message to the dead letters."""
    backend = MemoryBackend(clock=clock)
    backend.configure("q", {"lease_seconds": 1, "retry_limit": 0})
    backend.push([m.NewMessage.of("q", "poison")])
    for _ in range(2):
        assert backend.pop(m.PopRequest(queue="q"))
        clock.advance(2)
    return backend


def test_expired_leases_are_swept_without_any_pop():
    """PLD-5, O-10: a message that killed its consumer reaches the dead letters by itself."""
    swept = threading.Event()
    backend = expired_poison(ManualClock())
    sweep = backend.sweep

    def watched():
        report = sweep()
        swept.set()
        return report

    backend.sweep = watched
    sweeper = Sweeper(backend, 1)
    assert swept.wait(5)
    sweeper.close()
    assert backend.dead_letters(m.DeadLetterFilter(queue="q")).total == 1


def test_a_failing_sweep_is_tried_again():
    """O-09: the store's absence does not end upkeep."""
    tries = threading.Semaphore(0)
    backend = MemoryBackend()

    def failing():
        tries.release()
        raise BackendUnavailable("gone")

    backend.sweep = failing
    sweeper = Sweeper(backend, 1)
    assert all(tries.acquire(timeout=5) for _ in range(3))
    sweeper.close()


def test_close_ends_the_thread():
    sweeper = Sweeper(MemoryBackend(), 60_000)
    sweeper.close()
    assert "queen-sweep" not in {thread.name for thread in threading.enumerate()}
