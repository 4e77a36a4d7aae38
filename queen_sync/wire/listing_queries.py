"""Query strings of listings and statistics: pages, spans of time, filters.

A number or an instant that cannot be read is refused here, not replaced by its default: whoever
looks at figures must be able to trust that they are those he asked for.
"""

from __future__ import annotations

from collections.abc import Mapping
from datetime import UTC, datetime
from typing import NamedTuple

import msgspec

from queen_sync import model as m, stats as s
from queen_sync.clock import SECOND, to_us
from queen_sync.errors import InvalidRequest
from queen_sync.inspection import MAX_PAGE
from queen_sync.wire.queries import Query, decode_switch
from queen_sync.wire.texts import read_instant

HOUR = 60 * s.MINUTE
DAY = 24 * HOUR
_INTERVALS: Mapping[str, int] = {"minute": 1, "hour": 60, "day": 1440}
_BUCKETS = ((2 * HOUR, 1), (12 * HOUR, 5), (2 * DAY, 15), (14 * DAY, 60))
"""Up to which length of a span its buckets are so many minutes long."""
_LONGEST_BUCKET_MINUTES = 360
_MAX_NUMBER = 2**31 - 1
_FIRST_US = 1  # 0 stands for none
_LAST_US = to_us(datetime.max.replace(tzinfo=UTC)) - DAY


class Page(NamedTuple):
    """A part of a listing."""

    limit: int
    offset: int


class Span(NamedTuple):
    """A time from an instant to another, both counted."""

    from_us: int
    to_us: int

    @property
    def bucket_minutes(self) -> int:
        """How long the parts are in which a span of that length is shown."""
        length_us = self.to_us - self.from_us
        return next((m for most, m in _BUCKETS if length_us <= most), _LONGEST_BUCKET_MINUTES)


class Choice(msgspec.Struct, frozen=True):
    """Which queues are meant; None asks nothing."""

    queue: str | None = None
    namespace: str | None = None
    task: str | None = None

    def covers(self, queue: m.Queue) -> bool:
        """Return whether a queue is meant."""
        return (
            self.queue in (None, queue.name)
            and self.namespace in (None, queue.namespace)
            and self.task in (None, queue.task)
        )

    @property
    def everything(self) -> bool:
        """Whether all queues are meant."""
        return self == Choice()


def decode_page(query: Query, default_limit: int = MAX_PAGE) -> Page:
    """Return which part of a listing is asked for; no page is longer than `MAX_PAGE`."""
    limit = decode_number(query, "limit", default_limit, minimum=1)
    return Page(min(limit, MAX_PAGE), decode_number(query, "offset", 0))


def decode_number(query: Query, name: str, default: int, *, minimum: int = 0) -> int:
    """Return a whole number of the query, its default where it is not given."""
    text = query.get(name) or ""
    if not text:
        return default
    number = int(text) if text.isascii() and text.isdigit() and len(text) < 11 else -1
    if not minimum <= number <= _MAX_NUMBER:
        raise InvalidRequest(f"{name} must be a whole number of at least {minimum}", name)
    return number


def decode_choice(query: Query) -> Choice:
    """Return which queues a query means."""
    return Choice(
        queue=_name(query, "queue"),
        namespace=_name(query, "namespace") or _name(query, "ns"),
        task=_name(query, "task"),
    )


def decode_span(query: Query, now_us: int, length_us: int = HOUR) -> Span:
    """Return the time that a query means: up to now, and so long, where it does not say."""
    to_us = _instant(query, "to", now_us)
    from_us = _instant(query, "from", max(_FIRST_US, to_us - length_us))
    if from_us > to_us:
        raise InvalidRequest("from must not be after to", "from")
    return Span(from_us, to_us)


def decode_interval(query: Query) -> tuple[str, int]:
    """Return the interval of a series by its name and in minutes."""
    name = query.get("interval") or "hour"
    if name not in _INTERVALS:
        raise InvalidRequest("interval must be one of minute, hour, day", "interval")
    return name, _INTERVALS[name]


def decode_group_choice(query: Query) -> tuple[str | None, str | None]:
    """Return the group and the queue that a query means, each None for all."""
    return _name(query, "consumerGroup"), _name(query, "queue")


def decode_search(query: Query) -> str:
    """Return what the names that are looked for contain, in small letters."""
    return (query.get("search") or "").casefold()


def decode_lagging(query: Query, now_us: int) -> s.LaneFilter:
    """Return the lanes whose oldest message has waited too long."""
    seconds = decode_number(query, "minLagSeconds", 3600)
    page = decode_page(query)
    return s.LaneFilter(
        waiting_since_us=now_us - seconds * SECOND,
        order="age",
        limit=page.limit,
        offset=page.offset,
    )


def decode_lanes(query: Query) -> s.LaneFilter:
    """Return which lanes are asked for, and in which order."""
    order = query.get("order") or "name"
    if order not in s.LANE_ORDERS:
        raise InvalidRequest(f"order must be one of {', '.join(s.LANE_ORDERS)}", "order")
    page = decode_page(query, 100)
    return s.LaneFilter(
        queue=_name(query, "queue"),
        group=_name(query, "consumerGroup"),
        partition=_name(query, "partition"),
        leased=decode_switch(query, "leased"),
        waiting_since_us=_instant(query, "waitingSince", 0) or None,
        order=order,
        limit=page.limit,
        offset=page.offset,
    )


def _instant(query: Query, field: str, default_us: int) -> int:
    """Return an instant of the query; before 1970 and after 9999 there is nothing to be found."""
    text = query.get(field) or ""
    return max(_FIRST_US, min(read_instant(text, field), _LAST_US)) if text else default_us


def _name(query: Query, field: str) -> str | None:
    name = query.get(field) or None
    if name is not None:
        m.check_name(name, field)
    return name
