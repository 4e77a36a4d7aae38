"""Time as an argument: the system's clock, and one that tests move by hand.

Instants are whole microseconds since 1970-01-01 UTC, the resolution of a PostgreSQL
timestamp, so that all backends compare the same numbers.
"""

from __future__ import annotations

import threading
import time
from datetime import UTC, datetime, timedelta
from typing import Protocol

SECOND = 1_000_000
MILLISECOND = 1_000
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_MICROSECOND = timedelta(microseconds=1)


class Clock(Protocol):
    """Whatever tells the present instant."""

    def now_us(self) -> int:
        """Return microseconds since 1970-01-01 UTC."""


class SystemClock:
    """The clock of this machine."""

    def now_us(self) -> int:
        return time.time_ns() // 1_000


class ManualClock:
    """A clock that stands still until it is advanced; safe to share between threads."""

    def __init__(self, start: datetime = datetime(2026, 1, 1, tzinfo=UTC)) -> None:
        self._now_us = to_us(start)
        self._lock = threading.Lock()

    def now_us(self) -> int:
        return self._now_us

    def advance(self, seconds: float) -> None:
        """Move on by ``seconds``; never back."""
        if seconds < 0:
            raise ValueError("a clock does not go back")
        with self._lock:
            self._now_us += round(seconds * SECOND)


def to_us(instant: datetime) -> int:
    """Return an aware datetime as microseconds since 1970-01-01 UTC."""
    return (instant - _EPOCH) // _MICROSECOND


def to_datetime(instant_us: int) -> datetime:
    """Return an instant as an aware datetime in UTC."""
    return _EPOCH + timedelta(microseconds=instant_us)
