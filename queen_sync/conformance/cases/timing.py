"""H, second part: delay, window, eviction and retention."""

from __future__ import annotations

from queen_sync.conformance.base import Cases, needs, values_of


class TimingCases(Cases):
    @needs("delay")
    def test_h06_a_delayed_message_comes_at_its_instant_and_not_before(self) -> None:
        """The instant itself is late enough. INV-DELAY, PL-6, O-14."""
        queue = self.queue(delayed_processing_seconds=self.unit)
        self.push(queue, 1, 2)
        assert not self.pop(queue)
        self.advance(self.unit - self.tick)
        assert not self.pop(queue)
        self.advance(self.tick)
        assert self.drain(queue) == [1, 2]

    @needs("delay")
    def test_h06_a_batch_ends_before_a_message_that_is_not_due(self) -> None:
        """Order is kept; what is due comes, what is not waits. INV-DELAY, INV-FIFO, PL-6."""
        queue = self.queue(delayed_processing_seconds=2 * self.unit)
        self.push(queue, "early")
        self.advance(self.unit)
        self.push(queue, "late")
        self.advance(self.unit)
        claim = self.pop(queue, 9)
        assert values_of(claim) == ["early"]
        self.settle(claim)
        assert not self.pop(queue)
        self.advance(self.unit)
        assert self.drain(queue) == ["late"]

    @needs("delay")
    def test_h06_a_changed_delay_holds_for_what_is_stored(self) -> None:
        """The option decides when it is asked, not when it was pushed. INV-DELAY, C-11, O-40."""
        queue = self.queue(delayed_processing_seconds=100 * self.unit)
        self.push(queue, 1)
        assert not self.pop(queue)
        self.target.configure(queue, {"delayed_processing_seconds": 0})
        assert self.drain(queue) == [1]

    @needs("window")
    def test_h07_a_partition_opens_when_it_has_been_quiet_for_its_window(self) -> None:
        """Each push closes it again; other partitions have their own.

        C-08, INV-WINDOW, PL-6, O-14.
        """
        queue = self.queue(window_buffer_seconds=2 * self.unit)
        self.push(queue, 1, partition="a")
        self.advance(self.unit)
        self.push(queue, 2, partition="a")
        self.push(queue, "b", partition="b")
        self.advance(self.unit)
        assert not self.pop(queue)
        self.push(queue, 3, partition="a")
        self.advance(self.unit - self.tick)
        assert not self.pop(queue)
        self.advance(self.tick)
        assert self.drain(queue) == ["b"]
        self.advance(self.unit)
        assert self.drain(queue) == [1, 2, 3]

    @needs("window")
    def test_h08_a_steady_trickle_cannot_hold_a_partition_for_ever(self) -> None:
        """Once the oldest has waited ten windows it is delivered.

        C-08, INV-WINDOW, INV-LIVENESS.
        """
        queue = self.queue(window_buffer_seconds=self.unit)
        half = self.unit / 2
        for n in range(20):
            self.push(queue, n)
            # Where time is real the later steps may be late; the first nine windows are not.
            assert n > 16 or not self.pop(queue, 100)
            self.advance(half)
        self.push(queue, 20)
        assert values_of(self.pop(queue, 100)) == list(range(21))

    @needs("evict")
    def test_h09_a_message_that_waited_too_long_is_evicted(self) -> None:
        """It is not delivered late, and its neighbours are. C-09, INV-EVICT, QA-7, PL-6."""
        queue = self.queue(max_wait_seconds=2 * self.unit)
        self.push(queue, "old")
        self.advance(self.unit)
        self.push(queue, "young")
        self.advance(self.unit + self.tick)
        assert self.drain(queue) == ["young"]

    @needs("evict")
    def test_h09_nothing_is_evicted_from_under_a_live_lease(self) -> None:
        """Who holds it may finish it. C-09, INV-EVICT."""
        queue = self.queue(max_wait_seconds=self.unit, lease_seconds=5 * self.unit)
        self.push(queue, 1)
        claim = self.take(queue)
        self.advance(2 * self.unit)
        self.target.sweep()
        assert self.ack(claim)[0].status == "completed"

    @needs("retention")
    def test_h10_retention_removes_what_all_groups_have_settled(self) -> None:
        """What one group still needs stays. C-09, INV-RETENTION, QA-7."""
        queue = self.queue(retention_enabled=True, completed_retention_seconds=self.unit)
        one, two = self.name("one"), self.name("two")
        self.push(queue, 1, 2)
        self.drain(queue, group=one)
        self.settle(self.take(queue, group=two))
        self.advance(self.unit + self.tick)
        self.target.sweep()
        assert self.drain(queue, group=two) == [2]
        assert self.drain(queue, group=self.name("late")) == [2]
