"""C: a transaction id names one message."""

from __future__ import annotations

from queen_sync import model as m
from queen_sync.conformance.base import Cases, needs


class DedupCases(Cases):
    def test_c01_a_repeated_push_stores_nothing(self) -> None:
        """The same id again is a duplicate with the first one's place. C-16, INV-DEDUP, PL-3."""
        queue = self.name()
        (first,) = self.push(queue, "first", ids=["order-1"])
        (again,) = self.push(queue, "second", ids=["order-1"])
        assert again.duplicate
        assert (again.id, again.seq, again.partition_id) == (
            first.id,
            first.seq,
            first.partition_id,
        )
        assert self.drain(queue) == ["first"]

    def test_c01_a_repeat_leaves_no_gap(self) -> None:
        """What is pushed after it is delivered at once. C-16, INV-DEDUP, INV-LIVENESS, PL-3."""
        queue = self.name()
        self.push(queue, "first", ids=["order-1"])
        self.push(queue, "first", ids=["order-1"])
        self.push(queue, "second", ids=["order-2"])
        self.push(queue, "first", "second", ids=["order-1", "order-2"])
        self.push(queue, "third")
        assert self.drain(queue, 1) == ["first", "second", "third"]

    def test_c01_a_message_id_sent_back_is_a_duplicate_in_its_partition(self) -> None:
        """A server-given id names its message there and is a plain name elsewhere.

        C-16, INV-DEDUP.
        """
        queue = self.name()
        (first,) = self.push(queue, 1)
        (again,) = self.push(queue, 2, ids=[first.id])
        assert (again.status, again.id, again.seq) == ("duplicate", first.id, first.seq)
        (other,) = self.push(queue, 3, partition="other", ids=[first.id])
        assert (other.status, other.transaction_id) == ("queued", first.id)
        assert other.id != first.id

    def test_c02_an_id_twice_in_one_request_is_stored_once(self) -> None:
        """The second item of the request is the duplicate. C-16, INV-DEDUP, PL-3."""
        queue = self.name()
        one, two = self.push(queue, "a", "b", ids=["x", "x"])
        assert (one.status, two.status, two.id) == ("queued", "duplicate", one.id)
        assert self.drain(queue) == ["a"]

    def test_c03_the_same_id_elsewhere_is_another_message(self) -> None:
        """An id belongs to its partition. C-16, INV-DEDUP."""
        queue, other = self.name(), self.name()
        receipts = [
            *self.push(queue, 1, partition="a", ids=["x"]),
            *self.push(queue, 2, partition="b", ids=["x"]),
            *self.push(other, 3, partition="a", ids=["x"]),
        ]
        assert [receipt.status for receipt in receipts] == ["queued"] * 3
        assert len({receipt.id for receipt in receipts}) == 3

    def test_c04_an_id_is_taken_as_long_as_its_message_is_stored(self) -> None:
        """Completing a message does not free its id. C-16, INV-DEDUP, PL-3."""
        queue = self.name()
        (first,) = self.push(queue, 1, ids=["x"])
        assert self.drain(queue) == [1]
        (again,) = self.push(queue, 2, ids=["x"])
        assert (again.status, again.id) == ("duplicate", first.id)
        assert not self.pop(queue)

    @needs("dlq")
    def test_c04_a_dead_lettered_message_keeps_its_id(self) -> None:
        """Dead-lettering does not free the id either. C-16, INV-DEDUP, PL-5."""
        queue = self.name()
        (first,) = self.push(queue, 1, ids=["x"])
        self.ack(self.take(queue), "dlq")
        (again,) = self.push(queue, 2, ids=["x"])
        assert (again.status, again.id) == ("duplicate", first.id)

    def test_c05_receipts_stand_in_the_order_of_the_request(self) -> None:
        """New ones and duplicates of two partitions, place by place. INV-DEDUP, PL-2."""
        queue = self.name()
        self.push(queue, 0, partition="a", ids=["a1"])
        names = [("a", "a2"), ("b", "b1"), ("a", "a1"), ("b", "b2"), ("a", "a2"), ("a", "a3")]
        receipts = self.target.push(
            [m.NewMessage.of(queue, n, partition=p, transaction_id=n) for p, n in names]
        )
        assert [(r.partition, r.transaction_id) for r in receipts] == names
        assert [r.duplicate for r in receipts] == [False, False, True, False, True, False]
        assert [r.seq for r in receipts] == [2, 1, 1, 2, 2, 3]

    def test_c06_messages_without_an_id_get_distinct_ones(self) -> None:
        """Equal payloads are different messages. INV-DEDUP, PLD-7."""
        queue = self.name()
        receipts = self.push(queue, *["same"] * 20)
        assert len({receipt.transaction_id for receipt in receipts}) == 20
        assert all(receipt.transaction_id == receipt.id for receipt in receipts)
        assert len(self.drain(queue)) == 20

    @needs("cap")
    def test_c07_a_duplicate_needs_no_room(self) -> None:
        """At the limit a repeated push is answered as a duplicate.

        C-06, INV-CAPACITY, INV-DEDUP.
        """
        queue = self.queue(max_queue_size=2)
        first, _ = self.push(queue, 1, 2, ids=["x", "y"])
        again, too = self.push(queue, 1, 2, ids=["x", "y"])
        assert (again.status, again.id, too.status) == ("duplicate", first.id, "duplicate")
        assert (again.depth, again.remaining) == (2, 0)

    @needs("window")
    def test_c07_a_duplicate_does_not_hold_the_window_open(self) -> None:
        """Only what is stored counts as new. C-08, C-16, INV-WINDOW."""
        queue = self.queue(window_buffer_seconds=2 * self.unit)
        self.push(queue, 1, ids=["x"])
        self.advance(self.unit)
        self.push(queue, 1, ids=["x"])
        assert not self.pop(queue)
        self.advance(self.unit)
        assert self.drain(queue) == [1]
