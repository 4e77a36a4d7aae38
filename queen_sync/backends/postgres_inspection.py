"""Looking into the PostgreSQL backend, and cleaning it up: what no hot path needs."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Mapping, Sequence
from datetime import datetime
from itertools import groupby
from typing import Any

import msgspec

from queen_sync import ids, inspection as i, model as m
from queen_sync.backends.postgres_connections import POSTGRES_EPOCH_US, Cursor
from queen_sync.backends.postgres_pop import instant
from queen_sync.backends.postgres_push import address_of
from queen_sync.backends.postgres_sealing import opened, sealed_among, with_unreadable
from queen_sync.backends.postgres_stats import PostgresStatistics
from queen_sync.encryption import KeyRing
from queen_sync.errors import MessageNotFound, PartitionNotFound, QueueNotFound

_PARTITIONS = "select * from queen.list_partitions(%s, %s, %s, %s)"
_MESSAGE = (
    "select queue_name, partition_name, partition_id, seq, created_at, transaction_id,"
    " trace_id::text, payload from queen.read_message(%s, %s, %s, %s)"
)
_NAMED_MESSAGE = (
    "select queue_name, partition_name, partition_id, seq, created_at, transaction_id,"
    " trace_id::text, payload from queen.read_named_message(%s, %s, %s, %s)"
)
_LISTED = (
    "queue_name, partition_name, partition_id, seq, created_at, transaction_id, trace_id::text"
)
_MESSAGES = (
    f"select {_LISTED} from queen.list_messages("
    "%s, %s, %s, %s, %s, %s, %s, %s, %s, %s, %s, %s::int4, %s)"
)
_TRACE = (
    f"select {_LISTED} from queen.list_trace("
    "%s::uuid, %s, %s, %s, %s, %s, %s, %s, %s, %s, %s, %s, %s::int4, %s)"
)
_STATES = (
    "select place, group_name, status, deliveries, failures, error, lease_expires_at"
    " from queen.message_states(%b::int8[], %b::int8[], %s, %s)"
)
_SEALED_HEADS = "select * from queen.sealed_heads(%s)"
_DELETE = "select queen.delete_message(%s, %s, %s, %s, %s)"
_BURY = "select queue_id, buried from queen.bury_message(%s, %s, %s, %s, %s, %s, %s)"
_RETRY_NOW = "select queue_id, failed from queen.retry_message_now(%s, %s, %s, %s, %s, %s)"
_CLEAR = "select queen.clear_partition(%s, %s)"
_DELETE_PARTITION = "select queen.delete_partition(%s, %s, %s)"
_QUEUE_NUMBER = "select q.id from queen.queues q where q.name = %s and q.deleted_at is null"
_PARTITION_NUMBERS = (
    "select p.id from queen.partitions p"
    " where p.queue_id = %s and p.name = coalesce(%s, p.name) order by p.id"
)
_ADD_TRACE = "select queen.add_trace(%s, %s, %s, %s, %s, %s::text[], %s, %s, %s)::text"
_SHOWN = (
    "select id::text, queue_name, partition_name, partition_id, seq, message_created_at,"
    " transaction_id, group_name, names, kind, data, created_at"
)
_TRACES = f"{_SHOWN} from queen.shown_traces(array(select queen.message_traces(%s, %s, %s, %s)))"
_NAMED = "select ids::text[], total from queen.named_traces(%s, %s, %s, %s::int4, %s)"
_SHOW = f"{_SHOWN} from queen.shown_traces(%s::text[]::uuid[])"
_COUNT_TRACE_NAMES = "select queen.count_trace_names()"
_TRACE_NAMES = "select name, traces, messages, last_at from queen.list_trace_names(%s::int4, %s)"
NULL = b"null"

Name = tuple[int, str, int | None, int | None]
"""A partition's number, a message's name there, and the seq and stamp that the name may say."""


class PostgresInspection(PostgresStatistics):
    """What `PostgresBackend` shows of itself."""

    _keys: KeyRing | None

    @abstractmethod
    def _hint(self, changed: Mapping[int, str]) -> None:
        """Say that queues, by number and name, may have something to pop."""

    @abstractmethod
    def _name_of(self, number: int) -> str | None:
        """Return the name of a queue."""

    def partitions(
        self, queue: str, *, limit: int | None = None, offset: int = 0
    ) -> Sequence[i.PartitionState]:
        rows = self._rows(_PARTITIONS, [queue, limit, offset, self._now()])
        found = [
            _partition(queue, list(lanes)) for _, lanes in groupby(rows, key=lambda row: row[0])
        ]
        return with_unreadable(found, self._rows(_SEALED_HEADS, [queue]), self._keys)

    # -------------------------------------------------------------------- messages

    def message(self, partition_id: str, transaction_id: str) -> i.StoredMessage | None:
        name = _name(partition_id, transaction_id)
        now = self._now()

        def work(cursor: Cursor) -> list[i.StoredMessage]:
            found = _with_states(cursor, cursor.execute(_MESSAGE, name).fetchall(), now)
            return [opened(message, self._keys) for message in found]

        found = [] if name is None else self._db.call(work, writes=False)
        return found[0] if found else None

    def message_named(self, transaction_id: str) -> i.StoredMessage | None:
        said = address_of(transaction_id)
        name = [transaction_id, *(said or (None, None, None))]
        now = self._now()

        def work(cursor: Cursor) -> list[i.StoredMessage]:
            found = _with_states(cursor, cursor.execute(_NAMED_MESSAGE, name).fetchall(), now)
            return [opened(message, self._keys) for message in found]

        found = [] if "\0" in transaction_id else self._db.call(work, writes=False)
        return found[0] if found else None

    def messages(self, wanted: i.MessageFilter) -> i.MessagePage:
        now = self._now()
        which = [
            wanted.queue,
            wanted.partition,
            wanted.namespace,
            wanted.task,
            wanted.status,
            wanted.group,
            instant(wanted.from_us),
            instant(wanted.to_us),
            *_key(wanted.before),
            wanted.offset + wanted.limit + 1,
            now,
        ]

        def work(cursor: Cursor) -> i.MessagePage:
            if wanted.trace_id is None:
                cursor.execute(_MESSAGES, which)
            else:
                cursor.execute(_TRACE, [wanted.trace_id, *which])
            rows = cursor.fetchall()[wanted.offset :]
            page = _with_states(
                cursor, [(*row, NULL) for row in rows[: wanted.limit]], now, wanted.group
            )
            more = len(rows) > wanted.limit
            return i.MessagePage(
                items=page, next_before=(page[-1].created_us, page[-1].id) if more else None
            )

        return self._db.call(work, writes=False)

    # -------------------------------------------------------------------- cleanup

    def delete_message(self, partition_id: str, transaction_id: str) -> bool:
        name = _name(partition_id, transaction_id)
        number = None if name is None else self._one(_DELETE, [*name, self._now()])[0]
        self._hint_number(number)
        return number is not None

    def bury(
        self,
        partition_id: str,
        transaction_id: str,
        group: str | None = None,
        error: str | None = None,
    ) -> int:
        name = _name(partition_id, transaction_id)
        reason = None if error is None else m.storable(error)
        number, count = (
            (None, 0) if name is None else self._one(_BURY, [*name, group, reason, self._now()])
        )
        if number is None:
            raise MessageNotFound("Message not found")
        self._hint_number(number)
        return int(count)

    def retry_now(self, partition_id: str, transaction_id: str, group: str | None = None) -> int:
        name = _name(partition_id, transaction_id)
        number, count = (
            (None, 0) if name is None else self._one(_RETRY_NOW, [*name, group, self._now()])
        )
        if number is None:
            raise MessageNotFound("Message not found")
        self._hint_number(number)
        return int(count)

    def clear(self, queue: str, partition: str | None = None) -> int:
        found = self._rows(_QUEUE_NUMBER, [queue])
        if not found:
            raise QueueNotFound(f"Queue '{queue}' not found")
        number = found[0][0]
        places = self._rows(_PARTITION_NUMBERS, [number, partition])
        if not places:
            raise PartitionNotFound(f"Partition '{partition}' not found")
        now = self._now()
        count = sum(self._one(_CLEAR, [place, now])[0] or 0 for (place,) in places)
        self._hint({number: queue})
        return count

    def delete_partition(self, queue: str, partition: str) -> bool:
        number = self._one(_DELETE_PARTITION, [queue, partition, self._now()])[0]
        self._hint_number(number)
        return number is not None

    # --------------------------------------------------------------------- traces

    def add_trace(self, trace: i.Trace) -> str:
        name = _name(trace.partition_id, trace.transaction_id)
        names = list(dict.fromkeys(trace.names))
        data = str(trace.data, "utf-8")
        filed = (
            None
            if name is None
            else self._one(_ADD_TRACE, [*name, trace.group, names, trace.kind, data, self._now()])[
                0
            ]
        )
        if filed is None:
            raise MessageNotFound("Message not found")
        return str(filed)

    def traces(self, partition_id: str, transaction_id: str) -> Sequence[i.TraceRecord]:
        name = _name(partition_id, transaction_id)
        return [] if name is None else [_trace(row) for row in self._rows(_TRACES, name)]

    def traces_named(self, wanted: i.TraceFilter) -> i.TracePage:
        which = [
            wanted.name,
            instant(wanted.from_us),
            instant(wanted.to_us),
            wanted.limit,
            wanted.offset,
        ]
        ((chosen, total),) = self._rows(_NAMED, which)
        rows = self._rows(_SHOW, [chosen]) if chosen else []
        return i.TracePage(items=[_trace(row) for row in rows], total=total)

    def trace_names(self, limit: int = 100, offset: int = 0) -> Sequence[i.TraceName]:
        i.check_page(limit, offset)
        return [
            i.TraceName(
                name=name,
                trace_count=traces,
                message_count=messages,
                last_us=last + POSTGRES_EPOCH_US,
            )
            for name, traces, messages, last in self._rows(_TRACE_NAMES, [limit, offset])
        ]

    def count_trace_names(self) -> int:
        return int(self._rows(_COUNT_TRACE_NAMES, [])[0][0])

    # -------------------------------------------------------------------- helpers

    def _rows(self, statement: str, arguments: Sequence[Any]) -> list[tuple[Any, ...]]:
        return self._db.call(
            lambda cursor: cursor.execute(statement, arguments).fetchall(), writes=False
        )

    def _one(self, statement: str, arguments: Sequence[Any]) -> tuple[Any, ...]:
        row = self._db.call(lambda cursor: cursor.execute(statement, arguments).fetchone())
        assert row is not None
        return tuple(row)

    def _hint_number(self, number: int | None) -> None:
        name = None if number is None else self._name_of(number)
        if number is not None and name is not None:
            self._hint({number: name})


def _name(partition_id: str, transaction_id: str) -> Name | None:
    """Return what the functions of the engine take for a message's name."""
    number = ids.partition_number(partition_id)
    if number is None or "\0" in transaction_id:
        return None
    said = address_of(transaction_id)
    if said is None or said.partition != number:
        return number, transaction_id, None, None
    return number, transaction_id, said.seq, said.stamp


