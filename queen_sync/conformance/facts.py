"""A history sorted into facts: who pushed what, who was given it, what they said about it.

A message is known by its partition and its place there (`Key`). Checkers read facts only,
so a rule is a few lines about pushes, grants and outcomes and does not know which call
they came with.
"""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, NamedTuple

from queen_sync import model as m
from queen_sync.conformance.history import Operation
from queen_sync.conformance.places import placed

DEFAULT_LEASE_SECONDS = m.QueueOptions().effective_lease_seconds


class Key(NamedTuple):
    """A message: the partition's id and the message's seq."""

    partition: str
    seq: int


class Lane(NamedTuple):
    """What a lease is about: one partition, one group."""

    partition: str
    group: str


class Push(NamedTuple):
    """One message of a push or a transaction; no receipt where the answer never came."""

    operation: Operation
    item: m.NewMessage
    receipt: m.Receipt | None

    @property
    def key(self) -> Key | None:
        return None if self.receipt is None else Key(self.receipt.partition_id, self.receipt.seq)


class Grant(NamedTuple):
    """What one pop was given in one partition."""

    operation: Operation
    lane: Lane
    lease_id: str | None
    messages: tuple[m.Message, ...]
    lease_seconds: int
    auto_ack: bool


class Outcome(NamedTuple):
    """What was said about a message, and what was answered; no answer where none came."""

    operation: Operation
    ack: m.Ack
    answer: m.Acked | None
    group: str

    @property
    def certain_end(self) -> bool:
        """Whether the message is settled, for certain."""
        answer = self.answer
        return answer is not None and answer.ok and answer.status in ("completed", "dead_letter")

    @property
    def possible_end(self) -> bool:
        """Whether the message may be settled."""
        return self.certain_end or (self.answer is None and self.ack.outcome != "retry")


class Beginning(NamedTuple):
    """What is known of a group's first pop: the instants between which it registered the group."""

    earliest: float
    latest: float
    asked: tuple[m.Subscription, ...] = ()
    """The beginnings that pops asked for and were not told to be ignored."""

    @property
    def mode(self) -> str | None:
        """How the group began: ``all`` where nothing else was asked; None where it is not sure."""
        modes = {each.mode for each in self.asked}
        return "all" if not modes else modes.pop() if len(modes) == 1 else None


class Ending(NamedTuple):
    """The earliest instant at which a message may be, and must be, settled for a group."""

    possible: float
    certain: float


NEVER = Ending(math.inf, math.inf)


