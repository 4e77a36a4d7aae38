"""H19: notes about messages, filed under names."""

from __future__ import annotations

from collections.abc import Sequence

import pytest

from queen_sync import inspection as i, model as m
from queen_sync.conformance.base import Cases, needs
from queen_sync.errors import InvalidRequest, MessageNotFound
from queen_sync.payloads import JsonText


class TraceCases(Cases):
    def note(self, receipt: m.Receipt, *names: str, kind: str = "info", data: bytes = b"1") -> str:
        """File a note about a message."""
        return self.target.add_trace(
            i.Trace(
                partition_id=receipt.partition_id,
                transaction_id=receipt.transaction_id,
                names=names,
                kind=kind,
                data=JsonText.check(data),
            )
        )

    def named(self, name: str, **wanted: int) -> Sequence[str]:
        """Return the ids of the notes of a name."""
        page = self.target.traces_named(i.TraceFilter(name=name, **wanted))
        return [record.id for record in page.items]

    @needs("traces")
    def test_h19_a_note_comes_back_as_it_was_filed(self) -> None:
        """With its message, its names and its data byte for byte. INV-PAYLOAD, INV-INTEGRITY."""
        queue, name = self.name(), self.name("name")
        receipt = self.push(queue, 1, partition="p", ids=["mine"])[0]
        written = i.Trace(
            partition_id=receipt.partition_id,
            transaction_id=receipt.id,
            group="group",
            names=[name, "b/\u00e9", name],
            kind="step",
            data=JsonText.check(b'{"n": 1.10, "n": 1e999}'),
        )
        number = self.target.add_trace(written)
        (found,) = self.target.traces(receipt.partition_id, "mine")
        assert found == i.TraceRecord(
            id=number,
            queue=queue,
            partition="p",
            partition_id=receipt.partition_id,
            message_id=receipt.id,
            transaction_id="mine",
            group="group",
            names=[name, "b/\u00e9"],
            kind="step",
            data=b'{"n": 1.10, "n": 1e999}',
            created_us=found.created_us,
        )
        assert list(self.target.traces_named(i.TraceFilter(name=name)).items) == [found]

    @needs("traces")
    def test_h19_notes_are_listed_in_the_order_they_were_filed(self) -> None:
        """Of one message, and of one name over all queues. INV-ORDER, INV-INTEGRITY."""
        name = self.name("name")
        receipts = [self.push(self.name(), n)[0] for n in range(2)]
        filed = []
        for n in range(5):
            filed.append(self.note(receipts[n % 2], name))
            self.note(receipts[n % 2])
            self.advance(self.tick)
        mine = self.target.traces(receipts[0].partition_id, receipts[0].transaction_id)
        assert [record.id for record in mine if record.names] == filed[::2]
        assert len(mine) == 6
        assert self.named(name) == filed
        assert [self.named(name, limit=2, offset=at) for at in (0, 2, 4, 6)] == [
            filed[:2],
            filed[2:4],
            filed[4:],
            [],
        ]
        page = self.target.traces_named(i.TraceFilter(name=name, limit=1))
        assert page.total == 5
        instants = [
            record.created_us for record in self.target.traces_named(i.TraceFilter(name=name)).items
        ]
        assert self.named(name, from_us=instants[1], to_us=instants[3]) == filed[1:4]

    @needs("traces")
    def test_h19_names_are_counted_the_last_used_first(self) -> None:
        """Notes and the messages that they are about. INV-COUNTERS."""
        old, new = self.name("old"), self.name("new")
        receipts = self.push(self.name(), 1, 2)
        self.note(receipts[0], old)
        self.note(receipts[0], old)
        self.advance(self.tick)
        self.note(receipts[0], old, new)
        self.advance(self.tick)
        self.note(receipts[1], new)
        found = [x for x in self.target.trace_names(1_000) if x.name in (old, new)]
        assert [(x.name, x.trace_count, x.message_count) for x in found] == [
            (new, 2, 2),
            (old, 3, 1),
        ]
        names = list(self.target.trace_names(1_000))
        assert self.target.count_trace_names() >= len(names) >= 2
        place = [x.name for x in names].index(old)
        assert list(self.target.trace_names(1, place)) == names[place : place + 1]
        assert list(self.target.trace_names(1, len(names))) == []

    @needs("traces", "cleanup", "delete")
    def test_h19_notes_go_with_their_message(self) -> None:
        """However it leaves the store. INV-INTEGRITY, C-16."""
        name = self.name("name")
        queues = [self.name() for _ in range(4)]
        places = [self.push(queue, 1, partition="p")[0] for queue in queues]
        for place in places:
            self.note(place, name)
        self.target.delete_message(places[0].partition_id, places[0].transaction_id)
        assert len(self.named(name)) == 3
        self.target.clear(queues[1])
        assert len(self.named(name)) == 2
        self.target.delete_partition(queues[2], "p")
        assert len(self.named(name)) == 1
        self.target.delete_queue(queues[3])
        assert self.named(name) == []
        assert name not in [found.name for found in self.target.trace_names(1_000)]
        for place in places:
            assert list(self.target.traces(place.partition_id, place.transaction_id)) == []

    @needs("traces", "retention")
    def test_h19_retention_takes_the_notes_along(self) -> None:
        """With the messages that it removes, and no others. C-09, INV-RETENTION."""
        queue, name = self.queue(retention_enabled=True, retention_seconds=self.unit), self.name()
        self.note(self.push(queue, 1)[0], name)
        self.advance(self.unit)
        kept = self.note(self.push(queue, 2)[0], name)
        self.target.sweep()
        assert self.named(name) == [kept]

    @needs("traces")
    def test_h19_a_note_needs_its_message(self) -> None:
        """And names that are names. INV-NO-500, C-18."""
        place = self.push(self.name(), 1)[0]
        for partition, message in (
            (place.partition_id, "nobody's"),
            ("no id at all", place.transaction_id),
        ):
            assert list(self.target.traces(partition, message)) == []
            with pytest.raises(MessageNotFound):
                self.target.add_trace(i.Trace(partition_id=partition, transaction_id=message))
        for names in ([""], ["."], ["a\0"], ["n"] * 101):
            with pytest.raises(InvalidRequest):
                self.note(place, *names)
