"""Database sessions side by side, and the few words that the tests here are written in."""

from __future__ import annotations

import secrets
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from datetime import datetime
from typing import Any

import psycopg

from queen_sync import model as m
from queen_sync.backends.postgres import PostgresBackend
from queen_sync.backends.postgres_acks import settle
from queen_sync.backends.postgres_connections import _configure
from queen_sync.backends.postgres_push import push_to_one
from queen_sync.backends.postgres_sealing import Seals

PATIENCE_SECONDS = 20.0
SESSIONS = (
    "select count(*) from pg_stat_activity"
    " where application_name = 'queen-sync' and datname = current_database()"
)
"""How many sessions of backends there are."""
HOLD = 6632
# Deferred: it runs when the push commits, after seq and created_at were drawn, and waits there.
HOLD_BACK = f"""
create function public.hold_back() returns trigger language plpgsql as
$$ begin perform pg_advisory_xact_lock({HOLD}); return null; end $$;
create constraint trigger hold_back after insert on queen.messages
deferrable initially deferred for each row when (new.payload::text = '"slow"')
execute function public.hold_back();
"""
DAWDLE = """
create function public.dawdle() returns trigger language plpgsql as
$$ begin perform pg_sleep(random() * 0.01); return null; end $$;
"""
# A deferred trigger runs when the transaction commits: what it drew or read stays invisible to
# others, and what it locked stays locked, for as long as it sleeps.
DAWDLE_ON = """
create constraint trigger dawdle after insert or update on queen.{table}
deferrable initially deferred for each row when (random() < 0.25)
execute function public.dawdle();
"""


def connect(dsn: str) -> psycopg.Connection[Any]:
    return psycopg.connect(dsn, autocommit=True)


def execute(dsn: str, *statements: str) -> None:
    with connect(dsn) as session:
        for statement in statements:
            session.execute(statement)


def value(dsn: str, statement: str, arguments: Sequence[Any] = ()) -> Any:
    """Return the one value of a statement, read by a session of its own."""
    with connect(dsn) as session:
        row = session.execute(statement, arguments).fetchone()
    return None if row is None else row[0]


def fresh(prefix: str = "q") -> str:
    return f"{prefix}-{secrets.token_hex(4)}"


def number_of(dsn: str, queue: str, partition: str = m.DEFAULT_PARTITION) -> int:
    """Return the number of a partition."""
    return int(
        value(
            dsn,
            "select p.id from queen.partitions p join queen.queues q on q.id = p.queue_id"
            " where q.name = %s and p.name = %s and q.deleted_at is null",
            [queue, partition],
        )
    )


def delay_commits(dsn: str) -> None:
    """Make a part of all commits take up to 10 ms longer."""
    tables = ("messages", "partitions", "partition_leases")
    execute(dsn, DAWDLE, *(DAWDLE_ON.format(table=table) for table in tables))


@contextmanager
def open_transaction(dsn: str) -> Iterator[psycopg.Connection[Any]]:
    """Yield a session with an open transaction, committed at the end."""
    with connect(dsn) as session, session.transaction():
        _configure(session)
        yield session


def push_in(
    session: psycopg.Connection[Any],
    queue: str,
    partition: str = m.DEFAULT_PARTITION,
    value: Any = 1,
) -> None:
    """Push inside a session's own transaction, as a library caller would."""
    item = m.NewMessage.of(queue, value, partition=partition)
    with session.cursor(binary=True) as cursor:
        push_to_one(cursor, [item], Seals(None), None, create=True)


def ack_in(
    session: psycopg.Connection[Any],
    claim: m.Claim,
    outcome: m.Outcome = "completed",
    now: datetime | None = None,
) -> None:
    """Ack a whole claim inside a session's own transaction."""
    with session.cursor(binary=True) as cursor:
        answers, _ = settle(cursor, acks(claim, outcome), now)
    assert all(answer.ok for answer in answers)


def message(queue: str, name: str | None = None, partition: str = "Default") -> m.NewMessage:
    return m.NewMessage.of(queue, name, partition=partition, transaction_id=name)


def acks(claim: m.Claim, outcome: m.Outcome = "completed") -> list[m.Ack]:
    return [
        m.Ack(
            transaction_id=x.transaction_id,
            partition_id=x.partition_id,
            group=claim.group,
            lease_id=claim.lease_id,
            outcome=outcome,
        )
        for x in claim.messages
    ]


def drain(backend: PostgresBackend, queue: str, group: str) -> list[m.Message]:
    """Pop and complete until the queue has nothing more; return what came."""
    wanted = m.PopRequest(queue=queue, group=group, max_messages=1_000, max_partitions=100)
    taken: list[m.Message] = []
    for _ in range(1_000):
        claim = backend.pop(wanted)
        if claim:
            assert all(answer.ok for answer in backend.ack(acks(claim)))
            taken.extend(claim.messages)
            continue
        # A pop puts a partition that somebody holds off by 5 ms.
        soon = backend.next_ready_in(wanted)
        if soon is None or soon > 1:
            return taken
        time.sleep(soon)
    raise AssertionError("the queue never ends")


def repaired(dsn: str) -> int:
    """Return how many lost wake-ups and missing lease rows there are; there must be none."""
    return int(value(dsn, "select queen.repair(null)"))


def deadlocks(dsn: str) -> int:
    """Return how many deadlocks the database counted, in sessions that have ended."""
    return int(
        value(dsn, "select deadlocks from pg_stat_database where datname = current_database()")
    )


class Call:
    """A call in a thread of its own: started at once, its result or error asked for later."""

    def __init__(self, work: Callable[[], Any]) -> None:
        self._result: Any = None
        self._error: BaseException | None = None
        self._thread = threading.Thread(target=self._run, args=[work], daemon=True)
        self._thread.start()

    def _run(self, work: Callable[[], Any]) -> None:
        try:
            self._result = work()
        except BaseException as error:
            self._error = error

    @property
    def running(self) -> bool:
        return self._thread.is_alive()

    def result(self) -> Any:
        self._thread.join(PATIENCE_SECONDS)
        assert not self.running, "the call does not end"
        if self._error is not None:
            raise self._error
        return self._result


def together(*works: Callable[[], Any]) -> list[Any]:
    """Run all at the same time; return their results, or raise what the first one raised."""
    return [call.result() for call in [Call(work) for work in works]]


def until(condition: Callable[[], Any], seconds: float = PATIENCE_SECONDS) -> Any:
    """Wait for something that another session does; return what the condition said."""
    deadline = time.monotonic() + seconds
    while time.monotonic() < deadline:
        if found := condition():
            return found
        time.sleep(0.005)
    raise AssertionError("it never happened")


def until_blocked(dsn: str, count: int = 1) -> list[int]:
    """Wait until sessions of the backend wait for locks; return their process numbers."""
    with connect(dsn) as session:

        def blocked() -> list[int]:
            rows = session.execute(
                "select pid from pg_stat_activity where datname = current_database()"
                " and wait_event_type = 'Lock'"
            ).fetchall()
            return [pid for (pid,) in rows] if len(rows) >= count else []

        return list(until(blocked))
