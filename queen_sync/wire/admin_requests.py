"""Bodies of requests about queues, leases, groups and dead letters."""

from __future__ import annotations

from typing import Any, Literal

import msgspec

from queen_sync import model as m
from queen_sync.errors import InvalidRequest
from queen_sync.wire.bodies import Body, decode_body, is_empty
from queen_sync.wire.options import read_options
from queen_sync.wire.queries import (
    DEAD_LETTER_FILTERS,
    Query,
    choose_dead_letters,
    dotted_queue,
)
from queen_sync.wire.texts import read_instant, read_uuid


class _Configure(Body):
    queue: str
    ns: str | None = None
    namespace: str | None = None
    task: str | None = None
    options: dict[str, Any] | None = None


class _Extend(Body):
    seconds: Any = None


class _Restart(Body):
    subscription_timestamp: str


class _Seek(Body):
    to_start: bool | None = None
    to_end: bool | None = None
    timestamp: str | None = None


class _Retry(Body):
    consumer_group: str | None = None


_CONFIGURE = msgspec.json.Decoder(_Configure)
_EXTEND = msgspec.json.Decoder(_Extend)
_RESTART = msgspec.json.Decoder(_Restart)
_SEEK = msgspec.json.Decoder(_Seek)
_RETRY = msgspec.json.Decoder(_Retry)
_FILTERS = msgspec.json.Decoder(dict[str, str | None])


class Configure(msgspec.Struct, frozen=True):
    """A queue and what to change of it."""

    queue: str
    options: dict[str, int | bool]
    namespace: str | None
    task: str | None
    by_path: bool
    """It is named as older clients do, by namespace, task and last name."""


def decode_configure(body: bytes) -> Configure:
    """Return the queue of a configure, its options under our names, namespace and task."""
    try:
        given = decode_body(_CONFIGURE, body, "queue is required", "queue")
    except InvalidRequest as error:
        if error.field == "queue":
            raise InvalidRequest("queue is required", "queue") from error
        raise
    m.check_name(given.queue, "queue")
    options = read_options(given.options)
    if given.ns is not None:
        queue = dotted_queue(given.ns, given.task or "", given.queue)
        return Configure(queue, options, given.ns, given.task, by_path=True)
    for name, field in ((given.namespace, "namespace"), (given.task, "task")):
        if name:
            m.check_name(name, field)
    return Configure(given.queue, options, given.namespace, given.task, by_path=False)


def decode_extend(body: bytes) -> int | None:
    """Return for how many seconds a lease is wanted; None where the body does not say."""
    if is_empty(body):
        return None
    seconds = decode_body(_EXTEND, body, "seconds must be an integer", "seconds").seconds
    if seconds is None:
        return None
    if isinstance(seconds, bool) or not isinstance(seconds, int):
        raise InvalidRequest("seconds must be an integer", "seconds")
    if not 1 <= seconds <= m.MAX_LEASE_SECONDS:
        raise InvalidRequest(f"seconds must be 1 to {m.MAX_LEASE_SECONDS}", "seconds")
    return seconds


def decode_restart(body: bytes) -> int:
    """Return the instant at which a group is to begin."""
    text = "Missing subscriptionTimestamp in request body"
    if is_empty(body):
        raise InvalidRequest(text, "subscriptionTimestamp")
    given = decode_body(_RESTART, body, text, "subscriptionTimestamp")
    return read_instant(given.subscription_timestamp, "subscriptionTimestamp")


def decode_seek(body: bytes, group: str, queue: str, partition: str | None) -> m.Seek:
    """Return where a group is to be moved.

    One partition goes to its end where the body does not say; a whole queue goes nowhere
    without being told.
    """
    given = (
        _Seek() if is_empty(body) else decode_body(_SEEK, body, "body must be an object", "body")
    )
    chosen = [
        name
        for name, value in (
            ("toStart", given.to_start),
            ("toEnd", given.to_end),
            ("timestamp", given.timestamp),
        )
        if value
    ]
    if not chosen and partition is not None:
        chosen = ["toEnd"]
    if len(chosen) != 1:
        raise InvalidRequest(
            "Must specify one of 'toStart': true, 'toEnd': true and 'timestamp'", "timestamp"
        )
    if given.timestamp:
        from_us = read_instant(given.timestamp, "timestamp")
        return m.Seek(queue=queue, group=group, partition=partition, to="time", from_us=from_us)
    to: Literal["start", "end"] = "start" if chosen == ["toStart"] else "end"
    return m.Seek(queue=queue, group=group, partition=partition, to=to)


def decode_dead_letter_choice(query: Query, body: bytes) -> m.DeadLetterFilter:
    """Return which dead letters are to be redriven or purged; without a filter all of them.

    Filters stand in the query, in the body or in both. Unlike in a listing, a name that is no
    filter is refused, and so is an empty text: a slip must not choose more than was meant.
    """
    given = dict(query)
    if not is_empty(body):
        text = "body must be an object whose values are texts"
        named = decode_body(_FILTERS, body, text, "body")
        for name, value in named.items():
            if value is not None and given.setdefault(name, value) != value:
                raise InvalidRequest(f"{name} is given twice and differs", name)
    for name in given:
        if name not in DEAD_LETTER_FILTERS:
            raise InvalidRequest(f"unknown filter '{name}'", name)
    return choose_dead_letters(given)


def decode_retry(
    query: Query, body: bytes, partition_id: str, transaction_id: str
) -> m.DeadLetterFilter:
    """Return the dead letters of one message, of one group where the request names one."""
    m.check_name(transaction_id, "transactionId")
    group = query.get("consumerGroup") or None
    if not is_empty(body):
        given = decode_body(_RETRY, body, "body must be an object", "body")
        group = given.consumer_group or group
    if group is not None:
        m.check_name(group, "consumerGroup")
    return m.DeadLetterFilter(
        partition_id=read_uuid(partition_id, "partitionId must be a UUID", "partitionId"),
        transaction_id=transaction_id,
        group=group,
    )
