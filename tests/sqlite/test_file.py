"""The file: how it grows and shrinks, how it is backed up, and which files are refused."""

import sqlite3
import threading

import pytest
from sqlite_utils import Database
from sqlite_utils.migrations import Migrations

from queen_sync import inspection as i, model as m
from queen_sync.backends import sqlite_connections
from queen_sync.backends.sqlite import SqliteBackend
from queen_sync.backends.sqlite_migrations import APPLICATION_ID
from queen_sync.backends.sqlite_statements import folder, named
from queen_sync.errors import BackendUnavailable, InvalidRequest

BIG = m.JsonText(b'"' + b"x" * 20_000 + b'"')


def log_bytes(path):
    return path.with_name(path.name + "-wal").stat().st_size


def value(path, statement):
    connection = sqlite3.connect(path)
    ((found,),) = connection.execute(statement).fetchall()
    connection.close()
    return found


def test_the_log_does_not_grow_without_bound(backend, path):
    """Checkpoints keep up with pushes and acks: 60 MB pass through a log of at most 12."""
    largest = 0
    for _ in range(60):
        backend.push([m.NewMessage(queue="orders", payload=BIG) for _ in range(50)])
        backend.pop(m.PopRequest(queue="orders", max_messages=50, auto_ack=True))
        largest = max(largest, log_bytes(path))
    assert path.stat().st_size > 50_000_000
    assert largest < 12_000_000


def test_the_log_shrinks_once_a_long_reader_is_gone(backend, path):
    """A snapshot, as a backup holds it, keeps the log; after it the log begins anew, and short."""
    backend.push([m.NewMessage.of("orders", 1)])
    reader = sqlite3.connect(path)
    reader.execute("begin")
    reader.execute("select count(*) from messages").fetchall()
    for _ in range(50):
        backend.push([m.NewMessage(queue="orders", payload=BIG) for _ in range(20)])
    assert log_bytes(path) > 20_000_000
    reader.close()
    for _ in range(3):
        backend.push([m.NewMessage.of("orders", 2)])
    assert log_bytes(path) <= 16_777_216


def test_the_log_is_bounded_while_readers_take_turns(path, monkeypatch):
    """At every instant somebody reads, so SQLite alone would never begin the log anew."""
    monkeypatch.setattr(sqlite_connections, "WAL_LIMIT_BYTES", 12_000_000)
    monkeypatch.setattr(sqlite_connections, "LOOK_EVERY", 4)
    monkeypatch.setattr(sqlite_connections, "TRIM_PAUSE_SECONDS", 0)
    done = threading.Event()

    def read(first):
        connection = sqlite3.connect(path)
        pause = 0.02 if first else 0.03
        while not done.is_set():
            connection.execute("begin")
            connection.execute("select count(*) from queues").fetchall()
            done.wait(pause)
            connection.execute("commit")
        connection.close()

    with SqliteBackend(path) as backend:
        backend.push([m.NewMessage.of("orders", 1)])
        readers = [threading.Thread(target=read, args=(n % 2,)) for n in range(4)]
        for reader in readers:
            reader.start()
        largest = 0
        for _ in range(150):
            backend.push([m.NewMessage(queue="orders", payload=BIG) for _ in range(20)])
            largest = max(largest, log_bytes(path))
        done.set()
        for reader in readers:
            reader.join()
    assert largest < 24_000_000


def test_what_a_deleted_queue_held_is_given_back_to_the_file_system(backend, path):
    """delete_queue frees the name at once, sweeps remove the rest and shrink the file."""
    for _ in range(10):
        backend.push([m.NewMessage(queue="big", payload=BIG) for _ in range(50)])
    backend.push([m.NewMessage.of("small", 1)])
    assert backend.delete_queue("big")
    assert backend.queue("big") is None
    backend.push([m.NewMessage.of("big", "anew")])
    for _ in range(10):
        backend.sweep()
    backend.close()
    assert path.stat().st_size < 3_000_000
    assert value(path, "select count(*) from messages") == 2
    assert value(path, "select count(*) from queues") == 2


