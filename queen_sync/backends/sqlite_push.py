"""How messages are stored: in order, once per transaction id, and all of a call or none.

A queue may spread what names no partition over several (PLD-12): a message with a transaction
id goes where the id says, so that a repeat meets the first; the others of one call go together
where no call went for longest.

seq is drawn under the write lock, which is held to commit: seq order is commit order, without
gaps, so no position can pass a message that commits later.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import msgspec

from queen_sync import ids, model as m
from queen_sync.backends.sqlite_connections import Session
from queen_sync.backends.sqlite_groups import begins_later, depth, make_partition, make_queue
from queen_sync.backends.sqlite_lane_records import Place, place_of
from queen_sync.backends.sqlite_sealing import seal
from queen_sync.clock import SECOND
from queen_sync.encryption import KeyRing, no_key
from queen_sync.errors import QueueFull, QueueNotFound

_OUR_LENGTH = 36
_OUR_VERSION = "8"


class First(msgspec.Struct, frozen=True, gc=False):
    """The stored message that a transaction id names."""

    seq: int
    created_us: int
    transaction_id: str | None
    trace_id: str | None


class _Target:
    """A partition that a call pushes to: what it stores already, and what it will get."""

    __slots__ = (
        "created_us",
        "delay_us",
        "id",
        "keys",
        "known",
        "last_seq",
        "name",
        "number",
        "queue_name",
        "rows",
        "stored",
    )

    def __init__(
        self, session: Session, queue_name: str, queue: int, name: str, keys: KeyRing | None
    ) -> None:
        row = session.row("partition_by_name", queue_name, name)
        if row is None:
            make_partition(session, queue, name)
            row = session.row("partition_by_name", queue_name, name)
            assert row is not None
        self.number, self.stored, pushed_us, window_seconds, delay_seconds = row
        self.queue_name = queue_name
        self.name = name
        self.keys = keys
        self.id = ids.partition_id(self.number)
        self.last_seq: int = self.stored
        self.created_us = max(session.now_us, pushed_us)
        self.delay_us = max(window_seconds, delay_seconds) * SECOND
        self.known: dict[str, First] = {}
        self.rows: list[tuple[int, int, int, str | None, str | None, bytes, str | None]] = []

    def look_up(self, session: Session, names: Sequence[str]) -> None:
        """Learn which of the names are stored, as a name or as the id of a message."""
        if self.stored and names:
            self.known = find(session, self.number, names)

    def first(self, item: m.NewMessage) -> tuple[First, bool]:
        """Return the message that an item is, and whether it was there; else number it."""
        name, payload, key = item.transaction_id, bytes(item.payload), None
        known = None if name is None else self.known.get(name)
        if known is not None:
            return known, True
        self.last_seq += 1
        if self.keys is not None:
            name, payload, key = seal(self.keys, self.queue_name, self.name, item)
        new = First(self.last_seq, self.created_us, name, item.trace_id)
        if name is not None:
            self.known[name] = new
        self.rows.append((self.number, new.seq, new.created_us, name, item.trace_id, payload, key))
        return new, False

    def write(self, session: Session) -> None:
        """Store what was numbered, and wake the lanes that had nothing to take."""
        if self.rows:
            session.many("insert_message", self.rows)
            session.run("advance_partition", self.last_seq, self.created_us, self.number)
            ready_us = self.created_us + self.delay_us
            session.run("wake_lanes", self.number, ready_us, self.created_us)


def find(session: Session, partition: int, names: Iterable[str]) -> dict[str, First]:
    """Return the stored messages of a partition that the names mean, by name.

    The text of a message id of ours means that message, if it is there and its stamp agrees.
    """
    found: dict[str, First] = {}
    addresses: dict[int, list[tuple[str, int]]] = {}
    others = []
    for name in names:
        said = address_of(name)
        if said is not None and said.partition == partition:
            addresses.setdefault(said.seq, []).append((name, said.stamp))
        else:
            others.append(name)
    if addresses:
        given = msgspec.json.encode(list(addresses)).decode()
        for row in session.rows("numbered_messages", partition, given):
            first = First(*row)
            for name, stamp in addresses.pop(first.seq):
                if stamp == first.created_us & ids.STAMP_MASK:
                    found[name] = first
                else:
                    others.append(name)
        others += [name for pairs in addresses.values() for name, _ in pairs]
    if others:
        given = msgspec.json.encode(others).decode()
        for row in session.rows("named_messages", partition, given):
            first = First(*row)
            assert first.transaction_id is not None
            found[first.transaction_id] = first
    return found


def find_stored(session: Session, partition_id: str, name: str) -> tuple[Place, First] | None:
    """Return a stored message of a live queue and where it is, named as in an ack."""
    number = ids.partition_number(partition_id)
    return None if number is None else _find_in(session, number, name)


def find_named(session: Session, name: str) -> tuple[Place, First] | None:
    """Return the stored message of a name in the oldest partition that has one."""
    if name != m.storable(name):
        return None
    numbers = {row[0] for row in session.rows("partitions_of_name", name)}
    said = address_of(name)
    if said is not None:
        numbers.add(said.partition)
    found = (_find_in(session, number, name) for number in sorted(numbers))
    return next((each for each in found if each is not None), None)


def _find_in(session: Session, partition: int, name: str) -> tuple[Place, First] | None:
    place = place_of(session, partition)
    if place is None or name != m.storable(name):
        return None
    first = find(session, partition, [name]).get(name)
    return None if first is None else (place, first)


def address_of(name: str) -> ids.Address | None:
    """Return what a transaction id says if it may be a message id of ours, quickly None if not."""
    if len(name) == _OUR_LENGTH and name[14] == _OUR_VERSION:
        return ids.address(name)
    return None


def store(
    session: Session, items: Sequence[m.NewMessage], *, create: bool = True
) -> tuple[list[m.Receipt], set[str]]:
    """Store the items; return their receipts and the queues that got something new.

    Raises QueueNotFound (``create`` False), NotSupported (a queue wants a key and there is none)
    and QueueFull; the caller undoes what was done.
    """
    queues: dict[str, _Queue] = {}
    # What one call makes is made in the order of names, whatever the order of its items.
    for name in sorted({item.queue for item in items}):
        row = session.row("push_target", name)
        if row is None and not create:
            raise QueueNotFound(f"Queue '{name}' not found")
        row = (make_queue(session, name), 0, 0, 0) if row is None else row
        if row[3] and session.keys is None:
            raise no_key(name)
        queues[name] = _Queue(*row)
    places = [_place(session, queues[item.queue], item) for item in items]
    names: dict[tuple[str, str], list[str]] = {}
    for item, place in zip(items, places, strict=True):
        named = names.setdefault((item.queue, place), [])
        if item.transaction_id is not None:
            named.append(item.transaction_id)
    targets = {}
    for queue, place in sorted(names):
        keys = session.keys if queues[queue].encrypted else None
        target = _Target(session, queue, queues[queue].number, place, keys)
        target.look_up(session, names[queue, place])
        targets[queue, place] = target
        queues[queue].mark(session, place, target.number)
    chosen = [targets[item.queue, place] for item, place in zip(items, places, strict=True)]
    firsts = [target.first(item) for item, target in zip(items, chosen, strict=True)]
    new: dict[str, int] = {}
    for item, (_, duplicate) in zip(items, firsts, strict=True):
        if not duplicate:
            new[item.queue] = new.get(item.queue, 0) + 1
    limits = {name: queue.limit for name, queue in queues.items() if queue.limit}
    depths = _depths(session, queues, limits, new)
    for target in targets.values():
        target.write(session)
    for name in depths:
        if begins_later(session, queues[name].number):
            depths[name] = depth(session, queues[name].number)  # it does not wait for these
    receipts = [
        _receipt(item.queue, target, *first, depths, limits)
        for item, target, first in zip(items, chosen, firsts, strict=True)
    ]
    return receipts, set(new)


def wants_key(session: Session, queue_name: str) -> bool:
    """Whether what is pushed to a queue has to be sealed."""
    row = session.row("push_target", queue_name)
    return row is not None and bool(row[3])


def _depths(
    session: Session,
    queues: dict[str, _Queue],
    limits: dict[str, int],
    new: dict[str, int],
) -> dict[str, int]:
    """Return the depths of the limited queues after the push; QueueFull where it does not fit."""
    depths = {name: depth(session, queues[name].number) for name in limits}
    for name, pushed in new.items():
        if name in limits:
            if depths[name] + pushed > limits[name]:
                raise QueueFull(name, limits[name], depths[name], pushed)
            depths[name] += pushed
    return depths


def _receipt(
    queue: str,
    target: _Target,
    first: First,
    duplicate: bool,
    depths: dict[str, int],
    limits: dict[str, int],
) -> m.Receipt:
    message_id = ids.message_id(target.number, first.seq, first.created_us)
    depth_now = depths.get(queue)
    return m.Receipt(
        status="duplicate" if duplicate else "queued",
        id=message_id,
        transaction_id=first.transaction_id or message_id,
        queue=queue,
        partition=target.name,
        partition_id=target.id,
        seq=first.seq,
        trace_id=first.trace_id,
        depth=depth_now,
        remaining=None if depth_now is None else max(0, limits[queue] - depth_now),
    )


# ----------------------------------------------------------------------------- spreading


class _Queue:
    """A queue that a call pushes to, and where its unnamed messages are spread to."""

    __slots__ = ("encrypted", "idlest", "limit", "number", "spread", "spreads")

    def __init__(self, number: int, limit: int, spread: int, encrypted: int) -> None:
        self.number = number
        self.limit = limit
        self.spread = spread
        self.encrypted = encrypted
        self.idlest: str | None = None
        self.spreads = 0

    def choose(self, session: Session) -> str:
        """Return the partition that no call has spread to for longest; never is longer."""
        if self.idlest is None:
            row = session.row("count_spread", self.number)
            assert row is not None
            self.spreads = row[0]
            used: dict[str, int] = dict(session.rows("spread_places", self.number))
            # The first that was never used ends the search, however many there may be.
            best = 0, 0
            for index in range(self.spread):
                last = used.get(m.spread_name(index), 0)
                if index == 0 or last < best[0]:
                    best = last, index
                if not last:
                    break
            self.idlest = m.spread_name(best[1])
        return self.idlest

    def mark(self, session: Session, place: str, partition: int) -> None:
        """Write down that this call has spread messages to a partition."""
        if place == self.idlest:
            session.run("mark_spread", self.spreads, partition)


def _place(session: Session, queue: _Queue, item: m.NewMessage) -> str:
    """Return the name of the partition that an item goes to."""
    if queue.spread <= 1 or item.partition != m.DEFAULT_PARTITION:
        return item.partition
    name = item.transaction_id
    if name is None:
        return queue.choose(session)
    # An id that the server gave to a message of one of the partitions stays with that message.
    said = address_of(name)
    row = None if said is None else session.row("partition_of_queue", queue.number, said.partition)
    if said is not None and row is not None and _is_one_of(row[0], queue.spread):
        first = find(session, said.partition, [name]).get(name)
        if first is not None and first.seq == said.seq:
            return str(row[0])
    return m.spread_name(m.spread_index(name, queue.spread))


def _is_one_of(name: str, count: int) -> bool:
    number = name.removeprefix(f"{m.DEFAULT_PARTITION}-")
    index = int(number) - 1 if number.isdecimal() and number.isascii() else 0
    return index < count and m.spread_name(index) == name
