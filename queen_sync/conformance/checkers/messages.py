"""Rules about what is stored: nothing lost, invented, doubled, reordered or half done."""

from __future__ import annotations

import bisect
import math
from collections import Counter, defaultdict
from collections.abc import Sequence
from itertools import pairwise

from queen_sync import model as m
from queen_sync.conformance.checkers.violation import Violation
from queen_sync.conformance.facts import NEVER, Facts, Key, Lane, Push
from queen_sync.conformance.history import Operation


def integrity(facts: Facts) -> list[Violation]:
    """Find deliveries of what was not pushed before, to that partition, with those bytes."""
    pushed: dict[tuple[str, str], list[Push]] = defaultdict(list)
    named: dict[tuple[str, str, str], list[Push]] = defaultdict(list)
    unanswered: dict[tuple[str, str, bytes], list[Push]] = defaultdict(list)
    for push in facts.pushes:
        if push.receipt is not None:
            pushed[push.receipt.partition_id, push.receipt.transaction_id].append(push)
        elif push.item.transaction_id is not None:
            named[push.item.queue, push.item.partition, push.item.transaction_id].append(push)
        else:
            unanswered[push.item.queue, push.item.partition, push.item.payload].append(push)
    found = []
    for lane, grants in facts.grants.items():
        for grant in grants:
            for message in grant.messages:
                place = message.queue, message.partition
                sources = [
                    *pushed[lane.partition, message.transaction_id],
                    *named[(*place, message.transaction_id)],
                    *unanswered[(*place, message.payload)],
                ]
                if not any(
                    source.operation.invoked <= grant.operation.returned
                    and source.item.payload == message.payload
                    for source in sources
                ):
                    text = f"{message.partition}#{message.seq} was delivered but never pushed so"
                    calls = (*(source.operation for source in sources[:2]), grant.operation)
                    found.append(Violation("INV-INTEGRITY", text, calls))
    return found


def order(facts: Facts) -> list[Violation]:
    """Find pushes that stand before one answered earlier, or out of their request's order."""
    found = []
    partitions: dict[str, list[tuple[int, int, Push]]] = defaultdict(list)
    for number, push in enumerate(facts.pushes):
        is_placed = push.receipt is not None and push.key not in facts.unplaced
        if push.receipt is not None and is_placed and not push.receipt.duplicate:
            entry = push.receipt.seq, number, push
            partitions[push.receipt.partition_id].append(entry)
    for entries in partitions.values():
        entries.sort()
        for (seq, number, push), (next_seq, next_number, following) in pairwise(entries):
            calls = push.operation, following.operation
            if seq == next_seq:
                text = f"two messages at {push.item.partition}#{seq}"
                found.append(Violation("INV-ORDER", text, calls))
            elif push.operation is following.operation and number > next_number:
                text = f"{push.item.partition}#{next_seq} stands behind its predecessor's place"
                found.append(Violation("INV-ORDER", text, calls[:1]))
        earliest, witness = math.inf, entries[-1][2]
        for _, _, push in reversed(entries):
            if earliest < push.operation.invoked:
                text = f"{push.item.partition}#{push.key and push.key.seq} overtook an earlier push"
                found.append(Violation("INV-ORDER", text, (witness.operation, push.operation)))
            if push.operation.returned < earliest:
                earliest, witness = push.operation.returned, push
    return found