class Facts:
    """The facts of one history."""

    def __init__(self, operations: Iterable[Operation]) -> None:
        given = sorted(operations, key=lambda operation: operation.invoked)
        self.operations = placed(given)
        self.numbered = self.operations is given
        """Whether the places of messages, and the numbers of deliveries, are the server's own."""
        self.options: dict[str, dict[str, int | bool]] = defaultdict(dict)
        self._set: dict[tuple[str, str], list[tuple[float, int | bool]]] = defaultdict(list)
        self.pushes: list[Push] = []
        self.refused: list[Operation] = []
        self.grants: dict[Lane, list[Grant]] = defaultdict(list)
        self.outcomes: dict[tuple[Key, str], list[Outcome]] = defaultdict(list)
        self.releases: dict[str, list[Operation]] = defaultdict(list)
        self.extensions: dict[str, list[Operation]] = defaultdict(list)
        self.dead: dict[tuple[Key, str], m.DeadLetter] = {}
        self.listed_dead: list[list[m.DeadLetter]] = []
        self.groups: dict[str, set[str]] = defaultdict(set)
        self.beginnings: dict[tuple[str, str], Beginning] = {}
        self.partitions: dict[tuple[str, str], str] = {}
        self.queue_of: dict[str, str] = {}
        self._key_of: dict[tuple[str, str], Key] = {}
        self._stored: dict[Key, Push] | None = None
        self._first: dict[Lane, float] = {}
        self._seqs: dict[str, list[int]] = {}
        self._lease_lanes: dict[str, list[Lane]] = defaultdict(list)
        acks: list[tuple[Operation, m.Ack, m.Acked | None]] = []
        for operation in self.operations:
            self._read(operation, acks)
        for operation, ack, answer in acks:
            self._place(operation, ack, answer)
        self.unplaced = frozenset() if self.numbered else self._never_seen()
        """Messages of which only the receipt is known, from a server that gives no places."""
        self.endings = self._endings()

    def lease_seconds(self, queue: str) -> int:
        """Return how long a lease of the queue lasts, by the last option that was set."""
        chosen = int(self.options[queue].get("lease_seconds", DEFAULT_LEASE_SECONDS))
        return chosen or m.DEFAULT_LEASE_SECONDS

    def option(self, queue: str, name: str) -> tuple[float, int | bool]:
        """Return an option and the instant by which it held; 0 where it was changed meanwhile."""
        found = self._set[queue, name]
        if len({value for _, value in found}) != 1:
            return math.inf, 0
        return min(found)

    def beginning(self, lane: Lane) -> Beginning:
        """Return what is known of the first pop of a group in the queue of a partition."""
        place = self.queue_of.get(lane.partition, ""), lane.group
        return self.beginnings.get(place, Beginning(-math.inf, math.inf))

    def entitled(self, lane: Lane, seq: int) -> bool:
        """Whether the group is owed the message for certain.

        All of them, unless it began later: then whatever stands behind the first that it was given,
        and what was pushed after its first pop had been answered.
        """
        beginning = self.beginning(lane)
        key = Key(lane.partition, seq)
        if beginning.mode == "all":
            return True
        if seq >= self._first_given(lane) and key not in self.unplaced:
            return True
        push = self.stored().get(key)
        return (
            beginning.mode == "new"
            and push is not None
            and push.operation.invoked > beginning.latest
        )

    def lanes_of(self, lease_id: str) -> Sequence[Lane]:
        """Return what was given under a lease."""
        return self._lease_lanes.get(lease_id, ())

    def _first_given(self, lane: Lane) -> float:
        if lane not in self._first:
            given = [grant.messages[0].seq for grant in self.grants[lane]]
            self._first[lane] = min(given, default=math.inf)
        return self._first[lane]

    def stored(self) -> dict[Key, Push]:
        """Return every message that some push reported as queued."""
        if self._stored is None:
            self._stored = {
                push.key: push
                for push in self.pushes
                if push.key is not None and push.receipt is not None and not push.receipt.duplicate
            }
        return self._stored

    def seqs(self, partition: str) -> list[int]:
        """Return the seqs of a partition that are known to exist, ascending."""
        if not self._seqs:
            known: dict[str, set[int]] = defaultdict(set)
            for key in self._key_of.values():
                known[key.partition].add(key.seq)
            self._seqs = {name: sorted(seqs) for name, seqs in known.items()}
        return self._seqs.get(partition, [])

    # ------------------------------------------------------------------ reading

    def _read(
        self, operation: Operation, acks: list[tuple[Operation, m.Ack, m.Acked | None]]
    ) -> None:
        argument: Any = operation.arguments[0] if operation.arguments else None
        if operation.outcome == "fail":
            self.refused.append(operation)
            return
        match operation.name:
            case "configure":
                if len(operation.arguments) > 1 and operation.arguments[1]:
                    self.options[argument].update(operation.arguments[1])
                    for name, value in operation.arguments[1].items():
                        self._set[argument, name].append((operation.returned, value))
            case "push":
                self._read_pushes(operation, argument, operation.answer)
            case "pop":
                self._read_pop(operation, argument)
            case "ack":
                answers = operation.answer or [None] * len(argument)
                pairs = zip(argument, answers, strict=True)
                acks += [(operation, ack, answer) for ack, answer in pairs]
            case "transact":
                self._read_transaction(operation, argument, acks)
            case "release":
                self.releases[argument].append(operation)
            case "extend":
                self.extensions[argument].append(operation)
            case "dead_letters":
                if operation.answer is not None:
                    self._read_dead(operation.answer.items)

    def _read_pushes(
        self,
        operation: Operation,
        items: Iterable[m.NewMessage],
        receipts: Iterable[m.Receipt] | None,
    ) -> None:
        items = list(items)
        answers: list[m.Receipt | None] = [None] * len(items) if receipts is None else [*receipts]
        for item, receipt in zip(items, answers, strict=True):
            self.pushes.append(Push(operation, item, receipt))
            if receipt is not None:
                place = receipt.partition_id
                self.partitions[item.queue, item.partition] = place
                self.queue_of[place] = item.queue
                self._key_of[place, receipt.transaction_id] = Key(place, receipt.seq)

    def _read_pop(self, operation: Operation, request: m.PopRequest) -> None:
        self.groups[request.queue].add(request.group)
        claim: m.Claim | None = operation.answer
        self._read_beginning(operation, request, claim)
        if not claim:
            return
        shares: dict[str, list[m.Message]] = defaultdict(list)
        for message in claim.messages:
            shares[message.partition_id].append(message)
            self.partitions[message.queue, message.partition] = message.partition_id
            self.queue_of[message.partition_id] = message.queue
            key = Key(message.partition_id, message.seq)
            self._key_of[message.partition_id, message.transaction_id] = key
        for partition, messages in shares.items():
            lane = Lane(partition, request.group)
            if claim.lease_id is not None:
                self._lease_lanes[claim.lease_id].append(lane)
            self.grants[lane].append(
                Grant(
                    operation,
                    lane,
                    claim.lease_id,
                    tuple(messages),
                    self.lease_seconds(request.queue),
                    request.auto_ack,
                )
            )

    def _read_beginning(
        self, operation: Operation, request: m.PopRequest, claim: m.Claim | None
    ) -> None:
        place = request.queue, request.group
        known = self.beginnings.get(place, Beginning(operation.invoked, math.inf))
        asked = request.subscription
        told_otherwise = claim is not None and claim.subscription_ignored
        if asked is not None and not told_otherwise and asked not in known.asked:
            known = known._replace(asked=(*known.asked, asked))
        self.beginnings[place] = known._replace(latest=min(known.latest, operation.returned))

    def _read_transaction(
        self,
        operation: Operation,
        transaction: m.Transaction,
        acks: list[tuple[Operation, m.Ack, m.Acked | None]],
    ) -> None:
        done: m.Transacted | None = operation.answer
        results = [None] * len(transaction.operations) if done is None else list(done.results)
        for element, result in zip(transaction.operations, results, strict=True):
            if isinstance(element, m.NewMessage):
                receipts = [result] if isinstance(result, m.Receipt) else None
                self._read_pushes(operation, [element], receipts)
            else:
                acks.append((operation, element, result if isinstance(result, m.Acked) else None))

    def _read_dead(self, letters: Iterable[m.DeadLetter]) -> None:
        page = list(letters)
        self.listed_dead.append(page)
        for letter in page:
            self.dead[Key(letter.partition_id, letter.seq), letter.group] = letter

    def _place(self, operation: Operation, ack: m.Ack, answer: m.Acked | None) -> None:
        """File an ack under the message it names; one that names none known is no fact."""
        lanes = self._lease_lanes.get(ack.lease_id or "", [])
        group = lanes[0].group if lanes else ack.group
        partitions = [lane.partition for lane in lanes]
        if ack.partition_id is not None:
            partitions = [ack.partition_id]
        for partition in partitions:
            key = self._key_of.get((partition, ack.transaction_id))
            if key is not None:
                self.outcomes[key, group].append(Outcome(operation, ack, answer, group))

    def _never_seen(self) -> frozenset[Key]:
        seen = {
            Key(lane.partition, message.seq)
            for lane, grants in self.grants.items()
            for grant in grants
            for message in grant.messages
        }
        seen |= {key for key, _ in self.dead}
        return frozenset(push.key for push in self.pushes if push.key is not None) - seen

    def _endings(self) -> Mapping[tuple[Key, str], Ending]:
        endings: dict[tuple[Key, str], Ending] = {}

        def note(place: tuple[Key, str], possible: float, certain: float) -> None:
            known = endings.get(place, NEVER)
            endings[place] = Ending(min(known.possible, possible), min(known.certain, certain))

        for place, outcomes in self.outcomes.items():
            for outcome in outcomes:
                if outcome.possible_end:
                    certain = outcome.operation.returned if outcome.certain_end else math.inf
                    note(place, outcome.operation.invoked, certain)
        for lane, grants in self.grants.items():
            last_given: dict[tuple[Key, str], float] = {}
            for grant in grants:
                for message in grant.messages:
                    place = Key(lane.partition, message.seq), lane.group
                    last_given[place] = grant.operation.invoked
                    if grant.auto_ack:
                        note(place, grant.operation.invoked, grant.operation.returned)
            for place, instant in last_given.items():
                if place in self.dead and place not in endings:
                    # Dead-lettered by expiry: after its last delivery, nobody saw when.
                    note(place, instant, math.inf)
        return endings
