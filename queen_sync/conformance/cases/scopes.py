"""G13, H12 and H13: pops over the queues of a namespace or a task."""

from __future__ import annotations

from collections import Counter
from typing import Any

from queen_sync import model as m
from queen_sync.conformance.base import Cases, needs, values_of

NEW = m.Subscription(mode="new")


class ScopeCases(Cases):
    def over(self, namespace: str, count: int = 1, **wanted: Any) -> m.Claim:
        """Pop over a namespace."""
        return self.target.pop(m.PopRequest(namespace=namespace, max_messages=count, **wanted))

    def member(self, namespace: str, *, task: str | None = None, **options: int) -> str:
        """Return the name of a fresh queue of a namespace."""
        queue = self.name()
        self.target.configure(queue, options, namespace=namespace, task=task)
        return queue

    def drain_over(self, namespace: str, **wanted: Any) -> list[Any]:
        """Pop and complete over a namespace until nothing comes."""
        values: list[Any] = []
        while claim := self.over(namespace, 100, **wanted):
            values += values_of(claim)
            self.settle(claim)
        return values

    # -------------------------------------------------------------------- priority

    @needs("prio")
    def test_h12_the_higher_priority_is_served_first(self) -> None:
        """Strictly, however long the lower one waits; a message tells its own.

        C-17, INV-PRIORITY, O-48, O-14.
        """
        space = self.name("namespace")
        low, high = self.member(space), self.member(space, priority=10)
        self.push(low, "low")
        for n in range(5):
            self.push(high, n, partition=f"p{n % 2}")
            self.advance(self.tick)
            claim = self.over(space, 9)
            assert [(x.value, x.queue, x.priority) for x in claim.messages] == [(n, high, 10)]
            self.settle(claim)
        claim = self.over(space)
        assert [(x.value, x.queue, x.priority) for x in claim.messages] == [("low", low, 0)]

    @needs("prio")
    def test_h12_a_pop_of_the_queue_itself_tells_its_priority_too(self) -> None:
        """Also after a change, and for what was stored before. C-17, C-11, O-48."""
        queue = self.queue(priority=3)
        self.push(queue, 1, 2)
        assert self.take(queue).messages[0].priority == 3
        self.target.configure(queue, {"priority": 7})
        assert self.take(queue, group=self.name("group")).messages[0].priority == 7

    @needs("prio", "delay")
    def test_h12_a_lower_priority_is_served_while_the_higher_has_nothing_to_give(self) -> None:
        """Leased or not yet due is not waiting. INV-PRIORITY, C-17, INV-LIVENESS, O-48."""
        space = self.name("namespace")
        high = self.member(space, priority=10)
        delayed = self.member(space, priority=5, delayed_processing_seconds=100 * self.unit)
        low = self.member(space)
        for queue in (high, delayed, low):
            self.push(queue, queue)
        assert [values_of(self.over(space)) for _ in range(3)] == [[high], [low], []]

    @needs("prio")
    def test_h12_work_that_comes_again_keeps_its_priority(self) -> None:
        """A failed or expired message goes before fresh ones of lower queues.

        C-17, INV-PRIORITY, O-48.
        """
        space = self.name("namespace")
        high = self.member(space, priority=1, lease_seconds=self.unit)
        low = self.member(space)
        self.push(high, "high")
        self.push(low, "low")
        self.ack(self.over(space), "failed")
        assert values_of(self.over(space)) == ["high"]
        self.advance(self.unit)
        claim = self.over(space)
        assert [(x.value, x.delivery_count) for x in claim.messages] == [("high", 3)]

    @needs("prio")
    def test_h12_equal_priorities_take_turns(self) -> None:
        """The partition that has waited longest comes first, over all queues.

        C-17, C-05, INV-PRIORITY.
        """
        space = self.name("namespace")
        queues = [self.member(space, priority=2) for _ in range(3)]
        # A group waits from its registration on, so that comes before what it waits for.
        assert not self.over(space)
        for queue in queues:
            self.push(queue, *[queue] * 4)
            self.advance(self.tick)
        served = []
        for _ in range(9):
            claim = self.over(space)
            served += values_of(claim)
            self.advance(self.tick)
            self.settle(claim)
            self.advance(self.tick)
        assert served == queues * 3

    @needs("prio")
    def test_h12_priority_never_reorders_a_partition(self) -> None:
        """It is the queue's, so a change reaches all of its messages. C-17, INV-FIFO."""
        space = self.name("namespace")
        queue, other = self.member(space), self.member(space, priority=5)
        self.push(queue, 1)
        self.push(other, "other")
        self.target.configure(queue, {"priority": 9})
        self.push(queue, 2)
        assert self.drain_over(space) == [1, 2, "other"]

    # ----------------------------------------------------------------------- scope

    @needs("prio")
    def test_h13_a_pop_over_a_scope_takes_from_its_queues_alone(self) -> None:
        """Namespace, task, or both must match. C-17, INV-INTEGRITY, PL-7."""
        space, other = self.name("namespace"), self.name("namespace")
        task, errand = self.name("task"), self.name("task")
        names = {
            where: self.member(where[0], task=where[1])
            for where in ((space, task), (space, errand), (other, task), (space, None))
        }
        for where, queue in names.items():
            self.push(queue, list(where))
        scopes: list[tuple[str | None, str | None, set[tuple[str, str | None]]]] = [
            (space, task, {(space, task)}),
            (space, None, {(space, task), (space, errand), (space, None)}),
            (None, task, {(space, task), (other, task)}),
            (other, errand, set()),
        ]
        for namespace, duty, expected in scopes:
            wanted = m.PopRequest(
                namespace=namespace, task=duty, group=self.name("group"), max_messages=9
            )
            found: Counter[tuple[str, str | None]] = Counter()
            while claim := self.target.pop(wanted):
                assert {x.queue for x in claim.messages} == {names[tuple(claim.messages[0].value)]}
                found.update(tuple(value) for value in values_of(claim))
                self.settle(claim)
            assert found == Counter(expected)

    @needs("prio")
    def test_h13_a_dotted_name_gives_namespace_and_task(self) -> None:
        """A queue made by a push too. C-17, PL-7."""
        space, task = self.name("namespace"), self.name("task")
        self.push(f"{space}.{task}", 1)
        self.push(f"{space}.{task}.more", 2)
        request = m.PopRequest(namespace=space, task=task, max_messages=9, auto_ack=True)
        found = [value for _ in range(2) for value in values_of(self.target.pop(request))]
        assert sorted(found) == [1, 2]

    @needs("prio")
    def test_h13_a_claim_is_of_one_queue(self) -> None:
        """Of several partitions, where asked, but of no other queue. C-17, INV-CLAIM."""
        space = self.name("namespace")
        first, second = self.member(space), self.member(space)
        for partition in ("a", "b"):
            self.push(first, 1, partition=partition)
            self.push(second, 2, partition=partition)
        claim = self.over(space, 9, max_partitions=9)
        assert claim.partition_count == 2
        assert len({message.queue for message in claim.messages}) == 1
        assert {answer.status for answer in self.ack(claim)} == {"completed"}
        assert self.over(space, 9, max_partitions=9).partition_count == 2

    @needs("prio")
    def test_h13_a_group_is_the_same_however_it_pops(self) -> None:
        """What it holds by name it holds in the scope. C-17, INV-CLAIM."""
        space = self.name("namespace")
        queue = self.member(space)
        self.push(queue, 1)
        claim = self.take(queue)
        assert not self.over(space)
        self.settle(claim)
        assert not self.over(space)

    @needs("prio")
    def test_h13_an_auto_ack_pop_over_a_scope_settles(self) -> None:
        """As one of a queue does. C-17, C-19."""
        space = self.name("namespace")
        queue = self.member(space)
        self.push(queue, 1)
        claim = self.over(space, auto_ack=True)
        assert (values_of(claim), claim.lease_id) == ([1], None)
        assert not self.over(space)
        assert not self.pop(queue)

    # ---------------------------------------------------------------- registration

    @needs("prio", "sub_new")
    def test_g13_a_new_group_of_a_scope_begins_in_all_its_queues_at_once(self) -> None:
        """What they hold is old for it, what comes is not. C-07, INV-SUBSCRIBE, O-37."""
        space, group = self.name("namespace"), self.name("group")
        queues = [self.member(space) for _ in range(2)]
        for queue in queues:
            self.push(queue, "old")
        assert not self.over(space, group=group, subscription=NEW)
        for queue in queues:
            self.push(queue, "new")
        assert self.drain_over(space, group=group) == ["new"] * 2
        assert not self.pop(queues[0], group=group)

    @needs("prio", "sub_new")
    def test_g13_a_queue_that_is_made_later_takes_the_group_over(self) -> None:
        """All of it is new: nothing that is pushed to it is missed.

        C-07, INV-SUBSCRIBE, O-37, O-40.
        """
        space, group = self.name("namespace"), self.name("group")
        assert not self.over(space, group=group, subscription=NEW)
        self.push(f"{space}.task", "made by a push")
        queue = self.member(space)
        self.push(queue, "made by hand")
        found = self.drain_over(space, group=group)
        assert sorted(found) == ["made by a push", "made by hand"]

    @needs("prio", "sub_new", "cap")
    def test_g13_a_group_of_a_scope_counts_in_a_queue_that_is_made_later(self) -> None:
        """It is registered there before it pops, and holds its room. C-06, C-07, O-44."""
        space, group = self.name("namespace"), self.name("group")
        self.over(space, group=group, subscription=NEW)
        queue = self.member(space, max_queue_size=2)
        self.push(queue, 1)
        self.drain(queue)
        assert self.push(queue, 2)[0].depth == 2
        assert self.drain_over(space, group=group) == [1, 2]

    @needs("prio", "sub_new")
    def test_g13_a_queue_that_comes_into_the_scope_takes_the_group_over(self) -> None:
        """What was pushed to it since the group began is new. C-07, INV-SUBSCRIBE, O-40."""
        space, group, queue = self.name("namespace"), self.name("group"), self.name()
        self.push(queue, "old")
        self.advance(self.tick)
        self.over(space, group=group, subscription=NEW)
        self.advance(self.tick)
        self.push(queue, "since")
        self.target.configure(queue, namespace=space)
        self.push(queue, "new")
        assert self.drain_over(space, group=group) == ["since", "new"]

    @needs("prio", "sub_from")
    def test_g13_a_beginning_in_time_holds_for_queues_made_later(self) -> None:
        """They get what was created from then on. C-07, INV-SUBSCRIBE."""
        space, group, queue = self.name("namespace"), self.name("group"), self.name()
        self.push(queue, "before")
        self.advance(self.tick)
        self.push(queue, "after")
        created = self.take(queue, 2, group=self.name("look")).messages[1].created_us
        start = m.Subscription(mode="from", from_us=created)
        assert not self.over(space, group=group, subscription=start)
        self.target.configure(queue, namespace=space)
        assert self.drain_over(space, group=group) == ["after"]

    @needs("prio", "sub_new")
    def test_g13_a_group_keeps_where_it_began_by_name(self) -> None:
        """A pop over the scope moves no beginning that was said before. C-07, INV-SUBSCRIBE."""
        space, group = self.name("namespace"), self.name("group")
        queue, early = self.member(space), self.name()
        self.push(queue, "old")
        self.pop(queue, group=group, subscription=NEW)
        self.pop(early, group=group)
        assert not self.over(space, group=group, subscription=m.Subscription())
        self.target.configure(early, namespace=space)
        self.push(early, 1)
        assert self.drain_over(space, group=group) == [1]

    @needs("prio", "sub_new")
    def test_g13_a_later_pop_over_the_scope_is_told_that_it_is_ignored(self) -> None:
        """The first word about the scope counts, also with nothing in it. C-07, INV-SUBSCRIBE."""
        space, group = self.name("namespace"), self.name("group")
        everything = m.Subscription()
        asked = [NEW, everything, None, NEW]
        said = [self.over(space, group=group, subscription=x).subscription_ignored for x in asked]
        assert said == [False, True, False, False]
        task = m.PopRequest(task=space, group=group, subscription=everything)
        assert not self.target.pop(task).subscription_ignored

    @needs("prio", "delete", "sub_new")
    def test_g13_a_deleted_group_forgets_its_scopes(self) -> None:
        """Its next pop begins as that pop says; one queue's progress is no scope's. C-07, QB-5."""
        space, group = self.name("namespace"), self.name("group")
        queue = self.member(space)
        self.push(queue, "old")
        self.over(space, group=group, subscription=NEW)
        self.target.delete_group(group)
        claim = self.over(space, group=group, subscription=m.Subscription())
        assert (values_of(claim), claim.subscription_ignored) == (["old"], False)
        self.settle(claim)
        self.target.delete_group(group, queue=queue)
        assert self.drain_over(space, group=group) == ["old"]

    @needs("prio", "delete", "sub_new", "sub_from")
    def test_g13_the_recorded_beginning_of_a_scope_can_be_set(self) -> None:
        """It holds in queues that come later. INV-SUBSCRIBE, QB-5."""
        space, group, queue = self.name("namespace"), self.name("group"), self.name()
        self.push(queue, "old")
        self.advance(self.tick)
        self.over(space, group=group, subscription=NEW)
        assert self.target.restart_subscription(group, 0) == 1
        self.target.configure(queue, namespace=space)
        assert self.drain_over(space, group=group) == ["old"]

    @needs("prio", "sub_new")
    def test_g13_partitions_with_old_messages_hide_no_other(self) -> None:
        """Among 200 of them, the one new message comes at once. C-07, INV-LIVENESS, O-38."""
        space, group = self.name("namespace"), self.name("group")
        queue = self.member(space)
        self.target.push([m.NewMessage.of(queue, n, partition=f"p{n}") for n in range(200)])
        assert not self.over(space, group=group, subscription=NEW)
        self.push(queue, "new", partition="p100")
        assert values_of(self.over(space, group=group)) == ["new"]
