"""Taking things out by hand: single messages, whole partitions, and dead letters made now.

Whatever leaves the store is settled for every group in the same step.
"""

from __future__ import annotations

from collections.abc import Callable

from queen_sync import model as m
from queen_sync.backends.base import Backend
from queen_sync.backends.sqlite_connections import MAX_INTEGER, Connections, Session
from queen_sync.backends.sqlite_groups import make_partition
from queen_sync.backends.sqlite_hints import Hints
from queen_sync.backends.sqlite_holes import begin_partition, holes_of
from queen_sync.backends.sqlite_lane_records import Place, place_of
from queen_sync.backends.sqlite_lanes import Lane
from queen_sync.backends.sqlite_push import find_stored
from queen_sync.backends.sqlite_seqs import Seqs
from queen_sync.backends.sqlite_traces import forget_traces
from queen_sync.errors import MessageNotFound, PartitionNotFound, QueueNotFound

CLEARED_PARTITIONS = 100
CLEARED_MESSAGES = 5_000
"""So many partitions are cleared in one transaction, or fewer where they held so many messages."""


class SqliteCleanup(Backend):
    """What `SqliteBackend` removes at an operator's word."""

    _db: Connections
    _hints: Hints

    def delete_message(self, partition_id: str, transaction_id: str) -> bool:
        queue = self._db.write(
            lambda session: _delete_message(session, partition_id, transaction_id)
        )
        self._hints.tell(frozenset() if queue is None else frozenset({queue}))
        return queue is not None

    def bury(
        self,
        partition_id: str,
        transaction_id: str,
        group: str | None = None,
        error: str | None = None,
    ) -> int:
        reason = None if error is None else m.storable(error)
        return self._for_each(
            (partition_id, transaction_id), group, lambda lane, seq: _set_aside(lane, seq, reason)
        )

    def retry_now(self, partition_id: str, transaction_id: str, group: str | None = None) -> int:
        return self._for_each((partition_id, transaction_id), group, _hasten)

    def _for_each(
        self, name: tuple[str, str], group: str | None, do: Callable[[Lane, int], bool]
    ) -> int:
        """Do something about a message for a group, or for all; return for how many."""

        def work(session: Session) -> tuple[int, str]:
            found = find_stored(session, *name)
            if found is None:
                raise MessageNotFound("Message not found")
            place, first = found
            count = 0
            for lane in _lanes(session, place, group):
                lane.take_back()
                lane.skip_too_old()
                count += do(lane, first.seq)
                lane.save()
            return count, place.queue_name

        count, queue = self._db.write(work)
        self._hints.tell(frozenset({queue}))
        return count

    def clear(self, queue: str, partition: str | None = None) -> int:
        places = self._db.read(lambda session: _places(session, queue, partition))
        count = 0
        while places:
            cleared, done = self._db.write(lambda session, left=places: _clear_some(session, left))  # type: ignore[misc]
            count += cleared
            places = places[done:]
        self._hints.tell(frozenset({queue}))
        return count

    def delete_partition(self, queue: str, partition: str) -> bool:
        deleted = self._db.write(lambda session: _delete_partition(session, queue, partition))
        # Whoever waits for it finds it gone, or made anew.
        self._hints.tell(frozenset({queue} if deleted else ()))
        return deleted


def _lanes(session: Session, place: Place, group: str | None = None) -> list[Lane]:
    """Return the lanes of a partition, where asked only that of one group."""
    lanes = []
    for name, *row in session.rows("named_lanes", place.partition):
        if group in (None, name):
            lanes.append(Lane(session, place, tuple(row)))
    return lanes


def _delete_message(session: Session, partition_id: str, name: str) -> str | None:
    """Remove one message for all groups; return its queue, None where it is not stored."""
    found = find_stored(session, partition_id, name)
    if found is None:
        return None
    place, first = found
    for lane in _lanes(session, place):
        lane.take_back()
        lane.skip_too_old()
        _drop(lane, first.seq)
        lane.save()
    session.run("delete_message", place.partition, first.seq)
    forget_traces(session, place.partition, first.seq, first.seq)
    holes = holes_of(session, place.partition)
    holes.add(first.seq)
    begin_partition(session, place.partition, place.first_seq, holes)
    return place.queue_name


