"""What a PostgreSQL store holds of encrypted queues, and processes that know different things."""

from __future__ import annotations

import msgspec
import psycopg
import pytest

from queen_sync import model as m
from queen_sync.encryption import KeyRing
from queen_sync.errors import NotSupported, Undecryptable
from tests.postgres.conftest import MakeBackend
from tests.postgres.sessions import connect, drain, execute, fresh, message, value

CANARY = "a payload that nobody may read"
KEYS = KeyRing.parse("", "here:" + "5a" * 32)
TABLES = "select tablename from pg_tables where schemaname = 'queen'"
SEALED = {"encryption_enabled": True}


def dump(dsn: str) -> str:
    """Return all that is stored, as text."""
    with connect(dsn) as session:
        tables = [name for (name,) in session.execute(TABLES).fetchall()]
        return "\n".join(
            row
            for table in tables
            for (row,) in session.execute(
                psycopg.sql.SQL("select x::text from queen.{} x").format(
                    psycopg.sql.Identifier(table)
                )
            )
        )


def pop(backend, queue, **wanted):
    return backend.pop(m.PopRequest(queue=queue, max_messages=9, **wanted))


def test_no_table_holds_a_payload_in_clear(dsn, make_backend: MakeBackend) -> None:
    """INV-ENCRYPT: however it was pushed, and where it died."""
    backend, queue, plain = make_backend(keys=KEYS), fresh(), fresh()
    backend.configure(queue, {**SEALED, "spread_partitions": 2})
    named = m.NewMessage.of(queue, CANARY, transaction_id="a")
    backend.push([named, m.NewMessage.of(queue, CANARY)])
    backend.push([m.NewMessage.of(queue, CANARY, partition="p")])
    backend.push_together([[m.NewMessage.of(queue, [CANARY], partition="p")]] * 2)
    operations = [m.NewMessage.of(queue, CANARY), m.NewMessage.of(plain, "seen")]
    backend.transact(m.Transaction(operations=operations))
    claim = pop(backend, queue, max_partitions=9)
    assert len(claim.messages) == 6
    backend.ack(
        [m.Ack(transaction_id=x.id, lease_id=claim.lease_id, outcome="dlq") for x in claim.messages]
    )
    stored = dump(dsn)
    assert stored.count('"keyId":"here"') + stored.count('""keyId"":""here""') == 12
    assert CANARY not in stored
    assert "seen" in stored


def test_a_row_that_was_changed_or_exchanged_does_not_open(dsn, make_backend: MakeBackend) -> None:
    """INV-ENCRYPT: it is never delivered as something else, and nothing is lost by it."""
    backend, queue = make_backend(keys=KEYS), fresh()
    backend.configure(queue, SEALED)
    backend.push([message(queue, name) for name in ("a", "b")])
    swap = (
        "update queen.messages x set payload = y.payload from queen.messages y"
        " where y.partition_id = x.partition_id and y.seq = 3 - x.seq"
    )
    execute(dsn, swap)
    with pytest.raises(Undecryptable, match="does not open it"):
        pop(backend, queue)
    with pytest.raises(Undecryptable):
        backend.pop(m.PopRequest(queue=queue, group="auto", auto_ack=True))
    execute(dsn, swap, "update queen.partition_leases set ready_at = now() where lease_id is null")
    assert [x.value for x in pop(backend, queue, auto_ack=True).messages] == ["a", "b"]
    assert [x.delivery_count for x in pop(backend, queue, group="auto").messages] == [1, 1]


def test_a_payload_that_was_put_in_clear_is_not_taken_for_one(
    dsn, make_backend: MakeBackend
) -> None:
    """INV-ENCRYPT: what says that it is sealed has to be."""
    backend, queue = make_backend(keys=KEYS), fresh()
    backend.configure(queue, SEALED)
    backend.push([message(queue, "a")])
    execute(dsn, """update queen.messages set payload = '"forged"'""")
    with pytest.raises(Undecryptable, match="no envelope"):
        pop(backend, queue)


def test_the_store_says_which_keys_are_still_needed(dsn, make_backend: MakeBackend) -> None:
    """O-52: a key may go when no row names it."""
    queue = fresh()
    make_backend(keys=KEYS).configure(queue, SEALED)
    for key_id in ("one", "two"):
        ring = KeyRing.parse("", f"{key_id}:" + "11" * 32)
        make_backend(keys=ring).push([message(queue, key_id)])
    found = "select array_agg(distinct encryption_key_id) from queen.messages"
    assert value(dsn, found) == ["one", "two"]


