"""Several real processes on one file: started, raced, killed and forked."""

import os
import queue
import signal
import sqlite3
import sys
import threading
import time

import pytest

from queen_sync import model as m
from queen_sync.backends.sqlite import SqliteBackend, migrate
from queen_sync.errors import BackendUnavailable

MIGRATE = "import sys; from queen_sync.backends.sqlite import migrate; migrate(sys.argv[1])"

# Push with transaction ids until killed; a line tells of each push that was answered.
PUSHER = """
import sys
from queen_sync import model as m
from queen_sync.backends.sqlite import SqliteBackend
path, name = sys.argv[1:]
with SqliteBackend(path) as backend:
    for number in range(1_000_000):
        ids = [f"{name}-{number}-{item}" for item in range(5)]
        where = f"p{number % 3}"
        backend.push([
            m.NewMessage.of("orders", number, partition=where, transaction_id=each) for each in ids
        ])
        print("\\n".join(ids), flush=True)
"""

# Push in four threads, and pop, complete and tell in four others until all is settled.
WORKER = """
import sys, threading
from queen_sync import model as m
from queen_sync.backends.sqlite import SqliteBackend
path, name, pushes = sys.argv[1], sys.argv[2], int(sys.argv[3])
telling = threading.Lock()

def push(thread):
    for number in range(pushes):
        value = [name, thread, number]
        backend.push([m.NewMessage.of("shared", value, partition=str(number % 4))])

def unfinished():
    (group,) = backend.groups("shared")
    return group.lag or group.leased or not pushed.is_set()

def pop():
    while unfinished():
        claim = backend.pop(m.PopRequest(queue="shared", max_messages=7))
        if not claim:
            continue
        lease = claim.lease_id
        answers = backend.ack([
            m.Ack(transaction_id=each.id, partition_id=each.partition_id, lease_id=lease)
            for each in claim.messages
        ])
        assert all(each.status == "completed" and not each.already for each in answers), answers
        with telling:
            for each in claim.messages:
                print(each.id, flush=True)

pushed = threading.Event()
with SqliteBackend(path) as backend:
    backend.subscribe("shared", m.QUEUE_MODE, m.Subscription())
    pushers = [threading.Thread(target=push, args=(n,)) for n in range(4)]
    poppers = [threading.Thread(target=pop) for n in range(4)]
    for thread in pushers + poppers:
        thread.start()
    for thread in pushers:
        thread.join()
    pushed.set()
    for thread in poppers:
        thread.join()
"""

# Push once for each line that comes in.
ON_DEMAND = """
import sys
from queen_sync import model as m
from queen_sync.backends.sqlite import SqliteBackend
with SqliteBackend(sys.argv[1]) as backend:
    print("ready", flush=True)
    for line in sys.stdin:
        backend.push([m.NewMessage.of("bell", line.strip())])
"""


def schema(path):
    with sqlite3.connect(path) as connection:
        rows = connection.execute("select name, sql from sqlite_schema order by name").fetchall()
    connection.close()
    return rows


def test_six_processes_migrate_an_empty_path_at_once(tmp_path, path, start):
    """O-33: all of them start, and the schema is the one that a single start makes."""
    racers = [start(MIGRATE, path) for _ in range(6)]
    said = [racer.communicate(timeout=60)[1] for racer in racers]
    assert [racer.returncode for racer in racers] == [0] * 6, said
    alone = tmp_path / "alone.db"
    assert migrate(alone)
    assert schema(path) == schema(alone) != []
    assert not migrate(path)


def test_a_migration_killed_half_way_is_completed_by_the_next(tmp_path, path, start):
    """O-33: killed at several instants of its work, each time on what the kill before it left."""
    for milliseconds in (0, 1, 2, 4, 8, 16):
        racer = start(MIGRATE, path)
        while racer.poll() is None and not path.exists():
            pass
        time.sleep(milliseconds / 1_000)
        racer.kill()
        racer.wait()
    migrate(path)
    alone = tmp_path / "alone.db"
    migrate(alone)
    assert schema(path) == schema(alone) != []


def test_no_answered_push_is_lost_when_its_process_is_killed(path, start):
    """INV-NO-LOSS, INV-DEDUP: kill -9 three times in the middle of pushes, then read everything."""
    answered = set()
    for life in range(3):
        pusher = start(PUSHER, path, f"life{life}")
        lines = [pusher.stdout.readline().strip() for _ in range(300)]
        pusher.send_signal(signal.SIGKILL)
        rest, errors = pusher.communicate(timeout=30)
        assert pusher.returncode == -signal.SIGKILL, errors
        # The last line may have been cut off by the kill.
        answered.update(lines, rest.splitlines()[:-1])
    with SqliteBackend(path) as backend:
        seqs: dict[str, list[int]] = {}
        stored = []
        while claim := backend.pop(m.PopRequest(queue="orders", max_messages=1_000, auto_ack=True)):
            for message in claim.messages:
                stored.append(message.transaction_id)
                seqs.setdefault(message.partition, []).append(message.seq)
        assert answered - set(stored) == set()
        assert len(stored) == len(set(stored)) >= 900
        # A push is stored whole or not at all, and without gaps.
        assert len(stored) % 5 == 0
        assert all(found == list(range(1, len(found) + 1)) for found in seqs.values())
        assert backend.sweep().repaired == 0


