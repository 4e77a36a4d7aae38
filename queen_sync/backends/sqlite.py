"""The SQLite backend: queues in one file, for the programs of one machine.

The engine is the PostgreSQL one in the small: a log of messages with positions, lanes with their
leases, rows for single messages only where something failed. Writes take turns, so what SQL
functions do there under row locks is plain Python here, under the write lock. This module is the
face; `sqlite_connections` has the turns and the commits, `sqlite_lanes` what becomes of a message,
`sqlite_push`, `sqlite_pop`, `sqlite_acks` and `sqlite_transact` the operations,
`sqlite_inspection`, `sqlite_cleanup` and `sqlite_traces` what operators look at and take out.
"""

from __future__ import annotations

import logging
import sqlite3
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, Literal

import msgspec

from queen_sync import model as m
from queen_sync.backends import sqlite_groups, sqlite_pop, sqlite_rows
from queen_sync.backends.base import FEATURES, Capabilities, Hint
from queen_sync.backends.sqlite_acks import Judge
from queen_sync.backends.sqlite_cleanup import SqliteCleanup
from queen_sync.backends.sqlite_connections import Connections, Session, bounded
from queen_sync.backends.sqlite_hints import Hints
from queen_sync.backends.sqlite_inspection import SqliteInspection
from queen_sync.backends.sqlite_migrations import migrate
from queen_sync.backends.sqlite_push import store
from queen_sync.backends.sqlite_stats import SqliteStatistics
from queen_sync.backends.sqlite_traces import SqliteTraces
from queen_sync.backends.sqlite_transact import transact
from queen_sync.backends.sqlite_upkeep import REMOVALS_KEPT, redrive, sweep
from queen_sync.clock import SECOND, Clock, SystemClock
from queen_sync.encryption import KeyRing
from queen_sync.errors import InvalidRequest, Undecryptable

__all__ = ["SqliteBackend", "migrate"]

log = logging.getLogger(__name__)

NOT_YET = frozenset({"enc"})
MIN_EXTENSION_SECONDS = 60
_TIMING = {"delayed_processing_seconds", "window_buffer_seconds"}
_SCOPE = {"namespace", "task"}


