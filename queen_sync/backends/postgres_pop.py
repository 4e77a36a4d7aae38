"""Pops: of a queue, of a namespace or task, repeated ones, and the groups they register."""

from __future__ import annotations

from collections.abc import Callable
from datetime import datetime
from functools import partial
from typing import Any

import msgspec

from queen_sync import model as m
from queen_sync.backends.postgres_connections import Connections, Cursor
from queen_sync.backends.postgres_rows import claim_of, subscription_of
from queen_sync.clock import to_datetime
from queen_sync.errors import BackendError

REGISTER_CHUNK = 1_000
MAX_REGISTRATIONS = 5

_POP = (
    "select partition_id, seq, created_at, transaction_id, trace_id::text, payload, deliveries,"
    " failures, note, lease_id::text, expires_at"
    " from queen.pop(%s, %s, %s, %s::int4, %s::int4, %s, %s, %s, %s)"
)
_CLAIMED = (
    "select partition_id, seq, created_at, transaction_id, trace_id::text, payload, deliveries,"
    " failures, note, lease_id::text, expires_at from queen.claimed(%s, %s)"
)
_ATTEMPTED = "select queen.attempted(%s)"
_REMEMBER = "select queen.remember_attempt(%s, %s::uuid, %s)"
_SCOPE_QUEUES = "select queue_name, registered from queen.scope_queues(%s, %s, %s, %s)"
_SCOPE_READY = "select queen.scope_ready_in(%s, %s, %s, %s)"
_READY = "select queen.next_ready_in(%s, %s, %s, %s)"
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


class Pops:
    """The pops of one backend."""

    def __init__(self, connections: Connections, now: Callable[[], datetime | None]) -> None:
        self._db = connections
        self._now = now

    def pop(self, request: m.PopRequest) -> m.Claim:
        """Answer a pop, registering its group where it is new (C-07)."""
        ignored = remembered = False
        if not request.queue:
            ignored, remembered = self._begin_scope(request)
        begins = request.subscription or m.Subscription()
        for _ in range(MAX_REGISTRATIONS):
            try:
                claim = self._attempt(request) if request.attempt_id else self._take(request)
            except Unregistered as error:
                for queue in error.queues:
                    found, stored = self.register(queue, request.group, begins, scoped=remembered)
                    if not found and request.queue:
                        ignored = request.subscription is not None and stored != begins
                        return m.Claim(group=request.group, subscription_ignored=ignored)
                continue
            if request.queue:
                return claim
            return msgspec.structs.replace(claim, subscription_ignored=ignored)
        raise BackendError("the group keeps being deleted")

    def _take(self, request: m.PopRequest) -> m.Claim:
        if not request.queue:
            return self._of_scope(self._db.call, request)
        return self._db.call(lambda cursor: self._of_queue(cursor, request, request.queue))

    def _of_queue(self, cursor: Cursor, request: m.PopRequest, queue: str) -> m.Claim:
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
            self._now(),
        ]
        claim = claim_of(cursor.execute(_POP, arguments).fetchall(), request.group)
        if claim is None:
            raise Unregistered([queue])
        return claim

    def _of_scope(self, call: Call, request: m.PopRequest) -> m.Claim:
        """Try the queues that have something due, the most urgent first (C-17)."""
        where = [request.namespace, request.task, request.group, self._now()]
        rows = call(lambda cursor: cursor.execute(_SCOPE_QUEUES, where).fetchall())
        new = [queue for queue, registered in rows if not registered]
        if new:
            raise Unregistered(new)
        for queue, _ in rows:
            claim: m.Claim = call(partial(self._of_queue, request=request, queue=queue))
            if claim:
                return claim
        return m.Claim(group=request.group)

    def _attempt(self, request: m.PopRequest) -> m.Claim:
        """Answer a pop by the claim that its attempt id named before, while that lives (C-13)."""
        place = [request.queue, request.namespace, request.task, request.group, request.attempt_id]
        attempt = msgspec.json.encode(place).decode()

        def work(cursor: Cursor) -> m.Claim:
            row = cursor.execute(_ATTEMPTED, [attempt]).fetchone()
            if row is not None and row[0] is not None:
                rows = cursor.execute(_CLAIMED, [row[0], self._now()]).fetchall()
                claim = claim_of(rows, request.group)
                if claim:
                    return claim
            if request.queue:
                claim = self._of_queue(cursor, request, request.queue)
            else:
                claim = self._of_scope(lambda inner: inner(cursor), request)
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


def instant(instant_us: int | None) -> datetime | None:
    """Return an instant as the driver sends it."""
    return None if instant_us is None else to_datetime(instant_us)
