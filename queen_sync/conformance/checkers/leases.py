"""Rules about delivery: one holder at a time, in order, fenced, and never again once settled."""

from __future__ import annotations

import bisect
import math
from collections import Counter, defaultdict
from collections.abc import Sequence
from itertools import pairwise

from queen_sync import model as m
from queen_sync.conformance.checkers.violation import Violation
from queen_sync.conformance.facts import NEVER, Facts, Grant, Key, Lane

SLACK_SECONDS = 0.05
"""How far two stamps of one host may be apart for reasons of their own."""
MAX_SPARE_DELIVERIES = 2
"""How many more deliveries than retries a message may have (C-03)."""


def first_in_first_out(facts: Facts) -> list[Violation]:
    """Find deliveries over a gap: what stands before is settled or in the same batch."""
    found = []
    for lane, grants in facts.grants.items():
        known = [seq for seq in facts.seqs(lane.partition) if facts.entitled(lane, seq)]
        ends = [facts.endings.get((Key(lane.partition, seq), lane.group), NEVER) for seq in known]
        # latest[i]: when everything before the i-th message may be settled at the earliest.
        latest = [-math.inf]
        for ending in ends:
            latest.append(max(latest[-1], ending.possible))
        for grant in grants:
            seqs = [message.seq for message in grant.messages]
            calls = (grant.operation,)
            if seqs != sorted(set(seqs)):
                text = f"a batch of {lane.group} is out of order: {seqs}"
                found.append(Violation("INV-FIFO", text, calls))
                continue
            first = bisect.bisect_left(known, seqs[0])
            skipped = [known[first - 1]] if latest[first] > grant.operation.returned else []
            for before, after in pairwise(seqs):
                inside = range(bisect.bisect_right(known, before), bisect.bisect_left(known, after))
                skipped += [known[i] for i in inside if ends[i].possible > grant.operation.returned]
            if skipped:
                text = f"#{seqs[0]} was delivered to {lane.group} over an unsettled message"
                found.append(Violation("INV-FIFO", f"{text} (at or before #{skipped[0]})", calls))
    return found


def exclusive_claims(facts: Facts) -> list[Violation]:
    """Find two live leases of one lane, and lease ids that were given twice."""
    found = []
    owners: Counter[str] = Counter()
    pops: set[tuple[str, int]] = set()
    for lane, grants in facts.grants.items():
        spans = []
        for grant in grants:
            if grant.lease_id is not None:
                pops.add((grant.lease_id, id(grant.operation)))
                end = _earliest_end(facts, grant) - SLACK_SECONDS
                if end > grant.operation.returned:
                    spans.append((grant.operation.returned, end, grant))
        spans.sort(key=lambda span: span[:2])
        held: tuple[float, float, Grant] | None = None
        for span in spans:
            if held is not None and span[0] < held[1]:
                text = f"two live leases of {lane.group} on one partition"
                calls = held[2].operation, span[2].operation
                found.append(Violation("INV-CLAIM", text, calls))
            if held is None or span[1] > held[1]:
                held = span
    owners.update(lease for lease, _ in pops)
    for lease, count in owners.items():
        if count > 1:
            found.append(Violation("INV-CLAIM", f"lease id {lease} was given {count} times"))
    return found


def _earliest_end(facts: Facts, grant: Grant) -> float:
    """Return the first instant at which the lease may have ended."""
    lease = grant.lease_id or ""
    expiry = grant.operation.invoked + grant.lease_seconds
    for extension in facts.extensions[lease]:
        if extension.outcome == "ok":
            seconds = (*extension.arguments, extension.options.get("seconds"))[1]
            default = max(m.DEFAULT_LEASE_SECONDS, grant.lease_seconds)
            expiry = max(expiry, extension.invoked + (seconds or default))
    settled = -math.inf
    for message in grant.messages:
        place = Key(grant.lane.partition, message.seq), grant.lane.group
        said = [
            o.operation.invoked for o in facts.outcomes.get(place, ()) if o.ack.lease_id == lease
        ]
        settled = max(settled, min(said, default=math.inf))
    given_back = min((release.invoked for release in facts.releases[lease]), default=math.inf)
    return min(expiry, settled, given_back)


