"""What an operator takes out of a file: killed half-way, beside other processes, and in the end."""

import random
import sqlite3
import subprocess
from contextlib import suppress
from itertools import pairwise

from queen_sync import inspection as i, model as m
from queen_sync.backends import sqlite_cleanup, sqlite_upkeep
from queen_sync.backends.sqlite import SqliteBackend
from queen_sync.backends.sqlite_connections import Session
from queen_sync.backends.sqlite_holes import begin_partition, count_stored, seq_before
from queen_sync.backends.sqlite_seqs import Seqs

PARTITIONS = 60
HELD = 40

CLEARER = """
import sys
from queen_sync.backends import sqlite_cleanup
from queen_sync.backends.sqlite import SqliteBackend
sqlite_cleanup.CLEARED_PARTITIONS = 2  # many steps, so that one may be killed between any two
with SqliteBackend(sys.argv[1]) as backend:
    print("ready", flush=True)
    print(backend.clear("orders"), flush=True)
"""

# Delete a partition, then sweep until nothing of it is left, a little at a time.
DELETER = """
import sys
from queen_sync.backends import sqlite_upkeep
from queen_sync.backends.sqlite import SqliteBackend
sqlite_upkeep.SWEEP_ROWS = 50
with SqliteBackend(sys.argv[1]) as backend:
    print("ready", flush=True)
    backend.delete_partition("orders", "p0")
    for _ in range(100):
        backend.sweep()
    print("done", flush=True)
"""

# Push and complete until told that enough was pushed; a line tells of each.
WORKER = """
import sys, threading
from queen_sync import model as m
from queen_sync.backends.sqlite import SqliteBackend
path, pushes = sys.argv[1], int(sys.argv[2])
pushed = threading.Event()
telling = threading.Lock()

def tell(what, name):
    with telling:
        print(what, name, flush=True)

def push(backend):
    for number in range(pushes):
        items = [m.NewMessage.of("orders", number, partition=f"p{number % 3}") for _ in range(4)]
        for receipt in backend.push(items):
            tell("pushed", receipt.id)
    pushed.set()

def pop(backend):
    while not pushed.is_set() or any(group.lag for group in backend.groups("orders")):
        claim = backend.pop(m.PopRequest(queue="orders", max_messages=5))
        lease = claim.lease_id
        answers = backend.ack([
            m.Ack(transaction_id=each.id, partition_id=each.partition_id, lease_id=lease)
            for each in claim.messages
        ])
        for answer in answers:
            assert answer.status == "completed" or answer.code == "MESSAGE_NOT_FOUND", answer
            if answer.status == "completed":
                tell("completed", answer.transaction_id)

with SqliteBackend(path) as backend:
    backend.subscribe("orders", m.QUEUE_MODE, m.Subscription())
    threads = [threading.Thread(target=work, args=(backend,)) for work in (push, pop, pop)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
"""


def value(path, statement):
    connection = sqlite3.connect(path)
    ((found,),) = connection.execute(statement).fetchall()
    connection.close()
    return found


def fill(backend, partitions=PARTITIONS, held=HELD):
    """Push to many partitions, with a group that has settled and failed some, and notes."""
    places = [f"p{number}" for number in range(partitions)]
    receipts = backend.push(
        [m.NewMessage.of("orders", n, partition=place) for place in places for n in range(held)]
    )
    for receipt in receipts[::held]:
        about = {"partition_id": receipt.partition_id, "transaction_id": receipt.id}
        backend.add_trace(i.Trace(**about, names=["n", "o"]))
    claim = backend.pop(
        m.PopRequest(queue="orders", max_messages=3 * partitions, max_partitions=partitions)
    )
    outcomes = ("completed", "failed", "dlq")
    backend.ack(
        [
            m.Ack(
                transaction_id=each.id,
                partition_id=each.partition_id,
                lease_id=claim.lease_id,
                outcome=outcomes[number % 3],
            )
            for number, each in enumerate(claim.messages)
        ]
    )


# ------------------------------------------------------------------------- killed


def kill_after(process, milliseconds):
    """Let a program go on for so long once it is ready, then kill it."""
    assert process.stdout.readline() == "ready\n"
    with suppress(subprocess.TimeoutExpired):
        process.wait(milliseconds / 1_000)
    process.kill()
    process.communicate(timeout=30)


