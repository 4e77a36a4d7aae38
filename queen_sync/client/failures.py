"""What a failed call means: answers and broken connections as errors of queen-sync.

The one question is whether the call may have happened. Refused before a byte was sent: it
did not. Broken off after that, or answered 5xx by somebody who does not say
``BACKEND_UNAVAILABLE``: nobody knows, unless the call only reads.
"""

from __future__ import annotations

import re
from collections.abc import Mapping

import httpx
import msgspec

from queen_sync import errors
from queen_sync.wire_client import code_of

_BY_CODE: Mapping[str, type[errors.QueenError]] = {
    kind.code: kind
    for kind in (
        errors.NotFound,
        errors.QueueNotFound,
        errors.PartitionNotFound,
        errors.GroupNotFound,
        errors.MessageNotFound,
        errors.Conflict,
        errors.LeaseLost,
        errors.LeaseRequired,
        errors.AlreadySettled,
        errors.Overloaded,
        errors.BackendUnavailable,
        errors.Undecryptable,
        errors.OutcomeUnknown,
    )
}
_BY_STATUS: Mapping[int, type[errors.QueenError]] = {
    400: errors.InvalidRequest,
    404: errors.NotFound,
    409: errors.Conflict,
    413: errors.PayloadTooLarge,
    422: errors.InvalidRequest,
    429: errors.Overloaded,
}
_NOTHING_SENT = (
    httpx.ConnectError,
    httpx.ConnectTimeout,
    httpx.PoolTimeout,
    httpx.UnsupportedProtocol,
    httpx.ProxyError,
)
_FULL = re.compile(
    r"Queue '(?P<queue>.*)' would exceed max capacity \((?P<limit>\d+)\)\. "
    r"Current: (?P<depth>\d+), Batch: (?P<pushed>\d+)",
    re.DOTALL,
)
"""The text of a full queue: where older servers say how many were pushed, and all the rest."""
_EXCERPT = 200


class _ErrorBody(msgspec.Struct, rename="camel"):
    error: str | None = None
    code: str | None = None
    field: str | None = None
    feature: str | None = None
    index: int | None = None
    queue: str | None = None
    max_queue_size: int | None = None
    queue_depth: int | None = None
    batch: int | None = None


def of_transport(error: httpx.TransportError, call: str, *, reads: bool) -> errors.BackendError:
    """Return what a call that got no answer is raised as."""
    text = f"{call}: {error or type(error).__name__}"
    if reads or isinstance(error, _NOTHING_SENT):
        return errors.BackendUnavailable(text)
    return errors.OutcomeUnknown(f"{text}; it may or may not have happened")


def of_unreadable(error: Exception, call: str, body: bytes, *, reads: bool) -> errors.BackendError:
    """Return what a successful answer that makes no sense is raised as."""
    text = f"{call}: the answer cannot be read ({error}): {_excerpt(body)}"
    return errors.BackendUnavailable(text) if reads else errors.OutcomeUnknown(text)


def of_answer(response: httpx.Response, call: str, *, reads: bool) -> errors.QueenError:
    """Return what an answer that is no success is raised as."""
    status = response.status_code
    body = _parse(response.content)
    if body is not None and body.code is not None:
        return of_body(response.content, retry_after=response.headers.get("Retry-After"))
    reason = body.error if body is not None else None
    text = f"{call}: HTTP {status}: {reason or _excerpt(response.content)}"
    if status >= 500:
        return errors.BackendUnavailable(text) if reads else errors.OutcomeUnknown(text)
    error = _BY_STATUS.get(status, errors.QueenError)(text)
    return _with_retry_after(error, response.headers.get("Retry-After"))


def of_body(content: bytes, retry_after: str | None = None) -> errors.QueenError:
    """Return the error that a JSON body describes: its class by code, with its fields."""
    body = _parse(content) or _ErrorBody()
    text = body.error or "refused without a reason"
    code = body.code or code_of(body.error, errors.Conflict.code)
    error: errors.QueenError
    if code == errors.QueueFull.code:
        error = _queue_full(body, text)
    elif code == errors.InvalidRequest.code:
        error = errors.InvalidRequest(text, body.field)
    elif code == errors.PayloadTooLarge.code:
        error = errors.PayloadTooLarge(text, body.field)
    elif code == errors.NotSupported.code:
        error = errors.NotSupported(text, body.feature or body.field or "")
    else:
        error = _BY_CODE.get(code, errors.QueenError)(text)
    error.index = body.index
    return _with_retry_after(error, retry_after)


def _queue_full(body: _ErrorBody, text: str) -> errors.QueueFull:
    said = _FULL.search(text)
    queue, limit, depth, pushed = said.groups() if said else ("", 0, 0, 0)
    return errors.QueueFull(
        queue if body.queue is None else body.queue,
        int(limit) if body.max_queue_size is None else body.max_queue_size,
        int(depth) if body.queue_depth is None else body.queue_depth,
        int(pushed) if body.batch is None else body.batch,
    )


def _with_retry_after(error: errors.QueenError, seconds: str | None) -> errors.QueenError:
    if isinstance(error, errors.Overloaded) and seconds is not None and seconds.isdecimal():
        error.retry_after_seconds = int(seconds)
    return error


def _parse(content: bytes) -> _ErrorBody | None:
    try:
        return msgspec.json.decode(content, type=_ErrorBody)
    except msgspec.DecodeError:
        return None


def _excerpt(content: bytes) -> str:
    return repr(content[:_EXCERPT].decode("utf-8", "replace"))
