"""A queue and its options."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from datetime import datetime

import msgspec

from queen_sync.clock import to_datetime
from queen_sync.errors import InvalidRequest
from queen_sync.values import Value

DEFAULT_PARTITION = "Default"
DEFAULT_LEASE_SECONDS = 60
"""What a ``lease_seconds`` of 0 means."""
MAX_LEASE_SECONDS = 86_400


class QueueOptions(Value, frozen=True):
    """The options of a queue, with their defaults; 0 turns a limit or a delay off.

    ``dead_letter_queue`` and ``dlq_after_max_retries`` are kept and have no effect:
    a message past its retry limit is always dead-lettered (C-02).
    """

    lease_seconds: int = 300
    retry_limit: int = 3
    retry_delay_milliseconds: int = 0
    max_queue_size: int = 0
    ttl_seconds: int = 0
    dead_letter_queue: bool = False
    dlq_after_max_retries: bool = False
    priority: int = 0
    delayed_processing_seconds: int = 0
    window_buffer_seconds: int = 0
    retention_seconds: int = 0
    completed_retention_seconds: int = 0
    retention_enabled: bool = False
    encryption_enabled: bool = False
    max_wait_seconds: int = 0
    require_lease_id: bool = True
    spread_partitions: int = 0

    def __post_init__(self) -> None:
        for field in msgspec.structs.fields(type(self)):
            check_option(field.name, getattr(self, field.name))

    @property
    def effective_lease_seconds(self) -> int:
        """How long a lease lasts: 0 means 60."""
        return self.lease_seconds or DEFAULT_LEASE_SECONDS


OPTION_DEFAULTS: Mapping[str, int | bool] = {
    field.name: field.default for field in msgspec.structs.fields(QueueOptions)
}
MAX_OPTION = 2**31 - 1


def check_option(name: str, value: object) -> None:
    """Refuse an unknown option, a value of the wrong type, and one out of bounds (C-11)."""
    default = OPTION_DEFAULTS.get(name)
    if default is None:
        raise InvalidRequest(f"unknown option '{name}'", name)
    if isinstance(default, bool):
        if not isinstance(value, bool):
            raise InvalidRequest(f"{name} must be true or false", name)
    elif isinstance(value, bool) or not isinstance(value, int) or not 0 <= value <= MAX_OPTION:
        raise InvalidRequest(f"{name} must be a non-negative integer", name)
    elif name == "lease_seconds" and value > MAX_LEASE_SECONDS:
        raise InvalidRequest(f"{name} must be at most {MAX_LEASE_SECONDS}", name)


class Queue(Value, frozen=True):
    """A queue as it stands: its names, options and ids."""

    id: str
    name: str
    options: QueueOptions
    default_partition_id: str
    created_us: int
    namespace: str = ""
    task: str = ""

    @property
    def created_at(self) -> datetime:
        return to_datetime(self.created_us)


class Change(Value, frozen=True):
    """One option before and after a configure."""

    old: int | bool | str | None
    new: int | bool | str | None


class Configured(Value, frozen=True):
    """What configure did: the queue as it now is, whether it is new, what changed."""

    queue: Queue
    created: bool
    changes: dict[str, Change]


def spread_name(index: int) -> str:
    """Return the name of one of the partitions that a queue spreads over, counted from 0."""
    return DEFAULT_PARTITION if index == 0 else f"{DEFAULT_PARTITION}-{index + 1}"


def spread_index(transaction_id: str, count: int) -> int:
    """Return which of ``count`` partitions a named message goes to, so that a repeat meets it."""
    digest = hashlib.sha256(transaction_id.encode()).digest()
    return int.from_bytes(digest[:8], "big") % count
