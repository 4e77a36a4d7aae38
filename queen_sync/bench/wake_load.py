"""How long after a push a waiting pop is answered, through the same process and through others.

One pop waits at a time, on a connection of its own; a message is pushed over another one. A
kept connection stays with the process of the server that took it, and `GET /health` says
which one that is where the server tells; where it does not, all wake-ups are shown as one.
"""

from __future__ import annotations

import itertools
import select
import time
from contextlib import ExitStack

import msgspec

from queen_sync.bench.connection import ANSWER_SECONDS, Lost, Wire
from queen_sync.bench.plan import Plan, Tally
from queen_sync.bench.requests import Requests, read_pop, refusal

SETTLE_SECONDS = 0.03
"""How long a pop is left waiting before the push that wakes it."""
SAME, OTHER = "wake, same process", "wake, other process"


class _Health(msgspec.Struct):
    worker_id: int | str | None = None


class WakeLoad:
    """Half of the connections wait in turn, the other half push in turn."""

    def __init__(self, plan: Plan) -> None:
        self._plan = plan
        self._requests = Requests(plan)
        self._wait = self._requests.pop(
            autoAck="true", wait="true", timeout=str(int(ANSWER_SECONDS * 500))
        )
        self._open = ExitStack()
        half = max(1, plan.connections // 2)
        self._waiters = [self._connect() for _ in range(half)]
        self._pushers = [self._connect() for _ in range(half)]
        self._processes = {wire: self._process(wire) for wire in (*self._waiters, *self._pushers)}

    def close(self) -> None:
        self._open.close()

    def run(self) -> Tally:
        """Wake one pop after the other for the time of the plan."""
        tally = Tally()
        tally.begin()
        cpu_began = time.process_time()
        deadline = tally.began + self._plan.seconds
        # All pairs come by in turn, so that same and other processes have their share.
        pairs = itertools.cycle(itertools.product(self._pushers, self._waiters))
        for number in itertools.count():
            if time.monotonic() >= deadline:
                break
            pusher, waiter = next(pairs)
            try:
                self._wake(waiter, pusher, number, tally)
            except Lost as lost:
                tally.errors[f"wake: {lost}"] += 1
                for wire in (waiter, pusher):
                    wire.reconnect()
                    self._processes[wire] = self._process(wire)
        tally.cpu_seconds = time.process_time() - cpu_began
        return tally

    def _wake(self, waiter: Wire, pusher: Wire, number: int, tally: Tally) -> None:
        waiter.send(self._wait)
        early, _, _ = select.select([waiter.socket], [], [], SETTLE_SECONDS)
        if not early:
            pusher.send(self._requests.push(number))
        while (answer := waiter.receive()) is None:
            pass
        wrong = refusal("pop", answer)
        if early:
            tally.errors[wrong or "wake: answered before the push"] += 1
            return
        woken = read_pop(answer)
        if wrong is None and woken.messages:
            tally.count("wake", pusher.sent_at, len(woken.messages))
            ours, theirs = self._processes[pusher], self._processes[waiter]
            if ours is not None and theirs is not None:
                route = SAME if ours == theirs else OTHER
                tally.calls.setdefault(route, []).append(tally.calls["wake"][-1])
        else:
            tally.errors[wrong or f"wake: {woken.error or 'nothing came'}"] += 1
        while (answer := pusher.receive()) is None:
            pass
        if (wrong := refusal("push", answer)) is not None:
            tally.errors[wrong] += 1

    def _connect(self) -> Wire:
        wire = Wire(self._requests.host, self._requests.port)
        self._open.callback(wire.close)
        return wire

    def _process(self, wire: Wire) -> int | str | None:
        """Return which process of the server has a connection, if the server tells."""
        try:
            return msgspec.json.decode(
                wire.call(self._requests.health).body, type=_Health
            ).worker_id
        except (Lost, msgspec.MsgspecError):
            wire.reconnect()
            return None
