"""The statements of the SQLite backend by name, read from ``sql/sqlite`` when it is imported.

A file holds any number of statements, each after a line ``-- name: …``; comments between them
say why they are as they are.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from importlib import resources
from types import MappingProxyType

_ROOT = resources.files("queen_sync.backends") / "sql" / "sqlite"
_NAME = re.compile(r"^-- name: (\w+)$", re.MULTILINE)
_COMMENT_LINE = re.compile(r"^ *--.*\n?", re.MULTILINE)


def named(text: str) -> dict[str, str]:
    """Return the statements of a file by name, without the lines that are comments."""
    parts = _NAME.split(text)
    names, bodies = parts[1::2], parts[2::2]
    statements = {
        name: _COMMENT_LINE.sub("", body).strip() for name, body in zip(names, bodies, strict=True)
    }
    if len(statements) < len(names):
        raise ValueError("a name is given to two statements")
    return statements


def folder(name: str) -> dict[str, str]:
    """Return the texts of the files in a folder by name, in the order of names."""
    files = [file for file in (_ROOT / name).iterdir() if file.name.endswith(".sql")]
    return {
        file.name.removesuffix(".sql"): file.read_text("utf-8")
        for file in sorted(files, key=lambda file: file.name)
    }


STATEMENTS: Mapping[str, str] = MappingProxyType(named("\n".join(folder("queries").values())))
"""Every statement of the queries, by its name."""
