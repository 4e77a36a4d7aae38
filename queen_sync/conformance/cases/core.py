"""A: one call at a time. Push, pop, order, and what an empty answer means."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable
from typing import Any

import pytest

from queen_sync import model as m
from queen_sync.conformance.base import Cases, needs, values_of
from queen_sync.errors import InvalidRequest, QueueNotFound

DEEP_BACKLOG = 1000


class CoreCases(Cases):
    def test_a01_a_pushed_message_is_popped_as_it_was_pushed(self) -> None:
        """Payload and ids come out as they went in. INV-INTEGRITY, PL-2, PLD-7, PLD-8."""
        queue, trace = self.name(), "0f4ee2b7-6f5b-4c6c-8f0a-1a2b3c4d5e6f"
        item = m.NewMessage.of(
            queue, {"amount": 12}, partition="eu", transaction_id="order/1", trace_id=trace
        )
        (receipt,) = self.target.push([item])
        assert (receipt.status, receipt.seq, receipt.transaction_id) == ("queued", 1, "order/1")
        claim = self.take(queue, 1)
        (message,) = claim.messages
        assert (message.id, message.partition_id) == (receipt.id, receipt.partition_id)
        assert (message.queue, message.partition) == (queue, "eu")
        assert (message.transaction_id, message.trace_id) == ("order/1", trace)
        assert (message.payload, message.delivery_count) == (b'{"amount":12}', 1)
        assert claim.lease_id is not None

    def test_a02_a_pop_of_nothing_is_an_empty_answer(self) -> None:
        """A queue that is unknown or empty gives no messages and no lease. INV-LIVENESS."""
        queue = self.name()
        for _ in range(2):
            claim = self.pop(queue)
            assert not claim
            assert (list(claim.messages), claim.lease_id) == ([], None)
        self.target.configure(queue)
        assert not self.pop(queue)

    @needs("browse")
    def test_a02_a_pop_makes_no_queue(self) -> None:
        """Popping an unknown queue leaves it unknown. INV-LIVENESS, C-07."""
        queue = self.name()
        self.pop(queue)
        assert self.target.queue(queue) is None

    def test_a03_a_push_makes_its_queue_and_partition(self) -> None:
        """Queues and partitions are made on first use and kept apart. INV-INTEGRITY, PL-2."""
        first, second = self.name(), self.name()
        one = self.push(first, "one", partition="lane")[0]
        two = self.push(second, "two", partition="lane")[0]
        assert one.partition_id != two.partition_id
        assert self.drain(first) == ["one"]
        assert self.drain(second) == ["two"]

    def test_a03_a_push_that_names_no_partition_goes_to_default(self) -> None:
        """`Default` is an ordinary partition and the one for pushes that name none.

        C-18, PLD-12.
        """
        queue = self.name()
        self.target.push([m.NewMessage.of(queue, 1)])
        self.push(queue, 2, partition="Default")
        assert self.drain(queue, partition="Default") == [1, 2]

    def test_a04_a_batch_comes_out_in_request_order(self) -> None:
        """200 messages of one request, popped by sevens, keep their order.

        INV-ORDER, INV-FIFO, PLD-2, O-02.
        """
        queue = self.name()
        receipts = self.push(queue, *range(200))
        assert [receipt.seq for receipt in receipts] == list(range(1, 201))
        assert self.drain(queue, 7) == list(range(200))

    def test_a05_a_batch_over_partitions_keeps_each_in_order(self) -> None:
        """Each partition gets its own messages, in order, none of them twice. INV-ORDER, QA-4."""
        queue = self.name()
        items = [m.NewMessage.of(queue, n, partition=f"p{n % 5}") for n in range(50)]
        receipts = self.target.push(items)
        assert [receipt.partition for receipt in receipts] == [item.partition for item in items]
        for place in range(5):
            expected = list(range(place, 50, 5))
            assert self.drain(queue, 4, partition=f"p{place}") == expected

    def test_a06_pushes_of_one_instant_keep_their_order(self) -> None:
        """200 calls at the same instant stand in the order of the calls. INV-ORDER, O-02."""
        queue = self.name()
        seqs = [self.push(queue, n)[0].seq for n in range(200)]
        assert seqs == sorted(set(seqs))
        assert self.drain(queue, 9) == list(range(200))

    def test_a07_a_pop_gives_no_more_than_was_asked_and_from_one_partition(self) -> None:
        """Without more words a claim is one partition's. INV-CLAIM, PLD-1, PLD-2, O-32."""
        queue = self.name()
        for partition in ("a", "b"):
            self.push(queue, 1, 2, 3, partition=partition)
        claim = self.take(queue, 2)
        assert len({message.partition_id for message in claim.messages}) == 1
        assert claim.partition_count == 1

    def test_a07_a_claim_over_partitions_has_one_lease_and_each_closes_by_itself(self) -> None:
        """Several partitions share a lease id and the cap of messages. INV-CLAIM, C-04, O-32."""
        queue = self.name()
        for partition in ("a", "b", "c"):
            self.push(queue, f"{partition}1", f"{partition}2", partition=partition)
        claim = self.take(queue, 5, max_partitions=3)
        assert claim.partition_count == 3
        by_partition = defaultdict(list)
        for place, message in enumerate(claim.messages):
            by_partition[message.partition].append(place)
        first, second, third = by_partition.values()
        assert [len(first), len(second), len(third)] == [2, 2, 1]
        answers = self.ack(claim, only=first)
        assert [answer.lease_released for answer in answers] == [True, True]
        assert not self.pop(queue, partition=claim.messages[second[0]].partition)
        assert all(answer.lease_released for answer in self.ack(claim, only=third))
        assert len(self.pop(queue, 9, max_partitions=3).messages) == 1

    def test_a07_a_claim_takes_no_more_partitions_than_were_asked(self) -> None:
        """The rest stays free for others. INV-CLAIM, PLD-2."""
        queue = self.name()
        for partition in ("a", "b", "c"):
            self.push(queue, 1, partition=partition)
        assert self.take(queue, 2, max_partitions=2).partition_count == 2
        assert len(self.pop(queue, 9, max_partitions=9).messages) == 1

    def test_a08_a_pop_of_a_named_partition_takes_no_other(self) -> None:
        """A partition that is empty or unknown stays empty. INV-INTEGRITY, PL-1."""
        queue = self.name()
        self.push(queue, 1, partition="full")
        assert not self.pop(queue, partition="unknown")
        assert values_of(self.pop(queue, partition="full")) == [1]

    def test_a09_a_deep_backlog_does_not_starve_the_others(self) -> None:
        """Beside 1000 messages, two other partitions are served within three pops.

        C-05, INV-LIVENESS, PLD-3, O-04.
        """
        queue = self.name()
        self.push(queue, *range(DEEP_BACKLOG), partition="deep")
        self.advance(self.tick)
        self.push(queue, "x", partition="x")
        self.push(queue, "y", partition="y")
        served = []
        for _ in range(3):
            claim = self.take(queue)
            served.append(claim.messages[0].partition)
            self.advance(self.tick)
            self.settle(claim)
        assert served[0] == "deep"
        assert sorted(served) == ["deep", "x", "y"]

    def test_a09_a_held_backlog_hides_nobody(self) -> None:
        """Fifty partitions behind a leased one are all found. INV-LIVENESS, PLD-2, O-04."""
        queue = self.name()
        self.push(queue, *range(100), partition="held")
        self.take(queue, 10)
        self.target.push([m.NewMessage.of(queue, n, partition=f"b{n}") for n in range(50)])
        served = {self.pop(queue, 10).messages[0].value for _ in range(50)}
        assert served == set(range(50))

    def test_a10_a_queue_that_was_drained_takes_new_messages(self) -> None:
        """Running dry leaves nothing behind that hides what comes later. INV-LIVENESS, O-40."""
        queue = self.name()
        for n in range(3):
            self.push(queue, n)
            assert self.drain(queue) == [n]
            assert not self.pop(queue)

    def test_a11_what_is_no_message_is_refused_by_name(self) -> None:
        """Missing and malformed parts are errors that name the part. INV-NO-500, PL-15, QB-4."""
        wrong: list[tuple[str, Callable[[], Any]]] = [
            ("queue", lambda: m.NewMessage(queue="")),
            ("queue", lambda: m.NewMessage(queue="__system_events__")),
            ("partition", lambda: m.NewMessage(queue="q", partition="")),
            ("transactionId", lambda: m.NewMessage(queue="q", transaction_id="x" * 256)),
            ("consumerGroup", lambda: m.PopRequest(queue="q", group="g" * 256)),
            ("batch", lambda: m.PopRequest(queue="q", max_messages=0)),
            ("status", lambda: m.Ack(transaction_id="x", outcome="done")),  # type: ignore[arg-type]  # the point
        ]
        for field, make in wrong:
            with pytest.raises(InvalidRequest) as caught:
                make()
            assert caught.value.field == field

    def test_a11_an_unknown_option_is_refused_and_changes_nothing(self) -> None:
        """Options are a closed list with bounds. C-11, INV-NO-500, PL-4."""
        queue = self.queue(retry_limit=7)
        for option, value in (("retry_limits", 1), ("retry_limit", -1), ("retry_limit", 2**31)):
            with pytest.raises(InvalidRequest) as caught:
                self.target.configure(queue, {"lease_seconds": 5, option: value})
            assert caught.value.field == option
        options = self.target.configure(queue).queue.options
        assert (options.retry_limit, options.lease_seconds) == (7, 300)

    def test_a11_configuring_merges(self) -> None:
        """A call that names one option keeps the others and says what changed. C-11, PL-4."""
        queue = self.name()
        made = self.target.configure(queue, {"lease_seconds": 5, "retry_limit": 1})
        assert made.created
        changed = self.target.configure(queue, {"retry_limit": 2})
        assert not changed.created
        assert {name: (c.old, c.new) for name, c in changed.changes.items()} == {
            "retry_limit": (1, 2)
        }
        assert changed.queue.options == m.QueueOptions(lease_seconds=5, retry_limit=2)

    def test_a12_a_push_is_refused_whole(self) -> None:
        """One item for a queue that may not be made stores none. INV-ATOMIC, INV-NO-500."""
        known, unknown = self.queue(retry_limit=3), self.name()
        items = [m.NewMessage.of(known, 1), m.NewMessage.of(unknown, 2)]
        with pytest.raises(QueueNotFound):
            self.target.push(items, create=False)
        assert not self.pop(known)
        assert [receipt.seq for receipt in self.push(known, 3)] == [1]

    def test_a12_an_ack_batch_answers_item_by_item(self) -> None:
        """A refused item neither undoes the others nor hides among them. C-04, INV-ATOMIC."""
        queue = self.name()
        self.push(queue, 1, 2)
        claim = self.take(queue, 2)
        good = [
            m.Ack(
                transaction_id=message.transaction_id,
                partition_id=message.partition_id,
                lease_id=claim.lease_id,
            )
            for message in claim.messages
        ]
        bad = m.Ack(transaction_id="nobody", lease_id=claim.lease_id)
        answers = self.target.ack([good[0], bad, good[1]])
        assert [answer.code for answer in answers] == [None, "MESSAGE_NOT_FOUND", None]
        assert [answer.transaction_id for answer in answers][1] == "nobody"
        assert not self.pop(queue)

    def test_a12_calls_with_nothing_in_them_do_nothing(self) -> None:
        """No items, no answers. INV-NO-500."""
        assert self.target.push([]) == []
        assert self.target.ack([]) == []
