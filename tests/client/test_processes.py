"""One client in several processes: a fork takes no connection with it."""

from __future__ import annotations

import subprocess
import sys

from tests.serving import serve

FORKING = """
import os, sys
from queen_sync.client import RemoteBackend
from queen_sync.model import NewMessage

queen = RemoteBackend(sys.argv[1])
queen.check()
child = os.fork()
who = "parent" if child else "child"
for number in range(100):
    name = f"{who}-{number}"
    (receipt,) = queen.push([NewMessage.of("invoices", name, transaction_id=name)])
    if receipt.transaction_id != name or receipt.duplicate:
        os._exit(1)
os._exit(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) if child else 0)
"""


def test_a_client_may_be_used_on_both_sides_of_a_fork():
    """O-61: each process has connections of its own, and nobody gets another's answer."""
    with serve("--backend", "memory:") as url:
        done = subprocess.run(
            [sys.executable, "-c", FORKING, url], check=False, timeout=60, capture_output=True
        )
    assert done.returncode == 0, done.stderr.decode()
