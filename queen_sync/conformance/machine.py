"""A state machine that runs one program against two backends and compares every answer.

The oracle is the memory backend, the subject any other that takes a clock. Programs are drawn by
Hypothesis and shrunk to a few calls when the two disagree. Ids and times of creation differ
between backends by nature; everything else in an answer must be equal.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import msgspec
from hypothesis import strategies as st
from hypothesis.stateful import invariant, multiple, rule

from queen_sync import model as m
from queen_sync.backends.base import Backend
from queen_sync.clock import ManualClock
from queen_sync.conformance.machine_base import (
    BATCH,
    CLAIMS,
    GROUPS,
    LEASE_SECONDS,
    PARTITIONS,
    Pair,
    acks_of,
    comparable,
)
from queen_sync.conformance.machine_inspection import Inspections


class Agreement(Inspections):
    """Does the same on both backends; subclasses say what the two are (`agreement_with`)."""

    # --------------------------------------------------------------------------- rules

    @rule(
        places=st.lists(
            st.tuples(st.sampled_from(PARTITIONS), st.integers(0, 4)), min_size=1, max_size=4
        )
    )
    def push(self, places: list[tuple[str, int]]) -> None:
        items = self.items(places)
        self.agree(lambda backend, _: backend.push(items))

    @rule(partition=st.sampled_from(PARTITIONS), count=st.integers(1, 3))
    def push_unnamed(self, partition: str, count: int) -> None:
        items = [m.NewMessage.of(self.queue, n, partition=partition) for n in range(count)]
        self.agree(lambda backend, _: [r.seq for r in backend.push(items)])

    @rule(
        target=CLAIMS,
        partition=st.sampled_from([None, None, *PARTITIONS]),
        group=st.sampled_from(GROUPS),
        count=st.integers(1, BATCH),
        partitions=st.integers(1, 3),
        auto_ack=st.sampled_from([False, False, False, True]),
    )
    def pop(
        self, partition: str | None, group: str, count: int, partitions: int, auto_ack: bool
    ) -> Any:
        request = m.PopRequest(
            queue=self.queue,
            group=group,
            partition=self.place(partition),
            max_messages=count,
            max_partitions=partitions,
            auto_ack=auto_ack,
        )
        pair = self.agree(lambda backend, _: backend.pop(request))
        return pair if pair and pair[0].lease_id else multiple()

    @rule(group=st.sampled_from(["n", "f"]), back=st.integers(-20, 20))
    def pop_from_a_start(self, group: str, back: int) -> None:
        # What was pushed before a start to come is passed over sooner or later: any order is fair.
        self.any_order = self.any_order or back < 0
        start = (
            m.Subscription(mode="new")
            if group == "n"
            else m.Subscription(mode="from", from_us=self.clock.now_us() - back * 1_000_000)
        )
        request = m.PopRequest(
            queue=self.queue,
            group=group,
            partition=self.place(None),
            max_messages=3,
            auto_ack=True,
            subscription=start,
        )
        self.agree(lambda backend, _: backend.pop(request))

    @rule(
        pair=CLAIMS,
        outcomes=st.lists(
            st.sampled_from([*m.OUTCOMES, "completed", "completed", None]),
            min_size=BATCH,
            max_size=BATCH,
        ),
        backwards=st.booleans(),
        doubled=st.booleans(),
        with_lease=st.sampled_from([True, True, True, False]),
        with_partition=st.sampled_from([True, True, False]),
    )
    def ack(
        self,
        pair: Pair,
        outcomes: list[m.Outcome | None],
        backwards: bool,
        doubled: bool,
        with_lease: bool,
        with_partition: bool,
    ) -> None:
        def call(backend: Backend, index: int) -> list[m.Acked]:
            acks = acks_of(pair[index], outcomes)
            if not with_lease:
                acks = [msgspec.structs.replace(a, lease_id=None) for a in acks]
            if not with_partition and with_lease:
                acks = [msgspec.structs.replace(a, partition_id=None) for a in acks]
            if backwards:
                acks.reverse()
            return backend.ack(acks * (1 + doubled))

        self.agree(call)

    @rule(pair=CLAIMS, seconds=st.sampled_from([None, 1, 15]))
    def extend(self, pair: Pair, seconds: int | None) -> None:
        self.agree(lambda backend, index: backend.extend(pair[index].lease_id, seconds))

    @rule(pair=CLAIMS)
    def release(self, pair: Pair) -> None:
        self.agree(lambda backend, index: backend.release(pair[index].lease_id))

    @rule(
        pair=CLAIMS,
        outcomes=st.lists(
            st.sampled_from(["completed", "completed", "failed"]), min_size=BATCH, max_size=BATCH
        ),
        places=st.lists(
            st.tuples(st.sampled_from(PARTITIONS), st.integers(0, 4)), min_size=0, max_size=2
        ),
        named=st.booleans(),
    )
    def transact(
        self,
        pair: Pair,
        outcomes: list[m.Outcome | None],
        places: list[tuple[str, int]],
        named: bool,
    ) -> None:
        items = self.items(places)

        def call(backend: Backend, index: int) -> m.Transacted:
            acks = acks_of(pair[index], outcomes)
            if not named:
                acks = [msgspec.structs.replace(a, lease_id=None, group=m.QUEUE_MODE) for a in acks]
            return backend.transact(
                m.Transaction(operations=[*acks, *items], required_leases=[pair[index].lease_id])
            )

        self.agree(call)

    @rule(
        partition=st.sampled_from(PARTITIONS),
        group=st.sampled_from(GROUPS),
        steps=st.lists(
            st.tuples(st.sampled_from(["expire", "fail", "some"]), st.integers(1, 3)),
            min_size=2,
            max_size=5,
        ),
    )
    def trouble(self, partition: str, group: str, steps: list[tuple[str, int]]) -> None:
        """Redeliver again and again: random programs alone seldom get so far."""
        for what, count in steps:
            self.clock.advance(LEASE_SECONDS + 1)
            request = m.PopRequest(
                queue=self.queue, group=group, partition=partition, max_messages=count
            )
            pair = self.pops(request)
            if pair[0] and what != "expire":
                outcomes: list[m.Outcome | None] = ["failed"] * (1 if what == "some" else BATCH)
                self.acks(pair, outcomes)
        self.clock.advance(LEASE_SECONDS + 1)

    @rule(seconds=st.sampled_from([1, 5, 11, 60]))
    def wait(self, seconds: int) -> None:
        self.clock.advance(seconds)

    @rule(retry_limit=st.integers(0, 2), delay=st.sampled_from([0, 5]))
    def configure(self, retry_limit: int, delay: int) -> None:
        options = {"retry_limit": retry_limit, "delayed_processing_seconds": delay}
        answers = self.agree(
            lambda backend, _: sorted(backend.configure(self.queue, options).changes)
        )
        self.any_order = self.any_order or "delayed_processing_seconds" in answers[0]

    @rule(group=st.sampled_from([*GROUPS, "n"]), keep=st.booleans())
    def delete_group(self, group: str, keep: bool) -> None:
        self.agree(
            lambda backend, _: backend.delete_group(group, queue=self.queue, keep_subscription=keep)
        )

    @rule(group=st.sampled_from(GROUPS), partition=st.sampled_from([None, *PARTITIONS]))
    def look_ahead(self, group: str, partition: str | None) -> None:
        """Pop at the instant that `next_ready_in` names."""
        request = m.PopRequest(
            queue=self.queue, group=group, partition=self.place(partition), auto_ack=True
        )
        seconds = self.backends[1].next_ready_in(request)
        if seconds is not None:
            self.clock.advance(seconds)
            self.agree(lambda backend, _: backend.pop(request))

    # --------------------------------------------------------------------- invariants

    @invariant()
    def dead_letters_agree(self) -> None:
        if hasattr(self, "backends"):
            self.agree(
                lambda backend, _: sorted(
                    comparable(d)
                    for d in backend.dead_letters(m.DeadLetterFilter(queue=self.queue)).items
                )
            )

    @invariant()
    def groups_agree(self) -> None:
        if hasattr(self, "backends"):
            self.agree(lambda backend, _: backend.groups(self.queue))


def agreement_with(
    make_oracle: Callable[[ManualClock], Backend], make_subject: Callable[[ManualClock], Backend]
) -> type[Agreement]:
    """Return the machine for two backends, each made anew for every program."""
    return type(
        "Agreement",
        (Agreement,),
        {"makers": (make_oracle, make_subject)},
    )
