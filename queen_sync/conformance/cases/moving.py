"""F13, G10, H12, H13, J12: redrive, seek, pops over several queues, and repeated pops."""

from __future__ import annotations

import pytest

from queen_sync import model as m
from queen_sync.conformance.base import Cases, needs, values_of
from queen_sync.errors import InvalidRequest, QueueNotFound


class MovingCases(Cases):
    @needs("dlq", "redrive")
    def test_f13_a_redriven_message_comes_before_unread_ones_and_fresh(self) -> None:
        """To its group alone, in seq order, as if it had never failed.

        C-12, INV-DLQ, PL-5, O-40.
        """
        queue, one, two = self.queue(retry_limit=0), self.name("one"), self.name("two")
        self.push(queue, 1, 2, 3)
        self.ack(self.take(queue, 2, group=one), "failed", error="boom")
        assert self.drain(queue, group=two) == [1, 2, 3]
        assert self.target.redrive(m.DeadLetterFilter(queue=queue, group=one)) == 2
        assert not self.dead(queue)
        claim = self.take(queue, 2, group=one)
        counts = {(x.delivery_count, x.failure_count, x.error) for x in claim.messages}
        assert (values_of(claim), counts) == ([1, 2], {(1, 0, None)})
        self.settle(claim)
        assert self.drain(queue, group=one) == [3]
        assert not self.pop(queue, group=two)

    @needs("dlq", "redrive")
    def test_f13_a_second_death_is_one_dead_letter_again(self) -> None:
        """And what is purged is gone for good. C-12, INV-DLQ, PL-5."""
        queue = self.queue(retry_limit=0)
        self.push(queue, 1)
        wanted = m.DeadLetterFilter(queue=queue)
        self.ack(self.take(queue), "failed")
        assert self.target.redrive(wanted) == 1
        assert self.target.redrive(wanted) == 0
        self.ack(self.take(queue), "failed", error="again")
        assert [letter.error for letter in self.dead(queue)] == ["again"]
        assert self.target.purge(wanted) == 1
        assert not self.dead(queue)
        assert not self.pop(queue)

    @needs("dlq", "redrive")
    def test_f13_redriving_disturbs_no_live_lease(self) -> None:
        """Who holds the partition goes on; the redriven come afterwards. C-12, INV-CLAIM."""
        queue = self.queue(retry_limit=0)
        self.push(queue, 1, 2, 3)
        self.ack(self.take(queue), "failed")
        held = self.take(queue)
        assert self.target.redrive(m.DeadLetterFilter(queue=queue)) == 1
        assert not self.pop(queue)
        self.settle(held)
        assert values_of(self.pop(queue, 9)) == [1]

    @needs("seek")
    def test_g10_a_group_can_be_sought_to_the_start_to_a_time_and_to_the_end(self) -> None:
        """Exactly what lies at or after the place comes again. C-20, INV-SUBSCRIBE, QB-5, O-40."""
        queue, group = self.name(), self.name("group")
        for n in range(3):
            self.push(queue, n)
            self.advance(self.tick)
        claim = self.take(queue, 3, group=group)
        self.settle(claim)
        instant = claim.messages[1].created_us
        assert self.target.seek(m.Seek(queue=queue, group=group, to="start")) == 1
        assert self.drain(queue, group=group) == [0, 1, 2]
        self.target.seek(m.Seek(queue=queue, group=group, to="time", from_us=instant))
        again = self.take(queue, 2, group=group)
        assert values_of(again) == [1, 2]
        assert {x.delivery_count for x in again.messages} == {1}
        self.target.seek(m.Seek(queue=queue, group=group, to="end"))
        assert not self.pop(queue, group=group)
        self.push(queue, 3)
        assert self.drain(queue, group=group) == [3]
        assert self.drain(queue) == [0, 1, 2, 3]

    @needs("seek")
    def test_g10_acks_from_before_a_seek_are_refused(self) -> None:
        """Live and closed leases of the moved group are forgotten. C-20, C-04, INV-FENCE."""
        queue = self.name()
        self.push(queue, 1, 2)
        closed = self.take(queue)
        self.settle(closed)
        held = self.take(queue)
        self.target.seek(m.Seek(queue=queue, to="start"))
        assert [self.ack(claim)[0].code for claim in (held, closed)] == ["LEASE_LOST"] * 2
        assert self.drain(queue) == [1, 2]

    @needs("seek", "dlq")
    def test_g10_seeking_back_over_a_dead_letter_takes_it_out_of_the_list(self) -> None:
        """It comes again as a message. C-20, INV-DLQ."""
        queue = self.name()
        self.push(queue, 1)
        self.ack(self.take(queue), "dlq")
        self.target.seek(m.Seek(queue=queue, to="start"))
        assert not self.dead(queue)
        assert self.drain(queue) == [1]
        with pytest.raises(QueueNotFound):
            self.target.seek(m.Seek(queue=self.name(), to="end"))

    @needs("prio")
    def test_h12_a_higher_priority_is_served_first(self) -> None:
        """Where it has something to give; a lower one where it has not.

        C-17, INV-PRIORITY, PL-7.
        """
        namespace = self.name("ns")
        low = self._member(namespace, priority=1)
        high = self._member(namespace, priority=5)
        self.push(low, "low 1", "low 2")
        self.push(high, "high 1", "high 2")
        wanted = m.PopRequest(namespace=namespace)
        first, second = self.target.pop(wanted), self.target.pop(wanted)
        assert (values_of(first), values_of(second)) == (["high 1"], ["low 1"])
        assert not self.target.pop(wanted)
        self.settle(second)
        self.settle(first)
        assert values_of(self.target.pop(wanted)) == ["high 2"]

    @needs("prio")
    def test_h13_a_pop_over_a_scope_takes_from_matching_queues_only(self) -> None:
        """By namespace, by task, by both; and the group is registered in each.

        PL-1, C-07, INV-INTEGRITY.
        """
        namespace, other, task = self.name("ns"), self.name("other"), self.name("task")
        both = self._member(namespace, task=task)
        only_task = self._member(other, task=task)
        only_namespace = self._member(namespace)
        for queue in (both, only_task, only_namespace):
            self.push(queue, queue)
        scopes = {
            (both, only_namespace): {"namespace": namespace},
            (both, only_task): {"task": task},
            (both,): {"namespace": namespace, "task": task},
        }
        for expected, scope in scopes.items():
            group = self.name("group")
            wanted = m.PopRequest(group=group, **scope)  # type: ignore[arg-type]  # names to texts
            claims = [self.target.pop(wanted) for _ in range(3)]
            assert {x.queue for claim in claims for x in claim.messages} == set(expected)
            for claim in claims:
                self.settle(claim)

    @needs("popretry")
    def test_j12_a_repeated_pop_gives_the_same_claim_and_takes_no_second(self) -> None:
        """As long as its lease lives, whatever else there is. C-13, INV-CLAIM, O-32, PL-16."""
        queue = self.queue(lease_seconds=self.unit)
        self.push(queue, 1, 2, partition="a")
        self.push(queue, 3, partition="b")
        first = self.take(queue, 2, partition=None, attempt_id="try-1")
        again = self.take(queue, 2, attempt_id="try-1")
        assert (again.lease_id, values_of(again)) == (first.lease_id, values_of(first))
        assert values_of(self.pop(queue, 2, attempt_id="try-2")) == [3]
        self.settle(again)
        assert not self.pop(queue, 2, attempt_id="try-3")
        self.advance(self.unit)
        assert values_of(self.pop(queue, 2, attempt_id="try-2")) == [3]
        with pytest.raises(InvalidRequest):
            m.PopRequest(queue=queue, auto_ack=True, attempt_id="x")

    def _member(self, namespace: str, *, task: str = "", priority: int = 0) -> str:
        """Return a fresh queue of a namespace."""
        name = self.name()
        self.target.configure(name, {"priority": priority}, namespace=namespace, task=task)
        return name
