"""Rules of the agreement machine about what is optional: moves, scopes, attempts, and age.

Each plays only where both backends offer its feature.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Literal

import msgspec
from hypothesis import strategies as st
from hypothesis.stateful import invariant, multiple, precondition, rule

from queen_sync import model as m
from queen_sync.backends.base import Backend
from queen_sync.conformance.machine_base import (
    BATCH,
    CLAIMS,
    GROUPS,
    PARTITIONS,
    TwoBackends,
    comparable,
)

SECOND = 1_000_000


def offered(*features: str) -> Callable[[Any], Any]:
    """Let a rule play only where both backends offer the features."""
    return precondition(lambda machine: all(machine.offers(feature) for feature in features))


class Moves(TwoBackends):
    """Seeks, redrives, scopes, attempts, spreading and upkeep, on both backends alike."""

    @offered("seek")
    @rule(
        group=st.sampled_from([*GROUPS, "n", "f", "unheard of"]),
        partition=st.sampled_from([None, None, *PARTITIONS, "nowhere"]),
        to=st.sampled_from(["start", "end", "time", "time"]),
        back=st.sampled_from([0, 0, 1, 5, 11, 12, 16, 60, -2]),
    )
    def seek(
        self,
        group: str,
        partition: str | None,
        to: Literal["start", "end", "time"],
        back: int,
    ) -> None:
        instant = self.clock.now_us() - back * SECOND if to == "time" else None
        target = m.Seek(queue=self.queue, group=group, partition=partition, to=to, from_us=instant)
        self.agree(lambda backend, _: backend.seek(target))

    # -------------------------------------------------------------- dead letters

    @offered("dlq")
    @rule(
        group=st.sampled_from(GROUPS),
        partition=st.sampled_from([None, *PARTITIONS]),
        count=st.integers(1, BATCH),
        then=st.sampled_from(["nothing", "redrive", "redrive", "age and redrive"]),
        pops=st.lists(st.tuples(st.integers(1, 3), st.sampled_from(m.OUTCOMES)), max_size=2),
    )
    def bury(
        self,
        group: str,
        partition: str | None,
        count: int,
        then: str,
        pops: list[tuple[int, m.Outcome]],
    ) -> None:
        """Dead-letter what is there, and give it back: random programs alone seldom do."""
        self.agree(
            lambda backend, _: backend.push(
                [m.NewMessage.of(self.queue, n, partition=partition or "a") for n in range(count)]
            )
        )
        self.clock.advance(5)
        request = m.PopRequest(
            queue=self.queue, group=group, partition=self.place(partition), max_messages=count
        )
        pair = self.pops(request)
        if pair[0]:
            self.acks(pair, ["dlq"] * BATCH)
        if then == "nothing" or not self.offers("redrive"):
            return
        if then != "redrive":
            self.clock.advance(45)
            self.sweep()
        wanted = self.wanted(group, None, None)
        self.agree(lambda backend, _: backend.redrive(wanted))
        for number, outcome in pops:
            pair = self.pops(msgspec.structs.replace(request, max_messages=number))
            self.acks(pair, [outcome, "completed", None])

    @offered("dlq", "redrive")
    @rule(
        group=st.sampled_from([None, None, *GROUPS]),
        partition=st.sampled_from([None, None, *PARTITIONS]),
        name=st.sampled_from([None, None, None, "t1", "t4", "t9"]),
    )
    def redrive(self, group: str | None, partition: str | None, name: str | None) -> None:
        wanted = self.wanted(group, partition, name)
        self.agree(lambda backend, _: backend.redrive(wanted))

    @offered("dlq", "redrive")
    @rule(group=st.sampled_from(GROUPS), partition=st.sampled_from(PARTITIONS))
    def purge(self, group: str, partition: str) -> None:
        wanted = self.wanted(group, partition, None)
        self.agree(lambda backend, _: backend.purge(wanted))

    def wanted(
        self, group: str | None, partition: str | None, name: str | None
    ) -> m.DeadLetterFilter:
        """Return a filter for this machine's dead letters."""
        return m.DeadLetterFilter(
            queue=self.queue, group=group, partition=partition, transaction_id=name
        )

    # -------------------------------------------------------- scopes and attempts

    @offered("prio")
    @rule(
        target=CLAIMS,
        group=st.sampled_from([*GROUPS, "s"]),
        count=st.integers(1, BATCH),
        partitions=st.integers(1, 3),
        auto_ack=st.sampled_from([False, False, False, True]),
        mode=st.sampled_from([None, None, "all", "new"]),
    )
    def pop_over_the_namespace(
        self,
        group: str,
        count: int,
        partitions: int,
        auto_ack: bool,
        mode: Literal["all", "new"] | None,
    ) -> Any:
        if self.any_order:
            return multiple()
        request = m.PopRequest(
            namespace=self.namespace,
            group=group,
            max_messages=count,
            max_partitions=partitions,
            auto_ack=auto_ack,
            subscription=None if mode is None else m.Subscription(mode=mode),
        )
        pair = self.pops(request)
        return pair if pair[0].lease_id else multiple()

    @offered("prio")
    @rule(places=st.lists(st.sampled_from(PARTITIONS), min_size=1, max_size=2))
    def push_to_the_neighbour(self, places: list[str]) -> None:
        items = [m.NewMessage.of(self.neighbour, n, partition=p) for n, p in enumerate(places)]
        self.agree(lambda backend, _: backend.push(items))

    @offered("prio", "delete")
    @rule(inside=st.booleans())
    def make_the_neighbour_anew(self, inside: bool) -> None:
        """Delete it and make it again, in the namespace at once or a moment later."""
        namespace = self.namespace if inside else ""
        self.agree(lambda backend, _: backend.delete_queue(self.neighbour))
        self.agree(
            lambda backend, _: backend.configure(self.neighbour, namespace=namespace).created
        )
        items = [m.NewMessage.of(self.neighbour, "fresh", partition="a")]
        self.agree(lambda backend, _: backend.push(items))
        if not inside:
            self.clock.advance(1)
            self.agree(
                lambda backend, _: sorted(
                    backend.configure(self.neighbour, namespace=self.namespace).changes
                )
            )

    @offered("popretry")
    @rule(
        target=CLAIMS,
        attempt=st.sampled_from(["x", "x", "y"]),
        group=st.sampled_from(GROUPS),
        count=st.integers(1, BATCH),
        partitions=st.integers(1, 3),
        times=st.integers(1, 2),
    )
    def pop_with_an_attempt_id(
        self, attempt: str, group: str, count: int, partitions: int, times: int
    ) -> Any:
        request = m.PopRequest(
            queue=self.queue,
            group=group,
            partition=self.place(None),
            max_messages=count,
            max_partitions=partitions,
            attempt_id=attempt,
        )

        def call(backend: Backend, index: int) -> tuple[m.Claim, bool]:
            claim = backend.pop(request)
            known = self.attempts[index].get(f"{attempt} of {group}")
            if claim:
                self.attempts[index][f"{attempt} of {group}"] = claim.lease_id
            return claim, claim.lease_id == known

        for _ in range(times):
            oracle, subject = self.agree(call)
        return (oracle[0], subject[0]) if oracle[0] else multiple()

    # ---------------------------------------------------------- spreading and age

    @offered("spread")
    @rule(names=st.lists(st.sampled_from([None, "t2", "t5", "t8", "u"]), min_size=1, max_size=3))
    def push_to_no_partition(self, names: list[str | None]) -> None:
        items = [m.NewMessage.of(self.queue, n, transaction_id=n) for n in names]
        self.agree(lambda backend, _: backend.push(items))

    @rule(
        ages=st.sampled_from([(0, 0), (25, 0), (60, 15)]),
        retention=st.sampled_from([0, 20]),
        spread=st.sampled_from([0, 2, 3]),
    )
    def configure_ages(self, ages: tuple[int, int], retention: int, spread: int) -> None:
        options = self.offered(
            {
                "ttl_seconds": ages[0],
                "max_wait_seconds": ages[1],
                "retention_enabled": retention > 0,
                "retention_seconds": retention,
                "spread_partitions": spread,
            }
        )
        self.agree(lambda backend, _: sorted(backend.configure(self.queue, options).changes))

    @rule()
    def sweep(self) -> None:
        """Compare what it took by the record: its report counts everybody's queues."""
        self.agree(lambda backend, _: backend.sweep().repaired)

    @invariant()
    def removals_agree(self) -> None:
        if self.offers("evict") or self.offers("retention"):
            self.agree(
                lambda backend, _: sorted(
                    str(comparable(removal)) for removal in backend.removals(self.queue)
                )
            )

    @invariant()
    def groups_of_the_neighbour_agree(self) -> None:
        if self.offers("prio") and self.offers("browse"):
            self.agree(lambda backend, _: backend.groups(self.neighbour))
