"""A partition of the memory backend: the log itself, and what is taken out of it.

Plain data under the one lock of `queen_sync.backends.memory`. What the groups have done with
the messages is in `memory_state`.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterator
from typing import TYPE_CHECKING

from queen_sync import ids, model as m
from queen_sync.backends.memory_values import QueueRecord, Stored
from queen_sync.clock import SECOND
from queen_sync.inspection import TraceRecord

if TYPE_CHECKING:
    from queen_sync.backends.memory_state import GroupState

MARKS_PER_TERM = 10
"""How many times per `completed_retention_seconds` it is written down how far all groups are."""


class Partition:
    """An ordered lane: seqs go on for ever; age takes the oldest messages, an operator any."""

    def __init__(self, number: int, name: str, queue: QueueRecord, created_us: int) -> None:
        self.number = number
        self.id = ids.partition_id(number)
        self.name = name
        self.queue = queue
        self.messages: list[Stored] = []
        """What is stored, in the order of seq."""
        self.last_seq = 0
        self.removed = 0
        """Everything up to this seq has been taken out."""
        self.holes: set[int] = set()
        """The seqs past it whose messages were deleted; settled for every group."""
        self.by_name: dict[str, Stored] = {}
        """Messages whose caller named them; the others are found through their id."""
        self.groups: dict[str, GroupState] = {}
        self.traces: dict[int, list[tuple[int, TraceRecord]]] = {}
        """The notes about stored messages, by seq, numbered in the order they were filed."""
        self.spread_at = 0
        """The number of the last call that spread unnamed messages here (PLD-12)."""
        self.created_us = created_us
        self.newest_us = 0
        """When the last message was pushed, stored or not."""
        self._marks: list[tuple[int, int]] = []
        """(instant, seq): at that instant all groups had settled everything up to seq."""

    # ---------------------------------------------------------------- the log

    def _index(self, seq: int) -> int:
        """Return how many stored messages stand before a seq."""
        if not self.holes:
            return max(0, seq - self.removed - 1)
        return bisect_left(self.messages, seq, key=lambda message: message.seq)

    def holds(self, seq: int) -> bool:
        """Whether the message of that seq is stored."""
        return self.removed < seq <= self.last_seq and seq not in self.holes

    def at(self, seq: int) -> Stored:
        """Return a stored message."""
        return self.messages[self._index(seq)]

    def after(self, seq: int) -> Iterator[Stored]:
        """Yield the stored messages behind a seq."""
        for index in range(self._index(seq + 1), len(self.messages)):
            yield self.messages[index]

    def last_before(self, instant_us: int) -> int:
        """Return the seq behind which everything was created at the instant or later."""
        index = bisect_left(self.messages, instant_us, key=lambda message: message.created_us)
        return self.messages[index].seq - 1 if index < len(self.messages) else self.last_seq

    def find(self, name: str) -> Stored | None:
        """Return the message of that transaction id or message id, or None."""
        named = self.by_name.get(name)
        if named is not None:
            return named
        address = ids.address(name)
        if address is None or address.partition != self.number:
            return None
        if not self.holds(address.seq):
            return None
        message = self.at(address.seq)
        return message if message.id == name else None

    def append(self, item: m.NewMessage, now_us: int, *, encrypted: bool = False) -> Stored:
        """Store a message behind the last one, never dated before it."""
        self.last_seq = seq = self.last_seq + 1
        self.newest_us = created_us = max(now_us, self.newest_us)
        message_id = ids.message_id(self.number, seq, created_us)
        name = item.transaction_id
        stored = Stored(
            seq,
            message_id,
            name or message_id,
            item.payload,
            created_us,
            item.trace_id,
            encrypted,
        )
        self.messages.append(stored)
        if name is not None:
            self.by_name[name] = stored
        return stored

    def depth(self) -> int:
        """Return how many stored messages some registered group has still to settle (C-06)."""
        states = list(self.groups.values())
        if not states:
            return len(self.messages)
        for state in states:
            state.skip_too_old()
        # Whoever stands lowest has settled what all have settled, so its set is enough.
        lowest = min(states, key=lambda state: state.position)
        behind = sum(all(state.has_passed(seq) for state in states) for seq in lowest.settled)
        again = {
            seq
            for state in states
            for seq in state.redriven
            if seq > self.removed and all(other.has_passed(seq) for other in states)
        }
        return self.last_seq - lowest.position - behind + len(again)

    # ---------------------------------------------------------------- retention

    def unsettle(self, position: int) -> None:
        """Note that a group now stands no further than ``position``."""
        self._marks = [(at_us, min(seq, position)) for at_us, seq in self._marks]

    def retain(self, now_us: int) -> int:
        """Remove what the queue's retention names (C-09); return how many messages."""
        options = self.queue.options
        if not options.retention_enabled:
            self._marks = []
            return 0
        completed = self._remove_up_to(self._long_settled(now_us))
        self.queue.note_removal(self.name, "completed", completed, now_us)
        expired = 0
        if options.retention_seconds:
            too_old_us = now_us - options.retention_seconds * SECOND
            expired = self._remove_up_to(self.last_before(too_old_us + 1))
            self.queue.note_removal(self.name, "expired", expired, now_us)
        return completed + expired

    def _long_settled(self, now_us: int) -> int:
        """Return up to which seq all groups have been done for long enough.

        Only what a mark says is certain, and marks are taken by the sweep: so nothing is
        removed early, and a mark is all that has to be kept of the past.
        """
        term_us = self.queue.options.completed_retention_seconds * SECOND
        if not term_us or not self.groups:
            self._marks = []
            return self.removed
        for state in self.groups.values():
            state.skip_too_old()
        settled = min(state.position for state in self.groups.values())
        last_us, last_seq = self._marks[-1] if self._marks else (0, self.removed)
        if settled > last_seq and now_us - last_us >= term_us // MARKS_PER_TERM:
            self._marks.append((now_us, settled))
        ripe = [mark for mark in self._marks if mark[0] + term_us <= now_us]
        if not ripe:
            return self.removed
        # The newest of them stays: a lease may keep what it names from being removed for now.
        self._marks = self._marks[len(ripe) - 1 :]
        return ripe[-1][1]

    def _remove_up_to(self, seq: int) -> int:
        """Remove the oldest messages up to a seq, or to the first under a live lease."""
        for state in self.groups.values():
            first = state.first_leased()
            if first is not None:
                seq = min(seq, first - 1)
        count = self._index(seq + 1)
        for message in self.messages[:count]:
            self._forget(message)
        del self.messages[:count]
        self.removed = max(self.removed, seq)
        self.holes = {hole for hole in self.holes if hole > self.removed}
        for state in self.groups.values():
            state.pass_removed()
        return count

    def _forget(self, message: Stored) -> None:
        """Free the name of a message that leaves, and drop the notes about it."""
        if self.by_name.get(message.transaction_id) is message:
            del self.by_name[message.transaction_id]
        self.traces.pop(message.seq, None)

    # ------------------------------------------------------------------ cleaning up

    def delete(self, message: Stored, now_us: int) -> None:
        """Take one message out, for all groups."""
        for state in self.groups.values():
            state.drop(message.seq, now_us)
        del self.messages[self._index(message.seq)]
        self.holes.add(message.seq)
        self._forget(message)

    def clear(self, now_us: int) -> int:
        """Take all messages out; return how many."""
        count = len(self.messages)
        self.messages = []
        self.by_name = {}
        self.traces = {}
        self.holes = set()
        self.removed = self.last_seq
        for state in self.groups.values():
            state.clear(now_us)
        return count
