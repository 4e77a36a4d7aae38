"""D, second half: which ack counts, which is a repeat, which is refused."""

from __future__ import annotations

import msgspec

from queen_sync import model as m
from queen_sync.conformance.base import Cases, acks_of, needs, values_of


class OutcomeCases(Cases):
    def test_d06_a_repeated_ack_is_answered_already_and_changes_nothing(self) -> None:
        """Acking one of two twice does not free the lane. C-04, INV-DURABLE-ACK."""
        queue = self.name()
        self.push(queue, 1, 2)
        claim = self.take(queue, 2)
        (first,), (second,) = self.ack(claim, only=[0]), self.ack(claim, only=[0])
        assert (first.status, first.already) == ("completed", False)
        assert (second.status, second.already, second.lease_released) == ("completed", True, False)
        assert not self.pop(queue)

    def test_d06_a_message_named_twice_in_one_call_counts_once(self) -> None:
        """Items are applied in their order. C-04, INV-DURABLE-ACK."""
        queue = self.name()
        self.push(queue, 1)
        claim = self.take(queue)
        answers = self.target.ack([*acks_of(claim, "completed"), *acks_of(claim, "failed")])
        assert [(a.status, a.already) for a in answers] == [
            ("completed", False),
            ("completed", True),
        ]
        assert not self.pop(queue)

    def test_d07_the_first_outcome_wins(self) -> None:
        """A nack after an ack and an ack after a nack are repeats of the first. C-04, INV-RETRY."""
        queue = self.name()
        self.push(queue, 1, 2, 3)
        claim = self.take(queue, 3)
        self.ack(claim, "completed", only=[0])
        self.ack(claim, "failed", only=[1])
        (after_ack,) = self.ack(claim, "failed", only=[0])
        (after_nack,) = self.ack(claim, "completed", only=[1])
        assert (after_ack.status, after_ack.already) == ("completed", True)
        assert (after_nack.status, after_nack.already) == ("failed", True)
        self.ack(claim, only=[2])
        (message,) = self.pop(queue, 9).messages
        assert (message.value, message.failure_count) == (2, 1)

    def test_d08_an_ack_of_what_the_lease_does_not_cover_ends_no_lease(self) -> None:
        """Unknown ids, other partitions and other groups are refused. C-04, INV-FENCE."""
        queue, group = self.name(), self.name("group")
        self.push(queue, 1, partition="a")
        self.push(queue, 2, partition="b")
        mine = self.take(queue, partition="a")
        theirs = self.take(queue, partition="a", group=group)
        other = self.take(queue, partition="b")
        (ack,) = acks_of(mine)
        wrong = [
            m.Ack(transaction_id="unknown", partition_id=ack.partition_id, lease_id=ack.lease_id),
            msgspec.structs.replace(acks_of(other)[0], lease_id=ack.lease_id),
            msgspec.structs.replace(ack, lease_id=theirs.lease_id),
            msgspec.structs.replace(ack, group=group),
            msgspec.structs.replace(ack, lease_id="00000000-0000-8000-8000-000000000001"),
        ]
        answers = self.target.ack(wrong)
        assert [a.code for a in answers] == ["MESSAGE_NOT_FOUND", *["LEASE_LOST"] * 4]
        assert not self.pop(queue)
        assert not self.pop(queue, group=group, partition="a")
        for claim in (mine, theirs, other):
            self.settle(claim)

    def test_d08_a_message_that_was_not_in_the_batch_is_refused(self) -> None:
        """A lease covers what it delivered, not what follows. C-04, INV-FENCE, O-07."""
        queue = self.name()
        _, second = self.push(queue, 1, 2)
        claim = self.take(queue)
        ack = m.Ack(
            transaction_id=second.transaction_id,
            partition_id=second.partition_id,
            lease_id=claim.lease_id,
        )
        assert self.target.ack([ack])[0].code == "LEASE_LOST"
        self.settle(claim)
        assert values_of(self.pop(queue)) == [2]

    @needs("delete")
    def test_d08_an_ack_of_a_deleted_queue_is_not_found(self) -> None:
        """Deleting takes messages and leases along. C-04, INV-FENCE."""
        queue = self.name()
        self.push(queue, 1)
        claim = self.take(queue)
        self.target.delete_queue(queue)
        assert self.ack(claim)[0].code == "MESSAGE_NOT_FOUND"

    def test_d12_the_last_closed_lease_answers_already(self) -> None:
        """A repeat after full settlement is told the first outcome. C-04, INV-FENCE, PL-16."""
        queue = self.name()
        self.push(queue, 1, 2, 3)
        claim = self.take(queue, 2)
        self.ack(claim, "completed", only=[0])
        self.ack(claim, "retry", only=[1])
        repeated = self.ack(claim, "completed")
        assert [(a.status, a.already) for a in repeated] == [("completed", True), ("pending", True)]
        held = self.take(queue, 2)
        assert values_of(held) == [2, 3]
        repeated = self.ack(claim, "failed")
        assert [(a.status, a.already) for a in repeated] == [("completed", True), ("pending", True)]
        assert not self.pop(queue)
        self.settle(held)

    def test_d12_under_an_older_lease_a_repeat_is_lost(self) -> None:
        """Only one closed lease is remembered. C-04, INV-FENCE."""
        queue = self.name()
        self.push(queue, 1, 2)
        old = self.take(queue)
        self.settle(old)
        new = self.take(queue)
        assert self.ack(old)[0].already
        self.settle(new)
        (answer,) = self.ack(old)
        assert (answer.code, answer.status, answer.already) == ("LEASE_LOST", None, False)
        assert self.ack(new)[0].already

    def test_d12_a_lease_that_expired_displaces_no_closed_one(self) -> None:
        """Expiry is not a close; the closed lease before it still answers. C-04, INV-FENCE."""
        queue = self.queue(lease_seconds=self.unit)
        self.push(queue, 1, 2)
        closed = self.take(queue)
        self.settle(closed)
        expired = self.take(queue)
        self.advance(self.unit)
        assert self.ack(expired)[0].code == "LEASE_LOST"
        assert self.ack(closed)[0].already

    def test_d13_an_ack_without_a_lease_is_refused(self) -> None:
        """Proof is asked for by default, also from the holder. C-04, INV-FENCE, O-07."""
        queue = self.queue(lease_seconds=self.unit)
        self.push(queue, 1)
        claim = self.take(queue)
        (ack,) = acks_of(claim)
        bare = msgspec.structs.replace(ack, lease_id=None)
        assert self.target.ack([bare])[0].code == "LEASE_REQUIRED"
        self.advance(self.unit)
        held = self.take(queue)
        assert self.target.ack([bare])[0].code == "LEASE_REQUIRED"
        self.settle(held)

    def test_d13_a_queue_may_allow_acks_without_a_lease_while_one_is_live(self) -> None:
        """Unfenced acks reach only what is being processed. C-04, QB-3."""
        queue = self.queue(require_lease_id=False, lease_seconds=self.unit)
        first, second = self.push(queue, 1, 2)
        claim = self.take(queue)
        (ack,) = acks_of(claim)
        bare = msgspec.structs.replace(ack, lease_id=None)
        waiting = msgspec.structs.replace(bare, transaction_id=second.transaction_id)
        assert first.partition_id == bare.partition_id
        assert self.target.ack([waiting])[0].code == "LEASE_LOST"
        assert self.target.ack([bare])[0].status == "completed"
        assert self.target.ack([bare])[0].already
        again = self.take(queue)
        assert values_of(again) == [2]
        self.advance(self.unit)
        assert self.target.ack([waiting])[0].code == "LEASE_LOST"

    @needs("browse")
    def test_d14_what_is_settled_is_counted_once(self) -> None:
        """Repeats and refusals leave the lag as it was. C-04, INV-MONOTONIC-CURSOR, QB-5."""
        queue, group = self.name(), self.name("group")
        self.push(queue, *range(6))
        claim = self.take(queue, 4, group=group)
        assert self.lag(queue, group) == 6
        self.ack(claim, only=[2])
        self.ack(claim, only=[2])
        assert self.lag(queue, group) == 5
        self.ack(claim, only=[0, 1, 3])
        self.ack(claim)
        assert self.lag(queue, group) == 2
