"""Queries and bodies that a client sends about single messages and traces."""

from __future__ import annotations

from typing import Any

import msgspec

from queen_sync import inspection as i, model as m
from queen_sync.wire.texts import instant

_BEGINNING = instant(0)


def message_query(wanted: i.MessageFilter) -> dict[str, str]:
    """Return the query of a listing of messages; names are checked, since a filter checks none.

    An empty one would be taken for none. Without a beginning a server lists the last hour only.
    """
    given = {
        "queue": wanted.queue,
        "partition": wanted.partition,
        "namespace": wanted.namespace,
        "task": wanted.task,
        "consumerGroup": wanted.group,
    }
    query = {name: value for name, value in given.items() if value is not None}
    for name, value in query.items():
        m.check_name(value, name)
    if wanted.trace_id is not None:
        query["traceId"] = wanted.trace_id
    if wanted.status is not None:
        query["status"] = wanted.status
    query["from"] = _BEGINNING if wanted.from_us is None else instant(wanted.from_us)
    if wanted.to_us is not None:
        query["to"] = instant(wanted.to_us)
    if wanted.before is not None:
        query["lastCreatedAt"], query["lastId"] = instant(wanted.before[0]), wanted.before[1]
    return query | page_query(wanted.limit, wanted.offset)


def page_query(limit: int, offset: int) -> dict[str, str]:
    """Return the query of one page."""
    return {"limit": str(limit), "offset": str(offset)}


def encode_by_hand(group: str | None, error: str | None = None) -> bytes:
    """Return the body of what is done to a message for one group or all, and why."""
    body = {"consumerGroup": group, "error": error}
    return msgspec.json.encode({name: value for name, value in body.items() if value is not None})


def encode_trace(trace: i.Trace) -> bytes:
    """Return the body that files a note."""
    body: dict[str, Any] = {
        "partitionId": trace.partition_id,
        "transactionId": trace.transaction_id,
        "traceNames": trace.names,
        "eventType": trace.kind,
        "data": msgspec.Raw(trace.data),
    }
    if trace.group is not None:
        body["consumerGroup"] = trace.group
    return msgspec.json.encode(body)


def trace_query(wanted: i.TraceFilter) -> dict[str, str]:
    """Return the query of a listing of the notes of a name."""
    query = page_query(wanted.limit, wanted.offset)
    if wanted.from_us is not None:
        query["from"] = instant(wanted.from_us)
    if wanted.to_us is not None:
        query["to"] = instant(wanted.to_us)
    return query
