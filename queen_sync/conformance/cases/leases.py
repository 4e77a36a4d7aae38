"""D, first half: who holds a partition, and when it is free again."""

from __future__ import annotations

import pytest

from queen_sync import model as m
from queen_sync.conformance.base import Cases, acks_of, needs, values_of
from queen_sync.errors import LeaseLost


class LeaseCases(Cases):
    def test_d01_a_leased_partition_is_passed_over_and_another_found(self) -> None:
        """One live lease in a lane; the others go on. INV-CLAIM, PLD-1, PLD-2, O-03."""
        queue = self.name()
        self.push(queue, 1, 2, partition="a")
        first = self.take(queue)
        assert not self.pop(queue)
        assert not self.pop(queue, partition="a")
        self.push(queue, 3, partition="b")
        second = self.take(queue, 1)
        assert [*values_of(first), *values_of(second)] == [1, 3]
        assert first.lease_id != second.lease_id

    def test_d02_acking_all_frees_the_partition_for_the_next_batch(self) -> None:
        """The last outcome ends the lease at once. INV-CLAIM, PLD-4."""
        queue = self.name()
        self.push(queue, 1, 2, 3)
        claim = self.take(queue, 2)
        answers = self.ack(claim)
        assert [(a.status, a.already, a.lease_released) for a in answers] == [
            ("completed", False, True),
            ("completed", False, True),
        ]
        assert values_of(self.pop(queue, 2)) == [3]

    def test_d03_acking_a_part_frees_nothing(self) -> None:
        """What has no outcome keeps the lane, also for what comes after. INV-CLAIM, PLD-4, C-04."""
        queue = self.name()
        self.push(queue, 1, 2, 3, 4)
        claim = self.take(queue, 3)
        (answer,) = self.ack(claim, only=[1])
        assert (answer.status, answer.lease_released) == ("completed", False)
        assert not self.pop(queue)
        assert all(answer.lease_released for answer in self.ack(claim, only=[0, 2]))
        assert values_of(self.pop(queue)) == [4]

    def test_d04_acks_in_reverse_order_bring_nothing_back(self) -> None:
        """Each message has its own outcome; there is no high-water mark. INV-DURABLE-ACK, O-06."""
        queue = self.name()
        self.push(queue, *range(5))
        claim = self.take(queue, 5)
        for place in reversed(range(5)):
            assert self.ack(claim, only=[place])[0].status == "completed"
        assert not self.pop(queue, 9)
        self.push(queue, "next")
        assert self.drain(queue) == ["next"]

    def test_d05_acking_the_last_does_not_ack_the_others(self) -> None:
        """After expiry all but the acked message come again.

        C-04, INV-NO-LOSS, INV-DURABLE-ACK, O-06.
        """
        queue = self.queue(lease_seconds=self.unit)
        self.push(queue, *range(1, 6))
        claim = self.take(queue, 5)
        self.ack(claim, only=[4])
        self.advance(self.unit)
        again = self.take(queue, 4)
        assert values_of(again) == [1, 2, 3, 4]
        self.settle(again)
        assert not self.pop(queue)

    def test_d05_a_hole_in_the_middle_stays_a_hole(self) -> None:
        """The next batch steps over what is settled, in order. INV-FIFO, INV-DURABLE-ACK, O-05."""
        queue = self.queue(lease_seconds=self.unit)
        self.push(queue, *range(1, 8))
        claim = self.take(queue, 5)
        self.ack(claim, only=[1, 3])
        self.advance(self.unit)
        assert values_of(self.take(queue, 4)) == [1, 3, 5, 6]

    @needs("release")
    def test_d09_a_released_claim_comes_back_in_order_and_uncharged(self) -> None:
        """Giving back ends the lease and counts no failure. INV-RETRY, C-04."""
        queue = self.name()
        self.push(queue, 1, 2, 3)
        claim = self.take(queue, 3)
        self.ack(claim, only=[1])
        self.target.release(claim.lease_id or "")
        again = self.take(queue, 2)
        assert values_of(again) == [1, 3]
        assert [(x.delivery_count, x.failure_count) for x in again.messages] == [(2, 0), (2, 0)]

    @needs("release")
    def test_d09_a_claim_is_released_once(self) -> None:
        """A second release is refused and ends nobody's lease. INV-FENCE, C-04."""
        queue = self.name()
        self.push(queue, 1)
        first = self.take(queue)
        self.target.release(first.lease_id or "")
        second = self.take(queue)
        with pytest.raises(LeaseLost):
            self.target.release(first.lease_id or "")
        assert not self.pop(queue)
        self.settle(second)

    @needs("release")
    def test_d09_releasing_gives_back_every_partition_of_the_claim(self) -> None:
        """A claim over partitions ends in all of them. C-04, INV-CLAIM, O-32."""
        queue = self.name()
        for partition in ("a", "b"):
            self.push(queue, partition, partition=partition)
        claim = self.take(queue, 2, max_partitions=2)
        self.target.release(claim.lease_id or "")
        assert sorted(values_of(self.take(queue, 2, max_partitions=2))) == ["a", "b"]

    def test_d10_acks_of_several_leases_are_judged_one_by_one(self) -> None:
        """One request may carry many claims; a bad one spoils none. C-04, INV-FENCE."""
        queue = self.name()
        claims = []
        for partition in ("a", "b", "c"):
            self.push(queue, partition, partition=partition)
            claims.append(self.take(queue, partition=partition))
        acks = [ack for claim in claims for ack in acks_of(claim)]
        swapped = m.Ack(
            transaction_id=acks[1].transaction_id,
            partition_id=acks[1].partition_id,
            lease_id=claims[0].lease_id,
        )
        answers = self.target.ack([acks[0], swapped, acks[2]])
        assert [answer.code for answer in answers] == [None, "LEASE_LOST", None]
        assert not self.pop(queue)
        self.settle(claims[1])

    def test_d10_a_lease_says_where_its_messages_are(self) -> None:
        """An ack without a partition finds it by the lease; two of one name are ambiguous. C-04."""
        queue = self.name()
        self.push(queue, 1, 2, partition="a", ids=["same", "mine"])
        self.push(queue, 3, partition="b", ids=["same"])
        claim = self.take(queue, 3, max_partitions=2)
        answers = self.target.ack(
            [m.Ack(transaction_id=name, lease_id=claim.lease_id) for name in ("mine", "same")]
        )
        assert [(answer.status, answer.code) for answer in answers] == [
            ("completed", None),
            (None, "INVALID_REQUEST"),
        ]

    def test_d11_an_auto_ack_pop_settles_what_it_delivers(self) -> None:
        """There is no lease and no second delivery. C-19, INV-DURABLE-ACK."""
        queue = self.name()
        self.push(queue, 1, 2, 3)
        claim = self.take(queue, 2, auto_ack=True)
        assert claim.lease_id is None
        assert values_of(self.pop(queue, 9, auto_ack=True)) == [3]
        assert not self.pop(queue)

    def test_d11_an_auto_ack_pop_passes_a_leased_partition_over(self) -> None:
        """It neither takes nor ignores a lease. C-19, INV-CLAIM."""
        queue = self.name()
        self.push(queue, 1, 2, partition="a")
        held = self.take(queue)
        assert not self.pop(queue, auto_ack=True)
        self.push(queue, 3, partition="b")
        assert values_of(self.pop(queue, 9, auto_ack=True)) == [3]
        self.settle(held)
        assert values_of(self.pop(queue, 9, auto_ack=True)) == [2]
