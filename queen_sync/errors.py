"""Every error of queen-sync, on one page.

::

    QueenError                      code, message, definite, retryable
    ├── InvalidRequest (ValueError)     the caller's mistake; names the field
    │   └── PayloadTooLarge
    ├── NotFound
    │   ├── QueueNotFound
    │   ├── PartitionNotFound
    │   ├── GroupNotFound
    │   └── MessageNotFound
    ├── Conflict
    │   ├── LeaseLost
    │   ├── LeaseRequired
    │   └── AlreadySettled
    ├── NotSupported                    names the feature that is missing
    ├── Overloaded                      retryable
    │   └── QueueFull
    └── BackendError
        ├── BackendUnavailable          nothing was stored
        ├── Undecryptable               names the key that is missing or does not fit
        └── OutcomeUnknown              the only indefinite one

``definite`` says whether the effect is known: of every definite error, nothing happened.
``retryable`` says whether the same call may succeed later. Retry what is definite and
retryable; retry `OutcomeUnknown` only where a repeat is harmless (a push with transaction
ids, an ack with its lease id).
"""

from __future__ import annotations

from typing import ClassVar, Self


class QueenError(Exception):
    """Anything queen-sync refuses or fails to do."""

    code: ClassVar[str] = "ERROR"
    definite: ClassVar[bool] = True
    retryable: ClassVar[bool] = False

    def __init__(self, message: str) -> None:
        super().__init__(message)
        self.message = message
        self.index: int | None = None
        """Which element of a transaction was refused, counted from 0; None elsewhere."""


class InvalidRequest(QueenError, ValueError):
    """The request itself is wrong; ``field`` is the name of the part that is."""

    code = "INVALID_REQUEST"

    def __init__(self, message: str, field: str | None = None) -> None:
        super().__init__(message)
        self.field = field


class PayloadTooLarge(InvalidRequest):
    """A body or a payload is over the size limit."""

    code = "PAYLOAD_TOO_LARGE"


class NotFound(QueenError):
    """What the request names does not exist."""

    code = "NOT_FOUND"


class QueueNotFound(NotFound):
    """There is no queue of that name."""

    code = "QUEUE_NOT_FOUND"


class PartitionNotFound(NotFound):
    """The queue has no partition of that name."""

    code = "PARTITION_NOT_FOUND"


class GroupNotFound(NotFound):
    """There is no consumer group of that name."""

    code = "GROUP_NOT_FOUND"


class MessageNotFound(NotFound):
    """The message is not stored, or it is not in the batch of that lease."""

    code = "MESSAGE_NOT_FOUND"


class Conflict(QueenError):
    """The state has moved on: the request came too late or without its proof."""

    code = "CONFLICT"


class LeaseLost(Conflict):
    """The lease has ended, was never given, or does not cover the message."""

    code = "LEASE_LOST"


class LeaseRequired(Conflict):
    """An ack must carry the lease id of the claim that delivered the message."""

    code = "LEASE_REQUIRED"


class AlreadySettled(Conflict):
    """A repeated transaction would push again what its first run may have pushed."""

    code = "ALREADY_SETTLED"


class NotSupported(QueenError):
    """The backend does not offer the feature named by ``feature``."""

    code = "NOT_SUPPORTED"

    def __init__(self, message: str, feature: str) -> None:
        super().__init__(message)
        self.feature = feature

    def __reduce__(self) -> tuple[type[Self], tuple[str, str]]:
        return type(self), (self.message, self.feature)


class Overloaded(QueenError):
    """Too much at once; the same call may succeed in ``retry_after_seconds``."""

    code = "OVERLOADED"
    retryable = True
    retry_after_seconds: int = 1


class QueueFull(Overloaded):
    """The push does not fit under the queue's ``max_queue_size``; nothing was stored."""

    code = "QUEUE_FULL"

    def __init__(self, queue: str, max_queue_size: int, depth: int, pushed: int) -> None:
        super().__init__(
            f"Queue '{queue}' would exceed max capacity ({max_queue_size}). "
            f"Current: {depth}, Batch: {pushed}"
        )
        self.queue = queue
        self.max_queue_size = max_queue_size
        self.depth = depth
        self.pushed = pushed

    def __reduce__(self) -> tuple[type[Self], tuple[str, int, int, int]]:
        return type(self), (self.queue, self.max_queue_size, self.depth, self.pushed)

    @property
    def remaining(self) -> int:
        """How many messages would fit now."""
        return max(0, self.max_queue_size - self.depth)


class BackendError(QueenError):
    """The store failed; the driver's exception is the ``__cause__``."""

    code = "BACKEND_ERROR"


class BackendUnavailable(BackendError):
    """The store cannot be reached or gave up in time; nothing was stored."""

    code = "BACKEND_UNAVAILABLE"
    retryable = True


class Undecryptable(BackendError):
    """A payload is stored encrypted and cannot be opened here; the message names the key."""

    code = "UNDECRYPTABLE"
    retryable = True


class OutcomeUnknown(BackendError):
    """The commit was sent and its answer never came: it may or may not have happened."""

    code = "OUTCOME_UNKNOWN"
    definite = False
    retryable = True
