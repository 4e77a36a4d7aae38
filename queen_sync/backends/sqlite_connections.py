"""Connections to a SQLite file: one that writes, in turns, and some that read.

A file has one writer at a time. Within a process the callers queue here, first come, first
served, instead of finding the file locked and sleeping; whoever is at the head of the queue
leads: it performs what is waiting, each caller's work in a savepoint of its own, and commits once
for all of them. So eight threads that push one message each pay for one flush to the disk
instead of eight, and an idle writer waits for nobody.
"""

from __future__ import annotations

import os
import random
import sqlite3
import threading
import time
from collections import deque
from collections.abc import Callable, Iterable, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any, Generic, TypeVar, cast

from queen_sync.backends.sqlite_statements import STATEMENTS
from queen_sync.clock import Clock
from queen_sync.encryption import KeyRing
from queen_sync.errors import BackendError, BackendUnavailable, OutcomeUnknown

T = TypeVar("T")
Row = tuple[Any, ...]

MAX_ROUND = 64
ROUND_SECONDS = 0.01
"""So many calls, or calls of so many seconds, share a commit at most."""
MAX_PAUSE_SECONDS = 0.01
MAX_IDLE_READERS = 8
WAL_LIMIT_BYTES = 64 * 1024 * 1024
"""Past this the write-ahead log is emptied as soon as its readers let it be."""
IDLE_WAL_BYTES = 16 * 1024 * 1024
"""What of it stays on the disk when it begins anew."""
TRIM_MILLISECONDS = 500
TRIM_PAUSE_SECONDS = 5.0
LOOK_EVERY = 64
"""After so many commits the length of the log is looked at."""
MAX_INTEGER = 2**63 - 1
SYNCHRONOUS = {"full": "pragma synchronous = full", "normal": "pragma synchronous = normal"}


def bounded(number: int) -> int:
    """Return a number that SQLite can hold, for comparisons with ones that it holds."""
    return max(-MAX_INTEGER, min(number, MAX_INTEGER))


class Session:
    """The statements of one call, by name, at one instant of the clock that decides."""

    __slots__ = ("_connection", "keys", "now_us")

    def __init__(
        self, connection: sqlite3.Connection, now_us: int, keys: KeyRing | None = None
    ) -> None:
        self._connection = connection
        self.now_us = now_us
        self.keys = keys
        """What seals and opens the payloads of encrypted queues."""

    def rows(self, name: str, *values: Any) -> list[Row]:
        return self._connection.execute(STATEMENTS[name], values).fetchall()

    def row(self, name: str, *values: Any) -> Row | None:
        rows = self._connection.execute(STATEMENTS[name], values).fetchall()
        return rows[0] if rows else None

    def run(self, name: str, *values: Any) -> int:
        """Execute a statement; return how many rows it changed."""
        return self._connection.execute(STATEMENTS[name], values).rowcount

    def many(self, name: str, rows: Iterable[Sequence[Any]]) -> None:
        self._connection.executemany(STATEMENTS[name], rows)

    def unused_pages(self) -> tuple[int, int]:
        """Return how many pages of the file are unused, and how many there are."""
        ((unused,),) = self._connection.execute("pragma freelist_count").fetchall()
        ((pages,),) = self._connection.execute("pragma page_count").fetchall()
        return unused, pages

    def shrink(self, pages: int) -> None:
        """Give unused pages at the end of the file back to the file system.

        SQLite does a page a step, and the driver takes one step of a statement without columns.
        """
        for _ in range(pages):
            self._connection.execute("pragma incremental_vacuum(1)")


class _Ticket(Generic[T]):
    """A caller's place in the queue, its work, and what came of it."""

    __slots__ = ("answered", "deadline", "error", "event", "leads", "result", "work")

    def __init__(self, work: Callable[[Session], T], deadline: float) -> None:
        self.work = work
        self.deadline = deadline
        self.event = threading.Event()
        self.leads = False
        self.answered = False
        self.result: T | None = None
        self.error: BaseException | None = None


