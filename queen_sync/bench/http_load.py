"""Load over HTTP that costs little itself: prepared bytes over kept sockets, one thread.

An HTTP library takes longer to make a request than the server to answer one, so what is
measured with it is the library. Here each connection is a socket in one selector loop,
pushes are made ready before the clock runs, and of an answer only the status, the length
and, for a pop, what its ack needs is read.
"""

from __future__ import annotations

import selectors
import time
from collections.abc import Iterator
from contextlib import ExitStack, closing, contextmanager
from dataclasses import replace

from queen_sync.bench.callers import Caller, Next, caller_of
from queen_sync.bench.connection import ANSWER_SECONDS, Answer, Lost, Wire
from queen_sync.bench.plan import EMPTY_PAUSE_SECONDS, LoadError, Plan, Tally
from queen_sync.bench.requests import Requests, refusal

ERROR_PAUSE_SECONDS = 0.05
"""A caller whose call went wrong holds back for so long: errors must not become the load."""


@contextmanager
def http_queue(plan: Plan) -> Iterator[None]:
    """Make the queue of a plan and remove it with what is left in it."""
    requests = Requests(replace(plan, partitions=1))
    with closing(Wire(requests.host, requests.port)) as wire:
        _accepted(wire, requests.configure())
    try:
        yield
    finally:
        with closing(Wire(requests.host, requests.port)) as wire:
            _accepted(wire, requests.delete())


def _accepted(wire: Wire, request: bytes) -> None:
    try:
        answer = wire.call(request)
    except Lost as lost:
        raise LoadError(f"the server did not answer: {lost}") from lost
    if answer.status >= 300:
        text = answer.body[:200].decode(errors="replace")
        raise LoadError(f"the queue was refused: HTTP {answer.status}: {text}")


class HttpLoad:
    """The callers of one process, connected and ready to start."""

    def __init__(self, plan: Plan) -> None:
        self._plan = plan
        requests = Requests(plan)
        self._open = ExitStack()
        self._selector = self._open.enter_context(selectors.DefaultSelector())
        self._callers: dict[Wire, Caller] = {}
        self._paused: dict[Wire, tuple[float, Next]] = {}
        self._busy = 0
        self._tally = Tally()
        for number in range(plan.connections):
            wire = Wire(requests.host, requests.port)
            self._open.callback(wire.close)
            self._selector.register(wire.socket, selectors.EVENT_READ, wire)
            self._callers[wire] = caller_of(requests, plan, plan.first_caller + number)

    def close(self) -> None:
        self._open.close()

    def run(self) -> Tally:
        """Keep every caller busy for the time of the plan, then let the last calls finish."""
        tally = self._tally
        tally.begin()
        cpu_began = time.process_time()
        deadline = tally.began + self._plan.seconds
        for wire, caller in self._callers.items():
            self._go_on(wire, caller.first())
        while self._busy or self._paused:
            now = time.monotonic()
            for wire in [each for each, (until, _) in self._paused.items() if until <= now]:
                _, paused = self._paused.pop(wire)
                if now < deadline:
                    self._go_on(wire, paused._replace(pause_seconds=0.0))
            # Where all callers were pausing when the time ran out, nothing is in flight.
            for wire, answer in self._answers() if self._busy or self._paused else ():
                self._busy -= 1
                step = self._judge(wire, answer)
                if step is not None and (step.owed or time.monotonic() < deadline):
                    self._go_on(wire, step)
        tally.cpu_seconds = time.process_time() - cpu_began
        return tally

    def _go_on(self, wire: Wire, step: Next | None) -> None:
        """Send what comes next, at once or after its pause."""
        if step is None:
            return
        if step.pause_seconds:
            self._paused[wire] = time.monotonic() + step.pause_seconds, step
            return
        try:
            wire.send(step.request)
            self._busy += 1
        except Lost as lost:
            self._go_on(wire, self._begin_again(wire, lost))

    def _judge(self, wire: Wire, answer: Answer | Lost) -> Next | None:
        """Count an answer or an error; return what its caller does next."""
        caller = self._callers[wire]
        if isinstance(answer, Lost):
            return self._begin_again(wire, answer)
        wrong = refusal(caller.call, answer)
        if wrong is not None:
            self._tally.errors[wrong] += 1
            return self._after_error(caller)
        return caller.after(answer, wire.sent_at, self._tally)

    def _begin_again(self, wire: Wire, lost: Lost) -> Next | None:
        caller = self._callers[wire]
        self._tally.errors[f"{caller.call}: {lost}"] += 1
        self._selector.unregister(wire.socket)
        wire.reconnect()
        self._selector.register(wire.socket, selectors.EVENT_READ, wire)
        return self._after_error(caller)

    def _after_error(self, caller: Caller) -> Next | None:
        step = caller.first()
        return None if step is None else step._replace(pause_seconds=ERROR_PAUSE_SECONDS)

    def _answers(self) -> Iterator[tuple[Wire, Answer | Lost]]:
        waits = EMPTY_PAUSE_SECONDS if self._paused else ANSWER_SECONDS
        ready = self._selector.select(waits)
        if not ready and not self._paused:
            raise LoadError(f"no answer within {ANSWER_SECONDS:.0f} s")
        for key, _ in ready:
            try:
                answer = key.data.receive()
            except Lost as lost:
                yield key.data, lost
                continue
            if answer is not None:
                yield key.data, answer
