"""F: failure. The order holds, the count is right, and the end of it is the dead letters."""

from __future__ import annotations

from queen_sync import model as m
from queen_sync.conformance.base import Cases, acks_of, needs, values_of


class RetryCases(Cases):
    def test_f01_a_failed_message_comes_again_before_unseen_ones(self) -> None:
        """The head of the lane stays the head. C-01, C-02, INV-RETRY, INV-FIFO, O-05, PLD-4."""
        queue = self.name()
        self.push(queue, 1, 2, 3)
        (answer,) = self.ack(self.take(queue), "failed", error="boom")
        assert (answer.status, answer.lease_released) == ("failed", True)
        again = self.take(queue, 2)
        assert values_of(again) == [1, 2]
        counts = [(x.delivery_count, x.failure_count, x.error) for x in again.messages]
        assert counts == [(2, 1, "boom"), (1, 0, None)]

    def test_f02_a_failure_in_the_middle_brings_back_only_itself(self) -> None:
        """Of one request with acks around a nack, the acked stay acked.

        C-01, INV-NO-LOSS, INV-RETRY, O-05.
        """
        queue = self.name()
        self.push(queue, 1, 2, 3, 4)
        claim = self.take(queue, 3)
        acks = [*acks_of(claim, "completed", only=[0]), *acks_of(claim, "failed", only=[1])]
        acks += acks_of(claim, "completed", only=[2])
        assert [a.status for a in self.target.ack(acks)] == ["completed", "failed", "completed"]
        assert values_of(self.take(queue, 2)) == [2, 4]

    def test_f03_separate_requests_in_either_order_end_alike(self) -> None:
        """Nack first or ack first: the nacked one comes, once the lease is over.

        C-01, INV-RETRY, O-05.
        """
        for order in ([0, 1], [1, 0]):
            queue = self.name()
            self.push(queue, "bad", "good")
            claim = self.take(queue, 2)
            for place in order:
                self.ack(claim, "failed" if place == 0 else "completed", only=[place])
                if place == order[0]:
                    assert not self.pop(queue)
            assert self.drain(queue) == ["bad"]

    @needs("dlq")
    def test_f04_a_batch_that_always_fails_is_dead_lettered_whole(self) -> None:
        """None of them is lost on the way. C-02, INV-DLQ, INV-NO-LOSS, PL-5."""
        queue = self.queue(retry_limit=2)
        self.push(queue, *range(5), ids=[f"id{n}" for n in range(5)])
        for _ in range(2):
            answers = self.ack(self.take(queue, 5), "failed")
            assert {answer.status for answer in answers} == {"failed"}
        answers = self.ack(self.take(queue, 5), "failed")
        assert {answer.status for answer in answers} == {"dead_letter"}
        assert not self.pop(queue)
        assert [letter.transaction_id for letter in self.dead(queue)] == [
            f"id{n}" for n in range(5)
        ]

    @needs("dlq")
    def test_f05_a_failing_message_is_delivered_once_more_than_it_is_retried(self) -> None:
        """retry_limit + 1 deliveries, whatever the dead letter flags say.

        C-02, INV-RETRY, INV-DLQ, O-10.
        """
        for limit in (0, 1, 3):
            queue = self.queue(retry_limit=limit, dead_letter_queue=False)
            self.push(queue, 1)
            statuses = []
            for number in range(1, limit + 2):
                claim = self.take(queue)
                message = claim.messages[0]
                assert (message.delivery_count, message.failure_count) == (number, number - 1)
                statuses += [answer.status for answer in self.ack(claim, "failed")]
            assert statuses == ["failed"] * limit + ["dead_letter"]
            assert not self.pop(queue)
            assert len(self.dead(queue)) == 1

    @needs("dlq")
    def test_f06_a_failure_counts_for_its_own_message_only(self) -> None:
        """A neighbour's failures bring nobody nearer to the limit. C-02, INV-DLQ, O-10."""
        queue = self.queue(retry_limit=2)
        self.push(queue, "a", "b")
        for _ in range(2):
            self.ack(self.take(queue), "failed")
        claim = self.take(queue, 2)
        (a,) = self.ack(claim, "completed", only=[0])
        (b,) = self.ack(claim, "failed", only=[1])
        assert (a.status, b.status) == ("completed", "failed")
        (message,) = self.take(queue).messages
        assert (message.value, message.failure_count) == ("b", 1)

    def test_f07_failures_are_counted_for_each_group_by_itself(self) -> None:
        """What fails for one is fresh for the other. C-02, INV-FANOUT, INV-RETRY, QB-3."""
        queue, one, two = self.name(), self.name("one"), self.name("two")
        self.push(queue, 1)
        self.ack(self.take(queue, group=one), "failed", error="mine")
        (message,) = self.take(queue, group=two).messages
        assert (message.delivery_count, message.failure_count, message.error) == (1, 0, None)
        (message,) = self.take(queue, group=one).messages
        assert (message.delivery_count, message.failure_count, message.error) == (2, 1, "mine")

    @needs("dlq")
    def test_f08_a_message_can_be_sent_to_the_dead_letters_at_once(self) -> None:
        """The explicit outcome asks for no limit. C-02, INV-DLQ, PL-5."""
        queue = self.name()
        self.push(queue, 1, 2)
        (answer,) = self.ack(self.take(queue), "dlq", error="unreadable")
        assert answer.dead_lettered
        assert values_of(self.pop(queue, 9)) == [2]
        (letter,) = self.dead(queue)
        assert (letter.error, letter.failure_count, letter.delivery_count) == ("unreadable", 0, 1)

    def test_f08_giving_a_message_back_counts_no_failure(self) -> None:
        """As often as one likes. C-02, INV-RETRY."""
        queue = self.queue(retry_limit=1)
        self.push(queue, 1)
        for number in range(1, 6):
            claim = self.take(queue)
            assert claim.messages[0].delivery_count == number
            assert claim.messages[0].failure_count == 0
            assert self.ack(claim, "retry")[0].status == "pending"

    @needs("dlq")
    def test_f09_a_dead_letter_tells_its_whole_story(self) -> None:
        """Payload, ids, counts, group, error and times. INV-DLQ, PL-5, QB-3."""
        queue, group = self.queue(retry_limit=1), self.name("group")
        (receipt,) = self.push(queue, {"n": 1}, partition="eu", ids=["order-1"])
        created = self.take(queue, group=group)
        self.ack(created, "failed", error="first")
        self.ack(self.take(queue, group=group), "failed", error="second")
        (letter,) = self.dead(queue)
        assert (letter.id, letter.transaction_id, letter.seq) == (
            receipt.id,
            "order-1",
            receipt.seq,
        )
        assert (letter.queue, letter.partition, letter.group) == (queue, "eu", group)
        assert letter.partition_id == receipt.partition_id
        assert (letter.payload, letter.error) == (b'{"n":1}', "second")
        assert (letter.failure_count, letter.delivery_count) == (2, 2)
        assert letter.created_us == created.messages[0].created_us <= letter.failed_us

    @needs("dlq")
    def test_f09_a_failure_without_a_text_keeps_the_last_one(self) -> None:
        """The dead letter shows the last thing that was said. INV-DLQ, PL-5."""
        queue, silent = self.queue(retry_limit=1), self.queue(retry_limit=0)
        self.push(queue, 1)
        self.ack(self.take(queue), "failed", error="said once")
        self.ack(self.take(queue), "failed")
        assert self.dead(queue)[0].error == "said once"
        self.push(silent, 1)
        self.ack(self.take(silent), "failed")
        assert self.dead(silent)[0].error == "Retries exhausted"

    @needs("dlq")
    def test_f09_paging_through_the_dead_letters_shows_each_once(self) -> None:
        """Newest first, page by page, with the total; filters narrow it down.

        INV-DLQ, O-02, QA-8.
        """
        queue, group = self.name(), self.name("group")
        self.push(queue, *range(7), partition="a")
        self.ack(self.take(queue, 7), "dlq")
        self.advance(self.tick)
        self.push(queue, *range(7, 10), partition="b")
        self.ack(self.take(queue, 3, partition="b", group=group), "dlq")
        seen: list[str] = []
        for offset in range(0, 12, 3):
            wanted = m.DeadLetterFilter(queue=queue, limit=3, offset=offset)
            page = self.target.dead_letters(wanted)
            assert page.total == 10
            seen += [letter.id for letter in page.items]
        assert len(seen) == len(set(seen)) == 10
        newest = self.target.dead_letters(m.DeadLetterFilter(queue=queue, limit=3)).items
        assert {letter.partition for letter in newest} == {"b"}
        for narrowed in ({"group": group}, {"partition": "b"}):
            assert [letter.payload for letter in self.dead(queue, **narrowed)] == [b"7", b"8", b"9"]
        assert not self.dead(self.name())

    @needs("dlq")
    def test_f10_the_partition_goes_on_behind_a_dead_letter(self) -> None:
        """Also when it was the last message there was. C-02, INV-FIFO, INV-DLQ, O-40."""
        queue = self.queue(retry_limit=0)
        self.push(queue, 1, 2)
        claim = self.take(queue, 2)
        self.ack(claim, "failed", only=[1])
        self.ack(claim, "completed", only=[0])
        assert not self.pop(queue)
        self.push(queue, 3)
        assert self.drain(queue) == [3]

    @needs("dlq")
    def test_f11_a_dead_letter_of_one_group_reaches_the_other(self) -> None:
        """Dead letters are per group. INV-FANOUT, INV-DLQ, QB-3."""
        queue, one, two = self.name(), self.name("one"), self.name("two")
        self.push(queue, 1)
        self.ack(self.take(queue, group=one), "dlq")
        assert self.drain(queue, group=two) == [1]
        assert [letter.group for letter in self.dead(queue)] == [one]

    @needs("retrydelay")
    def test_f12_a_retry_delay_holds_its_lane_and_no_other(self) -> None:
        """Nothing of the lane comes before the instant; other lanes go on.

        C-01, C-02, INV-RETRY, O-14, PL-4.
        """
        queue, group = self.queue(retry_delay_milliseconds=1000 * self.unit), self.name("group")
        self.push(queue, 1, 2, partition="a")
        self.push(queue, 3, partition="b")
        self.ack(self.take(queue, partition="a"), "failed")
        assert not self.pop(queue, partition="a")
        assert values_of(self.pop(queue)) == [3]
        assert self.drain(queue, group=group, partition="a") == [1, 2]
        self.advance(self.unit - self.tick)
        assert not self.pop(queue, partition="a")
        self.advance(self.tick)
        assert self.drain(queue, partition="a") == [1, 2]

    @needs("retrydelay")
    def test_f12_what_is_given_back_or_expired_waits_for_no_retry_delay(self) -> None:
        """The delay belongs to failures that were told. C-02, C-03, INV-RETRY."""
        queue = self.queue(retry_delay_milliseconds=100_000, lease_seconds=self.unit)
        self.push(queue, 1)
        self.ack(self.take(queue), "retry")
        self.take(queue)
        self.advance(self.unit)
        assert self.pop(queue)
