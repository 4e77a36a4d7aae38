"""Queries and bodies of requests about single messages, cleanup and traces."""

from __future__ import annotations

import re
from base64 import urlsafe_b64decode
from datetime import UTC, datetime
from typing import cast

import msgspec
from msgspec import Raw

from queen_sync import ids, inspection as i, model as m
from queen_sync.clock import MILLISECOND, SECOND, to_us
from queen_sync.errors import InvalidRequest
from queen_sync.payloads import JsonText, check_text
from queen_sync.wire.bodies import Body, decode_body, is_empty
from queen_sync.wire.queries import Query, read_number
from queen_sync.wire.texts import instant_of, read_instant, read_uuid

USUAL_SPAN_US = 3_600 * SECOND
"""How far back a listing goes that does not say."""
MESSAGES_LIMIT = 200
QUEUE_MESSAGES_LIMIT = 50
TRACES_LIMIT = 100
TRACE_NAMES_LIMIT = 50
CURSOR_BYTES = 24
MAX_INSTANT_US = to_us(datetime.max.replace(tzinfo=UTC))
_MINUTE_US = 60 * SECOND
_FRACTION = re.compile(r"[.,](\d+)", re.ASCII)
_NOTHING = Raw(b"")

# ------------------------------------------------------------------------- listings


def decode_page(query: Query, limit: int) -> tuple[int, int]:
    """Return the limit and offset of a page; ``limit`` is the usual one.

    As everywhere a number that cannot be read is the usual one. A longer page than there is
    is cut to the longest, and says where it goes on; other numbers that make no page are refused.
    """
    asked, offset = read_number(query, "limit"), read_number(query, "offset")
    page = limit if asked is None else min(asked, i.MAX_PAGE), offset or 0
    i.check_page(*page)
    return page


def decode_message_filter(query: Query, now_us: int) -> i.MessageFilter:
    """Return which messages are asked for; without ``from``, those of the last hour.

    The messages of a trace are all meant, however old.
    """
    given = {name: value for name, value in query.items() if value}
    for field in ("queue", "partition", "namespace", "ns", "task", "consumerGroup"):
        if field in given:
            m.check_name(given[field], field)
    namespace = given.get("namespace", given.get("ns"))
    if given.get("ns", namespace) != namespace:
        raise InvalidRequest("namespace and ns are one filter and differ", "ns")
    trace_id = given.get("traceId")
    if trace_id is not None:
        trace_id = read_uuid(trace_id, "traceId must be a UUID", "traceId")
    from_us = None if trace_id is not None else now_us - USUAL_SPAN_US
    if "from" in given:
        from_us = read_instant(given["from"], "from")
    limit, offset = decode_page(given, MESSAGES_LIMIT)
    return i.MessageFilter(
        queue=given.get("queue"),
        partition=given.get("partition"),
        namespace=namespace,
        task=given.get("task"),
        trace_id=trace_id,
        status=cast("i.MessageStatus | None", given.get("status")),
        group=given.get("consumerGroup"),
        from_us=from_us,
        to_us=_until(given),
        before=_before(given),
        limit=limit,
        offset=offset,
    )


def decode_queue_messages(query: Query, queue: str) -> i.MessageFilter:
    """Return which page of a queue's messages is asked for."""
    m.check_name(queue, "queue")
    limit, offset = decode_page(query, QUEUE_MESSAGES_LIMIT)
    return i.MessageFilter(queue=queue, limit=limit, offset=offset)


def _until(given: Query) -> int | None:
    """Return the last instant that ``to`` means.

    It is the end of what is written: of the minute, the second or the millisecond, unless the
    fraction goes further. So a row is found again by its own ``createdAt``.
    """
    if "to" not in given:
        return None
    until_us = read_instant(given["to"], "to")
    fraction = _FRACTION.search(given["to"])
    if fraction is not None and len(fraction[1]) > 3:
        return until_us
    unit_us = next(unit for unit in (_MINUTE_US, SECOND, MILLISECOND) if until_us % unit == 0)
    return until_us + unit_us - 1


def _before(given: Query) -> tuple[int, str] | None:
    """Return the key behind which a page begins, from either of its two forms."""
    pair = given.get("lastCreatedAt"), given.get("lastId")
    if "cursor" in given:
        if pair != (None, None):
            raise InvalidRequest("cursor stands for lastCreatedAt and lastId", "cursor")
        return _cursor(given["cursor"])
    created_at, last_id = pair
    if created_at is None and last_id is None:
        return None
    if created_at is None or last_id is None:
        missing = "lastCreatedAt" if created_at is None else "lastId"
        raise InvalidRequest("lastCreatedAt and lastId go together", missing)
    last_id = read_uuid(last_id, "lastId must be a UUID", "lastId")
    if ids.address(last_id) is None:
        raise InvalidRequest("lastId is no message's id", "lastId")
    return instant_of(read_instant(created_at, "lastCreatedAt"), last_id), last_id


