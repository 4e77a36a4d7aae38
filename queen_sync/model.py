"""The values that pass between callers and backends: frozen, small, checked when made.

A value that could not be stored cannot be made: names and payloads are checked here, so
that a backend never meets a bad one (`InvalidRequest` names the field). Instants end in
``_us`` and are microseconds since 1970-01-01 UTC; every one has a ``_at`` property that
gives it as a datetime.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from datetime import datetime
from typing import Any, Literal

import msgspec

from queen_sync import ids
from queen_sync.clock import to_datetime
from queen_sync.errors import InvalidRequest
from queen_sync.options import (
    DEFAULT_LEASE_SECONDS as DEFAULT_LEASE_SECONDS,
    DEFAULT_PARTITION as DEFAULT_PARTITION,
    MAX_LEASE_SECONDS as MAX_LEASE_SECONDS,
    MAX_OPTION as MAX_OPTION,
    OPTION_DEFAULTS as OPTION_DEFAULTS,
    Change as Change,
    Configured as Configured,
    Queue as Queue,
    QueueOptions as QueueOptions,
    check_option as check_option,
    spread_index as spread_index,
    spread_name as spread_name,
)
from queen_sync.payloads import JsonText, to_value
from queen_sync.values import (
    MAX_NAME_LENGTH as MAX_NAME_LENGTH,
    Value as Value,
    check_name as check_name,
    check_queue_name as check_queue_name,
)

QUEUE_MODE = "__QUEUE_MODE__"
"""The group of consumers that named none: each message goes to one of them."""
EXPIRED = "Partition lease expired"
"""The error text of a message whose lease ran out (PLD-5)."""

Outcome = Literal["completed", "failed", "retry", "dlq"]
Status = Literal["completed", "failed", "pending", "dead_letter"]
"""What became of a message: completed, failed (comes again), pending (given back), dead."""
SubscriptionMode = Literal["all", "new", "from"]

OUTCOMES: tuple[Outcome, ...] = ("completed", "failed", "retry", "dlq")
_UNSTORABLE = re.compile("[\0\ud800-\udfff]")
"""NUL and lone surrogates: no text column takes them, and an error text is not worth a refusal."""


def storable(text: str) -> str:
    """Return an error text with a mark in place of what no text column takes."""
    return _UNSTORABLE.sub("\ufffd", text)


class NewMessage(Value, frozen=True):
    """A message to push.

    ``transaction_id`` is the caller's name for it, unique in its partition: with one, a
    repeated push stores nothing twice. Without one the message's own id serves.
    ``trace_id`` is a UUID in canonical spelling.
    """

    queue: str
    payload: JsonText = JsonText(b"null")
    partition: str = DEFAULT_PARTITION
    transaction_id: str | None = None
    trace_id: str | None = None

    def __post_init__(self) -> None:
        check_queue_name(self.queue)
        check_name(self.partition, "partition")
        if self.transaction_id is not None:
            check_name(self.transaction_id, "transactionId")
        if self.trace_id is not None and ids.number(self.trace_id) is None:
            raise InvalidRequest("traceId must be a UUID in its canonical spelling", "traceId")
        if type(self.payload) is not JsonText:
            msgspec.structs.force_setattr(self, "payload", JsonText.check(self.payload))

    @classmethod
    def of(
        cls,
        queue: str,
        value: Any,
        *,
        partition: str = DEFAULT_PARTITION,
        transaction_id: str | None = None,
        trace_id: str | None = None,
    ) -> NewMessage:
        """Return a message whose payload is a Python value."""
        return cls(
            queue=queue,
            payload=JsonText.of(value),
            partition=partition,
            transaction_id=transaction_id,
            trace_id=trace_id,
        )


class Receipt(Value, frozen=True):
    """The answer to one pushed message.

    A duplicate carries the id, seq and trace id of the message that was first. ``depth`` is
    the queue's depth after the push, None where the queue has no limit (PLD-9).
    """

    status: Literal["queued", "duplicate"]
    id: str
    transaction_id: str
    queue: str
    partition: str
    partition_id: str
    seq: int
    trace_id: str | None = None
    depth: int | None = None
    remaining: int | None = None

    @property
    def duplicate(self) -> bool:
        return self.status == "duplicate"


class Subscription(Value, frozen=True):
    """Where a group that is met for the first time begins (C-07)."""

    mode: SubscriptionMode = "all"
    from_us: int | None = None

    def __post_init__(self) -> None:
        if self.mode not in ("all", "new", "from"):
            raise InvalidRequest("subscriptionMode must be one of all, new", "subscriptionMode")
        if (self.mode == "from") != (self.from_us is not None):
            raise InvalidRequest("a subscription from a time needs the time", "subscriptionFrom")


class PopRequest(Value, frozen=True):
    """What to pop: of one queue, or of all queues of a namespace, a task or both (C-17).

    ``max_messages`` is the cap of the whole claim, ``max_partitions`` how many partitions it
    may take. ``subscription`` counts only when the group is met for the first time; None
    means all. ``attempt_id`` names this pop: repeating it while its lease lives gives the same
    claim (C-13). A lease time per pop does not exist: the queue's option decides.
    """

    queue: str = ""
    """Empty where the pop names a namespace or task instead."""
    namespace: str | None = None
    task: str | None = None
    group: str = QUEUE_MODE
    partition: str | None = None
    max_messages: int = 1
    max_partitions: int = 1
    auto_ack: bool = False
    subscription: Subscription | None = None
    attempt_id: str | None = None

    def __post_init__(self) -> None:
        if self.namespace is not None or self.task is not None:
            self._check_scope()
        else:
            check_name(self.queue, "queue")
        check_name(self.group, "consumerGroup")
        if self.attempt_id is not None:
            check_name(self.attempt_id, "attemptId")
            if self.auto_ack:
                raise InvalidRequest("a pop with autoAck cannot be repeated", "attemptId")
        if self.partition is not None:
            check_name(self.partition, "partition")
        if self.max_messages < 1:
            raise InvalidRequest("batch must be at least 1", "batch")
        if self.max_partitions < 1:
            raise InvalidRequest("partitions must be at least 1", "partitions")

    def _check_scope(self) -> None:
        if self.queue:
            raise InvalidRequest("a pop names a queue or a namespace and task", "namespace")
        for field, name in (("namespace", self.namespace), ("task", self.task)):
            if name is not None:
                check_name(name, field)
        if self.partition is not None:
            raise InvalidRequest("a partition is named together with its queue", "partition")


class Message(Value, frozen=True):
    """A delivered message.

    ``delivery_count`` is 1 at the first delivery; ``failure_count`` counts failed acks and
    counted expiries so far; ``error`` is the text of the last of them. ``priority`` is its
    queue's.
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
    delivery_count: int = 1
    failure_count: int = 0
    error: str | None = None
    priority: int = 0

    @property
    def created_at(self) -> datetime:
        return to_datetime(self.created_us)

    @property
    def value(self) -> Any:
        """The payload as a Python value."""
        return to_value(self.payload)


