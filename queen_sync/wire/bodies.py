"""The gate that the body of a request passes: sound JSON of the right form.

A body passes it whole: UTF-8, no byte order mark, JSON to the last character. What is wrong
is refused with InvalidRequest that names the key.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import TypeVar

import msgspec

from queen_sync.errors import InvalidRequest
from queen_sync.payloads import MAX_DEPTH

_T = TypeVar("_T")
_BOM = b"\xef\xbb\xbf"
_PLACE = re.compile(r" - at `\$(?P<path>[^`]*)`$")
_MISSING = re.compile(r"missing required field `(?P<name>\w+)`")
_KEY = re.compile(r"\.(\w+)")

_TEXTS: Mapping[str, str] = {
    "items": "items array is required",
    "items[]": "Queue must be a string",
    "queue": "Queue must be a string",
    "partition": "Partition must be a string",
    "transactionId": "TransactionId must be a string",
    "traceId": "TraceId must be a string",
    "operations": "operations array required",
    "operations[]": "Each operation must be an object",
    "acknowledgments": "acknowledgments array is required",
}
"""What is said about a key of the wrong type, where more is to be said than its type."""


class Body(msgspec.Struct, rename="camel"):
    """Part of a request: keys that it does not name are passed over."""


def is_empty(body: bytes) -> bool:
    """Return whether a body says nothing: clients send none, or ``[]`` for an empty object."""
    return body.strip() in (b"", b"[]")


def decode_body(decoder: msgspec.json.Decoder[_T], body: bytes, otherwise: str, field: str) -> _T:
    """Read a body; where it is not of the right form, ``otherwise`` says what was expected."""
    if not body.isascii():
        if body.startswith(_BOM):
            raise InvalidRequest("Invalid JSON: byte order mark", "body")
        try:
            body.decode()
        except UnicodeDecodeError as error:
            raise InvalidRequest("Invalid JSON: not UTF-8", "body") from error
    try:
        return decoder.decode(body)
    except msgspec.ValidationError as error:
        raise misfit(str(error), otherwise, field) from error
    except msgspec.DecodeError as error:
        if not body.strip():
            raise InvalidRequest("Empty request body", "body") from error
        raise InvalidRequest(f"Invalid JSON: {error}", "body") from error
    except RecursionError as error:
        raise InvalidRequest(f"body is nested deeper than {MAX_DEPTH}", "body") from error


def misfit(problem: str, otherwise: str, field: str) -> InvalidRequest:
    """Return the refusal of sound JSON with a wrong type at some key."""
    place = _PLACE.search(problem)
    path = place["path"] if place is not None else ""
    missing = _MISSING.search(problem)
    keys = _KEY.findall(path)
    if missing is not None:
        name = missing["name"]
    elif keys:
        name = keys[-1]
    else:
        return InvalidRequest(otherwise, field)
    if missing is None and path.endswith("]"):
        return InvalidRequest(
            _TEXTS.get(f"{name}[]", f"{name} has an element of the wrong type"), name
        )
    if missing is not None:
        text = otherwise if name == field else _TEXTS.get(name, f"{name} is required")
        return InvalidRequest(text, name)
    wanted = problem.partition(",")[0].removeprefix("Expected ").replace("`", "")
    return InvalidRequest(_TEXTS.get(name, f"{name} must be: {wanted}"), name)