def test_processes_learn_from_the_store_what_a_queue_wants(dsn, make_backend: MakeBackend) -> None:
    """O-52: none of them stores in clear what another has made secret, nor needs to be told."""
    first, second, without = make_backend(keys=KEYS), make_backend(keys=KEYS), make_backend()
    queue = fresh()
    for backend in (first, second, without):
        backend.push([m.NewMessage.of(queue, "clear")])
    first.configure(queue, SEALED)
    second.push([m.NewMessage.of(queue, CANARY), m.NewMessage.of(queue, CANARY, partition="p")])
    assert len(second.push_together([[m.NewMessage.of(queue, CANARY)]] * 2)) == 2
    with pytest.raises(NotSupported, match="no key is configured here"):
        without.push([m.NewMessage.of(queue, CANARY)])
    operations = [m.NewMessage.of(fresh(), 1), m.NewMessage.of(queue, CANARY)]
    with pytest.raises(NotSupported) as caught:
        without.transact(m.Transaction(operations=operations))
    assert (caught.value.feature, caught.value.index) == ("enc", 1)
    assert CANARY not in dump(dsn)
    first.configure(queue, {"encryption_enabled": False})
    for backend in (second, without):
        backend.push([m.NewMessage.of(queue, "clear again")])
    sealed = "select count(*), count(encryption_key_id) from queen.messages"
    with connect(dsn) as session:
        assert session.execute(sealed).fetchone() == (9, 4)
    assert len(drain(first, queue, "g")) == 9


def test_a_lane_that_cannot_be_opened_is_not_looked_at_by_every_pop(
    dsn, make_backend: MakeBackend
) -> None:
    """O-52: no hot loop; it is nothing that a waiting pop would be told of at once either."""
    backend, other, queue = make_backend(keys=KEYS), make_backend(), fresh()
    backend.configure(queue, SEALED)
    backend.push([m.NewMessage.of(queue, 1, partition=f"p{n}") for n in range(30)])
    with pytest.raises(Undecryptable):
        pop(other, queue)
    resting = "select count(*) from queen.partition_leases where ready_at > clock_timestamp()"
    assert value(dsn, resting) == 20  # as many as a pop puts off
    other.push([m.NewMessage.of(fresh(), 1)])
    with pytest.raises(Undecryptable):
        pop(other, queue, max_partitions=30)
    assert not pop(other, queue)
    wait = other.next_ready_in(m.PopRequest(queue=queue))
    assert wait is not None
    assert 0 < wait <= 5
    leases = "select count(*) from queen.partition_leases where lease_id is not null"
    assert value(dsn, leases) == value(dsn, "select count(*) from queen.retries") == 0


def test_what_is_sealed_takes_no_more_round_trips_than_what_is_not(
    dsn, make_backend: MakeBackend
) -> None:
    """Once a process knows of a queue it seals at once: the store refuses nothing."""
    backend, queue = make_backend(keys=KEYS), fresh()
    backend.configure(queue, SEALED)
    backend.push([m.NewMessage.of(queue, 0)])
    execute(
        dsn,
        "create table refused (n int)",
        "create function public.note() returns trigger language plpgsql as"
        " $$ begin insert into public.refused values (1); return null; end $$",
        "create trigger note before update on queen.partitions"
        " for each statement execute function public.note()",
    )
    for value_ in range(1, 4):
        backend.push([m.NewMessage.of(queue, value_)])
    assert value(dsn, "select count(*) from refused") == 3
    assert [x.value for x in pop(backend, queue).messages] == [0, 1, 2, 3]


def test_envelopes_are_stored_as_json_with_their_four_parts(dsn, make_backend: MakeBackend) -> None:
    """wire.md a.2."""
    backend, queue = make_backend(keys=KEYS), fresh()
    backend.configure(queue, SEALED)
    backend.push([message(queue, "a")])
    text = value(dsn, "select payload::text from queen.messages")
    assert set(msgspec.json.decode(text)) == {"encrypted", "iv", "authTag", "keyId"}
