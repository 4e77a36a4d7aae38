"""Routing from the raw target of a request.

WSGI hands over a path whose percent signs are already decoded, in which a slash that belongs
to a name cannot be told from one that separates. So the path is taken as it was sent, split
at ``/`` first, and each segment is decoded once (C-18).
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Generic, TypeVar
from urllib.parse import parse_qsl, unquote_to_bytes, urlsplit

from queen_sync.errors import InvalidRequest

_T = TypeVar("_T")
PARAMETER = "*"
"""In a pattern: any one segment, handed to whoever answers."""


def segments(environ: Mapping[str, Any]) -> list[str]:
    """Return the decoded segments of the path that was asked for.

    A server that passes the raw target on (``RAW_URI``, ``REQUEST_URI``) is believed; from
    another one the decoded path is all there is, and a name that holds a slash is split.
    """
    raw: str = environ.get("RAW_URI") or environ.get("REQUEST_URI", "")
    if raw:
        path = raw if raw.startswith("/") else urlsplit(raw).path
        path = path.partition("?")[0].partition("#")[0]
        prefix = environ.get("SCRIPT_NAME", "")
        parts = path.removeprefix(prefix).split("/")
        return [_decode(part) if "%" in part or not part.isascii() else part for part in parts[1:]]
    decoded: str = environ.get("PATH_INFO", "")
    return (decoded if decoded.isascii() else _text(decoded)).split("/")[1:]


def _decode(segment: str) -> str:
    try:
        return unquote_to_bytes(_bytes(segment)).decode()
    except UnicodeDecodeError as error:
        raise InvalidRequest("the path is not valid UTF-8", "path") from error


def _bytes(text: str) -> bytes:
    """Return the bytes that WSGI has written as a string."""
    try:
        return text.encode("latin-1")
    except UnicodeEncodeError:
        # Not as WSGI has it: a caller in the same process that passes plain text.
        return text.encode("utf-8", "surrogatepass")


def _text(text: str) -> str:
    """Return a decoded path as text; one that is no UTF-8 was plain text before it came here."""
    try:
        return _bytes(text).decode()
    except UnicodeDecodeError:
        return text


def query(environ: Mapping[str, Any]) -> dict[str, str]:
    """Return the query of a request; of a name given twice, the last."""
    raw = environ.get("QUERY_STRING", "")
    if not raw:
        return {}
    try:
        if not raw.isascii():
            raw = _bytes(raw).decode()
        return dict(parse_qsl(raw, keep_blank_values=True, errors="strict"))
    except UnicodeDecodeError as error:
        raise InvalidRequest("the query is not valid UTF-8", "query") from error


class Table(Generic[_T]):
    """Patterns of paths, and for each the methods that it answers."""

    def __init__(self) -> None:
        self.following: dict[str, Table[_T]] = {}
        self.methods: dict[str, _T] = {}

    def add(self, method: str, pattern: str, target: _T) -> None:
        """Have ``target`` answer a method of the paths that match, such as ``/queues/*``."""
        node = self
        for segment in pattern.split("/")[1:]:
            node = node.following.setdefault(segment, Table())
        node.methods[method] = target

    def find(self, path: list[str]) -> tuple[Mapping[str, _T], list[str]] | None:
        """Return the methods of a path and what its parameters are, or None.

        A literal segment goes before a parameter.
        """
        node, parameters = self, list[str]()
        for segment in path:
            following = node.following.get(segment) if segment != PARAMETER else None
            if following is None:
                following = node.following.get(PARAMETER)
                parameters.append(segment)
            if following is None:
                return None
            node = following
        return (node.methods, parameters) if node.methods else None