def test_a_backup_taken_while_pushes_run_is_a_whole_file(backend, path, tmp_path):
    """SQLite's backup copies a consistent state: messages without gaps, ready to be served."""
    done = threading.Event()

    def push():
        number = 0
        while not done.is_set():
            backend.push([m.NewMessage.of("orders", number, partition="a") for _ in range(3)])
            number += 1

    pusher = threading.Thread(target=push)
    backend.push([m.NewMessage.of("orders", "begin", partition="a")])
    pusher.start()
    copies = []
    for number in range(3):
        source, copy = sqlite3.connect(path), sqlite3.connect(tmp_path / f"copy{number}.db")
        source.backup(copy)
        source.close()
        copy.close()
        copies.append(tmp_path / f"copy{number}.db")
    done.set()
    pusher.join()
    sizes = []
    for copy in copies:
        assert value(copy, "pragma integrity_check") == "ok"
        with SqliteBackend(copy) as restored:
            request = m.PopRequest(queue="orders", max_messages=10_000, auto_ack=True)
            seqs = [message.seq for message in restored.pop(request).messages]
            assert seqs == list(range(1, len(seqs) + 1))
            assert len(seqs) % 3 == 1, "a push was copied in part"
            assert restored.push([m.NewMessage.of("orders", "on", partition="a")])[0].seq > len(
                seqs
            )
            assert restored.sweep().repaired == 0
        sizes.append(len(seqs))
    assert sizes == sorted(sizes)


def test_everything_is_there_again_after_a_restart(path):
    """Leases, failures, dead letters and groups are in the file, and so is the order of things."""
    with SqliteBackend(path) as backend:
        backend.configure("orders", {"retry_limit": 0, "priority": 7})
        backend.push([m.NewMessage.of("orders", n, transaction_id=f"t{n}") for n in range(3)])
        claim = backend.pop(m.PopRequest(queue="orders", max_messages=2))
        ids = {"partition_id": claim.messages[0].partition_id, "lease_id": claim.lease_id}
        backend.ack([m.Ack(transaction_id="t0", outcome="failed", error="no", **ids)])
    with SqliteBackend(path) as backend:
        assert backend.queue("orders").options.priority == 7
        letters = backend.dead_letters(m.DeadLetterFilter(queue="orders"))
        assert [(letter.transaction_id, letter.error) for letter in letters.items] == [("t0", "no")]
        assert not backend.pop(m.PopRequest(queue="orders"))
        (answer,) = backend.ack([m.Ack(transaction_id="t1", **ids)])
        assert answer.status == "completed"
        assert answer.lease_released
        assert backend.pop(m.PopRequest(queue="orders")).messages[0].value == 2


def test_payloads_and_names_come_back_byte_for_byte(backend):
    """C-10, C-18: an escaped NUL, a case, a trailing space and a Unicode form are kept apart."""
    names = ["a", "A", "a ", "\u00e9", "e\u0301", "%_*[", "\U0001f451" * 255]
    payload = m.JsonText.check(b'{"nul":"\\u0000 and on","big":123456789012345678901234567890}')
    for name in names:
        item = m.NewMessage(queue=name, payload=payload, partition=name, transaction_id=name)
        assert backend.push([item])[0].status == "queued"
    assert [found.name for found in backend.queues()] == sorted(names)
    for name in names:
        (message,) = backend.pop(m.PopRequest(queue=name, auto_ack=True)).messages
        assert (message.partition, message.transaction_id) == (name, name)
        assert message.payload == payload


def test_numbers_past_64_bits_are_answered_not_raised(backend):
    """P29: SQLite holds integers up to 2^63 - 1; a filter or a start past it is only far away."""
    far = 10**30
    backend.push([m.NewMessage.of("orders", 1)])
    start = m.Subscription(mode="from", from_us=far)
    for expected in (False, False):
        claim = backend.pop(m.PopRequest(queue="orders", group="late", subscription=start))
        assert not claim
        assert claim.subscription_ignored is expected
    wanted = m.DeadLetterFilter(failed_from_us=-far, failed_to_us=far, limit=far, offset=far)
    assert backend.dead_letters(wanted).total == 0
    assert backend.seek(m.Seek(queue="orders", to="time", from_us=far)) == 1
    assert backend.restart_subscription("late", far) == 1


def test_a_file_of_another_program_is_refused_and_left_alone(path):
    connection = sqlite3.connect(path)
    connection.execute("create table theirs (x)")
    connection.commit()
    connection.close()
    with pytest.raises(BackendUnavailable, match="something else"):
        SqliteBackend(path)
    assert value(path, "select count(*) from sqlite_schema") == 1
    assert value(path, "pragma journal_mode") == "delete"