class Claim(Value, frozen=True):
    """The answer of a pop; false where nothing was given.

    ``lease_id`` is None where there is nothing to ack: an empty claim or an autoAck one.
    ``subscription_ignored`` says that the group existed and began otherwise (C-07).
    """

    messages: Sequence[Message] = ()
    lease_id: str | None = None
    group: str = QUEUE_MODE
    expires_us: int | None = None
    partition_count: int = 0
    subscription_ignored: bool = False

    def __bool__(self) -> bool:
        return bool(self.messages)

    @property
    def expires_at(self) -> datetime | None:
        return None if self.expires_us is None else to_datetime(self.expires_us)


class Ack(Value, frozen=True):
    """The outcome of one message for one group, proven by the lease that delivered it.

    ``partition_id`` None lets the lease say where to look. ``lease_id`` None is refused unless
    the queue says ``require_lease_id: false`` (C-04), or a transaction lists the lease.
    """

    transaction_id: str
    outcome: Outcome = "completed"
    partition_id: str | None = None
    group: str = QUEUE_MODE
    lease_id: str | None = None
    error: str | None = None

    def __post_init__(self) -> None:
        check_name(self.transaction_id, "transactionId")
        if self.group is not QUEUE_MODE:
            check_name(self.group, "consumerGroup")
        if self.outcome not in OUTCOMES:
            raise InvalidRequest("status must be one of completed, failed, retry, dlq", "status")
        if self.error is not None:
            msgspec.structs.force_setattr(self, "error", storable(self.error))


