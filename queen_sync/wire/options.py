"""The options of a queue as the wire spells them."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from queen_sync import model as m
from queen_sync.errors import InvalidRequest

OPTION_NAMES: Mapping[str, str] = {
    "lease_seconds": "leaseTime",
    "retry_limit": "retryLimit",
    "retry_delay_milliseconds": "retryDelay",
    "max_queue_size": "maxSize",
    "ttl_seconds": "ttl",
    "dead_letter_queue": "deadLetterQueue",
    "dlq_after_max_retries": "dlqAfterMaxRetries",
    "priority": "priority",
    "delayed_processing_seconds": "delayedProcessing",
    "window_buffer_seconds": "windowBuffer",
    "retention_seconds": "retentionSeconds",
    "completed_retention_seconds": "completedRetentionSeconds",
    "retention_enabled": "retentionEnabled",
    "encryption_enabled": "encryptionEnabled",
    "max_wait_seconds": "maxWaitTimeSeconds",
    "require_lease_id": "requireLeaseId",
    "spread_partitions": "spreadPartitions",
}
"""Our name of each option, and the wire's, in the order in which answers list them."""

_READ = {wire: name for name, wire in OPTION_NAMES.items()} | {"maxQueueSize": "max_queue_size"}


def read_options(given: Mapping[str, Any] | None) -> dict[str, int | bool]:
    """Return the options that a configure names, under our names; null means omitted (C-11).

    Numbers may come as numeric strings. Raises InvalidRequest that names the option.
    """
    options: dict[str, int | bool] = {}
    for key, value in (given or {}).items():
        name = _READ.get(key)
        if name is None:
            raise InvalidRequest(f"unknown option '{key}'", key)
        if value is None:
            continue
        read = _read_value(name, key, value)
        if options.setdefault(name, read) != read:
            raise InvalidRequest("maxSize and maxQueueSize are one option and differ", key)
    return options


def _read_value(name: str, key: str, value: Any) -> int | bool:
    if isinstance(m.OPTION_DEFAULTS[name], bool):
        if isinstance(value, bool):
            return value
        raise InvalidRequest(f"{key} must be true or false", key)
    number = value
    # Ten digits hold every number that is allowed, and int() of a very long text is slow.
    if isinstance(value, str) and len(value) <= 10 and value.isascii() and value.isdigit():
        number = int(value)
    if isinstance(number, bool) or not isinstance(number, int) or number < 0:
        raise InvalidRequest(f"{key} must be a non-negative integer", key)
    limit = m.MAX_LEASE_SECONDS if name == "lease_seconds" else m.MAX_OPTION
    if number > limit:
        raise InvalidRequest(f"{key} must be at most {limit}", key)
    return number


def write_options(options: m.QueueOptions) -> dict[str, int | bool]:
    """Return all options under the names of the wire."""
    return {wire: getattr(options, name) for name, wire in OPTION_NAMES.items()}
