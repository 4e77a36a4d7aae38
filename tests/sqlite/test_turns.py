"""Writes take turns and share commits: who is answered what, also when something goes wrong."""

import sqlite3
import threading
import time

import pytest

from queen_sync import model as m
from queen_sync.backends import sqlite_connections
from queen_sync.backends.sqlite import SqliteBackend
from queen_sync.backends.sqlite_connections import Connections, Session
from queen_sync.clock import SystemClock
from queen_sync.errors import BackendError, BackendUnavailable, OutcomeUnknown, QueueNotFound

INSERT = "insert_removal"


@pytest.fixture
def db(path):
    SqliteBackend(path).close()
    connections = Connections(path, SystemClock(), synchronous="full", busy_timeout_seconds=5)
    yield connections
    connections.close()


def note(number):
    """Return work that writes one row."""
    return lambda session: session.run(INSERT, number, "p", "evicted", 1, session.now_us, None)


def noted(db):
    rows = db.read(lambda session: session.rows("noted_by_tests"))
    return [row[0] for row in rows]


@pytest.fixture(autouse=True)
def _arranged(monkeypatch):
    """Let a round last for as long as a test holds it; add a statement to see what was written."""
    monkeypatch.setattr(sqlite_connections, "ROUND_SECONDS", 60)
    statement = "select queue_id from removals order by id"
    statements = {**sqlite_connections.STATEMENTS, "noted_by_tests": statement}
    monkeypatch.setattr(sqlite_connections, "STATEMENTS", statements)


class Round:
    """One writer that holds the turn until it is told to go on, and others that queue behind it."""

    def __init__(self, db):
        self._db = db
        self._entered = threading.Event()
        self._go_on = threading.Event()
        self._threads = []
        self.outcomes = {}
        self.call("first", self._hold)
        assert self._entered.wait(5)

    def _hold(self, session):
        note(0)(session)
        self._entered.set()
        assert self._go_on.wait(5)

    def call(self, name, work):
        def run():
            try:
                self.outcomes[name] = self._db.write(work)
            except BaseException as error:
                self.outcomes[name] = error

        waiting = len(self._db._queue)
        thread = threading.Thread(target=run)
        thread.start()
        self._threads.append(thread)
        while name != "first" and len(self._db._queue) == waiting:
            time.sleep(0.001)

    def finish(self):
        self._go_on.set()
        for thread in self._threads:
            thread.join(10)
            assert not thread.is_alive()


def test_calls_that_wait_share_a_commit_in_the_order_in_which_they_came(db):
    watcher = sqlite3.connect(db.path)
    (before,) = watcher.execute("pragma data_version").fetchone()
    commits = db._commits
    waiting = Round(db)
    for number in range(1, 6):
        waiting.call(number, note(number))
    waiting.finish()
    assert noted(db) == [0, 1, 2, 3, 4, 5]
    assert db._commits == commits + 1
    assert watcher.execute("pragma data_version").fetchone() != (before,)
    watcher.close()


def test_a_refused_call_undoes_its_own_part_alone(db):
    """C-15, C-06: its neighbours in the same commit are not undone."""

    def refuse(session: Session) -> None:
        note(99)(session)
        raise QueueNotFound("no such queue")

    waiting = Round(db)
    waiting.call("good", note(1))
    waiting.call("refused", refuse)
    waiting.call("late", note(2))
    waiting.finish()
    assert isinstance(waiting.outcomes.pop("refused"), QueueNotFound)
    assert set(waiting.outcomes) == {"first", "good", "late"}
    assert not [each for each in waiting.outcomes.values() if isinstance(each, BaseException)]
    assert noted(db) == [0, 1, 2]


def test_a_statement_that_fails_is_one_callers_error(db):
    """A value that SQLite refuses is answered to who sent it; the driver's error is the cause."""
    waiting = Round(db)
    waiting.call("bad", lambda session: session.run(INSERT, 1, "p", "no such kind", 1, 0, None))
    waiting.call("good", note(1))
    waiting.finish()
    error = waiting.outcomes["bad"]
    assert type(error) is BackendError
    assert isinstance(error.__cause__, sqlite3.IntegrityError)
    assert noted(db) == [0, 1]


def test_a_full_disk_is_unavailable_and_nothing_of_it_is_stored(backend):
    """INV-NO-500: refused as definite, and as soon as there is room it goes on."""
    backend.push([m.NewMessage.of("orders", 1)])
    pages = backend._db._writer.execute("pragma page_count").fetchone()[0]
    backend._db._writer.execute(f"pragma max_page_count = {pages + 4}").fetchall()
    big = m.JsonText(b'"' + b"x" * 1_000_000 + b'"')
    with pytest.raises(BackendUnavailable, match="full") as refused:
        backend.push([m.NewMessage.of("orders", 2), m.NewMessage(queue="orders", payload=big)])
    assert refused.value.definite
    # The writing connection was replaced, and with it the limit.
    assert backend.push([m.NewMessage.of("orders", 3)])[0].seq == 2