class Acked(Value, frozen=True):
    """The answer to one ack.

    Accepted: ``status`` is what became of the message and ``code`` is None. A repeat under
    the same lease has ``already`` and the first status. Refused: ``code`` is that of the error
    (`LeaseLost`, `LeaseRequired`, `MessageNotFound`, `InvalidRequest`), ``reason`` its text.
    ``lease_released`` says that no message of the claim in that partition is open any more.
    """

    transaction_id: str
    status: Status | None = None
    already: bool = False
    code: str | None = None
    reason: str | None = None
    queue: str | None = None
    partition: str | None = None
    group: str = QUEUE_MODE
    lease_released: bool = False

    @property
    def ok(self) -> bool:
        return self.code is None

    @property
    def dead_lettered(self) -> bool:
        return self.status == "dead_letter"


class Transaction(Value, frozen=True):
    """Acks and pushes that happen together or not at all (C-15)."""

    operations: Sequence[Ack | NewMessage]
    required_leases: Sequence[str] = ()

    def __post_init__(self) -> None:
        if not self.operations:
            raise InvalidRequest("operations array cannot be empty", "operations")


class Transacted(Value, frozen=True):
    """The answers of a transaction, in the order of its operations.

    ``repeated`` says that it had happened before and nothing was changed.
    """

    results: Sequence[Acked | Receipt]
    repeated: bool = False


class DeadLetter(Value, frozen=True):
    """A message set aside for a group: its own copy, with why and when.

    ``encrypted``: the store holds its payload as an envelope, whatever is shown here.
    ``unreadable`` says why the envelope cannot be opened; the payload is null then.
    """

    id: str
    transaction_id: str
    queue: str
    partition: str
    partition_id: str
    seq: int
    group: str
    payload: bytes
    created_us: int
    failed_us: int
    trace_id: str | None = None
    error: str | None = None
    failure_count: int = 0
    delivery_count: int = 1
    encrypted: bool = False
    unreadable: str | None = None

    @property
    def created_at(self) -> datetime:
        return to_datetime(self.created_us)

    @property
    def failed_at(self) -> datetime:
        return to_datetime(self.failed_us)


class DeadLetterFilter(Value, frozen=True):
    """Which dead letters to list: newest first, ``limit`` of them after ``offset``."""

    queue: str | None = None
    group: str | None = None
    partition: str | None = None
    partition_id: str | None = None
    transaction_id: str | None = None
    failed_from_us: int | None = None
    failed_to_us: int | None = None
    limit: int = 100
    offset: int = 0

    def __post_init__(self) -> None:
        for field in ("limit", "offset"):
            if getattr(self, field) < 0:
                raise InvalidRequest(f"{field} must not be negative", field)


class DeadLetters(Value, frozen=True):
    """A page of dead letters and how many the filter finds in all."""

    items: Sequence[DeadLetter]
    total: int


class Seek(Value, frozen=True):
    """Where to move a group's position: to the start, to the end, or to a time.

    ``partition`` None means every partition of the queue. To a time: the next message given is
    the first whose created_us is at or after ``from_us``.
    """

    queue: str
    group: str = QUEUE_MODE
    partition: str | None = None
    to: Literal["start", "end", "time"] = "end"
    from_us: int | None = None

    def __post_init__(self) -> None:
        check_name(self.queue, "queue")
        check_name(self.group, "consumerGroup")
        if self.partition is not None:
            check_name(self.partition, "partition")
        if self.to not in ("start", "end", "time"):
            raise InvalidRequest("a seek goes to start, end or time", "to")
        if (self.to == "time") != (self.from_us is not None):
            raise InvalidRequest("a seek to a time needs the time", "timestamp")


class Removal(Value, frozen=True):
    """That messages left a queue other than by an ack: how many, why, and when (QA-7).

    ``group`` is the group for which they were evicted; None where they were deleted for all.
    """

    queue: str
    partition: str
    kind: Literal["evicted", "completed", "expired"]
    count: int
    removed_us: int
    group: str | None = None


class Group(Value, frozen=True):
    """A consumer group of a queue: its start, and where it stands.

    ``lag`` counts the messages it has still to settle, ``leased`` the partitions that it
    holds now.
    """

    queue: str
    name: str
    subscription: Subscription
    created_us: int
    lag: int
    leased: int


class SweepReport(Value, frozen=True):
    """What one pass of upkeep did.

    ``expired`` counts leases taken back, ``evicted`` and ``removed`` messages (by retention),
    ``cleared`` rows that deleted queues had left. ``repaired`` must be 0: it counts broken
    invariants.
    """

    expired: int = 0
    evicted: int = 0
    removed: int = 0
    cleared: int = 0
    repaired: int = 0