def test_a_file_that_is_no_database_is_refused(path):
    path.write_text("not a database, but longer than the header of one " * 100)
    with pytest.raises(BackendUnavailable, match="cannot be used"):
        SqliteBackend(path)


def test_a_file_of_a_newer_version_is_refused(path):
    """Forward only: an older program does not touch what it does not know."""
    SqliteBackend(path).close()
    connection = sqlite3.connect(path)
    connection.execute(
        "insert into _sqlite_migrations (migration_set, name, applied_at)"
        " values ('queen-sync', '9999_later', 'then')"
    )
    connection.commit()
    connection.close()
    with pytest.raises(BackendUnavailable, match="newer queen-sync: it has 9999_later"):
        SqliteBackend(path)


# As the first version of the schema held it: three messages, of which a group has settled one.
FIRST_ROWS = """
insert into queues (name, created_us, configured_us) values ('orders', 1, 1);
insert into partitions (queue_id, name, created_us, last_seq, last_pushed_us)
values (1, 'Default', 1, 3, 9);
insert into messages (partition_id, seq, created_us, transaction_id, trace_id, payload)
values (1, 1, 7, 'a', null, '1'),
    (1, 2, 8, 'b', '00000000-0000-4000-8000-000000000000', '2'),
    (1, 3, 9, null, null, '3');
insert into consumer_groups (queue_id, name, mode, created_us) values (1, 'g', 'all', 2);
insert into partition_leases (partition_id, group_id, position, from_us, ended_us, ready_us)
values (1, 1, 1, 0, 5, 8);
"""


def test_a_file_of_the_first_version_is_brought_up_to_date(path):
    """O-33: what it held is served, listed and cleaned up as if it had been pushed today."""
    connection = sqlite3.connect(path, isolation_level=None)
    first = Migrations("queen-sync")

    @first(name="0001_tables")
    def tables(db):
        for statement in named(folder("migrations")["0001_tables"]).values():
            db.execute(statement)

    first.apply(Database(connection, execute_plugins=False))
    connection.execute(f"pragma application_id = {APPLICATION_ID}")
    connection.executescript(FIRST_ROWS)
    connection.close()
    with SqliteBackend(path) as backend:
        (state,) = backend.partitions("orders")
        assert (state.stored_count, state.waiting_count, state.groups[0].lag) == (3, 2, 2)
        trace = "00000000-0000-4000-8000-000000000000"
        (traced,) = backend.messages(i.MessageFilter(trace_id=trace)).items
        assert traced.transaction_id == "b"
        assert backend.delete_message(traced.partition_id, "b")
        claim = backend.pop(m.PopRequest(queue="orders", group="g", max_messages=9))
        assert [message.value for message in claim.messages] == [3]
        assert backend.sweep().repaired == 0


def test_a_missing_directory_and_a_vanished_file_are_unavailable(path, tmp_path):
    with pytest.raises(BackendUnavailable):
        SqliteBackend(tmp_path / "no" / "such" / "queues.db")
    backend = SqliteBackend(path)
    for found in path.parent.glob(f"{path.name}*"):
        found.unlink()
    with pytest.raises(BackendUnavailable):
        backend.push([m.NewMessage.of("orders", 1)])
    assert not path.exists(), "a file that is gone is not silently made anew"
    backend.close()


@pytest.mark.parametrize("bad", [{"path": ":memory:"}, {"path": ""}, {"synchronous": "off"}])
def test_what_could_not_keep_the_promises_is_refused(path, bad):
    with pytest.raises(InvalidRequest):
        SqliteBackend(**{"path": path, **bad})


def test_the_health_facts_warn_of_a_commit_that_does_not_wait_for_the_disk(path):
    with SqliteBackend(path) as backend:
        facts = backend.check()
        assert facts["synchronous"] == "full"
        assert facts["warnings"] == []
        assert facts["file_bytes"] > 0
    with SqliteBackend(path, synchronous="normal") as backend:
        assert "power failure" in backend.check()["warnings"][0]


def test_a_closed_backend_is_refused_and_may_be_closed_again(path):
    backend = SqliteBackend(path)
    backend.listen(lambda hint: None)
    backend.close()
    backend.close()
    with pytest.raises(BackendUnavailable, match="closed"):
        backend.push([m.NewMessage.of("orders", 1)])
    with pytest.raises(BackendUnavailable, match="closed"):
        backend.queues()
    # The last one out empties the log into the file.
    assert not path.with_name(path.name + "-wal").exists()
