"""Retention: what is removed from the front of partitions, and when it may be (C-09).

Only what a mark says is certain, and marks are taken by the sweep: at an instant, all groups had
settled a partition up to a seq. So nothing is removed early, and a mark is all that has to be
kept of the past.
"""

from __future__ import annotations

from queen_sync.backends.sqlite_connections import Connections, Session
from queen_sync.backends.sqlite_holes import begin_partition, count_stored, holes_of, seq_before
from queen_sync.backends.sqlite_lanes import Lane, lane_of
from queen_sync.backends.sqlite_traces import forget_traces
from queen_sync.clock import SECOND

MARKS_PER_TERM = 10
"""How many times per `completed_retention_seconds` a mark is taken."""
STEP = 5_000
"""So many seqs are passed in one transaction; a record tells of each step."""
IDLE_MARKS = 1_000


def retain(db: Connections) -> int:
    """Remove what the queues' retention names; return how many messages."""
    removed = 0
    for (partition,) in db.read(lambda session: session.rows("retained_partitions")):
        finished = False
        while not finished:
            count, finished = db.write(lambda session, where=partition: _retain(session, where))  # type: ignore[misc]
            removed += count
    if db.read(lambda session: session.rows("idle_marks", 1)):
        db.write(_forget_idle_marks)
    return removed


def _forget_idle_marks(session: Session) -> None:
    session.many("delete_marks", session.rows("idle_marks", IDLE_MARKS))


def _retain(session: Session, partition: int) -> tuple[int, bool]:
    """Take one step in a partition; return how many messages went, and whether that was all."""
    row = session.row("retention", partition)
    if row is None:
        return 0, True
    name, first_seq, last_seq, queue, seconds, completed_seconds = row
    found = (
        lane_of(session, partition, group)
        for (group,) in session.rows("lanes_of_partition", partition)
    )
    lanes = [lane for lane in found if lane is not None]
    stop = last_seq
    for lane in lanes:
        if lane.hold is not None and not lane.hold.redriven:
            stop = min(stop, lane.hold.batch.edges[0] - 1)  # never under a lease
    removed = first_seq - 1
    stop = min(stop, removed + STEP)
    holes = holes_of(session, partition)
    total = 0
    for kind, last in (
        ("completed", _long_settled(session, partition, removed, lanes, completed_seconds)),
        ("expired", _too_old(session, partition, removed, last_seq, seconds)),
    ):
        count = count_stored(holes, removed + 1, min(last, stop))
        if count:
            removed = min(last, stop)
            total += count
            session.run("insert_removal", queue, name, kind, count, session.now_us, None)
    if total:
        session.run("delete_messages_up_to", partition, removed)
        forget_traces(session, partition, first_seq, removed)
        begins = begin_partition(session, partition, removed + 1, holes)
        for lane in lanes:
            lane.place = lane.place._replace(first_seq=begins)
            lane.pass_removed(removed)
            lane.save()
    return total, removed < first_seq - 1 + STEP


def _too_old(session: Session, partition: int, removed: int, last_seq: int, seconds: int) -> int:
    if not seconds:
        return removed
    too_old_us = session.now_us - seconds * SECOND
    return seq_before(session, partition, removed, last_seq, too_old_us + 1)


def _long_settled(
    session: Session, partition: int, removed: int, lanes: list[Lane], seconds: int
) -> int:
    """Return up to which seq all groups have been done for long enough."""
    if not seconds or not lanes:
        session.run("delete_marks", partition)
        return removed
    term_us = seconds * SECOND
    now_us = session.now_us
    for lane in lanes:
        lane.skip_too_old()
    settled = min(lane.position for lane in lanes)
    last_us, last_seq = session.row("last_mark", partition) or (0, removed)
    if settled > last_seq and now_us - last_us >= term_us // MARKS_PER_TERM:
        session.run("insert_mark", partition, now_us, settled)
    ripe = session.row("ripe_mark", partition, now_us - term_us)
    if ripe is None:
        return removed
    # It stays: a lease may keep what it names from being removed for now.
    session.run("delete_marks_before", partition, ripe[0])
    return int(ripe[1])
