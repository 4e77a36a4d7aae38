"""Run the locustfiles one after the other, bounded in users and in time.

Without --host they load a server that is started for them, with its data in a directory that
is thrown away. Each file has a locust process of its own. The exit code is 0 only if no call
went wrong and no message was lost.
"""

from __future__ import annotations

import argparse
import contextlib
import os
import re
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

HERE = Path(__file__).parent
FILES = ("produce", "consume", "mixed", "long_poll")
MOST_USERS, MOST_SECONDS = 500, 600
START_SECONDS = 60
STOP_SECONDS = 30


def main() -> int:
    """Run what the command line names; return the exit code."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawTextHelpFormatter
    )
    parser.add_argument("files", nargs="*", metavar="FILE", help=f"{', '.join(FILES)} [all]")
    parser.add_argument("--host", help="a server that is running, http://… [one is started]")
    parser.add_argument("--backend", help="the store of the started server [an SQLite file]")
    parser.add_argument("--users", type=int, default=10, help=f"1 to {MOST_USERS} [10]")
    parser.add_argument("--seconds", type=int, default=5, help=f"1 to {MOST_SECONDS}, each [5]")
    wanted = parser.parse_args()
    unknown = set(wanted.files) - set(FILES)
    if unknown:
        parser.error(f"no such file: {', '.join(sorted(unknown))}")
    if not 1 <= wanted.users <= MOST_USERS or not 1 <= wanted.seconds <= MOST_SECONDS:
        parser.error("users or seconds out of bounds")
    if wanted.host and wanted.backend:
        parser.error("--backend is for the server that is started, --host for one that runs")
    failed = []
    with contextlib.ExitStack() as stack:
        host = wanted.host or stack.enter_context(serving(wanted.backend))
        for name in wanted.files or FILES:
            print(f"== {name}: {wanted.users} users, {wanted.seconds} s", flush=True)
            if load(name, host, wanted.users, wanted.seconds):
                failed.append(name)
    print(f"failed: {', '.join(failed)}" if failed else "nothing was lost")
    return 1 if failed else 0


def load(name: str, host: str, users: int, seconds: int) -> int:
    """Run one locustfile to its end; return its exit code."""
    command = [
        *(sys.executable, "-m", "locust", "--headless", "--only-summary"),
        *("--locustfile", str(HERE / f"{name}.py"), "--host", host),
        *("--users", str(users), "--spawn-rate", str(users)),
        # A user that is stopped in the middle of a call leaves its outcome unknown.
        *("--run-time", f"{seconds}s", "--stop-timeout", str(STOP_SECONDS)),
    ]
    return subprocess.run(  # noqa: S603 - its own files and checked arguments
        command, check=False, stdin=subprocess.DEVNULL
    ).returncode


@contextlib.contextmanager
def serving(backend: str | None) -> Iterator[str]:
    """Start a server on a free port and yield its address; its data go with it."""
    with tempfile.TemporaryDirectory() as directory, tempfile.TemporaryFile() as log:
        environment = {"QUEEN_BACKEND": backend or f"sqlite:///{directory}/queen.db"}
        server = subprocess.Popen(
            [sys.executable, "-m", "queen_sync.cli", "serve", "--port", "0"],
            cwd=directory,
            env={**os.environ, **environment},
            stdin=subprocess.DEVNULL,
            stdout=log,
            stderr=log,
        )
        try:
            yield address(server, log.fileno())
        finally:
            server.terminate()
            server.wait(STOP_SECONDS)


def address(server: subprocess.Popen[bytes], log: int) -> str:
    """Wait until a started server says where it listens."""
    deadline = time.monotonic() + START_SECONDS
    said = ""
    while time.monotonic() < deadline and server.poll() is None:
        said = os.pread(log, os.fstat(log).st_size, 0).decode(errors="replace")
        listening = re.search(r"Listening at: (http://[^ ]+)", said)
        if listening:
            return listening[1]
        time.sleep(0.05)
    raise SystemExit(f"the server did not start:\n{said}")


if __name__ == "__main__":
    sys.exit(main())
