"""A pop: look without the write lock, then take the lanes that have waited longest (C-05).

The line is the index over (group, ready_us, partition). ``ready_us`` is never later than the
instant from which a lane really waits; a lane that turns out to wait for something else is put
back to where it belongs, once, and the next one is looked at. So the work of a pop does not
grow with the number of partitions, and the order is exact all the same.
"""

from __future__ import annotations

from heapq import heappop, heappush
from itertools import groupby
from operator import itemgetter
from typing import NamedTuple

from queen_sync import ids, model as m
from queen_sync.backends.sqlite_acks import Judge
from queen_sync.backends.sqlite_connections import Row, Session
from queen_sync.backends.sqlite_groups import is_other, meet, meet_scope, queues_of, scope_of
from queen_sync.backends.sqlite_lane_records import FRESH, Hold, Place, place_of
from queen_sync.backends.sqlite_lanes import Lane
from queen_sync.backends.sqlite_sealing import opened
from queen_sync.backends.sqlite_seqs import Seqs
from queen_sync.clock import SECOND
from queen_sync.encryption import PAUSE_SECONDS
from queen_sync.errors import Undecryptable

MAX_ROUNDS = 256
"""A pop that has put off so many lanes lets others write before it goes on."""
_BEFORE_ALL = -(2**63)


class Taken(NamedTuple):
    """A lane with the rows of the batch that the pop gets of it."""

    lane: Lane
    rows: list[Row]
    alone: bool


def peek(session: Session, request: m.PopRequest) -> m.Claim | None:
    """Return the empty claim of a pop that can find nothing, None where it has to be tried."""
    if request.attempt_id is not None:
        return None
    if not request.queue:
        row = session.row("peek_scope", request.group, *scope_of(request), session.now_us)
    elif request.partition is None:
        row = session.row("peek", request.queue, request.group, session.now_us)
    else:
        values = (request.queue, request.group, session.now_us, request.partition)
        row = session.row("peek_partition", *values)
    if row is None or row[2]:
        return None
    ignored = is_other(request.subscription, row[0], row[1])
    return m.Claim(group=request.group, subscription_ignored=ignored)


def next_ready_in(session: Session, request: m.PopRequest) -> float | None:
    """Return in how many seconds a pop may find something by time alone, None: never."""
    instants = []
    for queue in queues_of(session, request):
        group = session.row("group_by_name", queue, request.group)
        if group is None:
            # Its first pop has still to come, and may find whatever is stored.
            (stored,) = session.row("stored_in_queue", queue) or (0,)
            row = (0,) if stored else None
        elif request.partition is None:
            row = session.row("next_ready", group[0])
        else:
            row = session.row("next_ready_in_partition", queue, request.partition, group[0])
        if row is not None and row[0] is not None:
            instants.append(int(row[0]))
    return max(0, min(instants) - session.now_us) / SECOND if instants else None


def pop(session: Session, request: m.PopRequest, closed: list[Undecryptable]) -> m.Claim | None:
    """Take what there is, registering the group first; None: go on in another transaction.

    What could not be opened is noted in ``closed`` and not raised: its lane was put off, and
    stays so.
    """
    if request.queue:
        met = meet(session, request.queue, request.group, request.subscription)
        ignored, groups = met.ignored, [] if met.group is None else [[met.group]]
    else:
        scope = scope_of(request)
        ignored = meet_scope(session, *scope, request.group, request.subscription)
        groups = _by_priority(session, request, scope)
    again = _again(session, request)
    if again:
        return _claim(session, request, again, ignored=ignored, lease=again[0].lane.hold)
    for equals in groups:
        taken, finished = _choose(session, request, equals, closed)
        if taken:
            return _claim(session, request, taken, ignored=ignored, lease=None)
        if not finished:
            return None
    return m.Claim(group=request.group, subscription_ignored=ignored)


def _by_priority(
    session: Session, request: m.PopRequest, scope: tuple[str, str]
) -> list[list[int]]:
    """Return the group's numbers in the queues with a lane ready, the highest priority first."""
    rows = session.rows("ready_in_scope", request.group, *scope, session.now_us)
    return [[group for _, group in equals] for _, equals in groupby(rows, key=itemgetter(0))]


class _Line:
    """The lanes that are due, of one group or of several, in the order in which they wait."""

    def __init__(self, session: Session, request: m.PopRequest, groups: list[int]) -> None:
        self._session = session
        self._request = request
        self._heads: list[tuple[int, int, int, Row]] = []
        for group in groups:
            self._push(group, (_BEFORE_ALL, 0))

    def next(self, only: int | None) -> Row | None:
        """Return the next lane's row; ``only``: of that group."""
        while self._heads:
            *_, group, row = self._heads[0]
            if only is None or group == only:
                return row
            heappop(self._heads)
        return None

    def go_on(self) -> None:
        """Leave the lane that `next` returned, once it was dealt with."""
        ready_us, partition, group, _ = heappop(self._heads)
        if self._request.partition is None:
            self._push(group, (ready_us, partition))

    def _push(self, group: int, after: tuple[int, int]) -> None:
        session, name = self._session, self._request.partition
        if name is None:
            row = session.row("next_lane", group, session.now_us, *after)
        else:
            row = session.row("lane_by_partition_name", group, name, session.now_us)
        if row is not None:
            heappush(self._heads, (row[8], row[0], group, row))


