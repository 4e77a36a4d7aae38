"""Why an ack is refused: the same words and codes whatever the store (C-04)."""

from __future__ import annotations

from queen_sync.errors import (
    InvalidRequest,
    LeaseLost,
    LeaseRequired,
    MessageNotFound,
    QueenError,
)

Reason = tuple[str, str]
"""The code and the text of a refusal."""

NOT_FOUND: Reason = (MessageNotFound.code, "Message not found")
NO_LEASE: Reason = (LeaseRequired.code, "leaseId is required")
LOST: Reason = (LeaseLost.code, "Invalid or expired lease")
NOT_PROCESSED: Reason = (LeaseLost.code, "Message is not being processed")
AMBIGUOUS: Reason = (InvalidRequest.code, "transactionId is ambiguous, partitionId required")

_KINDS = {kind.code: kind for kind in (MessageNotFound, LeaseRequired, LeaseLost)}


def error_of(code: str, text: str) -> QueenError:
    """Return a refusal as the error that a transaction raises."""
    if code == InvalidRequest.code:
        return InvalidRequest(text, "partitionId")
    return _KINDS[code](text)
