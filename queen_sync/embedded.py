"""A PostgreSQL of one's own: made in a directory, started, stopped and brought back after a crash.

It serves people who want to try queen-sync, or run it on one machine, without installing a
database server; and the tests. The directory holds everything::

    DIRECTORY/data          the cluster, made by initdb on the first start
    DIRECTORY/run           the socket, where the path is short enough for one
    DIRECTORY/lock          held while a process uses the directory
    DIRECTORY/password      of the superuser, for connections over TCP
    DIRECTORY/postgres.log

Connections go over a Unix socket in a directory that only the cluster's user can enter, which
is what lets them in without a password. TCP is off unless a port is asked for; then it listens
on the loopback address alone and wants the password.

PostgreSQL refuses to run as root. A root process therefore starts it as the user ``postgres``,
or ``nobody`` where there is none. It ends with the process that started it, however that
ended: a watchdog waits for the end of a pipe that only the starter, and what it forks, hold.
"""

# ruff: noqa: S603 - the programs come from find_binaries, their arguments from the operator
from __future__ import annotations

import fcntl
import os
import pwd
import secrets
import shutil
import signal
import socket
import subprocess
import tempfile
import time
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from types import TracebackType
from typing import Any, Self
from urllib.parse import quote, urlencode

import psycopg

from queen_sync.binaries import Binaries, find_binaries
from queen_sync.errors import BackendUnavailable

SUPERUSER = "postgres"
START_SECONDS = 300
"""How long crash recovery may take before a start counts as failed."""
TAKEOVER_SECONDS = 20
"""How long a start waits for the process that used the directory before to let go of it."""
STOP_SECONDS = 30
SOCKET_PATH_LIMIT = 107 - len("/.s.PGSQL.65535.lock")

_WATCHDOG = 'read -r _ || { [ "$(head -n 1 "$2")" = "$1" ] && kill -INT "$1"; }'
"""Stop the postmaster ($1, if the pid file $2 still names it) when the pipe ends without a line."""