def repetitions(facts: Facts) -> list[Violation]:
    """Find messages that came twice with neither expiry nor an outcome in between."""
    return [
        found for lane, grants in facts.grants.items() for found in _unexcused(facts, lane, grants)
    ]


def _unexcused(facts: Facts, lane: Lane, grants: Sequence[Grant]) -> list[Violation]:
    found = []
    for seq, deliveries in _deliveries(grants).items():
        outcomes = facts.outcomes.get((Key(lane.partition, seq), lane.group), ())
        for (_, before), (_, after) in pairwise(deliveries):
            if before.lease_id is None:
                continue
            said = min(
                (
                    outcome.operation.invoked
                    for outcome in outcomes
                    if outcome.ack.lease_id == before.lease_id
                    and (outcome.answer is None or outcome.answer.ok)
                ),
                default=math.inf,
            )
            back = min((r.invoked for r in facts.releases[before.lease_id]), default=math.inf)
            expiry = before.operation.invoked + before.lease_seconds - SLACK_SECONDS
            if after.operation.returned < min(said, back, expiry):
                text = f"#{seq} came twice to {lane.group} for no reason"
                calls = before.operation, after.operation
                found.append(Violation("INV-CLAIM", text, calls))
    return found


def _deliveries(grants: Sequence[Grant]) -> dict[int, list[tuple[int, Grant]]]:
    """Return each message's deliveries with the number they give themselves, in that order.

    Of two pops that overlap nobody outside can say which came first; the number can.
    """
    found: dict[int, list[tuple[int, Grant]]] = defaultdict(list)
    for grant in grants:
        for message in grant.messages:
            found[message.seq].append((message.delivery_count, grant))
    for deliveries in found.values():
        deliveries.sort(key=lambda delivery: (delivery[0], delivery[1].operation.invoked))
    return found


class _Rivals:
    """Which grants of one lane came after another, for certain."""

    def __init__(self, grants: Sequence[Grant]) -> None:
        by_start = sorted(grants, key=lambda grant: grant.operation.invoked)
        self._starts = [grant.operation.invoked for grant in by_start]
        # earliest[i]: the grant, of those that began at i or later, that was answered first.
        earliest: list[Grant] = []
        for grant in reversed(by_start):
            if earliest and earliest[-1].operation.returned < grant.operation.returned:
                earliest.append(earliest[-1])
            else:
                earliest.append(grant)
        self._earliest = earliest[::-1]
        self.of_lease = {grant.lease_id: grant for grant in grants if grant.lease_id is not None}

    def between(self, held: Grant, instant: float) -> Grant | None:
        """Return a grant that was given after ``held`` and before the instant."""
        after = bisect.bisect_right(self._starts, held.operation.returned)
        if after == len(self._earliest):
            return None
        rival = self._earliest[after]
        return rival if rival.operation.returned < instant else None


def fences(facts: Facts) -> list[Violation]:
    """Find what was accepted under a lease after somebody else had been given the partition."""
    found = []
    rivals = {lane: _Rivals(grants) for lane, grants in facts.grants.items()}
    for (key, group), outcomes in facts.outcomes.items():
        of_lane = rivals.get(Lane(key.partition, group))
        for outcome in outcomes:
            answer = outcome.answer
            held = of_lane and of_lane.of_lease.get(outcome.ack.lease_id or "")
            if answer is None or not answer.ok or answer.already or not of_lane or not held:
                continue
            rival = of_lane.between(held, outcome.operation.invoked)
            if rival is not None:
                text = f"{group} acked #{key.seq} under a superseded lease"
                calls = held.operation, rival.operation, outcome.operation
                found.append(Violation("INV-FENCE", text, calls))
    for word, operations in (("extended", facts.extensions), ("released", facts.releases)):
        for lease, calls_made in operations.items():
            lanes = facts.lanes_of(lease)
            for call in calls_made:
                # Over several partitions one that still stands is enough.
                taken = [
                    rivals[lane].between(rivals[lane].of_lease[lease], call.invoked)
                    for lane in lanes
                ]
                if call.outcome == "ok" and lanes and all(taken):
                    held = rivals[lanes[0]].of_lease[lease]
                    text = f"a superseded lease of {lanes[0].group} was {word}"
                    shown = [rival.operation for rival in taken[:1] if rival is not None]
                    found.append(Violation("INV-FENCE", text, (held.operation, *shown, call)))
    return found