class SqliteBackend(SqliteInspection, SqliteStatistics, SqliteCleanup, SqliteTraces):
    """Queues in the SQLite file ``path``, which is made where it is missing.

    Threads may share the backend, and processes of one machine the file, each with a backend of
    its own: make it in the process that uses it, since connections do not survive a fork. With
    ``synchronous`` ``normal`` a commit does not wait for the disk: the end of a process loses
    nothing, but a power failure may lose the last pushes that were answered.
    ``busy_timeout_milliseconds`` is how long a write waits for other processes. ``keys`` seal and
    open the payloads of encrypted queues; without them such queues cannot be made or pushed to.
    Raises BackendUnavailable where the file cannot be used.
    """

    capabilities = Capabilities(features=frozenset(FEATURES) - NOT_YET, durable=True, shared=True)

    def __init__(
        self,
        path: str | Path,
        *,
        clock: Clock | None = None,
        synchronous: Literal["full", "normal"] = "full",
        busy_timeout_milliseconds: int = 5_000,
        keys: KeyRing | None = None,
    ) -> None:
        if keys is not None:
            self.capabilities = self.capabilities.plus("enc")
        if synchronous not in ("full", "normal"):
            raise InvalidRequest("synchronous must be full or normal", "synchronous")
        if str(path) in ("", ":memory:"):
            raise InvalidRequest("path must name a file: it is what is shared", "path")
        self._path = Path(path).absolute()
        self._synchronous = synchronous
        migrate(self._path)
        self._db = Connections(
            self._path,
            clock or SystemClock(),
            synchronous=synchronous,
            busy_timeout_seconds=busy_timeout_milliseconds / 1_000,
            keys=keys,
        )
        self._hints = Hints(self._db.others_wrote)

    def close(self) -> None:
        if self._db.inherited:
            return  # it is the parent's, and so are the locks
        self._hints.close()
        self._db.close()

    def check(self) -> Mapping[str, Any]:
        self._db.read(lambda session: session.row("queue_number", ""))
        warnings = []
        if self._synchronous != "full":
            warnings.append(
                "synchronous is normal: a power failure can lose messages that were acknowledged"
            )
        return {
            "backend": "sqlite",
            "version": sqlite3.sqlite_version,
            "path": str(self._path),
            "synchronous": self._synchronous,
            "file_bytes": _size(self._path),
            "log_bytes": _size(Path(f"{self._path}-wal")),
            "warnings": warnings,
        }

    # ------------------------------------------------------------------ catalogue

    def configure(
        self,
        queue: str,
        options: Mapping[str, int | bool] | None = None,
        *,
        namespace: str | None = None,
        task: str | None = None,
    ) -> m.Configured:
        named = self.capabilities.check_configure(queue, options, namespace, task)

        def work(session: Session) -> m.Configured:
            row = session.row("queue_by_name", queue)
            created = row is None
            if row is None:
                sqlite_groups.make_queue(session, queue, namespace=namespace, task=task)
                row = session.row("queue_by_name", queue)
                assert row is not None
            before = sqlite_rows.queue_of(row)
            after = msgspec.structs.replace(
                before,
                options=msgspec.structs.replace(before.options, **named),
                namespace=before.namespace if namespace is None else namespace,
                task=before.task if task is None else task,
            )
            old, new = sqlite_rows.settings_of(before), sqlite_rows.settings_of(after)
            session.run(
                "set_queue",
                after.namespace,
                after.task,
                session.now_us,
                *(new[name] for name in sqlite_rows.OPTION_COLUMNS),
                row[0],
            )
            changes = {
                name: m.Change(old=old[name], new=value)
                for name, value in new.items()
                if old[name] != value
            }
            if changes.keys() & _TIMING:
                delay_us = after.options.delayed_processing_seconds * SECOND
                window_us = after.options.window_buffer_seconds * SECOND
                session.run("restamp", row[0], delay_us, window_us)
            if changes.keys() & _SCOPE:
                scope = after.namespace, after.task
                sqlite_groups.enter_scopes(session, row[0], *scope, late=True)
            return m.Configured(queue=after, created=created, changes=changes)

        configured = self._db.write(work)
        self._hints.tell(frozenset({queue}))
        return configured

    def queue(self, name: str) -> m.Queue | None:
        row = self._db.read(lambda session: session.row("queue_by_name", name))
        return None if row is None else sqlite_rows.queue_of(row)

    def queues(self) -> Sequence[m.Queue]:
        rows = self._db.read(lambda session: session.rows("all_queues"))
        return [sqlite_rows.queue_of(row) for row in rows]

    def delete_queue(self, name: str) -> bool:
        deleted = self._db.write(lambda session: sqlite_groups.delete_queue(session, name))
        # Whoever waits for the queue has to say anew where its group begins.
        self._hints.tell(frozenset({name} if deleted else ()))
        return deleted

    # ----------------------------------------------------------------------- flow

    def push(self, items: Sequence[m.NewMessage], *, create: bool = True) -> list[m.Receipt]:
        if not items:
            return []
        receipts, changed = self._db.write(lambda session: store(session, items, create=create))
        self._hints.tell(frozenset(changed))
        return receipts

    def pop(self, request: m.PopRequest) -> m.Claim:
        claim = self._db.read(lambda session: sqlite_pop.peek(session, request))
        closed: list[Undecryptable] = []
        while claim is None:
            claim = self._db.write(lambda session: sqlite_pop.pop(session, request, closed))
        if closed:
            log.warning("%s; %d lanes rest for that", closed[0].message, len(closed))
            if not claim:
                raise closed[0]
        return claim

    def ack(self, acks: Sequence[m.Ack]) -> list[m.Acked]:
        if not acks:
            return []

        def work(session: Session) -> tuple[list[m.Acked], set[str]]:
            judge = Judge(session, acks)
            verdicts = [judge.give(ack) for ack in acks]
            ready = judge.save()
            return [verdict.value() for verdict in verdicts], ready

        answers, ready = self._db.write(work)
        self._hints.tell(frozenset(ready))
        return answers

    def extend(self, lease_id: str, seconds: int | None = None) -> int:
        if seconds is not None and not 1 <= seconds <= m.MAX_LEASE_SECONDS:
            raise InvalidRequest(f"seconds must be 1 to {m.MAX_LEASE_SECONDS}", "seconds")

        def work(session: Session) -> int:
            judge = Judge(session, ())
            lanes = judge.live(lease_id)
            longer = seconds
            if longer is None:
                longer = max(MIN_EXTENSION_SECONDS, lanes[0].place.effective_lease_seconds)
            expires_us: int = max(lanes[0].expires_us, session.now_us + longer * SECOND)
            for lane in lanes:
                lane.expires_us = expires_us
                judge.touch(lane)
            judge.save()
            return expires_us

        return self._db.write(work)

    def release(self, lease_id: str) -> None:
        def work(session: Session) -> set[str]:
            judge = Judge(session, ())
            for lane in judge.live(lease_id):
                lane.release()
                judge.touch(lane)
            return judge.save()

        self._hints.tell(frozenset(self._db.write(work)))

    def transact(self, transaction: m.Transaction) -> m.Transacted:
        answer, changed = self._db.write(lambda session: transact(session, transaction))
        self._hints.tell(frozenset(changed))
        return answer

    # --------------------------------------------------------------------- groups

    def subscribe(self, queue: str, group: str, subscription: m.Subscription) -> bool:
        m.check_name(queue, "queue")
        m.check_name(group, "consumerGroup")
        met = self._db.write(
            lambda session: sqlite_groups.meet(session, queue, group, subscription)
        )
        return not met.ignored

    def groups(self, queue: str) -> Sequence[m.Group]:
        return self._db.read(
            lambda session: sqlite_groups.list_groups(session, queue), snapshot=True
        )

    def delete_group(
        self, group: str, *, queue: str | None = None, keep_subscription: bool = False
    ) -> int:
        dropped, changed = self._db.write(
            lambda session: sqlite_groups.delete_group(
                session, group, queue, keep=keep_subscription
            )
        )
        self._hints.tell(frozenset(changed))
        return dropped

    def restart_subscription(self, group: str, from_us: int) -> int:
        start_us = bounded(from_us)
        return self._db.write(
            lambda session: (
                session.run("restart_groups", group, start_us)
                + session.run("restart_subscriptions", group, start_us)
                + session.run("restart_scopes", group, start_us)
            )
        )

    def seek(self, target: m.Seek) -> int:
        moved = self._db.write(lambda session: sqlite_groups.seek(session, target))
        self._hints.tell(frozenset({target.queue}))
        return moved

    # --------------------------------------------------------------------- browse

    def dead_letters(self, wanted: m.DeadLetterFilter) -> m.DeadLetters:
        which = sqlite_rows.filter_of(wanted)
        page = bounded(wanted.limit), bounded(wanted.offset)

        def work(session: Session) -> m.DeadLetters:
            rows = session.rows("list_dead_letters", *which, *page)
            (total,) = session.row("count_dead_letters", *which) or (0,)
            return m.DeadLetters(
                items=[sqlite_rows.dead_letter_of(row, session.keys) for row in rows], total=total
            )

        return self._db.read(work, snapshot=True)

    def redrive(self, wanted: m.DeadLetterFilter) -> int:
        which = sqlite_rows.filter_of(wanted)
        given, queues = self._db.write(lambda session: redrive(session, which))
        self._hints.tell(frozenset(queues))
        return given

    def purge(self, wanted: m.DeadLetterFilter) -> int:
        which = sqlite_rows.filter_of(wanted)

        def work(session: Session) -> int:
            found = session.rows("find_dead_letters", *which)
            session.many("purge", [row[:1] for row in found])
            return len(found)

        return self._db.write(work)

    def removals(self, queue: str) -> Sequence[m.Removal]:
        rows = self._db.read(lambda session: session.rows("list_removals", queue, REMOVALS_KEPT))
        return [sqlite_rows.removal_of(queue, row) for row in rows]

    # --------------------------------------------------------- upkeep and wake-ups

    def sweep(self) -> m.SweepReport:
        report, queues = sweep(self._db)
        self._hints.tell(frozenset(queues))
        return report

    def next_ready_in(self, request: m.PopRequest) -> float | None:
        return self._db.read(lambda session: sqlite_pop.next_ready_in(session, request))

    def listen(self, callback: Callable[[Hint], None]) -> Callable[[], None]:
        return self._hints.listen(callback)


def _size(path: Path) -> int:
    try:
        return path.stat().st_size
    except FileNotFoundError:
        return 0
