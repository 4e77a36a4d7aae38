"""H04 in part, H09, H11 and H14: what age evicts, the room it makes, and the record of it."""

from __future__ import annotations

from collections import Counter

import pytest

from queen_sync import model as m
from queen_sync.conformance.base import Cases, needs, values_of
from queen_sync.errors import QueueFull


class Upkeep(Cases):
    """Words for passes of upkeep."""

    def rest(self, seconds: float) -> None:
        """Let what is settled now have been settled for so long, and be looked at.

        Upkeep notes what is settled when it comes by, and may be a tenth of the time late.
        """
        self.target.sweep()
        self.advance(1.1 * seconds + self.tick)
        self.target.sweep()

    def swept(self, queue: str) -> int:
        """Make one pass of upkeep; return how many messages it took from the queue."""
        before = sum(removal.count for removal in self.target.removals(queue))
        report = self.target.sweep()
        taken = sum(removal.count for removal in self.target.removals(queue)) - before
        # The report counts what the pass found in other queues too.
        assert report.evicted + report.removed >= taken
        assert report.repaired == 0
        return taken


class AgingCases(Upkeep):
    # -------------------------------------------------------------------- eviction

    @needs("evict")
    def test_h09_a_message_that_waited_too_long_is_evicted(self) -> None:
        """It is not delivered late, and its neighbours are. C-09, INV-EVICT, QA-7, PL-6, O-14."""
        for option in ("max_wait_seconds", "ttl_seconds"):
            queue = self.queue(**{option: 2 * self.unit})
            self.push(queue, "old")
            self.advance(self.unit)
            self.push(queue, "young")
            self.push(queue, "other", partition="other")
            self.advance(self.unit)
            assert sorted(self.drain(queue)) == ["other", "young"]

    @needs("evict")
    def test_h09_the_shorter_of_the_two_limits_counts(self) -> None:
        """To the instant: just before it a message is delivered. C-09, INV-EVICT."""
        queue = self.queue(max_wait_seconds=5 * self.unit, ttl_seconds=2 * self.unit)
        self.push(queue, 1)
        self.advance(2 * self.unit - self.tick)
        self.ack(self.take(queue), "retry")
        self.advance(self.tick)
        assert not self.pop(queue)

    @needs("evict")
    def test_h09_nothing_is_evicted_from_under_a_live_lease(self) -> None:
        """Who holds it may finish it; what is not held goes. C-09, INV-EVICT."""
        queue = self.queue(max_wait_seconds=self.unit, lease_seconds=5 * self.unit)
        self.push(queue, 1, 2, 3)
        claim = self.take(queue, 2)
        self.ack(claim, "failed", only=[1])
        self.advance(2 * self.unit)
        assert self.swept(queue) == 1
        assert self.ack(claim, only=[0])[0].status == "completed"
        assert not self.pop(queue)
        assert self.swept(queue) == 0

    @needs("evict")
    def test_h09_what_an_expired_lease_held_may_be_too_old(self) -> None:
        """It is taken back first and evicted then, never delivered. C-09, C-03, INV-EVICT."""
        queue = self.queue(max_wait_seconds=2 * self.unit, lease_seconds=2 * self.unit)
        self.push(queue, 1)
        late = self.take(queue)
        self.advance(2 * self.unit)
        assert not self.pop(queue)
        assert self.ack(late)[0].code == "LEASE_LOST"

    @needs("evict")
    def test_h09_a_failed_message_is_evicted_in_its_turn(self) -> None:
        """Its age counts from the push, whatever happened since. C-09, INV-EVICT, INV-FIFO."""
        queue = self.queue(ttl_seconds=2 * self.unit)
        self.push(queue, "bad")
        self.advance(self.unit)
        self.push(queue, "good")
        self.ack(self.take(queue), "failed")
        self.advance(self.unit)
        claim = self.pop(queue, 9)
        assert [(x.value, x.delivery_count) for x in claim.messages] == [("good", 1)]

    @needs("evict", "dlq")
    def test_h09_an_evicted_message_is_no_dead_letter(self) -> None:
        """It is settled otherwise, for each group by itself. INV-EVICT, INV-FANOUT, INV-DLQ."""
        queue = self.queue(max_wait_seconds=self.unit, lease_seconds=2 * self.unit)
        group = self.name("group")
        self.push(queue, 1)
        self.settle(self.take(queue, group=group))
        assert self.pop(queue)
        self.advance(2 * self.unit)
        assert not self.pop(queue)
        assert self.dead(queue) == []

    @needs("evict", "browse")
    def test_h09_upkeep_evicts_what_nobody_pops(self) -> None:
        """It leaves the lag, and what a live lease does not hold goes too. C-09, INV-EVICT."""
        queue, group = self.queue(ttl_seconds=self.unit), self.name("group")
        self.push(queue, 1, 2, 3, partition="a")
        self.push(queue, 4, partition="b")
        claim = self.take(queue, group=group, partition="a")
        self.advance(self.unit)
        assert self.swept(queue) == 3
        assert self.lag(queue, group) == 1
        self.settle(claim)
        assert (self.lag(queue, group), self.swept(queue)) == (0, 0)

    @needs("evict", "sub_from")
    def test_h09_what_a_group_is_not_owed_is_not_evicted_for_it(self) -> None:
        """Only what was waiting counts. C-07, INV-EVICT, QA-7."""
        queue, group = self.queue(ttl_seconds=self.unit), self.name("group")
        self.push(queue, 1)
        future = m.Subscription(mode="from", from_us=2**52)
        self.pop(queue, group=group, subscription=future)
        self.advance(self.unit)
        self.target.sweep()
        assert list(self.target.removals(queue)) == []

    @needs("evict")
    def test_h09_a_changed_limit_holds_for_what_is_stored(self) -> None:
        """The option decides when it is asked. C-09, C-11."""
        queue = self.name()
        self.push(queue, 1)
        self.advance(self.unit)
        self.target.configure(queue, {"ttl_seconds": 100 * self.unit})
        self.ack(self.take(queue), "retry")
        self.target.configure(queue, {"ttl_seconds": self.unit})
        assert not self.pop(queue)

    @needs("delay", "window", "evict")
    def test_h11_delay_window_and_eviction_hold_together(self) -> None:
        """Each by its own measure, on one queue. C-08, C-09, INV-DELAY, INV-WINDOW, INV-EVICT."""
        unit = self.unit
        queue = self.queue(
            delayed_processing_seconds=2 * unit,
            window_buffer_seconds=unit,
            max_wait_seconds=4 * unit,
        )
        self.push(queue, 1)
        self.advance(unit)
        self.push(queue, 2)
        assert not self.pop(queue, 9)
        self.advance(unit)
        claim = self.pop(queue, 9)
        assert values_of(claim) == [1]
        self.settle(claim)
        self.push(queue, 3)
        self.advance(unit - self.tick)
        assert not self.pop(queue, 9)
        self.advance(2 * unit + self.tick)
        assert values_of(self.pop(queue, 9)) == [3]

    # -------------------------------------------------------------------- capacity

    @needs("cap", "evict")
    def test_h04_eviction_makes_room(self) -> None:
        """As soon as it has happened for every group. C-06, C-09, INV-CAPACITY, O-46."""
        queue = self.queue(max_queue_size=2, ttl_seconds=self.unit)
        one, two = self.name("one"), self.name("two")
        for group in (one, two):
            self.pop(queue, group=group)
        self.push(queue, 1, 2)
        self.advance(self.unit)
        assert not self.pop(queue, group=one)
        with pytest.raises(QueueFull):
            self.push(queue, 3)
        assert not self.pop(queue, group=two)
        assert self.push(queue, 3)[0].depth == 1

    @needs("cap", "retention")
    def test_h04_retention_makes_room(self) -> None:
        """What is stored no more holds nobody up. C-06, C-09, INV-CAPACITY, O-46."""
        queue = self.queue(max_queue_size=1, retention_enabled=True, retention_seconds=self.unit)
        self.push(queue, 1)
        self.advance(self.unit)
        self.target.sweep()
        assert self.push(queue, 2)[0].depth == 1

    @needs("cap", "delete")
    def test_h04_deletion_makes_room(self) -> None:
        """A queue of the same name begins empty, and unlimited. C-06, C-16, INV-CAPACITY."""
        queue = self.queue(max_queue_size=1)
        self.push(queue, 1)
        self.target.delete_queue(queue)
        self.target.configure(queue, {"max_queue_size": 2})
        assert self.push(queue, 1, 2)[1].depth == 2

    # -------------------------------------------------------------------- removals

    @needs("evict")
    def test_h14_evictions_are_on_record(self) -> None:
        """How many, where, when and for whom; by pops and by upkeep. QA-7, INV-EVICT."""
        queue, group = self.queue(ttl_seconds=self.unit), self.name("group")
        self.push(queue, 1, 2, partition="a")
        self.push(queue, 3, partition="b")
        self.take(queue, group=group, partition="b")
        self.pop(queue, partition="none")
        self.advance(self.unit)
        assert not self.pop(queue, partition="a")
        self.advance(self.tick)
        self.target.sweep()
        found = self.target.removals(queue)
        assert {(r.queue, r.kind) for r in found} == {(queue, "evicted")}
        assert (found[-1].partition, found[-1].group) == ("a", m.QUEUE_MODE)
        assert Counter((r.partition, r.group, r.count) for r in found) == Counter(
            [("a", m.QUEUE_MODE, 2), ("a", group, 2), ("b", m.QUEUE_MODE, 1)]
        )
        instants = [r.removed_us for r in found]
        assert instants == sorted(instants, reverse=True)
        assert instants[0] > instants[-1]

    @needs("retention")
    def test_h14_removals_by_retention_are_on_record(self) -> None:
        """For all groups at once, and by which option. QA-7, INV-RETENTION, O-44."""
        queue = self.queue(
            retention_enabled=True,
            completed_retention_seconds=self.unit,
            retention_seconds=3 * self.unit,
        )
        self.push(queue, 1, 2, 3)
        self.settle(self.take(queue))
        self.rest(self.unit)
        self.advance(2 * self.unit)
        assert self.swept(queue) == 2
        found = [(r.kind, r.partition, r.count, r.group) for r in self.target.removals(queue)]
        assert found == [("expired", "Default", 2, None), ("completed", "Default", 1, None)]

    @needs("retention", "delete")
    def test_h14_the_record_goes_with_its_queue(self) -> None:
        """An unknown queue has none. QA-7, INV-INTEGRITY."""
        queue = self.queue(retention_enabled=True, retention_seconds=self.unit)
        self.push(queue, 1)
        self.advance(self.unit)
        self.target.sweep()
        assert len(self.target.removals(queue)) == 1
        self.target.delete_queue(queue)
        assert list(self.target.removals(queue)) == []
        self.push(queue, 1)
        assert list(self.target.removals(queue)) == []