def _cursor(text: str) -> tuple[int, str]:
    """Read what `message_answers` made of a key; nobody else needs to know how."""
    try:
        packed = urlsafe_b64decode(text)
    except ValueError:
        packed = b""
    number = packed[8:].hex()
    last_id = "-".join((number[:8], number[8:12], number[12:16], number[16:20], number[20:]))
    said = ids.address(last_id)
    created_us = int.from_bytes(packed[:8])
    # A message's id holds the end of its instant, so that a text made up is found out.
    if (
        len(packed) != CURSOR_BYTES
        or said is None
        or said.stamp != created_us & ids.STAMP_MASK
        or created_us > MAX_INSTANT_US
    ):
        raise InvalidRequest("cursor is none that this server gave", "cursor")
    return created_us, last_id


# -------------------------------------------------------------------- single messages


class _Bury(Body):
    consumer_group: str | None = None
    error: str | None = None


_BURY = msgspec.json.Decoder(_Bury)


def decode_place(partition_id: str, transaction_id: str) -> tuple[str, str]:
    """Return the partition's id and the name of the message that a path names."""
    m.check_name(transaction_id, "transactionId")
    return read_uuid(partition_id, "partitionId must be a UUID", "partitionId"), transaction_id


def decode_bury(query: Query, body: bytes) -> tuple[str | None, str | None]:
    """Return for which group a message is to be dead-lettered, None for all, and why."""
    group = query.get("consumerGroup") or None
    error = None
    if not is_empty(body):
        given = decode_body(_BURY, body, "body must be an object", "body")
        group = given.consumer_group or group
        error = given.error
    if group is not None:
        m.check_name(group, "consumerGroup")
    return group, error


def decode_clear(query: Query, queue: str) -> tuple[str, str | None]:
    """Return the queue that is to be cleared, and the partition if only one is meant.

    A name that is not known is refused, and so is an empty one: a slip must not clear more
    than was meant.
    """
    m.check_name(queue, "queue")
    for name in query:
        if name != "partition":
            raise InvalidRequest(f"unknown parameter '{name}'", name)
    partition = query.get("partition")
    if partition is not None:
        m.check_name(partition, "partition")
    return queue, partition


# ------------------------------------------------------------------------------ traces


class _Trace(Body):
    transaction_id: str | None = None
    partition_id: str | None = None
    data: Raw = _NOTHING
    consumer_group: str | None = None
    trace_names: str | list[str] | None = None
    event_type: str | None = None


_TRACE = msgspec.json.Decoder(_Trace)


def decode_trace(body: bytes) -> i.Trace:
    """Return the note of a body; filed for the consumers without a group where it names none."""
    needed = "transactionId and partitionId are required"
    given = decode_body(_TRACE, body, needed, "transactionId")
    if not given.transaction_id or not given.partition_id:
        missing = "partitionId" if given.transaction_id else "transactionId"
        raise InvalidRequest(needed, missing)
    if not given.data:
        raise InvalidRequest("data is required", "data")
    check_text(bytes(given.data), "data")
    names = given.trace_names
    return i.Trace(
        partition_id=read_uuid(given.partition_id, "partitionId must be a UUID", "partitionId"),
        transaction_id=given.transaction_id,
        group=given.consumer_group or m.QUEUE_MODE,
        names=[names] if isinstance(names, str) else names or (),
        kind=given.event_type or "info",
        data=JsonText(given.data),
    )


def decode_trace_filter(query: Query, name: str) -> i.TraceFilter:
    """Return which notes of a name are asked for."""
    m.check_name(name, "traceName")
    given = {key: value for key, value in query.items() if value}
    limit, offset = decode_page(given, TRACES_LIMIT)
    return i.TraceFilter(
        name=name,
        limit=limit,
        offset=offset,
        from_us=read_instant(given["from"], "from") if "from" in given else None,
        to_us=_until(given),
    )


def decode_trace_name_page(query: Query) -> tuple[int, int]:
    """Return which page of the names of notes is asked for."""
    return decode_page(query, TRACE_NAMES_LIMIT)
