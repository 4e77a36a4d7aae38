"""G: independent readers of one queue, and where each begins."""

from __future__ import annotations

from typing import Any

from queen_sync import model as m
from queen_sync.conformance.base import Cases, needs, values_of

NEW = m.Subscription(mode="new")


class GroupCases(Cases):
    def test_g01_every_group_and_queue_mode_get_everything_in_one_order(self) -> None:
        """Three groups and the consumers without one. INV-FANOUT, QB-1, PLD-6."""
        queue = self.name()
        self.push(queue, *range(20))
        groups = [self.name("group") for _ in range(3)]
        assert [self.drain(queue, 3, group=group) for group in groups] == [list(range(20))] * 3
        assert self.drain(queue, 7) == list(range(20))

    def test_g02_a_lease_of_one_group_blocks_no_other(self) -> None:
        """The same partition, at the same time, for each of them.

        INV-FANOUT, INV-CLAIM, PLD-6, O-03.
        """
        queue = self.name()
        self.push(queue, 1, 2)
        claims = [self.take(queue, 2, group=self.name("group")) for _ in range(3)]
        claims.append(self.take(queue, 2))
        assert len({claim.lease_id for claim in claims}) == 4
        for claim in claims:
            self.settle(claim)

    def test_g03_failures_and_expiries_of_one_group_leave_the_other_alone(self) -> None:
        """The other sees each message once, first time, no error. INV-FANOUT, QB-3."""
        queue = self.queue(lease_seconds=self.unit, retry_limit=3)
        one, two = self.name("one"), self.name("two")
        self.push(queue, 1, 2, 3)
        claim = self.take(queue, 3, group=one)
        self.ack(claim, "failed", only=[0])
        self.ack(claim, "dlq", only=[1])
        self.advance(self.unit)
        self.take(queue, 2, group=one)
        claim = self.take(queue, 3, group=two)
        assert values_of(claim) == [1, 2, 3]
        assert {(x.delivery_count, x.failure_count, x.error) for x in claim.messages} == {
            (1, 0, None)
        }
        self.settle(claim)

    def test_g04_a_late_group_begins_with_everything_that_is_stored(self) -> None:
        """What others have consumed is still there for it. INV-SUBSCRIBE, QB-2, C-07."""
        queue = self.name()
        self.push(queue, 1, 2)
        assert self.drain(queue) == [1, 2]
        assert self.drain(queue, group=self.name("late")) == [1, 2]

    @needs("sub_new")
    def test_g05_a_new_group_gets_what_is_pushed_after_its_first_pop(self) -> None:
        """Nothing older; everything younger, in partitions made later too.

        C-07, INV-SUBSCRIBE, O-37, QB-2.
        """
        queue, group = self.name(), self.name("group")
        self.push(queue, "old", partition="a")
        assert not self.pop(queue, group=group, subscription=NEW)
        self.push(queue, "a", partition="a")
        self.push(queue, "b", partition="b")
        assert sorted(self.drain(queue, group=group, subscription=NEW)) == ["a", "b"]
        assert self.drain(queue, group=self.name("all"), partition="a") == ["old", "a"]

    @needs("sub_new")
    def test_g06_a_new_group_of_an_empty_queue_misses_nothing(self) -> None:
        """An empty first pop is remembered. C-07, INV-SUBSCRIBE, O-37."""
        queue, group = self.queue(retry_limit=3), self.name("group")
        assert not self.pop(queue, group=group, subscription=NEW)
        self.push(queue, 1)
        assert self.drain(queue, group=group, subscription=NEW) == [1]

    @needs("sub_new")
    def test_g06_a_new_group_may_come_before_its_queue(self) -> None:
        """The queue takes the subscription over when it is made.

        C-07, INV-SUBSCRIBE, O-37, O-40.
        """
        queue, group = self.name(), self.name("group")
        assert not self.pop(queue, group=group, subscription=NEW)
        self.push(queue, 1)
        self.push(queue, 2, partition="b")
        assert sorted(self.drain(queue, group=group)) == [1, 2]

    @needs("sub_from")
    def test_g07_a_group_from_a_time_begins_exactly_there(self) -> None:
        """What was created at the instant itself is included. C-07, INV-SUBSCRIBE, QB-2."""
        queue, group = self.name(), self.name("group")
        self.push(queue, "before")
        self.advance(self.tick)
        self.push(queue, "at")
        self.advance(self.tick)
        self.push(queue, "after")
        self.push(queue, "other", partition="b")
        instants = [x.created_us for x in self.take(queue, 3, partition="Default").messages]
        start = m.Subscription(mode="from", from_us=instants[1])
        claim = self.pop(queue, 9, group=group, subscription=start, partition="Default")
        assert values_of(claim) == ["at", "after"]
        assert self.drain(queue, group=group, partition="b") == ["other"]
        just_after = m.Subscription(mode="from", from_us=instants[1] + 1)
        late = self.pop(
            queue, 9, group=self.name("g"), subscription=just_after, partition="Default"
        )
        assert values_of(late) == ["after"]

    @needs("sub_from")
    def test_g07_a_group_from_a_future_time_waits_for_it(self) -> None:
        """What is created before that instant is not its business. C-07, INV-SUBSCRIBE."""
        queue, group = self.name(), self.name("group")
        self.push(queue, "now")
        created = self.take(queue).messages[0].created_us
        start = m.Subscription(mode="from", from_us=created + self.unit * 1_000_000)
        assert not self.pop(queue, group=group, subscription=start)
        self.push(queue, "still too early")
        self.push(queue, "too early", partition="b")
        assert not self.pop(queue, group=group)
        self.advance(self.unit)
        self.push(queue, "in time")
        self.push(queue, "in time", partition="b")
        assert self.drain(queue, group=group) == ["in time", "in time"]

    @needs("sub_new")
    def test_g08_a_later_pop_cannot_move_the_beginning(self) -> None:
        """It is told that its wish was ignored. C-07, INV-SUBSCRIBE."""
        queue, group = self.name(), self.name("group")
        self.push(queue, "old")
        assert not self.pop(queue, group=group, subscription=NEW).subscription_ignored
        everything = m.Subscription(mode="all")
        claim = self.pop(queue, group=group, subscription=everything)
        assert (bool(claim), claim.subscription_ignored) == (False, True)
        assert not self.pop(queue, group=group).subscription_ignored
        self.push(queue, "new")
        claim = self.take(queue, group=group, subscription=everything)
        assert (values_of(claim), claim.subscription_ignored) == (["new"], True)

    @needs("sub_new")
    def test_g08_subscribing_registers_as_a_first_pop_does(self) -> None:
        """The first word counts, whoever says it; the queue may come later. C-07, INV-SUBSCRIBE."""
        for queue in (self.queue(retry_limit=3), self.name()):
            group = self.name("group")
            assert self.target.subscribe(queue, group, NEW)
            assert self.target.subscribe(queue, group, NEW)
            assert not self.target.subscribe(queue, group, m.Subscription())
            assert self.pop(queue, group=group, subscription=m.Subscription()).subscription_ignored

    @needs("delete")
    def test_g11_a_deleted_group_begins_again_as_its_next_pop_says(self) -> None:
        """Progress and leases are gone; an ack under them finds nobody.

        INV-INTEGRITY, INV-FENCE, QB-5.
        """
        queue, group = self.name(), self.name("group")
        self.push(queue, 1, 2)
        held = self.take(queue, group=group)
        assert self.target.delete_group(group, queue=queue) >= 1
        assert self.ack(held)[0].code == "LEASE_LOST"
        assert self.drain(queue, group=group) == [1, 2]
        assert self.target.delete_group(self.name("nobody")) == 0

    @needs("delete", "sub_new")
    def test_g11_a_deleted_group_may_keep_its_beginning(self) -> None:
        """A new group begins again at the instant at which it once did.

        C-07, INV-SUBSCRIBE, QB-5.
        """
        queue, group = self.name(), self.name("group")
        self.push(queue, "old")
        self.advance(self.tick)
        self.pop(queue, group=group, subscription=NEW)
        self.advance(self.tick)
        self.push(queue, 1, 2)
        assert self.drain(queue, group=group) == [1, 2]
        self.target.delete_group(group, queue=queue, keep_subscription=True)
        assert self.drain(queue, group=group) == [1, 2]

    @needs("delete", "sub_from")
    def test_g11_the_recorded_beginning_can_be_set_to_a_time(self) -> None:
        """It moves no position; it counts after the progress was deleted. INV-SUBSCRIBE, QB-5."""
        queue, group = self.name(), self.name("group")
        self.push(queue, 1)
        self.advance(self.tick)
        self.push(queue, 2)
        claim = self.take(queue, 2, group=group)
        self.settle(claim)
        assert self.target.restart_subscription(group, claim.messages[1].created_us) == 1
        assert not self.pop(queue, group=group)
        self.target.delete_group(group, queue=queue, keep_subscription=True)
        assert self.drain(queue, group=group) == [2]

    @needs("delete")
    def test_g11_a_deleted_queue_leaves_no_ghosts(self) -> None:
        """The name is free: no message, option, group or lease of the old one is left.

        INV-INTEGRITY, C-16.
        """
        queue, group = self.queue(retry_limit=9), self.name("group")
        (old,) = self.push(queue, "old", ids=["x"])
        held = self.take(queue, group=group)
        assert self.target.delete_queue(queue)
        assert not self.target.delete_queue(queue)
        assert not self.pop(queue)
        (new,) = self.push(queue, "new", ids=["x"])
        assert (new.status, new.seq) == ("queued", 1)
        assert new.partition_id != old.partition_id
        assert self.ack(held)[0].code == "MESSAGE_NOT_FOUND"
        assert self.target.configure(queue).queue.options.retry_limit == 3
        assert self.drain(queue, group=group) == ["new"]

    @needs("browse", "sub_new")
    def test_g12_the_lag_counts_what_a_group_is_still_owed(self) -> None:
        """Old messages are no lag of a new group; it never goes below zero.

        INV-MONOTONIC-CURSOR, QB-5.
        """
        queue, everything, new = self.name(), self.name("all"), self.name("new")
        self.push(queue, *range(5))
        self.pop(queue, group=new, subscription=NEW)
        claim = self.take(queue, 3, group=everything)
        assert self._lags(queue) == {everything: 5, new: 0}
        self.settle(claim)
        assert self._lags(queue) == {everything: 2, new: 0}
        self.push(queue, 5, partition="b")
        assert self._lags(queue) == {everything: 3, new: 1}
        self.drain(queue, group=new)
        self.drain(queue, group=everything)
        assert self._lags(queue) == {everything: 0, new: 0}

    @needs("browse")
    def test_g12_the_groups_of_a_queue_are_listed_with_their_leases(self) -> None:
        """By name, with where they began and what they hold. INV-SUBSCRIBE, QB-2, QB-5."""
        queue, one, two = self.name(), self.name("a"), self.name("b")
        self.push(queue, 1, partition="x")
        self.push(queue, 2, partition="y")
        self.take(queue, 2, max_partitions=2, group=two)
        self.drain(queue, group=one)
        found = self.target.groups(queue)
        assert [(g.name, g.leased, g.subscription.mode) for g in found] == [
            (one, 0, "all"),
            (two, 2, "all"),
        ]
        assert list(self.target.groups(self.name())) == []

    def _lags(self, queue: str) -> dict[str, Any]:
        return {group.name: group.lag for group in self.target.groups(queue)}
