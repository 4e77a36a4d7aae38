"""What every case stands on: fresh names, a clock, the recorded backend, words for the calls."""

from __future__ import annotations

import functools
import inspect
import os
import re
import secrets
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, ClassVar, TypeVar

import pytest

from queen_sync import model as m
from queen_sync.backends.base import Backend
from queen_sync.clock import Clock, ManualClock
from queen_sync.conformance import published
from queen_sync.conformance.contract import rules_named_in
from queen_sync.conformance.history import History, recorded
from queen_sync.errors import NotSupported
from queen_sync.payloads import JsonText

Function = TypeVar("Function", bound=Callable[..., Any])

CASE_NAME = re.compile(r"test_([a-l]\d\d)_")
NOT_OFFERED = "not offered: "
OWN_WORK = frozenset({"sweep", "next_ready_in", "listen", "removals"})
"""Calls that a server makes for itself, or shows elsewhere, and not over the wire."""
STRESS_SECONDS = float(os.environ.get("QUEEN_STRESS_SECONDS", "4"))
"""How long a concurrent case runs; set QUEEN_STRESS_SECONDS for a longer look."""
DRAIN_ROUNDS = 10_000


def needs(*features: str) -> Callable[[Function], Function]:
    """Mark a case as one about optional features: where one is missing it is not offered."""

    def mark(function: Function) -> Function:
        function.needs = features  # type: ignore[attr-defined]  # read by `Cases.missing`
        return function

    return mark