def test_who_shared_a_round_that_failed_is_told_that_nothing_was_stored(db):
    """Where SQLite has undone the whole transaction, each caller gets an error of its own."""

    def undo_everything(session: Session) -> None:
        session._connection.execute("rollback")
        raise sqlite3.OperationalError("disk I/O error")

    waiting = Round(db)
    waiting.call("good", note(1))
    waiting.call("fatal", undo_everything)
    waiting.call("later", note(2))
    waiting.finish()
    errors = [waiting.outcomes[name] for name in ("first", "good", "fatal")]
    assert [type(error) for error in errors] == [BackendUnavailable] * 3
    assert len({id(error) for error in errors}) == 3
    assert waiting.outcomes["later"] == 1  # in a round of its own
    assert noted(db) == [2]


def test_an_interrupt_of_the_leader_leaves_the_others_answered_and_the_queue_going(db):
    """H13: Ctrl-C in one caller's work is raised there; nobody waits for ever."""

    def interrupt(session: Session) -> None:
        raise KeyboardInterrupt

    waiting = Round(db)
    waiting.call("interrupted", interrupt)
    waiting.call("after", note(3))
    waiting.finish()
    assert isinstance(waiting.outcomes["first"], KeyboardInterrupt)  # it was the one that led
    error = waiting.outcomes["interrupted"]
    assert type(error) is BackendUnavailable  # nothing of the round was stored
    assert isinstance(error.__cause__, KeyboardInterrupt)
    assert waiting.outcomes["after"] == 1
    assert noted(db) == [3]


def test_a_commit_that_fails_is_of_unknown_outcome_to_all_who_shared_it(db, monkeypatch):
    """What the disk did with it cannot be told; later calls are served by a new connection."""
    commit = db._commit

    def fail(connection):
        monkeypatch.setattr(db, "_commit", commit)
        try:
            # The real thing in its place: a commit that SQLite refuses.
            connection.execute("savepoint open_still")
            connection.execute("commit")
            connection.execute("commit")
        except sqlite3.Error as error:
            raise sqlite_connections.failure_of(error, committing=True) from error

    monkeypatch.setattr(db, "_commit", fail)
    waiting = Round(db)
    waiting.call("second", note(1))
    waiting.finish()
    errors = [waiting.outcomes["first"], waiting.outcomes["second"]]
    assert [type(error) for error in errors] == [OutcomeUnknown] * 2
    assert not errors[0].definite
    db.write(note(2))
    assert 2 in noted(db)


def test_a_locked_file_is_unavailable_after_the_busy_timeout(path):
    """O-34: another program that keeps the write lock; nothing was stored, and it goes on after."""
    with SqliteBackend(path, busy_timeout_milliseconds=150) as backend:
        backend.push([m.NewMessage.of("orders", 1)])
        other = sqlite3.connect(path, isolation_level=None)
        other.execute("begin immediate")
        began = time.monotonic()
        with pytest.raises(BackendUnavailable, match="locked") as refused:
            backend.push([m.NewMessage.of("orders", "refused")])
        assert 0.1 < time.monotonic() - began < 3
        assert refused.value.definite
        assert refused.value.retryable
        assert backend.queue("orders") is not None  # readers do not wait for it
        other.execute("rollback")
        claim = backend.pop(m.PopRequest(queue="orders", max_messages=5))
        assert [message.value for message in claim.messages] == [1]
        other.close()


def test_an_empty_pop_does_not_wait_for_the_write_lock(path):
    """Most pops of an idle queue find nothing: they only read."""
    with SqliteBackend(path, busy_timeout_milliseconds=150) as backend:
        assert not backend.pop(m.PopRequest(queue="idle"))  # registers the wish
        backend.configure("idle")
        assert not backend.pop(m.PopRequest(queue="idle"))
        other = sqlite3.connect(path, isolation_level=None)
        other.execute("begin immediate")
        assert not backend.pop(m.PopRequest(queue="idle"))
        assert not backend.pop(m.PopRequest(queue="idle", partition=m.DEFAULT_PARTITION))
        other.close()


def test_closing_waits_for_what_has_begun(db):
    waiting = Round(db)
    closer = threading.Thread(target=db.close)
    closer.start()
    while not db._closed:
        time.sleep(0.001)
    assert closer.is_alive()
    waiting.finish()
    closer.join(5)
    assert waiting.outcomes["first"] is None
    with sqlite3.connect(db.path) as connection:
        assert connection.execute("select count(*) from removals").fetchone() == (1,)
    connection.close()
    with pytest.raises(BackendUnavailable, match="closed"):
        db.write(note(1))
