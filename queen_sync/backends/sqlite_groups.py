"""Queues, partitions and groups come into being here and nowhere else.

So every partition of a queue has a lane of every group of the queue. All of it happens under the
write lock, each in one step.
"""

from __future__ import annotations

from typing import NamedTuple

from queen_sync import model as m
from queen_sync.backends.sqlite_connections import MAX_INTEGER, Session, bounded
from queen_sync.backends.sqlite_holes import count_stored, seq_before
from queen_sync.backends.sqlite_lanes import lane_of
from queen_sync.backends.sqlite_seqs import Seqs, united
from queen_sync.errors import PartitionNotFound, QueueNotFound


class Registration(NamedTuple):
    """Where a group begins and when it was first met."""

    mode: m.SubscriptionMode
    start_us: int | None
    created_us: int


class Met(NamedTuple):
    """A group of a queue, by number: None while the queue does not exist."""

    group: int | None
    ignored: bool
    """It began otherwise than asked."""


def begins(registration: Registration) -> m.Subscription:
    """Return where a group begins as callers see it."""
    start_us = registration.start_us if registration.mode == "from" else None
    return m.Subscription(mode=registration.mode, from_us=start_us)


def is_other(wanted: m.Subscription | None, mode: str, start_us: int | None) -> bool:
    """Say whether a group that begins so begins otherwise than wanted."""
    if wanted is None:
        return False
    asked_us = None if wanted.from_us is None else bounded(wanted.from_us)
    return (wanted.mode, asked_us) != (mode, start_us if mode == "from" else None)


def make_queue(
    session: Session, name: str, *, namespace: str | None = None, task: str | None = None
) -> int:
    """Make a queue with its ``Default`` partition and register the groups that wait for it."""
    now_us = session.now_us
    if namespace is None and task is None and "." in name:
        namespace, task = name.split(".")[:2]
    row = session.row("insert_queue", name, namespace or "", task or "", now_us, now_us)
    assert row is not None
    queue = int(row[0])
    make_partition(session, queue, m.DEFAULT_PARTITION)
    for group, *registration in session.rows("subscriptions_of_queue", name):
        _register(session, queue, group, Registration(*registration))
    session.run("forget_subscriptions_of_queue", name)
    enter_scopes(session, queue, namespace or "", task or "")
    return queue


def enter_scopes(
    session: Session, queue: int, namespace: str, task: str, *, late: bool = False
) -> None:
    """Register the groups whose scope a queue has come into, and that it does not know yet."""
    for group, *registration in session.rows("scopes_over", namespace, task, None):
        if session.row("group_by_name", queue, group) is None:
            _register(session, queue, group, Registration(*registration), late=late)


def make_partition(session: Session, queue: int, name: str) -> int:
    """Make a partition with a lane for every group of its queue."""
    row = session.row("insert_partition", queue, name, session.now_us)
    assert row is not None
    session.run("insert_lanes_of_partition", row[0], queue)
    return int(row[0])


def meet(session: Session, queue_name: str, group: str, wanted: m.Subscription | None) -> Met:
    """Register a group where it is new.

    What was said first counts: by an earlier pop, before the queue existed, or before the
    group's progress was deleted with its start kept (C-07).
    """
    found = session.row("queue_number", queue_name)
    queue = None if found is None else int(found[0])
    if queue is not None:
        known = session.row("group_by_name", queue, group)
        if known is not None:
            return Met(known[0], is_other(wanted, *known[1:]))
    kept = session.row("subscription", queue_name, group)
    registration = _said(session, wanted) if kept is None else Registration(*kept)
    ignored = is_other(wanted, registration.mode, registration.start_us)
    if queue is None:
        if kept is None:
            session.run("keep_subscription", queue_name, group, *registration)
        return Met(None, ignored)
    session.run("forget_subscription", queue_name, group)
    return Met(_register(session, queue, group, registration), ignored)


def scope_of(request: m.PopRequest) -> tuple[str, str]:
    """Return the namespace and task of a pop, each empty where it may be any."""
    return request.namespace or "", request.task or ""


def queues_of(session: Session, request: m.PopRequest) -> list[int]:
    """Return the numbers of the queues that a pop means."""
    if request.queue:
        return [row[0] for row in session.rows("queue_number", request.queue)]
    found = session.rows("queues_in_scope", request.namespace, request.task)
    return [number for number, _ in found]


def meet_scope(
    session: Session, namespace: str, task: str, group: str, wanted: m.Subscription | None
) -> bool:
    """Register a group in all queues of a scope, as its first pop over the scope said.

    Returns whether it began otherwise than wanted.
    """
    kept = session.row("scope", group, namespace, task)
    if kept is None:
        said = _said(session, wanted)
        session.run("insert_scope", group, namespace, task, *said)
    else:
        said = Registration(*kept)
    for queue, name in session.rows("queues_in_scope", namespace or None, task or None):
        if session.row("group_by_name", queue, group) is None:
            _enter(session, queue, name, group, late=kept is not None)
    return is_other(wanted, said.mode, said.start_us)


def _enter(session: Session, queue: int, name: str, group: str, *, late: bool) -> None:
    """Register a group as is remembered: for the queue itself, else for the oldest scope."""
    known = session.row("subscription", name, group)
    if known is not None:
        session.run("forget_subscription", name, group)
        _register(session, queue, group, Registration(*known))
        return
    row = session.row("queue_by_name", name)
    assert row is not None
    _, *said = session.rows("scopes_over", row[2], row[3], group)[0]
    _register(session, queue, group, Registration(*said), late=late)


