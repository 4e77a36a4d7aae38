"""The locustfiles, each in a process of its own: locust patches the one that it runs in."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.bench.older_server import older_server

LOCUSTFILES = Path(__file__).parents[2] / "locustfiles"


def load(*arguments, cwd=LOCUSTFILES):
    return subprocess.run(
        [sys.executable, "run.py", "--seconds", "2", "--users", "5", *arguments],
        cwd=cwd,
        capture_output=True,
        text=True,
        timeout=110,
        check=False,
        env={name: value for name, value in os.environ.items() if not name.startswith("QUEEN_")},
    )


def judged(done):
    """Return the ledger's line of each file."""
    return [line for line in done.stdout.splitlines() if line.startswith("ledger:")]


def test_nothing_is_lost_under_load():
    """Producers and consumers against a served SQLite file, counted message by message."""
    done = load("mixed")
    assert done.returncode == 0, done.stdout + done.stderr
    (line,) = judged(done)
    assert line.endswith(" 0 wrong")
    assert "nothing was lost" in done.stdout


@pytest.mark.slow
@pytest.mark.parametrize("file", ["produce", "consume", "long_poll"])
def test_each_kind_of_load_loses_nothing(file):
    done = load(file)
    assert done.returncode == 0, done.stdout + done.stderr
    (line,) = judged(done)
    assert line.endswith(" 0 wrong")


@pytest.mark.slow
def test_a_server_that_forgets_is_caught():
    """The ledger tells a store that loses messages, so the runs above could have failed."""
    with older_server(forget=3) as server:
        done = load("produce", "--host", server.url)
    assert done.returncode == 1, done.stdout
    assert "was stored and never came out" in done.stdout
    assert "failed: produce" in done.stdout


def test_a_run_without_a_server_fails():
    done = load("mixed", "--host", "http://127.0.0.1:1")
    assert done.returncode == 1, done.stdout


@pytest.mark.parametrize(
    "arguments",
    [
        ["nothing"],
        ["--users", "100000"],
        ["--seconds", "0"],
        ["--host", "http://127.0.0.1:1", "--backend", "memory:"],
    ],
)
def test_a_load_is_bounded(arguments):
    done = load(*arguments)
    assert done.returncode == 2
    assert "error:" in done.stderr


def test_locust_patches_no_other_test():
    """Nothing of it is imported into the tests' own process, its pytest plugin included."""
    assert not {"locust", "gevent", "pytest_locust"} & sys.modules.keys()