def first_words(facts: Facts) -> list[Violation]:
    """Find answers `already` to acks that nothing had been said before."""
    found = []
    for (key, group), outcomes in facts.outcomes.items():
        for outcome in outcomes:
            lease = outcome.ack.lease_id
            if outcome.answer is None or not outcome.answer.already or lease is None:
                continue
            others = [
                other.operation.invoked
                for other in outcomes
                if other is not outcome and other.ack.lease_id == lease
            ]
            others += [release.invoked for release in facts.releases[lease]]
            if min(others, default=math.inf) > outcome.operation.returned:
                text = f"the first word of {group} on #{key.seq} was answered as a repeat"
                found.append(Violation("C-04", text, (outcome.operation,)))
    return found


def durable_acks(facts: Facts) -> list[Violation]:
    """Find deliveries of what had been answered as settled."""
    found = []
    for lane, grants in facts.grants.items():
        for grant in grants:
            for message in grant.messages:
                place = Key(lane.partition, message.seq), lane.group
                if facts.endings.get(place, NEVER).certain < grant.operation.invoked:
                    ack = min(
                        (o.operation for o in facts.outcomes.get(place, ()) if o.certain_end),
                        key=lambda operation: operation.returned,
                        default=None,
                    )
                    text = f"#{message.seq} came to {lane.group} after it was settled"
                    calls = (grant.operation,) if ack is None else (ack, grant.operation)
                    found.append(Violation("INV-DURABLE-ACK", text, calls))
    return found


def retry_bounds(facts: Facts) -> list[Violation]:
    """Find delivery counts that do not rise by one, and messages that failed too often."""
    found = []
    # A pop without an answer delivered something that nobody counted.
    blind = any(call.name == "pop" and call.outcome == "info" for call in facts.operations)
    for lane, grants in facts.grants.items():
        queue = facts.queue_of.get(lane.partition, "")
        limit = int(facts.options[queue].get("retry_limit", m.QueueOptions().retry_limit))
        releases = sum(len(facts.releases[grant.lease_id or ""]) for grant in grants)
        for seq, told in _deliveries(grants).items():
            deliveries = told
            if not facts.numbered and {number for number, _ in told} == {1}:
                # A server that does not count: by the order in which the pops began, then.
                deliveries = [(n, grant) for n, (_, grant) in enumerate(told, 1)]
            numbers = [number for number, _ in deliveries]
            if numbers != list(range(1, len(numbers) + 1)) and not blind:
                text = f"the deliveries of #{seq} to {lane.group} are numbered {numbers}"
                calls = tuple(grant.operation for _, grant in deliveries[:5])
                found.append(Violation("INV-RETRY", text, calls))
            for (_, before), (number, after) in pairwise(deliveries):
                if after.operation.returned < before.operation.invoked:
                    text = f"delivery {number} of #{seq} to {lane.group} came before its forerunner"
                    calls = after.operation, before.operation
                    found.append(Violation("INV-RETRY", text, calls))
            outcomes = facts.outcomes.get((Key(lane.partition, seq), lane.group), ())
            answers = [outcome.answer for outcome in outcomes if outcome.answer is not None]
            fresh = [answer for answer in answers if answer.ok and not answer.already]
            accepted = Counter(answer.status for answer in fresh)
            unknown = sum(outcome.answer is None for outcome in outcomes)
            given_back = accepted["pending"] + unknown + releases
            calls = tuple(outcome.operation for outcome in outcomes[-3:])
            if accepted["failed"] > limit:
                text = f"#{seq} failed {accepted['failed']} times for {lane.group}, limit {limit}"
                found.append(Violation("INV-RETRY", text, calls))
            if len(deliveries) > limit + MAX_SPARE_DELIVERIES + given_back:
                text = f"#{seq} came {len(deliveries)} times to {lane.group}, limit {limit}"
                found.append(Violation("INV-RETRY", text, calls))
    return found
