"""Pops: of a queue, of a namespace or task, repeated ones, and the groups they register."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Sequence
from datetime import datetime
from functools import partial
from typing import Any

import msgspec

from queen_sync import model as m
from queen_sync.backends.postgres_acks import settle
from queen_sync.backends.postgres_connections import POSTGRES_EPOCH_US, Connections, Cursor
from queen_sync.backends.postgres_rows import popped_of, subscription_of
from queen_sync.clock import to_datetime
from queen_sync.encryption import PAUSE_SECONDS, KeyRing
from queen_sync.errors import BackendError, Undecryptable

log = logging.getLogger(__name__)

REGISTER_CHUNK = 1_000
MAX_REGISTRATIONS = 5
MAX_ROUNDS = 20
"""How often a pop tries again after all that it was given had to be put off."""

LOOK_SECONDS = 1.0
FLOOR_DISTANCE_US = 100_000
MAX_FLOORS = 10_000

_POP = (
    "select partition_id, seq, created_at, transaction_id, trace_id::text, payload, deliveries,"
    " failures, note, lease_id::text, expires_at, key_id"
    " from queen.pop(%s, %s, %s, %s::int4, %s::int4, %s, %s, %s, %s, %s)"
)
_CLAIMED = (
    "select partition_id, seq, created_at, transaction_id, trace_id::text, payload, deliveries,"
    " failures, note, lease_id::text, expires_at, key_id from queen.claimed(%s, %s)"
)
_PUT_OFF = "select queen.put_off(%s::uuid, %s, %s, %s::int4, %s)"
_ATTEMPTED = "select queen.attempted(%s)"
_REMEMBER = "select queen.remember_attempt(%s, %s::uuid, %s)"
_SCOPE_QUEUES = "select queue_name, registered from queen.scope_queues(%s, %s, %s, %s)"
_SCOPE_READY = "select queen.scope_ready_in(%s, %s, %s, %s)"
_READY = "select queen.next_ready_in(%s, %s, %s, %s)"
_READY_NOW = (
    "select queen.ready_now(%s::text[], %s::text[], %s::text[], %s::text[], %s::text[], %s)"
)
_BEGIN_SCOPE = "select mode, start_at, made from queen.begin_scope(%s, %s, %s, %s, %s, %s)"
_BEGIN_GROUP = "select group_id, mode, start_at from queen.begin_group(%s, %s, %s, %s, %s, %s)"
_ENTERING = "select group_name from queen.entering_groups(%s)"
_REGISTER = "select queen.register_partitions(%s, %s, %s::int4, %s)"
_FINISH = "select queen.finish_group(%s)"

Call = Callable[[Callable[[Cursor], Any]], Any]
"""Runs work that needs a cursor: in a transaction of its own, or inside the caller's."""


class Unregistered(Exception):  # noqa: N818  # no error: the pop goes on after registering
    """The group is not registered in these queues, and must be before the pop can be answered."""

    def __init__(self, queues: list[str]) -> None:
        super().__init__(queues)
        self.queues = queues


class Floors:
    """From where the pops of each group look for a partition that is due.

    Below what a pop found first there is nothing left but what commits late: a look at everything
    once a second finds that, and so does a pop that finds nothing else.
    """

    def __init__(self) -> None:
        self._known: dict[tuple[str, str], tuple[datetime, float]] = {}

    def of(self, queue: str, request: m.PopRequest) -> datetime | None:
        """Return from where to look; None: everywhere."""
        if request.partition is not None:
            return None
        floor, looked_at = self._known.get((queue, request.group), (None, 0.0))
        return floor if time.monotonic() - looked_at < LOOK_SECONDS else None

    def note(
        self,
        queue: str,
        request: m.PopRequest,
        floor: datetime | None,
        rows: Sequence[tuple[Any, ...]],
    ) -> None:
        """Take note of what a look from there found."""
        if request.partition is not None:
            return
        key = (queue, request.group)
        due = next((row[2] for row in rows if row[1] is None and row[2] is not None), None)
        if due is None:
            self._known.pop(key, None)
            return
        if len(self._known) >= MAX_FLOORS:
            self._known.clear()
        found = to_datetime(due + POSTGRES_EPOCH_US - FLOOR_DISTANCE_US)
        _, looked_at = self._known.get(key, (None, 0.0))
        if floor is None:
            self._known[key] = found, time.monotonic()
        else:
            self._known[key] = max(floor, found), looked_at


