"""Concurrent small calls folded into one: many callers, one commit.

The first caller to come leads: it carries whatever has gathered while the call before it was
under way, and hands the lead over. Nobody waits when nothing else is going on; where there was a
crowd, the leader gives those who were just answered half a millisecond to come back. Each caller
gets its own answer or its own error: where the folded call is refused for any reason that leaves
nothing done, everybody makes its call alone, and until a lone call is back, others on the same
lane do not fold, so a lane that is blocked holds up no other twice.
"""

from __future__ import annotations

import threading
from collections import Counter
from collections.abc import Callable, Hashable, Sequence
from enum import Enum, auto
from typing import Generic, TypeVar

from queen_sync.bell import Bell
from queen_sync.errors import OutcomeUnknown, QueenError

Call = TypeVar("Call")
Answer = TypeVar("Answer")

MAX_FOLDED = 256
"""So many calls are folded into one at most: a bound on how long its locks are held."""
GATHER_SECONDS = 0.0005
_UNKNOWN = "the call was made together with others, and its answer was lost"


class _State(Enum):
    WAITING = auto()
    LEADS = auto()
    ANSWERED = auto()
    ALONE = auto()


class _Ticket(Generic[Call, Answer]):
    """One caller's place in the line."""

    __slots__ = ("answer", "call", "error", "state", "told")

    def __init__(self, call: Call) -> None:
        self.call = call
        self.state = _State.WAITING
        self.answer: Answer | None = None
        self.error: QueenError | None = None
        self.told = Bell()

    def tell(self, state: _State) -> None:
        self.state = state
        self.told.ring()


class Combiner(Generic[Call, Answer]):
    """Folds calls; safe to share between threads.

    ``together`` makes calls in one step, all or nothing, without waiting long, and returns an
    answer each; ``alone`` makes one, however long it takes. ``kind`` says which calls may be
    folded with each other, ``lanes`` what a call may have to wait for.
    """

    def __init__(
        self,
        together: Callable[[Sequence[Call]], Sequence[Answer]],
        alone: Callable[[Call], Answer],
        *,
        kind: Callable[[Call], Hashable],
        lanes: Callable[[Call], frozenset[Hashable]],
    ) -> None:
        self._together = together
        self._run_alone = alone
        self._kind = kind
        self._lanes = lanes
        self._lock = threading.Lock()
        self._line: list[_Ticket[Call, Answer]] = []
        self._led = False
        self._crowd = 1
        self._full = Bell()
        self._busy: Counter[Hashable] = Counter()

    def do(self, call: Call) -> Answer:
        """Make a call, folded with others where there are any, and return its answer."""
        ticket: _Ticket[Call, Answer] = _Ticket(call)
        with self._lock:
            if self._busy and not self._busy.keys().isdisjoint(self._lanes(call)):
                ticket.state = _State.ALONE
            else:
                self._line.append(ticket)
                if len(self._line) >= self._crowd:
                    self._full.ring()
                if not self._led:
                    self._led = True
                    ticket.state = _State.LEADS
        if ticket.state is _State.WAITING:
            ticket.told.wait()
        if ticket.state is _State.LEADS:
            self._lead(ticket)
        if ticket.state is _State.ALONE:
            return self._alone(call)
        if ticket.error is not None:
            raise ticket.error
        assert ticket.answer is not None
        return ticket.answer

    def _lead(self, own: _Ticket[Call, Answer]) -> None:
        """Carry one round, with the leader's own call, and hand the lead over."""
        self._gather()
        with self._lock:
            kind = self._kind(own.call)
            crew = [each for each in self._line if each is own or self._kind(each.call) == kind]
            # The leader's own call goes along however long the line is.
            crew = [each for each in crew if each is not own][: MAX_FOLDED - 1]
            crew.insert(0, own)
            chosen = set(map(id, crew))
            self._line = [each for each in self._line if id(each) not in chosen]
        try:
            self._round(crew)
        finally:
            for each in crew:
                if each.state in {_State.WAITING, _State.LEADS}:  # the round died under them
                    each.error = OutcomeUnknown(_UNKNOWN)
                    each.tell(_State.ANSWERED)
            with self._lock:
                self._crowd = min(len(crew) + len(self._line), MAX_FOLDED)
                if self._line:
                    self._line[0].tell(_State.LEADS)
                else:
                    self._led = False

    def _gather(self) -> None:
        """Wait a moment for as many as were there a moment ago; one that is alone waits for nobody.

        Those who have just been answered are about to call again. Left behind, they would be the
        next round, and every round half as large: with four callers to a process a push of one
        message then costs the database 190 µs instead of 120.
        """
        with self._lock:
            if len(self._line) >= self._crowd:
                return
            self._full.hush()
        self._full.wait(GATHER_SECONDS)

    def _round(self, crew: list[_Ticket[Call, Answer]]) -> None:
        # One call too goes this way: a leader must not wait for a lane while others stand in line.
        try:
            answers = self._together([each.call for each in crew])
        except OutcomeUnknown as error:
            for each in crew:
                each.error = OutcomeUnknown(error.message)
                each.tell(_State.ANSWERED)
        except QueenError:
            for each in crew:
                each.tell(_State.ALONE)
        else:
            for each, answer in zip(crew, answers, strict=True):
                each.answer = answer
                each.tell(_State.ANSWERED)

    def _alone(self, call: Call) -> Answer:
        lanes = self._lanes(call)
        with self._lock:
            self._busy.update(lanes)
        try:
            return self._run_alone(call)
        finally:
            with self._lock:
                self._busy.subtract(lanes)
                self._busy += Counter()  # drops what is down to zero
