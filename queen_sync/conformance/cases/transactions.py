"""I: acks and pushes that happen together."""

from __future__ import annotations

import msgspec
import pytest

from queen_sync import model as m
from queen_sync.conformance.base import Cases, acks_of, needs, values_of
from queen_sync.errors import AlreadySettled, LeaseLost, LeaseRequired, MessageNotFound, QueueFull


class TransactionCases(Cases):
    def transact(
        self, *operations: m.Ack | m.NewMessage, leases: tuple[str, ...] = ()
    ) -> m.Transacted:
        """Run one transaction."""
        return self.target.transact(m.Transaction(operations=operations, required_leases=leases))

    @needs("txn")
    def test_i01_acks_and_pushes_take_effect_together(self) -> None:
        """One ack, pushes to two queues: all there. C-15, INV-ATOMIC, O-40."""
        source, left, right = self.name(), self.name(), self.name()
        self.push(source, 1)
        claim = self.take(source)
        (ack,) = acks_of(claim)
        pushes = [m.NewMessage.of(left, "l", transaction_id="l"), m.NewMessage.of(right, "r")]
        done = self.transact(ack, *pushes)
        acked, first, second = done.results
        assert isinstance(acked, m.Acked)
        assert isinstance(first, m.Receipt)
        assert isinstance(second, m.Receipt)
        assert (acked.status, acked.lease_released) == ("completed", True)
        assert [(r.status, r.queue) for r in (first, second)] == [
            ("queued", left),
            ("queued", right),
        ]
        assert not done.repeated
        assert not self.pop(source)
        assert (self.drain(left), self.drain(right)) == (["l"], ["r"])

    @needs("txn")
    def test_i01_an_ack_may_take_its_lease_from_the_required_ones(self) -> None:
        """Lease and group are those of the required lease that covers the message. C-15, C-04."""
        queue, group = self.name(), self.name("group")
        self.push(queue, 1)
        claim = self.take(queue, group=group)
        (ack,) = acks_of(claim)
        bare = m.Ack(transaction_id=ack.transaction_id, partition_id=ack.partition_id)
        with pytest.raises(LeaseRequired):
            self.transact(bare)
        assert self.transact(bare, leases=(claim.lease_id or "",)).results[0].status == "completed"
        assert not self.pop(queue, group=group)

    @needs("txn")
    def test_i01_a_duplicate_push_fails_no_transaction(self) -> None:
        """It is reported as one. C-15, C-16, INV-ATOMIC."""
        source, output = self.name(), self.name()
        self.push(source, 1)
        self.push(output, "known", ids=["x"])
        claim = self.take(source)
        done = self.transact(*acks_of(claim), m.NewMessage.of(output, "again", transaction_id="x"))
        assert [result.status for result in done.results] == ["completed", "duplicate"]
        assert self.drain(output) == ["known"]

    @needs("txn")
    def test_i02_one_bad_element_undoes_all_others(self) -> None:
        """A lost lease, an unknown message, a lease that is none. C-15, INV-ATOMIC."""
        source, output = self.name(), self.name()
        self.push(source, 1, 2)
        claim = self.take(source, 2)
        good, other = acks_of(claim)
        push = m.NewMessage.of(output, "out", transaction_id="out")
        lost = msgspec.structs.replace(other, lease_id="00000000-0000-8000-8000-000000000001")
        unknown = msgspec.structs.replace(other, transaction_id="unknown")
        for bad, error in ((lost, LeaseLost), (unknown, MessageNotFound)):
            with pytest.raises(error) as caught:
                self.transact(push, good, bad)
            assert caught.value.index == 2
        with pytest.raises(LeaseLost):
            self.transact(push, good, leases=("00000000-0000-8000-8000-000000000001",))
        assert not self.pop(output)
        answers = self.target.ack([good, other])
        assert [(a.status, a.already) for a in answers] == [("completed", False)] * 2

    @needs("txn", "cap")
    def test_i02_a_full_queue_undoes_the_acks(self) -> None:
        """And an ack of the same transaction makes room for its push. C-15, C-06, INV-ATOMIC."""
        source, output = self.queue(max_queue_size=1), self.queue(max_queue_size=1)
        self.push(source, 1)
        self.push(output, "there")
        claim = self.take(source)
        with pytest.raises(QueueFull) as caught:
            self.transact(*acks_of(claim), m.NewMessage.of(output, "more"))
        assert caught.value.index == 1
        assert not self.pop(source)
        done = self.transact(*acks_of(claim), m.NewMessage.of(source, 2))
        assert [result.status for result in done.results] == ["completed", "queued"]
        assert self.drain(source) == [2]

    @needs("txn")
    def test_i03_a_zombies_transaction_pushes_nothing(self) -> None:
        """After the lease went to another, its output does not appear.

        C-15, C-04, INV-FENCE, INV-ATOMIC, O-07.
        """
        source, output = self.queue(lease_seconds=self.unit), self.name()
        self.push(source, 1)
        zombie = self.take(source)
        self.advance(self.unit)
        holder = self.take(source)
        with pytest.raises(LeaseLost):
            self.transact(m.NewMessage.of(output, "zombie"), *acks_of(zombie))
        with pytest.raises(LeaseLost):
            self.transact(m.NewMessage.of(output, "zombie"), leases=(zombie.lease_id or "",))
        assert not self.pop(output)
        self.transact(*acks_of(holder), m.NewMessage.of(output, "holder"))
        assert self.drain(output) == ["holder"]

    @needs("txn")
    def test_i04_a_repeat_that_changes_nothing_succeeds(self) -> None:
        """With ids on its pushes a transaction may be sent again. C-15, INV-ATOMIC, PL-16."""
        source, output = self.name(), self.name()
        self.push(source, 1)
        claim = self.take(source)
        operations: list[m.Ack | m.NewMessage] = [
            *acks_of(claim),
            m.NewMessage.of(output, "out", transaction_id="out"),
        ]
        first = self.transact(*operations)
        second = self.transact(*operations)
        assert (first.repeated, second.repeated) == (False, True)
        assert [result.status for result in second.results] == ["completed", "duplicate"]
        assert self.drain(output) == ["out"]

    @needs("txn")
    def test_i04_a_repeat_that_would_push_again_is_refused(self) -> None:
        """Without ids nobody can know whether it was stored; it is not stored twice.

        C-15, INV-ATOMIC.
        """
        source, output = self.name(), self.name()
        self.push(source, 1)
        claim = self.take(source)
        operations: list[m.Ack | m.NewMessage] = [*acks_of(claim), m.NewMessage.of(output, "out")]
        self.transact(*operations)
        with pytest.raises(AlreadySettled):
            self.transact(*operations)
        assert self.drain(output) == ["out"]

    @needs("txn")
    def test_i04_a_repeat_of_pushes_alone_or_of_acks_alone_is_known(self) -> None:
        """Nothing new in it: repeated. C-15, C-16, INV-DEDUP."""
        queue = self.name()
        push = m.NewMessage.of(queue, 1, transaction_id="x")
        assert [self.transact(push).repeated for _ in range(2)] == [False, True]
        acks = acks_of(self.take(queue))
        assert [self.transact(*acks).repeated for _ in range(2)] == [False, True]

    @needs("txn")
    def test_i04_a_message_named_twice_in_one_transaction_is_no_repeat(self) -> None:
        """What stood before it began decides. C-15, INV-ATOMIC."""
        source, output = self.name(), self.name()
        self.push(source, 1)
        (ack,) = acks_of(self.take(source))
        done = self.transact(ack, ack, m.NewMessage.of(output, "out"))
        first, second, pushed = done.results
        assert isinstance(first, m.Acked)
        assert isinstance(second, m.Acked)
        assert (first.already, second.already, pushed.status) == (False, True, "queued")
        assert values_of(self.pop(output)) == ["out"]

    @needs("txn")
    def test_i01_every_outcome_may_stand_in_a_transaction(self) -> None:
        """Completed, failed, given back, dead-lettered, in one. C-15, C-02, INV-RETRY."""
        queue = self.name()
        self.push(queue, *range(4))
        claim = self.take(queue, 4)
        acks = [acks_of(claim, outcome, only=[n])[0] for n, outcome in enumerate(m.OUTCOMES)]
        done = self.transact(*acks)
        assert [r.status for r in done.results] == ["completed", "failed", "pending", "dead_letter"]
        assert values_of(self.pop(queue, 9)) == [1, 2]