def test_two_processes_of_many_threads_share_a_file(path, start):
    """O-34: nobody is told that the file is locked, and every message goes to one of them once."""
    with SqliteBackend(path) as backend:
        backend.push([m.NewMessage.of("shared", "first")])
        workers = [start(WORKER, path, name, 60) for name in ("a", "b")]
        reader = sqlite3.connect(path)
        reader.execute("begin")
        reader.execute("select count(*) from messages").fetchall()  # a long look meanwhile
        outputs = [worker.communicate(timeout=100) for worker in workers]
        reader.close()
        assert [worker.returncode for worker in workers] == [0, 0], outputs
        delivered = [line for output, _ in outputs for line in output.splitlines()]
        assert len(delivered) == len(set(delivered)) == 1 + 2 * 4 * 60
        assert all(len(output.splitlines()) > 20 for output, _ in outputs), "one was starved"
        assert backend.sweep().repaired == 0


def test_a_push_of_another_process_wakes_listeners_within_200_milliseconds(backend, path, start):
    """The file is looked at every 50 ms while somebody listens; the hint means: everywhere."""
    heard: queue.Queue[tuple[float, object]] = queue.Queue()
    stop = backend.listen(lambda hint: heard.put((time.monotonic(), hint)))
    pusher = start(ON_DEMAND, path)
    assert pusher.stdout.readline() == "ready\n"
    assert heard.get(timeout=5)[1] is None  # what was done while nobody listened
    for number in range(5):
        while not heard.empty():
            heard.get()
        began = time.monotonic()
        pusher.stdin.write(f"{number}\n")
        pusher.stdin.flush()
        at, hint = heard.get(timeout=5)
        assert hint is None
        assert at - began < 0.2
        assert backend.pop(m.PopRequest(queue="bell", auto_ack=True)) or number
    stop()


def test_commits_of_the_own_process_are_told_once_and_by_name(backend):
    """The look at the file passes over what this process has written itself."""
    hints = []
    stop = backend.listen(hints.append)
    deadline = time.monotonic() + 5
    while None not in hints and time.monotonic() < deadline:
        threading.Event().wait(0.01)
    hints.clear()
    for number in range(3):
        backend.push([m.NewMessage.of("bell", number)])
        threading.Event().wait(0.12)  # two looks
    assert hints == [frozenset({"bell"})] * 3
    stop()
    backend.push([m.NewMessage.of("bell", "unheard")])
    assert len(hints) == 3


def in_a_child(work):
    """Run work in a forked child that then ends as Python programs do; return what it said."""
    read, write = os.pipe()
    sys.stdout.flush()
    child = os.fork()
    if child == 0:
        try:
            said = work()
        except BaseException as error:
            said = f"{type(error).__name__}: {error}"
        os.write(write, said.encode())
        os._exit(0)
    os.close(write)
    with os.fdopen(read) as pipe:
        said = pipe.read()
    assert os.waitpid(child, 0)[1] == 0
    return said


def test_a_forked_child_is_refused_and_does_no_harm(backend):
    """O-25: a connection does not survive a fork; closing in the child is left to the parent."""
    backend.push([m.NewMessage.of("orders", 1)])

    def push_and_close():
        try:
            backend.push([m.NewMessage.of("orders", "child")])
        except BackendUnavailable as error:
            with pytest.raises(BackendUnavailable):
                backend.pop(m.PopRequest(queue="orders"))
            with pytest.raises(BackendUnavailable):
                backend.check()
            backend.close()
            return error.message
        return "stored"

    assert "does not survive a fork" in in_a_child(push_and_close)
    backend.push([m.NewMessage.of("orders", 2)])
    claim = backend.pop(m.PopRequest(queue="orders", max_messages=10))
    assert [message.value for message in claim.messages] == [1, 2]


def test_a_child_may_make_a_backend_of_its_own(backend, path):
    """O-25: made after the fork, it shares the file."""

    def push():
        with SqliteBackend(path) as own:
            return str(own.push([m.NewMessage.of("orders", "child")])[0].seq)

    backend.push([m.NewMessage.of("orders", "parent")])
    assert in_a_child(push) == "2"
    claim = backend.pop(m.PopRequest(queue="orders", max_messages=10))
    assert [message.value for message in claim.messages] == ["parent", "child"]
