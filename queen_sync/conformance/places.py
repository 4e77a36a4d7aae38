"""Places for messages of servers that give none.

The wire carries no seq: ours is told from the message id. Of another server's messages the order
in a partition is that of the instants at which it says it stored them, and of their ids where
those are equal, as ids that begin with a time are. What was pushed and never delivered stands
behind all that was, in the order of its receipts: its place is not known, and nothing is concluded
from it; that it never came is concluded all the same.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import Any, TypeVar

import msgspec

from queen_sync import model as m
from queen_sync.conformance.history import Operation

Placed = TypeVar("Placed", m.Message, m.Receipt, m.DeadLetter)


def placed(operations: Sequence[Operation]) -> Sequence[Operation]:
    """Return the operations with a seq in every message; themselves where none is missing."""
    if not any(item.seq == 0 for operation in operations for item in _items(operation)):
        return operations
    places = _Places(operations)
    return [places.given(operation) for operation in operations]


def _items(operation: Operation) -> Iterator[m.Message | m.Receipt | m.DeadLetter]:
    """Yield whatever in an answer has a place."""
    answer = operation.answer
    if answer is None:
        return
    match operation.name:
        case "pop":
            yield from answer.messages
        case "push":
            yield from answer
        case "transact":
            yield from (each for each in answer.results if isinstance(each, m.Receipt))
        case "dead_letters":
            yield from answer.items


class _Places:
    """The place of every message, by partition and message id."""

    def __init__(self, operations: Iterable[Operation]) -> None:
        self._partitions: dict[tuple[str, str], str] = {}
        stored: dict[str, dict[str, int]] = {}
        receipts: list[m.Receipt] = []
        for operation in operations:
            for item in _items(operation):
                if item.partition_id:
                    self._partitions.setdefault((item.queue, item.partition), item.partition_id)
                if isinstance(item, m.Receipt):
                    receipts.append(item)
                else:
                    lane = stored.setdefault(self._partition(item), {})
                    lane.setdefault(item.id, item.created_us)
        self._seqs: dict[str, dict[str, int]] = {}
        for partition, instants in stored.items():
            in_order = sorted(instants, key=lambda name, at=instants: (at[name], name))  # type: ignore[misc]  # bound now
            self._seqs[partition] = {name: seq for seq, name in enumerate(in_order, 1)}
        for receipt in receipts:
            lane = self._seqs.setdefault(self._partition(receipt), {})
            lane.setdefault(receipt.id, len(lane) + 1)

    def given(self, operation: Operation) -> Operation:
        """Return the operation with the places in its answer."""
        answer: Any = operation.answer
        if answer is None:
            return operation
        match operation.name:
            case "pop":
                messages = [self._place(message) for message in answer.messages]
                answer = msgspec.structs.replace(answer, messages=messages)
            case "push":
                answer = [self._place(receipt) for receipt in answer]
            case "transact":
                results = [
                    self._place(each) if isinstance(each, m.Receipt) else each
                    for each in answer.results
                ]
                answer = msgspec.structs.replace(answer, results=results)
            case "dead_letters":
                letters = [self._place(letter) for letter in answer.items]
                answer = msgspec.structs.replace(answer, items=letters)
        return msgspec.structs.replace(operation, answer=answer)

    def _partition(self, item: m.Message | m.Receipt | m.DeadLetter) -> str:
        place = item.queue, item.partition
        return item.partition_id or self._partitions.get(place, "/".join(place))

    def _place(self, item: Placed) -> Placed:
        partition = self._partition(item)
        return msgspec.structs.replace(
            item, partition_id=partition, seq=self._seqs[partition][item.id]
        )
