"""Rules over a recorded history: one function for each promise of CONTRACT.md.

A rule takes `Facts` and returns the violations that it finds, each with the few calls that
show it. Rules never guess: where an answer is missing, every outcome that it may have had is
allowed. All of them run in O(n log n).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence

from queen_sync.conformance.checkers.groups import beginnings
from queen_sync.conformance.checkers.leases import (
    durable_acks,
    exclusive_claims,
    fences,
    first_in_first_out,
    first_words,
    repetitions,
    retry_bounds,
)
from queen_sync.conformance.checkers.messages import (
    all_or_nothing,
    capacity,
    dead_letters,
    dedup,
    fan_out,
    integrity,
    loss,
    order,
)
from queen_sync.conformance.checkers.timing import delays, retry_delays, windows
from queen_sync.conformance.checkers.violation import Violation
from queen_sync.conformance.facts import Facts
from queen_sync.conformance.history import Operation

Rule = Callable[[Facts], list[Violation]]

ALWAYS: tuple[Rule, ...] = (
    integrity,
    order,
    dedup,
    fan_out,
    first_in_first_out,
    exclusive_claims,
    repetitions,
    fences,
    first_words,
    durable_acks,
    retry_bounds,
    all_or_nothing,
    capacity,
    beginnings,
    delays,
    windows,
    retry_delays,
)
"""What holds at every instant of a run."""
AT_REST: tuple[Rule, ...] = (loss, dead_letters)
"""What holds once everything has been drained and the dead letters have been listed."""


def violations(operations: Iterable[Operation], *, drained: bool) -> list[Violation]:
    """Return what the history breaks; ``drained`` says that it ends in a finished drain."""
    facts = Facts(operations)
    return [found for rule in rules(drained=drained) for found in rule(facts)]


def rules(*, drained: bool) -> Sequence[Rule]:
    """Return the rules for a run that was drained, or for one that was not."""
    return ALWAYS + AT_REST if drained else ALWAYS


__all__ = [
    "ALWAYS",
    "AT_REST",
    "Rule",
    "Violation",
    "all_or_nothing",
    "beginnings",
    "capacity",
    "dead_letters",
    "dedup",
    "delays",
    "durable_acks",
    "exclusive_claims",
    "fan_out",
    "fences",
    "first_in_first_out",
    "first_words",
    "integrity",
    "loss",
    "order",
    "repetitions",
    "retry_bounds",
    "retry_delays",
    "rules",
    "violations",
    "windows",
]
