"""Errors as JSON: a text, a code, and what else helps to mend the request."""

from __future__ import annotations

from typing import Any

import msgspec

from queen_sync.errors import InvalidRequest, LeaseLost, NotSupported, QueenError, QueueFull


def error_answer(error: QueenError, text: str) -> dict[str, Any]:
    """Return an error as the keys of an answer, saying ``text``."""
    answer: dict[str, Any] = {"error": text, "code": error.code}
    if isinstance(error, InvalidRequest) and error.field is not None:
        answer["field"] = error.field
    if isinstance(error, NotSupported):
        answer["feature"] = error.feature
    if isinstance(error, QueueFull):
        answer |= {
            "queue": error.queue,
            "maxQueueSize": error.max_queue_size,
            "queueDepth": error.depth,
            "remainingCapacity": error.remaining,
            "batch": error.pushed,
        }
    if error.index is not None:
        answer["index"] = error.index
    return answer


def encode_error(error: QueenError, *, text: str | None = None, field: str | None = None) -> bytes:
    """Return an error as JSON; ``text`` and ``field`` replace what the error says itself."""
    answer = error_answer(error, error.message if text is None else text)
    if field is not None:
        answer["field"] = field
    return msgspec.json.encode(answer)


def encode_lease_refused(lease_id: str) -> bytes:
    """Return the answer of an extend that extended nothing."""
    return msgspec.json.encode(
        {
            "error": "Lease not found",
            "code": LeaseLost.code,
            "success": False,
            "renewed": False,
            "leaseId": lease_id,
        }
    )
