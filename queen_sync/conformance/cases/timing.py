"""H, second part: delay and window."""

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

        C-08, INV-WINDOW, PL-6, O-14, O-47.
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

        C-08, INV-WINDOW, INV-LIVENESS, O-47.
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
