"""What the memory backend keeps: queues, partitions, groups, and who waits for a queue.

Plain data under the one lock of `queen_sync.backends.memory`, like `memory_state` below it.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from heapq import heapify, heappop, heappush
from itertools import count
from weakref import WeakValueDictionary

import msgspec

from queen_sync import ids
from queen_sync import model as m
from queen_sync.backends.memory_state import (
    GroupState,
    Lease,
    Partition,
)
from queen_sync.backends.memory_values import QueueRecord, Stored
from queen_sync.errors import QueueFull, QueueNotFound


class Registration:
    """That a group exists: when it was first met and where it begins."""

    def __init__(self, subscription: m.Subscription, created_us: int) -> None:
        self.subscription = subscription
        self.created_us = created_us
        self.from_us = 0
        """The starting time that counts in partitions made later; a restart leaves it alone."""

    def keep(self) -> None:
        """Make the start one that can be found again: ``new`` becomes the instant it was said."""
        if self.subscription.mode == "new":
            self.subscription = m.Subscription(mode="from", from_us=self.created_us)


class QueueState(QueueRecord):
    """A queue with all it holds."""

    def __init__(self, number: int, name: str, namespace: str, task: str, created_us: int) -> None:
        super().__init__(name, m.QueueOptions())
        self.id = ids.queue_id(number)
        self.namespace = namespace
        self.task = task
        self.created_us = created_us
        self.partitions: dict[str, Partition] = {}
        self.registrations: dict[str, Registration] = {}

    def register(self, group: str, registration: Registration, now_us: int) -> None:
        """Let a group begin in every partition there is (C-07); its waiting begins now too."""
        mode = registration.subscription.mode
        registration.from_us = registration.subscription.from_us or 0
        self.registrations[group] = registration
        for partition in self.partitions.values():
            position = len(partition.messages) if mode == "new" else 0
            state = GroupState(partition, group, position, registration.from_us)
            state.ended_us = now_us
            partition.groups[group] = state

    def unregister(self, group: str) -> Registration:
        """Forget a group's progress, leases and dead letters; return its registration."""
        for partition in self.partitions.values():
            partition.groups.pop(group).forget()
        return self.registrations.pop(group)

    def states(self, group: str, partition: str | None = None) -> list[GroupState]:
        """Return the states of a registered group, of one partition or of all."""
        if partition is None:
            return [found.groups[group] for found in self.partitions.values()]
        named = self.partitions.get(partition)
        return [] if named is None else [named.groups[group]]

    def depth(self) -> int:
        """Return how many messages some registered group has still to settle (C-06)."""
        return sum(partition.depth() for partition in self.partitions.values())

    def value(self) -> m.Queue:
        """Return the queue as callers see it."""
        return m.Queue(
            id=self.id,
            name=self.name,
            options=self.options,
            default_partition_id=self.partitions[m.DEFAULT_PARTITION].id,
            created_us=self.created_us,
            namespace=self.namespace,
            task=self.task,
        )

    def group(self, name: str, now_us: int) -> m.Group:
        """Return a registered group as callers see it."""
        registration = self.registrations[name]
        states = self.states(name)
        return m.Group(
            queue=self.name,
            name=name,
            subscription=registration.subscription,
            created_us=registration.created_us,
            lag=sum(state.left() for state in states),
            leased=sum(state.hold is not None and state.hold.live(now_us) for state in states),
        )


