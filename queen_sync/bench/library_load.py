"""Load on a store without a server: threads that call the backend of this process."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor

from queen_sync import model as m
from queen_sync.backends.base import Backend
from queen_sync.bench.plan import EMPTY_LIMIT, EMPTY_PAUSE_SECONDS, Plan, Tally, new_messages


class LibraryLoad:
    """The callers of one process: as many threads, each with a database connection."""

    def __init__(self, plan: Plan, open_backend: Callable[[str, int], Backend]) -> None:
        self._plan = plan
        self._backend = open_backend(plan.target, plan.connections)

    def close(self) -> None:
        self._backend.close()

    def run(self) -> Tally:
        """Keep every caller busy for the time of the plan, then let the last calls finish."""
        work = self._push if self._plan.operation == "push" else self._drain
        ready = threading.Barrier(self._plan.connections)
        with ThreadPoolExecutor(self._plan.connections) as pool:
            running = [pool.submit(work, number, ready) for number in range(self._plan.connections)]
            return Tally.merged([each.result() for each in running])

    def _push(self, number: int, ready: threading.Barrier) -> Tally:
        plan = self._plan
        pushes = [new_messages(plan, lane) for lane in range(plan.partitions)]
        tally = Tally()
        ready.wait()
        tally.begin()
        now = tally.began
        deadline = now + plan.seconds
        while now < deadline:
            number += 1
            self._backend.push(pushes[number % len(pushes)])
            now = tally.count("push", now, plan.batch)
        return tally

    def _drain(self, _number: int, ready: threading.Barrier) -> Tally:
        request = m.PopRequest(queue=self._plan.queue, max_messages=self._plan.batch)
        tally = Tally()
        ready.wait()
        tally.begin()
        now = tally.began
        deadline = now + self._plan.seconds
        empty = 0
        while now < deadline and empty < EMPTY_LIMIT:
            claim = self._backend.pop(request)
            if not claim:
                empty += 1
                time.sleep(EMPTY_PAUSE_SECONDS)
                now = time.monotonic()
                continue
            empty = 0
            now = tally.count("pop", now)
            self._backend.ack(
                [
                    m.Ack(
                        transaction_id=each.transaction_id,
                        partition_id=each.partition_id,
                        lease_id=claim.lease_id,
                    )
                    for each in claim.messages
                ]
            )
            now = tally.count("ack", now, len(claim.messages))
        return tally
