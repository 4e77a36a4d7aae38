"""F13 to F15: dead letters that are given back, kept, or thrown away."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pytest

from queen_sync import model as m
from queen_sync.conformance.base import Cases, needs, values_of
from queen_sync.errors import QueueFull


class RedriveCases(Cases):
    def bury(self, queue: str, count: int = 1, **wanted: Any) -> m.Claim:
        """Dead-letter the next messages, in one claim."""
        claim = self.take(queue, count, **wanted)
        assert all(answer.dead_lettered for answer in self.ack(claim, "dlq"))
        return claim

    def redrive(self, queue: str, **wanted: Any) -> int:
        return self.target.redrive(m.DeadLetterFilter(queue=queue, **wanted))

    def buried(self, queue: str, *values: Any, **wanted: Any) -> None:
        """Push messages and dead-letter them."""
        self.push(queue, *values, **wanted)
        self.bury(queue, len(values))

    @needs("dlq", "redrive")
    def test_f13_a_redriven_message_comes_again_before_unread_ones(self) -> None:
        """To its group alone, with fresh attempts, and it leaves the list.

        C-12, INV-DLQ, INV-FANOUT, PL-5, O-40.
        """
        queue, other = self.queue(retry_limit=0), self.name("other")
        self.push(queue, 1, 2, 3)
        self.drain(queue, group=other)
        claim = self.take(queue)
        self.ack(claim, "failed", error="boom")
        self.settle(self.take(queue))
        assert self.redrive(queue) == 1
        assert self.dead(queue) == []
        again = self.take(queue)
        (message,) = again.messages
        assert (message.value, message.id) == (1, claim.messages[0].id)
        assert (message.delivery_count, message.failure_count, message.error) == (1, 0, None)
        assert message.created_us == claim.messages[0].created_us
        self.settle(again)
        assert self.drain(queue) == [3]
        assert not self.pop(queue, group=other)
        assert self.redrive(queue) == 0

    @needs("dlq", "redrive")
    def test_f13_redriven_messages_come_in_order_and_among_themselves(self) -> None:
        """In seq order, whatever the order of their deaths, and in claims of their own. C-12."""
        queue = self.name()
        self.push(queue, *range(6))
        claim = self.take(queue, 4)
        for place in (3, 0, 2):
            self.ack(claim, "dlq", only=[place])
            self.advance(self.tick)
        self.ack(claim, only=[1])
        assert self.redrive(queue) == 3
        first = self.take(queue, 2)
        assert values_of(first) == [0, 2]
        self.settle(first)
        second = self.pop(queue, 9)
        assert values_of(second) == [3]
        self.settle(second)
        assert self.drain(queue) == [4, 5]

    @needs("dlq", "redrive")
    def test_f13_a_failing_redriven_message_holds_its_lane(self) -> None:
        """It stays the head, before unread ones, until it is settled. C-12, C-01, INV-RETRY."""
        queue = self.queue(retry_limit=2)
        self.buried(queue, "dead")
        self.push(queue, "unread")
        self.redrive(queue)
        for number in (1, 2):
            claim = self.pop(queue, 9)
            assert values_of(claim) == ["dead"]
            assert claim.messages[0].delivery_count == number
            assert self.ack(claim, "failed", error="again")[0].status == "failed"
        assert self.drain(queue) == ["dead", "unread"]

    @needs("dlq", "redrive", "retrydelay")
    def test_f13_a_retry_delay_of_a_redriven_message_holds_its_lane(self) -> None:
        """As that of any other head does. C-12, C-01, C-02, O-14."""
        queue = self.queue(retry_delay_milliseconds=1000 * self.unit)
        self.buried(queue, "dead")
        self.push(queue, "unread")
        self.redrive(queue)
        self.ack(self.take(queue), "failed")
        assert not self.pop(queue)
        self.advance(self.unit)
        assert self.drain(queue) == ["dead", "unread"]

    @needs("dlq", "redrive", "delay", "window")
    def test_f13_neither_delay_nor_window_holds_a_redriven_message(self) -> None:
        """It has waited long enough; what follows waits as ever. C-12, INV-DELAY, INV-WINDOW."""
        queue = self.name()
        self.buried(queue, "dead")
        self.target.configure(
            queue, {"delayed_processing_seconds": 100, "window_buffer_seconds": 100}
        )
        self.push(queue, "unread")
        assert not self.pop(queue)
        self.redrive(queue)
        assert self.drain(queue) == ["dead"]

    @needs("dlq", "redrive")
    def test_f13_a_second_death_makes_one_dead_letter_again(self) -> None:
        """By failing once too often, or at once; it can be redriven again. C-12, C-02, INV-DLQ."""
        queue = self.queue(retry_limit=1)
        self.buried(queue, 1, ids=["x"])
        self.redrive(queue)
        self.ack(self.take(queue), "failed", error="one")
        assert self.ack(self.take(queue), "failed", error="two")[0].dead_lettered
        (letter,) = self.dead(queue)
        assert (letter.transaction_id, letter.error) == ("x", "two")
        assert (letter.failure_count, letter.delivery_count) == (2, 2)
        assert self.redrive(queue) == 1
        self.bury(queue)
        assert len(self.dead(queue)) == 1
        assert self.redrive(queue) == 1
        assert self.drain(queue) == [1]
        assert self.dead(queue) == []

    @needs("dlq", "redrive")
    def test_f13_a_lease_over_redriven_messages_is_like_any_other(self) -> None:
        """It expires, is charged, fences and remembers. C-12, C-03, C-04, INV-FENCE, INV-RETRY."""
        queue = self.queue(lease_seconds=self.unit, retry_limit=2)
        self.buried(queue, 1, 2)
        self.redrive(queue)
        late = self.take(queue, 2)
        assert not self.pop(queue)
        self.advance(self.unit)
        claim = self.take(queue, 2)
        counts = [(x.value, x.delivery_count, x.failure_count) for x in claim.messages]
        assert counts == [(1, 2, 1), (2, 2, 1)]
        assert {answer.code for answer in self.ack(late)} == {"LEASE_LOST"}
        self.ack(claim, only=[0])
        assert not self.pop(queue)
        (answer,) = self.ack(claim, only=[1])
        assert (answer.status, answer.lease_released) == ("completed", True)
        assert all(answer.already for answer in self.ack(claim))
        assert not self.pop(queue)

    @needs("dlq", "redrive")
    def test_f13_redriving_leaves_a_live_lease_alone(self) -> None:
        """Who works on goes on; the redriven comes with the next claim. C-12, INV-CLAIM."""
        queue = self.name()
        self.buried(queue, "dead")
        self.push(queue, "held", "unread")
        held = self.take(queue)
        assert self.redrive(queue) == 1
        assert not self.pop(queue)
        self.settle(held)
        assert self.drain(queue) == ["dead", "unread"]

    @needs("dlq", "redrive")
    def test_f13_an_auto_ack_pop_takes_redriven_messages_too(self) -> None:
        """First, and once. C-12, C-19."""
        queue = self.name()
        self.buried(queue, "dead")
        self.push(queue, "unread")
        self.redrive(queue)
        found = [values_of(self.pop(queue, 9, auto_ack=True)) for _ in range(3)]
        assert found == [["dead"], ["unread"], []]

    @needs("dlq", "redrive")
    def test_f13_a_filter_says_which_dead_letters_are_meant(self) -> None:
        """By group, partition, transaction id and time of death; a page is no limit. C-12, QB-3."""
        queue, group = self.name(), self.name("group")
        self.push(queue, *range(3), partition="a", ids=["x", "y", "z"])
        self.push(queue, 3, partition="b")
        self.bury(queue, 3, partition="a")
        self.bury(queue, 3, partition="a", group=group)
        self.bury(queue, 1, partition="b")
        filters: Sequence[dict[str, Any]] = [
            {"group": group, "transaction_id": "y"},
            {"partition": "b"},
            {"transaction_id": "x", "limit": 1},
            {"failed_to_us": 1},
            {"limit": 0, "offset": 99},
        ]
        assert [self.redrive(queue, **wanted) for wanted in filters] == [1, 1, 2, 0, 3]
        assert self.redrive(self.name()) == 0
        # Which partition has waited longer depends on whether time has passed between the calls.
        for partition, expected in (("a", [0, 1, 2]), ("b", [3])):
            assert self.drain(queue, 1, group=group, partition=partition) == expected
            assert self.drain(queue, partition=partition) == expected

    @needs("dlq", "redrive", "browse")
    def test_f13_redriven_messages_count_as_lag(self) -> None:
        """Until they are settled, also while they are leased. C-12, INV-MONOTONIC-CURSOR."""
        queue, group = self.name(), self.name("group")
        self.push(queue, 1, 2, 3)
        self.bury(queue, 2, group=group)
        assert self.lag(queue, group) == 1
        self.redrive(queue)
        assert self.lag(queue, group) == 3
        claim = self.take(queue, 2, group=group)
        assert self.lag(queue, group) == 3
        self.settle(claim)
        assert self.lag(queue, group) == 1

    @needs("dlq", "redrive", "cap")
    def test_f13_redriving_may_lift_the_depth_over_the_limit(self) -> None:
        """Only pushes are refused by it. C-06, C-12, INV-CAPACITY."""
        queue = self.queue(max_queue_size=1)
        self.buried(queue, 1)
        self.push(queue, 2)
        self.redrive(queue)
        with pytest.raises(QueueFull) as caught:
            self.push(queue, 3)
        assert caught.value.depth == 2
        self.settle(self.take(queue))
        self.settle(self.take(queue))
        assert self.push(queue, 3)[0].depth == 1

    @needs("dlq", "redrive", "retention")
    def test_f13_a_message_that_is_stored_no_more_comes_from_its_copy(self) -> None:
        """And is settled as ever, by its name or its id. C-12, C-09, INV-DLQ."""
        queue = self.queue(retention_enabled=True, retention_seconds=self.unit)
        self.buried(queue, "a", "b", ids=["x", "y"])
        self.advance(self.unit)
        self.target.sweep()
        self.push(queue, "new", ids=["x"])
        assert self.redrive(queue) == 2
        claim = self.pop(queue, 9)
        assert values_of(claim) == ["a", "b"]
        assert [answer.status for answer in self.ack(claim, only=[0])] == ["completed"]
        by_id = m.Ack(
            transaction_id=claim.messages[1].id,
            partition_id=claim.messages[1].partition_id,
            lease_id=claim.lease_id,
        )
        assert [answer.status for answer in self.target.ack([by_id])] == ["completed"]
        assert self.drain(queue) == ["new"]

    @needs("dlq", "redrive", "retention")
    def test_f13_a_name_that_was_used_twice_is_never_twice_in_a_claim(self) -> None:
        """Both lives of a transaction id died: each is settled by itself. C-12, C-16, C-04."""
        queue = self.queue(retention_enabled=True, retention_seconds=self.unit)
        for life in ("first", "second"):
            self.buried(queue, life, ids=["x"])
            self.advance(self.unit)
            self.target.sweep()
        assert self.redrive(queue, transaction_id="x") == 2
        assert self.drain(queue) == ["first", "second"]

    @needs("dlq", "redrive", "seek")
    def test_f13_a_seek_back_over_a_redriven_message_brings_it_once(self) -> None:
        """In its place. C-12, C-20."""
        queue = self.name()
        self.push(queue, 1, 2, 3)
        self.settle(self.take(queue))
        self.bury(queue)
        self.redrive(queue)
        self.target.seek(m.Seek(queue=queue, to="start"))
        assert self.drain(queue) == [1, 2, 3]

    @needs("dlq", "redrive", "seek")
    def test_f13_a_seek_past_a_redriven_message_skips_it(self) -> None:
        """What lies before the new position is settled. C-12, C-20."""
        queue = self.name()
        self.push(queue, 1, 2, 3)
        self.bury(queue)
        self.redrive(queue)
        self.target.seek(m.Seek(queue=queue, to="end"))
        assert not self.pop(queue)
        assert self.dead(queue) == []

    @needs("dlq", "redrive", "seek", "retention")
    def test_f13_a_seek_cannot_reach_what_is_stored_no_more(self) -> None:
        """Redriven, it still comes first; dead, it stays on the list. C-12, C-20, INV-DLQ."""
        queue = self.queue(retention_enabled=True, retention_seconds=self.unit)
        self.buried(queue, "a", "b", ids=["x", "y"])
        self.advance(self.unit)
        self.target.sweep()
        self.push(queue, "new")
        self.redrive(queue, transaction_id="x")
        self.target.seek(m.Seek(queue=queue, to="start"))
        assert [letter.transaction_id for letter in self.dead(queue)] == ["y"]
        assert self.drain(queue) == ["a", "new"]

    @needs("dlq", "redrive", "evict")
    def test_f13_the_age_of_a_redriven_message_counts_from_the_redrive(self) -> None:
        """It has its whole time again, and no more. C-12, C-09, INV-EVICT."""
        queue = self.queue(ttl_seconds=2 * self.unit)
        self.buried(queue, "dead")
        self.advance(2 * self.unit)
        self.redrive(queue)
        self.advance(self.unit)
        claim = self.take(queue)
        assert values_of(claim) == ["dead"]
        self.ack(claim, "retry")
        self.advance(self.unit)
        assert not self.pop(queue)
        assert self.dead(queue) == []

    @needs("dlq", "redrive", "delete")
    def test_f13_a_deleted_group_has_nothing_to_redrive(self) -> None:
        """Its dead letters and what was given back go with it. C-12, INV-INTEGRITY."""
        queue = self.name()
        self.buried(queue, 1, 2)
        self.redrive(queue, transaction_id=self.dead(queue)[0].transaction_id)
        self.target.delete_group(m.QUEUE_MODE, queue=queue)
        assert self.redrive(queue) == 0
        assert self.drain(queue) == [1, 2]

    @needs("dlq", "redrive", "txn", "cap")
    def test_f13_a_refused_transaction_gives_back_what_it_settled(self) -> None:
        """Redriven messages are no exception to all or nothing. C-12, C-15, INV-ATOMIC."""
        queue, full = self.name(), self.queue(max_queue_size=1)
        self.buried(queue, 1)
        self.redrive(queue)
        self.push(full, 0)
        claim = self.take(queue)
        (message,) = claim.messages
        ack = m.Ack(transaction_id=message.transaction_id, lease_id=claim.lease_id)
        with pytest.raises(QueueFull):
            self.target.transact(m.Transaction(operations=[ack, m.NewMessage.of(full, 1)]))
        done = self.target.transact(m.Transaction(operations=[ack]))
        assert [result.status for result in done.results] == ["completed"]
        assert not self.pop(queue)

    @needs("dlq", "retention")
    def test_f14_dead_letters_survive_the_retention_of_messages(self) -> None:
        """They are copies of their own. C-09, INV-DLQ, INV-RETENTION."""
        queue = self.queue(
            retention_enabled=True,
            completed_retention_seconds=self.unit,
            retention_seconds=2 * self.unit,
        )
        self.push(queue, 1, 2)
        self.bury(queue)
        self.ack(self.take(queue), "dlq")
        self.target.sweep()
        self.advance(2 * self.unit)
        self.target.sweep()
        assert not self.pop(queue, group=self.name("late"))
        assert [letter.payload for letter in self.dead(queue)] == [b"1", b"2"]

    @needs("dlq", "redrive")
    def test_f15_purged_dead_letters_are_gone_for_good(self) -> None:
        """Those that the filter finds, however small its page. INV-DLQ, C-12, QB-3."""
        queue, group = self.name(), self.name("group")
        self.push(queue, *range(4), ids=["a", "b", "c", "d"])
        self.bury(queue, 4)
        self.bury(queue, 4, group=group)
        wanted = m.DeadLetterFilter(queue=queue, group=group, transaction_id="b")
        assert self.target.purge(wanted) == 1
        assert self.target.purge(wanted) == 0
        assert self.target.purge(m.DeadLetterFilter(queue=queue, group=group, limit=1)) == 3
        assert len(self.dead(queue)) == 4
        assert self.redrive(queue, group=group) == 0
        assert not self.pop(queue, group=group)

    @needs("dlq", "redrive")
    def test_f15_what_was_given_back_is_no_dead_letter_to_purge(self) -> None:
        """It is work again; and a purged message keeps its transaction id. C-12, C-16."""
        queue = self.name()
        self.buried(queue, 1, 2, ids=["x", "y"])
        self.redrive(queue, transaction_id="x")
        assert self.target.purge(m.DeadLetterFilter(queue=queue)) == 1
        assert self.push(queue, 2, ids=["y"])[0].status == "duplicate"
        assert self.drain(queue) == [1]
