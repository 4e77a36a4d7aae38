"""How much memory many waiting messages take, and how much of it comes back.

Measured in a process of its own, so that nothing else counts: the messages are pushed by a
hundred, popped and acked, and removed.
"""

from __future__ import annotations

import multiprocessing
import resource
import sys
import time
from concurrent.futures import ProcessPoolExecutor
from pathlib import Path

import msgspec

from queen_sync import model as m
from queen_sync.backends.base import Backend
from queen_sync.bench.library_load import acks_of
from queen_sync.config import Settings
from queen_sync.payloads import JsonText
from queen_sync.web.wsgi import open_backend

BATCH = 100
_QUEUE = "footprint"


class Footprint(msgspec.Struct, frozen=True, kw_only=True):
    """What so many messages cost. Memory is resident memory, all of the process's."""

    messages: int
    payload_bytes: int
    partitions: int
    pushed_per_second: float
    drained_per_second: float
    start_megabytes: float
    queued_megabytes: float
    """With all messages waiting."""
    drained_megabytes: float
    """With all of them acked, and stored still."""
    removed_megabytes: float
    """After the queue was deleted."""
    peak_megabytes: float


def footprint(messages: int, payload_bytes: int, partitions: int) -> Footprint:
    """Measure the memory backend in a process of its own."""
    context = multiprocessing.get_context("spawn")
    with ProcessPoolExecutor(1, context) as pool:
        return pool.submit(_measure, messages, payload_bytes, partitions).result()


def _measure(messages: int, payload_bytes: int, partitions: int) -> Footprint:
    with open_backend(Settings(backend="memory:")) as backend:
        start = _resident_megabytes()
        began = time.perf_counter()
        _fill(backend, messages, payload_bytes, partitions)
        pushed = time.perf_counter() - began
        queued = _resident_megabytes()
        began = time.perf_counter()
        count = _drain(backend)
        assert count == messages
        drained = time.perf_counter() - began
        after_drain = _resident_megabytes()
        backend.delete_queue(_QUEUE)
        return Footprint(
            messages=messages,
            payload_bytes=payload_bytes,
            partitions=partitions,
            pushed_per_second=messages / pushed,
            drained_per_second=messages / drained,
            start_megabytes=start,
            queued_megabytes=queued,
            drained_megabytes=after_drain,
            removed_megabytes=_resident_megabytes(),
            peak_megabytes=_peak_megabytes(),
        )


def _fill(backend: Backend, messages: int, payload_bytes: int, partitions: int) -> None:
    width = max(1, payload_bytes - len('{"text":""}'))
    for first in range(0, messages, BATCH):
        # Each has bytes of its own, as messages do: one payload many times would cost nothing.
        texts = (f'{{"text":"{number:0{width}}"}}' for number in range(first, first + BATCH))
        partition = f"lane-{first // BATCH % partitions:06}"
        backend.push(
            [
                m.NewMessage(
                    queue=_QUEUE, partition=partition, payload=JsonText.check(text.encode())
                )
                for text in texts
            ]
        )


def _drain(backend: Backend) -> int:
    count = 0
    while claim := backend.pop(m.PopRequest(queue=_QUEUE, max_messages=BATCH)):
        backend.ack(acks_of(claim))
        count += len(claim.messages)
    return count


def _resident_megabytes() -> float:
    """Return what this process has in memory now; its peak where only that is known."""
    try:
        pages = int(Path("/proc/self/statm").read_text().split()[1])
    except OSError:
        return _peak_megabytes()
    return pages * resource.getpagesize() / 1e6


def _peak_megabytes() -> float:
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return peak / 1e6 if sys.platform == "darwin" else peak * 1024 / 1e6
