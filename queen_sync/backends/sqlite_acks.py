"""How acks are judged: which message is meant, under which lease, and then what.

The order of the checks is the contract's (C-04): a message that cannot be found, a lease id
that is missing where the queue wants one, a lease that is not the message's any more. All of a
call is judged under the write lock, so a lane is read once and written once.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import NamedTuple

from queen_sync import ids, model as m
from queen_sync.backends.refusals import (
    AMBIGUOUS,
    LOST,
    NO_LEASE,
    NOT_FOUND,
    NOT_PROCESSED,
    Reason,
    error_of,
)
from queen_sync.backends.sqlite_connections import Session
from queen_sync.backends.sqlite_lane_records import Hold, Place, place_of
from queen_sync.backends.sqlite_lanes import Lane
from queen_sync.backends.sqlite_push import First, address_of, find
from queen_sync.errors import (
    LeaseLost,
    QueenError,
)


class Target(NamedTuple):
    """What an ack means: a message, by its seq, under a lease in a lane."""

    lane: Lane
    hold: Hold
    seq: int


class Verdict(NamedTuple):
    """What became of an ack; ``target`` None: refused for ``reason``."""

    ack: m.Ack
    place: Place | None
    target: Target | None = None
    reason: Reason | None = None
    status: m.Status | None = None
    already: bool = False

    def error(self) -> QueenError:
        """Return a refusal as the error that a transaction raises."""
        return error_of(*(self.reason or NOT_FOUND))

    def value(self) -> m.Acked:
        """Return the answer; made after the whole call, since it tells whether the lease ended."""
        code, text = self.reason or (None, None)
        target = self.target
        return m.Acked(
            transaction_id=self.ack.transaction_id,
            status=self.status,
            already=self.already,
            code=code,
            reason=text,
            queue=None if self.place is None else self.place.queue_name,
            partition=None if self.place is None else self.place.partition_name,
            group=self.ack.group,
            lease_released=target is not None and target.lane.closed is target.hold,
        )


class Judge:
    """Judges the acks of one call, at one instant, in their order."""

    def __init__(self, session: Session, acks: Sequence[m.Ack]) -> None:
        self._session = session
        self._numbers: dict[str, int | None] = {}
        self._places: dict[int, Place | None] = {}
        self._lanes: dict[tuple[int, int], Lane] = {}
        self._groups: dict[tuple[int, str], int | None] = {}
        self._found: dict[int, dict[str, First]] = {}
        self._touched: dict[tuple[int, int], Lane] = {}
        self._given: set[tuple[int, int, str, int]] = set()
        self._look_up(acks)

    def give(self, ack: m.Ack) -> Verdict:
        """Apply one ack, or say why not."""
        place, found = self._resolve(ack)
        if not isinstance(found, Target):
            return Verdict(ack, place, reason=found)
        lane, hold, seq = found
        first = lane.first_outcome(hold, seq)
        if first is not None:
            return Verdict(ack, place, found, status=first, already=True)
        key = lane.place.partition, lane.group
        self._touched[key] = lane
        self._given.add((*key, hold.lease, seq))
        return Verdict(ack, place, found, status=lane.give(seq, ack.outcome, ack.error))

    def stood_before(self, verdict: Verdict) -> bool:
        """Whether an outcome was there before this call: what makes it a repeat (C-15)."""
        target = verdict.target
        if target is None or not verdict.already:
            return False
        lane = target.lane
        given = (lane.place.partition, lane.group, target.hold.lease, target.seq)
        return given not in self._given

    def save(self) -> set[str]:
        """Write the lanes that acks have changed; return the queues in which one may be popped."""
        ready = set()
        for lane in self._touched.values():
            lane.save()
            if lane.hold is None and lane.ready_us is not None:
                ready.add(lane.place.queue_name)
        return ready

    # ----------------------------------------------------------- finding the message

    def _look_up(self, acks: Sequence[m.Ack]) -> None:
        """Find the messages that are named with their partition, all of a partition at once."""
        names: dict[int, list[str]] = {}
        for ack in acks:
            number = None if ack.partition_id is None else self._number(ack.partition_id)
            if number is not None:
                names.setdefault(number, []).append(ack.transaction_id)
        for number, wanted in names.items():
            if self._place(number) is not None:
                self._found[number] = find(self._session, number, wanted)

    def _seq(self, partition: int, name: str) -> int | None:
        """Return which message of a partition a name means."""
        found = self._found.setdefault(partition, {})
        if name not in found:
            found.update(find(self._session, partition, [name]))
        return found[name].seq if name in found else None

    def _number(self, partition_id: str) -> int | None:
        """Return the number in a partition id; the acks of a call nearly all name the same one."""
        if partition_id not in self._numbers:
            self._numbers[partition_id] = ids.partition_number(partition_id)
        return self._numbers[partition_id]

    def _place(self, number: int) -> Place | None:
        if number not in self._places:
            self._places[number] = place_of(self._session, number)
        return self._places[number]

    def _lane(self, place: Place, group: int) -> Lane | None:
        key = place.partition, group
        if key not in self._lanes:
            row = self._session.row("lane", *key)
            if row is None:
                return None
            self._lanes[key] = Lane(self._session, place, row)
        return self._lanes[key]

    def _lane_of(self, place: Place, name: str) -> Lane | None:
        """Return the lane of the group of that name in a partition."""
        key = place.queue, name
        if key not in self._groups:
            row = self._session.row("group_by_name", *key)
            self._groups[key] = None if row is None else row[0]
        group = self._groups[key]
        return None if group is None else self._lane(place, group)

    def _resolve(self, ack: m.Ack) -> tuple[Place | None, Target | Reason]:
        if ack.partition_id is not None:
            number = self._number(ack.partition_id)
            place = None if number is None else self._place(number)
            seqs = [] if place is None else self._seqs(place, ack.group, ack.transaction_id)
            if place is None or not seqs:
                return None, NOT_FOUND
            return place, self._under_lease(place, ack, seqs)
        if ack.lease_id is not None:
            found = list(self._in_lease(ack.lease_id, ack.group, ack.transaction_id))
        else:
            found = list(self._unfenced(ack))
        if len(found) == 1:
            return found[0].lane.place, found[0]
        if found:
            return None, AMBIGUOUS
        return None, self._nowhere(ack)

    def _seqs(self, place: Place, group: str, name: str) -> list[int]:
        """Return the seqs that a name may mean to a group in a partition.

        The name of a redriven message that is no longer stored may have been used again.
        """
        lane = self._lane_of(place, group)
        seqs = [] if lane is None else lane.named(name)
        stored = self._seq(place.partition, name)
        return seqs if stored is None or stored in seqs else [*seqs, stored]

    def _under_lease(self, place: Place, ack: m.Ack, seqs: list[int]) -> Target | Reason:
        unfenced = ack.lease_id is None
        if unfenced and place.require_lease_id:
            return NO_LEASE
        lane = self._lane_of(place, ack.group)
        target = None if lane is None else _target(lane, ack.lease_id, seqs)
        return target or (NOT_PROCESSED if unfenced else LOST)

    def _lanes_of(self, lease: str) -> Iterator[tuple[Lane, str]]:
        """Yield the lanes that carry a lease, run out or not, each with its group's name."""
        rows = self._session.rows("partitions_of_claim", lease)
        said = ids.address(lease)
        partitions = [row[0] for row in rows] or ([] if said is None else [said.partition])
        for number in partitions:
            for _, group, name in self._session.rows("lanes_of_lease", number, lease):
                place = self._place(number)
                lane = None if place is None else self._lane(place, group)
                if lane is not None:
                    yield lane, name

    def _in_lease(self, lease: str, group: str, name: str) -> Iterator[Target]:
        """Yield where a lease of the group covers a message of that name."""
        for lane, owner in self._lanes_of(lease):
            seqs = self._seqs(lane.place, group, name) if owner == group else []
            target = _target(lane, lease, seqs)
            if target is not None:
                yield target

    def _owners(self, ack: m.Ack) -> list[Place]:
        """Return the partitions in which the name of an ack may mean a message to its group."""
        name = ack.transaction_id
        numbers = {row[0] for row in self._session.rows("partitions_of_name", name)}
        numbers |= {row[0] for row in self._session.rows("redriven_of_name", name, ack.group)}
        said = address_of(name)
        if said is not None:
            numbers.add(said.partition)
        places = [place for number in sorted(numbers) if (place := self._place(number))]
        return [place for place in places if self._seqs(place, ack.group, name)]

    def _unfenced(self, ack: m.Ack) -> Iterator[Target]:
        """Yield where a message of that name may be acked without a lease id."""
        for place in self._owners(ack):
            lane = None if place.require_lease_id else self._lane_of(place, ack.group)
            if lane is None:
                continue
            seqs = self._seqs(place, ack.group, ack.transaction_id)
            target = _target(lane, None, seqs)
            if target is not None:
                yield target

    def _nowhere(self, ack: m.Ack) -> Reason:
        """Return why an ack that names no partition means nothing."""
        owners = self._owners(ack)
        if not owners:
            return NOT_FOUND
        if ack.lease_id is not None:
            return LOST
        required = any(place.require_lease_id for place in owners)
        return NO_LEASE if required else NOT_PROCESSED

    # ------------------------------------------------------- leases, for other operations

    def held(self, lease: str) -> list[Lane]:
        """Return the lanes in which a lease is live, in the order in which they were taken."""
        return [
            lane
            for lane, _ in self._lanes_of(lease)
            if lane.hold is not None and lane.hold.lease == lease and lane.live()
        ]

    def live(self, lease: str) -> list[Lane]:
        """Return the lanes in which a lease is live; LeaseLost where it is in none."""
        lanes = self.held(lease)
        if not lanes:
            raise LeaseLost(LOST[1])
        return lanes

    def touch(self, lane: Lane) -> None:
        """Have a lane saved that was changed by other means than an ack."""
        self._touched[lane.place.partition, lane.group] = lane

    def standing(self, lease: str) -> list[tuple[Lane, str]]:
        """Return where a lease is live or the last closed one; LeaseLost where it is nowhere."""
        standing = [pair for pair in self._lanes_of(lease) if pair[0].held(lease)]
        if not standing:
            raise LeaseLost(LOST[1])
        return standing

    def owner_of(self, lease: str) -> str | None:
        """Return the group that a lease was given to, while some lane remembers it."""
        return next((name for _, name in self._lanes_of(lease)), None)

    def covers(self, lane: Lane, group: str, lease: str, name: str) -> bool:
        """Whether a lease of the group covers the message of that name in a lane."""
        return _target(lane, lease, self._seqs(lane.place, group, name)) is not None


def _target(lane: Lane, lease: str | None, seqs: list[int]) -> Target | None:
    """Return which of some messages an ack means in a lane, or None.

    It is that which the lease covers; of several the one of the live lease, then the lowest.
    """
    targets = []
    for seq in seqs:
        hold = lane.covering(seq) if lease is None else lane.held(lease)
        if hold is not None and seq in hold.batch:
            targets.append(Target(lane, hold, seq))
    if len(targets) > 1:
        targets.sort(key=lambda target: (target.hold is not lane.hold, target.seq))
    return targets[0] if targets else None
