"""Who calls over HTTP: each caller keeps one request in flight and decides on the next one."""

from __future__ import annotations

from typing import NamedTuple, Protocol

from queen_sync.bench.connection import Answer
from queen_sync.bench.plan import EMPTY_LIMIT, EMPTY_PAUSE_SECONDS, Plan, Tally
from queen_sync.bench.requests import Popped, Requests, read_pop

LANES_PER_CALL = 1000
"""How many partitions one call makes or empties."""


class Next(NamedTuple):
    """What a caller does next."""

    request: bytes
    pause_seconds: float = 0.0
    owed: bool = False
    """To be sent also when the time is up: the ack of a claim that was taken."""


class Caller(Protocol):
    """Sends calls of one or two kinds in turn."""

    @property
    def call(self) -> str:
        """The kind of call in flight."""

    def first(self) -> Next | None:
        """Say what comes at the beginning, or after a call that went wrong."""

    def after(self, answer: Answer, sent_at: float, tally: Tally) -> Next | None:
        """Count an answer and say what comes next; None: nothing more."""


class Pusher:
    """Pushes to one partition after the other."""

    call = "push"

    def __init__(self, requests: Requests, plan: Plan, number: int) -> None:
        self._requests = requests
        self._batch = plan.batch
        self._limit = plan.limit
        self._next = number

    def first(self) -> Next:
        self._next += 1
        return Next(self._requests.push(self._next))

    def after(self, _answer: Answer, sent_at: float, tally: Tally) -> Next | None:
        tally.count("push", sent_at, self._batch)
        if self._limit is not None and tally.messages["push"] >= self._limit:
            return None
        return self.first()


class Maker:
    """Makes partitions, many with each call, until all are there."""

    call = "push"

    def __init__(self, requests: Requests, plan: Plan, number: int) -> None:
        self._requests = requests
        mine = range(number % plan.connections, len(plan.lanes), plan.connections)
        self._left = [plan.lanes[index] for index in reversed(mine)]

    def first(self) -> Next | None:
        if not self._left:
            return None
        some = self._left[-LANES_PER_CALL:]
        del self._left[-LANES_PER_CALL:]
        return Next(self._requests.make_lanes(some))

    def after(self, _answer: Answer, _sent_at: float, _tally: Tally) -> Next | None:
        return self.first()


class Popper:
    """Pops what is settled on delivery, until nothing comes any more."""

    call = "pop"

    def __init__(self, requests: Requests, plan: Plan, number: int) -> None:
        more = {"partitions": str(LANES_PER_CALL)} if plan.operation == "clear" else {}
        self._pop = requests.pop(plan.group(number), autoAck="true", **more)
        self._empty = 0

    def first(self) -> Next:
        return Next(self._pop)

    def after(self, answer: Answer, sent_at: float, tally: Tally) -> Next | None:
        popped = read_pop(answer)
        if popped.error is not None:
            tally.errors[f"pop: {popped.error}"] += 1
        if popped.messages:
            tally.count("pop", sent_at, len(popped.messages))
            self._empty = 0
            return Next(self._pop)
        self._empty += 1
        return None if self._empty >= EMPTY_LIMIT else Next(self._pop, EMPTY_PAUSE_SECONDS)


class Drainer:
    """Pops and acks in turn, until nothing comes any more; ``patient``: for ever."""

    def __init__(
        self, requests: Requests, plan: Plan, number: int, *, patient: bool = False
    ) -> None:
        self._requests = requests
        self._group = plan.group(number)
        self._pop = requests.pop(self._group)
        self._patient = patient
        self._claim: Popped | None = None
        self._empty = 0

    @property
    def call(self) -> str:
        return "pop" if self._claim is None else "ack"

    def first(self) -> Next:
        self._claim = None
        return Next(self._pop)

    def after(self, answer: Answer, sent_at: float, tally: Tally) -> Next | None:
        if self._claim is not None:
            tally.count("ack", sent_at, len(self._claim.messages))
            return self.first()
        popped = read_pop(answer)
        if popped.error is not None:
            tally.errors[f"pop: {popped.error}"] += 1
        if not popped.messages:
            self._empty += 1
            if self._empty >= EMPTY_LIMIT and not self._patient:
                return None
            return Next(self._pop, EMPTY_PAUSE_SECONDS)
        tally.count("pop", sent_at, len(popped.messages))
        self._empty = 0
        self._claim = popped
        return Next(self._requests.ack(popped, self._group), owed=True)


class EmptyPopper:
    """Pops where there is nothing."""

    call = "pop"

    def __init__(self, requests: Requests, _plan: Plan, _number: int) -> None:
        self._pop = requests.pop()

    def first(self) -> Next:
        return Next(self._pop)

    def after(self, answer: Answer, sent_at: float, tally: Tally) -> Next | None:
        popped = read_pop(answer)
        if popped.error is not None or popped.messages:
            tally.errors[f"pop: {popped.error or 'not empty'}"] += 1
        else:
            tally.count("empty pop", sent_at)
        return self.first()


def caller_of(requests: Requests, plan: Plan, number: int) -> Caller:
    """Return a caller for a plan; ``number`` is its own among those of all processes."""
    match plan.operation:
        case "push":
            return Pusher(requests, plan, number)
        case "make":
            return Maker(requests, plan, number)
        case "pop" | "clear":
            return Popper(requests, plan, number)
        case "drain":
            return Drainer(requests, plan, number)
        case "empty":
            return EmptyPopper(requests, plan, number)
        case "mixed" if number % 2:
            return Drainer(requests, plan, number, patient=True)
        case "mixed":
            return Pusher(requests, plan, number)
        case "wake":
            raise ValueError("wake is no work for independent callers")
