"""Looking into the store: partitions, where groups stand in them, and messages with their states.

All of it reads, on a connection that waits for nobody. A lane that is looked at is moved over
what is not for its group, as a pop would move it, and never saved.
"""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

from queen_sync import ids, inspection as i
from queen_sync.backends.base import Backend
from queen_sync.backends.sqlite_connections import (
    MAX_INTEGER,
    Connections,
    Row,
    Session,
    bounded,
)
from queen_sync.backends.sqlite_lane_records import Place, place_of
from queen_sync.backends.sqlite_lanes import Lane
from queen_sync.backends.sqlite_listing import Listed, lanes_of_partition, page_of
from queen_sync.backends.sqlite_push import First, find_named, find_stored
from queen_sync.backends.sqlite_sealing import shown_payload
from queen_sync.backends.sqlite_seqs import united

NULL = b"null"
NO_LIMIT = -1


class SqliteInspection(Backend):
    """What `SqliteBackend` shows of itself."""

    _db: Connections

    def partitions(
        self, queue: str, *, limit: int | None = None, offset: int = 0
    ) -> Sequence[i.PartitionState]:
        return self._db.read(
            lambda session: _partitions(session, queue, limit, offset), snapshot=True
        )

    def message(self, partition_id: str, transaction_id: str) -> i.StoredMessage | None:
        def work(session: Session) -> i.StoredMessage | None:
            return _whole(session, find_stored(session, partition_id, transaction_id))

        return self._db.read(work, snapshot=True)

    def message_named(self, transaction_id: str) -> i.StoredMessage | None:
        return self._db.read(
            lambda session: _whole(session, find_named(session, transaction_id)), snapshot=True
        )

    def messages(self, wanted: i.MessageFilter) -> i.MessagePage:
        return self._db.read(lambda session: _page(session, wanted), snapshot=True)


# -------------------------------------------------------------------------- partitions


def _partitions(
    session: Session, queue: str, limit: int | None, offset: int
) -> list[i.PartitionState]:
    page = (NO_LIMIT if limit is None else bounded(limit), bounded(offset))
    rows = session.rows("partitions_of_queue", queue, *page)
    dead = {(place, group): count for place, group, count in session.rows("dead_counts", queue)}
    lanes: dict[int, list[tuple[str, Row]]] = {}
    if limit is None:
        found = session.rows("lanes_of_queue", queue)
    else:
        found = [lane for row in rows for lane in session.rows("named_lanes", row[0])]
    for name, *lane in found:
        lanes.setdefault(lane[0], []).append((name, tuple(lane)))
    return [_partition(session, tuple(row), lanes.get(row[0], []), dead) for row in rows]


def _partition(
    session: Session, row: Row, rows: list[tuple[str, Row]], dead: dict[tuple[int, int], int]
) -> i.PartitionState:
    *columns, created_us, hole_count = row
    place = Place._make(columns)
    stored = place.last_seq - place.first_seq + 1 - hole_count
    lanes = [(name, Lane(session, place, lane)) for name, lane in rows]
    waiting = []
    for _, lane in lanes:
        lane.skip_too_old()
        waiting += lane.waiting()
        waiting += [(seq, seq + 1) for seq in lane.redriven_seqs() if seq >= place.first_seq]
    return i.PartitionState(
        queue=place.queue_name,
        id=ids.partition_id(place.partition),
        name=place.partition_name,
        created_us=created_us,
        pushed_count=place.last_seq,
        stored_count=stored,
        waiting_count=united(waiting) if lanes else stored,
        oldest_us=_instant(session.row("message_at", place.partition, place.first_seq)),
        newest_us=_instant(session.row("last_stored", place.partition)),
        groups=[
            _group(name, lane, dead.get((place.partition, lane.group), 0)) for name, lane in lanes
        ],
    )


def _instant(row: Row | None) -> int | None:
    return None if row is None else int(row[0])


