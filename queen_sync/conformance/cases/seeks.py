"""G10: a group that is moved to another place."""

from __future__ import annotations

from typing import Any, Literal

import pytest

from queen_sync import model as m
from queen_sync.conformance.base import Cases, needs, values_of
from queen_sync.errors import LeaseLost, PartitionNotFound, QueueFull, QueueNotFound

Place = Literal["start", "end", "time"]
MANY_PARTITIONS = 200


class SeekCases(Cases):
    def seek(self, queue: str, to: Place = "time", **wanted: Any) -> int:
        return self.target.seek(m.Seek(queue=queue, to=to, **wanted))

    @needs("seek")
    def test_g10_a_group_that_is_sought_to_the_start_gets_everything_again(self) -> None:
        """Once, in order, after any number of empty pops; other groups get nothing.

        C-20, INV-SUBSCRIBE, INV-FANOUT, O-39, O-40.
        """
        queue, group, other = self.name(), self.name("group"), self.name("other")
        items = [m.NewMessage.of(queue, n, partition=f"p{n % 5}") for n in range(20)]
        self.target.push(items)
        for each in (group, other):
            assert sorted(self.drain(queue, group=each)) == list(range(20))
        assert not any(self.pop(queue, group=group) for _ in range(10))
        # The five, and the partition that every queue has.
        assert self.seek(queue, "start", group=group) == 6
        for place in range(5):
            found = self.drain(queue, 3, group=group, partition=f"p{place}")
            assert found == list(range(place, 20, 5))
        assert not self.pop(queue, group=group)
        assert not self.pop(queue, group=other)

    @needs("seek")
    def test_g10_a_seek_to_a_time_begins_exactly_there(self) -> None:
        """The next message is the first that was created at the instant or after it.

        C-20, INV-SUBSCRIBE, O-39, QB-5.
        """
        queue = self.name()
        for n in range(4):
            self.push(queue, n)
            self.advance(self.tick)
        claim = self.take(queue, 4)
        self.settle(claim)
        instants = [message.created_us for message in claim.messages]
        for from_us, expected in (
            (instants[2], [2, 3]),
            (instants[2] + 1, [3]),
            (instants[0], [0, 1, 2, 3]),
            (0, [0, 1, 2, 3]),
            (instants[3] + 1, []),
        ):
            assert self.seek(queue, from_us=from_us) == 1
            assert self.drain(queue) == expected

    @needs("seek")
    def test_g10_a_seek_forward_skips_what_lies_between(self) -> None:
        """It is settled for that group, and for no other. C-20, INV-FANOUT, INV-SUBSCRIBE."""
        queue, group = self.name(), self.name("group")
        for n in range(4):
            self.push(queue, n)
            self.advance(self.tick)
        claim = self.take(queue, 4)
        self.ack(claim, "retry")
        self.seek(queue, from_us=claim.messages[2].created_us)
        assert self.drain(queue) == [2, 3]
        assert self.drain(queue, group=group) == [0, 1, 2, 3]

    @needs("seek")
    def test_g10_a_seek_to_the_end_leaves_what_is_pushed_later(self) -> None:
        """An end beyond what is stored is the end of what is stored. C-20, INV-SUBSCRIBE."""
        queue = self.name()
        places: list[tuple[Place, int | None]] = [("end", None), ("time", 2**52)]
        for to, from_us in places:
            self.push(queue, "old", "old")
            self.seek(queue, to, from_us=from_us)
            assert not self.pop(queue)
            self.push(queue, "new")
            assert self.drain(queue) == ["new"]

    @needs("seek", "browse")
    def test_g10_the_lag_follows_a_seek(self) -> None:
        """All of it, none of it, or from there on. INV-MONOTONIC-CURSOR, QB-5."""
        queue, group = self.name(), self.name("group")
        self.push(queue, *range(5))
        self.settle(self.take(queue, 2, group=group))
        steps: list[tuple[Place, int]] = [("end", 0), ("start", 5), ("end", 0)]
        for to, lag in steps:
            self.seek(queue, to, group=group)
            assert self.lag(queue, group) == lag

    @needs("seek", "extend", "release")
    def test_g10_leases_end_where_a_group_is_moved(self) -> None:
        """What was held can neither be acked, extended nor given back.

        C-20, C-04, INV-FENCE, O-07.
        """
        queue = self.name()
        self.push(queue, 1, 2)
        claim = self.take(queue, 2)
        self.ack(claim, only=[0])
        self.seek(queue, "start")
        assert {answer.code for answer in self.ack(claim)} == {"LEASE_LOST"}
        with pytest.raises(LeaseLost):
            self.target.extend(str(claim.lease_id), 60)
        with pytest.raises(LeaseLost):
            self.target.release(str(claim.lease_id))
        assert self.drain(queue) == [1, 2]

    @needs("seek")
    def test_g10_a_lease_in_another_partition_goes_on(self) -> None:
        """Only the partition that was named is moved. C-20, INV-FENCE."""
        queue = self.name()
        for partition in ("a", "b"):
            self.push(queue, f"{partition}1", f"{partition}2", partition=partition)
        claim = self.take(queue, 4, max_partitions=2)
        assert self.seek(queue, "start", partition="a") == 1
        outcomes = {
            message.partition: answer.code
            for message, answer in zip(claim.messages, self.ack(claim), strict=True)
        }
        assert outcomes == {"a": "LEASE_LOST", "b": None}
        assert self.drain(queue) == ["a1", "a2"]

    @needs("seek")
    def test_g10_the_last_closed_lease_is_forgotten(self) -> None:
        """A repeat of its acks must not pass for one of the new round. C-20, C-04, INV-FENCE."""
        queue = self.name()
        self.push(queue, 1)
        claim = self.take(queue)
        self.settle(claim)
        self.seek(queue, "start")
        assert self.ack(claim)[0].code == "LEASE_LOST"
        assert self.drain(queue) == [1]

    @needs("seek")
    def test_g10_attempts_begin_afresh_behind_a_seek(self) -> None:
        """Failures, errors and what was settled out of order are forgotten. C-20, INV-RETRY."""
        queue = self.queue(retry_limit=1)
        self.push(queue, 1, 2, 3)
        claim = self.take(queue, 3)
        self.ack(claim, "failed", only=[0], error="boom")
        self.ack(claim, only=[1])
        self.seek(queue, "start")
        again = self.take(queue, 3)
        counts = [(x.value, x.delivery_count, x.failure_count, x.error) for x in again.messages]
        assert counts == [(n, 1, 0, None) for n in (1, 2, 3)]

    @needs("seek", "retrydelay")
    def test_g10_a_retry_delay_does_not_outlive_a_seek(self) -> None:
        """Nothing has failed in the new round. C-20, INV-LIVENESS, O-39."""
        queue = self.queue(retry_delay_milliseconds=100_000)
        self.push(queue, 1)
        self.ack(self.take(queue), "failed")
        assert not self.pop(queue)
        self.seek(queue, "start")
        assert self.drain(queue) == [1]

    @needs("seek", "dlq")
    def test_g10_a_seek_back_takes_dead_letters_out_of_the_list(self) -> None:
        """They come again in their place; those before it stay. C-20, INV-DLQ."""
        queue, other = self.name(), self.name("other")
        for n in range(3):
            self.push(queue, n)
            self.advance(self.tick)
        claim = self.take(queue, 3)
        self.ack(claim, "dlq")
        self.ack(self.take(queue, 3, group=other), "dlq")
        self.seek(queue, from_us=claim.messages[1].created_us)
        assert [letter.payload for letter in self.dead(queue, group=m.QUEUE_MODE)] == [b"0"]
        assert len(self.dead(queue, group=other)) == 3
        assert self.drain(queue) == [1, 2]

    @needs("seek")
    def test_g10_a_seek_registers_a_group_that_was_unknown(self) -> None:
        """In partitions made later it begins as any group does. C-20, C-07, INV-SUBSCRIBE."""
        queue, group = self.name(), self.name("group")
        self.push(queue, "old")
        self.seek(queue, "end", group=group)
        self.push(queue, "new")
        self.push(queue, "b", partition="b")
        assert sorted(self.drain(queue, group=group)) == ["b", "new"]
        late = m.Subscription(mode="from", from_us=5)
        assert self.pop(queue, group=group, subscription=late).subscription_ignored

    @needs("seek", "sub_from")
    def test_g10_a_seek_goes_before_where_the_group_began(self) -> None:
        """A beginning is where a group starts, not how far it may be moved. C-20, C-07."""
        queue, group = self.name(), self.name("group")
        self.push(queue, "old")
        future = m.Subscription(mode="from", from_us=2**52)
        assert not self.pop(queue, group=group, subscription=future)
        self.seek(queue, "start", group=group)
        self.push(queue, "new")
        assert self.drain(queue, group=group) == ["old", "new"]

    @needs("seek")
    def test_g10_a_seek_names_what_is_missing(self) -> None:
        """Neither a queue nor a partition is made by it. INV-NO-500."""
        queue = self.queue(retry_limit=3)
        with pytest.raises(QueueNotFound):
            self.seek(self.name(), "start")
        with pytest.raises(PartitionNotFound):
            self.seek(queue, "start", partition="nowhere")

    @needs("seek", "cap")
    def test_g10_a_seek_back_may_lift_the_depth_over_the_limit(self) -> None:
        """Only pushes are refused by it; a seek to the end makes room. C-06, INV-CAPACITY."""
        queue = self.queue(max_queue_size=2)
        self.push(queue, 1, 2)
        self.drain(queue)
        self.push(queue, 3)
        self.seek(queue, "start")
        with pytest.raises(QueueFull) as caught:
            self.push(queue, 4)
        assert caught.value.depth == 3
        self.seek(queue, "end")
        assert self.push(queue, 4)[0].depth == 1

    @needs("seek")
    def test_g10_partitions_without_news_hide_no_other(self) -> None:
        """Among 200 that a seek has emptied, the one new message comes at once. C-20, O-38."""
        queue = self.name()
        self.target.push(
            [m.NewMessage.of(queue, n, partition=f"p{n}") for n in range(MANY_PARTITIONS)]
        )
        self.seek(queue, "end")
        assert not self.pop(queue)
        self.push(queue, "new", partition=f"p{MANY_PARTITIONS // 2}")
        assert values_of(self.pop(queue)) == ["new"]