def _key(before: tuple[int, str] | None) -> tuple[datetime | None, int | None, int | None]:
    """Return the key at which a page ended as the engine orders by it."""
    said = None if before is None else ids.address(before[1])
    if before is None or said is None:
        return None, None, None
    return instant(before[0]), said.partition, said.seq


def _us(stored: int | None) -> int | None:
    return None if stored is None else stored + POSTGRES_EPOCH_US


def _partition(queue: str, lanes: Sequence[tuple[Any, ...]]) -> i.PartitionState:
    """Return a partition from its rows of ``queen.list_partitions``."""
    number, name, created, pushed, stored, waiting, oldest, newest, *_ = lanes[0]
    return i.PartitionState(
        queue=queue,
        id=ids.partition_id(number),
        name=name,
        created_us=created + POSTGRES_EPOCH_US,
        pushed_count=pushed,
        stored_count=stored,
        waiting_count=waiting,
        oldest_us=_us(oldest),
        newest_us=_us(newest),
        groups=[
            i.PartitionGroup(
                name=group,
                lag=lag,
                in_flight_count=in_flight,
                retrying_count=retrying,
                dead_count=dead,
                lease_expires_us=_us(expires),
                lease_count=leased,
                oldest_waiting_us=_us(oldest_waiting),
            )
            for *_, group, lag, in_flight, retrying, dead, expires, leased, oldest_waiting in lanes
            if group is not None
        ],
    )