def test_a_clear_that_is_killed_has_cleared_whole_partitions(path, start):
    """INV-INTEGRITY, INV-COUNTERS: at several instants; the next clear takes what was left."""
    with SqliteBackend(path, synchronous="normal") as backend:
        fill(backend)
    for milliseconds in (0, 2, 5, 10, 20):
        kill_after(start(CLEARER, path), milliseconds)
        with SqliteBackend(path) as backend:
            states = backend.partitions("orders")
            assert {state.stored_count for state in states} <= {0, HELD}
            for state in states:
                (group,) = state.groups
                assert group.lag <= state.stored_count
                assert (state.stored_count == 0) == (group.lag == 0 and state.oldest_us is None)
            notes = backend.traces_named(i.TraceFilter(name="n"))
            assert notes.total == sum(state.stored_count > 0 for state in states)
            assert backend.sweep().repaired == 0
    with SqliteBackend(path) as backend:
        stored = sum(state.stored_count for state in backend.partitions("orders"))
        assert backend.clear("orders") == stored
        assert not backend.pop(m.PopRequest(queue="orders", max_messages=9))
    for table in ("messages", "traces", "trace_names", "retries", "partition_holes"):
        assert value(path, f"select count(*) from {table}") == 0
    assert value(path, "select count(*) from dead_letters") > 0


def test_a_partition_whose_deletion_was_killed_is_whole_or_gone(path, start):
    """INV-INTEGRITY: and whenever a sweep was killed, the next one goes on."""
    with SqliteBackend(path, synchronous="normal") as backend:
        fill(backend, partitions=2, held=2_000)
    for milliseconds in (0, 1, 3, 10, 30):
        kill_after(start(DELETER, path), milliseconds)
        with SqliteBackend(path) as backend:
            names = {state.name: state.stored_count for state in backend.partitions("orders")}
            assert names.get("p0", 2_000) == names["p1"] == 2_000
            wanted = m.DeadLetterFilter(queue="orders", partition="p0")
            assert bool(backend.dead_letters(wanted).total) == ("p0" in names)
            assert backend.traces_named(i.TraceFilter(name="n")).total == 1 + ("p0" in names)
    with SqliteBackend(path) as backend:
        backend.delete_partition("orders", "p0")
        backend.delete_partition("orders", "p1")
        for _ in range(10):
            assert backend.sweep().repaired == 0
        (again,) = backend.push([m.NewMessage.of("orders", "new", partition="p0")])
        assert again.seq == 1
    assert value(path, "select count(*) from messages") == 1
    assert value(path, "select count(*) from queues") == 1
    for table in ("traces", "trace_names", "retries", "dead_letters"):
        assert value(path, f"select count(*) from {table}") == 0


