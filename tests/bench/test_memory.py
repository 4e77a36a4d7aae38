"""How much memory messages take in the memory backend, and that it comes back."""

from __future__ import annotations

import gc
import json
import subprocess
import sys
import tracemalloc

import pytest
from click.testing import CliRunner

from queen_sync import model as m
from queen_sync.backends.memory import MemoryBackend
from queen_sync.bench import command
from queen_sync.bench.library_load import acks_of
from queen_sync.clock import ManualClock

PARTITIONS, PER_PARTITION = 400, 25
PAYLOAD = "x" * 1000


def fill_and_consume(backend):
    """Push messages with names of the caller's, over many partitions, and consume them all."""
    for lane in range(PARTITIONS):
        backend.push(
            [
                m.NewMessage.of("q", f"{PAYLOAD}{n}", partition=f"p{lane}", transaction_id=str(n))
                for n in range(PER_PARTITION)
            ]
        )
    held = tracemalloc.get_traced_memory()[0]
    request = m.PopRequest(queue="q", max_messages=PER_PARTITION * 20, max_partitions=20)
    while claim := backend.pop(request):
        backend.ack(acks_of(claim))
    return held


def rounds_of_use():
    """Return what is held with all queued, after retention, and after the queue was deleted."""
    clock = ManualClock()
    tracemalloc.start()
    with MemoryBackend(clock) as backend:
        backend.configure("q", {"retention_enabled": True, "completed_retention_seconds": 60})
        start = tracemalloc.get_traced_memory()[0]
        found = []
        for _ in range(3):
            queued = fill_and_consume(backend)
            for _ in range(2):
                backend.sweep()
                clock.advance(120)
            backend.sweep()
            found.append((queued - start, tracemalloc.get_traced_memory()[0] - start))
        gc.disable()
        fill_and_consume(backend)
        backend.delete_queue("q")
        return {"rounds": found, "deleted": tracemalloc.get_traced_memory()[0] - start}


def test_memory_is_given_back_after_consumption():
    """O-55: messages, their names and what groups knew of them go with retention or the queue.

    In a process of its own, since what is traced is all that the process holds. The deleted
    queue is free at once: the collector is off by then.
    """
    done = subprocess.run(
        [sys.executable, __file__], capture_output=True, text=True, timeout=100, check=True
    )
    found = json.loads(done.stdout)
    size = PARTITIONS * PER_PARTITION * len(PAYLOAD)
    for queued, left in found["rounds"]:
        assert queued > size
        assert left < queued / 4
    # Flat: the partitions stay, so what is left stays too, but it does not grow.
    lefts = [left for _, left in found["rounds"]]
    assert lefts[2] < lefts[0] * 1.2
    assert found["deleted"] < size / 10


def footprint(messages, *more):
    done = CliRunner().invoke(command, ["memory:", "--footprint", str(messages), *more])
    assert done.exit_code == 0, done.output
    return done.stdout


def test_the_footprint_of_queued_messages_is_measured():
    """O-55: resident memory grows with what is queued and falls when it is removed."""
    found = json.loads(footprint(60_050, "--payload-bytes", "300", "--json"))
    assert found["messages"] == 60_000
    assert found["pushed_per_second"] > 0
    grown = found["queued_megabytes"] - found["start_megabytes"]
    assert grown > 60_000 * 300 / 1e6
    assert found["peak_megabytes"] >= found["queued_megabytes"] * 0.95
    assert found["removed_megabytes"] < found["start_megabytes"] + grown / 2


def test_the_footprint_is_told_in_words():
    assert "1,000 messages of 130 bytes" in footprint(1_000)


@pytest.mark.slow
def test_a_million_messages_fit_in_512_megabytes():
    """PL-14: with payloads of 130 bytes, all waiting, everything that the process holds."""
    found = json.loads(footprint(1_000_000, "--json"))
    assert found["peak_megabytes"] < 512


if __name__ == "__main__":
    sys.stdout.write(json.dumps(rounds_of_use()))
