"""L08: encrypted queues, as callers see them; what is stored is for each store's own tests."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager

import msgspec
import pytest

from queen_sync import inspection as i, model as m
from queen_sync.backends.base import Backend
from queen_sync.conformance.base import NOT_OFFERED, Cases, acks_of, needs, values_of
from queen_sync.encryption import NULL, PAUSE_SECONDS, KeyRing
from queen_sync.errors import LeaseLost, NotSupported, QueueFull, QueueNotFound, Undecryptable
from queen_sync.payloads import JsonText

OLD = "old:" + "11" * 32
NEW = "new:" + "22" * 32
KEYS = KeyRing.parse("", OLD)
"""What a binding gives the backend under test, where it has `beside`."""
TEXTS = [
    b'"clear"',
    b"null",
    b"1e999",
    b'{"b":1,"a":-0,"a":1.10}',
    b'"\\u0000"',
    b'"\xf0\x9f\x91\x91"',
]


class EncryptionCases(Cases):
    def beside(self, keys: str) -> AbstractContextManager[Backend]:  # noqa: ARG002  # for bindings
        """Return another backend of the same store with other keys, as `KeyRing.parse` reads them.

        Bindings override it where they can; the cases that ask for it are not offered elsewhere.
        """
        pytest.skip(f"{NOT_OFFERED}a second backend with other keys")

    def secret(self, **options: int | bool) -> str:
        """Return the name of a fresh encrypted queue."""
        return self.queue(encryption_enabled=True, **options)

    def take_from(self, backend: Backend, queue: str, count: int = 1, **wanted: object) -> m.Claim:
        """Pop from a backend that is not the target."""
        request = m.PopRequest(queue=queue, max_messages=count)
        return backend.pop(msgspec.structs.replace(request, **wanted))

    # ------------------------------------------------------------------------ on and off

    @needs("enc")
    def test_l08_payloads_come_back_byte_for_byte(self) -> None:
        """All of a batch, in order, named or not. INV-ENCRYPT, C-10, INV-PAYLOAD."""
        queue = self.secret()
        for text in TEXTS:
            self.push_text(queue, text)
        claim = self.take(queue, len(TEXTS))
        assert [message.payload for message in claim.messages] == TEXTS
        self.settle(claim)
        assert not self.pop(queue)

    @needs("enc", "messages", "dlq")
    def test_l08_operators_read_payloads_too(self) -> None:
        """In a message's page and among the dead letters, both marked. INV-ENCRYPT, INV-DLQ."""
        queue = self.secret()
        self.push(queue, {"card": 1}, ids=["x"])
        claim = self.take(queue)
        seen = self.target.message(claim.messages[0].partition_id, "x")
        assert seen is not None
        assert (seen.value, seen.encrypted, seen.unreadable) == ({"card": 1}, True, None)
        (listed,) = self.target.messages(i.MessageFilter(queue=queue)).items
        assert (listed.payload, listed.encrypted) == (NULL, True)
        self.ack(claim, "dlq")
        (letter,) = self.dead(queue)
        assert (letter.payload, letter.encrypted, letter.unreadable) == (b'{"card":1}', True, None)

    @needs("enc")
    def test_l08_what_was_stored_before_a_change_comes_as_it_was_stored(self) -> None:
        """Clear messages of a queue that is encrypted now, and the other way round. INV-ENCRYPT."""
        queue = self.name()
        self.push(queue, 1)
        self.target.configure(queue, {"encryption_enabled": True})
        self.push(queue, 2, ids=["x"])
        self.target.configure(queue, {"encryption_enabled": False})
        self.push(queue, 3)
        assert values_of(self.take(queue, 3)) == [1, 2, 3]

    @needs("enc")
    def test_l08_a_payload_that_looks_like_an_envelope_is_a_payload(self) -> None:
        """Nothing is told from its looks. INV-ENCRYPT, INV-PAYLOAD."""
        assert KEYS is not None
        plain, secret = self.name(), self.secret()
        for queue in (plain, secret):
            envelope = KEYS.seal(queue, m.DEFAULT_PARTITION, "x", b'"forged"')
            item = m.NewMessage(queue=queue, payload=JsonText.check(envelope), transaction_id="x")
            self.target.push([item])
            assert self.take(queue).messages[0].payload == envelope

    @needs("enc")
    def test_l08_a_later_configure_does_not_switch_it_off(self) -> None:
        """Options that a call does not name keep their values. INV-ENCRYPT, C-11, O-14."""
        queue = self.secret(lease_seconds=60)
        configured = self.target.configure(queue, {"lease_seconds": 30})
        assert configured.queue.options.encryption_enabled
        assert "encryption_enabled" not in configured.changes

    # ----------------------------------------------------------------- every way to push

    @needs("enc")
    def test_l08_a_repeated_push_is_one_message(self) -> None:
        """By transaction id or message id, in one call or two. INV-ENCRYPT, INV-DEDUP, C-16."""
        queue = self.secret()
        first, again = self.push(queue, 1, 2, ids=["x", "x"])
        (unnamed,) = self.push(queue, 3)
        assert (first.status, again.status, again.id) == ("queued", "duplicate", first.id)
        for name, found in (("x", first), (unnamed.id, unnamed), (unnamed.transaction_id, unnamed)):
            (repeat,) = self.push(queue, 4, ids=[name])
            assert (repeat.status, repeat.id) == ("duplicate", found.id)
        assert self.drain(queue) == [1, 3]

    @needs("enc")
    def test_l08_acks_name_a_message_either_way(self) -> None:
        """By the name that it was given, or by its id. INV-ENCRYPT, C-04."""
        queue = self.secret()
        self.push(queue, 1, 2)
        claim = self.take(queue, 2)
        by_name, by_id = claim.messages
        acks = [
            m.Ack(
                transaction_id=name,
                partition_id=by_id.partition_id,
                lease_id=claim.lease_id,
            )
            for name in (by_name.transaction_id, by_id.id)
        ]
        assert [answer.status for answer in self.target.ack(acks)] == ["completed"] * 2

    @needs("enc", "spread")
    def test_l08_a_spread_queue_seals_for_the_partition_that_it_chose(self) -> None:
        """Named messages and unnamed ones. INV-ENCRYPT, PLD-12."""
        queue = self.secret(spread_partitions=3)
        names = [f"name {n}" for n in range(6)]
        first = self.push(queue, *range(6), ids=names)
        for value in range(6, 9):
            first += self.push(queue, value)
        assert len({receipt.partition for receipt in first}) == 3
        again = self.push(queue, *range(6), ids=names)
        assert [receipt.status for receipt in again] == ["duplicate"] * 6
        assert sorted(self.drain(queue)) == list(range(9))

    @needs("enc", "cap")
    def test_l08_a_full_queue_refuses_as_ever(self) -> None:
        """All or nothing. INV-ENCRYPT, C-06."""
        queue = self.secret(max_queue_size=2)
        assert self.push(queue, 1)[0].depth == 1
        with pytest.raises(QueueFull):
            self.push(queue, 2, 3)
        self.push(queue, 2)
        assert self.drain(queue) == [1, 2]

    @needs("enc", "txn")
    def test_l08_a_transaction_seals_what_it_pushes(self) -> None:
        """Where the queue says so, and only there. INV-ENCRYPT, C-15, O-52."""
        plain, secret = self.name(), self.secret()
        self.push(secret, "in")
        claim = self.take(secret)
        pushes = [m.NewMessage.of(queue, "out") for queue in (plain, secret, plain)]
        done = self.target.transact(m.Transaction(operations=[*acks_of(claim), *pushes]))
        assert len(done.results) == 4
        assert self.drain(plain) == ["out", "out"]
        assert self.drain(secret) == ["out"]

    @needs("enc")
    def test_l08_pushes_made_together_are_sealed(self) -> None:
        """One step for several calls. INV-ENCRYPT."""
        queue = self.secret()
        self.push(queue, 0)
        calls = [[m.NewMessage.of(queue, value)] for value in (1, 2)]
        assert [len(receipts) for receipts in self.target.push_together(calls)] == [1, 1]
        assert self.drain(queue) == [0, 1, 2]

    # -------------------------------------------------------------------- every way to pop

    @needs("enc", "dlq", "redrive")
    def test_l08_a_redriven_message_comes_from_its_sealed_copy(self) -> None:
        """And dies again as it was. INV-ENCRYPT, C-12, O-52."""
        queue = self.secret(retry_limit=0)
        self.push(queue, "dead", "next")
        self.ack(self.take(queue), "failed")
        assert self.target.redrive(m.DeadLetterFilter(queue=queue)) == 1
        claim = self.take(queue)
        assert values_of(claim) == ["dead"]
        self.ack(claim, "dlq")
        assert [letter.payload for letter in self.dead(queue)] == [b'"dead"']
        assert self.drain(queue) == ["next"]

    @needs("enc")
    def test_l08_an_auto_ack_pop_opens_what_it_settles(self) -> None:
        """Of several partitions as of one. INV-ENCRYPT, C-19."""
        queue = self.secret()
        for partition in ("a", "b"):
            self.push(queue, 1, 2, partition=partition)
        claim = self.pop(queue, 9, max_partitions=2, auto_ack=True)
        assert (values_of(claim), claim.lease_id) == ([1, 2, 1, 2], None)
        assert not self.pop(queue)

    @needs("enc", "popretry")
    def test_l08_a_repeated_pop_opens_its_claim_again(self) -> None:
        """The same messages under the same lease. INV-ENCRYPT, C-13."""
        queue = self.secret()
        self.push(queue, 1, 2)
        first = self.take(queue, 2, attempt_id="a")
        assert self.take(queue, 2, attempt_id="a") == first

    # ---------------------------------------------------------------------- other keys

    @needs("enc")
    def test_l08_a_new_key_seals_and_the_old_one_still_opens(self) -> None:
        """Rotation: the first key of the ring seals, all of them open. INV-ENCRYPT, O-52."""
        queue = self.secret()
        self.push(queue, 1)
        with self.beside(f"{NEW},{OLD}") as rotated:
            rotated.push([m.NewMessage.of(queue, 2)])
            claim = self.take_from(rotated, queue, 2)
            assert values_of(claim) == [1, 2]
            rotated.ack(acks_of(claim))
            rotated.push([m.NewMessage.of(queue, 3)])
        with pytest.raises(Undecryptable, match="'new'"):
            self.pop(queue)

    @needs("enc", "dlq")
    def test_l08_a_lane_without_its_key_waits_and_nothing_is_charged(self) -> None:
        """The error names the key; other lanes go on; with the key all comes. INV-ENCRYPT, O-52."""
        queue = self.secret(retry_limit=0)
        self.push(queue, 1, 2, 3, partition="closed")
        with self.beside(NEW) as other:
            other.push([m.NewMessage.of(queue, "open", partition="open")])
            claim = self.take_from(other, queue, 9, max_partitions=9)
            assert (values_of(claim), claim.partition_count) == (["open"], 1)
            other.ack(acks_of(claim))
            for _ in range(3):
                self.advance(PAUSE_SECONDS)
                with pytest.raises(Undecryptable, match="'old'"):
                    self.take_from(other, queue, 9)
                assert not self.take_from(other, queue, 9)
        self.advance(PAUSE_SECONDS)
        claim = self.take(queue, 3)
        assert values_of(claim) == [1, 2, 3]
        assert {message.delivery_count for message in claim.messages} == {1}
        assert self.dead(queue) == []

    @needs("enc", "stats", "dlq", "redrive")
    def test_l08_a_lane_that_cannot_be_opened_is_listed_as_such(self) -> None:
        """Of each group that waits there, redriven messages included. INV-ENCRYPT, O-52."""
        queue, group = self.secret(), self.name("group")
        self.push(queue, "dead", partition="again")
        self.push(queue, "done", partition="done")
        claim = self.take(queue, 2, max_partitions=2)
        self.ack(claim, "dlq", only=[0])
        self.ack(claim, only=[1])
        self.target.redrive(m.DeadLetterFilter(queue=queue))
        self.pop(queue, group=group)
        with self.beside(NEW) as other:
            found = {
                (state.name, lane.name): lane
                for state in other.partitions(queue)
                for lane in state.groups
            }
        closed = {key for key, lane in found.items() if "'old'" in (lane.unreadable or "")}
        assert closed == {("again", m.QUEUE_MODE), ("again", group), ("done", group)}
        assert found["again", m.QUEUE_MODE].lag == 1
        assert {lane.unreadable for x in self.target.partitions(queue) for lane in x.groups} == {
            None
        }

    @needs("enc")
    def test_l08_a_batch_ends_before_what_cannot_be_opened(self) -> None:
        """What comes first is delivered and settled; order holds. INV-ENCRYPT, INV-FIFO, O-52."""
        queue = self.name()
        self.push(queue, 1, 2)
        self.target.configure(queue, {"encryption_enabled": True})
        self.push(queue, 3)
        self.target.configure(queue, {"encryption_enabled": False})
        self.push(queue, 4)
        with self.beside(NEW) as other:
            claim = self.take_from(other, queue, 9)
            assert values_of(claim) == [1, 2]
            answers = other.ack(acks_of(claim))
            assert [answer.lease_released for answer in answers] == [True, True]
            with pytest.raises(Undecryptable):
                self.take_from(other, queue, 9)
        self.advance(PAUSE_SECONDS)
        assert values_of(self.take(queue, 2)) == [3, 4]

    @needs("enc")
    def test_l08_an_auto_ack_pop_settles_nothing_that_it_cannot_open(self) -> None:
        """It is still there when the key is back. INV-ENCRYPT, C-19, INV-NO-LOSS, O-52."""
        queue = self.secret()
        self.push(queue, 1, partition="a")
        self.push(queue, 2, partition="b")
        with self.beside(NEW) as other, pytest.raises(Undecryptable):
            self.take_from(other, queue, 9, max_partitions=2, auto_ack=True)
        self.advance(PAUSE_SECONDS)
        claim = self.pop(queue, 9, max_partitions=2, auto_ack=True)
        assert sorted(values_of(claim)) == [1, 2]

    @needs("enc", "prio")
    def test_l08_a_closed_queue_does_not_hide_one_of_lower_priority(self) -> None:
        """A pop over a namespace goes on. INV-ENCRYPT, C-17, O-52."""
        namespace = self.name("namespace")
        closed, low = self.secret(priority=9), self.name()
        for queue in (closed, low):
            self.target.configure(queue, namespace=namespace)
            self.push(queue, queue)
        with self.beside(NEW) as other:
            assert values_of(other.pop(m.PopRequest(namespace=namespace))) == [low]

    @needs("enc", "popretry", "release")
    def test_l08_who_cannot_read_a_claim_does_not_end_it(self) -> None:
        """A repeat that comes to a backend without the key is refused. INV-ENCRYPT, C-13."""
        queue = self.secret()
        self.push(queue, 1)
        claim = self.take(queue, attempt_id="a")
        with self.beside(NEW) as other, pytest.raises(Undecryptable):
            self.take_from(other, queue, attempt_id="a")
        assert self.take(queue, attempt_id="a") == claim
        self.target.release(str(claim.lease_id))
        with pytest.raises(LeaseLost):
            self.target.release(str(claim.lease_id))

    @needs("enc", "dlq", "redrive")
    def test_l08_a_dead_letter_outlives_the_absence_of_its_key(self) -> None:
        """Shown empty and marked; given back without the key it waits. INV-ENCRYPT, C-12, O-52."""
        queue = self.secret()
        self.push(queue, "dead")
        self.ack(self.take(queue), "dlq")
        wanted = m.DeadLetterFilter(queue=queue)
        with self.beside("") as other:
            (letter,) = other.dead_letters(wanted).items
            assert (letter.payload, letter.encrypted) == (NULL, True)
            assert "'old'" in str(letter.unreadable)
            assert other.redrive(wanted) == 1
            with pytest.raises(Undecryptable):
                self.take_from(other, queue)
        self.advance(PAUSE_SECONDS)
        assert self.drain(queue) == ["dead"]

    @needs("enc", "txn")
    def test_l08_without_a_key_nothing_is_stored_in_clear(self) -> None:
        """Not by a push, nor by a transaction. INV-ENCRYPT, INV-OFF-REFUSES, O-52."""
        queue, plain = self.secret(), self.name()
        item = m.NewMessage.of(queue, 1)
        with self.beside("") as other:
            assert "enc" not in other.capabilities.features
            refused: list[Callable[[], object]] = [
                lambda: other.push([item]),
                lambda: other.push([m.NewMessage.of(plain, 1), item]),
                lambda: other.transact(m.Transaction(operations=[item])),
                lambda: other.configure(plain, {"encryption_enabled": True}),
            ]
            for call in refused:
                with pytest.raises(NotSupported) as caught:
                    call()
                assert caught.value.feature == "enc"
            pushes = [m.NewMessage.of(plain, 1), item]
            with pytest.raises(NotSupported) as caught:
                other.transact(m.Transaction(operations=pushes))
            assert caught.value.index == 1
            with pytest.raises(QueueNotFound):
                self.target.push([m.NewMessage.of(plain, 1)], create=False)
            other.configure(queue, {"encryption_enabled": False})
            other.push([m.NewMessage.of(queue, "clear")])
        assert self.drain(queue) == ["clear"]
