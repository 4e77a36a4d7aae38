"""Connections to PostgreSQL: a pool, bounded retries, and what each failure means.

No session state is relied on: time limits and the isolation level are start-up options of each
connection, or, behind a pooler, of each transaction; whatever is left in a transaction or cannot
write any more is thrown away.
"""

from __future__ import annotations

import json
import logging
import os
import random
import select
import time
from collections.abc import Callable, Iterable, Mapping
from typing import Any, TypeVar

import psycopg
from psycopg.conninfo import conninfo_to_dict, make_conninfo
from psycopg.types.numeric import Int8BinaryDumper, Int8BinaryLoader, Int8Dumper
from psycopg.types.string import ByteaBinaryLoader
from psycopg_pool import ConnectionPool, PoolClosed, PoolTimeout

from queen_sync.clock import SECOND
from queen_sync.errors import (
    BackendError,
    BackendUnavailable,
    OutcomeUnknown,
    QueenError,
    QueueFull,
    QueueNotFound,
)

log = logging.getLogger(__name__)
T = TypeVar("T")
Cursor = psycopg.Cursor[Any]


class Connection(psycopg.Connection[Any]):
    """A connection that keeps its cursor.

    A new one looks up how each type is written and read; keeping it saves 40 of the 110 µs that
    a single push costs this side.
    """

    kept: Cursor | None = None

    def kept_cursor(self) -> Cursor:
        """Return the cursor; it belongs to whoever took the connection."""
        if self.kept is None or self.kept.closed:
            self.kept = self.cursor(binary=True)
        return self.kept


PROBING: Mapping[str, int] = {
    "connect_timeout": 10,
    "keepalives": 1,
    "keepalives_idle": 10,
    "keepalives_interval": 5,
    "keepalives_count": 3,
    "tcp_user_timeout": 30_000,
}
"""How soon a connection over TCP finds out that the other host is gone (O-26): half a minute."""
RETRIES = 3
MAX_ROWS_KEPT = 10
FIRST_PAUSE_SECONDS = 0.1
POSTGRES_EPOCH_US = 946_684_800 * SECOND
"""2000-01-01: timestamps come from the driver as microseconds since then."""

_DEFINITE_AND_PASSING = (
    "53",  # out of memory, disk or connections: the transaction is gone
    "25006",  # read only: a primary that has become a standby
    "55P03",  # lock_timeout
    "57014",  # statement_timeout
    "57P04",  # the database is being dropped
)
_RETRIED = ("40001", "40P01")


class SpreadOtherwise(QueenError):  # noqa: N818  # the page of errors names none either
    """A queue spreads over another number of partitions than a push assumed; never seen outside."""

    code = "SPREAD_OTHERWISE"

    def __init__(self, queue: str, count: int) -> None:
        super().__init__(f"queue '{queue}' spreads over {count} partitions")
        self.queue = queue
        self.count = count


class SealedOtherwise(QueenError):  # noqa: N818  # the same
    """A queue wants payloads sealed that were not, or the other way round; never seen outside."""

    code = "SEALED_OTHERWISE"

    def __init__(self, queue: str, sealed: bool) -> None:
        super().__init__(f"queue '{queue}' wants payloads {'sealed' if sealed else 'in clear'}")
        self.queue = queue
        self.sealed = sealed


