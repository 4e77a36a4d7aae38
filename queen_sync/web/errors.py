"""Errors as answers: one table of statuses, and JSON for whatever goes wrong.

What a store or a driver says about itself never reaches a client: it is logged.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping

from werkzeug.exceptions import HTTPException, MethodNotAllowed

from queen_sync import errors, wire
from queen_sync.web.answers import Answer, json_answer

_log = logging.getLogger(__name__)

STATUS: Mapping[type[errors.QueenError], int] = {
    errors.QueenError: 500,
    errors.InvalidRequest: 400,
    errors.PayloadTooLarge: 413,
    errors.NotFound: 404,
    errors.QueueNotFound: 404,
    errors.PartitionNotFound: 404,
    errors.GroupNotFound: 404,
    errors.MessageNotFound: 404,
    errors.Conflict: 409,
    errors.LeaseLost: 404,
    errors.LeaseRequired: 409,
    errors.AlreadySettled: 409,
    errors.NotSupported: 409,
    errors.Overloaded: 429,
    errors.QueueFull: 429,
    errors.BackendError: 500,
    errors.BackendUnavailable: 503,
    errors.Undecryptable: 503,
    errors.OutcomeUnknown: 504,
}
"""The status of each class of error; a class of somebody else's has that of its parent."""

# None of them may hold the word "timeout", which consume loops take for an empty answer.
_PUBLIC: Mapping[type[errors.QueenError], str] = {
    errors.BackendError: "The store failed",
    errors.BackendUnavailable: "The store cannot be reached; nothing was stored",
    errors.OutcomeUnknown: "The store did not answer; it may or may not have happened",
}


class _HttpError(errors.QueenError):
    """A refusal that the HTTP layer makes by itself."""

    def __init__(self, message: str, code: str) -> None:
        super().__init__(message)
        self.code = code  # type: ignore[misc]  # these have one class and many codes


_HTTP: Mapping[int, tuple[str, str]] = {
    400: ("Bad Request", errors.InvalidRequest.code),
    404: ("Not Found", errors.NotFound.code),
    405: ("Method Not Allowed", "METHOD_NOT_ALLOWED"),
    413: ("Request body too large", errors.PayloadTooLarge.code),
}


def status_of(error: errors.QueenError) -> int:
    """Return the HTTP status of an error."""
    if isinstance(error, errors.NotSupported) and error.feature == "enc":
        return 400  # clients repeat what is answered 409, and a key does not come by itself
    return next(STATUS[kind] for kind in type(error).__mro__ if kind in STATUS)


def of_queen_error(error: errors.QueenError, field: str | None = None) -> Answer:
    """Return the answer of an error of ours; ``field`` names the key where the error does not."""
    status = status_of(error)
    text = next((_PUBLIC[kind] for kind in type(error).__mro__ if kind in _PUBLIC), None)
    if isinstance(error, errors.Undecryptable):
        text = error.message  # the operator's business, and it holds names and the key's id only
    if status >= 500:
        # A store or a key that is away is so for every request; the others are worth a trace each.
        away = isinstance(error, errors.BackendUnavailable | errors.Undecryptable)
        trace = None if away else error
        _log.error("answered %d: %s", status, error.message, exc_info=trace)
        text = text or "Internal server error"
    answer = json_answer(wire.encode_error(error, text=text, field=field), status)
    if isinstance(error, errors.Overloaded):
        answer.headers.append(("Retry-After", str(error.retry_after_seconds)))
    return answer


def _of_http_error(error: HTTPException) -> Answer:
    status = error.code or 500
    text, code = _HTTP.get(status, (error.name, error.name.upper().replace(" ", "_")))
    answer = json_answer(wire.encode_error(_HttpError(text, code)), status)
    if isinstance(error, MethodNotAllowed) and error.valid_methods:
        answer.headers.append(("Allow", ", ".join(sorted(error.valid_methods))))
    return answer


def _of_bug(error: Exception) -> Answer:
    _log.error("a request failed for a reason of ours", exc_info=error)
    return json_answer(
        wire.encode_error(_HttpError("Internal server error", "INTERNAL_ERROR")), 500
    )


def answer_of(error: Exception) -> Answer:
    """Return the answer of whatever went wrong."""
    if isinstance(error, errors.QueenError):
        return of_queen_error(error)
    if isinstance(error, HTTPException):
        return _of_http_error(error)
    return _of_bug(error)
