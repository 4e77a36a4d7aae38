"""Load on a store without a server: threads that call the backend of this process."""

from __future__ import annotations

import itertools
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from uuid import uuid4

from queen_sync import model as m
from queen_sync.backends.base import Backend
from queen_sync.bench.callers import LANES_PER_CALL
from queen_sync.bench.plan import EMPTY_LIMIT, EMPTY_PAUSE_SECONDS, Plan, Tally
from queen_sync.errors import QueenError
from queen_sync.payloads import JsonText

Turn = Callable[[Tally], bool]
"""One call or two of a caller; False: there is nothing more to do."""


@contextmanager
def library_queue(backend: Backend, plan: Plan) -> Iterator[None]:
    """Make the queue of a plan and remove it with what is left in it."""
    backend.configure(plan.queue)
    try:
        yield
    finally:
        backend.delete_queue(plan.queue)


class LibraryLoad:
    """The callers of one process: as many threads, each with a database connection."""

    def __init__(self, plan: Plan, backend: Backend) -> None:
        self._plan = plan
        self._backend = backend
        self._payload = JsonText.check(plan.payload)
        self._prefix = uuid4().hex
        self._names = itertools.count()

    def run(self) -> Tally:
        """Keep every caller busy for the time of the plan, then let the last calls finish."""
        count = self._plan.connections
        ready = threading.Barrier(count)
        cpu_began = time.process_time()
        with ThreadPoolExecutor(count) as pool:
            running = [pool.submit(self._call, number, ready) for number in range(count)]
            whole = Tally.merged([each.result() for each in running])
        whole.cpu_seconds = time.process_time() - cpu_began
        return whole

    def _call(self, number: int, ready: threading.Barrier) -> Tally:
        turn = self._turn(self._plan.first_caller + number)
        tally = Tally()
        ready.wait()
        tally.begin()
        deadline = tally.began + self._plan.seconds
        while time.monotonic() < deadline:
            try:
                if not turn(tally):
                    break
            except QueenError as error:
                tally.errors[f"{self._plan.operation}: {error.code}"] += 1
                time.sleep(EMPTY_PAUSE_SECONDS)
        return tally

    def _turn(self, number: int) -> Turn:
        match self._plan.operation:
            case "push":
                return self._pusher(number)
            case "make":
                return self._maker(number)
            case "pop" | "clear":
                return self._popper(number, acks=False)
            case "drain":
                return self._popper(number, acks=True)
            case "empty":
                return self._empty_popper()
            case "mixed" if number % 2:
                return self._popper(number, acks=True, patient=True)
            case "mixed":
                return self._pusher(number)
            case "wake":
                raise ValueError("a store alone wakes nobody")

    def _message(self, lane: int) -> m.NewMessage:
        plan = self._plan
        name = f"{self._prefix}-{next(self._names)}" if plan.named else None
        return m.NewMessage(
            queue=plan.queue,
            partition=plan.partition(lane),
            payload=self._payload,
            transaction_id=name,
        )

    def _pusher(self, number: int) -> Turn:
        plan = self._plan
        lanes = itertools.count(number)

        def turn(tally: Tally) -> bool:
            lane = next(lanes)
            if plan.named:
                items = [self._message(lane) for _ in range(plan.batch)]
            else:
                items = [self._message(lane)] * plan.batch
            began = time.monotonic()
            self._backend.push(items)
            tally.count("push", began, plan.batch)
            return plan.limit is None or tally.messages["push"] * plan.connections < plan.limit

        return turn

    def _maker(self, number: int) -> Turn:
        mine = self._plan.lanes[number % self._plan.connections :: self._plan.connections]
        begins = iter(range(0, len(mine), LANES_PER_CALL))

        def turn(_: Tally) -> bool:
            begin = next(begins, None)
            if begin is None:
                return False
            lanes = mine[begin : begin + LANES_PER_CALL]
            self._backend.push([self._message(lane) for lane in lanes])
            return True

        return turn

    def _popper(self, number: int, *, acks: bool, patient: bool = False) -> Turn:
        plan = self._plan
        request = m.PopRequest(
            queue=plan.queue,
            group=plan.group(number) or m.QUEUE_MODE,
            max_messages=plan.batch,
            max_partitions=LANES_PER_CALL if plan.operation == "clear" else 1,
            auto_ack=not acks,
        )
        empty = 0

        def turn(tally: Tally) -> bool:
            nonlocal empty
            began = time.monotonic()
            claim = self._backend.pop(request)
            if not claim:
                empty += 1
                time.sleep(EMPTY_PAUSE_SECONDS)
                return patient or empty < EMPTY_LIMIT
            empty = 0
            now = tally.count("pop", began, len(claim.messages))
            if acks:
                answers = self._backend.ack(acks_of(claim))
                tally.count("ack", now, len(claim.messages))
                if refused := sum(not answer.ok for answer in answers):
                    tally.errors["ack: refused"] += refused
            return True

        return turn

    def _empty_popper(self) -> Turn:
        request = m.PopRequest(queue=self._plan.queue)

        def turn(tally: Tally) -> bool:
            began = time.monotonic()
            if self._backend.pop(request):
                tally.errors["pop: not empty"] += 1
            else:
                tally.count("empty pop", began)
            return True

        return turn


def acks_of(claim: m.Claim) -> list[m.Ack]:
    """Return an ack for every message of a claim."""
    return [
        m.Ack(
            transaction_id=each.transaction_id,
            partition_id=each.partition_id,
            group=claim.group,
            lease_id=claim.lease_id,
        )
        for each in claim.messages
    ]