class Store:
    """All queues, and the indexes that find a partition or a lease by its id."""

    def __init__(self) -> None:
        self.queues: dict[str, QueueState] = {}
        self.partitions: dict[str, Partition] = {}
        """By partition id."""
        self.waiting: dict[str, dict[str, Registration]] = {}
        """Groups to be registered: of a missing queue, or deleted with their start kept."""
        self.leases: WeakValueDictionary[str, Lease] = WeakValueDictionary()
        """By lease id, for as long as some state holds the lease, live or as its last closed."""
        self._queue_numbers = count(1)
        self._partition_numbers = count(1)

    def states(self) -> Iterator[GroupState]:
        """Yield every group's state in every partition."""
        for partition in self.partitions.values():
            yield from partition.groups.values()

    # ------------------------------------------------------------------ catalogue

    def make_queue(
        self, name: str, now_us: int, *, namespace: str | None = None, task: str | None = None
    ) -> QueueState:
        """Make a queue with its ``Default`` partition and register the groups that wait for it."""
        if namespace is None and task is None and "." in name:
            namespace, task = name.split(".")[:2]
        queue = QueueState(next(self._queue_numbers), name, namespace or "", task or "", now_us)
        self.queues[name] = queue
        self.partition_of(queue, m.DEFAULT_PARTITION)
        for group, registration in self.waiting.pop(name, {}).items():
            queue.register(group, registration, now_us)
        return queue

    def partition_of(self, queue: QueueState, name: str) -> Partition:
        """Return the partition of that name, made where it is missing."""
        partition = queue.partitions.get(name)
        if partition is None:
            partition = Partition(next(self._partition_numbers), name, queue)
            queue.partitions[name] = self.partitions[partition.id] = partition
            for group, registration in queue.registrations.items():
                partition.groups[group] = GroupState(partition, group, 0, registration.from_us)
        return partition

    def drop_queue(self, name: str) -> bool:
        """Delete a queue with all it holds and all that is remembered of it."""
        queue = self.queues.pop(name, None)
        if queue is None:
            return False
        for group in list(queue.registrations):
            queue.unregister(group)
        for partition in queue.partitions.values():
            del self.partitions[partition.id]
        self.waiting.pop(name, None)
        return True

    # --------------------------------------------------------------------- groups

    def meet(
        self, queue_name: str, group: str, wanted: m.Subscription | None, now_us: int
    ) -> tuple[QueueState | None, bool]:
        """Register a group where it is new; return its queue and whether ``wanted`` is ignored.

        What was said first counts: by an earlier pop, before the queue existed, or before
        the group's progress was deleted with its start kept (C-07).
        """
        queue = self.queues.get(queue_name)
        known = None if queue is None else queue.registrations.get(group)
        if known is None:
            waiting = self.waiting.get(queue_name, {})
            known = waiting.pop(group, None) or Registration(wanted or m.Subscription(), now_us)
            if queue is None:
                self.waiting.setdefault(queue_name, {})[group] = known
            else:
                queue.register(group, known, now_us)
                if not waiting:
                    self.waiting.pop(queue_name, None)
        return queue, wanted is not None and wanted != known.subscription

    def drop_group(self, group: str, queue_name: str | None, *, keep: bool) -> tuple[int, set[str]]:
        """Forget a group's progress; return in how many partitions, and of which queues."""
        wanted = None if queue_name is None else {queue_name}
        for name in list(self.waiting) if wanted is None else wanted & self.waiting.keys():
            if not keep:
                self.waiting[name].pop(group, None)
            if not self.waiting[name]:
                del self.waiting[name]
        dropped = 0
        changed = set()
        for name in list(self.queues) if wanted is None else wanted & self.queues.keys():
            queue = self.queues[name]
            if group not in queue.registrations:
                continue
            registration = queue.unregister(group)
            if keep:
                registration.keep()
                self.waiting.setdefault(name, {})[group] = registration
            dropped += len(queue.partitions)
            changed.add(name)
        return dropped, changed

    def restart(self, group: str, from_us: int) -> int:
        """Set the recorded start of a group wherever there is one; return how many there are."""
        found = [queue.registrations.get(group) for queue in self.queues.values()]
        found += [waiting.get(group) for waiting in self.waiting.values()]
        records = [registration for registration in found if registration is not None]
        for registration in records:
            registration.subscription = m.Subscription(mode="from", from_us=from_us)
        return len(records)

    # --------------------------------------------------------------------- pushes

    def count_new(self, items: Sequence[m.NewMessage]) -> dict[str, int]:
        """Return how many messages, duplicates aside, each queue would get."""
        new: dict[str, int] = {}
        seen: set[tuple[str, str, str]] = set()
        for item in items:
            name = item.transaction_id
            if name is not None:
                key = (item.queue, item.partition, name)
                if key in seen or self._first(item.queue, item.partition, name) is not None:
                    continue
                seen.add(key)
            new[item.queue] = new.get(item.queue, 0) + 1
        return new

    def _first(self, queue_name: str, partition_name: str, name: str) -> Stored | None:
        queue = self.queues.get(queue_name)
        partition = None if queue is None else queue.partitions.get(partition_name)
        return None if partition is None else partition.find(name)

    def check_pushes(self, items: Sequence[m.NewMessage], *, create: bool) -> None:
        """Refuse pushes that name a missing queue or do not fit (C-06); store nothing."""
        names = {item.queue for item in items}
        if not create:
            for name in names - self.queues.keys():
                raise QueueNotFound(f"Queue '{name}' not found")
        limited = {
            name: limit
            for name in names & self.queues.keys()
            if (limit := self.queues[name].options.max_queue_size)
        }
        if not limited:
            return
        new = self.count_new([item for item in items if item.queue in limited])
        for name, pushed in new.items():
            depth = self.queues[name].depth()
            if depth + pushed > limited[name]:
                raise QueueFull(name, limited[name], depth, pushed)

    def store(self, items: Sequence[m.NewMessage], now_us: int) -> tuple[list[m.Receipt], set[str]]:
        """Store checked pushes; return their receipts and the queues that got something new."""
        receipts = []
        changed = set()
        # What one call makes is made in the order of names, whatever the order of its items.
        for queue_name, partition_name in sorted({(i.queue, i.partition) for i in items}):
            queue = self.queues.get(queue_name) or self.make_queue(queue_name, now_us)
            if partition_name not in queue.partitions:
                self.partition_of(queue, partition_name)
        for item in items:
            queue = self.queues[item.queue]
            partition = queue.partitions[item.partition]
            name = item.transaction_id
            first = None if name is None else partition.find(name)
            message = first or partition.append(item, now_us)
            if first is None:
                changed.add(queue.name)
            receipts.append(
                m.Receipt(
                    status="duplicate" if first else "queued",
                    id=message.id,
                    transaction_id=message.transaction_id,
                    queue=queue.name,
                    partition=partition.name,
                    partition_id=partition.id,
                    seq=message.seq,
                    trace_id=message.trace_id,
                )
            )
        return self._with_depths(receipts), changed

    def _with_depths(self, receipts: list[m.Receipt]) -> list[m.Receipt]:
        """Add the depth after the push where the queue has a limit."""
        depths: Mapping[str, tuple[int, int]] = {
            name: (self.queues[name].depth(), limit)
            for name in {receipt.queue for receipt in receipts}
            if (limit := self.queues[name].options.max_queue_size)
        }
        if not depths:
            return receipts
        whole = []
        for receipt in receipts:
            if receipt.queue in depths:
                depth, limit = depths[receipt.queue]
                whole.append(
                    msgspec.structs.replace(receipt, depth=depth, remaining=max(0, limit - depth))
                )
            else:
                whole.append(receipt)
        return whole


def choose(
    queue: QueueState, request: m.PopRequest, now_us: int
) -> list[tuple[GroupState, list[Stored]]]:
    """Return what a pop takes: partitions, the longest waiting first, and a batch of each (C-05).

    Leases that have run out are taken back when their partition's turn comes (C-03). A
    message that goes alone is the whole claim, so a claim that has begun passes it over.
    """
    turns = [
        (since_us, state.partition.number, state)
        for state in queue.states(request.group, request.partition)
        if (since_us := state.waiting_since_us(now_us)) is not None
    ]
    heapify(turns)
    taken: list[tuple[GroupState, list[Stored]]] = []
    room = request.max_messages
    while turns and room and len(taken) < request.max_partitions:
        _, number, state = heappop(turns)
        if state.hold is not None:
            state.expire(now_us)
            since_us = state.waiting_since_us(now_us)
            if since_us is not None:
                heappush(turns, (since_us, number, state))
            continue
        batch = state.batch(room, now_us)
        alone = state.goes_alone(batch[0].seq)
        if alone and taken:
            continue
        taken.append((state, batch))
        room -= len(batch)
        if alone:
            break
    return taken
