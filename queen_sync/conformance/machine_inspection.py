"""Rules of the agreement machine that look into both stores, and clean them up by hand."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import msgspec
from hypothesis import strategies as st
from hypothesis.stateful import invariant, rule

from queen_sync import inspection as i, stats as s
from queen_sync.backends.base import Backend
from queen_sync.conformance.machine_base import GROUPS, PARTITIONS
from queen_sync.conformance.machine_moves import Moves, offered

PLACES = (*PARTITIONS, "Default")
PAGE = 3


def _lanes(**wanted: Any) -> Callable[[Backend, str], Any]:
    return lambda backend, queue: backend.lanes(
        msgspec.convert({"queue": queue, **wanted}, s.LaneFilter)
    )


LOOKS: Sequence[Callable[[Backend, str], Any]] = (
    lambda backend, queue: backend.queue_stats(queue),
    lambda backend, queue: backend.group_stats(queue=queue),
    lambda backend, queue: backend.partitions(queue, limit=1, offset=1),
    _lanes(leased=True, order="expiry", limit=2, offset=1),
    *(_lanes(order=order) for order in s.LANE_ORDERS),
)


class Inspections(Moves):
    """Partitions, messages and their states; deletion, burial and clearing, on both alike."""

    turn = 0

    @invariant()
    def partitions_agree(self) -> None:
        if self.offers("stats"):
            self.agree(lambda backend, _: backend.partitions(self.queue))
            self.agree(lambda backend, _: backend.partitions(self.neighbour))

    @invariant()
    def figures_agree(self) -> None:
        """Compare one kind of figures after each step, in turn: all of them would take long."""
        if self.offers("stats"):
            self.turn += 1
            look = LOOKS[self.turn % len(LOOKS)]
            self.agree(lambda backend, _: look(backend, self.queue))

    @offered("messages")
    @rule()
    def list_messages(self) -> None:
        """Page through everything: the same rows in the same order, none of them twice."""
        self.agree(lambda backend, _: [_seen(message) for message in self.stored(backend)])

    @offered("messages")
    @rule(
        status=st.sampled_from([None, *i.STATUSES]),
        group=st.sampled_from([None, *GROUPS, "unheard of"]),
    )
    def list_some(self, status: i.MessageStatus | None, group: str | None) -> None:
        """Page through what has a status, for one group or for all of them together."""
        self.agree(
            lambda backend, _: [
                _seen(message) for message in self.stored(backend, status=status, group=group)
            ]
        )

    @offered("messages")
    @rule(which=st.integers(0, 20), named=st.booleans())
    def look_up(self, which: int, named: bool) -> None:
        def look(backend: Backend, partition_id: str, name: str) -> Any:
            found = backend.message(partition_id, name)
            return None if found is None else _seen(found)

        self.one(which, named, look)

    @offered("messages", "cleanup")
    @rule(which=st.integers(0, 20), named=st.booleans())
    def delete_message(self, which: int, named: bool) -> None:
        self.one(which, named, lambda backend, *place: backend.delete_message(*place))

    @offered("messages", "cleanup")
    @rule(
        which=st.integers(0, 20),
        named=st.booleans(),
        group=st.sampled_from([None, *GROUPS, "unheard of"]),
        error=st.sampled_from([None, "by hand"]),
    )
    def dead_letter(self, which: int, named: bool, group: str | None, error: str | None) -> None:
        self.one(
            which, named, lambda backend, *place: backend.bury(*place, group=group, error=error)
        )

    @offered("messages", "cleanup")
    @rule(
        which=st.integers(0, 20),
        named=st.booleans(),
        group=st.sampled_from([None, *GROUPS, "unheard of"]),
    )
    def retry_now(self, which: int, named: bool, group: str | None) -> None:
        self.one(which, named, lambda backend, *place: backend.retry_now(*place, group=group))

    @offered("cleanup")
    @rule(partition=st.sampled_from([None, *PLACES, "nowhere"]))
    def clear(self, partition: str | None) -> None:
        self.agree(lambda backend, _: backend.clear(self.queue, partition))

    @offered("cleanup")
    @rule(partition=st.sampled_from([*PLACES, "nowhere"]))
    def delete_partition(self, partition: str) -> None:
        self.agree(lambda backend, _: backend.delete_partition(self.queue, partition))

    @offered("messages", "traces")
    @rule(which=st.integers(0, 20), names=st.lists(st.sampled_from("xyz"), max_size=2))
    def file_a_note(self, which: int, names: list[str]) -> None:
        filed = [f"{self.queue} {name}" for name in names]

        def note(backend: Backend, partition_id: str, name: str) -> None:
            trace = i.Trace(partition_id=partition_id, transaction_id=name, names=filed)
            backend.add_trace(trace)

        self.one(which, True, note)

    @offered("traces")
    @rule()
    def read_the_notes(self) -> None:
        wanted = [i.TraceFilter(name=f"{self.queue} {name}") for name in "xyz"]
        self.agree(lambda backend, _: [_noted(backend.traces_named(each)) for each in wanted])

    # ------------------------------------------------------------------------- helpers

    def stored(
        self, backend: Backend, status: i.MessageStatus | None = None, group: str | None = None
    ) -> list[i.StoredMessage]:
        """Return all messages of the queue, or those of a status or group, read page by page."""
        found: list[i.StoredMessage] = []
        wanted = i.MessageFilter(queue=self.queue, status=status, group=group, limit=PAGE)
        while True:
            page = backend.messages(wanted)
            found += page.items
            if page.next_before is None:
                return found
            wanted = msgspec.structs.replace(wanted, before=page.next_before)

    def one(self, which: int, named: bool, use: Callable[[Backend, str, str], Any]) -> None:
        """Do something with one stored message, where there is any."""

        def call(backend: Backend, _: int) -> Any:
            found = self.stored(backend)
            if not found:
                return None
            chosen = found[which % len(found)]
            name = chosen.transaction_id if named else chosen.id
            return chosen.seq, use(backend, chosen.partition_id, name)

        self.agree(call)


def _noted(page: i.TracePage) -> list[tuple[str, str, Sequence[str], int]]:
    """Return what of some notes two backends must agree on."""
    return [(note.queue, note.partition, note.names, note.created_us) for note in page.items]


def _seen(message: i.StoredMessage) -> i.StoredMessage:
    """Return a message without what only its own backend knows."""
    own = message.transaction_id == message.id
    return msgspec.structs.replace(
        message, transaction_id="the server's" if own else message.transaction_id
    )
