"""Query strings: what is asked in the address of a request.

As the wire has it: a switch is on for ``true`` and ``1``, a number that cannot be read is
its default, and names that are not known are passed over.
"""

from __future__ import annotations

from collections.abc import Mapping

import msgspec

from queen_sync import model as m
from queen_sync.errors import InvalidRequest
from queen_sync.wire.texts import read_instant, read_uuid

_MODES: Mapping[str, m.Subscription] = {
    "all": m.Subscription(mode="all"),
    "from_beginning": m.Subscription(mode="all"),
    "new": m.Subscription(mode="new"),
    "new-only": m.Subscription(mode="new"),
}
_NEW = m.Subscription(mode="new")
DEAD_LETTER_FILTERS = frozenset(
    {"queue", "consumerGroup", "partition", "partitionId", "transactionId", "from", "to"}
)
"""The names of what dead letters can be chosen by."""
_MAX_DIGITS = 18
"""Longer numbers are cut to 10^18: they are beyond every limit."""

Query = Mapping[str, str]


def decode_switch(query: Query, name: str, *, default: bool = False) -> bool:
    """Return whether a switch of the query is on."""
    given = query.get(name)
    return default if given is None else given.lower() in ("true", "1")


def read_number(query: Query, *names: str) -> int | None:
    """Return the first of the named numbers that is given, or None where it cannot be read."""
    given = next((query[name] for name in names if name in query), "")
    digits = given.removeprefix("-")
    if not (digits.isascii() and digits.isdigit()):
        return None
    number = int(digits) if len(digits) <= _MAX_DIGITS else 10**_MAX_DIGITS
    return number if digits == given else -number


def _count(query: Query, *names: str) -> int:
    number = read_number(query, *names)
    return 1 if number is None or number < 1 else number


def decode_pop(
    query: Query,
    *,
    queue: str = "",
    partition: str | None = None,
    namespace: str | None = None,
    task: str | None = None,
) -> tuple[m.PopRequest, float | None]:
    """Return what to pop and how many seconds to wait for it; None: as long as is usual.

    What is popped from, a queue or a namespace and task, is the caller's to say.
    """
    group = query.get("consumerGroup") or m.QUEUE_MODE
    subscription = _subscription(query)
    request = m.PopRequest(
        queue=queue,
        namespace=namespace,
        task=task,
        group=group,
        partition=partition,
        max_messages=_count(query, "batch"),
        max_partitions=_count(query, "partitions", "maxPartitions") if partition is None else 1,
        auto_ack=decode_switch(query, "autoAck"),
        subscription=None if group == m.QUEUE_MODE else subscription,
        attempt_id=query.get("attemptId") or None,
    )
    if not decode_switch(query, "wait"):
        return request, 0.0
    timeout = read_number(query, "timeout")
    return request, None if timeout is None else max(0, timeout) / 1000


def decode_scope(query: Query) -> tuple[str | None, str | None]:
    """Return the namespace and the task that a query names, at least one of them.

    There is no pop over all queues.
    """
    namespace, task = query.get("namespace") or None, query.get("task") or None
    if namespace is None and task is None:
        raise InvalidRequest("namespace or task is required", "namespace")
    return namespace, task


def dotted_queue(namespace: str, task: str, name: str) -> str:
    """Return the full name of a queue that is named as a path of three parts.

    Only the last part may hold dots: otherwise two paths would mean the same queue (C-18).
    """
    for part, field in ((namespace, "namespace"), (task, "task"), (name, "queue")):
        m.check_name(part, field)
        if "." in part and field != "queue":
            raise InvalidRequest(f"{field} may not hold a dot in this path", field)
    return f"{namespace}.{task}.{name}"


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
    limit, offset = read_number(query, "limit"), read_number(query, "offset")
    return msgspec.structs.replace(
        choose_dead_letters({name: value for name, value in query.items() if value}),
        limit=100 if limit is None or limit < 0 else min(limit, max_limit),
        offset=0 if offset is None or offset < 0 else offset,
    )


def choose_dead_letters(given: Query) -> m.DeadLetterFilter:
    """Return the filter that the given names make; those that are no filters are passed over."""
    for field in ("queue", "consumerGroup", "partition", "transactionId"):
        if field in given:
            m.check_name(given[field], field)
    partition_id, start, end = given.get("partitionId"), given.get("from"), given.get("to")
    if partition_id is not None:
        partition_id = read_uuid(partition_id, "partitionId must be a UUID", "partitionId")
    return m.DeadLetterFilter(
        queue=given.get("queue"),
        group=given.get("consumerGroup"),
        partition=given.get("partition"),
        partition_id=partition_id,
        transaction_id=given.get("transactionId"),
        failed_from_us=None if start is None else read_instant(start, "from"),
        failed_to_us=None if end is None else read_instant(end, "to"),
    )
