"""A14: a queue that spreads what names no partition over several."""

from __future__ import annotations

import pytest

from queen_sync import model as m
from queen_sync.conformance.base import Cases, needs
from queen_sync.errors import QueueFull

NAMES = ["Default", "Default-2", "Default-3"]


class SpreadCases(Cases):
    def places(self, receipts: list[m.Receipt]) -> list[str]:
        return [receipt.partition for receipt in receipts]

    @needs("spread")
    def test_a14_calls_take_turns_over_the_partitions(self) -> None:
        """Least recently used first, those never used before all. PLD-12, C-18, O-14."""
        queue = self.queue(spread_partitions=3)
        found = [self.push(queue, n)[0].partition for n in range(7)]
        assert found == [*NAMES, *NAMES, "Default"]
        assert self.drain(queue, partition="Default-2") == [1, 4]
        assert sorted(self.drain(queue)) == [0, 2, 3, 5, 6]

    @needs("spread")
    def test_a14_the_messages_of_one_call_stay_together(self) -> None:
        """In their order. PLD-12, INV-ORDER."""
        queue = self.queue(spread_partitions=2)
        self.push(queue, "first")
        assert self.places(self.push(queue, *range(5))) == ["Default-2"] * 5
        assert self.drain(queue, partition="Default-2") == list(range(5))

    @needs("spread")
    def test_a14_a_repeat_meets_the_first_in_its_partition(self) -> None:
        """A transaction id says by itself where it goes. PLD-12, C-16, INV-DEDUP."""
        queue = self.queue(spread_partitions=3)
        ids = [f"order {n}" for n in range(20)]
        first = self.push(queue, *range(20), ids=ids)
        assert self.places(first) == [m.spread_name(m.spread_index(name, 3)) for name in ids]
        assert set(self.places(first)) == set(NAMES)
        self.push(queue, "between")
        again = self.push(queue, *range(20), ids=ids)
        assert {receipt.status for receipt in again} == {"duplicate"}
        assert [receipt.id for receipt in again] == [receipt.id for receipt in first]

    @needs("spread")
    def test_a14_named_messages_do_not_change_whose_turn_it_is(self) -> None:
        """Only the calls that are spread by turn count as use. PLD-12, C-16."""
        queue = self.queue(spread_partitions=2)
        here = next(x for x in (f"id {n}" for n in range(99)) if m.spread_index(x, 2) == 0)
        self.push(queue, "named", ids=[here])
        assert [self.push(queue, n)[0].partition for n in range(2)] == NAMES[:2]

    @needs("spread")
    def test_a14_the_servers_own_id_sent_back_is_a_duplicate(self) -> None:
        """It names the message wherever that was put. PLD-12, C-16, INV-DEDUP."""
        queue = self.queue(spread_partitions=3)
        first = [self.push(queue, n)[0] for n in range(3)]
        for receipt in first:
            (again,) = self.push(queue, "again", ids=[receipt.id])
            assert (again.status, again.id) == ("duplicate", receipt.id)
            assert again.partition == receipt.partition

    @needs("spread")
    def test_a14_other_partitions_are_left_alone(self) -> None:
        """Only pushes to `Default`, named or not, are spread. PLD-12, C-18."""
        queue = self.queue(spread_partitions=3)
        for partition in ("eu", "Default-2", "eu"):
            assert self.push(queue, 1, partition=partition)[0].partition == partition
        assert [self.push(queue, n)[0].partition for n in range(3)] == NAMES

    @needs("spread", "txn")
    def test_a14_a_transaction_is_one_call(self) -> None:
        """Its pushes without an id go together. PLD-12, C-15."""
        queue = self.queue(spread_partitions=2)
        self.push(queue, 0)
        pushes = [m.NewMessage.of(queue, n) for n in (1, 2)]
        done = self.target.transact(m.Transaction(operations=pushes))
        assert [r.partition for r in done.results if isinstance(r, m.Receipt)] == ["Default-2"] * 2
        assert self.push(queue, 3)[0].partition == "Default"

    @needs("spread", "cap")
    def test_a14_a_refused_push_takes_no_turn(self) -> None:
        """Nothing of it has happened; repeats need no room. PLD-12, C-06, INV-CAPACITY."""
        queue = self.queue(spread_partitions=3, max_queue_size=2)
        self.push(queue, 0, ids=["x"])
        self.push(queue, 1)
        assert self.push(queue, 0, ids=["x"])[0].status == "duplicate"
        for _ in range(2):
            with pytest.raises(QueueFull):
                self.push(queue, 9)
        self.settle(self.take(queue))
        assert self.push(queue, 2)[0].partition == "Default-2"

    @needs("spread")
    def test_a14_spreading_can_be_turned_on_and_off(self) -> None:
        """What is stored stays where it is and is delivered. PLD-12, C-11, INV-NO-LOSS."""
        queue = self.name()
        self.push(queue, 0)
        self.target.configure(queue, {"spread_partitions": 2})
        assert [self.push(queue, n)[0].partition for n in (1, 2)] == NAMES[:2]
        self.target.configure(queue, {"spread_partitions": 0})
        assert self.places(self.push(queue, 3) + self.push(queue, 4)) == ["Default"] * 2
        assert sorted(self.drain(queue)) == [0, 1, 2, 3, 4]
