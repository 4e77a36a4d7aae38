"""What the agreement machine stands on: two backends, and what of their answers must be equal."""

from __future__ import annotations

import itertools
import secrets
from collections.abc import Callable
from typing import Any, ClassVar

import msgspec
from hypothesis import strategies as st
from hypothesis.stateful import Bundle, RuleBasedStateMachine, initialize

from queen_sync import model as m
from queen_sync.backends.base import OPTION_FEATURE, Backend
from queen_sync.clock import ManualClock
from queen_sync.errors import QueenError

_RUN = secrets.token_hex(4)
_fresh = itertools.count()
PARTITIONS = ("a", "b", "c")
GROUPS = (m.QUEUE_MODE, "g")
LEASE_SECONDS = 10
BATCH = 4
Pair = tuple[Any, Any]
"""The answers of the two backends to one call."""
CLAIMS: Bundle[Pair] = Bundle("claims")


class TwoBackends(RuleBasedStateMachine):
    """Two backends on one clock, with a queue in each and a second one beside it."""

    makers: ClassVar[tuple[Callable[[ManualClock], Backend], ...]]
    claims = CLAIMS

    @initialize(
        retry_limit=st.sampled_from([0, 1, 2]),
        max_queue_size=st.sampled_from([0, 0, 0, 4]),
        delay=st.sampled_from([0, 0, 5]),
        retry_delay=st.sampled_from([0, 0, 5_000]),
        window=st.sampled_from([0, 0, 0, 4]),
        require_lease=st.sampled_from([True, True, False]),
        ages=st.sampled_from([(0, 0), (0, 0), (25, 0), (60, 15), (0, 8)]),
        retention=st.sampled_from([0, 0, 20, 40]),
        spread=st.sampled_from([0, 3]),
        priorities=st.tuples(st.integers(0, 1), st.integers(0, 1)),
    )
    def begin(
        self,
        retry_limit: int,
        max_queue_size: int,
        delay: int,
        retry_delay: int,
        window: int,
        require_lease: bool,
        ages: tuple[int, int],
        retention: int,
        spread: int,
        priorities: tuple[int, int],
    ) -> None:
        self.clock = ManualClock()
        self.backends = [make(self.clock) for make in self.makers]
        offered = [backend.capabilities.features for backend in self.backends]
        self.features = frozenset.intersection(*offered)
        self.queue = f"agreement {_RUN} {next(_fresh)}"
        self.neighbour = f"{self.queue} neighbour"
        self.namespace = f"{self.queue} namespace"
        self.next_id = 0
        self.any_order = window > 0
        self.attempts: list[dict[str, str | None]] = [{}, {}]
        options: dict[str, int | bool] = {
            "lease_seconds": LEASE_SECONDS,
            "retry_limit": retry_limit,
            "max_queue_size": max_queue_size,
            "delayed_processing_seconds": delay,
            "retry_delay_milliseconds": retry_delay,
            "window_buffer_seconds": window,
            "require_lease_id": require_lease,
            "ttl_seconds": ages[0],
            "max_wait_seconds": ages[1],
            "retention_enabled": retention > 0,
            "retention_seconds": retention,
            "spread_partitions": spread,
            "priority": priorities[0],
        }
        beside: dict[str, int | bool] = {"lease_seconds": 5, "priority": priorities[1]}
        self.make(self.queue, self.offered(options))
        self.make(self.neighbour, self.offered(beside))

    def make(self, queue: str, options: dict[str, int | bool]) -> None:
        """Make a queue of the machine's namespace."""
        self.agree(
            lambda backend, _: backend.configure(queue, options, namespace=self.namespace).created
        )

    def teardown(self) -> None:
        if hasattr(self, "backends"):
            for backend in self.backends:
                backend.delete_queue(self.queue)
                backend.delete_queue(self.neighbour)

    def offers(self, feature: str) -> bool:
        """Whether both backends offer a feature."""
        return hasattr(self, "features") and feature in self.features

    def offered(self, options: dict[str, int | bool]) -> dict[str, int | bool]:
        """Return those options that both backends can honour."""
        return {
            name: value
            for name, value in options.items()
            if name not in OPTION_FEATURE or self.offers(OPTION_FEATURE[name])
        }

    # ------------------------------------------------------------------ both at once

    def both(self, call: Callable[[Backend, int], Any]) -> list[tuple[str, Any]]:
        answers = []
        for index, backend in enumerate(self.backends):
            try:
                answers.append(("ok", call(backend, index)))
            except QueenError as error:
                answers.append(("refused", (error.code, error.index)))
        return answers

    def agree(self, call: Callable[[Backend, int], Any]) -> Any:
        """Do the same on both and return the answers after comparing what must be equal."""
        oracle, subject = self.both(call)
        expected = (oracle[0], comparable(oracle[1]))
        given = (subject[0], comparable(subject[1]))
        assert expected == given, f"the oracle says {expected}, the subject {given}"
        return (oracle[1], subject[1]) if oracle[0] == "ok" else None

    def pops(self, request: m.PopRequest) -> Any:
        return self.agree(lambda backend, _: backend.pop(request))

    def acks(self, pair: Pair, outcomes: list[m.Outcome | None]) -> None:
        self.agree(lambda backend, index: backend.ack(acks_of(pair[index], outcomes)))

    def items(self, places: list[tuple[str, int]]) -> list[m.NewMessage]:
        """Return messages whose ids overlap with those of earlier pushes now and then."""
        made = [
            m.NewMessage.of(
                self.queue,
                {"n": back},
                partition=partition,
                transaction_id=f"t{max(0, self.next_id + 3 - back)}",
            )
            for partition, back in places
        ]
        self.next_id += 3
        return made

    def place(self, partition: str | None) -> str | None:
        """Return the partition to pop from: with a window, always a named one.

        When a partition with a window came due depends on every push since, and a backend
        may remember the first time or work out the last; both are fair. So with a changed delay.
        """
        return partition or ("a" if self.any_order else None)


def acks_of(claim: m.Claim, outcomes: list[m.Outcome | None]) -> list[m.Ack]:
    """Return acks of a claim's messages with these outcomes; None leaves one out."""
    return [
        m.Ack(
            transaction_id=message.transaction_id,
            partition_id=message.partition_id,
            outcome=outcome,
            lease_id=claim.lease_id,
            group=claim.group,
            error=f"{outcome} at {message.seq}" if outcome == "failed" else None,
        )
        for message, outcome in zip(claim.messages, outcomes, strict=False)
        if outcome is not None
    ]


_OF_THE_BACKEND = {"id", "lease_id", "partition_id", "error_text"}


def comparable(answer: Any) -> Any:
    """Return what of an answer two backends must agree on: all but their own ids."""
    if isinstance(answer, m.Message | m.Receipt | m.DeadLetter):
        fields = msgspec.structs.asdict(answer)
        if answer.transaction_id == answer.id:
            fields["transaction_id"] = "the server's"
        return tuple((k, v) for k, v in fields.items() if k not in _OF_THE_BACKEND)
    if isinstance(answer, m.Acked):
        fields = msgspec.structs.asdict(answer)
        if len(answer.transaction_id) == 36:
            fields["transaction_id"] = "the server's"
        if answer.code is not None:
            del fields["queue"], fields["partition"]  # a refusal may come before they are known
        return tuple(fields.items())
    if isinstance(answer, msgspec.Struct):
        return tuple(
            (k, comparable(v))
            for k, v in msgspec.structs.asdict(answer).items()
            if k not in _OF_THE_BACKEND
        )
    if isinstance(answer, list | tuple):
        return [comparable(item) for item in answer]
    return answer