class Cases:
    """The base of all case groups.

    A binding gives the fixture ``backend`` and may override ``clock``. ``known_failures`` maps
    names of cases to the reason why they fail; a name that is no case, and a listed case
    that passes, are failures themselves.
    """

    known_failures: ClassVar[Mapping[str, str]] = {}
    target_name: ClassVar[str] = ""
    """The column of the report; the class's name where empty."""
    takes_clock: ClassVar[bool | None] = None
    """Whether the target's time is that of ``clock``; None: as its feature ``clock`` says."""
    time_unit_seconds: int = 1
    """The lease of timed cases where time cannot be advanced by hand."""
    sleep: Callable[[float], None] = staticmethod(time.sleep)
    """What lets time pass there."""

    history_file: Path | None = None
    about: Mapping[str, str] = {}
    target: Backend
    aside: Backend
    """The same target, for calls that are no part of the story or of a checked history."""
    history: History
    time: Clock

    # ------------------------------------------------------------------ fixtures

    @pytest.fixture
    def clock(self) -> Clock:
        return ManualClock()

    @pytest.fixture
    def backend(self) -> Backend:
        raise pytest.UsageError(f"{type(self).__name__} needs a fixture 'backend'")

    @pytest.fixture(autouse=True)
    def _case(self, request: pytest.FixtureRequest, backend: Backend, clock: Clock) -> None:
        name = request.function.__name__
        self.bind(backend, clock)
        if missing := self.missing(name):
            pytest.skip(NOT_OFFERED + ", ".join(missing))
        reason = self.known_failure(name, request.config)
        if reason is not None:
            request.applymarker(pytest.mark.xfail(reason=reason, strict=True))
        self.history_file = request.config.getoption("--queen-history", default=None)
        self.about = {"case": name, "target": self.column(request.config)}
        request.node.obj = self.runner(request)

    def test_known_failures_are_cases(self) -> None:
        """Every known failure names a case that exists."""
        assert [name for name in self.known_failures if not hasattr(type(self), name)] == []

    # ------------------------------------------------------------------- running

    @classmethod
    def column(cls, config: pytest.Config) -> str:  # noqa: ARG003  # for suites that ask it
        """Return the name of the target in reports."""
        return cls.target_name or cls.__name__

    def known_failure(self, case: str, config: pytest.Config) -> str | None:  # noqa: ARG002  # the same
        """Return why a case is known to fail, or None."""
        return self.known_failures.get(case)

    def publish(self, *, drained: bool) -> None:
        """Add the recorded history to the file that the run names, where it names one."""
        if self.history_file is not None:
            published.append(self.history_file, self.history, self.about, drained=drained)

    def bind(self, backend: Backend, clock: Clock) -> None:
        """Make this instance ready to run one case against a backend."""
        self.history = History()
        self.target = recorded(backend, self.history)
        self.aside = backend
        self.time = clock

    def missing(self, case: str) -> list[str]:
        """Return the features that a case needs and the target does not offer."""
        wanted: Sequence[str] = getattr(getattr(type(self), case), "needs", ())
        return [name for name in wanted if name not in self.target.capabilities.features]

    def runner(self, request: pytest.FixtureRequest) -> Callable[..., Any]:
        """Return what pytest calls in place of the case that it asks for."""
        return self.telling(request.node.obj)

    def telling(self, case: Callable[..., Any]) -> Callable[..., Any]:
        """Return the case so that its failure tells the rule and the calls that were made."""

        @functools.wraps(case)
        def tell(*args: Any, **kwargs: Any) -> None:
            __tracebackhide__ = True
            try:
                case(*args, **kwargs)
            except Exception as error:
                if isinstance(error, NotSupported) and error.feature in OWN_WORK:
                    pytest.skip(NOT_OFFERED + error.feature)
                story = self.history.story()
                error.add_note(f"\n{self.explain(case)}\n\nCalls and answers:\n{story}")
                raise

        return tell

    def explain(self, case: Callable[..., Any]) -> str:
        """Return what a case says, and the rules of CONTRACT.md that it names."""
        said = inspect.cleandoc(case.__doc__ or case.__name__)
        rules = [f"{number}: {text}" for number, text in rules_named_in(said).items()]
        return "\n".join([said, *rules, "Rules: queen_sync/conformance/CONTRACT.md"])

    # ---------------------------------------------------------------------- time

    @property
    def by_hand(self) -> bool:
        """Whether this target's time is advanced by hand."""
        takes = self.takes_clock
        if takes is None:
            takes = "clock" in self.target.capabilities.features
        return takes and isinstance(self.time, ManualClock)

    @property
    def unit(self) -> int:
        """The seconds of a lease (a delay, a window) in cases about time."""
        return 10 if self.by_hand else self.time_unit_seconds

    @property
    def tick(self) -> float:
        """How near before an instant a case may look, in seconds."""
        if self.by_hand:
            return max(1, self.target.capabilities.clock_resolution_us) / 1_000_000
        return 0.4 * self.time_unit_seconds

    def advance(self, seconds: float) -> None:
        """Let ``seconds`` pass."""
        if isinstance(self.time, ManualClock) and self.by_hand:
            self.time.advance(seconds)
        else:
            # A sleep may end a moment early by the target's clock.
            self.sleep(seconds + 0.02)

    # --------------------------------------------------------------------- words

    def name(self, word: str = "queue") -> str:
        """Return a name that nothing else uses."""
        return f"{word}-{secrets.token_hex(6)}"

    def queue(self, **options: int | bool) -> str:
        """Return a fresh queue's name, configured where options are given."""
        name = self.name()
        if options:
            self.target.configure(name, options)
        return name

    def push(
        self,
        queue: str,
        *values: Any,
        partition: str = m.DEFAULT_PARTITION,
        ids: Sequence[str] | None = None,
    ) -> list[m.Receipt]:
        """Push Python values to one partition, in one call."""
        names: Sequence[str | None] = ids or [None] * len(values)
        return self.target.push(
            [
                m.NewMessage.of(queue, value, partition=partition, transaction_id=name)
                for value, name in zip(values, names, strict=True)
            ]
        )

    def push_text(self, queue: str, text: bytes) -> m.Receipt:
        """Push JSON text as it stands."""
        return self.target.push([m.NewMessage(queue=queue, payload=JsonText.check(text))])[0]

    def pop(self, queue: str, count: int = 1, **wanted: Any) -> m.Claim:
        """Pop up to ``count`` messages; further words are those of `PopRequest`."""
        return self.target.pop(m.PopRequest(queue=queue, max_messages=count, **wanted))

    def take(self, queue: str, count: int = 1, **wanted: Any) -> m.Claim:
        """Pop exactly ``count`` messages."""
        claim = self.pop(queue, count, **wanted)
        assert len(claim.messages) == count
        return claim

    def ack(
        self,
        claim: m.Claim,
        outcome: m.Outcome = "completed",
        *,
        only: Sequence[int] | None = None,
        error: str | None = None,
    ) -> list[m.Acked]:
        """Ack the messages of a claim, or those at the places ``only``, in one call."""
        return self.target.ack(acks_of(claim, outcome, only=only, error=error))

    def settle(self, claim: m.Claim) -> None:
        """Complete a claim."""
        assert {answer.status for answer in self.ack(claim)} <= {"completed"}

    def drain(self, queue: str, count: int = 100, **wanted: Any) -> list[Any]:
        """Pop and complete until nothing comes; return the values in the order they came."""
        values: list[Any] = []
        for _ in range(DRAIN_ROUNDS):
            claim = self.pop(queue, count, **wanted)
            if not claim:
                return values
            values += values_of(claim)
            self.settle(claim)
        raise AssertionError(f"{queue} does not run dry")

    def dead(self, queue: str, **wanted: Any) -> list[m.DeadLetter]:
        """Return the dead letters of a queue, oldest first."""
        page = self.target.dead_letters(m.DeadLetterFilter(queue=queue, **wanted))
        return sorted(
            page.items, key=lambda letter: (letter.failed_us, letter.partition, letter.seq)
        )

    def lag(self, queue: str, group: str) -> int:
        """Return how many messages a group has still to settle."""
        return next(found.lag for found in self.target.groups(queue) if found.name == group)


def acks_of(
    claim: m.Claim,
    outcome: m.Outcome = "completed",
    *,
    only: Sequence[int] | None = None,
    error: str | None = None,
) -> list[m.Ack]:
    """Return the acks for the messages of a claim, or for those at the places ``only``."""
    places = range(len(claim.messages)) if only is None else only
    return [
        m.Ack(
            transaction_id=claim.messages[place].transaction_id,
            outcome=outcome,
            partition_id=claim.messages[place].partition_id,
            group=claim.group,
            lease_id=claim.lease_id,
            error=error,
        )
        for place in places
    ]


def values_of(claim: m.Claim) -> list[Any]:
    """Return the payloads of a claim as Python values."""
    return [message.value for message in claim.messages]


def case_id(name: str) -> str:
    """Return the id in a case's name, ``A04`` for ``test_a04_...``, or nothing."""
    found = CASE_NAME.match(name)
    return found.group(1).upper() if found else ""


def case_names(cases: type[Cases]) -> Iterator[str]:
    """Yield the names of all cases of a class, in the order of their ids."""
    names = (name for name, _ in inspect.getmembers(cases, inspect.isfunction))
    yield from sorted(name for name in names if case_id(name))
