"""The sweeper does upkeep by itself and stops when told."""

import threading

from queen_sync import model as m, stats as s
from queen_sync.backends.memory import MemoryBackend
from queen_sync.clock import ManualClock, SystemClock
from queen_sync.errors import BackendUnavailable
from queen_sync.upkeep import DAY, Metrics, Sweeper


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


def test_counts_are_written_between_two_sweeps():
    """PL-9: more often than anything is swept."""
    flushed = threading.Semaphore(0)
    metrics = Metrics(flush=flushed.release, interval_milliseconds=1, retention_days=1)
    sweeper = Sweeper(MemoryBackend(), 3_600_000, metrics)
    assert all(flushed.acquire(timeout=20) for _ in range(3))
    sweeper.close()


def test_a_sweep_forgets_counts_that_are_too_old():
    """PL-9: days are counted by the clock of this machine."""
    backend = MemoryBackend()
    now_us = SystemClock().now_us()
    minutes = [now_us - 3 * DAY, now_us - DAY, now_us]
    rows = [
        s.QueueCounts(start_us=at_us, queue="q", counts=s.Counts(pushed=1)) for at_us in minutes
    ]
    backend.add_counts(rows)
    forgotten = threading.Event()
    forget = backend.forget_counts

    def watched(before_us):
        count = forget(before_us)
        forgotten.set()
        return count

    backend.forget_counts = watched
    metrics = Metrics(flush=lambda: None, interval_milliseconds=3_600_000, retention_days=2)
    sweeper = Sweeper(backend, 1, metrics)
    assert forgotten.wait(20)
    sweeper.close()
    left = backend.counts(s.CountFilter(from_us=0, to_us=now_us))
    assert [row.start_us for row in left] == [s.minute_of(at_us) for at_us in minutes[1:]]
