"""What the processes of a server and of its database cost: processor time and memory.

Read from /proc, so on Linux and for processes that this user may look into; where that is not
so, nothing is said rather than something wrong.
"""

from __future__ import annotations

import os
import re
import socket
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import urlsplit

_PROC = Path("/proc")
_LISTEN, _ESTABLISHED = "0A", "01"
_DATABASE = "postgres"


@dataclass(frozen=True)
class Used:
    """What some processes have used in a measurement; memory is that at its end.

    Shared memory counts once, however many processes have it mapped.
    """

    processes: int
    cpu_seconds: float
    memory_megabytes: float


@dataclass(frozen=True)
class Watched:
    """The processes of a server and of its database, by the roots of their trees."""

    server: frozenset[int] = frozenset()
    database: frozenset[int] = frozenset()

    def split(self) -> tuple[set[int], set[int]]:
        """Return the living processes: the server's, and the database's, also below the server."""
        below = tree(self.server)
        database = {pid for pid in below if _name(pid) == _DATABASE}
        return below - database, database | tree(self.database)


class Meter:
    """What the watched processes use between two instants."""

    def __init__(self, watched: Watched) -> None:
        self._watched = watched
        self._before = (0.0, 0.0)
        self._used: tuple[Used | None, Used | None] = (None, None)

    def begin(self) -> None:
        """Take the first of the two instants."""
        server, database = self._watched.split()
        self._before = _cpu_seconds(server), _cpu_seconds(database)

    def end(self) -> None:
        """Take the second."""
        server, database = self._watched.split()
        self._used = self._since(server, 0), self._since(database, 1)

    def read(self) -> tuple[Used | None, Used | None]:
        """Return what server and database have used; None where there is nothing to see."""
        return self._used

    def _since(self, pids: set[int], which: int) -> Used | None:
        if not pids:
            return None
        cpu_seconds = max(0.0, _cpu_seconds(pids) - self._before[which])
        return Used(len(pids), cpu_seconds, _memory_bytes(pids) / 1e6)


def find(target: str) -> Watched:
    """Find the local processes behind an address, and the database that they are connected to."""
    address = urlsplit(target)
    try:
        host = socket.gethostbyname(address.hostname or "127.0.0.1")
        server = _listeners(address.port or 80) if host.startswith("127.") else set()
    except OSError:
        return Watched()
    # Workers hold the listening socket with their master, who is older: one tree, found once.
    called = _ports_called(tree(server)) - {address.port or 80}
    database = {pid for port in called for pid in _listeners(port) if _name(pid) == _DATABASE}
    return Watched(frozenset(server), frozenset(database))


def tree(roots: Iterable[int]) -> set[int]:
    """Return the living processes among the roots, and all that descend from them."""
    children: dict[int, list[int]] = {}
    living = set()
    for pid in _pids():
        stat = _stat(pid)
        if stat:
            living.add(pid)
            children.setdefault(int(stat[1]), []).append(pid)
    found: set[int] = set()
    left = [pid for pid in roots if pid in living]
    while left:
        pid = left.pop()
        if pid not in found:
            found.add(pid)
            left += children.get(pid, [])
    return found


def _pids() -> list[int]:
    return [int(path.name) for path in _PROC.glob("[0-9]*")]


def _stat(pid: int) -> list[str]:
    """Return the fields of a process behind its name: state, parent …; [] where it is gone."""
    try:
        return (_PROC / str(pid) / "stat").read_text().rpartition(")")[2].split()
    except OSError:
        return []


def _name(pid: int) -> str:
    try:
        return (_PROC / str(pid) / "comm").read_text().strip()
    except OSError:
        return ""


def _cpu_seconds(pids: Iterable[int]) -> float:
    """Return the processor time of processes and of their children that have ended.

    A child that ends in between hands its time to its parent, so the sum of a tree never
    falls.
    """
    ticks = sum(int(ticks) for pid in pids for ticks in _stat(pid)[11:15])
    return ticks / os.sysconf("SC_CLK_TCK")


def _memory_bytes(pids: Iterable[int]) -> int:
    own = shared = 0
    for pid in pids:
        try:
            status = (_PROC / str(pid) / "status").read_text()
        except OSError:
            continue
        sizes = {
            name: int(size)
            for name, size in re.findall(r"^(Rss\w+):\s+(\d+) kB$", status, re.MULTILINE)
        }
        own += sizes.get("RssAnon", 0) + sizes.get("RssFile", 0)
        shared = max(shared, sizes.get("RssShmem", 0))
    return (own + shared) * 1024


# ------------------------------------------------------------------------- sockets


def _connections() -> Iterable[tuple[str, int, int, str]]:
    """Yield every TCP socket: its state, its port, the other end's port, its inode."""
    for table in ("tcp", "tcp6"):
        try:
            lines = (_PROC / "net" / table).read_text().splitlines()[1:]
        except OSError:
            continue
        for line in lines:
            fields = line.split()
            here, there = (int(fields[at].rpartition(":")[2], 16) for at in (1, 2))
            yield fields[3], here, there, fields[9]


def _listeners(port: int) -> set[int]:
    inodes = {
        inode for state, here, _, inode in _connections() if state == _LISTEN and here == port
    }
    return {pid for pid in _pids() if inodes & _sockets(pid)} if inodes else set()


def _ports_called(pids: Iterable[int]) -> set[int]:
    """Return the ports that processes are connected to from their side."""
    inodes = {inode for pid in pids for inode in _sockets(pid)}
    return {
        there
        for state, _, there, inode in _connections()
        if state == _ESTABLISHED and inode in inodes
    }


def _sockets(pid: int) -> set[str]:
    found = set()
    try:
        for path in (_PROC / str(pid) / "fd").iterdir():
            try:
                target = str(path.readlink())
            except OSError:
                continue
            if target.startswith("socket:["):
                found.add(target[8:-1])
    except OSError:
        return set()
    return found
