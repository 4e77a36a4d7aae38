"""The gate that every payload passes: JSON text of RFC 8259, kept byte for byte."""

from __future__ import annotations

import json
from typing import Any

import msgspec

from queen_sync.errors import InvalidRequest

MAX_DEPTH = 512
_NOT_STRUCTURE = bytes(b for b in range(256) if b not in b'[]{}"')


class JsonText(bytes):
    """JSON text that has passed the gate (C-10).

    The constructor itself checks nothing: it is for text that was checked as part of a larger
    document. Everybody else calls `check` or `of`.
    """

    __slots__ = ()

    @classmethod
    def check(cls, text: bytes, field: str = "payload") -> JsonText:
        """Return the text as a payload; InvalidRequest names ``field`` where it is not JSON.

        Refused: NaN and Infinity, lone surrogate escapes, raw control characters, invalid
        UTF-8, a byte order mark, nesting deeper than 512. Numbers may have any size.
        """
        check_text(text, field)
        try:
            msgspec.json.decode(text, type=msgspec.Raw)
        except msgspec.DecodeError as error:
            raise InvalidRequest(f"{field} is not valid JSON: {error}", field) from error
        return cls(text.strip(b" \t\r\n"))

    @classmethod
    def of(cls, value: Any) -> JsonText:
        """Return a Python value as a payload; InvalidRequest where JSON cannot say it."""
        try:
            text = msgspec.json.encode(value)
            if b"null" in text:
                # The encoder writes NaN and Infinity as null, which would be another value.
                json.dumps(msgspec.to_builtins(value), allow_nan=False)
            return cls.check(text)
        except (TypeError, ValueError, RecursionError) as error:
            raise InvalidRequest(
                f"payload cannot be written as JSON: {error}", "payload"
            ) from error


def to_value(text: bytes) -> Any:
    """Return what a payload says as a Python value.

    A number past the range of a float is infinite, as in Python's own reading.
    """
    try:
        return msgspec.json.decode(text)
    except msgspec.DecodeError:
        return json.loads(text)


def check_text(text: bytes, field: str) -> None:
    """Refuse what a JSON parser that skips over values would let pass: UTF-8 and depth."""
    if not text.isascii():
        try:
            text.decode("utf-8")
        except UnicodeDecodeError as error:
            raise InvalidRequest(f"{field} is not valid UTF-8", field) from error
    # The count is an upper bound of the depth and nearly always small enough.
    if text.count(b"[") + text.count(b"{") > MAX_DEPTH and depth(text) > MAX_DEPTH:
        raise InvalidRequest(f"{field} is nested deeper than {MAX_DEPTH}", field)


def depth(text: bytes) -> int:
    """Return how deep the brackets of a text are nested, those inside strings aside."""
    # Escaped backslashes go first, so that a backslash before a quote is one that escapes it.
    bare = text.replace(b"\\\\", b"").replace(b'\\"', b"")
    deepest = level = 0
    in_string = False
    for byte in bare.translate(None, _NOT_STRUCTURE):
        if byte == 0x22:
            in_string = not in_string
        elif in_string:
            continue
        elif byte in b"[{":
            level += 1
            deepest = max(deepest, level)
        else:
            level -= 1
    return deepest
