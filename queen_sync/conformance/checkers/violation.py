"""A broken rule, with the calls that show it."""

from __future__ import annotations

from typing import NamedTuple

from queen_sync.conformance.history import Operation


class Violation(NamedTuple):
    """What was broken, in a sentence, and the smallest part of the history that shows it."""

    invariant: str
    text: str
    operations: tuple[Operation, ...] = ()

    def __str__(self) -> str:
        start = min((operation.invoked for operation in self.operations), default=0.0)
        lines = [f"{self.invariant}: {self.text}"]
        lines += [f"    {operation.line(start)}" for operation in self.operations]
        return "\n".join(lines)
