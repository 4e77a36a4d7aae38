"""H18, continued: a message dead-lettered by hand, or given its next attempt at once."""

from __future__ import annotations

import pytest

from queen_sync import model as m
from queen_sync.conformance.base import Cases, needs, values_of
from queen_sync.errors import MessageNotFound


class ByHandCases(Cases):
    # ---------------------------------------------------------------------- burial

    @needs("cleanup", "dlq")
    def test_h18_a_message_is_dead_lettered_by_hand(self) -> None:
        """For the groups that have it still to settle, with the counts it had. INV-DLQ, C-02."""
        queue, other, done = self.name(), self.name("other"), self.name("done")
        receipt, _ = self.push(queue, 1, 2)
        self.pop(queue, group=other, partition="none")
        self.settle(self.take(queue, group=done))
        self.ack(self.take(queue), "failed", error="why")
        place = receipt.partition_id, receipt.transaction_id
        assert self.target.bury(*place) == 2
        assert self.target.bury(*place) == 0
        found = {letter.group: letter for letter in self.dead(queue)}
        assert found.keys() == {m.QUEUE_MODE, other}
        mine = found[m.QUEUE_MODE]
        assert (mine.failure_count, mine.delivery_count, mine.error) == (1, 1, "why")
        theirs = found[other]
        assert (theirs.failure_count, theirs.delivery_count, theirs.error) == (0, 0, None)
        assert self.drain(queue) == self.drain(queue, group=other) == [2]

    @needs("cleanup", "dlq")
    def test_h18_a_message_is_dead_lettered_for_one_group_alone(self) -> None:
        """With the reason that is given. INV-DLQ, INV-FANOUT."""
        queue, other = self.name(), self.name("other")
        receipt = self.push(queue, 1)[0]
        for group in (m.QUEUE_MODE, other):
            self.pop(queue, group=group, partition="none")
        place = receipt.partition_id, receipt.id
        assert self.target.bury(*place, group=self.name("nobody")) == 0
        assert self.target.bury(*place, group=other, error="by hand\0") == 1
        assert [(x.group, x.error) for x in self.dead(queue)] == [(other, "by hand\ufffd")]
        assert self.drain(queue) == [1]

    @needs("cleanup", "dlq")
    def test_h18_what_a_live_lease_covers_is_left_to_its_holder(self) -> None:
        """After the lease has run out it is nobody's. INV-CLAIM, INV-FENCE, INV-DLQ."""
        queue = self.queue(lease_seconds=self.unit)
        receipts = self.push(queue, 1, 2, 3)
        claim = self.take(queue, 2)
        place = receipts[0].partition_id, receipts[0].id
        assert self.target.bury(*place) == 0
        assert self.target.bury(receipts[2].partition_id, receipts[2].id) == 1
        self.advance(self.unit)
        assert self.target.bury(*place) == 1
        assert {answer.code for answer in self.ack(claim)} == {"LEASE_LOST"}
        assert self.drain(queue) == [2]

    @needs("cleanup", "dlq", "redrive")
    def test_h18_a_redriven_message_can_be_buried_again(self) -> None:
        """One dead letter, of the group it was given back to. C-12, INV-DLQ."""
        queue = self.name()
        receipt = self.push(queue, 1)[0]
        self.ack(self.take(queue), "dlq", error="first")
        self.target.redrive(m.DeadLetterFilter(queue=queue))
        assert self.target.bury(receipt.partition_id, receipt.id, error="again") == 1
        assert [letter.error for letter in self.dead(queue)] == ["again"]
        assert not self.pop(queue)

    @needs("cleanup")
    def test_h18_an_unknown_message_cannot_be_buried(self) -> None:
        """Nor can one that is gone. INV-NO-500, INV-INTEGRITY."""
        queue = self.name()
        receipt = self.push(queue, 1)[0]
        self.target.delete_message(receipt.partition_id, receipt.transaction_id)
        for place in (
            (receipt.partition_id, receipt.id),
            (receipt.partition_id, "nobody's"),
            ("no id at all", receipt.id),
        ):
            assert not self.target.delete_message(*place)
            with pytest.raises(MessageNotFound):
                self.target.bury(*place)

    # -------------------------------------------------------------- retry without delay

    @needs("cleanup", "retrydelay")
    def test_h18_a_retry_delay_can_be_ended_by_hand(self) -> None:
        """The message comes again at once, with the counts it had, before all others.

        C-01, C-02, INV-LIVENESS, INV-RETRY.
        """
        queue = self.queue(retry_delay_milliseconds=3_600_000)
        receipt, _ = self.push(queue, 1, 2)
        self.ack(self.take(queue), "failed", error="why")
        assert not self.pop(queue)
        assert self.target.retry_now(receipt.partition_id, receipt.transaction_id) == 1
        claim = self.take(queue, 2)
        assert values_of(claim) == [1, 2]
        first = claim.messages[0]
        assert (first.failure_count, first.delivery_count, first.error) == (1, 2, "why")

    @needs("cleanup", "retrydelay")
    def test_h18_a_retry_delay_is_ended_for_one_group_alone(self) -> None:
        """The others wait on. INV-FANOUT, C-02."""
        queue, one, two = (
            self.queue(retry_delay_milliseconds=3_600_000),
            self.name("one"),
            self.name("two"),
        )
        receipt = self.push(queue, 1)[0]
        for group in (one, two):
            self.ack(self.take(queue, group=group), "failed")
        place = receipt.partition_id, receipt.id
        assert self.target.retry_now(*place, group=self.name("nobody")) == 0
        assert self.target.retry_now(*place, group=one) == 1
        assert self.pop(queue, group=one)
        assert not self.pop(queue, group=two)
        assert self.target.retry_now(*place) == 1
        assert self.pop(queue, group=two)

    @needs("cleanup", "retrydelay", "dlq")
    def test_h18_only_what_has_failed_can_be_retried_at_once(self) -> None:
        """Not what is new, in flight, given back, settled or dead. C-02, INV-FENCE, INV-NO-500."""
        queue = self.queue(retry_delay_milliseconds=3_600_000)
        names = self.push(queue, *range(5))
        claim = self.take(queue, 4)
        self.ack(claim, only=[0])
        self.ack(claim, "dlq", only=[1])
        self.ack(claim, "failed", only=[2])

        def retried() -> list[int]:
            return [self.target.retry_now(x.partition_id, x.transaction_id) for x in names]

        assert retried() == [0, 0, 1, 0, 0]
        assert not self.pop(queue)
        self.ack(claim, "retry", only=[3])
        assert retried() == [0, 0, 1, 0, 0]
        assert values_of(self.take(queue, 3)) == [2, 3, 4]
        with pytest.raises(MessageNotFound):
            self.target.retry_now(names[0].partition_id, "nobody's")
        with pytest.raises(MessageNotFound):
            self.target.retry_now("no id at all", names[0].transaction_id)

    @needs("cleanup", "retrydelay")
    def test_h18_a_lease_that_ran_out_is_taken_back_before_a_retry(self) -> None:
        """Its messages have failed; the first of them delays nothing. C-03, INV-LIVENESS."""
        queue = self.queue(retry_delay_milliseconds=3_600_000, lease_seconds=self.unit)
        receipts = self.push(queue, 1, 2)
        claim = self.take(queue, 2)
        self.ack(claim, "failed", only=[0])
        self.advance(self.unit)
        assert not self.pop(queue)
        place = receipts[0].partition_id, receipts[0].transaction_id
        assert self.target.retry_now(*place) == 1
        assert values_of(self.take(queue, 2)) == [1, 2]
