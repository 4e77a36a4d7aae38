"""What every value of the model is: frozen, and refused when made if it could not be stored."""

from __future__ import annotations

import msgspec

from queen_sync.errors import InvalidRequest

MAX_NAME_LENGTH = 255
RESERVED_PREFIX = "__system_"
"""Queues whose names begin with it belong to the server."""


def check_name(name: str, field: str) -> None:
    """Refuse a name that is not 1 to 255 characters, holds NUL, or is ``.`` or ``..`` (C-18)."""
    if 0 < len(name) <= MAX_NAME_LENGTH and "\0" not in name and name not in (".", ".."):
        try:
            name.encode()
        except UnicodeEncodeError as error:
            raise InvalidRequest(f"{field} is not valid Unicode", field) from error
        return
    if not name:
        raise InvalidRequest(f"{field} is required", field)
    if len(name) > MAX_NAME_LENGTH:
        raise InvalidRequest(f"{field} name exceeds {MAX_NAME_LENGTH} characters", field)
    raise InvalidRequest(f"{field} may not be '.' or '..' nor hold NUL", field)


def check_queue_name(name: str) -> None:
    """Refuse what is no name, and one that belongs to the server (C-18)."""
    check_name(name, "queue")
    if name.startswith(RESERVED_PREFIX):
        raise InvalidRequest(f"queue names beginning with {RESERVED_PREFIX} are reserved", "queue")


class Value(msgspec.Struct, frozen=True, kw_only=True):
    """A frozen value."""
