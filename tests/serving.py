"""A real server in a process of its own, for tests that need one."""

from __future__ import annotations

import ctypes
import os
import re
import signal
import subprocess
import sys
import tempfile
import time
import urllib.request
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path

START_SECONDS = 30
STOP_SECONDS = 30
SERVE = (sys.executable, "-m", "queen_sync.cli", "serve", "--port", "0")
_LIBC = ctypes.CDLL(None)
_PR_SET_PDEATHSIG = 1


def _end_with_parent() -> None:
    """Have the kernel stop the server when the test process is killed."""
    if sys.platform == "linux":
        _LIBC.prctl(_PR_SET_PDEATHSIG, signal.SIGTERM)


class Server:
    """A started ``queen-sync serve``; ``said`` is what it had printed when it was closed."""

    def __init__(
        self,
        *arguments: str,
        environment: Mapping[str, str] | None = None,
        command: Sequence[str] = SERVE,
    ) -> None:
        self.said = ""
        self._log = tempfile.TemporaryFile()  # noqa: SIM115 - closed by close()
        inherited = {
            name: value
            for name, value in os.environ.items()
            if not name.startswith(("QUEEN_", "PG_", "MAX_")) and name not in {"HOST", "PORT"}
        }
        self.process = subprocess.Popen(
            [*command, *arguments],
            stdout=self._log,
            stderr=self._log,
            stdin=subprocess.DEVNULL,
            env={**inherited, **(environment or {})},
            start_new_session=True,
            preexec_fn=_end_with_parent,  # noqa: PLW1509 - it calls one C function and no more
        )
        self.url = ""

    def wait_until_ready(self) -> str:
        """Wait for a healthy answer and return the address."""
        deadline = time.monotonic() + START_SECONDS
        while time.monotonic() < deadline:
            if self.process.poll() is not None:
                break
            listening = re.search(r"Listening at: (http://[^ ]+)", self.output)
            if listening:
                self.url = listening[1]
                if self._healthy():
                    return self.url
            time.sleep(0.05)
        raise AssertionError(f"the server did not become healthy:\n{self.output}")

    @property
    def output(self) -> str:
        descriptor = self._log.fileno()
        # Read at a place of its own: the server writes where the shared offset stands.
        return os.pread(descriptor, os.fstat(descriptor).st_size, 0).decode(errors="replace")

    @property
    def workers(self) -> list[int]:
        """The process ids of the workers alive."""
        found = []
        for status in Path("/proc").glob("[0-9]*/stat"):
            try:
                state, parent = status.read_text().rpartition(")")[2].split()[:2]
                name = (status.parent / "cmdline").read_text()
            except OSError:
                continue
            if (
                int(parent) == self.process.pid
                and state != "Z"
                and ("queen_sync" in name or "queen-sync" in name)
            ):
                found.append(int(status.parent.name))
        return sorted(found)

    def stop(self, how: signal.Signals = signal.SIGTERM) -> int:
        """Signal the server, wait for its end and return its exit code."""
        if self.process.poll() is None:
            self.process.send_signal(how)
        try:
            return self.process.wait(STOP_SECONDS)
        except subprocess.TimeoutExpired:
            os.killpg(self.process.pid, signal.SIGKILL)
            self.process.wait()
            raise AssertionError(f"the server did not stop:\n{self.output}") from None

    def close(self) -> None:
        try:
            self.stop()
        finally:
            self.said = self.output
            self._log.close()

    def _healthy(self) -> bool:
        try:
            with urllib.request.urlopen(f"{self.url}/health", timeout=5) as answer:
                return bool(answer.status == 200)
        except OSError:
            return False


@contextmanager
def started(
    *arguments: str,
    environment: Mapping[str, str] | None = None,
    command: Sequence[str] = SERVE,
) -> Iterator[Server]:
    """Start a server on a free port, yield it when it is healthy, stop it afterwards."""
    server = Server(*arguments, environment=environment, command=command)
    try:
        server.wait_until_ready()
        yield server
    finally:
        server.close()


@contextmanager
def serve(*arguments: str, environment: Mapping[str, str] | None = None) -> Iterator[str]:
    """Start a server on a free port, yield its address when it is healthy, stop it afterwards."""
    with started(*arguments, environment=environment) as server:
        yield server.url
