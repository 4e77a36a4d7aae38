"""A pgbouncer, in transaction mode unless told otherwise, in front of the PostgreSQL of the run."""

from __future__ import annotations

import shutil
import socket
import subprocess
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import psycopg
import pytest
from psycopg.conninfo import conninfo_to_dict, make_conninfo

from queen_sync.embedded import unprivileged_user

SESSIONS = 4
"""So many sessions of the server does it share among all its clients."""
CONFIGURATION = """
[databases]
* = {target}
[pgbouncer]
listen_addr = 127.0.0.1
listen_port = {port}
unix_socket_dir =
auth_type = any
pool_mode = {mode}
ignore_startup_parameters = {ignored}
default_pool_size = {sessions}
max_client_conn = 200
"""


def find_pgbouncer() -> str:
    """Return the program; skip the test where there is none."""
    found = shutil.which("pgbouncer", path="/usr/sbin:/usr/local/sbin:/usr/bin:/usr/local/bin")
    if found is None:
        pytest.skip("pgbouncer is not installed (Debian: apt-get install pgbouncer)")
    return found


@contextmanager
def pooled(
    dsn: str, *, mode: str = "transaction", ignored: str = "extra_float_digits"
) -> Iterator[str]:
    """Start a pgbouncer and yield the way through it to the same database."""
    program = find_pgbouncer()
    said = conninfo_to_dict(dsn)
    target = {key: said[key] for key in ("host", "port", "user", "password") if said.get(key)}
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    folder = Path(tempfile.mkdtemp(prefix="queen-pooler-"))
    (folder / "pgbouncer.ini").write_text(
        CONFIGURATION.format(
            target=make_conninfo(**target), port=port, sessions=SESSIONS, mode=mode, ignored=ignored
        )
    )
    folder.chmod(0o755)
    owner = unprivileged_user()  # it refuses to run as root, like PostgreSQL
    who: dict[str, Any] = {}
    if owner is not None:
        who = {"user": owner.pw_uid, "group": owner.pw_gid, "extra_groups": []}
    with (folder / "log").open("wb") as log:
        process = subprocess.Popen(
            [program, str(folder / "pgbouncer.ini")],
            stdout=subprocess.DEVNULL, stderr=log, cwd="/", **who,
        )  # fmt: skip
    way = make_conninfo(host="127.0.0.1", port=port, dbname=said["dbname"], user=said["user"])
    try:
        _await(way, process, folder / "log")
        yield way
    finally:
        process.terminate()
        process.wait(20)
        shutil.rmtree(folder, ignore_errors=True)


def _await(dsn: str, process: subprocess.Popen[bytes], log: Path) -> None:
    deadline = time.monotonic() + 20
    while True:
        try:
            psycopg.connect(dsn, connect_timeout=5).close()
        except psycopg.OperationalError:
            assert process.poll() is None, log.read_text()
            assert time.monotonic() < deadline, log.read_text()
            time.sleep(0.02)
        else:
            return