def test_two_processes_delete_and_consume_from_one_file(path, start):
    """INV-COUNTERS, C-04: each message is completed once, or deleted, or both, and none is left."""
    chance = random.Random(7)
    with SqliteBackend(path) as backend:
        backend.subscribe("orders", m.QUEUE_MODE, m.Subscription())
        worker = start(WORKER, path, 100)
        deleted = set()
        while worker.poll() is None:
            page = backend.messages(i.MessageFilter(queue="orders", limit=20))
            for message in chance.sample(page.items, len(page.items) // 4):
                if backend.delete_message(message.partition_id, message.id):
                    assert message.id not in deleted
                    deleted.add(message.id)
        output, errors = worker.communicate(timeout=100)
        assert worker.returncode == 0, errors
        said = [line.split() for line in output.splitlines()]
        pushed = {name for what, name in said if what == "pushed"}
        completed = [name for what, name in said if what == "completed"]
        assert len(pushed) == 400
        assert len(completed) == len(set(completed))
        assert set(completed) | deleted == pushed
        states = backend.partitions("orders")
        assert sum(state.stored_count for state in states) == 400 - len(deleted)
        assert sum(state.waiting_count for state in states) == 0
        assert backend.sweep().repaired == 0
    stored = value(path, "select count(*) from messages")
    assert stored == 400 - len(deleted)


# ---------------------------------------------------------------------- what is left


def test_notes_leave_the_file_with_their_messages(backend, path):
    """However these leave it: deleted, cleared, too old, or with their queue."""
    left = []
    backend.configure("orders", {"retention_enabled": True, "retention_seconds": 1_000_000})
    receipts = [
        backend.push([m.NewMessage.of("orders", n, partition=f"p{n}") for n in range(3)]),
        backend.push([m.NewMessage.of("other", n) for n in range(3)]),
    ]
    for receipt in [*receipts[0], *receipts[1]]:
        place = {"partition_id": receipt.partition_id, "transaction_id": receipt.id}
        backend.add_trace(i.Trace(**place, names=["a", "b", "a"]))
        backend.add_trace(i.Trace(**place))
    for use in (
        lambda: backend.delete_message(receipts[0][0].partition_id, receipts[0][0].id),
        lambda: backend.clear("orders", "p1"),
        lambda: (backend.delete_partition("orders", "p2"), backend.sweep()),
        lambda: (backend.delete_queue("other"), backend.sweep()),
    ):
        use()
        left.append((value(path, "select count(*) from traces"),))
        left[-1] += (value(path, "select count(*) from trace_names"),)
    assert left == [(10, 10), (8, 8), (6, 6), (0, 0)]


def test_a_lane_that_is_repaired_passes_the_holes_over(backend, path):
    """INV-COUNTERS: what must never be found is put right as it should have been."""
    receipts = backend.push([m.NewMessage.of("orders", n) for n in range(6)])
    backend.subscribe("orders", "g", m.Subscription())
    for place in (0, 2, 3):
        backend.delete_message(receipts[place].partition_id, receipts[place].id)
    connection = sqlite3.connect(path)
    connection.execute("delete from partition_leases")
    connection.commit()
    connection.close()
    assert backend.sweep().repaired == 1
    assert backend.groups("orders")[0].lag == 3
    claim = backend.pop(m.PopRequest(queue="orders", group="g", max_messages=9))
    assert [message.value for message in claim.messages] == [1, 4, 5]


def test_what_a_deleted_partition_held_is_swept_a_little_at_a_time(backend, path, monkeypatch):
    """No push waits for all of it; the tombstone goes with the last row."""
    monkeypatch.setattr(sqlite_upkeep, "SWEEP_ROWS", 100)
    fill(backend, partitions=1, held=950)
    assert backend.delete_partition("orders", "p0")
    sizes = [value(path, "select count(*) from messages")]
    while sizes[-1]:
        backend.sweep()
        sizes.append(value(path, "select count(*) from messages"))
    assert all(before - after <= 100 for before, after in pairwise(sizes))
    backend.sweep()
    assert value(path, "select count(*) from queues") == 1
    assert value(path, "select count(*) from partitions") == 1


def test_partitions_are_cleared_some_in_one_commit(backend, monkeypatch):
    """C-06: whole ones; not each with a commit of its own, and not all under one lock."""
    monkeypatch.setattr(sqlite_cleanup, "CLEARED_PARTITIONS", 4)
    monkeypatch.setattr(sqlite_cleanup, "CLEARED_MESSAGES", 25)
    items = [m.NewMessage.of("orders", n, partition=f"p{n % 11}") for n in range(110)]
    backend.push(items)
    assert backend.clear("orders") == 110
    assert backend.clear("orders") == 0
    assert {state.stored_count for state in backend.partitions("orders")} == {0}


# ------------------------------------------------------------------------- holes


def random_partition(chance):
    """Return the rows of a partition with holes, each (seq, created_us), and its holes."""
    instant = 0
    rows = []
    for seq in range(1, chance.randint(2, 12)):
        instant += chance.randint(0, 2)
        rows.append((seq, instant))
    holes = Seqs()
    for seq, _ in rows:
        if chance.random() < 0.4:
            holes.add(seq)
    return rows, holes


def test_a_seq_parts_older_messages_from_the_others_whatever_is_missing(backend, path):
    """Halving among holes finds what looking at every message finds."""
    chance = random.Random(3)
    connection = sqlite3.connect(path)
    session = Session(connection, 0)
    for partition in range(1_000, 1_200):
        rows, holes = random_partition(chance)
        stored = [row for row in rows if row[0] not in holes]
        connection.executemany(
            "insert into messages (partition_id, seq, created_us, payload) values (?, ?, ?, '1')",
            [(partition, *row) for row in stored],
        )
        last = rows[-1][0]
        for instant in range(-1, rows[-1][1] + 2):
            found = seq_before(session, partition, 0, last, instant)
            assert 0 <= found <= last
            assert all((seq <= found) == (at < instant) for seq, at in stored)
        assert count_stored(holes, 1, last) == len(stored)
    connection.close()


def test_a_partition_never_begins_with_a_hole(backend, path):
    """Where its first messages are gone it begins behind them, and keeps the holes past that."""
    backend.push([m.NewMessage.of("orders", 1)])
    connection = sqlite3.connect(path, isolation_level=None)
    session = Session(connection, 0)
    ((partition,),) = connection.execute("select id from partitions").fetchall()
    assert begin_partition(session, partition, 3, Seqs([1, 2, 3, 6, 9, 10])) == 6
    assert value(path, "select first_seq from partitions") == 6
    assert value(path, "select hole_count from partition_holes") == 1
    assert begin_partition(session, partition, 9, Seqs([9, 10])) == 10
    assert value(path, "select count(*) from partition_holes") == 0
    connection.close()