class Pops:
    """The pops of one backend."""

    def __init__(
        self,
        connections: Connections,
        now: Callable[[], datetime | None],
        keys: KeyRing | None,
    ) -> None:
        self._db = connections
        self._now = now
        self._keys = keys
        self._floors = Floors()

    def pop(self, request: m.PopRequest) -> m.Claim:
        """Answer a pop, registering its group where it is new (C-07).

        Undecryptable where there was something to deliver and none of it could be opened.
        """
        ignored = remembered = False
        if not request.queue:
            ignored, remembered = self._begin_scope(request)
        begins = request.subscription or m.Subscription()
        for _ in range(MAX_REGISTRATIONS):
            closed: list[Undecryptable] = []
            try:
                if request.attempt_id:
                    claim = self._attempt(request, closed)
                else:
                    claim = self._take(request, closed)
            except Unregistered as error:
                for queue in error.queues:
                    found, stored = self.register(queue, request.group, begins, scoped=remembered)
                    if not found and request.queue:
                        ignored = request.subscription is not None and stored != begins
                        return m.Claim(group=request.group, subscription_ignored=ignored)
                continue
            if closed:
                log.warning("%s; %d lanes rest for that", closed[0].message, len(closed))
                if not claim:
                    raise closed[0]
            if request.queue:
                return claim
            return msgspec.structs.replace(claim, subscription_ignored=ignored)
        raise BackendError("the group keeps being deleted")

    def _take(self, request: m.PopRequest, closed: list[Undecryptable]) -> m.Claim:
        if not request.queue:
            return self._of_scope(self._db.call, request, closed)
        return self._db.call(lambda cursor: self._of_queue(cursor, request, request.queue, closed))

    def _of_queue(
        self, cursor: Cursor, request: m.PopRequest, queue: str, closed: list[Undecryptable]
    ) -> m.Claim:
        """Take what there is in a queue; lanes that cannot be opened are put off and noted."""
        wanted = request.subscription if request.queue else None
        arguments = [
            queue,
            request.group,
            request.partition,
            request.max_messages,
            request.max_partitions,
            request.auto_ack,
            wanted and wanted.mode,
            instant(wanted.from_us) if wanted else None,
        ]
        now = self._now()
        for _ in range(MAX_ROUNDS):
            floor = self._floors.of(queue, request)
            rows = cursor.execute(_POP, [*arguments, floor, now]).fetchall()
            self._floors.note(queue, request, floor, rows)
            popped = popped_of(rows, request.group, self._keys)
            if popped is None:
                raise Unregistered([queue])
            for partition, seq, error in popped.closed:
                closed.append(error)
                cursor.execute(_PUT_OFF, [popped.lease, partition, seq, PAUSE_SECONDS, now])
            claim = popped.claim
            if claim.lease_id is not None and request.auto_ack:
                claim = _settled(cursor, claim, now)
            if claim or not popped.closed:
                break
        return claim

    def _of_scope(self, call: Call, request: m.PopRequest, closed: list[Undecryptable]) -> m.Claim:
        """Try the queues that have something due, the most urgent first (C-17)."""
        where = [request.namespace, request.task, request.group, self._now()]
        rows = call(lambda cursor: cursor.execute(_SCOPE_QUEUES, where).fetchall())
        new = [queue for queue, registered in rows if not registered]
        if new:
            raise Unregistered(new)
        for queue, _ in rows:
            claim: m.Claim = call(
                partial(self._of_queue, request=request, queue=queue, closed=closed)
            )
            if claim:
                return claim
        return m.Claim(group=request.group)

    def _attempt(self, request: m.PopRequest, closed: list[Undecryptable]) -> m.Claim:
        """Answer a pop by the claim that its attempt id named before, while that lives (C-13)."""
        place = [request.queue, request.namespace, request.task, request.group, request.attempt_id]
        attempt = msgspec.json.encode(place).decode()

        def work(cursor: Cursor) -> m.Claim:
            row = cursor.execute(_ATTEMPTED, [attempt]).fetchone()
            if row is not None and row[0] is not None:
                rows = cursor.execute(_CLAIMED, [row[0], self._now()]).fetchall()
                popped = popped_of(rows, request.group, self._keys)
                if popped is not None and popped.closed:
                    raise popped.closed[0].error  # the lease is somebody's who could read it
                if popped is not None and popped.claim:
                    return popped.claim
            if request.queue:
                claim = self._of_queue(cursor, request, request.queue, closed)
            else:
                claim = self._of_scope(lambda inner: inner(cursor), request, closed)
            if claim:
                cursor.execute(_REMEMBER, [attempt, claim.lease_id, self._now()])
            return claim

        return self._db.transaction(work)

    def next_ready_in(self, request: m.PopRequest) -> float | None:
        """Return in how many seconds something may come due by time alone."""
        if request.queue:
            statement, where = _READY, [request.queue, request.group, request.partition]
        else:
            statement, where = _SCOPE_READY, [request.namespace, request.task, request.group]
        row = self._db.call(
            lambda cursor: cursor.execute(statement, [*where, self._now()]).fetchone(), writes=False
        )
        return None if row is None or row[0] is None else float(row[0])

    def ready_now(self, requests: Sequence[m.PopRequest]) -> list[bool]:
        """Say which of these may find something now, in one statement (O-42)."""
        if not requests:
            return []
        asked = [(x.queue, x.namespace, x.task, x.group, x.partition) for x in requests]
        columns = [list(column) for column in zip(*asked, strict=True)]
        row = self._db.call(
            lambda cursor: cursor.execute(_READY_NOW, [*columns, self._now()]).fetchone(),
            writes=False,
        )
        assert row is not None
        return list(row[0])

    # --------------------------------------------------------------- registration

    def register(
        self, queue: str, group: str, subscription: m.Subscription, *, scoped: bool = False
    ) -> tuple[bool, m.Subscription]:
        """Register a group in its three steps; say whether the queue exists, and how it begins.

        ``scoped``: for what it asked of a namespace or task, also before the queue matched.

        Where the queue does not exist the wish is remembered and the queue looked for once more:
        its maker may have looked for wishes just before this one was there.
        """
        now = self._now()
        arguments = [queue, group, subscription.mode, instant(subscription.from_us), scoped, now]
        for _ in range(2):
            row = self._db.call(lambda c: c.execute(_BEGIN_GROUP, arguments).fetchone())
            assert row is not None
            number, mode, start = row
            if number is not None:
                break
        begins = subscription_of(mode, start)
        if number is None:
            return False, begins
        done: int | None = 0
        while done is not None:
            done = self._value(_REGISTER, [number, done, REGISTER_CHUNK, now])
        self._value(_FINISH, [number])
        return True, begins

    def enter_scopes(self, queue: str) -> None:
        """Register the groups that asked for a namespace and task which the queue has got now."""
        rows = self._db.call(lambda cursor: cursor.execute(_ENTERING, [queue]).fetchall())
        for (group,) in rows:
            self.register(queue, group, m.Subscription(), scoped=True)

    def _begin_scope(self, request: m.PopRequest) -> tuple[bool, bool]:
        """Remember what a group asks of a scope; say if it began otherwise, and if it was known."""
        wanted = request.subscription
        begins = wanted or m.Subscription()
        row = self._db.call(
            lambda c: c.execute(
                _BEGIN_SCOPE,
                [
                    request.namespace or "",
                    request.task or "",
                    request.group,
                    begins.mode,
                    instant(begins.from_us),
                    self._now(),
                ],
            ).fetchone()
        )
        assert row is not None
        mode, start, made = row
        return wanted is not None and subscription_of(mode, start) != wanted, not made

    def _value(self, statement: str, arguments: list[Any]) -> Any:
        row = self._db.call(lambda cursor: cursor.execute(statement, arguments).fetchone())
        return None if row is None else row[0]


def _settled(cursor: Cursor, claim: m.Claim, now: datetime | None) -> m.Claim:
    """Complete a claim before it is handed out; what could not be completed is not (C-19).

    An autoAck pop comes to this where payloads had to be opened first: what is settled at once
    could not be put off.
    """
    acks = [
        m.Ack(
            transaction_id=message.id,
            partition_id=message.partition_id,
            lease_id=claim.lease_id,
            group=claim.group,
        )
        for message in claim.messages
    ]
    answers, _ = settle(cursor, acks, now)
    messages = [
        message
        for message, answer in zip(claim.messages, answers, strict=True)
        if answer.status == "completed"
    ]
    return msgspec.structs.replace(claim, messages=messages, lease_id=None, expires_us=None)


def instant(instant_us: int | None) -> datetime | None:
    """Return an instant as the driver sends it."""
    return None if instant_us is None else to_datetime(instant_us)