class Connections:
    """All connections of one backend to its file, for the process that made them."""

    def __init__(
        self,
        path: str | Path,
        clock: Clock,
        *,
        synchronous: str,
        busy_timeout_seconds: float,
        keys: KeyRing | None = None,
    ) -> None:
        self.path = str(path)
        self._keys = keys
        self._clock = clock
        self._synchronous = synchronous
        self._patience = busy_timeout_seconds
        self._pid = os.getpid()
        self._state = threading.Condition()
        self._queue: deque[_Ticket[Any]] = deque()
        self._led = False
        """Whether somebody is using the writing connection."""
        self._closed = False
        self._idle: list[sqlite3.Connection] = []
        self._writer: sqlite3.Connection | None = None
        self._version = 0
        self._others_wrote = False
        self._commits = 0
        self._trim_at = 0.0

    # ------------------------------------------------------------------- the public side

    @property
    def inherited(self) -> bool:
        """Whether this is another process than the one that made it (O-25)."""
        return os.getpid() != self._pid

    def read(self, work: Callable[[Session], T], *, snapshot: bool = False) -> T:
        """Let work read; ``snapshot``: all its statements see the same state."""
        self._check_usable()
        try:
            connection = self._reader()
        except sqlite3.Error as error:
            raise failure_of(error) from error
        try:
            if snapshot:
                connection.execute("begin")
            result = work(Session(connection, self._clock.now_us(), self._keys))
            if snapshot:
                connection.execute("commit")
        except BaseException as error:
            connection.close()
            if isinstance(error, sqlite3.Error):
                raise failure_of(error) from error
            raise
        if len(self._idle) < MAX_IDLE_READERS:
            self._idle.append(connection)
        else:
            connection.close()
        if self._closed:
            self._close_readers()
        return result

    def write(self, work: Callable[[Session], T]) -> T:
        """Let work write; what it wrote is on the disk when this returns.

        What it raises undoes its own part alone. BackendUnavailable: nothing was stored;
        OutcomeUnknown: the commit itself failed.
        """
        self._check_usable()
        ticket = _Ticket(work, time.monotonic() + self._patience)
        with self._state:
            if self._closed:
                raise _closed()
            self._queue.append(ticket)
            if not self._led:
                self._led = ticket.leads = True
        if not ticket.leads:
            try:
                ticket.event.wait()
            except BaseException:
                self._give_up(ticket)
                raise
        if not ticket.answered:
            self._lead(ticket)
        if ticket.error is not None:
            raise ticket.error
        return cast("T", ticket.result)

    def others_wrote(self) -> bool:
        """Say, once, whether another process has changed the file since this was last asked.

        SQLite counts the changes that a connection has not made itself; the writing
        connection makes all of this process, so what it counts are the others'.
        """
        self._check_usable()
        with self._state:
            if not self._led and not self._closed:
                self._led = mine = True
            else:
                mine = False  # whoever writes looks too, when it begins
        if mine:
            try:
                if self._writer is None:
                    self._writer = self._open_writer()
                self._look_for_others(self._writer)
            except sqlite3.Error as error:
                raise failure_of(error) from error
            finally:
                self._hand_over()
        found, self._others_wrote = self._others_wrote, False
        return found

    def close(self) -> None:
        """Finish what has begun and close."""
        with self._state:
            if self._closed:
                return
            self._closed = True
            self._state.wait_for(lambda: not self._led)
            self._led = True
        self._close_readers()
        if self._writer is not None:
            # The last one of all processes to close empties the log into the file.
            self._writer.close()

    # ---------------------------------------------------------------------- taking turns

    def _lead(self, ticket: _Ticket[Any]) -> None:
        """Perform what is waiting, the caller's own first, and commit."""
        group: list[_Ticket[Any]] = []
        committing = False
        try:
            connection = self._begin(ticket.deadline)
            self._perform(connection, group)
            committing = True
            self._commit(connection)
        except BaseException as error:  # noqa: BLE001 - each caller raises its own part of it
            if not group:
                with self._state:
                    group.append(self._queue.popleft())
            self._drop_writer()
            failure = failure_of(error)
            for each in group:
                if each is ticket and not isinstance(error, Exception):
                    each.error = error
                elif each.error is None:
                    each.error = failure if each is ticket else _shared(failure, committing)
        finally:
            for each in group:
                each.answered = True
                each.event.set()
            self._hand_over()

    def _perform(self, connection: sqlite3.Connection, group: list[_Ticket[Any]]) -> None:
        until = time.monotonic() + ROUND_SECONDS
        while True:
            with self._state:
                each = self._queue.popleft()
            group.append(each)
            connection.execute("savepoint one_call")
            try:
                each.result = each.work(Session(connection, self._clock.now_us(), self._keys))
            except Exception as error:
                if not connection.in_transaction:
                    raise failure_of(error) from error  # the whole round was undone
                connection.execute("rollback to one_call")
                each.error = failure_of(error)
                if each.error is not error:
                    each.error.__cause__ = error
            connection.execute("release one_call")
            if not self._queue or len(group) >= MAX_ROUND or time.monotonic() >= until:
                return

    def _begin(self, deadline: float) -> sqlite3.Connection:
        """Take the file's write lock, waiting for other processes until the deadline.

        SQLite's own waiting sleeps up to 100 ms at a time, which starves one of two busy
        processes; short sleeps of random length share the lock evenly.
        """
        try:
            if self._writer is None:
                self._writer = self._open_writer()
            pause = 0.0005
            while True:
                try:
                    self._writer.execute("begin immediate")
                    break
                except sqlite3.OperationalError as error:
                    busy = error.sqlite_errorcode & 0xFF == sqlite3.SQLITE_BUSY
                    if not busy or time.monotonic() >= deadline:
                        raise
                time.sleep(pause * random.uniform(0.5, 1))  # noqa: S311 - keeps no secret
                pause = min(2 * pause, MAX_PAUSE_SECONDS)
            self._look_for_others(self._writer)
        except sqlite3.Error as error:
            raise failure_of(error) from error
        return self._writer

    def _commit(self, connection: sqlite3.Connection) -> None:
        try:
            connection.execute("commit")
        except sqlite3.Error as error:
            raise failure_of(error, committing=True) from error
        self._commits += 1
        if self._commits % LOOK_EVERY == 0:
            self._trim(connection)

    def _trim(self, connection: sqlite3.Connection) -> None:
        """Empty the log where readers that take turns have kept SQLite from beginning it anew.

        It waits a moment for them: while it does, new ones find all they need in the file. A
        long reader, such as a backup, is not waited for again and again.
        """
        now = time.monotonic()
        try:
            if now < self._trim_at or Path(f"{self.path}-wal").stat().st_size <= WAL_LIMIT_BYTES:
                return
            connection.execute(f"pragma busy_timeout = {TRIM_MILLISECONDS}").fetchall()
            ((busy, _, _),) = connection.execute("pragma wal_checkpoint(truncate)").fetchall()
            connection.execute("pragma busy_timeout = 0").fetchall()
        except (OSError, sqlite3.Error):
            # The commit that this follows stands; what is wrong will show in the next.
            busy = True
        if busy:
            self._trim_at = now + TRIM_PAUSE_SECONDS

    def _give_up(self, ticket: _Ticket[Any]) -> None:
        """Leave the queue, whose caller was interrupted while it waited."""
        with self._state:
            if ticket in self._queue:
                self._queue.remove(ticket)
        if ticket.leads:
            self._hand_over()

    def _hand_over(self) -> None:
        """Let the next in the queue lead."""
        with self._state:
            self._led = bool(self._queue)
            if self._led:
                self._queue[0].leads = True
                self._queue[0].event.set()
            else:
                self._state.notify_all()

    # ----------------------------------------------------------------------- connections

    def _reader(self) -> sqlite3.Connection:
        try:
            return self._idle.pop()
        except IndexError:
            return self._open(reads_only=True)

    def _close_readers(self) -> None:
        while self._idle:
            with suppress(IndexError):  # another reader that ends just now may take the last
                self._idle.pop().close()

    def _open_writer(self) -> sqlite3.Connection:
        connection = self._open(reads_only=False)
        ((self._version,),) = connection.execute("pragma data_version").fetchall()
        self._others_wrote = True  # for all that is known
        return connection

    def _look_for_others(self, connection: sqlite3.Connection) -> None:
        ((version,),) = connection.execute("pragma data_version").fetchall()
        if version != self._version:
            self._version = version
            self._others_wrote = True

    def _open(self, *, reads_only: bool) -> sqlite3.Connection:
        uri = (
            f"{Path(self.path).absolute().as_uri()}?mode=rw"  # a file that is gone is not made anew
        )
        connection = sqlite3.connect(
            uri,
            uri=True,
            isolation_level=None,
            check_same_thread=False,
            cached_statements=256,
            timeout=self._patience if reads_only else 0,
        )
        connection.execute(SYNCHRONOUS[self._synchronous])
        connection.execute("pragma fullfsync = on")  # macOS flushes its disk's cache only so
        connection.execute("pragma temp_store = memory")
        connection.execute("pragma trusted_schema = off")
        connection.execute("pragma cache_size = -16384")
        connection.execute(f"pragma journal_size_limit = {IDLE_WAL_BYTES}")
        if reads_only:
            connection.execute("pragma query_only = on")
        return connection

    def _drop_writer(self) -> None:
        """Close the writing connection, which undoes what it has not committed."""
        writer, self._writer = self._writer, None
        if writer is not None:
            writer.close()

    def _check_usable(self) -> None:
        """Refuse a process that inherited this, before any lock is touched (O-25)."""
        if self.inherited:
            raise BackendUnavailable(
                f"this backend belongs to process {self._pid}, and this is process {os.getpid()}:"
                " a connection to SQLite does not survive a fork. Make the backend after it"
            )
        if self._closed:
            raise _closed()


