"""Query strings: what is asked in the address of a request.

As the wire has it: a switch is on for ``true`` and ``1``, a number that cannot be read is
its default, and names that are not known are passed over.
"""

from __future__ import annotations

from collections.abc import Mapping

from queen_sync import model as m
from queen_sync.errors import InvalidRequest, NotSupported
from queen_sync.wire.texts import read_instant

_MODES: Mapping[str, m.Subscription] = {
    "all": m.Subscription(mode="all"),
    "from_beginning": m.Subscription(mode="all"),
    "new": m.Subscription(mode="new"),
    "new-only": m.Subscription(mode="new"),
}
_NEW = m.Subscription(mode="new")
_MAX_DIGITS = 18
"""Longer numbers are cut to 10^18: they are beyond every limit."""

Query = Mapping[str, str]


def decode_switch(query: Query, name: str, *, default: bool = False) -> bool:
    """Return whether a switch of the query is on."""
    given = query.get(name)
    return default if given is None else given.lower() in ("true", "1")


def _number(query: Query, *names: str) -> int | None:
    """Return the first of the named numbers that is given, or None where it cannot be read."""
    given = next((query[name] for name in names if name in query), "")
    digits = given.removeprefix("-")
    if not (digits.isascii() and digits.isdigit()):
        return None
    number = int(digits) if len(digits) <= _MAX_DIGITS else 10**_MAX_DIGITS
    return number if digits == given else -number


def _count(query: Query, *names: str) -> int:
    number = _number(query, *names)
    return 1 if number is None or number < 1 else number


def decode_pop(
    queue: str, partition: str | None, query: Query
) -> tuple[m.PopRequest, float | None]:
    """Return what to pop and how many seconds to wait for it; None: as long as is usual."""
    group = query.get("consumerGroup") or m.QUEUE_MODE
    auto_ack = decode_switch(query, "autoAck")
    if query.get("attemptId"):
        if auto_ack:
            raise InvalidRequest("attemptId cannot be used with autoAck", "attemptId")
        raise NotSupported("this server does not offer: attemptId", "attemptId")
    subscription = _subscription(query)
    request = m.PopRequest(
        queue=queue,
        group=group,
        partition=partition,
        max_messages=_count(query, "batch"),
        max_partitions=_count(query, "partitions", "maxPartitions") if partition is None else 1,
        auto_ack=auto_ack,
        subscription=None if group == m.QUEUE_MODE else subscription,
    )
    if not decode_switch(query, "wait"):
        return request, 0.0
    timeout = _number(query, "timeout")
    return request, None if timeout is None else max(0, timeout) / 1000


def _subscription(query: Query) -> m.Subscription | None:
    mode = query.get("subscriptionMode")
    start = query.get("subscriptionFrom")
    if mode and mode not in _MODES:
        raise InvalidRequest("subscriptionMode must be one of all, new", "subscriptionMode")
    if start and start != "now":
        return m.Subscription(mode="from", from_us=read_instant(start, "subscriptionFrom"))
    if start:
        return _NEW
    return _MODES[mode] if mode else None


def decode_dead_letter_filter(query: Query, max_limit: int) -> m.DeadLetterFilter:
    """Return which dead letters are asked for; a page is at most ``max_limit`` long."""
    limit, offset = _number(query, "limit"), _number(query, "offset")
    queue = query.get("queue") or None
    group = query.get("consumerGroup") or None
    partition = query.get("partition") or None
    for name, field in ((queue, "queue"), (group, "consumerGroup"), (partition, "partition")):
        if name is not None:
            m.check_name(name, field)
    start, end = query.get("from"), query.get("to")
    return m.DeadLetterFilter(
        queue=queue,
        group=group,
        partition=partition,
        failed_from_us=read_instant(start, "from") if start else None,
        failed_to_us=read_instant(end, "to") if end else None,
        limit=100 if limit is None or limit < 0 else min(limit, max_limit),
        offset=0 if offset is None or offset < 0 else offset,
    )
