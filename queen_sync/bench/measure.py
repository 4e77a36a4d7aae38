"""Rounds of load in several processes, and the figures that come out of them."""

from __future__ import annotations

import multiprocessing
from collections.abc import Iterator
from concurrent.futures import ProcessPoolExecutor
from contextlib import AbstractContextManager, ExitStack, closing
from dataclasses import replace
from multiprocessing.synchronize import Barrier
from threading import BrokenBarrierError
from uuid import uuid4

from queen_sync.backends.base import Backend
from queen_sync.bench.callers import LANES_PER_CALL
from queen_sync.bench.http_load import HttpLoad, http_queue
from queen_sync.bench.library_load import LibraryLoad, library_queue
from queen_sync.bench.plan import Case, LoadError, Plan, Tally
from queen_sync.bench.processes import Meter, Watched
from queen_sync.bench.results import Round, figures
from queen_sync.bench.wake_load import WakeLoad
from queen_sync.config import Settings
from queen_sync.errors import QueenError
from queen_sync.web.wsgi import open_backend

START_SECONDS = 60.0
"""How long the processes wait for each other before a round."""
FILL_BATCH = 100
"""What is to be popped is pushed before the clock runs, in batches of at least so many."""
FILL_CALLS_PER_SECOND = 20_000
"""More pops than this are not made in a second, so no more is pushed for them."""
REGISTER_SECONDS = 0.01
PREPARE_SECONDS = 600.0
"""The longest that making partitions may take."""


def is_http(target: str) -> bool:
    """Return whether a target is a server's address; else it is a store."""
    return target.startswith("http://")


def open_store(target: str, connections: int) -> Backend:
    """Open a store with as many database connections as there are callers."""
    return open_backend(Settings(backend=target, database_pool_size=connections))


# ------------------------------------------------------------------ in each process

_started: Barrier | None = None


def _enter(barrier: Barrier) -> None:
    global _started  # noqa: PLW0603 - a pool's processes are told of each other in no other way
    _started = barrier


def _run(plan: Plan) -> Tally | str:
    """Play one process's part; a failure comes back as its text, "" where others failed."""
    assert _started is not None
    try:
        with ExitStack() as stack:
            load: HttpLoad | WakeLoad | LibraryLoad
            if not is_http(plan.target):
                load = LibraryLoad(
                    plan, stack.enter_context(open_store(plan.target, plan.connections))
                )
            elif plan.operation == "wake":
                load = stack.enter_context(closing(WakeLoad(plan)))
            else:
                load = stack.enter_context(closing(HttpLoad(plan)))
            _started.wait(START_SECONDS)
            return load.run()
    except BrokenBarrierError:
        return ""
    except (QueenError, OSError) as error:
        _started.abort()
        return f"{type(error).__name__}: {error}"


# ------------------------------------------------------------------- above all of them