def _closed() -> BackendUnavailable:
    return BackendUnavailable("the SQLite backend is closed")


def _shared(error: BaseException, committing: bool) -> BackendError:
    """Return, for a caller whose work was in a round that failed, an error of its own."""
    kind: type[BackendError] = OutcomeUnknown if committing else BackendUnavailable
    if isinstance(error, BackendError):
        kind = type(error)
    shared = kind(f"the write it was part of failed: {error}")
    shared.__cause__ = error
    return shared


def failure_of(error: BaseException, *, committing: bool = False) -> BaseException:
    """Return what a driver's error means to the caller; any other error as it is."""
    if not isinstance(error, sqlite3.Error):
        return error
    code = getattr(error, "sqlite_errorcode", None)
    primary = None if code is None else code & 0xFF
    if primary == sqlite3.SQLITE_BUSY:
        return BackendUnavailable("another process kept the file locked for too long")
    if primary in (sqlite3.SQLITE_CORRUPT, sqlite3.SQLITE_NOTADB):
        return BackendError(f"the file is damaged: {error}")
    if isinstance(error, sqlite3.OperationalError):
        if committing and primary != sqlite3.SQLITE_FULL:
            return OutcomeUnknown(f"the commit failed: {error}")
        return BackendUnavailable(f"SQLite failed: {error}")
    return BackendError(f"SQLite refused a statement: {error}")
