"""C08 and H10: what retention removes, and what it must not."""

from __future__ import annotations

from typing import Any

from queen_sync import model as m
from queen_sync.conformance.base import needs, values_of
from queen_sync.conformance.cases.aging import Upkeep


class RetentionCases(Upkeep):
    def stored(self, queue: str) -> list[Any]:
        """Return all that is stored in a queue's default partition."""
        return self.drain(queue, group=self.name("look"), partition="Default")

    @needs("retention")
    def test_h10_retention_removes_what_all_groups_have_settled(self) -> None:
        """What one group still needs stays. C-09, INV-RETENTION, QA-7, O-14, O-44."""
        queue = self.queue(retention_enabled=True, completed_retention_seconds=self.unit)
        one, two = self.name("one"), self.name("two")
        self.push(queue, 1, 2, 3)
        self.drain(queue, group=one)
        self.settle(self.take(queue, group=two))
        self.rest(self.unit)
        assert self.stored(queue) == [2, 3]
        assert self.drain(queue, group=two) == [2, 3]

    @needs("retention")
    def test_h10_nothing_is_removed_before_its_time(self) -> None:
        """Settled means for as long as was said. C-09, INV-RETENTION."""
        queue = self.queue(retention_enabled=True, completed_retention_seconds=2 * self.unit)
        self.push(queue, 1, 2)
        self.settle(self.take(queue))
        self.target.sweep()
        self.advance(self.unit)
        self.settle(self.take(queue))
        self.target.sweep()
        self.advance(self.unit - self.tick)
        self.target.sweep()
        group = self.name("look")
        assert values_of(self.pop(queue, 9, group=group)) == [1, 2]

    @needs("retention")
    def test_h10_a_group_that_never_came_back_keeps_its_messages(self) -> None:
        """Registered is enough, also without a pop of that partition. INV-RETENTION, O-44."""
        queue = self.queue(retention_enabled=True, completed_retention_seconds=self.unit)
        group = self.name("group")
        self.pop(queue, group=group)
        self.push(queue, 1, partition="p")
        assert self.drain(queue) == [1]
        self.rest(self.unit)
        assert self.drain(queue, group=group) == [1]

    @needs("retention")
    def test_h10_while_nobody_reads_nothing_is_completed(self) -> None:
        """The first group still gets all of it. C-09, INV-RETENTION, O-44."""
        queue = self.queue(retention_enabled=True, completed_retention_seconds=self.unit)
        self.push(queue, 1)
        self.rest(self.unit)
        assert self.drain(queue) == [1]

    @needs("retention")
    def test_h10_a_group_that_comes_late_holds_what_is_left(self) -> None:
        """What was settled before it came is needed again. C-07, INV-RETENTION, O-44."""
        queue = self.queue(retention_enabled=True, completed_retention_seconds=2 * self.unit)
        late = self.name("late")
        self.push(queue, 1, 2)
        self.drain(queue)
        self.target.sweep()
        self.advance(self.unit)
        self.settle(self.take(queue, group=late))
        self.rest(self.unit)
        assert self.drain(queue, group=late) == [2]

    @needs("retention", "seek")
    def test_h10_a_seek_back_begins_the_time_anew(self) -> None:
        """Settled again is settled since then. C-09, C-20, INV-RETENTION."""
        queue = self.queue(retention_enabled=True, completed_retention_seconds=2 * self.unit)
        self.push(queue, 1)
        self.drain(queue)
        self.target.sweep()
        self.advance(self.unit)
        self.target.seek(m.Seek(queue=queue, to="start"))
        assert self.drain(queue) == [1]
        self.target.sweep()
        self.advance(self.unit + self.tick)
        self.target.sweep()
        assert self.stored(queue) == [1]

    @needs("retention")
    def test_h10_retention_that_is_switched_off_removes_nothing(self) -> None:
        """Whatever else is set. C-09, INV-RETENTION, QA-7."""
        queue = self.queue(
            retention_enabled=True,
            completed_retention_seconds=self.unit,
            retention_seconds=self.unit,
        )
        self.target.configure(queue, {"retention_enabled": False})
        self.push(queue, 1, 2)
        self.settle(self.take(queue))
        self.rest(self.unit)
        assert self.stored(queue) == [1, 2]
        assert list(self.target.removals(queue)) == []

    @needs("retention")
    def test_h10_retention_by_age_removes_unread_messages_too(self) -> None:
        """That is what it was told; groups move past and get nothing twice.

        C-09, INV-RETENTION, INV-DURABLE-ACK, QA-7.
        """
        queue = self.queue(retention_enabled=True, retention_seconds=2 * self.unit)
        self.push(queue, 1, 2, 3)
        claim = self.take(queue, 3)
        self.ack(claim, only=[1])
        self.ack(claim, "failed", only=[0, 2])
        self.advance(self.unit)
        self.push(queue, 4, 5)
        self.advance(self.unit)
        assert self.swept(queue) == 3
        assert self.drain(queue) == [4, 5]
        assert self.stored(queue) == [4, 5]

    @needs("retention")
    def test_h10_retention_by_age_is_not_early(self) -> None:
        """To the instant. C-09, INV-RETENTION."""
        queue = self.queue(retention_enabled=True, retention_seconds=self.unit)
        self.push(queue, 1)
        self.advance(self.unit - self.tick)
        assert self.swept(queue) == 0
        self.advance(self.tick)
        assert self.swept(queue) == 1
        assert not self.pop(queue)

    @needs("retention")
    def test_h10_nothing_is_removed_from_under_a_live_lease(self) -> None:
        """Nor anything behind it; what lies before it may go. C-09, INV-RETENTION, O-44."""
        queue = self.queue(
            retention_enabled=True, retention_seconds=self.unit, lease_seconds=3 * self.unit
        )
        group = self.name("group")
        self.push(queue, *range(5))
        self.settle(self.take(queue, 2))
        claim = self.take(queue, 2)
        self.pop(queue, group=group, auto_ack=True)
        self.advance(self.unit)
        assert self.swept(queue) == 2
        assert {answer.status for answer in self.ack(claim)} == {"completed"}
        assert self.swept(queue) == 3
        assert not self.pop(queue)
        assert not self.pop(queue, group=group)

    @needs("retention")
    def test_h10_an_ack_of_a_removed_message_finds_nothing(self) -> None:
        """Its name and its id are free, its place is not: seqs go on. C-04, C-16, INV-ORDER."""
        queue = self.queue(
            retention_enabled=True, retention_seconds=self.unit, lease_seconds=self.unit
        )
        self.push(queue, 1, 2, ids=["x", "y"])
        late = self.take(queue)
        self.advance(self.unit)
        self.target.sweep()
        assert self.ack(late)[0].code == "MESSAGE_NOT_FOUND"
        assert self.push(queue, 3)[0].seq == 3
        assert self.drain(queue) == [3]

    @needs("retention", "seek", "browse")
    def test_h10_positions_stay_within_what_is_stored(self) -> None:
        """Of seeks, new groups and the lag alike. C-20, INV-MONOTONIC-CURSOR, INV-RETENTION."""
        queue, group = self.queue(retention_enabled=True, retention_seconds=self.unit), "g"
        self.push(queue, 1, 2)
        self.pop(queue, group=group, auto_ack=True)
        self.advance(self.unit)
        self.push(queue, 3)
        self.target.sweep()
        assert self.lag(queue, group) == 1
        self.target.seek(m.Seek(queue=queue, group=group, to="start"))
        assert self.lag(queue, group) == 1
        assert self.drain(queue, group=group) == [3]

    @needs("retention")
    def test_c08_an_id_is_free_again_once_its_message_is_gone(self) -> None:
        """Retention removes the message, and its id with it. C-16, C-09, INV-DEDUP."""
        queue = self.queue(retention_enabled=True, completed_retention_seconds=self.unit)
        (first,) = self.push(queue, 1, ids=["x"])
        assert self.drain(queue) == [1]
        assert self.push(queue, 1, ids=["x"])[0].status == "duplicate"
        self.rest(self.unit)
        (again,) = self.push(queue, 2, ids=["x"])
        assert again.status == "queued"
        assert again.id != first.id
        assert self.push(queue, 2, ids=["x"])[0].id == again.id
        assert self.drain(queue) == [2]

    @needs("retention")
    def test_c08_the_servers_own_id_is_a_name_like_any_other_once_it_is_gone(self) -> None:
        """It names no stored message any more. C-16, INV-DEDUP."""
        queue = self.queue(retention_enabled=True, retention_seconds=self.unit)
        (first,) = self.push(queue, 1)
        self.advance(self.unit)
        self.target.sweep()
        (again,) = self.push(queue, 2, ids=[first.id])
        assert (again.status, again.seq) == ("queued", 2)
