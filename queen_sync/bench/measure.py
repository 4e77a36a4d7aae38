"""Rounds of load in several processes, and the figures that come out of them."""

from __future__ import annotations

import multiprocessing
from collections.abc import Callable, Iterator
from concurrent.futures import ProcessPoolExecutor
from contextlib import closing, contextmanager
from dataclasses import dataclass, replace
from multiprocessing.synchronize import Barrier
from statistics import median
from threading import BrokenBarrierError
from uuid import uuid4

from queen_sync.backends.base import Backend
from queen_sync.bench.http_load import HttpLoad
from queen_sync.bench.library_load import LibraryLoad
from queen_sync.bench.plan import LoadError, Plan, Tally
from queen_sync.client import RemoteBackend
from queen_sync.config import Settings
from queen_sync.errors import QueenError
from queen_sync.web.wsgi import open_backend

START_SECONDS = 60.0
"""How long the processes wait for each other before a round."""


@dataclass(frozen=True)
class Figures:
    """One kind of call at one batch size, in one round or as the medians of several."""

    call: str
    batch: int
    messages_per_second: float
    calls_per_second: float
    p50_milliseconds: float
    p95_milliseconds: float
    p99_milliseconds: float


def is_http(target: str) -> bool:
    """Return whether a target is a server's address; else it is a store."""
    return target.startswith("http://")


def open_store(target: str, connections: int) -> Backend:
    """Open a store with as many database connections as there are callers."""
    return open_backend(Settings(backend=target, database_pool_size=connections))


def open_target(target: str) -> Backend:
    """Open a target for what is done beside the measurement."""
    return RemoteBackend(target) if is_http(target) else open_store(target, 1)


# ------------------------------------------------------------------ in each process

_started: Barrier | None = None


def _enter(barrier: Barrier) -> None:
    global _started  # noqa: PLW0603 - a pool's processes are told of each other in no other way
    _started = barrier


def _run(plan: Plan) -> Tally | str:
    """Play one process's part; a failure comes back as its text, "" where others failed."""
    assert _started is not None
    try:
        with closing(
            HttpLoad(plan) if is_http(plan.target) else LibraryLoad(plan, open_store)
        ) as load:
            _started.wait(START_SECONDS)
            return load.run()
    except BrokenBarrierError:
        return ""
    except (QueenError, OSError) as error:
        _started.abort()
        return f"{type(error).__name__}: {error}"


# ------------------------------------------------------------------- above all of them


class Bench:
    """A pool of load processes that play one round after the other."""

    def __init__(self, plan: Plan, processes: int) -> None:
        """Share the connections of the plan among so many processes."""
        self._plan = plan
        self._shares = [
            plan.connections // processes + (number < plan.connections % processes)
            for number in range(processes)
        ]
        context = multiprocessing.get_context("spawn")
        self._pool = ProcessPoolExecutor(
            processes, context, initializer=_enter, initargs=(context.Barrier(processes),)
        )

    def close(self) -> None:
        self._pool.shutdown(cancel_futures=True)

    def round(self, batch: int) -> list[Figures]:
        """Push for the plan's time, then pop and ack what was pushed for as long."""
        queue = f"bench-{uuid4().hex[:12]}"
        plan = replace(self._plan, batch=batch, queue=queue)
        with _queue(plan):
            pushed = self._play(replace(plan, operation="push"))
            drained = self._play(replace(plan, operation="drain"))
        return [*figures(pushed, batch), *figures(drained, batch)]

    def _play(self, plan: Plan) -> Tally:
        plans = [replace(plan, connections=share) for share in self._shares]
        results = list(self._pool.map(_run, plans))
        failures = [result for result in results if isinstance(result, str)]
        if failures:
            raise LoadError(max(failures, key=len) or "the load processes did not start in time")
        return Tally.merged([result for result in results if isinstance(result, Tally)])


@contextmanager
def _queue(plan: Plan) -> Iterator[None]:
    """Make the queue of a round and remove it with what is left in it."""
    with open_target(plan.target) as backend:
        backend.configure(plan.queue)
        try:
            yield
        finally:
            backend.delete_queue(plan.queue)


def figures(tally: Tally, batch: int) -> list[Figures]:
    """Return the figures of each kind of call in a tally.

    Pops and acks take turns, so both show the rate of messages that went through both.
    """
    seconds = max(tally.ended - tally.began, 1e-9)
    return [
        Figures(
            call=call,
            batch=batch,
            messages_per_second=tally.messages / seconds,
            calls_per_second=len(times) / seconds,
            p50_milliseconds=percentile(times, 50) * 1000,
            p95_milliseconds=percentile(times, 95) * 1000,
            p99_milliseconds=percentile(times, 99) * 1000,
        )
        for call, times in sorted(tally.calls.items(), reverse=True)
    ]


def percentile(values: list[float], percent: int) -> float:
    """Return the smallest value that at least ``percent`` of all do not exceed."""
    ordered = sorted(values)
    return ordered[max(0, -(-len(ordered) * percent // 100) - 1)]


def medians(rounds: list[list[Figures]]) -> list[Figures]:
    """Return the median of each figure over the rounds."""
    found: dict[tuple[str, int], list[Figures]] = {}
    for each in rounds:
        for figure in each:
            found.setdefault((figure.call, figure.batch), []).append(figure)

    def middle(group: list[Figures], of: Callable[[Figures], float]) -> float:
        return median(of(figure) for figure in group)

    return [
        Figures(
            call=call,
            batch=batch,
            messages_per_second=middle(group, lambda figure: figure.messages_per_second),
            calls_per_second=middle(group, lambda figure: figure.calls_per_second),
            p50_milliseconds=middle(group, lambda figure: figure.p50_milliseconds),
            p95_milliseconds=middle(group, lambda figure: figure.p95_milliseconds),
            p99_milliseconds=middle(group, lambda figure: figure.p99_milliseconds),
        )
        for (call, batch), group in found.items()
    ]
