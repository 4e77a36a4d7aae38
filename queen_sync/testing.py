"""Fixtures for the tests of applications: a broker without a server, and a clock to advance.

::

    # conftest.py
    pytest_plugins = ["queen_sync.testing"]

The fixture ``queen`` is a `Broker` on the memory backend, which keeps every promise that the
others keep; ``queen_clock`` is the clock that it goes by. docs/how-to/unit-tests.md shows them at
work. Needs pytest.

PYTEST_DONT_REWRITE: nothing is asserted by statement, so it may be imported before pytest names it.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import pytest

from queen_sync import model as m
from queen_sync.backends.memory import MemoryBackend
from queen_sync.broker import Broker
from queen_sync.clock import ManualClock
from queen_sync.config import Settings
from queen_sync.payloads import to_value

DRAIN_ROUNDS = 10_000
ANYTHING = object()
"""As the value of `assert_pushed`: whatever was pushed will do."""


class TestBroker(Broker):
    """A broker that remembers what was pushed through it."""

    __test__ = False

    def __init__(self, clock: ManualClock) -> None:
        super().__init__(MemoryBackend(clock=clock), Settings())
        self.pushed: list[m.NewMessage] = []
        """The messages that were stored, in order; duplicates were not."""

    def push(self, items: Sequence[m.NewMessage], *, create: bool = True) -> list[m.Receipt]:
        receipts = super().push(items, create=create)
        self._remember(items, receipts)
        return receipts

    def transact(self, transaction: m.Transaction) -> m.Transacted:
        done = super().transact(transaction)
        self._remember(transaction.operations, done.results)
        return done

    def _remember(
        self,
        items: Sequence[m.NewMessage | m.Ack],
        answers: Sequence[m.Receipt | m.Acked],
    ) -> None:
        for item, answer in zip(items, answers, strict=True):
            stored = isinstance(answer, m.Receipt) and not answer.duplicate
            if stored and isinstance(item, m.NewMessage):
                self.pushed.append(item)


@pytest.fixture
def queen_clock() -> ManualClock:
    """Give the clock that ``queen`` goes by: leases and delays end when it is advanced."""
    return ManualClock()


@pytest.fixture
def queen(queen_clock: ManualClock) -> Iterator[TestBroker]:
    """Give a broker of this test alone, with nothing in it."""
    broker = TestBroker(queen_clock)
    yield broker
    broker.close()


def assert_pushed(
    queen: TestBroker,
    name: str,
    value: Any = ANYTHING,
    *,
    partition: str | None = None,
    transaction_id: str | None = None,
    times: int = 1,
) -> None:
    """Assert that a message was pushed to a queue exactly so often, with what is named here.

    ``value`` is the payload as Python value. Nothing is consumed, and what was consumed
    already counts; ``times`` 0 asserts that there was no such push.
    """
    __tracebackhide__ = True
    there = [item for item in queen.pushed if item.queue == name]
    found = [
        item
        for item in there
        if (value is ANYTHING or _value(item) == value)
        and partition in (None, item.partition)
        and transaction_id in (None, item.transaction_id)
    ]
    if len(found) != times:
        shown = "\n".join(f"    {_shown(item)}" for item in there) or "    nothing"
        wanted = {"value": value, "partition": partition, "transaction_id": transaction_id}
        named = {word: said for word, said in wanted.items() if said not in (ANYTHING, None)}
        what = ", ".join(f"{word}={said!r}" for word, said in named.items()) or "anything"
        pytest.fail(
            f"{what} was pushed to {name!r} {len(found)} times, not {times}; pushed there:\n{shown}"
        )


def drain(queen: Broker, name: str, *, group: str = m.QUEUE_MODE) -> list[m.Message]:
    """Take and complete all that a queue can deliver to a group now; return it in that order.

    What waits for its time, or is held under somebody's lease, stays: advance the clock first.
    """
    taken: list[m.Message] = []
    request = m.PopRequest(queue=name, group=group, max_messages=100, auto_ack=True)
    for _ in range(DRAIN_ROUNDS):
        claim = queen.pop(request)
        if not claim:
            return taken
        taken += claim.messages
    raise AssertionError(f"{name} does not run dry")


def _value(item: m.NewMessage) -> Any:
    return to_value(item.payload)


def _shown(item: m.NewMessage) -> str:
    named = "" if item.transaction_id is None else f" id={item.transaction_id}"
    return f"{item.partition}{named} {item.payload.decode()}"
