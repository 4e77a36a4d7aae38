"""What the memory backend shows of itself: partitions, messages with their states, and traces."""

from __future__ import annotations

import uuid
from collections.abc import Iterable
from typing import NamedTuple

import msgspec

from queen_sync import inspection as i
from queen_sync.backends.memory_encryption import shown_message
from queen_sync.backends.memory_partition import Partition
from queen_sync.backends.memory_state import GroupState
from queen_sync.backends.memory_store import Store
from queen_sync.backends.memory_values import FRESH, Stored
from queen_sync.encryption import KeyRing
from queen_sync.errors import MessageNotFound

# ------------------------------------------------------------------------- partitions


def partitions(store: Store, queue_name: str, now_us: int) -> list[i.PartitionState]:
    """Return the partitions of a queue as callers see them."""
    queue = store.queues.get(queue_name)
    if queue is None:
        return []
    return [
        _with_unreadable(store.keys, place, partition_state(place, now_us))
        for _, place in sorted(queue.partitions.items())
    ]


def _with_unreadable(
    keys: KeyRing | None, partition: Partition, shown: i.PartitionState
) -> i.PartitionState:
    """Return a partition with what its lanes wait for that cannot be opened here."""
    groups = []
    for group in shown.groups:
        head = next(partition.groups[group.name].waiting(), None)
        why = None if head is None else shown_message(keys, partition, head)[1]
        groups.append(msgspec.structs.replace(group, unreadable=why))
    return msgspec.structs.replace(shown, groups=groups)


def partition_state(
    partition: Partition, now_us: int, group: str | None = None
) -> i.PartitionState:
    """Return a partition as callers see it, where asked with one group only."""
    stored = partition.messages
    return i.PartitionState(
        queue=partition.queue.name,
        id=partition.id,
        name=partition.name,
        created_us=partition.created_us,
        pushed_count=partition.last_seq,
        stored_count=len(stored),
        waiting_count=partition.depth(),
        oldest_us=stored[0].created_us if stored else None,
        newest_us=stored[-1].created_us if stored else None,
        groups=[
            _group(state, now_us)
            for name, state in sorted(partition.groups.items())
            if group in (None, name)
        ],
    )


def _group(state: GroupState, now_us: int) -> i.PartitionGroup:
    hold = state.live(now_us)
    lowest = next(state.unsettled(), None)
    return i.PartitionGroup(
        name=state.group,
        lag=state.left(),
        in_flight_count=0 if hold is None else len(hold.open),
        retrying_count=sum(hold is None or seq not in hold.open for seq in state.histories),
        dead_count=len(state.dead),
        lease_expires_us=None if hold is None else hold.lease.expires_us,
        lease_count=0 if hold is None else len(hold.open) + len(hold.outcomes),
        oldest_waiting_us=None if lowest is None else lowest.created_us,
    )


# --------------------------------------------------------------------------- messages


class Place(NamedTuple):
    """A stored message and where it is."""

    partition: Partition
    message: Stored

    @property
    def key(self) -> tuple[int, str]:
        """What a listing is ordered by."""
        return self.message.created_us, self.message.id


def find(store: Store, partition_id: str, name: str) -> Place | None:
    """Return the stored message of that transaction id or message id, or None."""
    partition = store.partitions.get(partition_id)
    message = None if partition is None else partition.find(name)
    return None if partition is None or message is None else Place(partition, message)


def find_named(store: Store, name: str) -> Place | None:
    """Return the stored message of that name in the oldest partition that has one, or None."""
    for partition in sorted(store.partitions.values(), key=lambda partition: partition.number):
        message = partition.find(name)
        if message is not None:
            return Place(partition, message)
    return None


def place_of(store: Store, partition_id: str, name: str) -> Place:
    """Return the stored message of that name, or raise MessageNotFound."""
    found = find(store, partition_id, name)
    if found is None:
        raise MessageNotFound("Message not found")
    return found


def message(store: Store, place: Place | None, now_us: int) -> i.StoredMessage | None:
    """Return a message as callers see it, None where there is none."""
    if place is None:
        return None
    payload, unreadable = shown_message(store.keys, *place)
    found = _shown(place, payload, now_us, None)
    return msgspec.structs.replace(found, unreadable=unreadable)


def _shown(place: Place, payload: bytes, now_us: int, group: str | None) -> i.StoredMessage:
    """Return a message with its state for all groups or for one."""
    partition, stored = place
    return i.StoredMessage(
        id=stored.id,
        transaction_id=stored.transaction_id,
        queue=partition.queue.name,
        partition=partition.name,
        partition_id=partition.id,
        seq=stored.seq,
        payload=payload,
        created_us=stored.created_us,
        trace_id=stored.trace_id,
        encrypted=stored.encrypted,
        states=[
            _state(state, stored.seq, now_us)
            for name, state in sorted(partition.groups.items())
            if group in (None, name)
        ],
    )


