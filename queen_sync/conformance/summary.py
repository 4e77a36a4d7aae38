"""A checked history in a few numbers: what was tried, what came of it, and what is wrong."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from queen_sync.conformance.checkers import (
    Violation,
    durable_acks,
    integrity,
    loss,
    repetitions,
    rules,
)
from queen_sync.conformance.facts import Facts
from queen_sync.conformance.published import Published


@dataclass(frozen=True, kw_only=True)
class Verdict:
    """What the rules say of one history, and the counts that others publish too."""

    operations: int
    attempted: int
    """Messages that somebody tried to push."""
    acknowledged: int
    """Those of them that were answered."""
    unknown: int
    """Those whose answer never came."""
    recovered: int
    """Those of unknown outcome that were delivered."""
    refused: int
    """Calls of any kind that were refused."""
    deliveries: int
    redeliveries: int
    """Deliveries of what the group had been given before."""
    lost: int | None
    """Answered pushes that a group never saw; None where no drain says so."""
    unexpected: int
    """Deliveries of what nobody pushed."""
    duplicated: int
    """Deliveries of what was settled, or in somebody's hands."""
    violations: list[Violation] = field(default_factory=list)

    @property
    def sentence(self) -> str:
        lost = "loss not known, since no drain was finished" if self.lost is None else None
        return (
            f"{self.operations:,} operations; {self.attempted:,} messages attempted, "
            f"{self.acknowledged:,} acknowledged, {self.unknown:,} unknown of which "
            f"{self.recovered:,} were recovered; {self.deliveries:,} deliveries, "
            f"{self.redeliveries:,} of them again; {lost or f'{self.lost:,} lost'}, "
            f"{self.unexpected:,} unexpected, {self.duplicated:,} duplicated; "
            f"{len(self.violations):,} violations"
        )

    def document(self) -> Mapping[str, object]:
        """Return the verdict as plain JSON values."""
        counts = {name: getattr(self, name) for name in self.__dataclass_fields__}
        counts["violations"] = [
            {"rule": found.invariant, "text": str(found)} for found in self.violations
        ]
        return counts


def judge(history: Published) -> Verdict:
    """Run every rule that applies to the history and count what happened in it."""
    facts = Facts(history.operations)
    broken = {rule: rule(facts) for rule in rules(drained=history.drained)}
    delivered: set[tuple[str, str, str]] = set()
    deliveries = redeliveries = 0
    for grants in facts.grants.values():
        seen: set[int] = set()
        for grant in grants:
            for message in grant.messages:
                deliveries += 1
                redeliveries += message.seq in seen
                seen.add(message.seq)
                delivered.add((message.queue, message.partition, message.transaction_id))
    unknown = [push for push in facts.pushes if push.receipt is None]
    return Verdict(
        operations=len(history.operations),
        attempted=len(facts.pushes),
        acknowledged=len(facts.pushes) - len(unknown),
        unknown=len(unknown),
        recovered=sum(
            (push.item.queue, push.item.partition, push.item.transaction_id) in delivered
            for push in unknown
        ),
        refused=len(facts.refused),
        deliveries=deliveries,
        redeliveries=redeliveries,
        lost=len(broken[loss]) if history.drained else None,
        unexpected=len(broken[integrity]),
        duplicated=len(broken[repetitions]) + len(broken[durable_acks]),
        violations=[found for each in broken.values() for found in each],
    )
