"""Runs of the state machine: with which settings, and what a disagreement looks like.

::

    def test_my_backend_agrees_with_the_memory_backend():
        assert_agreement(lambda clock: MemoryBackend(clock=clock), MyBackend)

A backend that is slow to make, such as one on a database, is made once and given a `SharedClock`
(`sharing`): each program has queues of its own names.
"""

from __future__ import annotations

import textwrap
from collections.abc import Callable

import hypothesis
from hypothesis.stateful import run_state_machine_as_test

from queen_sync.backends.base import Backend
from queen_sync.clock import Clock, ManualClock
from queen_sync.conformance.machine import agreement_with

MakeBackend = Callable[[ManualClock], Backend]

PROGRAMS = 25
STEPS = 30


class SharedClock:
    """A clock for a backend that outlives the programs: it tells the time of the present one."""

    def __init__(self) -> None:
        self.present: Clock = ManualClock()

    def now_us(self) -> int:
        return self.present.now_us()


def sharing(clock: SharedClock, backend: Backend) -> MakeBackend:
    """Return a maker that gives every program the same backend, on that program's clock."""

    def make(present: ManualClock) -> Backend:
        clock.present = present
        return backend

    return make


def assert_agreement(
    make_oracle: MakeBackend,
    make_subject: MakeBackend,
    *,
    programs: int = PROGRAMS,
    steps: int = STEPS,
    random: bool = False,
    shrink: bool = True,
) -> None:
    """Run so many programs of so many steps on both backends; fail where an answer differs.

    The programs are the same in every run, or drawn anew with ``random``. The failure has a
    note: the program, shrunk, as a test that can be kept.
    """
    phases = [hypothesis.Phase.generate, *([hypothesis.Phase.shrink] if shrink else [])]
    settings = hypothesis.settings(
        max_examples=programs,
        stateful_step_count=steps,
        derandomize=not random,
        phases=phases,
        deadline=None,
        database=None,
        print_blob=False,
        report_multiple_bugs=False,
        suppress_health_check=list(hypothesis.HealthCheck),
    )
    machine = agreement_with(make_oracle, make_subject)
    try:
        run_state_machine_as_test(machine, settings=settings)
    except AssertionError as error:
        error.add_note(f"\nThe program as a test to keep:\n\n{regression_test(error)}")
        raise


def regression_test(error: BaseException) -> str:
    """Return the program of a failed run as a test, for fixtures that make the two backends."""
    notes = "\n".join(getattr(error, "__notes__", []))
    start = notes.index("state = ")
    program = []
    for line in notes[start:].splitlines():
        program.append(line)
        if line.startswith("state.teardown"):
            break
    return "\n".join(
        [
            "from queen_sync.conformance.machine import agreement_with",
            "",
            "",
            "def test_a_program_on_which_two_backends_disagreed(make_oracle, make_subject):",
            "    Agreement = agreement_with(make_oracle, make_subject)",
            textwrap.indent("\n".join(program), "    "),
            "",
        ]
    )