class Cluster:
    """A PostgreSQL in a directory, started by `start` and ended by `stop`, or by ``with``.

    It belongs to the process that made the object; in a forked child `stop` does nothing.
    ``settings`` go to the server as they are. ``port`` opens the loopback address too;
    0 takes a free port. All methods are called from one thread.
    """

    def __init__(
        self,
        path: str | os.PathLike[str],
        *,
        binaries: Binaries | None = None,
        settings: Mapping[str, str] | None = None,
        port: int | None = None,
    ) -> None:
        self.path = Path(path).absolute()
        self.data = self.path / "data"
        self.port = port
        self._binaries = binaries
        self._settings = dict(settings or {})
        self._owner = unprivileged_user()
        self._pid = os.getpid()
        self._postmaster: subprocess.Popen[bytes] | None = None
        self._watchdog: subprocess.Popen[bytes] | None = None
        self._lock: int | None = None
        self._run = self.path / "run"

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.stop()

    @property
    def running(self) -> bool:
        """Whether the postmaster that this object started is alive."""
        return self._postmaster is not None and self._postmaster.poll() is None

    def dsn(self, database: str = SUPERUSER, *, tcp: bool = False) -> str:
        """Return the address of a database, over the socket or over TCP with the password."""
        name = quote(database, safe="")
        if not tcp:
            where = urlencode({"host": str(self._run), "port": self.port or 5432})
            return f"postgresql://{SUPERUSER}@/{name}?{where}"
        if self.port is None:
            raise ValueError("this cluster was not given a port")
        password = (self.path / "password").read_text()
        return f"postgresql://{SUPERUSER}:{password}@127.0.0.1:{self.port}/{name}"

    def start(self) -> None:
        """Make the cluster if there is none and start it; return when it answers.

        A cluster that was killed is recovered. Raises BackendUnavailable where it cannot
        start, with the last lines of its log.
        """
        if self.running:
            return
        self._prepare()
        self._take_lock()
        try:
            self._remove_remains()
            if not (self.data / "PG_VERSION").exists():
                self._initialize()
            self._launch()
        except BaseException:
            self.stop()
            raise

    def stop(self) -> None:
        """Stop the cluster: open sessions are ended, everything is written; harmless if stopped."""
        if self._pid != os.getpid():
            return
        if self._postmaster is not None:
            _end(self._postmaster, (signal.SIGINT, signal.SIGQUIT, signal.SIGKILL))
            self._postmaster = None
        self._dismiss_watchdog()
        if self._lock is not None:
            os.close(self._lock)
            self._lock = None
        if self._run.parent != self.path:
            shutil.rmtree(self._run, ignore_errors=True)

    def kill(self) -> None:
        """Kill the postmaster and all its children at once, as a power cut would; for tests."""
        if self._postmaster is None:
            return
        postmaster = self._postmaster.pid
        with suppress(ProcessLookupError):
            os.kill(postmaster, signal.SIGSTOP)  # so that it starts no more children
        for pid in (postmaster, *_children(postmaster)):
            with suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        self._postmaster.wait()
        self._postmaster = None
        self._dismiss_watchdog()

    def create_database(self, name: str) -> None:
        """Make the database unless it is there."""
        with psycopg.connect(self.dsn(), autocommit=True) as connection:
            found = connection.execute("select from pg_database where datname = %s", [name])
            if found.rowcount == 0:
                connection.execute(
                    psycopg.sql.SQL("create database {}").format(psycopg.sql.Identifier(name))
                )

    # ------------------------------------------------------------------- steps of a start

    def _prepare(self) -> None:
        """Make the directory, owned by the user that PostgreSQL will run as."""
        made = not self.path.is_dir()
        if made:
            self.path.mkdir(mode=0o700, parents=True)
            if self._owner is not None:
                os.chown(self.path, self._owner.pw_uid, self._owner.pw_gid)
        if not reachable(self.path, self._owner):
            if made:
                self.path.rmdir()
            name = self._owner.pw_name if self._owner else "this process"
            raise BackendUnavailable(
                f"{self.path} cannot be entered by the user {name}, as whom PostgreSQL runs "
                "because it refuses to run as root; choose a directory outside the home "
                "directory of root, such as /var/lib/queen-sync, or start as an ordinary user"
            )
        if len(str(self._run)) > SOCKET_PATH_LIMIT and self._run.parent == self.path:
            self._run = Path(tempfile.mkdtemp(prefix="queen-"))
        self._run.mkdir(mode=0o700, exist_ok=True)
        if self._owner is not None:
            os.chown(self._run, self._owner.pw_uid, self._owner.pw_gid)

    def _take_lock(self) -> None:
        """Hold the directory for this process; a dying predecessor is waited for."""
        if self._lock is not None:
            return
        lock = os.open(self.path / "lock", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        deadline = time.monotonic() + TAKEOVER_SECONDS
        while True:
            try:
                fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                if time.monotonic() > deadline:
                    os.close(lock)
                    raise BackendUnavailable(f"{self.path} is in use by another process") from None
                time.sleep(0.1)
            else:
                self._lock = lock
                return

    def _remove_remains(self) -> None:
        """Remove what a killed cluster left: a pid file of nobody, an orphaned postmaster.

        Only the holder of the lock does it, so that no starting neighbour is disturbed.
        """
        pid_file = self.data / "postmaster.pid"
        deadline = time.monotonic() + TAKEOVER_SECONDS
        while (pid := self._recorded_pid()) is not None and _works_in(pid, self.data):
            with suppress(ProcessLookupError):
                os.kill(pid, signal.SIGINT)
            if time.monotonic() > deadline:
                raise BackendUnavailable(f"{self.data} is in use by process {pid}")
            time.sleep(0.1)
        pid_file.unlink(missing_ok=True)

    def _recorded_pid(self) -> int | None:
        try:
            return int((self.data / "postmaster.pid").read_text().split("\n", 1)[0])
        except (FileNotFoundError, ValueError):
            return None

    def _initialize(self) -> None:
        """Run initdb beside the final place, so that half a cluster is never taken for one."""
        half = self.path / "data.new"
        shutil.rmtree(half, ignore_errors=True)
        password = self.path / "password"
        with suppress(FileNotFoundError):
            password.unlink()
        descriptor = os.open(password, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
        os.write(descriptor, secrets.token_urlsafe(24).encode())
        os.close(descriptor)
        if self._owner is not None:
            os.chown(password, self._owner.pw_uid, self._owner.pw_gid)
        command = [
            str(self.binaries.path("initdb")),
            "--pgdata",
            str(half),
            "--username",
            SUPERUSER,
        ]
        command += ["--encoding", "UTF8", "--no-locale", "--pwfile", str(password)]
        command += ["--auth-local", "trust", "--auth-host", "scram-sha-256"]
        made = subprocess.run(
            command, capture_output=True, text=True, check=False, **self._as_owner()
        )
        if made.returncode != 0:
            raise BackendUnavailable(f"initdb failed: {(made.stderr or made.stdout).strip()}")
        half.rename(self.data)

    def _launch(self) -> None:
        """Start the postmaster with its watchdog and wait until it answers."""
        if self.port == 0:
            self.port = _free_port()
        settings = {
            "unix_socket_directories": str(self._run),
            "unix_socket_permissions": "0700",
            "listen_addresses": "" if self.port is None else "127.0.0.1",
            "port": str(self.port or 5432),
            "log_checkpoints": "off",
            **self._settings,
        }
        command = [str(self.binaries.path("postgres")), "-D", str(self.data)]
        for name, value in settings.items():
            command += ["-c", f"{name}={value}"]
        log = self.path / "postgres.log"
        deadline = time.monotonic() + START_SECONDS
        while True:
            with log.open("ab") as output:
                begin = output.tell()
                self._postmaster = subprocess.Popen(
                    command, stdin=subprocess.DEVNULL, stdout=output, stderr=output,
                    **self._as_owner(),
                )  # fmt: skip
            self._watch()
            if self._answers(deadline):
                return
            self._dismiss_watchdog()
            said = log.read_bytes()[begin:].decode(errors="replace").strip()
            # Children of a killed postmaster need a moment to notice; they hold its memory.
            if "shared memory block" in said and time.monotonic() < deadline - START_SECONDS + 20:
                time.sleep(0.2)
                (self.data / "postmaster.pid").unlink(missing_ok=True)
                continue
            raise BackendUnavailable(f"PostgreSQL did not start: {said[-2000:]}")

    def _answers(self, deadline: float) -> bool:
        """Wait for the first answer; False where the postmaster ended or the time is up."""
        while self.running and time.monotonic() < deadline:
            try:
                psycopg.connect(self.dsn(), connect_timeout=5).close()
            except psycopg.OperationalError:
                time.sleep(0.02)
            else:
                return True
        return False

    def _watch(self) -> None:
        assert self._postmaster is not None
        pid, pid_file = str(self._postmaster.pid), str(self.data / "postmaster.pid")
        self._watchdog = subprocess.Popen(
            ["/bin/sh", "-c", _WATCHDOG, "sh", pid, pid_file],
            stdin=subprocess.PIPE, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL,
            cwd="/", start_new_session=True,
        )  # fmt: skip

    def _dismiss_watchdog(self) -> None:
        if self._watchdog is None:
            return
        with suppress(BrokenPipeError):
            self._watchdog.communicate(b"stopped\n")
        self._watchdog = None

    @property
    def binaries(self) -> Binaries:
        """The programs that run this cluster: of its own major version, once it is made."""
        if self._binaries is None:
            version = self.data / "PG_VERSION"
            major = int(version.read_text()) if version.exists() else None
            self._binaries = find_binaries(major).readable_by(self._owner)
        return self._binaries

    def _as_owner(self) -> dict[str, Any]:
        """Return how a process is started as the cluster's user, away from the terminal."""
        how: dict[str, Any] = {"cwd": "/", "start_new_session": True, "umask": 0o077}
        if self._owner is not None:
            how |= {
                "user": self._owner.pw_uid, "group": self._owner.pw_gid, "extra_groups": [],
            }  # fmt: skip
        return how


def unprivileged_user() -> pwd.struct_passwd | None:
    """Return as whom a root process starts PostgreSQL; None where it is not root."""
    if os.geteuid() != 0:
        return None
    for name in ("postgres", "nobody"):
        with suppress(KeyError):
            return pwd.getpwnam(name)
    raise BackendUnavailable("PostgreSQL needs a user other than root, such as nobody")


def reachable(path: Path, user: pwd.struct_passwd | None) -> bool:
    """Return whether the user can enter the directory, by trying."""
    if user is None:
        return os.access(path, os.X_OK)
    tried = subprocess.run(
        ["/bin/sh", "-c", 'cd "$1"', "sh", str(path.absolute())], check=False, capture_output=True,
        cwd="/", user=user.pw_uid, group=user.pw_gid, extra_groups=[],
    )  # fmt: skip
    return tried.returncode == 0


def _end(process: subprocess.Popen[bytes], signals: tuple[signal.Signals, ...]) -> None:
    """Send one signal after the other until the process has ended."""
    for each in signals:
        process.send_signal(each)
        with suppress(subprocess.TimeoutExpired):
            process.wait(STOP_SECONDS)
            return
    process.wait()


def _works_in(pid: int, directory: Path) -> bool:
    """Return whether the process is alive and its working directory is this one, as a postmaster's.

    Where the system does not say, every live process counts.
    """
    try:
        return Path(f"/proc/{pid}/cwd").resolve(strict=True) == directory.resolve()
    except (FileNotFoundError, ProcessLookupError):
        if Path("/proc/self").exists():
            return False
    except PermissionError:
        return False
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    except PermissionError:
        pass
    return True


def _children(parent: int) -> list[int]:
    """Return the processes that the parent started; none where the system has no /proc."""
    found = []
    for status in Path("/proc").glob("[0-9]*/stat"):
        with suppress(OSError):
            # After the name, which may hold anything, come the state and the parent.
            if int(status.read_text().rpartition(")")[2].split()[1]) == parent:
                found.append(int(status.parent.name))
    return found


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
        return port
