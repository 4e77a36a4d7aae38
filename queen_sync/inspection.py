"""The values with which a store is looked into, and cleaned up: partitions, messages, traces.

They follow the rules of `queen_sync.model`: frozen, checked when made, instants in ``_us``.
"""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime
from typing import Any, Literal

import msgspec

from queen_sync import ids
from queen_sync.clock import to_datetime
from queen_sync.errors import InvalidRequest
from queen_sync.model import Value, check_name
from queen_sync.payloads import JsonText, to_value

MAX_PAGE = 1_000
"""The longest page of a listing."""
MAX_OFFSET = 100_000
"""How far into a listing an offset reaches; what lies behind it is read page by page."""
MAX_TRACE_NAMES = 100
MessageStatus = Literal["pending", "processing", "completed", "failed", "dead_letter"]
STATUSES: tuple[MessageStatus, ...] = (
    "dead_letter",
    "failed",
    "processing",
    "pending",
    "completed",
)
"""What most wants to be looked at comes first."""


class PartitionGroup(Value, frozen=True):
    """Where one group stands in one partition.

    ``lag`` counts what it has still to settle, redriven messages included. Of that,
    ``in_flight_count`` messages are open under its live lease and ``retrying_count`` others have
    been delivered before: they failed, were given back or their lease ran out. ``lease_count``
    is how many messages the live lease delivered. ``oldest_waiting_us`` is when the lowest
    unsettled message of the log was created.
    """

    name: str
    lag: int = 0
    in_flight_count: int = 0
    retrying_count: int = 0
    dead_count: int = 0
    lease_expires_us: int | None = None
    lease_count: int = 0
    oldest_waiting_us: int | None = None
    unreadable: str | None = None
    """Why the message that comes next cannot be decrypted here; until it can, none is delivered."""

    @property
    def lease_expires_at(self) -> datetime | None:
        return _maybe_datetime(self.lease_expires_us)

    @property
    def oldest_waiting_at(self) -> datetime | None:
        return _maybe_datetime(self.oldest_waiting_us)


class PartitionState(Value, frozen=True):
    """A partition as it stands, with the registered groups by name.

    ``pushed_count`` counts all that was ever stored in it, ``stored_count`` what is stored now
    and ``waiting_count`` what of that some registered group has still to settle (all of it
    where no group is registered). ``oldest_us`` and ``newest_us`` are when the first and the
    last stored message were created.
    """

    queue: str
    id: str
    name: str
    created_us: int
    pushed_count: int = 0
    stored_count: int = 0
    waiting_count: int = 0
    oldest_us: int | None = None
    newest_us: int | None = None
    groups: Sequence[PartitionGroup] = ()

    @property
    def created_at(self) -> datetime:
        return to_datetime(self.created_us)


class MessageState(Value, frozen=True):
    """What has become of a message for one group.

    ``processing``: open under a live lease. ``failed``: to be delivered again after a failure.
    ``dead_letter``: in the group's dead letters. ``completed``: settled in any other way, also
    evicted, skipped or not owed. ``pending``: everything else. The counts are those of
    `Message`, with the delivery in flight; they are forgotten when a message is completed.
    """

    group: str
    status: MessageStatus
    delivery_count: int = 0
    failure_count: int = 0
    error: str | None = None
    lease_expires_us: int | None = None


class StoredMessage(Value, frozen=True):
    """A stored message and its state for each registered group, by name.

    ``encrypted``: the store holds its payload as an envelope, whatever is shown here.
    ``unreadable`` says why the envelope cannot be opened; the payload is null then.
    """

    id: str
    transaction_id: str
    queue: str
    partition: str
    partition_id: str
    seq: int
    payload: bytes
    created_us: int
    trace_id: str | None = None
    states: Sequence[MessageState] = ()
    encrypted: bool = False
    unreadable: str | None = None

    @property
    def created_at(self) -> datetime:
        return to_datetime(self.created_us)

    @property
    def value(self) -> Any:
        """The payload as a Python value."""
        return to_value(self.payload)

    @property
    def status(self) -> MessageStatus:
        """What it is for all groups together: the first of `STATUSES` that it is for some group.

        A message without a group is pending.
        """
        found = {state.status for state in self.states}
        return next((status for status in STATUSES if status in found), "pending")