class Connections:
    """A pool of connections for one process, and the two ways to use one."""

    def __init__(
        self,
        dsn: str,
        *,
        size: int,
        statement_timeout_milliseconds: int,
        lock_timeout_milliseconds: int,
        pooled: bool = False,
        acquire_timeout_seconds: float = 10.0,
    ) -> None:
        self._pid = os.getpid()
        self._pooled = pooled
        self._begin = "begin isolation level read committed"
        self._options: dict[str, Any] = {"autocommit": True, "application_name": "queen-sync"}
        if pooled:
            # The next transaction may be on another session of the server, which nobody has set up
            # and which knows no statement of ours: each brings its limits along (O-29).
            self._options["prepare_threshold"] = None
            self._begin += f"; set local statement_timeout = {statement_timeout_milliseconds:d}"
            self._begin += f"; set local lock_timeout = {lock_timeout_milliseconds:d}"
        else:
            self._options["options"] = (
                f"-c statement_timeout={statement_timeout_milliseconds}"
                f" -c lock_timeout={lock_timeout_milliseconds}"
                " -c default_transaction_isolation=read\\ committed"
            )
        self._dsn = dsn
        self._pool: ConnectionPool[Connection] = ConnectionPool(
            probed(dsn),
            connection_class=Connection,
            min_size=1,
            max_size=size,
            kwargs=self._options,
            configure=_configure,
            timeout=acquire_timeout_seconds,
            reconnect_timeout=30,
            name="queen-sync",
            open=True,
        )

    def close(self) -> None:
        self._pool.close()

    def dedicated(self, dsn: str | None = None) -> psycopg.Connection[Any]:
        """Return a connection of its own, outside the pool, for a thread that keeps it."""
        return psycopg.connect(probed(dsn or self._dsn), autocommit=True)

    def call(self, work: Callable[[Cursor], T], *, writes: bool = True, retry: bool = True) -> T:
        """Run one statement that is a transaction by itself; ``work`` executes and fetches it.

        ``writes`` False says that nothing is lost when the answer does not come, ``retry``
        False that a deadlock's victim is not tried again here.
        """
        run = self._committed if self._pooled else self._once
        return self._retried(work, run, writes=writes, retries=RETRIES if retry else 0)

    def transaction(self, work: Callable[[Cursor], T]) -> T:
        """Run several statements in one transaction; the commit happens after ``work`` returns."""
        return self._retried(work, self._committed, writes=True)

    # What follows decides the meaning of every failure: definite (nothing happened) or unknown.

    def _retried(
        self,
        work: Callable[[Cursor], T],
        run: Callable[[Connection, Callable[[Cursor], T], list[bool]], T],
        *,
        writes: bool,
        retries: int = RETRIES,
    ) -> T:
        if os.getpid() != self._pid:
            raise BackendUnavailable("this backend was made in another process: make it after fork")
        attempt = 0
        while True:
            doubt = [False]
            connection = self._acquire()
            try:
                return run(connection, work, doubt)
            except psycopg.Error as error:
                if error.sqlstate in _RETRIED and not connection.closed and attempt < retries:
                    attempt += 1
                    problem: psycopg.Error | None = error
                else:
                    raise _meaning(error, connection, unknown=doubt[0] and writes) from error
            finally:
                self._give_back(connection)
            log.debug("retrying after %s", problem)
            pause = FIRST_PAUSE_SECONDS * 2 ** (attempt - 1)
            time.sleep(pause * random.uniform(0.5, 1.5))  # noqa: S311  # jitter, no secret

    @staticmethod
    def _once(connection: Connection, work: Callable[[Cursor], T], doubt: list[bool]) -> T:
        doubt[0] = True  # the statement commits by itself: losing its answer leaves doubt
        cursor = connection.kept_cursor()
        result = work(cursor)
        if cursor.rowcount > MAX_ROWS_KEPT:
            cursor.close()  # it holds what it fetched last
        return result

    def _committed(
        self, connection: Connection, work: Callable[[Cursor], T], doubt: list[bool]
    ) -> T:
        with connection.cursor(binary=True) as cursor:
            connection.execute(self._begin)  # as text: several statements in one round trip
            try:
                result = work(cursor)
            except BaseException:
                if not connection.closed:
                    cursor.execute("rollback")
                raise
            doubt[0] = True
            cursor.execute("commit")
            return result

    def _acquire(self) -> Connection:
        try:
            for _ in range(self._pool.max_size + 1):
                connection = self._pool.getconn()
                if not _is_stale(connection):
                    return connection
                connection.close()
                self._pool.putconn(connection)
            return self._pool.getconn()
        except (PoolTimeout, PoolClosed) as error:
            raise BackendUnavailable(
                "no connection to the database within the time allowed"
            ) from error

    def _give_back(self, connection: Connection) -> None:
        if connection.info.transaction_status != psycopg.pq.TransactionStatus.IDLE:
            connection.close()  # an open or failed transaction never meets the next user (O-28)
        self._pool.putconn(connection)


def probed(dsn: str) -> str:
    """Return an address with what it does not say about keepalive and waiting filled in."""
    said = {key: value for key, value in conninfo_to_dict(dsn).items() if value}
    merged: dict[str, Any] = {**PROBING, **said}
    return make_conninfo(**merged)


def _configure(connection: psycopg.Connection[Any]) -> None:
    """Read payloads as bytes and instants as integers; send integers as bigint, always.

    The driver's own conversions cost more than everything else that is done with a row, and an
    integer whose type depends on its size would prepare each statement several times.
    """
    connection.adapters.register_loader("timestamptz", Int8BinaryLoader)
    connection.adapters.register_loader("json", ByteaBinaryLoader)
    connection.adapters.register_dumper(int, Int8Dumper)
    connection.adapters.register_dumper(int, Int8BinaryDumper)


def array_text(numbers: Iterable[int | None]) -> str:
    """Write an array of integers, for ``%t``, in a third of the time that the driver takes."""
    return f"{{{','.join(['NULL' if each is None else str(each) for each in numbers])}}}"


def _is_stale(connection: psycopg.Connection[Any]) -> bool:
    """Say whether an idle connection has something to read: its server has gone away.

    Found out before a statement is sent, a lost connection is no doubt about an outcome.
    """
    poll = select.poll()
    poll.register(connection.fileno(), select.POLLIN)
    return bool(poll.poll(0))


def _meaning(
    error: psycopg.Error, connection: psycopg.Connection[Any], *, unknown: bool
) -> QueenError:
    """Return what a driver's error means to the caller."""
    refusal = refusal_of(error)
    if refusal is not None:
        return refusal
    state = error.sqlstate or ""
    # Without a state of the server's: the driver's own. Some say that the value was refused before
    # anything was sent (DataError and the like), the operational ones that the connection broke.
    lost = (
        connection.closed
        or state.startswith(("08", "57P0"))
        or (not state and isinstance(error, psycopg.OperationalError | psycopg.InterfaceError))
    )
    if lost and unknown:
        return OutcomeUnknown("the connection to the database was lost before the answer came")
    if lost:
        return BackendUnavailable("the connection to the database was lost")
    if state == "25006":
        connection.close()
    if state in _RETRIED or state.startswith(_DEFINITE_AND_PASSING):
        return BackendUnavailable("the database is busy or cannot write now")
    log.error("unexpected database error %s", state, exc_info=error)
    return BackendError("the database refused a statement")


def refusal_of(error: psycopg.Error) -> QueenError | None:
    """Return what an error says that a function of the engine raised on purpose."""
    if error.sqlstate == "QS404":
        return QueueNotFound(f"Queue '{error.diag.message_detail}' does not exist")
    if error.sqlstate == "QS303":
        told = json.loads(error.diag.message_detail or "{}")
        return SpreadOtherwise(told["queue"], told["count"])
    if error.sqlstate == "QS304":
        told = json.loads(error.diag.message_detail or "{}")
        return SealedOtherwise(told["queue"], told["sealed"])
    if error.sqlstate == "QS429":
        full = json.loads(error.diag.message_detail or "{}")
        return QueueFull(full["queue"], full["max"], full["depth"], full["pushed"])
    return None