def _with_states(
    cursor: Cursor, rows: Sequence[tuple[Any, ...]], now: datetime | None, group: str | None = None
) -> list[i.StoredMessage]:
    """Return messages from their rows, with what has become of each for all groups or for one."""
    if not rows:
        return []
    cursor.execute(_STATES, [[row[2] for row in rows], [row[3] for row in rows], group, now])
    states: list[list[i.MessageState]] = [[] for _ in rows]
    status: i.MessageStatus
    for place, name, status, deliveries, failures, error, expires in cursor.fetchall():
        states[place - 1].append(
            i.MessageState(
                group=name,
                status=status,
                delivery_count=deliveries,
                failure_count=failures,
                error=error,
                lease_expires_us=_us(expires),
            )
        )
    sealed = sealed_among(cursor, rows)
    return [
        msgspec.structs.replace(_message(row), states=found, encrypted=place in sealed)
        for place, (row, found) in enumerate(zip(rows, states, strict=True), 1)
    ]


def _message(row: tuple[Any, ...]) -> i.StoredMessage:
    queue, partition, number, seq, created, transaction, trace, payload = row
    created_us = created + POSTGRES_EPOCH_US
    message_id = ids.message_id(number, seq, created_us)
    return i.StoredMessage(
        id=message_id,
        transaction_id=transaction or message_id,
        queue=queue,
        partition=partition,
        partition_id=ids.partition_id(number),
        seq=seq,
        payload=payload,
        created_us=created_us,
        trace_id=trace,
    )


def _trace(row: tuple[Any, ...]) -> i.TraceRecord:
    """Return the trace in a row of ``queen.shown_traces``."""
    (
        trace, queue, partition, number, seq, pushed, transaction, group, names, kind, data, filed,
    ) = row  # fmt: skip
    message_id = ids.message_id(number, seq, pushed + POSTGRES_EPOCH_US)
    return i.TraceRecord(
        id=trace,
        queue=queue,
        partition=partition,
        partition_id=ids.partition_id(number),
        message_id=message_id,
        transaction_id=transaction or message_id,
        group=group,
        names=names,
        kind=kind,
        data=data,
        created_us=filed + POSTGRES_EPOCH_US,
    )