def _state(state: GroupState, seq: int, now_us: int) -> i.MessageState:
    state.skip_too_old()
    history = state.histories.get(seq, FRESH)
    dead = state.dead.get(seq)
    if dead is not None:
        return i.MessageState(
            group=state.group,
            status="dead_letter",
            delivery_count=dead.delivery_count,
            failure_count=dead.failure_count,
            error=dead.error,
        )
    hold = state.live(now_us)
    if hold is not None and seq in hold.open:
        return i.MessageState(
            group=state.group,
            status="processing",
            delivery_count=history.deliveries + 1,
            failure_count=history.failures,
            error=history.error,
            lease_expires_us=hold.lease.expires_us,
        )
    if state.has_passed(seq) and seq not in state.redriven:
        return i.MessageState(group=state.group, status="completed")
    return i.MessageState(
        group=state.group,
        status="failed" if history.failures else "pending",
        delivery_count=history.deliveries,
        failure_count=history.failures,
        error=history.error,
    )


def messages(store: Store, wanted: i.MessageFilter, now_us: int) -> i.MessagePage:
    """Return a page of messages: newest first, of a trace oldest first."""
    rising = wanted.trace_id is not None
    found = sorted(_found(store, wanted), key=lambda place: place.key, reverse=not rising)
    if wanted.before is not None:
        key = wanted.before
        found = [place for place in found if (place.key > key if rising else place.key < key)]
    shown = [_shown(place, b"null", now_us, wanted.group) for place in found]
    listed = [each for each in shown if wanted.status in (None, each.status)]
    page = listed[wanted.offset : wanted.offset + wanted.limit]
    more = len(listed) > wanted.offset + wanted.limit
    return i.MessagePage(
        items=page, next_before=(page[-1].created_us, page[-1].id) if more else None
    )


def _found(store: Store, wanted: i.MessageFilter) -> Iterable[Place]:
    for queue in store.queues.values():
        if (
            wanted.queue not in (None, queue.name)
            or wanted.namespace not in (None, queue.namespace)
            or wanted.task not in (None, queue.task)
        ):
            continue
        for partition in queue.partitions.values():
            if wanted.partition not in (None, partition.name):
                continue
            if wanted.group is not None and wanted.group not in partition.groups:
                continue
            for stored in partition.messages:
                if (
                    wanted.trace_id in (None, stored.trace_id)
                    and (wanted.from_us is None or stored.created_us >= wanted.from_us)
                    and (wanted.to_us is None or stored.created_us <= wanted.to_us)
                ):
                    yield Place(partition, stored)


# ---------------------------------------------------------------------------- cleanup


def bury(place: Place, group: str | None, error: str | None, now_us: int) -> int:
    """Dead-letter a message for a group or for all; return for how many."""
    states = [
        state for name, state in place.partition.groups.items() if group is None or name == group
    ]
    return sum(state.bury(place.message.seq, error, now_us) for state in states)


def retry_now(place: Place, group: str | None, now_us: int) -> int:
    """End the retry delay of a message for a group or for all; return for how many it failed."""
    states = [
        state for name, state in place.partition.groups.items() if group is None or name == group
    ]
    return sum(state.retry_now(place.message.seq, now_us) for state in states)


# ----------------------------------------------------------------------------- traces


def add_trace(store: Store, place: Place, trace: i.Trace, now_us: int) -> str:
    """File a note about a message; return the note's id."""
    partition, message = place
    record = i.TraceRecord(
        id=str(uuid.uuid4()),
        queue=partition.queue.name,
        partition=partition.name,
        partition_id=partition.id,
        message_id=message.id,
        transaction_id=message.transaction_id,
        group=trace.group,
        names=list(dict.fromkeys(trace.names)),
        kind=trace.kind,
        data=trace.data,
        created_us=now_us,
    )
    filed = partition.traces.setdefault(message.seq, [])
    filed.append((next(store.trace_numbers), record))
    return record.id


def traces(store: Store, partition_id: str, name: str) -> list[i.TraceRecord]:
    """Return the notes about a message, oldest first."""
    found = find(store, partition_id, name)
    filed = [] if found is None else found.partition.traces.get(found.message.seq, [])
    return [record for _, record in filed]


def traces_named(store: Store, wanted: i.TraceFilter) -> i.TracePage:
    """Return a page of the notes of one name, oldest first."""
    found = [
        record
        for record in _records(store)
        if wanted.name in record.names
        and (wanted.from_us is None or record.created_us >= wanted.from_us)
        and (wanted.to_us is None or record.created_us <= wanted.to_us)
    ]
    return i.TracePage(items=found[wanted.offset : wanted.offset + wanted.limit], total=len(found))


def trace_names(store: Store, limit: int, offset: int) -> list[i.TraceName]:
    """Return the names that notes are filed under, the last used first."""
    filed: dict[str, list[i.TraceRecord]] = {}
    for record in _records(store):
        for name in record.names:
            filed.setdefault(name, []).append(record)
    found = [
        i.TraceName(
            name=name,
            trace_count=len(records),
            message_count=len({record.message_id for record in records}),
            last_us=max(record.created_us for record in records),
        )
        for name, records in filed.items()
    ]
    found.sort(key=lambda name: (-name.last_us, name.name))
    return found[offset : offset + limit]


def count_trace_names(store: Store) -> int:
    """Return under how many names notes are filed."""
    return len({name for record in _records(store) for name in record.names})


def _records(store: Store) -> list[i.TraceRecord]:
    """Return all notes, oldest first."""
    numbered = [
        note
        for partition in store.partitions.values()
        for filed in partition.traces.values()
        for note in filed
    ]
    return [record for _, record in sorted(numbered, key=lambda note: note[0])]
