"""What a server makes sure of before it starts: a store that keeps what it is given."""

from __future__ import annotations

import time
from collections.abc import Callable

import psycopg

from queen_sync.config import Settings
from queen_sync.errors import BackendError, BackendUnavailable

WAIT_SECONDS = 30
"""How long a start waits for a database that is starting too."""
BESIDE_POOL = 2
"""Connections a process has beside its pool: the listener, and one for upkeep."""
KEEPS = ("fsync", "full_page_writes", "synchronous_commit")
"""What must not be off, or a power cut takes messages whose push was answered."""


def check(settings: Settings, warn: Callable[[str], object]) -> None:
    """Refuse to start on a PostgreSQL that loses data or has too few connections.

    Raises BackendUnavailable where it cannot be reached, BackendError for the rest; with
    ``allow_unsafe`` the loss is a warning. Other stores have nothing to check.
    """
    scheme, place = settings.store
    if scheme != "postgresql":
        return
    with _connect(place) as connection:
        cursor = connection.execute(
            "select name, setting from pg_settings where name = any(%s)",
            [[*KEEPS, "max_connections", "superuser_reserved_connections"]],
        )
        found: dict[str, str] = dict(cursor.fetchall())
    off = [name for name in KEEPS if found[name] == "off"]
    if off:
        text = (
            f"this PostgreSQL has {', '.join(off)} off: after a crash, messages whose push "
            "was answered may be gone"
        )
        if not settings.allow_unsafe:
            raise BackendError(f"{text}; turn it on, or accept that with --allow-unsafe")
        warn(f"UNSAFE: {text}")
    room = int(found["max_connections"]) - int(found["superuser_reserved_connections"])
    needed = settings.workers * (settings.database_pool_size + BESIDE_POOL)
    if needed > room:
        raise BackendError(
            f"{settings.workers} workers with {settings.database_pool_size} connections each, "
            f"and {BESIDE_POOL} beside, need {needed}, but this PostgreSQL allows {room}; lower "
            "DB_POOL_SIZE or QUEEN_WORKERS, or raise its max_connections"
        )


def _connect(dsn: str) -> psycopg.Connection[tuple[str, str]]:
    """Connect, waiting a while for a database that does not answer yet."""
    deadline = time.monotonic() + WAIT_SECONDS
    while True:
        try:
            return psycopg.connect(dsn, connect_timeout=5)
        except psycopg.OperationalError as error:
            # A refused password or a missing database will not get better by waiting.
            refused = error.sqlstate is not None and error.sqlstate[:2] in ("28", "3D")
            if refused or time.monotonic() > deadline:
                raise BackendUnavailable(f"cannot connect to PostgreSQL: {error}") from error
            time.sleep(0.5)
