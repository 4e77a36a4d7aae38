"""J12: a pop whose answer was lost can be asked for again."""

from __future__ import annotations

import itertools
from functools import partial

import pytest

from queen_sync import model as m
from queen_sync.conformance.base import STRESS_SECONDS, Cases, needs, values_of
from queen_sync.conformance.workloads import together
from queen_sync.errors import InvalidRequest

THREADS = 16
ROUNDS = max(1, round(5 * STRESS_SECONDS))


class AttemptCases(Cases):
    @needs("popretry")
    def test_j12_a_repeated_pop_gives_the_same_claim(self) -> None:
        """Same lease, same messages, same counts; the next message stays for others. C-13."""
        queue = self.name()
        self.push(queue, 1, 2, 3)
        first = self.take(queue, 2, attempt_id="a")
        again = self.pop(queue, 9, attempt_id="a")
        assert again == first
        assert not self.pop(queue, 9, attempt_id="b")
        self.settle(again)
        assert values_of(self.pop(queue, 9, attempt_id="b")) == [3]

    @needs("popretry")
    def test_j12_a_repeat_takes_no_other_partition(self) -> None:
        """Whatever waits elsewhere is for another pop, whatever the repeat asks. C-13."""
        queue = self.name()
        self.push(queue, "x", partition="x")
        self.take(queue, attempt_id="a")
        self.push(queue, "y", partition="y")
        for wanted in ({}, {"partition": "y"}, {"max_partitions": 2}):
            assert values_of(self.pop(queue, 9, attempt_id="a", **wanted)) == ["x"]
        assert values_of(self.pop(queue, 9)) == ["y"]

    @needs("popretry")
    def test_j12_a_repeat_leaves_out_what_has_its_outcome(self) -> None:
        """Failed ones too: they come again later, under another lease. C-13, C-04."""
        queue = self.name()
        self.push(queue, 1, 2, 3)
        claim = self.take(queue, 3, attempt_id="a")
        self.ack(claim, only=[0])
        self.ack(claim, "failed", only=[1])
        again = self.pop(queue, 3, attempt_id="a")
        assert (again.lease_id, values_of(again)) == (claim.lease_id, [3])
        assert again.messages[0].delivery_count == 1
        self.settle(again)
        fresh = self.take(queue, attempt_id="a")
        assert fresh.lease_id != claim.lease_id
        assert values_of(fresh) == [2]

    @needs("popretry")
    def test_j12_an_attempt_ends_with_its_lease(self) -> None:
        """After the expiry its id is that of a new pop, which counts as one. C-13, C-03."""
        queue = self.queue(lease_seconds=self.unit)
        self.push(queue, 1)
        first = self.take(queue, attempt_id="a")
        self.advance(self.unit)
        second = self.take(queue, attempt_id="a")
        assert second.lease_id != first.lease_id
        assert second.messages[0].delivery_count == 2
        assert self.ack(first)[0].code == "LEASE_LOST"
        self.settle(second)

    @needs("popretry", "extend")
    def test_j12_a_repeat_tells_the_present_expiry(self) -> None:
        """The lease may have been extended meanwhile. C-13, C-20."""
        queue = self.queue(lease_seconds=self.unit)
        self.push(queue, 1)
        claim = self.take(queue, attempt_id="a")
        expires_us = self.target.extend(str(claim.lease_id), 100 * self.unit)
        again = self.pop(queue, attempt_id="a")
        assert (again.lease_id, again.expires_us) == (claim.lease_id, expires_us)

    @needs("popretry", "release")
    def test_j12_an_attempt_that_was_given_back_is_over(self) -> None:
        """So is one that found nothing: nothing is remembered of it. C-13."""
        queue = self.name()
        assert not self.pop(queue, attempt_id="a")
        self.push(queue, 1)
        claim = self.take(queue, attempt_id="a")
        self.target.release(str(claim.lease_id))
        assert self.take(queue, attempt_id="a").lease_id != claim.lease_id

    @needs("popretry")
    def test_j12_an_attempt_id_belongs_to_one_queue_and_group(self) -> None:
        """The same text elsewhere is another attempt. C-13, INV-FANOUT."""
        one, two, group = self.name(), self.name(), self.name("group")
        for queue in (one, two):
            self.push(queue, queue)
        claims = [
            self.take(one, attempt_id="a"),
            self.take(two, attempt_id="a"),
            self.take(one, group=group, attempt_id="a"),
        ]
        assert [values_of(claim) for claim in claims] == [[one], [two], [one]]
        assert len({claim.lease_id for claim in claims}) == 3

    @needs("popretry")
    def test_j12_a_claim_over_partitions_is_repeated_where_it_still_holds(self) -> None:
        """A partition that was settled whole is left out. C-13, C-04."""
        queue = self.name()
        for partition in ("x", "y", "z"):
            self.push(queue, f"{partition}1", f"{partition}2", partition=partition)
        claim = self.take(queue, 6, max_partitions=3, attempt_id="a")
        assert self.pop(queue, 6, max_partitions=3, attempt_id="a") == claim
        settled = claim.messages[2].partition
        places = [n for n, message in enumerate(claim.messages) if message.partition == settled]
        self.ack(claim, only=places)
        again = self.pop(queue, 6, max_partitions=3, attempt_id="a")
        assert (again.lease_id, again.partition_count) == (claim.lease_id, 2)
        assert values_of(again) == [x.value for x in claim.messages if x.partition != settled]

    @needs("popretry", "prio")
    def test_j12_an_attempt_over_a_scope_is_that_scopes(self) -> None:
        """Repeated, it gives the claim of the queue that it found. C-13, C-17."""
        namespace, queue = self.name("namespace"), self.name()
        self.target.configure(queue, namespace=namespace)
        self.push(queue, 1, 2)
        request = m.PopRequest(namespace=namespace, attempt_id="a")
        claim = self.target.pop(request)
        assert values_of(claim) == [1]
        assert self.target.pop(request) == claim
        assert not self.pop(queue, attempt_id="a")

    @needs("popretry", "delete")
    def test_j12_an_attempt_does_not_outlive_its_queue(self) -> None:
        """A new queue of the same name knows nothing of it. C-13, INV-INTEGRITY."""
        queue = self.name()
        self.push(queue, "old")
        old = self.take(queue, attempt_id="a")
        self.target.delete_queue(queue)
        self.push(queue, "new")
        claim = self.take(queue, attempt_id="a")
        assert values_of(claim) == ["new"]
        assert claim.lease_id != old.lease_id

    @needs("popretry")
    def test_j12_a_pop_that_settles_at_once_cannot_be_repeated(self) -> None:
        """At most once means that nothing is kept to give again. C-13, C-19."""
        with pytest.raises(InvalidRequest) as caught:
            m.PopRequest(queue="q", auto_ack=True, attempt_id="a")
        assert caught.value.field == "attemptId"


class ConcurrentAttemptCases(Cases):
    @needs("popretry")
    def test_j12_repeats_at_the_same_time_give_one_claim(self) -> None:
        """16 threads, one attempt id, partitions for all: one lease, the same for each.

        C-13, INV-CLAIM, O-57.
        """
        for number in itertools.islice(itertools.count(), ROUNDS):
            queue = self.name()
            for partition in range(THREADS):
                self.push(queue, partition, partition=f"p{partition}")
            attempt = f"attempt {number}"
            claims = together(*[partial(self.pop, queue, 3, attempt_id=attempt)] * THREADS)
            assert len({claim.lease_id for claim in claims}) == 1
            assert len({tuple(values_of(claim)) for claim in claims}) == 1
            assert self.pop(queue, 99, max_partitions=99).partition_count == THREADS - 1
