"""What processes cost, read from the system."""

from __future__ import annotations

import os
import socket
import subprocess
import sys

import pytest

from queen_sync.bench.processes import Meter, Watched, find, tree

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="reads /proc")

BURN = "n = 0\nfor _ in range(8_000_000): n += 1\nprint('done', flush=True)\ninput()"
PARENT = f"""
import subprocess, sys
subprocess.run([sys.executable, "-c", {BURN!r}])
print("over", flush=True)
input()
"""


@pytest.fixture
def child():
    """A process whose own child has burnt some time and waits for a line."""
    with subprocess.Popen(
        [sys.executable, "-c", PARENT], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as process:
        yield process
        process.communicate("\n", timeout=30)


def test_the_time_of_a_child_that_ended_stays_counted(child):
    meter = Meter(Watched(server=frozenset({child.pid})))
    meter.begin()
    assert child.stdout.readline() == "done\n"
    assert len(tree({child.pid})) == 2
    child.stdin.write("\n")
    child.stdin.flush()
    assert child.stdout.readline() == "over\n"
    meter.end()
    used, database = meter.read()
    assert used.cpu_seconds > 0
    assert used.memory_megabytes > 1
    assert database is None


def test_whoever_listens_at_an_address_is_found():
    with socket.create_server(("127.0.0.1", 0)) as listener:
        port = listener.getsockname()[1]
        assert os.getpid() in find(f"http://127.0.0.1:{port}").server
        assert os.getpid() in find(f"http://localhost:{port}").server
    assert find(f"http://127.0.0.1:{port}") == Watched()


def test_processes_of_other_machines_are_not_available():
    meter = Meter(find("http://192.0.2.1:80"))
    meter.begin()
    meter.end()
    assert meter.read() == (None, None)


def test_a_process_that_is_gone_is_not_counted():
    with subprocess.Popen([sys.executable, "-c", ""]) as process:
        process.wait()
    assert tree({process.pid}) == set()
