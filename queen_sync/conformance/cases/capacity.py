"""H, first part: a limited queue."""

from __future__ import annotations

import pytest

from queen_sync import model as m
from queen_sync.conformance.base import Cases, needs
from queen_sync.errors import QueueFull


class CapacityCases(Cases):
    def full(self, queue: str, *values: int) -> QueueFull:
        """Push what does not fit and return the refusal."""
        with pytest.raises(QueueFull) as caught:
            self.push(queue, *values)
        return caught.value

    @needs("cap")
    def test_h01_a_full_queue_refuses_until_something_is_settled(self) -> None:
        """Three fit, the fourth does not; one ack makes room for one. C-06, INV-CAPACITY, PLD-9."""
        queue = self.queue(max_queue_size=3)
        receipts = [self.push(queue, n)[0] for n in range(3)]
        assert [(r.depth, r.remaining) for r in receipts] == [(1, 2), (2, 1), (3, 0)]
        error = self.full(queue, 3)
        assert (error.queue, error.max_queue_size, error.depth, error.pushed) == (queue, 3, 3, 1)
        assert error.definite
        claim = self.take(queue)
        self.full(queue, 3)
        self.settle(claim)
        self.push(queue, 4)
        self.full(queue, 5)
        assert self.drain(queue) == [1, 2, 4]

    @needs("cap")
    def test_h02_a_batch_that_does_not_fit_is_not_stored_in_part(self) -> None:
        """All or nothing, over all queues of the call. C-06, INV-CAPACITY, INV-ATOMIC, PLD-9."""
        limited, free = self.queue(max_queue_size=3), self.name()
        self.push(limited, 1)
        error = self.full(limited, 2, 3, 4)
        assert (error.depth, error.pushed, error.remaining) == (1, 3, 2)
        with pytest.raises(QueueFull):
            self.target.push(
                [m.NewMessage.of(free, 0), *(m.NewMessage.of(limited, n) for n in range(3))]
            )
        assert not self.pop(free)
        assert self.push(limited, 2, 3)[-1].depth == 3
        assert self.drain(limited) == [1, 2, 3]

    @needs("cap")
    def test_h02_only_new_messages_of_a_batch_count(self) -> None:
        """A batch of a duplicate and a new one needs room for one. C-06, C-16, INV-CAPACITY."""
        queue = self.queue(max_queue_size=2)
        self.push(queue, 1, ids=["x"])
        again, new = self.push(queue, 1, 2, ids=["x", "y"])
        assert (again.status, new.status, new.depth) == ("duplicate", "queued", 2)

    @needs("cap")
    def test_h03_room_is_made_by_the_last_group_to_settle(self) -> None:
        """A group that does not come back holds the queue.

        C-06, INV-CAPACITY, INV-FANOUT, PLD-9.
        """
        queue, one, two = self.queue(max_queue_size=2), self.name("one"), self.name("two")
        self.push(queue, 1, 2)
        self.pop(queue, group=two)
        self.drain(queue, group=one)
        self.full(queue, 3)
        self.target.delete_group(two, queue=queue)
        assert self.push(queue, 3)[0].depth == 1

    @needs("cap")
    def test_h03_without_a_group_everything_stored_counts(self) -> None:
        """Nobody has settled anything yet. C-06, INV-CAPACITY."""
        queue = self.queue(max_queue_size=1)
        self.push(queue, 1)
        self.full(queue, 2)

    @needs("cap", "dlq")
    def test_h04_a_dead_letter_makes_room(self) -> None:
        """It is settled, and not stored in the line any more. C-06, INV-CAPACITY, INV-DLQ."""
        queue = self.queue(max_queue_size=1)
        self.push(queue, 1)
        self.ack(self.take(queue), "dlq")
        assert self.push(queue, 2)[0].depth == 1

    @needs("cap")
    def test_h04_an_auto_ack_pop_makes_room(self) -> None:
        """So does every way of settling. C-06, C-19, INV-CAPACITY."""
        queue = self.queue(max_queue_size=1)
        self.push(queue, 1)
        self.take(queue, auto_ack=True)
        assert self.push(queue, 2)[0].depth == 1

    @needs("cap")
    def test_h05_a_limit_below_the_depth_loses_nothing(self) -> None:
        """Pushes wait until the queue has drained below it.

        C-06, C-11, INV-CAPACITY, INV-NO-LOSS.
        """
        queue = self.queue(max_queue_size=5)
        self.push(queue, *range(5))
        self.target.configure(queue, {"max_queue_size": 2})
        for left in (5, 4, 3, 2):
            assert self.full(queue, 9).depth == left
            self.settle(self.take(queue))
        assert self.push(queue, 5)[0].depth == 2
        assert self.drain(queue) == [4, 5]

    @needs("cap", "sub_new")
    def test_h05_a_late_group_may_lift_the_depth_over_the_limit(self) -> None:
        """Only pushes are refused, never a reader. C-06, C-07, INV-CAPACITY."""
        queue = self.queue(max_queue_size=2)
        self.push(queue, 1, 2)
        self.drain(queue)
        self.push(queue, 3, 4)
        late = self.name("late")
        claim = self.take(queue, 4, group=late)
        assert self.full(queue, 5).depth == 4
        self.settle(claim)
        self.drain(queue)
        assert self.push(queue, 5)[0].depth == 1
