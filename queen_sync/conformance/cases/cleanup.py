"""H04 in part, H18: what an operator takes out by hand, and what stays exact without it."""

from __future__ import annotations

import pytest

from queen_sync import model as m
from queen_sync.conformance.base import Cases, needs, values_of
from queen_sync.errors import (
    LeaseLost,
    PartitionNotFound,
    QueueFull,
    QueueNotFound,
)


class CleanupCases(Cases):
    def delete(self, receipt: m.Receipt) -> bool:
        """Delete the message that a receipt is for."""
        return self.target.delete_message(receipt.partition_id, receipt.transaction_id)

    def counts(self, queue: str, partition: str = m.DEFAULT_PARTITION) -> tuple[int, int, int]:
        """Return what was pushed to a partition, what is stored and what waits."""
        state = next(x for x in self.target.partitions(queue) if x.name == partition)
        return state.pushed_count, state.stored_count, state.waiting_count

    # -------------------------------------------------------------------- deletion

    @needs("cleanup")
    def test_h18_a_deleted_message_is_delivered_to_nobody(self) -> None:
        """First, last or between; its neighbours come in order, to every group.

        INV-INTEGRITY, INV-FIFO, INV-FANOUT.
        """
        queue, early, late = self.name(), self.name("early"), self.name("late")
        self.pop(queue, group=early)
        receipts = self.push(queue, *range(6))
        for place in (0, 2, 3, 5):
            assert self.delete(receipts[place])
            assert not self.delete(receipts[place])
        self.push(queue, 6)
        assert self.drain(queue, 2, group=early) == [1, 4, 6]
        assert self.drain(queue, group=late) == [1, 4, 6]

    @needs("cleanup", "stats", "browse")
    def test_h18_a_hole_counts_nowhere(self) -> None:
        """Neither as stored, nor as waiting, nor as lag; a later group does not wait for it.

        INV-COUNTERS, INV-MONOTONIC-CURSOR, C-06, O-54.
        """
        queue, one, two = self.name(), self.name("one"), self.name("two")
        receipts = self.push(queue, *range(8))
        assert self.delete(receipts[4])
        assert self.counts(queue) == (8, 7, 7)
        self.settle(self.take(queue, 2, group=one))
        for place in (0, 1, 3, 7):
            self.delete(receipts[place])
        assert self.counts(queue) == (8, 3, 3)
        assert self.lag(queue, one) == 3
        self.pop(queue, group=two, partition="none")
        assert self.lag(queue, two) == 3
        assert self.drain(queue, group=two) == [2, 5, 6]
        assert (self.lag(queue, one), self.lag(queue, two)) == (3, 0)
        self.delete(receipts[2])
        assert self.counts(queue) == (8, 2, 2)
        assert self.drain(queue, group=one) == [5, 6]
        assert self.counts(queue) == (8, 2, 0)

    @needs("cleanup", "seek", "browse")
    def test_h18_a_seek_passes_a_hole_over(self) -> None:
        """To the start, and to the instant of what is gone. C-20, INV-COUNTERS."""
        queue = self.name()
        receipts = []
        for n in range(4):
            receipts += self.push(queue, n)
            self.advance(self.tick)
        claim = self.take(queue, 4)
        self.settle(claim)
        for place in (0, 2):
            self.delete(receipts[place])
        self.target.seek(m.Seek(queue=queue, to="start"))
        assert self.lag(queue, m.QUEUE_MODE) == 2
        assert self.drain(queue) == [1, 3]
        instant = claim.messages[2].created_us
        self.target.seek(m.Seek(queue=queue, to="time", from_us=instant))
        assert self.lag(queue, m.QUEUE_MODE) == 1
        assert self.drain(queue) == [3]

    @needs("cleanup")
    def test_h18_an_ack_of_a_deleted_message_finds_nothing(self) -> None:
        """The others of its claim are acked as ever, and close the lease. C-04, INV-FENCE."""
        queue = self.name()
        receipts = self.push(queue, 1, 2, 3)
        claim = self.take(queue, 2)
        self.delete(receipts[0])
        answers = self.ack(claim)
        assert [answer.code for answer in answers] == ["MESSAGE_NOT_FOUND", None]
        assert answers[1].lease_released
        assert self.drain(queue) == [3]

    @needs("cleanup", "extend")
    def test_h18_a_lease_ends_with_its_last_open_message(self) -> None:
        """The partition is free; what was acked before stays so. INV-CLAIM, INV-LIVENESS."""
        queue = self.name()
        receipts = self.push(queue, 1, 2, 3)
        claim = self.take(queue, 2)
        self.ack(claim, only=[0])
        self.delete(receipts[1])
        assert self.ack(claim, only=[0])[0].already
        assert self.drain(queue) == [3]
        with pytest.raises(LeaseLost):
            self.target.extend(str(claim.lease_id), 60)

    @needs("cleanup")
    def test_h18_the_name_of_a_deleted_message_is_free(self) -> None:
        """Its place is not: seqs go on. C-16, INV-DEDUP, INV-ORDER."""
        queue = self.name()
        first = self.push(queue, 1, 2, ids=["a", "b"])
        assert self.target.delete_message(first[1].partition_id, "b")
        again = self.push(queue, 3, 4, ids=["a", "b"])
        assert [(r.status, r.seq) for r in again] == [("duplicate", 1), ("queued", 3)]
        assert self.drain(queue) == [1, 4]

    @needs("cleanup", "dlq", "redrive")
    def test_h18_dead_letters_go_with_their_message(self) -> None:
        """Also one that was given back, under a lease or not. INV-DLQ, C-12."""
        queue, other = self.name(), self.name("other")
        receipts = self.push(queue, 1, 2, 3)
        for group in (m.QUEUE_MODE, other):
            self.ack(self.take(queue, 3, group=group), "dlq")
        self.target.redrive(m.DeadLetterFilter(queue=queue, group=other))
        held = self.take(queue, group=other)
        for receipt in receipts[:2]:
            self.delete(receipt)
        assert [letter.seq for letter in self.dead(queue)] == [3]
        assert self.ack(held)[0].code == "MESSAGE_NOT_FOUND"
        assert self.drain(queue, group=other) == [3]

    @needs("cleanup", "retrydelay")
    def test_h18_a_failing_head_that_is_deleted_holds_nothing_back(self) -> None:
        """Its retry delay goes with it. C-01, INV-LIVENESS."""
        queue = self.queue(retry_delay_milliseconds=3_600_000)
        receipts = self.push(queue, "bad", "good")
        self.ack(self.take(queue), "failed")
        assert not self.pop(queue)
        self.delete(receipts[0])
        assert self.drain(queue) == ["good"]

    @needs("cleanup", "retention", "stats")
    def test_h18_retention_counts_what_it_removes_and_no_hole(self) -> None:
        """What is gone already is not removed again. C-09, INV-COUNTERS, QA-7."""
        queue = self.queue(retention_enabled=True, retention_seconds=self.unit)
        receipts = self.push(queue, *range(5))
        self.delete(receipts[0])
        self.delete(receipts[3])
        self.advance(self.unit)
        self.push(queue, "young")
        self.target.sweep()
        assert [removal.count for removal in self.target.removals(queue)] == [3]
        assert self.counts(queue) == (6, 1, 1)
        assert self.drain(queue) == ["young"]

    @needs("cleanup", "cap")
    def test_h04_deleting_and_clearing_make_room(self) -> None:
        """One place for one message, all places for all. C-06, INV-CAPACITY, INV-COUNTERS, O-54."""
        queue = self.queue(max_queue_size=3)
        receipts = self.push(queue, 1, 2, 3)
        with pytest.raises(QueueFull):
            self.push(queue, 4)
        self.delete(receipts[1])
        assert self.push(queue, 4)[0].depth == 3
        self.settle(self.take(queue))
        assert self.push(queue, 5)[0].depth == 3
        self.delete(receipts[2])
        assert self.push(queue, 6)[0].depth == 3
        assert self.target.clear(queue) == 4
        assert self.push(queue, 6, 7, 8)[2].depth == 3
        with pytest.raises(QueueFull) as caught:
            self.push(queue, 9)
        assert caught.value.depth == 3

    # -------------------------------------------------------------------- clearing

    @needs("cleanup", "stats", "dlq")
    def test_h18_a_cleared_queue_holds_nothing_but_dead_letters(self) -> None:
        """Held, failed, given back or unread: all is gone, for every group, and counted.

        INV-COUNTERS, INV-DLQ, INV-INTEGRITY, O-54.
        """
        queue, other = self.name(), self.name("other")
        self.push(queue, *range(5), partition="p")
        self.push(queue, 5)
        claim = self.take(queue, 4, partition="p")
        self.ack(claim, "dlq", only=[0])
        self.ack(claim, "failed", only=[1])
        self.pop(queue, group=other, partition="none")
        assert self.target.clear(queue) == 6
        assert {answer.code for answer in self.ack(claim)} == {"MESSAGE_NOT_FOUND"}
        assert not self.pop(queue, 9)
        assert not self.pop(queue, 9, group=other)
        assert [letter.seq for letter in self.dead(queue)] == [1]
        assert self.counts(queue, "p") == (5, 0, 0)
        self.push(queue, "new", partition="p")
        assert self.drain(queue) == self.drain(queue, group=other) == ["new"]
        assert self.target.clear(queue) == 1

    @needs("cleanup", "dlq", "redrive")
    def test_h18_clearing_takes_what_was_redriven(self) -> None:
        """Nothing waits after it, and the dead stay where they are. C-12, INV-DLQ."""
        queue = self.name()
        self.push(queue, 1, 2)
        claim = self.take(queue, 2)
        self.ack(claim, "dlq")
        first = m.DeadLetterFilter(queue=queue, transaction_id=claim.messages[0].transaction_id)
        self.target.redrive(first)
        held = self.take(queue)
        assert self.target.clear(queue) == 2
        assert self.ack(held)[0].code == "MESSAGE_NOT_FOUND"
        assert not self.pop(queue, 9)
        assert [letter.seq for letter in self.dead(queue)] == [2]
        assert self.target.redrive(m.DeadLetterFilter(queue=queue)) == 1
        assert self.drain(queue) == [2]

    @needs("cleanup")
    def test_h18_one_partition_is_cleared_alone(self) -> None:
        """Its names are free again; what is missing is refused. C-16, INV-DEDUP, INV-NO-500."""
        queue = self.name()
        self.push(queue, 1, partition="p", ids=["a"])
        self.push(queue, 2)
        assert self.target.clear(queue, "p") == 1
        again = self.push(queue, 3, partition="p", ids=["a"])[0]
        assert (again.status, again.seq) == ("queued", 2)
        assert sorted(self.drain(queue)) == [2, 3]
        with pytest.raises(PartitionNotFound):
            self.target.clear(queue, "nowhere")
        with pytest.raises(QueueNotFound):
            self.target.clear(self.name())

    # ---------------------------------------------------------- deleting partitions

    @needs("cleanup", "stats", "dlq", "browse")
    def test_h18_a_deleted_partition_is_gone_with_all_it_held(self) -> None:
        """Leases and dead letters too; other partitions do not notice.

        INV-INTEGRITY, INV-COUNTERS, INV-DLQ.
        """
        queue = self.name()
        self.push(queue, 1, 2, 3, partition="p")
        self.push(queue, 4, partition="q")
        claim = self.take(queue, 2, partition="p")
        self.ack(claim, "dlq", only=[0])
        assert self.target.delete_partition(queue, "p")
        assert not self.target.delete_partition(queue, "p")
        assert not self.target.delete_partition(self.name(), "p")
        assert {answer.code for answer in self.ack(claim)} == {"MESSAGE_NOT_FOUND"}
        assert self.dead(queue) == []
        assert [found.name for found in self.target.partitions(queue)] == ["Default", "q"]
        assert self.lag(queue, m.QUEUE_MODE) == 1
        self.target.sweep()
        assert self.drain(queue) == [4]

    @needs("cleanup")
    def test_h18_a_partition_of_the_same_name_begins_anew(self) -> None:
        """Another id, seqs from 1, every group owed everything. C-07, C-16, INV-FANOUT."""
        queue, group = self.name(), self.name("group")
        old = self.push(queue, 1, 2, partition="p", ids=["a", "b"])[1]
        self.drain(queue, group=group)
        self.target.delete_partition(queue, "p")
        new = self.push(queue, 3, partition="p", ids=["b"])[0]
        assert (new.status, new.seq) == ("queued", 1)
        assert new.partition_id != old.partition_id
        assert values_of(self.take(queue, group=group)) == [3]
        values = values_of(self.take(queue, partition="p"))
        assert values == [3]

    @needs("cleanup", "stats")
    def test_h18_a_queue_is_never_without_its_default_partition(self) -> None:
        """Deleted, it is there again, empty. INV-INTEGRITY, C-18."""
        queue = self.name()
        old = self.push(queue, 1)[0]
        assert self.target.delete_partition(queue, m.DEFAULT_PARTITION)
        assert self.counts(queue) == (0, 0, 0)
        assert self.target.configure(queue).queue.default_partition_id != old.partition_id
        assert not self.pop(queue)
        assert self.push(queue, 2)[0].seq == 1
        assert self.drain(queue) == [2]
