"""The sweep: each step is a write of its own and small, so that no push waits long for it."""

from __future__ import annotations

import logging
from collections.abc import Callable
from itertools import groupby
from operator import itemgetter
from typing import Any

from queen_sync import model as m
from queen_sync.backends.sqlite_acks import Judge
from queen_sync.backends.sqlite_connections import Connections, Row, Session
from queen_sync.backends.sqlite_lanes import Lane, lane_of
from queen_sync.backends.sqlite_retention import retain
from queen_sync.backends.sqlite_traces import forget_some_traces
from queen_sync.errors import QueenError

log = logging.getLogger(__name__)

SWEEP_ROWS = 1_000
"""So many expired lanes, messages of deleted queues and old claims a pass at most."""
SHRINK_PAGES = 2_000
"""So much of an unused file, 16 MB, a pass gives back to the file system."""
HOLLOW_PAGES = 256
HOLLOW_SHARE = 4
"""More unused pages than that, and more than a quarter of the file, are worth it."""
REMOVALS_KEPT = 10_000
"""How many records of removals a queue keeps; the oldest go first."""


def sweep(db: Connections) -> tuple[m.SweepReport, set[str]]:
    """Make one pass; return what it did, and the queues in which something may be popped."""
    queues: set[str] = set()
    due = db.read(lambda session: session.rows("expired_lanes", session.now_us, SWEEP_ROWS))
    expired = _for_each(db, due, _take_back, queues)
    old = db.read(lambda session: session.rows("evictable_lanes", session.now_us, SWEEP_ROWS))
    evicted = _for_each(db, old, _evict, queues)
    removed = retain(db)
    # What seldom is there is looked for without the write lock.
    if db.read(_has_leftovers):
        db.write(_remove_leftovers)
    if db.read(_is_hollow):
        db.write(_shrink)
    repaired = db.write(_repair) if db.read(_has_faults) else 0
    report = m.SweepReport(expired=expired, evicted=evicted, removed=removed, repaired=repaired)
    return report, queues


def _for_each(
    db: Connections, lanes: list[Row], work: Callable[[Lane], int], queues: set[str]
) -> int:
    """Do the work in a transaction for each lane, judged again; add the queues where it counts."""
    total = 0
    for partition, group, queue in lanes:

        def judge(session: Session, partition: int = partition, group: int = group) -> int:
            lane = lane_of(session, partition, group)
            done = 0 if lane is None else work(lane)
            if lane is not None and done:
                lane.save()
            return done

        try:
            done = db.write(judge)
        except QueenError:
            # One bad lane holds up no other; the next sweep tries it again (O-09).
            log.exception("upkeep failed in partition %s for group %s", partition, group)
            continue
        if done:
            total += done
            queues.add(queue)
    return total


def _take_back(lane: Lane) -> int:
    if lane.hold is None or lane.live():
        return 0
    lane.expire()
    return 1


def _evict(lane: Lane) -> int:
    # A lease that has run out is taken back first.
    return 0 if lane.hold is not None and not lane.live() else lane.evict()


def _has_leftovers(session: Session) -> bool:
    return any(
        session.rows(name, *limit)
        for name, limit in (
            ("deleted_partitions", (1,)),
            ("emptied_queues", ()),
            ("outlived_claims", (1,)),
            ("ended_attempts", (session.now_us, 1)),
            ("removals_to_trim", (REMOVALS_KEPT,)),
        )
    )


def _remove_leftovers(session: Session) -> None:
    """Remove what deleted queues, ended claims and old records left behind, some of each."""
    room = SWEEP_ROWS
    for (partition,) in session.rows("deleted_partitions", SWEEP_ROWS):
        room -= session.run("delete_messages", partition, room)
        room -= forget_some_traces(session, partition, room)
        if room <= 0:
            break
        session.run("delete_lanes_of_partition", partition)
        session.run("delete_holes", partition)
        session.run("delete_marks", partition)
        session.run("delete_partition", partition)
    for (queue,) in session.rows("emptied_queues"):
        for (group,) in session.rows("groups_of_queue", queue):
            session.run("delete_retries_of_group", group)
            session.run("delete_group", group)
        session.run("delete_removals_of_queue", queue)
        session.run("delete_queue_row", queue)
    session.many("delete_claim", session.rows("outlived_claims", SWEEP_ROWS))
    for *attempt, lease in session.rows("ended_attempts", session.now_us, SWEEP_ROWS):
        held = Judge(session, ()).held(lease)
        if held:  # it was extended
            session.run("save_attempt", *attempt, lease, held[0].expires_us)
        else:
            session.run("delete_attempt", *attempt)
    session.many("trim_removals", session.rows("removals_to_trim", REMOVALS_KEPT))


def _is_hollow(session: Session) -> bool:
    """Whether so much of the file is unused that its space is better given back than kept."""
    unused, pages = session.unused_pages()
    return unused > HOLLOW_PAGES and unused > pages // HOLLOW_SHARE


def _shrink(session: Session) -> None:
    unused, _ = session.unused_pages()
    session.shrink(min(unused, SHRINK_PAGES))


def _has_faults(session: Session) -> bool:
    return any(session.rows(name, 1) for name in ("lost_lanes", "missing_lanes"))


def _repair(session: Session) -> int:
    """Repair what must never be found, and return how much there was of it."""
    lost = session.rows("lost_lanes", SWEEP_ROWS)
    session.many("repair_lane", lost)
    missing = session.rows("missing_lanes", SWEEP_ROWS)
    session.many("insert_lane", missing)
    return len(lost) + len(missing)


def redrive(session: Session, which: tuple[Any, ...]) -> tuple[int, set[str]]:
    """Give dead letters back to their groups (C-12); return how many, and in which queues."""
    found = session.rows("find_dead_letters", *which)
    session.many("redrive", [(session.now_us, row[0]) for row in found])
    queues = set()
    for (partition, group, queue), rows in groupby(found, key=itemgetter(1, 2, 3)):
        lane = lane_of(session, partition, group)
        assert lane is not None, "a deleted group's dead letters went with it"
        lane.redriven_count += len(list(rows))
        lane.save()
        queues.add(queue)
    return len(found), queues
