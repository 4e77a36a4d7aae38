"""What a SQLite file holds of encrypted queues, its write-ahead log included."""

import sqlite3
from pathlib import Path

import pytest

from queen_sync import model as m
from queen_sync.backends.sqlite import SqliteBackend
from queen_sync.clock import ManualClock
from queen_sync.encryption import PAUSE_SECONDS, KeyRing
from queen_sync.errors import NotSupported, Undecryptable

CANARY = "a payload that nobody may read"
KEYS = KeyRing.parse("", "here:" + "5a" * 32)
SEALED = {"encryption_enabled": True}


def contents(path):
    """Return the bytes of the file and of what lies beside it."""
    return b"".join(Path(f"{path}{end}").read_bytes() for end in ("", "-wal"))


def pop(backend, **wanted):
    return backend.pop(m.PopRequest(queue="q", max_messages=9, **wanted))


def test_neither_the_file_nor_its_log_holds_a_payload_in_clear(path):
    """INV-ENCRYPT: however it was pushed, and where it died."""
    with SqliteBackend(path, keys=KEYS) as backend:
        backend.configure("q", {**SEALED, "spread_partitions": 2})
        named = m.NewMessage.of("q", CANARY, transaction_id="a")
        backend.push([named, m.NewMessage.of("q", CANARY)])
        operations = [m.NewMessage.of("q", [CANARY]), m.NewMessage.of("plain", "seen by all")]
        backend.transact(m.Transaction(operations=operations))
        claim = pop(backend, max_partitions=9)
        assert len(claim.messages) == 3
        backend.ack(
            [
                m.Ack(transaction_id=x.id, lease_id=claim.lease_id, outcome="dlq")
                for x in claim.messages
            ]
        )
        stored = contents(path)
        assert CANARY.encode() not in stored
        assert b"seen by all" in stored
        assert stored.count(b'"keyId":"here"') >= 6
    assert CANARY.encode() not in path.read_bytes()


def test_a_row_that_was_changed_or_exchanged_does_not_open(path):
    """INV-ENCRYPT: it is never delivered as something else, and nothing is lost by it."""
    clock = ManualClock()
    with SqliteBackend(path, keys=KEYS, clock=clock) as backend:
        backend.configure("q", SEALED)
        backend.push([m.NewMessage.of("q", name, transaction_id=name) for name in ("a", "b")])

        def swap():
            file = sqlite3.connect(path)
            first, second = (row for (row,) in file.execute("select payload from messages"))
            file.execute("update messages set payload = ? where seq = 1", [second])
            file.execute("update messages set payload = ? where seq = 2", [first])
            file.commit()
            file.close()

        swap()
        for auto_ack in (False, True):
            with pytest.raises(Undecryptable, match="does not open it"):
                pop(backend, auto_ack=auto_ack)
            clock.advance(PAUSE_SECONDS)
        swap()
        messages = pop(backend, auto_ack=True).messages
        assert [(x.value, x.delivery_count) for x in messages] == [("a", 1), ("b", 1)]


def test_a_file_of_encrypted_queues_is_of_no_use_without_the_key(path):
    """O-52: what is in it stays, and nothing is added in clear."""
    with SqliteBackend(path, keys=KEYS) as backend:
        backend.configure("q", SEALED)
        backend.push([m.NewMessage.of("q", 1)])
    with SqliteBackend(path) as backend:
        with pytest.raises(NotSupported, match="no key is configured here"):
            backend.push([m.NewMessage.of("q", CANARY)])
        with pytest.raises(Undecryptable, match="key 'here'"):
            pop(backend)
        assert backend.push([m.NewMessage.of("other", 1)])[0].status == "queued"
        assert CANARY.encode() not in contents(path)