def _drop(lane: Lane, seq: int) -> None:
    """Settle a message that leaves the store, and forget all that was known of it."""
    lane.session.run("forget_dead", lane.group, lane.place.partition, seq)
    if lane.owes(seq):
        lane.settle(seq)
    hold = lane.hold
    if hold is not None and seq in hold.batch:
        for seqs in (lane.open, hold.batch, hold.failed, hold.returned, hold.dead):
            seqs.discard(seq)
        if not lane.open:
            lane.close()


def _set_aside(lane: Lane, seq: int, error: str | None) -> bool:
    """Dead-letter a message; False where it is settled, or its holder's to decide about."""
    held = lane.hold is not None and seq in lane.hold.batch
    owed = not held and lane.owes(seq)
    if owed:
        old = lane.history(seq)
        reason = old.error if error is None else error
        lane.bury(seq, old.failures, old.deliveries, reason)
    return owed


def _hasten(lane: Lane, seq: int) -> bool:
    """End the retry delay of a message; False where it has not failed, or is in flight."""
    old = lane.history(seq)
    if seq in lane.open or not old.failures:
        return False
    now_us = lane.session.now_us
    if old.not_before_us > now_us:
        lane.record(seq, old._replace(not_before_us=now_us))
    return True


def _places(session: Session, queue: str, partition: str | None) -> list[int]:
    """Return the numbers of a queue's partitions, or of one that has to be there."""
    row = session.row("queue_number", queue)
    if row is None:
        raise QueueNotFound(f"Queue '{queue}' not found")
    if partition is None:
        return [row[0] for row in session.rows("numbers_of_partitions", row[0])]
    only = session.row("partition_exists", row[0], partition)
    if only is None:
        raise PartitionNotFound(f"Partition '{partition}' not found")
    return [int(only[0])]


def _clear_some(session: Session, places: list[int]) -> tuple[int, int]:
    """Clear the first of some partitions, each of them whole.

    Returns how many messages went, and how many of the partitions are done.
    """
    count = done = 0
    for partition in places[:CLEARED_PARTITIONS]:
        count += _clear_partition(session, partition)
        done += 1
        if count >= CLEARED_MESSAGES:
            break
    return count, done


def _clear_partition(session: Session, partition: int) -> int:
    """Remove all messages of a partition, whatever the groups did with them (C-06).

    Only dead letters stay.
    """
    place = place_of(session, partition)
    if place is None:
        return 0  # its queue was deleted meanwhile
    for lane in _lanes(session, place):
        if lane.hold is not None:
            lane.ended_us = session.now_us
        lane.forget_leases()
        _forget_redriven(lane)
        lane.forget_histories(0, MAX_INTEGER)
        lane.move_to(place.last_seq)
        lane.save()
    count = session.run("delete_messages_up_to", partition, place.last_seq)
    forget_traces(session, partition, place.first_seq, place.last_seq)
    begin_partition(session, partition, place.last_seq + 1, Seqs())
    return count


def _forget_redriven(lane: Lane) -> None:
    if lane.redriven_count:
        lane.session.run("forget_redriven_after", lane.group, lane.place.partition, 0)
        lane.redriven_count = 0


def _delete_partition(session: Session, queue_name: str, name: str) -> bool:
    """Delete a partition at once, however much it holds.

    What makes it visible goes now: its name, lanes and dead letters. The messages and their
    notes are left to the sweep, under a tombstone. A queue is never without its ``Default``.
    """
    row = session.row("queue_number", queue_name)
    found = None if row is None else session.row("partition_exists", row[0], name)
    if row is None or found is None:
        return False
    (queue,), (partition,) = row, found
    for (group,) in session.rows("lanes_of_partition", partition):
        session.run("delete_retries_between", group, partition, 0, MAX_INTEGER)
        session.run("forget_dead_after", group, partition, 0)
        session.run("forget_redriven_after", group, partition, 0)
    session.run("delete_lanes_of_partition", partition)
    tombstone = session.row("insert_tombstone", queue, session.now_us)
    assert tombstone is not None
    session.run("move_partition", tombstone[0], partition)
    if name == m.DEFAULT_PARTITION:
        make_partition(session, queue, name)
    return True
