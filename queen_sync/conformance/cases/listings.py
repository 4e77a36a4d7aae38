"""H16 and H17, continued: messages found by name alone, and listed by what became of them."""

from __future__ import annotations

import uuid

import msgspec
import pytest

from queen_sync import inspection as i, model as m
from queen_sync.conformance.base import Cases, acks_of, needs
from queen_sync.errors import InvalidRequest

OUTCOMES: tuple[m.Outcome, ...] = ("completed", "failed", "dlq")


class ListingCases(Cases):
    def seqs(self, queue: str, **wanted: object) -> list[int]:
        """Return the seqs of a listing, read to its end and checked page by page."""
        filter_ = msgspec.convert({"queue": queue, "limit": 2, **wanted}, i.MessageFilter)
        found: list[int] = []
        while True:
            page = self.target.messages(filter_)
            more = page.next_before is not None
            assert len(page.items) == filter_.limit if more else len(page.items) <= filter_.limit
            for message in page.items:
                assert filter_.status in (None, message.status)
                assert filter_.group is None or [x.group for x in message.states] == [filter_.group]
                found.append(message.seq)
            if not more:
                return found
            filter_ = msgspec.structs.replace(filter_, before=page.next_before)

    def fate(self, queue: str, group: str) -> dict[str, list[int]]:
        """Return the seqs of each status for a group."""
        return {status: self.seqs(queue, group=group, status=status) for status in i.STATUSES}

    # ------------------------------------------------------------------------ by name

    @needs("messages")
    def test_h16_a_message_is_found_by_its_name_alone(self) -> None:
        """Where several partitions store one, the oldest of them tells. QA-6, INV-INTEGRITY."""
        queue, name = self.name(), self.name("name")
        self.push(queue, 0)
        first = self.push(queue, 1, partition="b", ids=[name])[0]
        self.push(queue, 2, partition="a", ids=[name])
        for known in (name, first.id):
            found = self.target.message_named(known)
            assert found is not None
            assert (found.id, found.transaction_id, found.value) == (first.id, name, 1)
            assert found == self.target.message(first.partition_id, name)
        assert self.target.message_named(self.name("nobody's")) is None

    @needs("messages", "cleanup")
    def test_h16_a_name_alone_finds_nothing_that_is_gone(self) -> None:
        """The next partition tells then. C-16, INV-INTEGRITY."""
        queue, name = self.name(), self.name("name")
        old = self.push(queue, 1, partition="b", ids=[name])[0]
        new = self.push(queue, 2, partition="a", ids=[name])[0]
        self.target.delete_message(old.partition_id, name)
        found = self.target.message_named(name)
        assert found is not None
        assert found.id == new.id
        assert self.target.message_named(old.id) is None
        self.target.delete_partition(queue, "a")
        assert self.target.message_named(name) is None

    # --------------------------------------------------------------------- by status

    @needs("messages", "dlq", "release")
    def test_h17_a_listing_can_be_of_one_status(self) -> None:
        """For one group; full pages, newest first, whatever lies between. INV-COUNTERS, QA-6."""
        queue, group = self.queue(lease_seconds=10 * self.unit), self.name("group")
        self.pop(queue, group=group)
        self.push(queue, *range(12))
        claim = self.take(queue, 9, group=group)
        for place, outcome in enumerate(OUTCOMES):
            self.ack(claim, outcome, only=[place, place + 3])
        assert self.fate(queue, group) == {
            "dead_letter": [6, 3],
            "failed": [5, 2],
            "processing": [9, 8, 7],
            "pending": [12, 11, 10],
            "completed": [4, 1],
        }
        self.target.release(str(claim.lease_id))
        assert self.fate(queue, group) == {
            "dead_letter": [6, 3],
            "failed": [5, 2],
            "processing": [],
            "pending": [12, 11, 10, 9, 8, 7],
            "completed": [4, 1],
        }
        assert self.seqs(queue, group=group) == list(range(12, 0, -1))
        assert self.seqs(queue, group=group, status="pending", partition="none") == []

    @needs("messages")
    def test_h17_a_lease_that_ran_out_leaves_nothing_in_flight(self) -> None:
        """Also while nobody has taken it back. C-03, INV-COUNTERS."""
        queue = self.queue(lease_seconds=self.unit)
        self.push(queue, 1, 2, 3)
        self.take(queue, 2)
        assert self.seqs(queue, status="processing") == [2, 1]
        self.advance(self.unit)
        assert self.seqs(queue, status="processing") == []
        assert self.seqs(queue, status="pending") == [3, 2, 1]

    @needs("messages", "dlq")
    def test_h17_without_a_group_a_message_is_what_most_wants_to_be_looked_at(self) -> None:
        """Dead before failed, in flight, pending and completed; nobody's message is pending.

        INV-COUNTERS, INV-FANOUT.
        """
        queue = self.queue(lease_seconds=10 * self.unit)
        groups = [self.name(word) for word in "ab"]
        self.push(queue, *range(5))
        assert self.seqs(queue, status="pending") == [5, 4, 3, 2, 1]
        assert self.seqs(queue, status="completed") == []
        claims = [self.take(queue, count, group=g) for count, g in zip((5, 3), groups, strict=True)]
        self.ack(claims[0], "completed", only=[0, 1, 2, 3])
        self.ack(claims[1], "failed", only=[1])
        self.ack(claims[1], "dlq", only=[2])
        found = {status: self.seqs(queue, status=status) for status in i.STATUSES}
        assert found == {
            "dead_letter": [3],
            "failed": [2],
            "processing": [5, 1],
            "pending": [4],
            "completed": [],
        }
        self.ack(claims[1], "completed", only=[0])
        assert self.seqs(queue, status="completed") == [1]

    @needs("messages", "dlq", "redrive", "cleanup")
    def test_h17_a_status_is_right_beside_holes_and_redriven_messages(self) -> None:
        """What was given back waits, what was deleted is nowhere. C-12, INV-COUNTERS."""
        queue = self.name()
        receipts = self.push(queue, *range(6))
        self.ack(self.take(queue, 4), "dlq")
        name = receipts[1].transaction_id
        self.target.redrive(m.DeadLetterFilter(queue=queue, transaction_id=name))
        self.target.delete_message(receipts[2].partition_id, receipts[2].transaction_id)
        assert self.seqs(queue, status="dead_letter") == [4, 1]
        assert self.seqs(queue, status="pending") == [6, 5, 2]
        self.ack(self.take(queue), "failed")
        assert self.seqs(queue, status="failed") == [2]
        assert self.seqs(queue, status="pending") == [6, 5]
        claim = self.take(queue)
        assert self.seqs(queue, status="processing") == [2]
        self.target.ack(acks_of(claim))
        assert self.seqs(queue, status="completed") == [2]

    @needs("messages", "sub_from")
    def test_h17_what_a_group_is_not_owed_is_completed_for_it(self) -> None:
        """So is what was pushed before it began. C-07, INV-COUNTERS."""
        queue, group = self.name(), self.name("group")
        self.push(queue, 1)
        self.advance(self.tick)
        old = self.target.messages(i.MessageFilter(queue=queue)).items[0]
        begins = m.Subscription(mode="from", from_us=old.created_us + 1)
        self.pop(queue, group=group, subscription=begins)
        self.push(queue, 2)
        assert self.seqs(queue, group=group, status="completed") == [1]
        assert self.seqs(queue, group=group, status="pending") == [2]

    @needs("messages")
    def test_h17_a_group_narrows_to_its_own_queues(self) -> None:
        """Where it is not registered there is nothing of it. INV-FANOUT, QA-6."""
        queue, group = self.name(), self.name("group")
        self.push(queue, 1)
        assert self.seqs(queue, group=group) == []
        assert self.seqs(queue, group=group, status="pending") == []
        self.take(queue, group=group)
        assert self.seqs(queue, group=group, status="processing") == [1]
        self.pop(queue, group=self.name("other"), partition="none")
        assert self.seqs(queue, group=group) == [1]

    @needs("messages")
    def test_h17_a_status_of_a_trace_is_listed_in_the_order_of_the_trace(self) -> None:
        """Oldest first, over two queues. PLD-8, QA-6, INV-COUNTERS."""
        queues, trace = [self.name(), self.name()], str(uuid.uuid4())
        for n in range(6):
            self.target.push([m.NewMessage.of(queues[n % 2], n, trace_id=trace)])
            self.advance(self.tick)
        self.settle(self.take(queues[0], 2))

        def found(status: i.MessageStatus, offset: int = 0) -> list[tuple[str, int]]:
            wanted = i.MessageFilter(trace_id=trace, status=status, offset=offset)
            return [(each.queue, each.seq) for each in self.target.messages(wanted).items]

        pending = [(queues[1], 1), (queues[1], 2), (queues[0], 3), (queues[1], 3)]
        assert found("pending") == pending
        assert found("pending", 3) == pending[3:]
        assert found("completed") == [(queues[0], 1), (queues[0], 2)]

    @needs("messages")
    def test_h17_an_offset_counts_what_is_listed(self) -> None:
        """Not what a status leaves out. QA-6, INV-COUNTERS."""
        queue = self.name()
        self.push(queue, *range(9))
        claim = self.take(queue, 9)
        self.ack(claim, only=[1, 3, 5, 7])
        wanted = i.MessageFilter(queue=queue, status="completed", offset=1, limit=2)
        page = self.target.messages(wanted)
        assert [message.seq for message in page.items] == [6, 4]
        assert page.next_before is not None
        rest = msgspec.structs.replace(wanted, offset=0, before=page.next_before)
        assert [message.seq for message in self.target.messages(rest).items] == [2]

    @needs("messages")
    def test_h17_a_status_that_does_not_exist_is_refused(self) -> None:
        """By its field, as is an offset beyond all listings. INV-NO-500."""
        for field, wanted in (
            ("status", {"status": "evicted"}),
            ("offset", {"offset": i.MAX_OFFSET + 1}),
        ):
            with pytest.raises(InvalidRequest) as caught:
                i.MessageFilter(**wanted)
            assert caught.value.field == field
