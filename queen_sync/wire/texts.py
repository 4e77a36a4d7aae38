"""Instants, ids and JSON strings as the wire writes them."""

from __future__ import annotations

import re
from datetime import UTC, datetime
from functools import lru_cache

import msgspec

from queen_sync import ids
from queen_sync.clock import MILLISECOND, SECOND, to_datetime, to_us
from queen_sync.errors import InvalidRequest

_UUID = re.compile(r"[0-9a-fA-F]{8}(?:-[0-9a-fA-F]{4}){3}-[0-9a-fA-F]{12}", re.ASCII)
_LOST_PLUS = re.compile(r"(\d) (\d\d:?\d\d)$", re.ASCII)
_MAX_ID_LENGTH = 255

json_text = msgspec.json.Encoder().encode
"""Write a string (or any value) as JSON."""


@lru_cache(maxsize=1024)
def _second(seconds: int) -> str:
    return to_datetime(seconds * SECOND).strftime("%Y-%m-%dT%H:%M:%S.").rjust(20, "0")


def instant(instant_us: int) -> str:
    """Return an instant in UTC with six fractional digits and ``Z``.

    The part down to the second is kept: the messages of a batch share it.
    """
    seconds, rest = divmod(instant_us, SECOND)
    return f"{_second(seconds)}{rest:06d}Z"


def instant_milliseconds(instant_us: int) -> str:
    """Return an instant in UTC with three fractional digits and ``Z``."""
    return instant(instant_us)[:-4] + "Z"


def read_instant(text: str, field: str) -> int:
    """Return an ISO 8601 text as an instant; without an offset it is UTC."""
    # A plus sign that nobody quoted in a query has become a space on its way.
    text = _LOST_PLUS.sub(r"\1+\2", text.strip())
    try:
        read = datetime.fromisoformat(text)
        # An offset may lead out of the years that there are.
        at = read.replace(tzinfo=UTC) if read.tzinfo is None else read.astimezone(UTC)
    except (ValueError, OverflowError):
        raise InvalidRequest(f"{field} must be an ISO 8601 timestamp", field) from None
    return to_us(at)


def instant_of(told_us: int, message_id: str) -> int:
    """Return the instant of a message whole, of which milliseconds were told.

    Its id holds the rest; where it does not fit, what was told is all that is known.
    """
    found = ids.address(message_id)
    if found is None:
        return told_us
    rest = (found.stamp - told_us) & ids.STAMP_MASK
    return told_us + rest if rest < MILLISECOND else told_us


def read_uuid(text: str, message: str, field: str) -> str:
    """Return a UUID in its canonical spelling; refuse any other text, with ``message``."""
    if _UUID.fullmatch(text) is None:
        raise InvalidRequest(message, field)
    return text.lower()


def read_lease_id(text: str | None) -> str | None:
    """Return a lease id as given: one that is not ours is for the store to refuse.

    What no store could look up is refused here; the empty text is that of an autoAck pop,
    which has no lease.
    """
    if not text:
        return None
    if len(text) > _MAX_ID_LENGTH or "\0" in text:
        raise InvalidRequest("leaseId is no lease id", "leaseId")
    return text
