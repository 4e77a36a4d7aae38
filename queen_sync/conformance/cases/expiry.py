"""E: a lease runs out. Nothing is lost, nothing is stolen, nobody is blamed for others."""

from __future__ import annotations

from typing import Any

import pytest

from queen_sync import model as m
from queen_sync.conformance.base import Cases, needs, values_of
from queen_sync.errors import InvalidRequest, LeaseLost

DAY = 86_400


class ExpiryCases(Cases):
    def expire(self) -> None:
        """Let a lease of the unit run out."""
        self.advance(self.unit)

    def test_e01_an_expired_batch_comes_again_whole_and_in_order(self) -> None:
        """Every open message returns, counted and with the reason. C-03, INV-RETRY, PLD-5, O-05."""
        queue = self.queue(lease_seconds=self.unit)
        self.push(queue, *range(1, 9))
        self.take(queue, 5)
        self.expire()
        again = self.take(queue, 5)
        assert values_of(again) == [1, 2, 3, 4, 5]
        assert {(x.delivery_count, x.failure_count, x.error) for x in again.messages} == {
            (2, 1, "Partition lease expired")
        }
        self.settle(again)
        assert self.drain(queue, 1) == [6, 7, 8]

    def test_e02_a_pop_takes_back_what_expired_without_any_help(self) -> None:
        """No sweep runs; the oldest work comes first. C-03, INV-FIFO, PLD-5."""
        queue = self.queue(lease_seconds=self.unit)
        self.push(queue, 1, 2, 3, 4, 5)
        self.take(queue, 3)
        self.expire()
        assert values_of(self.take(queue, 4)) == [1, 2, 3, 4]

    def test_e02_a_sweep_takes_nothing_from_a_live_lease(self) -> None:
        """Upkeep and acks do not disturb each other. INV-CLAIM, INV-DURABLE-ACK, O-08, O-09."""
        queue = self.queue(lease_seconds=self.unit)
        self.push(queue, 1, 2, 3)
        claim = self.take(queue, 2)
        self.ack(claim, only=[0])
        self.target.sweep()
        assert not self.pop(queue)
        self.ack(claim, only=[1])
        self.expire()
        assert self.target.sweep().repaired == 0
        assert self.drain(queue) == [3]

    def test_e03_a_late_ack_after_another_took_over_is_refused(self) -> None:
        """The second holder is not disturbed in any way. C-04, INV-FENCE, O-07."""
        queue = self.queue(lease_seconds=self.unit)
        self.push(queue, 1, 2)
        zombie = self.take(queue, 2)
        self.expire()
        holder = self.take(queue, 2)
        assert zombie.lease_id != holder.lease_id
        for outcome in m.OUTCOMES:
            answers = self.ack(zombie, outcome)
            assert [(a.code, a.status) for a in answers] == [("LEASE_LOST", None)] * 2
        assert not self.pop(queue)
        assert [a.status for a in self.ack(holder)] == ["completed", "completed"]
        assert not self.pop(queue)

    def test_e03_a_zombie_does_not_lengthen_the_holders_lease(self) -> None:
        """The holder's expiry is what it was. INV-FENCE, C-04, O-07."""
        queue = self.queue(lease_seconds=2 * self.unit)
        self.push(queue, 1)
        zombie = self.take(queue)
        self.advance(2 * self.unit)
        self.take(queue)
        self.advance(self.unit)
        assert self.ack(zombie)[0].code == "LEASE_LOST"
        self.advance(self.unit)
        assert self.take(queue).messages[0].delivery_count == 3

    @needs("extend")
    def test_e04_a_zombie_cannot_extend(self) -> None:
        """An extension under a superseded lease moves nothing. C-20, C-04, INV-FENCE, O-07."""
        queue = self.queue(lease_seconds=self.unit)
        self.push(queue, 1)
        zombie = self.take(queue)
        self.expire()
        self.take(queue)
        with pytest.raises(LeaseLost):
            self.target.extend(zombie.lease_id or "", 1000)
        self.expire()
        assert self.pop(queue)

    def test_e05_a_late_ack_is_refused_though_nobody_else_came(self) -> None:
        """The clock decides, and the state agrees with the answer. C-04, INV-FENCE, O-07."""
        queue = self.queue(lease_seconds=self.unit)
        self.push(queue, 1)
        late = self.take(queue)
        self.expire()
        assert self.ack(late)[0].code == "LEASE_LOST"
        again = self.take(queue)
        assert values_of(again) == [1]
        self.settle(again)

    def test_e05_an_ack_just_in_time_counts(self) -> None:
        """Up to its expiry a lease is whole. C-04, INV-CLAIM."""
        queue = self.queue(lease_seconds=self.unit)
        self.push(queue, 1)
        claim = self.take(queue)
        self.advance(self.unit - self.tick)
        assert self.ack(claim)[0].status == "completed"

    @needs("extend")
    def test_e06_an_extension_lengthens_a_lease_in_all_its_partitions(self) -> None:
        """Nobody else gets any of them meanwhile. C-20, INV-CLAIM."""
        queue = self.queue(lease_seconds=self.unit)
        for partition in ("a", "b"):
            self.push(queue, partition, partition=partition)
        claim = self.take(queue, 2, max_partitions=2)
        expires = self.target.extend(claim.lease_id or "", 5 * self.unit)
        assert expires > (claim.expires_us or 0)
        self.expire()
        assert not self.pop(queue, 9, max_partitions=9)
        assert [a.status for a in self.ack(claim)] == ["completed", "completed"]

    @needs("extend")
    def test_e06_an_extension_never_shortens(self) -> None:
        """Asking for less keeps what is there; asking for nothing gives 60 seconds. C-20."""
        queue = self.queue(lease_seconds=30)
        self.push(queue, 1)
        claim = self.take(queue)
        lease, began = claim.lease_id or "", claim.expires_us or 0
        assert self.target.extend(lease, 1) == began
        assert self.target.extend(lease) >= began + 29_000_000
        assert self.target.extend(lease, 5) >= began + 29_000_000

    @needs("extend")
    def test_e07_an_ended_lease_is_not_revived(self) -> None:
        """Expired, closed and invented leases are refused. C-20, INV-FENCE."""
        queue = self.queue(lease_seconds=self.unit)
        self.push(queue, 1, 2)
        expired = self.take(queue)
        self.expire()
        with pytest.raises(LeaseLost):
            self.target.extend(expired.lease_id or "", 60)
        closed = self.take(queue)
        self.settle(closed)
        for lease in (closed.lease_id or "", "00000000-0000-8000-8000-000000000001", "no lease"):
            with pytest.raises(LeaseLost):
                self.target.extend(lease, 60)
        assert values_of(self.pop(queue)) == [2]

    def test_e08_a_lease_ends_on_its_instant(self) -> None:
        """Held until just before, served right at it. INV-CLAIM, INV-LIVENESS, PLD-5, O-13."""
        queue = self.queue(lease_seconds=self.unit)
        self.push(queue, 1)
        self.take(queue)
        self.advance(self.unit - self.tick)
        assert not self.pop(queue)
        self.advance(self.tick)
        assert self.pop(queue)

    def test_e08_the_queues_lease_time_counts_on_every_way_in(self) -> None:
        """By queue, by partition, by a group, over partitions; a change counts at once.

        O-13, C-11.
        """
        queue = self.queue(lease_seconds=500)
        self.target.configure(queue, {"lease_seconds": self.unit})
        ways: tuple[dict[str, Any], ...] = (
            {},
            {"partition": "b"},
            {"group": self.name("group"), "partition": "a"},
            {"max_partitions": 2},
        )
        for partition in ("a", "b", "c"):
            self.push(queue, partition, partition=partition)
        first = [self.take(queue, **way).messages[0].partition for way in ways]
        self.expire()
        assert [self.take(queue, **way).messages[0].partition for way in ways] == first

    @needs("dlq")
    def test_e09_a_message_that_kills_its_consumers_ends_among_the_dead_letters(self) -> None:
        """Alone in its claim it dies after retry_limit + 1 deliveries; the next one flows.

        C-03, INV-DLQ, INV-RETRY, O-10, PL-5.
        """
        for limit, deliveries in ((0, 2), (1, 2), (3, 4)):
            queue = self.queue(lease_seconds=self.unit, retry_limit=limit)
            self.push(queue, "killer", "next")
            for number in range(1, deliveries + 1):
                (message,) = self.take(queue).messages
                assert (message.value, message.delivery_count) == ("killer", number)
                self.expire()
            assert values_of(self.take(queue)) == ["next"]
            (letter,) = self.dead(queue)
            assert (letter.payload, letter.error) == (b'"killer"', "Partition lease expired")
            assert letter.delivery_count == deliveries

    @needs("dlq")
    def test_e09_its_neighbours_are_not_dead_lettered_for_its_sake(self) -> None:
        """A batch that keeps dying loses only the one that kills.

        C-03, INV-DLQ, INV-NO-LOSS, O-10.
        """
        queue = self.queue(lease_seconds=self.unit, retry_limit=2)
        self.push(queue, 1, 2, "killer", 4, 5)
        self._consume_dying_of(queue, "killer", 5, 1)
        assert [letter.payload for letter in self.dead(queue)] == [b'"killer"']

    @needs("dlq")
    def test_e11_a_claim_over_partitions_finds_its_killer(self) -> None:
        """Three messages on their last attempt in one claim that dies; one of them is to blame.

        C-03, INV-DLQ, INV-NO-LOSS, O-10.
        """
        queue = self.queue(lease_seconds=self.unit, retry_limit=2)
        values = {"a": 1, "b": "killer", "c": 3}
        for partition, value in values.items():
            self.push(queue, value, partition=partition)
        for _ in range(2):
            self.ack(self.take(queue, 3, max_partitions=3), "failed")
        self.take(queue, 3, max_partitions=3)
        self.expire()
        self._consume_dying_of(queue, "killer", 9, 3)
        assert [letter.payload for letter in self.dead(queue)] == [b'"killer"']

    def test_e11_a_partition_that_is_passed_over_is_charged_once(self) -> None:
        """A pop that meets an expired lane and leaves it to a later one counts nothing twice.

        C-03, INV-RETRY, O-10, O-32.
        """
        queue = self.queue(lease_seconds=self.unit, retry_limit=1)
        self.push(queue, "a", partition="a")
        self.push(queue, "b", "b", partition="b")
        self.take(queue, 2, partition="b")
        self.expire()
        assert values_of(self.pop(queue, 9, max_partitions=2)) == ["a"]
        (message,) = self.take(queue, 1, partition="b").messages
        assert (message.delivery_count, message.failure_count) == (2, 1)

    def _consume_dying_of(self, queue: str, killer: str, count: int, partitions: int) -> None:
        """Consume until nothing comes, dying of every claim that holds the killer."""
        seen: dict[str, int] = {}
        for _ in range(20):
            claim = self.pop(queue, count, max_partitions=partitions)
            if not claim:
                break
            for message in claim.messages:
                seen[message.id] = seen.get(message.id, 0) + 1
            if killer in values_of(claim):
                self.expire()
            else:
                self.settle(claim)
        assert not self.pop(queue, count, max_partitions=partitions)
        assert max(seen.values(), default=0) <= 4

    def test_e10_a_lease_lasts_from_a_second_to_a_day(self) -> None:
        """0 means 60 seconds; negative and longer ones are refused. INV-NO-500, PL-4."""
        for asked, seconds in ((1, 1), (0, 60), (DAY, DAY)):
            queue = self.queue(lease_seconds=asked)
            (receipt,) = self.push(queue, 1)
            claim = self.take(queue)
            assert receipt.queue == queue
            lasts = (claim.expires_us or 0) - claim.messages[0].created_us
            assert seconds * 1_000_000 <= lasts < (seconds + 1) * 1_000_000
        for asked in (-1, DAY + 1):
            with pytest.raises(InvalidRequest):
                self.target.configure(self.name(), {"lease_seconds": asked})

    def test_e12_a_pop_that_found_nothing_knows_when_to_look_again(self) -> None:
        """The next expiry is told in time, and nothing where only a push can help.

        INV-LIVENESS, PL-8.
        """
        queue = self.queue(lease_seconds=self.unit)
        wanted = m.PopRequest(queue=queue)
        assert self.target.next_ready_in(wanted) is None
        self.push(queue, 1)
        self.take(queue)
        wait = self.target.next_ready_in(wanted)
        assert wait is not None
        assert 0 <= wait <= self.unit

    def test_e12_a_probe_denies_nothing_that_a_pop_would_find(self) -> None:
        """Asked of many pops at once; it may be wrong the other way. INV-LIVENESS, O-42."""
        queue, other = self.queue(lease_seconds=self.unit), self.queue()
        asked = [m.PopRequest(queue=name) for name in (queue, other, self.name("missing"))]
        asked.append(m.PopRequest(queue=queue, partition="p"))
        for request in asked:
            self.target.pop(request)
        self.push(queue, 1, partition="p")
        said = self.target.ready_now(asked)
        assert (len(said), said[0], said[3]) == (4, True, True)
        self.take(queue)
        self.advance(self.unit)
        said = self.target.ready_now(asked)
        assert (said[0], said[3]) == (True, True)
        assert self.target.pop(asked[3])
