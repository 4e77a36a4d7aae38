"""H15 to H17: what a store says of its partitions and messages."""

from __future__ import annotations

import uuid

import msgspec
import pytest

from queen_sync import inspection as i, model as m
from queen_sync.conformance.base import Cases, needs
from queen_sync.errors import InvalidRequest


class InspectionCases(Cases):
    def state(self, queue: str, name: str = m.DEFAULT_PARTITION) -> i.PartitionState:
        """Return one partition of a queue."""
        return next(found for found in self.target.partitions(queue) if found.name == name)

    def group(
        self, queue: str, group: str = m.QUEUE_MODE, name: str = m.DEFAULT_PARTITION
    ) -> i.PartitionGroup:
        """Return where a group stands in one partition."""
        return next(found for found in self.state(queue, name).groups if found.name == group)

    def states(self, receipt: m.Receipt) -> dict[str, i.MessageState]:
        """Return what has become of a message, by group."""
        found = self.target.message(receipt.partition_id, receipt.transaction_id)
        assert found is not None
        return {state.group: state for state in found.states}

    def listed(self, wanted: i.MessageFilter) -> list[i.StoredMessage]:
        """Read a listing to its end, page by page, and check that it ends."""
        found: list[i.StoredMessage] = []
        for _ in range(1_000):
            page = self.target.messages(wanted)
            assert len(page.items) <= wanted.limit
            found += page.items
            if page.next_before is None:
                return found
            wanted = msgspec.structs.replace(wanted, before=page.next_before)
        raise AssertionError("the listing does not end")

    # ------------------------------------------------------------------ partitions

    @needs("stats")
    def test_h15_partitions_are_listed_by_name_with_what_they_hold(self) -> None:
        """While there is no group, all that is stored waits. INV-COUNTERS, PLD-10."""
        queue = self.name()
        first = self.push(queue, 1, 2, partition="b")
        self.advance(self.tick)
        last = self.push(queue, 3, partition="b")
        self.push(queue, 4, partition="B")
        found = self.target.partitions(queue)
        assert [(p.queue, p.name) for p in found] == [(queue, n) for n in ("B", "Default", "b")]
        assert [(p.pushed_count, p.stored_count, p.waiting_count) for p in found] == [
            (1, 1, 1),
            (0, 0, 0),
            (3, 3, 3),
        ]
        assert found[2].id == first[0].partition_id == last[0].partition_id
        oldest, newest = found[2].oldest_us, found[2].newest_us
        assert oldest is not None
        assert newest is not None
        assert found[2].created_us <= oldest < newest
        assert (found[1].oldest_us, found[1].newest_us) == (None, None)
        assert [list(p.groups) for p in found] == [[], [], []]
        assert list(self.target.partitions(self.name())) == []
        assert list(self.target.partitions(queue, limit=2)) == list(found[:2])
        assert list(self.target.partitions(queue, limit=2, offset=2)) == list(found[2:])
        assert list(self.target.partitions(queue, offset=1)) == list(found[1:])

    @needs("stats")
    def test_h15_a_lease_is_shown_while_it_lives(self) -> None:
        """Its end, what it delivered and what of that is open; other groups have none.

        INV-COUNTERS, INV-CLAIM, PLD-10.
        """
        queue, other = self.queue(lease_seconds=2 * self.unit), self.name("other")
        self.push(queue, *range(5))
        self.pop(queue, group=other, partition="none")
        claim = self.take(queue, 3)
        self.ack(claim, only=[0])
        assert self.group(queue) == i.PartitionGroup(
            name=m.QUEUE_MODE,
            lag=4,
            in_flight_count=2,
            lease_expires_us=claim.expires_us,
            lease_count=3,
            oldest_waiting_us=claim.messages[0].created_us,
        )
        assert self.group(queue, other).lease_expires_us is None
        assert self.group(queue, other).lag == 5
        self.advance(2 * self.unit)
        found = self.group(queue)
        assert (found.lease_expires_us, found.lease_count, found.in_flight_count) == (None, 0, 0)
        assert found.lag == 4

    @needs("stats", "browse", "dlq", "release")
    def test_h15_the_counts_add_up_whatever_happens(self) -> None:
        """Entitled is settled plus waiting, at every step; nothing is negative.

        INV-COUNTERS, INV-MONOTONIC-CURSOR, O-54.
        """
        queue = self.queue(retry_limit=1)
        self.push(queue, *range(6))
        claim = self.take(queue, 6)
        self.ack(claim, "completed", only=[1])
        self.ack(claim, "dlq", only=[2])
        self.ack(claim, "failed", only=[0])
        self.target.release(str(claim.lease_id))
        found = self.group(queue)
        assert (found.lag, found.dead_count, found.retrying_count) == (4, 1, 4)
        assert found.lag == self.lag(queue, m.QUEUE_MODE)
        assert self.state(queue).waiting_count == 4
        self.ack(self.take(queue, 2), "failed")
        found = self.group(queue)
        assert (found.lag, found.dead_count, found.retrying_count) == (3, 2, 3)
        self.settle(self.take(queue, 3))
        found, state = self.group(queue), self.state(queue)
        assert (found.lag, found.dead_count, found.retrying_count) == (0, 2, 0)
        assert (state.pushed_count, state.stored_count, state.waiting_count) == (6, 6, 0)
        assert found.oldest_waiting_us is None

    @needs("stats")
    def test_h15_what_some_group_still_needs_waits(self) -> None:
        """A message counts once, however many groups wait for it. INV-COUNTERS, C-06, PLD-10."""
        queue, one, two = self.name(), self.name("one"), self.name("two")
        for group in (one, two):
            self.pop(queue, group=group)
        self.push(queue, *range(4))
        self.settle(self.take(queue, 3, group=one))
        self.settle(self.take(queue, 1, group=two))
        assert self.state(queue).waiting_count == 3
        self.settle(self.take(queue, 1, group=one))
        self.settle(self.take(queue, 2, group=two))
        assert self.state(queue).waiting_count == 1

    @needs("stats", "redrive", "dlq")
    def test_h15_redriven_messages_are_waiting_again(self) -> None:
        """They count as lag and are no dead letters any more. INV-COUNTERS, C-12."""
        queue = self.queue()
        self.push(queue, 1, 2)
        self.ack(self.take(queue), "dlq")
        assert self.target.redrive(m.DeadLetterFilter(queue=queue)) == 1
        found = self.group(queue)
        assert (found.lag, found.dead_count, self.state(queue).waiting_count) == (2, 0, 2)

    @needs("stats", "retention")
    def test_h15_what_retention_took_is_counted_out(self) -> None:
        """Pushed goes on, stored and lag do not. INV-COUNTERS, C-09."""
        queue = self.queue(retention_enabled=True, retention_seconds=self.unit)
        self.pop(queue)
        self.push(queue, 1, 2)
        self.advance(self.unit)
        self.push(queue, 3)
        self.target.sweep()
        state = self.state(queue)
        assert (state.pushed_count, state.stored_count, state.waiting_count) == (3, 1, 1)
        assert self.group(queue).lag == 1

    @needs("stats", "evict", "sub_from")
    def test_h15_what_a_group_is_not_owed_is_neither_lag_nor_evicted(self) -> None:
        """It began after that was pushed; upkeep knows it too. C-07, C-09, INV-COUNTERS."""
        queue, group = self.queue(ttl_seconds=self.unit), self.name("group")
        self.push(queue, 1)
        start = self.state(queue).newest_us
        assert start is not None
        later = start + (self.unit * 1_000_000) // 2
        begins = m.Subscription(mode="from", from_us=later)
        self.pop(queue, group=group, subscription=begins)
        self.push(queue, 2)
        assert self.group(queue, group).lag == 0
        self.advance(self.unit)
        self.target.sweep()
        assert list(self.target.removals(queue)) == []
        self.push(queue, 3)
        assert self.group(queue, group).lag == 1
        assert self.drain(queue, group=group) == [3]

    # -------------------------------------------------------------------- messages

    @needs("messages")
    def test_h16_a_message_is_found_by_either_name(self) -> None:
        """By its transaction id and by its id, in its own partition only. INV-PAYLOAD, QA-6."""
        queue, trace = self.name(), str(uuid.uuid4())
        stored = self.target.push(
            [
                m.NewMessage.of(queue, {"n": 1}, transaction_id="mine", trace_id=trace),
                m.NewMessage.of(queue, 2, partition="other"),
            ]
        )
        for name in ("mine", stored[0].id):
            found = self.target.message(stored[0].partition_id, name)
            assert found is not None
            assert (found.id, found.transaction_id, found.seq) == (stored[0].id, "mine", 1)
            assert (found.queue, found.partition, found.partition_id, found.trace_id) == (
                queue,
                "Default",
                stored[0].partition_id,
                trace,
            )
            assert (found.value, list(found.states)) == ({"n": 1}, [])
        assert self.target.message(stored[1].partition_id, "mine") is None
        assert self.target.message(stored[1].partition_id, stored[0].id) is None
        assert self.target.message(stored[0].partition_id, "nobody's") is None
        assert self.target.message("no id at all", "mine") is None

    @needs("messages", "dlq")
    def test_h16_each_group_has_a_state_of_its_own(self) -> None:
        """Pending, processing, failed, dead and completed. INV-COUNTERS, INV-FANOUT, C-02."""
        queue = self.queue(retry_limit=1)
        receipt = self.push(queue, 1)[0]
        done, dead, failed, fresh, held = (self.name(word) for word in "abcde")
        for group in (done, dead, failed, fresh, held):
            self.pop(queue, group=group, partition="none")
        self.settle(self.take(queue, group=done))
        self.ack(self.take(queue, group=dead), "failed", error="one")
        self.ack(self.take(queue, group=dead), "failed", error="two")
        self.ack(self.take(queue, group=failed), "failed", error="why")
        claim = self.take(queue, group=held)
        assert self.states(receipt) == {
            done: i.MessageState(group=done, status="completed"),
            dead: i.MessageState(
                group=dead, status="dead_letter", delivery_count=2, failure_count=2, error="two"
            ),
            failed: i.MessageState(
                group=failed, status="failed", delivery_count=1, failure_count=1, error="why"
            ),
            fresh: i.MessageState(group=fresh, status="pending"),
            held: i.MessageState(
                group=held,
                status="processing",
                delivery_count=1,
                lease_expires_us=claim.expires_us,
            ),
        }

    @needs("messages")
    def test_h16_a_message_that_was_given_back_is_pending(self) -> None:
        """So is one whose lease has run out and that nobody has taken since. C-03, INV-COUNTERS."""
        queue = self.queue(lease_seconds=self.unit)
        receipt = self.push(queue, 1)[0]
        self.ack(self.take(queue), "retry")
        assert self.states(receipt)[m.QUEUE_MODE].status == "pending"
        assert self.states(receipt)[m.QUEUE_MODE].delivery_count == 1
        self.take(queue)
        assert self.states(receipt)[m.QUEUE_MODE].status == "processing"
        assert self.states(receipt)[m.QUEUE_MODE].delivery_count == 2
        self.advance(self.unit)
        # Where a server sweeps by itself it may have been taken back by now, which is a failure.
        ended = {"pending"} if self.by_hand else {"pending", "failed"}
        assert self.states(receipt)[m.QUEUE_MODE].status in ended

    # --------------------------------------------------------------------- listing

    @needs("messages")
    def test_h17_a_listing_meets_every_message_once(self) -> None:
        """Newest first, whatever the page; one push has one instant for all it stores.

        INV-INTEGRITY, QA-6, O-02.
        """
        queue = self.name()
        for n in range(3):
            self.push(queue, *range(4), partition=f"p{n}")
            self.push(queue, 9, partition="p0")
            self.advance(self.tick)
        whole = self.listed(i.MessageFilter(queue=queue, limit=1_000))
        keys = [(message.created_us, message.id) for message in whole]
        assert keys == sorted(keys, reverse=True)
        assert len(set(keys)) == 15
        assert {message.payload for message in whole} == {b"null"}
        for limit in (1, 2, 4, 15):
            assert self.listed(i.MessageFilter(queue=queue, limit=limit)) == whole
        assert (
            self.target.messages(i.MessageFilter(queue=queue, limit=3, offset=2)).items
            == whole[2:5]
        )

    @needs("messages")
    def test_h17_a_page_is_no_page_of_what_came_meanwhile(self) -> None:
        """What is pushed while somebody reads on does not shift the rest. QA-6, O-02, INV-ORDER."""
        queue = self.name()
        self.push(queue, 1, 2, 3)
        page = self.target.messages(i.MessageFilter(queue=queue, limit=2))
        self.push(queue, 4, 5)
        rest = self.listed(i.MessageFilter(queue=queue, before=page.next_before))
        assert [message.seq for message in page.items] == [3, 2]
        assert [message.seq for message in rest] == [1]

    @needs("messages", "prio")
    def test_h17_a_listing_can_be_narrowed(self) -> None:
        """By queue, partition, namespace, task and span of time, both ends counted.

        INV-INTEGRITY, QA-6.
        """
        space = self.name("space")
        queue, beside = self.name(), self.name()
        self.target.configure(queue, namespace=space, task="one")
        self.target.configure(beside, namespace=space, task="two")
        for n in range(3):
            self.push(queue, n, partition="p")
            self.advance(self.tick)
        self.push(queue, 3)
        self.push(beside, 4)

        def found(**wanted: object) -> list[tuple[str, str, int]]:
            page = self.listed(msgspec.convert({"limit": 2, **wanted}, i.MessageFilter))
            return [(message.queue, message.partition, message.seq) for message in page]

        lane = [(queue, "p", 3), (queue, "p", 2), (queue, "p", 1)]
        assert found(queue=queue, partition="p") == lane
        assert sorted(found(namespace=space)) == sorted(
            [*lane, (queue, "Default", 1), (beside, "Default", 1)]
        )
        assert found(namespace=space, task="two") == [(beside, "Default", 1)]
        page = self.listed(i.MessageFilter(queue=queue, partition="p"))
        instants = [message.created_us for message in page]
        span = {"from_us": instants[2], "to_us": instants[1]}
        assert found(queue=queue, partition="p", **span) == lane[1:]
        assert found(queue=queue, partition="p", from_us=instants[0] + 1) == []
        assert found(queue=self.name()) == []

    @needs("messages")
    def test_h17_a_trace_is_listed_over_all_queues_in_order(self) -> None:
        """Oldest first, page after page. INV-ORDER, PLD-8, QA-6."""
        queues, trace = [self.name(), self.name()], str(uuid.uuid4())
        for n in range(5):
            self.target.push(
                [
                    m.NewMessage.of(queues[n % 2], n, transaction_id=f"t{n}", trace_id=trace),
                    m.NewMessage.of(queues[n % 2], n),
                ]
            )
            self.advance(self.tick)
        for limit in (1, 2, 5):
            found = self.listed(i.MessageFilter(trace_id=trace, limit=limit))
            assert [message.transaction_id for message in found] == [f"t{n}" for n in range(5)]
        found = self.listed(i.MessageFilter(trace_id=trace, queue=queues[1]))
        assert [message.transaction_id for message in found] == ["t1", "t3"]
        assert self.listed(i.MessageFilter(trace_id=str(uuid.uuid4()))) == []

    @needs("messages")
    def test_h17_a_listing_refuses_what_is_no_page(self) -> None:
        """By the name of the field. INV-NO-500, QA-6."""
        for field, wanted in (
            ("limit", {"limit": 0}),
            ("limit", {"limit": i.MAX_PAGE + 1}),
            ("offset", {"offset": -1}),
            ("traceId", {"trace_id": "x"}),
            ("before", {"before": (1, "x")}),
        ):
            with pytest.raises(InvalidRequest) as caught:
                i.MessageFilter(**wanted)
            assert caught.value.field == field
