"""Rules about groups: where each began."""

from __future__ import annotations

from queen_sync.conformance.checkers.violation import Violation
from queen_sync.conformance.facts import Facts, Key


def beginnings(facts: Facts) -> list[Violation]:
    """Find groups that began twice, or were given what lies before their beginning."""
    found = []
    for (queue, group), known in facts.beginnings.items():
        if len(known.asked) > 1:
            text = f"{group} began in {queue} in {len(known.asked)} ways"
            calls = tuple(
                call
                for call in facts.operations
                if call.name == "pop"
                and (call.arguments[0].queue, call.arguments[0].group) == (queue, group)
                and call.arguments[0].subscription in known.asked
            )
            found.append(Violation("INV-SUBSCRIBE", text, calls[:2]))
    stored = facts.stored()
    for lane, grants in facts.grants.items():
        known = facts.beginning(lane)
        if known.mode not in ("new", "from"):
            continue
        from_us = known.asked[0].from_us or 0
        for grant in grants:
            for message in grant.messages:
                push = stored.get(Key(lane.partition, message.seq))
                old = push is not None and push.operation.returned < known.earliest
                if known.mode == "new" and push is not None and old:
                    text = f"{lane.group} was given #{message.seq}, pushed before it began"
                    calls = push.operation, grant.operation
                    found.append(Violation("INV-SUBSCRIBE", text, calls))
                # An instant of 0 is one that the server did not tell.
                if known.mode == "from" and 0 < message.created_us < from_us:
                    text = f"{lane.group} was given #{message.seq}, older than where it begins"
                    found.append(Violation("INV-SUBSCRIBE", text, (grant.operation,)))
    return found