class Bench:
    """One target and the processes that load it, one case after the other."""

    def __init__(
        self, target: str, processes: int, seconds: float, watched: Watched | None = None
    ) -> None:
        """Point to a target; a store that processes cannot share is loaded from this one."""
        self.target = target
        self._seconds = seconds
        self.processes = processes
        self._watched = watched or Watched()
        self._open = ExitStack()
        self._pools: dict[int, ProcessPoolExecutor] = {}
        self._store: Backend | None = None
        if not is_http(target):
            self._store = self._open.enter_context(open_store(target, 1))
            if not self._store.capabilities.shared:
                self.processes = 1

    def close(self) -> None:
        self._open.close()

    def warm_up(self, case: Case, seconds: float) -> None:
        """Play a case without looking at the figures."""
        if seconds:
            self._play(case, seconds, None)

    def round(self, case: Case, number: int) -> Round:
        """Measure a case once, on a queue of its own."""
        meter = Meter(self._watched)
        tally = self._play(case, self._seconds, meter)
        server, database = meter.read()
        found = figures(tally)
        if not found and tally.errors:
            what, count = tally.errors.most_common(1)[0]
            raise LoadError(f"nothing was done on {shown(self.target)}: {what} ({count} times)")
        return Round(
            target=shown(self.target),
            number=number,
            case=case,
            figures=found,
            errors=dict(tally.errors),
            load_cpu_seconds=tally.cpu_seconds,
            server=server,
            database=database,
        )

    def _play(self, case: Case, seconds: float, meter: Meter | None) -> Tally:
        """Make a queue, put into it what the case needs, and play the case."""
        plan = Plan(
            target=self.target,
            queue=f"bench-{uuid4().hex[:12]}",
            operation=case.operation,
            batch=case.batch,
            connections=case.connections,
            partitions=case.partitions,
            payload_bytes=case.payload_bytes,
            seconds=seconds,
            groups=case.groups,
            named=case.named,
        )
        before = Tally()
        with self._queue(plan):
            if case.prepared:
                for step in preparations(plan):
                    before.errors.update(self._go(step).errors)
            if case.operation in ("pop", "drain"):
                limit = round(seconds * FILL_CALLS_PER_SECOND * case.batch)
                batch = max(FILL_BATCH, case.batch)
                fill = replace(plan, operation="push", batch=batch, limit=max(limit, batch))
                before.errors.update(self._go(fill).errors)
            if meter is not None:
                meter.begin()
            tally = self._go(plan)
            if meter is not None:
                meter.end()
        tally.errors.update(before.errors)
        return tally

    def _queue(self, plan: Plan) -> AbstractContextManager[None]:
        return http_queue(plan) if self._store is None else library_queue(self._store, plan)

    def _go(self, plan: Plan) -> Tally:
        """Share a plan among the processes and wait for all of them."""
        if self._store is not None and not self._store.capabilities.shared:
            return LibraryLoad(plan, self._store).run()
        count = 1 if plan.operation == "wake" else min(self.processes, plan.connections)
        plans = list(shares(plan, count))
        results = list(self._pool(count).map(_run, plans))
        failures = [result for result in results if isinstance(result, str)]
        if failures:
            raise LoadError(max(failures, key=len) or "the load processes did not start in time")
        return Tally.merged([result for result in results if isinstance(result, Tally)])

    def _pool(self, count: int) -> ProcessPoolExecutor:
        """Return so many processes, which begin together."""
        if count not in self._pools:
            context = multiprocessing.get_context("spawn")
            pool = ProcessPoolExecutor(
                count, context, initializer=_enter, initargs=(context.Barrier(count),)
            )
            self._open.callback(pool.shutdown, cancel_futures=True)
            self._pools[count] = pool
        return self._pools[count]


def preparations(plan: Plan) -> Iterator[Plan]:
    """Yield what makes the partitions of a plan: all there, all empty, known to the consumers.

    The consumers are made known first: a store that keeps their place in each partition would
    make all places at once with the first pop, which is not what is to be measured.
    """
    whole = replace(plan, named=False, groups=0, seconds=PREPARE_SECONDS)
    yield replace(whole, operation="empty", connections=1, seconds=REGISTER_SECONDS)
    yield replace(whole, operation="make", lanes=range(plan.partitions))
    # By one alone: consumers that each take a thousand partitions are in each other's way.
    yield replace(whole, operation="clear", connections=1, batch=LANES_PER_CALL)


def shares(plan: Plan, count: int) -> Iterator[Plan]:
    """Yield the part of each of so many processes: connections, partitions to make, limit."""
    first = 0
    for number in range(count):
        connections = plan.connections // count + (number < plan.connections % count)
        yield replace(
            plan,
            connections=connections,
            first_caller=first,
            lanes=plan.lanes[number::count],
            limit=None if plan.limit is None else -(-plan.limit // count),
        )
        first += connections


def shown(target: str) -> str:
    """Return a target as it may be kept in a file: without its password."""
    before, at, after = target.rpartition("@")
    head, colon, _ = before.rpartition(":")
    return f"{head}@{after}" if at and colon and "//" in head else target
