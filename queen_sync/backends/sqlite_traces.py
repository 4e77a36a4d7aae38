"""Traces: notes that consumers file about messages, and find again by message or by name."""

from __future__ import annotations

import uuid
from collections.abc import Sequence

import msgspec

from queen_sync import ids, inspection as i
from queen_sync.backends.base import Backend
from queen_sync.backends.sqlite_connections import MAX_INTEGER, Connections, Row, Session, bounded
from queen_sync.backends.sqlite_push import find_stored
from queen_sync.errors import MessageNotFound


class SqliteTraces(Backend):
    """The notes of `SqliteBackend`."""

    _db: Connections

    def add_trace(self, trace: i.Trace) -> str:
        return self._db.write(lambda session: _add(session, trace))

    def traces(self, partition_id: str, transaction_id: str) -> Sequence[i.TraceRecord]:
        def work(session: Session) -> list[Row]:
            found = find_stored(session, partition_id, transaction_id)
            if found is None:
                return []
            place, first = found
            return session.rows("message_traces", place.partition, first.seq)

        return [_record_of(row) for row in self._db.read(work, snapshot=True)]

    def traces_named(self, wanted: i.TraceFilter) -> i.TracePage:
        which = (
            wanted.name,
            -MAX_INTEGER if wanted.from_us is None else bounded(wanted.from_us),
            MAX_INTEGER if wanted.to_us is None else bounded(wanted.to_us),
        )

        def work(session: Session) -> i.TracePage:
            rows = session.rows("named_traces", *which, wanted.limit, bounded(wanted.offset))
            (total,) = session.row("count_named_traces", *which) or (0,)
            return i.TracePage(items=[_record_of(row) for row in rows], total=total)

        return self._db.read(work, snapshot=True)

    def trace_names(self, limit: int = 100, offset: int = 0) -> Sequence[i.TraceName]:
        i.check_page(limit, offset)
        rows = self._db.read(
            lambda session: session.rows("list_trace_names", limit, bounded(offset))
        )
        return [
            i.TraceName(name=name, trace_count=traces, message_count=messages, last_us=last_us)
            for name, traces, messages, last_us in rows
        ]

    def count_trace_names(self) -> int:
        (count,) = self._db.read(lambda session: session.row("count_trace_names")) or (0,)
        return int(count)


def _add(session: Session, trace: i.Trace) -> str:
    found = find_stored(session, trace.partition_id, trace.transaction_id)
    if found is None:
        raise MessageNotFound("Message not found")
    place, first = found
    record = str(uuid.uuid4())
    names = list(dict.fromkeys(trace.names))
    row = session.row(
        "insert_trace",
        record,
        place.partition,
        first.seq,
        trace.group,
        msgspec.json.encode(names).decode(),
        trace.kind,
        bytes(trace.data),
        session.now_us,
    )
    assert row is not None
    session.many("insert_trace_name", [(name, row[0], session.now_us) for name in names])
    return record


def forget_traces(session: Session, partition: int, first: int, last: int) -> int:
    """Remove the notes about messages from ``first`` to ``last``; return how many there were."""
    session.run("delete_trace_names", partition, first, last)
    return session.run("delete_traces", partition, first, last)


def forget_some_traces(session: Session, partition: int, room: int) -> int:
    """Remove about so many notes of a partition; return how many, 0 where none is left."""
    row = session.row("traced_up_to", partition, room)
    return 0 if row is None or row[0] is None else forget_traces(session, partition, 0, row[0])


def _record_of(row: Row) -> i.TraceRecord:
    """Return the note in a row of ``message_traces`` or ``named_traces``."""
    (
        record, queue, partition, number, seq, pushed_us, transaction_id, group, names, kind, data,
        created_us,
    ) = row  # fmt: skip
    message_id = ids.message_id(number, seq, pushed_us)
    return i.TraceRecord(
        id=record,
        queue=queue,
        partition=partition,
        partition_id=ids.partition_id(number),
        message_id=message_id,
        transaction_id=transaction_id or message_id,
        group=group,
        names=msgspec.json.decode(names),
        kind=kind,
        data=data,
        created_us=created_us,
    )