def dedup(facts: Facts) -> list[Violation]:
    """Find transaction ids that are two messages, were queued twice, or never."""
    found = []
    attempts: dict[tuple[str, str, str], list[Push]] = defaultdict(list)
    for push in facts.pushes:
        name = push.item.transaction_id
        if name is None and push.receipt is not None:
            name = push.receipt.transaction_id
        if name is not None:
            attempts[push.item.queue, push.item.partition, name].append(push)
    for (_, partition, name), pushes in attempts.items():
        receipts = [push.receipt for push in pushes if push.receipt is not None]
        calls = tuple(push.operation for push in pushes[:4])
        if len({receipt.id for receipt in receipts}) > 1:
            text = f"{partition}/{name} is more than one message"
            found.append(Violation("INV-DEDUP", text, calls))
        queued = sum(not receipt.duplicate for receipt in receipts)
        if queued > 1:
            found.append(Violation("INV-DEDUP", f"{partition}/{name} was queued twice", calls))
        if receipts and not queued and not any(push.receipt is None for push in pushes):
            text = f"{partition}/{name} was never queued, yet answered as a duplicate"
            found.append(Violation("INV-DEDUP", text, calls))
        first = min(push.operation.invoked for push in pushes)
        for push in pushes:
            # Nothing had been tried before it was answered, by anybody but itself.
            others = [other for other in pushes if other is not push]
            earliest = min((other.operation.invoked for other in others), default=first)
            if push.receipt and push.receipt.duplicate and push.operation.returned < earliest:
                text = f"{partition}/{name} was answered as a duplicate before it was one"
                found.append(Violation("INV-DEDUP", text, (push.operation,)))
    return found


def fan_out(facts: Facts) -> list[Violation]:
    """Find places at which groups, or a pusher, saw different messages."""
    found = []
    seen: dict[Key, tuple[str, Operation]] = {
        key: (push.receipt.id, push.operation)
        for push in facts.pushes
        if (key := push.key) is not None and push.receipt is not None
    }
    for lane, grants in facts.grants.items():
        for grant in grants:
            for message in grant.messages:
                key = Key(lane.partition, message.seq)
                known, operation = seen.setdefault(key, (message.id, grant.operation))
                if known != message.id:
                    text = f"{message.partition}#{message.seq} is {known} and {message.id}"
                    calls = operation, grant.operation
                    found.append(Violation("INV-FANOUT", text, calls))
    return found


def loss(facts: Facts) -> list[Violation]:
    """Find messages that a group was owed and had not settled after a finished drain."""
    found = []
    for key, push in facts.stored().items():
        for group in sorted(facts.groups[push.item.queue]):
            if not facts.entitled(Lane(key.partition, group), key.seq):
                continue
            settled = facts.endings.get((key, group), NEVER).possible < math.inf
            if not settled and (key, group) not in facts.dead:
                given = [
                    grant.operation
                    for grant in facts.grants[Lane(key.partition, group)]
                    if any(message.seq == key.seq for message in grant.messages)
                ]
                text = f"{push.item.partition}#{key.seq} is lost to {group}"
                found.append(Violation("INV-NO-LOSS", text, (push.operation, *given[-2:])))
    return found


def dead_letters(facts: Facts) -> list[Violation]:
    """Find dead letters that are not listed, or listed twice in one page."""
    found = []
    for page in facts.listed_dead:
        for name, count in Counter((letter.id, letter.group) for letter in page).items():
            if count > 1:
                found.append(Violation("INV-DLQ", f"{name} is listed {count} times"))
    for (key, group), outcomes in facts.outcomes.items():
        for outcome in outcomes:
            dead = outcome.answer is not None and outcome.answer.dead_lettered
            if dead and facts.listed_dead and (key, group) not in facts.dead:
                text = f"#{key.seq} was dead-lettered for {group} but is not listed"
                found.append(Violation("INV-DLQ", text, (outcome.operation,)))
    return found


