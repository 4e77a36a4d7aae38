"""The PostgreSQL backend: leases on partitions, claims with SKIP LOCKED.

The engine itself is SQL (``sql/postgres/functions``): each hot operation is one function call,
one round trip and one commit. This module calls it and keeps the steps that take more than one
transaction; the modules beside it turn values into arguments and rows into values.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping, Sequence
from datetime import datetime
from typing import Any

from queen_sync import ids, model as m
from queen_sync.backends import (
    postgres_acks,
    postgres_catalogue as catalogue,
    postgres_rows,
    postgres_transact,
)
from queen_sync.backends.base import FEATURES, Capabilities, Hint, apart
from queen_sync.backends.postgres_connections import POSTGRES_EPOCH_US, Connections, Cursor
from queen_sync.backends.postgres_hints import Hints
from queen_sync.backends.postgres_inspection import PostgresInspection
from queen_sync.backends.postgres_migrations import migrate
from queen_sync.backends.postgres_pop import Pops, instant
from queen_sync.backends.postgres_push import push_to_one
from queen_sync.backends.postgres_sealing import Seals
from queen_sync.backends.postgres_spread import Counts, Spreads, mark, spread
from queen_sync.backends.postgres_sweep import REPAIR_INTERVAL_SECONDS, Sweep
from queen_sync.clock import Clock, to_datetime
from queen_sync.encryption import KeyRing
from queen_sync.errors import (
    InvalidRequest,
    LeaseLost,
    PartitionNotFound,
    QueueFull,
    QueueNotFound,
)

__all__ = ["PostgresBackend", "migrate"]

log = logging.getLogger(__name__)

NOT_YET = frozenset({"enc"})
PATIENCE = "20ms"
"""How long a call that several callers share waits for a row that somebody else holds."""
SEEK_CHUNK = 1_000
MAX_REMOVALS = 10_000

_FOUND = "queen.find_dead_letters(%s, %s, %s, %s, %s, %s, %s, %s, %s, %s) d"
_DEAD_LETTERS = (
    "select d.partition_id, d.seq, d.created_at, d.transaction_id, d.trace_id::text, d.payload,"
    " d.queue_name, d.partition_name, d.group_name, d.error, d.failures, d.deliveries, d.failed_at,"
    " d.encryption_key_id"
    f" from {_FOUND}"
    " order by d.failed_at desc, d.partition_id desc, d.seq desc, d.group_id desc"
    " limit %s offset %s"
)
_REDRIVE = (
    "select queue_id, queue_name, count"
    " from queen.redrive(%s, %s, %s, %s, %s, %s, %s, %s, %s, %s, %s)"
)
_PURGE = "select queen.purge(%s, %s, %s, %s, %s, %s, %s, %s, %s, %s)"
_REMOVALS = "select * from queen.list_removals(%s, %s::int4)"
_HAS_PARTITION = (
    "select exists (select 1 from queen.partitions p"
    " where p.queue_id = q.id and p.name = coalesce(%s, p.name))"
    " from queen.queues q where q.name = %s and q.deleted_at is null"
)
_SEEK = "select last_id, moved from queen.seek(%s, %s, %s, %s, %s, %s, %s::int4, %s)"


class PostgresBackend(PostgresInspection):
    """Queues in the schema ``queen`` of a PostgreSQL database, version 14 or later.

    ``pool_size`` connections at most serve calls; two more carry hints between processes
    (``listen_dsn``: where to listen, if ``dsn`` leads through a pooler, which is ``pooled`` if
    it gives sessions out by the transaction). With a ``clock`` its value goes into every
    statement in place of the server's own. ``keys`` seal and open the payloads of encrypted
    queues; without them such queues cannot be made or pushed to. Sweeps look for broken
    invariants once in ``repair_interval_seconds``, all processes together.
    Make it in the process that uses it: connections and threads do not survive a fork.
    """

    capabilities = Capabilities(
        features=frozenset(FEATURES) - NOT_YET, durable=True, combines=True, shared=True
    )

    def __init__(
        self,
        dsn: str,
        *,
        clock: Clock | None = None,
        pool_size: int = 8,
        statement_timeout_milliseconds: int = 30_000,
        lock_timeout_milliseconds: int = 5_000,
        listen_dsn: str | None = None,
        pooled: bool = False,
        keys: KeyRing | None = None,
        repair_interval_seconds: int = REPAIR_INTERVAL_SECONDS,
        migrate: bool = True,
    ) -> None:
        if migrate:
            migrate_now(dsn)
        if keys is not None:
            self.capabilities = self.capabilities.plus("enc")
        self._keys = keys
        self._clock = clock
        self._repair_interval_seconds = repair_interval_seconds
        self._db = Connections(
            dsn,
            size=pool_size,
            statement_timeout_milliseconds=statement_timeout_milliseconds,
            lock_timeout_milliseconds=lock_timeout_milliseconds,
            pooled=pooled,
        )
        self._names: dict[int, str] = {}
        self._spreads = Spreads()
        self._seals = Seals(keys)
        self._pops = Pops(self._db, self._now, keys)
        self._hints = Hints(
            self._db.dedicated,
            self._name_of,
            (lambda: self._db.dedicated(listen_dsn)) if listen_dsn else None,
        )

    def close(self) -> None:
        self._hints.close()
        self._db.close()

    def check(self) -> Mapping[str, Any]:
        return self._db.call(catalogue.facts, writes=False)

    # ------------------------------------------------------------------ catalogue

    def configure(
        self,
        queue: str,
        options: Mapping[str, int | bool] | None = None,
        *,
        namespace: str | None = None,
        task: str | None = None,
    ) -> m.Configured:
        asked = self.capabilities.check_configure(queue, options, namespace, task)
        now = self._now()
        configured, number = self._db.transaction(
            lambda cursor: catalogue.configure(cursor, queue, asked, namespace, task, now)
        )
        if configured.changes.keys() & {"namespace", "task"}:
            self._pops.enter_scopes(queue)
        self._hint({number: queue})
        return configured

    def queue(self, name: str) -> m.Queue | None:
        row = self._db.call(
            lambda c: c.execute(catalogue.QUEUE_NAMED, [name]).fetchone(),
            writes=False,
        )
        return None if row is None else postgres_rows.queue_of(row)

    def queues(self) -> Sequence[m.Queue]:
        rows = self._db.call(lambda c: c.execute(catalogue.QUEUES).fetchall(), writes=False)
        return [postgres_rows.queue_of(row) for row in rows]

    def delete_queue(self, name: str) -> bool:
        return self._call("select queen.delete_queue(%s, %s)", [name, self._now()]) is True

    # ----------------------------------------------------------------------- flow

    def push(self, items: Sequence[m.NewMessage], *, create: bool = True) -> list[m.Receipt]:
        if not items:
            return []
        try:
            receipts, changed = self._seals.run(
                lambda: self._spreads.run(lambda counts: self._push(items, counts, create))
            )
        except QueueFull as error:
            error.index = None  # which element is a matter of transactions
            raise
        self._hint(changed)
        return receipts

    def push_together(self, calls: Sequence[Sequence[m.NewMessage]]) -> list[list[m.Receipt]]:
        items = [item for call in calls for item in call]
        queue = items[0].queue
        if any(item.queue != queue for item in items):
            return super().push_together(calls)
        number, receipts = self._db.call(
            lambda cursor: push_to_one(
                cursor, items, self._seals, self._now(), create=True, patience=PATIENCE
            ),
            retry=False,
        )
        self._hint({number: queue})
        return apart(receipts, calls)

    def _push(
        self, items: Sequence[m.NewMessage], counts: Counts, create: bool
    ) -> tuple[list[m.Receipt], postgres_acks.Work]:
        now = self._now()
        queue = items[0].queue
        if queue not in counts and all(item.queue == queue for item in items):
            number, receipts = self._db.call(
                lambda cursor: push_to_one(cursor, items, self._seals, now, create=create)
            )
            return receipts, {number: queue}

        def work(cursor: Cursor) -> tuple[dict[int, m.Receipt], postgres_acks.Work]:
            placed = spread(cursor, items, counts)
            postgres_transact.lock(cursor, [], placed, [], now, create=create)
            done = postgres_transact.push_all(
                cursor, list(enumerate(placed)), counts, self._seals, now, create=create
            )
            mark(cursor, items, placed, counts, now)
            return done

        by_index, changed = self._db.transaction(work)
        return [by_index[index] for index in range(len(items))], changed

    def pop(self, request: m.PopRequest) -> m.Claim:
        return self._pops.pop(request)

    def ack(self, acks: Sequence[m.Ack]) -> list[m.Acked]:
        if not acks:
            return []
        now = self._now()
        # With their partitions named they are one statement; else those are looked for first.
        one = all(ack.partition_id is not None for ack in acks)
        run = self._db.call if one else self._db.transaction
        answers, changed = run(lambda cursor: postgres_acks.settle(cursor, acks, now))
        self._hint(changed)
        return answers

    def ack_together(self, calls: Sequence[Sequence[m.Ack]]) -> list[list[m.Acked]]:
        now = self._now()
        acks = [ack for call in calls for ack in call]
        answers, changed = self._db.call(
            lambda cursor: postgres_acks.settle(cursor, acks, now, PATIENCE), retry=False
        )
        self._hint(changed)
        return apart(answers, calls)

    def extend(self, lease_id: str, seconds: int | None = None) -> int:
        if seconds is not None and not 1 <= seconds <= m.MAX_LEASE_SECONDS:
            raise InvalidRequest(f"seconds must be 1 to {m.MAX_LEASE_SECONDS}", "seconds")
        lease = postgres_acks.lease_text(lease_id)
        ends = self._call(
            "select queen.extend(%s::uuid, %s::int4, %s)", [lease, seconds, self._now()]
        )
        if ends is None:
            raise LeaseLost("Lease not found")
        return int(ends) + POSTGRES_EPOCH_US

    def release(self, lease_id: str) -> None:
        lease = postgres_acks.lease_text(lease_id)
        rows = self._db.call(
            lambda c: c.execute(
                "select queen.release(%s::uuid, %s)", [lease, self._now()]
            ).fetchall()
        )
        if not rows:
            raise LeaseLost("Lease not found")
        self._hint({number: name for (number,) in rows if (name := self._name_of(number))})

    def transact(self, transaction: m.Transaction) -> m.Transacted:
        now = self._now()
        answer, changed = self._seals.run(
            lambda: self._spreads.run(
                lambda counts: self._db.transaction(
                    lambda cursor: postgres_transact.transact(
                        cursor, transaction, counts, self._seals, now
                    )
                )
            )
        )
        self._hint(changed)
        return answer

    # --------------------------------------------------------------------- groups

    def subscribe(self, queue: str, group: str, subscription: m.Subscription) -> bool:
        _, begins = self._pops.register(queue, group, subscription)
        return begins == subscription

    def groups(self, queue: str) -> Sequence[m.Group]:
        rows = self._db.call(
            lambda c: c.execute(
                "select * from queen.list_groups(%s, %s)", [queue, self._now()]
            ).fetchall(),
            writes=False,
        )
        return [
            m.Group(
                queue=queue,
                name=name,
                subscription=postgres_rows.subscription_of(mode, start),
                created_us=created + POSTGRES_EPOCH_US,
                lag=lag,
                leased=leased,
            )
            for name, mode, start, created, lag, leased in rows
        ]

    def delete_group(
        self, group: str, *, queue: str | None = None, keep_subscription: bool = False
    ) -> int:
        return int(
            self._call(
                "select queen.delete_group(%s, %s, %s, %s)",
                [queue, group, keep_subscription, self._now()],
            )
        )

    def restart_subscription(self, group: str, from_us: int) -> int:
        return int(
            self._call("select queen.restart_subscription(%s, %s)", [group, to_datetime(from_us)])
        )

    def seek(self, target: m.Seek) -> int:
        found = self._call(_HAS_PARTITION, [target.partition, target.queue])
        if found is None:
            raise QueueNotFound(f"Queue '{target.queue}' does not exist")
        if not found:
            raise PartitionNotFound(f"Partition '{target.partition}' does not exist")
        self._pops.register(target.queue, target.group, m.Subscription())
        where = [target.queue, target.group, target.partition, target.to, instant(target.from_us)]
        now, moved, last = self._now(), 0, 0
        while last is not None:
            arguments = [*where, last, SEEK_CHUNK, now]
            row = self._db.call(lambda c, a=arguments: c.execute(_SEEK, a).fetchone())  # type: ignore[misc]
            assert row is not None
            last, count = row
            moved += count
        self._hint_named(target.queue)
        return moved

    # --------------------------------------------------------------------- browse

    def dead_letters(self, wanted: m.DeadLetterFilter) -> m.DeadLetters:
        which = _filter(wanted)

        def work(cursor: Cursor) -> m.DeadLetters:
            rows = cursor.execute(_DEAD_LETTERS, [*which, wanted.limit, wanted.offset]).fetchall()
            total = _value(cursor, f"select count(*) from {_FOUND}", which)
            return m.DeadLetters(
                items=[postgres_rows.dead_letter_of(row, self._keys) for row in rows], total=total
            )

        return self._db.call(work, writes=False)

    def redrive(self, wanted: m.DeadLetterFilter) -> int:
        arguments = [*_filter(wanted), self._now()]
        rows = self._db.call(lambda c: c.execute(_REDRIVE, arguments).fetchall())
        self._hint({number: name for number, name, _ in rows})
        return sum(count for _, _, count in rows)

    def purge(self, wanted: m.DeadLetterFilter) -> int:
        return int(self._call(_PURGE, _filter(wanted)))

    def removals(self, queue: str) -> Sequence[m.Removal]:
        rows = self._db.call(
            lambda c: c.execute(_REMOVALS, [queue, MAX_REMOVALS]).fetchall(), writes=False
        )
        return [
            m.Removal(
                queue=queue,
                partition=partition,
                group=group,
                kind=kind,
                count=count,
                removed_us=at + POSTGRES_EPOCH_US,
            )
            for partition, group, kind, count, at in rows
        ]

    # --------------------------------------------------------- upkeep and wake-ups

    def sweep(self) -> m.SweepReport:
        return Sweep(
            self._db, self._now(), repair_interval_seconds=self._repair_interval_seconds
        ).run()

    def next_ready_in(self, request: m.PopRequest) -> float | None:
        return self._pops.next_ready_in(request)

    def ready_now(self, requests: Sequence[m.PopRequest]) -> list[bool]:
        return self._pops.ready_now(requests)

    def listen(self, callback: Callable[[Hint], None]) -> Callable[[], None]:
        return self._hints.listen(callback)

    # --------------------------------------------------------------------- helpers

    def _now(self) -> datetime | None:
        """Return the caller's clock, None where the server's decides."""
        return None if self._clock is None else to_datetime(self._clock.now_us())

    def _call(self, statement: str, arguments: Sequence[Any]) -> Any:
        return self._db.call(lambda cursor: _value(cursor, statement, arguments))

    def _hint(self, changed: Mapping[int, str]) -> None:
        if changed:
            self._names.update(changed)
            self._hints.changed(changed)

    def _hint_named(self, name: str) -> None:
        number = self._call(
            "select q.id from queen.queues q where q.name = %s and q.deleted_at is null", [name]
        )
        if number is not None:
            self._hint({number: name})

    def _name_of(self, number: int) -> str | None:
        """Return the name of a queue; numbers are never given twice, so it may be remembered."""
        name = self._names.get(number)
        if name is None:
            name = self._call("select max(q.name) from queen.queues q where q.id = %s", [number])
            if name is not None:
                self._names[number] = name
        return name


migrate_now = migrate


def _value(cursor: Cursor, statement: str, arguments: Sequence[Any]) -> Any:
    row = cursor.execute(statement, arguments).fetchone()
    return None if row is None else row[0]


def _filter(wanted: m.DeadLetterFilter) -> list[Any]:
    """Return a filter as the arguments of ``queen.find_dead_letters``."""
    partition = wanted.partition_id and ids.partition_number(wanted.partition_id)
    if wanted.partition_id is not None and partition is None:
        partition = 0  # no partition has that number: nothing is found
    said = wanted.transaction_id and ids.address(wanted.transaction_id)
    return [
        wanted.queue,
        wanted.group,
        wanted.partition,
        instant(wanted.failed_from_us),
        instant(wanted.failed_to_us),
        partition,
        wanted.transaction_id,
        *(said or (None, None, None)),
    ]