def _said(session: Session, wanted: m.Subscription | None) -> Registration:
    """Return what a first pop asks for, begun now."""
    new = wanted or m.Subscription()
    start_us = None if new.from_us is None else bounded(new.from_us)
    return Registration(new.mode, start_us, session.now_us)


def _register(
    session: Session, queue: int, name: str, registration: Registration, *, late: bool = False
) -> int:
    """Let a group begin in every partition there is (C-07); its waiting begins now too.

    ``late``: a group that began with ``new`` did so at an earlier instant.
    """
    mode, start_us, created_us = registration
    from_us = start_us or 0
    behind = mode == "new" and not late
    if mode == "new" and late:
        from_us = created_us
    row = session.row("insert_group", queue, name, mode, start_us, from_us, created_us)
    assert row is not None
    group = int(row[0])
    session.run("insert_lanes_of_group", queue, group, behind, from_us, session.now_us)
    if not behind:
        session.run("unsettle_queue", queue)
    return group


def seek(session: Session, target: m.Seek) -> int:
    """Move a group's position, registering the group where it is new (C-20)."""
    row = session.row("queue_number", target.queue)
    if row is None:
        raise QueueNotFound(f"Queue '{target.queue}' not found")
    if target.partition is None:
        only = None
    else:
        only = session.row("partition_exists", row[0], target.partition)
        if only is None:
            raise PartitionNotFound(f"Partition '{target.partition}' not found")
    met = meet(session, target.queue, target.group, None)
    assert met.group is not None
    partitions = [only] if only else session.rows("lanes_of_group", row[0], met.group)
    for (partition,) in partitions:
        lane = lane_of(session, partition, met.group)
        assert lane is not None
        place = lane.place
        removed = place.first_seq - 1
        if target.from_us is not None:
            instant_us = bounded(target.from_us)
            position = seq_before(session, partition, removed, place.last_seq, instant_us)
        else:
            position = place.last_seq if target.to == "end" else removed
        lane.seek(position)
        lane.save()
    return len(partitions)


def delete_queue(session: Session, name: str) -> bool:
    """Free the name at once; what the queue held is removed by the sweep, a little at a time."""
    row = session.row("bury_queue", session.now_us, name)
    if row is None:
        return False
    session.run("forget_subscriptions_of_queue", name)
    for (group,) in session.rows("groups_of_queue", row[0]):
        session.run("delete_dead_letters_of_group", group)
    return True


def delete_group(
    session: Session, name: str, queue_name: str | None, *, keep: bool
) -> tuple[int, set[str]]:
    """Forget a group's progress; return in how many partitions, and of which queues."""
    if not keep:
        session.run("forget_subscriptions_of_group", name, queue_name)
        if queue_name is None:
            session.run("forget_scopes", name)
    lanes = 0
    changed = set()
    found = session.rows("groups_named", name, queue_name)
    for group, queue, where, mode, start_us, created_us in found:
        lanes += session.run("delete_lanes_of_group", group, queue)
        session.run("delete_retries_of_group", group)
        session.run("delete_dead_letters_of_group", group)
        session.run("delete_group", group)
        if keep:
            # `new` becomes a start that can be found again: the instant at which it was said.
            kept = ("from", created_us) if mode == "new" else (mode, start_us)
            session.run("keep_subscription", where, name, *kept, created_us)
        changed.add(where)
    return lanes, changed


def list_groups(session: Session, queue_name: str) -> list[m.Group]:
    """Return the groups of a queue with their lag."""
    groups = []
    for number, name, mode, start_us, created_us, lag, leased in session.rows(
        "list_groups", queue_name, session.now_us
    ):
        late = 0
        for partition, last_seq, position, settled, from_us, redriven in session.rows(
            "late_lanes", number
        ):
            begin = seq_before(session, partition, position, last_seq, from_us)
            late += count_stored(Seqs.decode(settled), begin + 1, last_seq) + redriven
        groups.append(
            m.Group(
                queue=queue_name,
                name=name,
                subscription=begins(Registration(mode, start_us, created_us)),
                created_us=created_us,
                lag=lag + late,
                leased=leased,
            )
        )
    return groups


def depth(session: Session, queue: int) -> int:
    """Return how many stored messages some group has still to settle; all without one (C-06)."""
    row = session.row("count_groups", queue)
    assert row is not None
    if not row[0]:
        (total,) = session.row("stored_in_queue", queue) or (0,)
        return int(total or 0)
    (plain,) = session.row("plain_depth", queue) or (0,)
    waiting: dict[int, list[tuple[int, int]]] = {}
    for row in session.rows("knotty_lanes", queue):
        partition, group, first_seq, last_seq, position, settled, from_us, redriven = row
        start = position
        if from_us:
            start = seq_before(session, partition, position, last_seq, from_us)
        gaps = Seqs.decode(settled).gaps(start + 1, last_seq + 1, MAX_INTEGER)
        waiting.setdefault(partition, []).extend(gaps)
        if redriven:
            seqs = [row[0] for row in session.rows("redriven_seqs", group, partition)]
            waiting[partition] += [(seq, seq + 1) for seq in seqs if seq >= first_seq]
    return int(plain) + sum(united(ranges) for ranges in waiting.values())


def begins_later(session: Session, queue: int) -> bool:
    """Say whether some group of the queue has a start at a time that is still to come."""
    row = session.row("count_groups", queue)
    return row is not None and row[1] > session.now_us
