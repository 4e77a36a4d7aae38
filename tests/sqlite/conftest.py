"""A SQLite file for each test, and other processes that use it."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest

from queen_sync.backends.sqlite import SqliteBackend

Start = Callable[..., "subprocess.Popen[str]"]


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "queues.db"


@pytest.fixture
def backend(path: Path) -> Iterator[SqliteBackend]:
    with SqliteBackend(path) as backend:
        yield backend


@pytest.fixture
def start() -> Iterator[Start]:
    """Start a Python program with arguments; what still runs at the end is killed."""
    with ExitStack() as stack:

        def begin(program: str, *arguments: object) -> subprocess.Popen[str]:
            process = subprocess.Popen(
                [sys.executable, "-c", program, *map(str, arguments)],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=subprocess.PIPE,
                text=True,
            )
            stack.enter_context(process)
            stack.callback(process.kill)
            return process

        yield begin