class MessageFilter(Value, frozen=True):
    """Which messages to list, newest first: by (created_us, id), falling.

    With ``trace_id`` they come oldest first instead, the order in which they were made
    (PLD-8). ``before`` is the key at which a page ended, (created_us, id): what lies behind it
    in the listing's order comes; no row comes twice and none is passed over, however equal
    their instants are (QA-6). ``from_us`` and ``to_us`` both belong to the span.

    ``group``: messages of the queues in which that group is registered, each with its state for
    that group alone. ``status``: messages whose `StoredMessage.status`, as it is then listed, is
    that one.
    """

    queue: str | None = None
    partition: str | None = None
    namespace: str | None = None
    task: str | None = None
    trace_id: str | None = None
    status: MessageStatus | None = None
    group: str | None = None
    from_us: int | None = None
    to_us: int | None = None
    before: tuple[int, str] | None = None
    limit: int = 100
    offset: int = 0

    def __post_init__(self) -> None:
        if self.trace_id is not None and ids.number(self.trace_id) is None:
            raise InvalidRequest("traceId must be a UUID in its canonical spelling", "traceId")
        if self.status is not None and self.status not in STATUSES:
            raise InvalidRequest(f"status must be one of {', '.join(STATUSES)}", "status")
        if self.before is not None and ids.address(self.before[1]) is None:
            raise InvalidRequest("before must name a message by instant and id", "before")
        check_page(self.limit, self.offset)


class MessagePage(Value, frozen=True):
    """A page of messages, their payloads left out (``null``).

    ``next_before`` goes into the filter for the next page; None at the end.
    """

    items: Sequence[StoredMessage] = ()
    next_before: tuple[int, str] | None = None


class Trace(Value, frozen=True):
    """A note about what was done with a message, filed under one or more names.

    ``group`` says on whose behalf it was done, where one is meant.
    """

    partition_id: str
    transaction_id: str
    group: str | None = None
    names: Sequence[str] = ()
    kind: str = "info"
    data: JsonText = JsonText(b"null")

    def __post_init__(self) -> None:
        check_name(self.transaction_id, "transactionId")
        check_name(self.kind, "eventType")
        if self.group is not None:
            check_name(self.group, "consumerGroup")
        if len(self.names) > MAX_TRACE_NAMES:
            raise InvalidRequest(f"a trace has at most {MAX_TRACE_NAMES} names", "traceNames")
        for name in self.names:
            check_name(name, "traceNames")
        if type(self.data) is not JsonText:
            msgspec.structs.force_setattr(self, "data", JsonText.check(self.data))


class TraceRecord(Value, frozen=True):
    """A trace as it is kept, with the message that it is about."""

    id: str
    queue: str
    partition: str
    partition_id: str
    message_id: str
    transaction_id: str
    group: str | None
    names: Sequence[str]
    kind: str
    data: bytes
    created_us: int

    @property
    def created_at(self) -> datetime:
        return to_datetime(self.created_us)

    @property
    def value(self) -> Any:
        """The data as a Python value."""
        return to_value(self.data)


class TracePage(Value, frozen=True):
    """A page of traces, oldest first, and how many there are in all of that filter."""

    items: Sequence[TraceRecord] = ()
    total: int = 0


class TraceFilter(Value, frozen=True):
    """Which traces of one name to list; ``from_us`` and ``to_us`` both belong to the span."""

    name: str
    limit: int = 100
    offset: int = 0
    from_us: int | None = None
    to_us: int | None = None

    def __post_init__(self) -> None:
        check_page(self.limit, self.offset)


class TraceName(Value, frozen=True):
    """A name under which traces are filed: how many, about how many messages, the last when."""

    name: str
    trace_count: int
    message_count: int
    last_us: int


def check_page(limit: int, offset: int) -> None:
    """Refuse a page that is too long, or begins where no listing does."""
    if not 1 <= limit <= MAX_PAGE:
        raise InvalidRequest(f"limit must be 1 to {MAX_PAGE}", "limit")
    if not 0 <= offset <= MAX_OFFSET:
        raise InvalidRequest(f"offset must be 0 to {MAX_OFFSET}", "offset")


def _maybe_datetime(instant_us: int | None) -> datetime | None:
    return None if instant_us is None else to_datetime(instant_us)