def all_or_nothing(facts: Facts) -> list[Violation]:
    """Find transactions of which a part came to light, and refused ones of which anything did."""
    seen: dict[tuple[str, str, str], Operation] = {}
    for grants in facts.grants.values():
        for grant in grants:
            for message in grant.messages:
                place = message.queue, message.partition, message.transaction_id
                known = seen.setdefault(place, grant.operation)
                if grant.operation.returned < known.returned:
                    seen[place] = grant.operation
    transactions: dict[int, list[tuple[Push, tuple[str, str, str]]]] = defaultdict(list)
    attempts: Counter[tuple[str, str, str]] = Counter()
    for push in facts.pushes:
        if push.item.transaction_id is not None:
            place = push.item.queue, push.item.partition, push.item.transaction_id
            attempts[place] += 1
            if push.operation.name == "transact" and push.receipt is None:
                transactions[id(push.operation)].append((push, place))
    sources: dict[int, list[tuple[Key, str]]] = defaultdict(list)
    for (key, group), outcomes in facts.outcomes.items():
        for outcome in outcomes:
            if id(outcome.operation) in transactions and outcome.ack.outcome == "completed":
                sources[id(outcome.operation)].append((key, group))
    found = []
    for number, pushes in transactions.items():
        call = pushes[0][0].operation
        shown = [place for _, place in pushes if place in seen]
        if 0 < len(shown) < len(pushes):
            text = f"{len(shown)} of {len(pushes)} messages of one transaction exist"
            found.append(Violation("INV-ATOMIC", text, (call,)))
        # Nobody else can have pushed what was seen: so it was done, and its acks count.
        proofs = [seen[place] for place in shown if attempts[place] == 1]
        if proofs:
            found += _sources_again(facts, call, proofs[0], sources[number])
    for operation in facts.refused:
        if operation.name != "transact":
            continue
        for element in operation.arguments[0].operations:
            if not isinstance(element, m.NewMessage) or element.transaction_id is None:
                continue
            place = element.queue, element.partition, element.transaction_id
            if place in seen and not attempts[place]:
                text = f"{element.transaction_id} of a refused transaction was delivered"
                found.append(Violation("INV-ATOMIC", text, (operation,)))
    return found


def _sources_again(
    facts: Facts, transaction: Operation, proof: Operation, sources: Sequence[tuple[Key, str]]
) -> list[Violation]:
    """Find deliveries of what a transaction completed, after one of its messages was delivered."""
    return [
        Violation(
            "INV-ATOMIC",
            f"#{key.seq} came to {group} again beside what became of it",
            (transaction, proof, grant.operation),
        )
        for key, group in sources
        for grant in facts.grants.get(Lane(key.partition, group), ())
        if grant.operation.invoked > proof.returned
        and any(message.seq == key.seq for message in grant.messages)
    ]


def capacity(facts: Facts) -> list[Violation]:
    """Find limited queues that held more than their limit, or were full without need."""
    found = []
    for queue, options in facts.options.items():
        limit = int(options.get("max_queue_size", 0))
        if limit:
            found += _over_limit(facts, queue, limit) + _needlessly_full(facts, queue, limit)
    return found


def _over_limit(facts: Facts, queue: str, limit: int) -> list[Violation]:
    """Count what is certainly stored and not yet possibly settled, instant by instant."""
    events: list[tuple[float, int, Operation]] = []
    for key, push in facts.stored().items():
        if push.item.queue == queue:
            events.append((push.operation.returned, 1, push.operation))
            freed = _settled_by_all(facts, queue, key, certain=False)
            # A message may be settled before its push was answered.
            events.append((max(freed, push.operation.returned), -1, push.operation))
    depth = 0
    for instant, step, operation in sorted(events, key=lambda event: event[:2]):
        depth += step
        if depth > limit and instant < math.inf:
            text = f"{queue} holds {depth} messages, {limit} are allowed"
            return [Violation("INV-CAPACITY", text, (operation,))]
    return []


def _needlessly_full(facts: Facts, queue: str, limit: int) -> list[Violation]:
    began = sorted(push.operation.invoked for push in facts.pushes if push.item.queue == queue)
    ended = sorted(
        _settled_by_all(facts, queue, key, certain=True)
        for key, push in facts.stored().items()
        if push.item.queue == queue
    )
    found = []
    for operation in facts.refused:
        if getattr(operation.error, "queue", None) != queue or operation.name != "push":
            continue
        stored = bisect.bisect_right(began, operation.returned)
        freed = bisect.bisect_left(ended, operation.invoked)
        if stored - freed + len(operation.arguments[0]) <= limit:
            text = f"{queue} holds at most {stored - freed} of {limit} and called itself full"
            found.append(Violation("INV-CAPACITY", text, (operation,)))
    return found


def _settled_by_all(facts: Facts, queue: str, key: Key, *, certain: bool) -> float:
    endings = [facts.endings.get((key, group), NEVER) for group in facts.groups[queue]]
    return max(
        (ending.certain if certain else ending.possible for ending in endings), default=math.inf
    )