def _group(name: str, lane: Lane, dead: int) -> i.PartitionGroup:
    waiting = lane.waiting()
    head = lane.session.row("message_at", lane.place.partition, waiting[0][0]) if waiting else None
    live = lane.live()
    retrying = lane.retry_count
    if live and retrying:
        lane.look_at(lane.open.edges[0], lane.open.edges[-1])
        retrying -= sum(seq in lane.open for seq in lane.known())
    return i.PartitionGroup(
        name=name,
        lag=sum(end - first for first, end in waiting) + lane.redriven_count,
        in_flight_count=len(lane.open) if live else 0,
        retrying_count=retrying,
        dead_count=dead,
        lease_expires_us=lane.expires_us if live else None,
        lease_count=len(lane.hold.batch) if live and lane.hold is not None else 0,
        oldest_waiting_us=_instant(head),
        unreadable=_unreadable(lane),
    )


def _unreadable(lane: Lane) -> str | None:
    """Return why the message that comes next cannot be opened; None where it can."""
    place = lane.place
    for *_, name, _, payload, key in lane.head():
        where = place.queue_name, place.partition_name, name
        return shown_payload(lane.session.keys, where, payload, key)[1]
    return None


# ---------------------------------------------------------------------------- messages


def _whole(session: Session, found: tuple[Place, First] | None) -> i.StoredMessage | None:
    """Return a message with its payload and its states; None where it was not found."""
    if found is None:
        return None
    place, first = found
    partition, seq = place.partition, first.seq
    ((*_, stored, key),) = session.rows("read_batch", partition, seq, seq + 1, MAX_INTEGER)
    names = first.transaction_id, first.trace_id, place.queue_name, place.partition_name
    row = (first.created_us, partition, seq, *names)
    message = _message(row, stored, _states(session, partition, [seq])[seq])
    where = message.queue, message.partition, message.transaction_id
    payload, unreadable = shown_payload(session.keys, where, stored, key)
    return msgspec.structs.replace(
        message, payload=payload, encrypted=key is not None, unreadable=unreadable
    )


def _page(session: Session, wanted: i.MessageFilter) -> i.MessagePage:
    rows, more = page_of(session, wanted)
    seqs: dict[int, list[int]] = {}
    for row in rows:
        seqs.setdefault(row[1], []).append(row[2])
    states = {
        partition: _states(session, partition, found, wanted.group)
        for partition, found in seqs.items()
    }
    items = [
        msgspec.structs.replace(
            _message(row, NULL, states[row[1]][row[2]]),
            encrypted=session.row("sealing_key", row[1], row[2]) is not None,
        )
        for row in rows
    ]
    return i.MessagePage(
        items=items, next_before=(items[-1].created_us, items[-1].id) if more else None
    )


def _states(
    session: Session, partition: int, seqs: list[int], group: str | None = None
) -> dict[int, list[i.MessageState]]:
    """Return what has become of some messages of a partition, for each group or for one."""
    place = place_of(session, partition)
    assert place is not None, "it was found in the same snapshot"
    lanes = lanes_of_partition(session, place, group)
    return {seq: [_state(name, lane, seq) for name, lane in lanes] for seq in seqs}


def _state(group: str, lane: Lane, seq: int) -> i.MessageState:
    passed = lane.has_passed(seq)
    # Only what is settled in the log can have a copy, dead or given back.
    where = (lane.group, lane.place.partition, seq)
    letter = lane.session.row("letter", *where) if passed else None
    if letter is not None and letter[0] is None:
        _, deliveries, failures, error = letter
        return i.MessageState(
            group=group,
            status="dead_letter",
            delivery_count=deliveries,
            failure_count=failures,
            error=error,
        )
    history = lane.history(seq)
    if lane.live() and seq in lane.open:
        return i.MessageState(
            group=group,
            status="processing",
            delivery_count=history.deliveries + 1,
            failure_count=history.failures,
            error=history.error,
            lease_expires_us=lane.expires_us,
        )
    if passed and letter is None:
        return i.MessageState(group=group, status="completed")
    return i.MessageState(
        group=group,
        status="failed" if history.failures else "pending",
        delivery_count=history.deliveries,
        failure_count=history.failures,
        error=history.error,
    )


def _message(row: Listed, payload: bytes, states: list[i.MessageState]) -> i.StoredMessage:
    created_us, partition, seq, transaction_id, trace_id, queue_name, partition_name = row
    message_id = ids.message_id(partition, seq, created_us)
    return i.StoredMessage(
        id=message_id,
        transaction_id=transaction_id or message_id,
        queue=queue_name,
        partition=partition_name,
        partition_id=ids.partition_id(partition),
        seq=seq,
        payload=payload,
        created_us=created_us,
        trace_id=trace_id,
        states=states,
    )