def _choose(
    session: Session, request: m.PopRequest, groups: list[int], closed: list[Undecryptable]
) -> tuple[list[Taken], bool]:
    """Return what the pop takes, all of one queue, and whether it looked at all it had to."""
    taken: list[Taken] = []
    claimed: set[int] = set()
    room = request.max_messages
    line = _Line(session, request, groups)
    for _ in range(MAX_ROUNDS + request.max_partitions):
        only = taken[0].lane.group if taken else None
        row = line.next(only) if room and len(taken) < request.max_partitions else None
        if row is None:
            return taken, True
        if row[0] in claimed:
            # An expiry or an eviction has moved it back in the line after it was taken.
            line.go_on()
            continue
        place = place_of(session, row[0])
        assert place is not None, "a group's lanes lie in its queue"
        lane = Lane(session, place, row)
        # A lane that was asked for by name has no place in a line to keep.
        until_us = lane.ready_us if request.partition is None else session.now_us
        found = _look(lane, room, until_us, closed, first=not taken)
        if found is not None:
            taken.append(found)
            claimed.add(place.partition)
            room -= len(found.rows)
            if found.alone:
                return taken, True
        line.go_on()
    return taken, False


def _look(
    lane: Lane, room: int, until_us: int, closed: list[Undecryptable], *, first: bool
) -> Taken | None:
    """Return what the lane gives if it has waited since ``until_us``; None: it is put off.

    A batch ends before a payload that cannot be opened; a lane that begins with one rests.
    """
    now_us = lane.session.now_us
    if lane.hold is not None:
        # A lane that is due and holds a lease is one whose lease ran out (C-03).
        lane.expire()
        lane.evict()
        lane.save()
        until_us = now_us
    else:
        stood_us, lane.ready_us = lane.ready_us, lane.ready()
        its_turn = lane.ready_us is not None and lane.ready_us <= until_us
        if its_turn and lane.evict():
            until_us = now_us
            lane.save()
        elif lane.ready_us != stood_us:
            lane.save()
    if lane.ready_us is None or lane.ready_us > until_us:
        return None  # its turn comes later
    rows, alone = lane.batch(room)
    if alone and not first:
        return None  # it keeps its place in the line
    rows, error = opened(lane.session, lane.place, rows)
    if error is not None and not rows:
        closed.append(error)
        lane.ended_us = now_us + PAUSE_SECONDS * SECOND
        lane.save()
        return None
    return Taken(lane, rows, alone)


def _again(session: Session, request: m.PopRequest) -> list[Taken]:
    """Return what the same pop was given before, less what has its outcome (C-13)."""
    if request.attempt_id is None:
        return []
    row = session.row(
        "attempt", request.group, request.attempt_id, request.queue, *scope_of(request)
    )
    if row is None:
        return []
    found = []
    for lane in Judge(session, ()).held(row[0]):
        rows, error = opened(session, lane.place, lane.open_rows())
        if error is not None:
            raise error  # the lease is somebody's who could read it
        found.append(Taken(lane, rows, alone=False))
    return found


def _claim(
    session: Session,
    request: m.PopRequest,
    taken: list[Taken],
    *,
    ignored: bool,
    lease: Hold | None,
) -> m.Claim:
    """Return what was taken; without a lease yet, put it under one or settle it at once."""
    messages = [message for each in taken for message in _messages(each)]
    lease_id = None if lease is None else lease.lease
    expires_us = None if lease is None else taken[0].lane.expires_us
    if lease is None and request.auto_ack:
        for each in taken:
            each.lane.complete_now([row[0] for row in each.rows])
            each.lane.save()
    elif lease is None:
        lease_id, expires_us = _lease(session, request, taken)
    return m.Claim(
        messages=messages,
        lease_id=lease_id,
        group=request.group,
        expires_us=expires_us,
        partition_count=len(taken),
        subscription_ignored=ignored,
    )


def _lease(session: Session, request: m.PopRequest, taken: list[Taken]) -> tuple[str, int]:
    """Put what was taken under a fresh lease."""
    first = taken[0].lane.place
    lease = ids.lease_id(first.partition)
    expires_us = session.now_us + first.effective_lease_seconds * SECOND
    alone = sum(len(each.rows) for each in taken) == 1
    for each in taken:
        seqs = Seqs.of((row[0], row[0] + 1) for row in each.rows)
        each.lane.take(lease, expires_us, seqs, alone=alone)
        each.lane.save()
    if len(taken) > 1:
        places = [each.lane.place.partition for each in taken]
        session.many("insert_claim", [(lease, i, place) for i, place in enumerate(places)])
    if request.attempt_id is not None:
        what = (request.group, request.attempt_id, request.queue, *scope_of(request))
        session.run("save_attempt", *what, lease, expires_us)
    return lease, expires_us


def _messages(taken: Taken) -> list[m.Message]:
    lane = taken.lane
    place: Place = lane.place
    partition_id = ids.partition_id(place.partition)
    messages = []
    for seq, created_us, transaction_id, trace_id, payload, _ in taken.rows:
        history = lane.history(seq) if lane.retry_count else FRESH
        message_id = ids.message_id(place.partition, seq, created_us)
        messages.append(
            m.Message(
                id=message_id,
                transaction_id=transaction_id or message_id,
                queue=place.queue_name,
                partition=place.partition_name,
                partition_id=partition_id,
                seq=seq,
                payload=payload,
                created_us=created_us,
                trace_id=trace_id,
                delivery_count=history.deliveries + 1,
                failure_count=history.failures,
                error=history.error,
                priority=place.priority,
            )
        )
    return messages
