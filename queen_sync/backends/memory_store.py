"""What the memory backend keeps: queues, partitions, groups, and who waits for a queue.

Plain data under the one lock of `queen_sync.backends.memory`, like `memory_state` below it.
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import count
from typing import NamedTuple
from weakref import WeakValueDictionary

from queen_sync import ids, model as m
from queen_sync.backends.memory_leases import Lease
from queen_sync.backends.memory_partition import Partition
from queen_sync.backends.memory_state import GroupState
from queen_sync.backends.memory_values import QueueRecord
from queen_sync.encryption import KeyRing
from queen_sync.errors import PartitionNotFound, QueueNotFound
from queen_sync.stats import Counts


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


class Scope(NamedTuple):
    """The queues that a pop without a queue's name means: of a namespace, a task, or both."""

    namespace: str | None
    task: str | None

    def covers(self, queue: QueueState) -> bool:
        return self.namespace in (None, queue.namespace) and self.task in (None, queue.task)


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
        self.spreads = 0
        """How many calls have spread unnamed messages over its partitions (PLD-12)."""

    def register(
        self, group: str, registration: Registration, now_us: int, *, late: bool = False
    ) -> None:
        """Let a group begin in every partition there is (C-07); its waiting begins now too.

        ``late``: a group that began with ``new`` did so at an earlier instant.
        """
        new = registration.subscription.mode == "new"
        registration.from_us = registration.subscription.from_us or 0
        if new and late:
            registration.from_us = registration.created_us
        self.registrations[group] = registration
        for partition in self.partitions.values():
            position = partition.last_seq if new and not late else partition.removed
            partition.unsettle(position)
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

    def __init__(self, keys: KeyRing | None = None) -> None:
        self.keys = keys
        """What seals and opens the payloads of encrypted queues."""
        self.queues: dict[str, QueueState] = {}
        self.partitions: dict[str, Partition] = {}
        """By partition id."""
        self.counts: dict[tuple[int, str], Counts] = {}
        """What happened, by minute and queue."""
        self.waiting: dict[str, dict[str, Registration]] = {}
        """Groups to be registered: of a missing queue, or deleted with their start kept."""
        self.leases: WeakValueDictionary[str, Lease] = WeakValueDictionary()
        """By lease id, for as long as some state holds the lease, live or as its last closed."""
        self.attempts: WeakValueDictionary[tuple[str, Scope, str, str], Lease] = (
            WeakValueDictionary()
        )
        """Leases that were given to a pop with an attempt id, for as long (C-13)."""
        self.scopes: dict[tuple[Scope, str], Registration] = {}
        """What groups that pop over a scope have asked for, the first made first."""
        self.trace_numbers = count(1)
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
        self.partition_of(queue, m.DEFAULT_PARTITION, now_us)
        for group in [*self.waiting.get(name, {}), *self._groups_over(queue)]:
            self._enter(queue, group, now_us)
        return queue

    def rename_scope(
        self, queue: QueueState, namespace: str | None, task: str | None, now_us: int
    ) -> None:
        """Change a queue's namespace and task; register the groups whose scope it comes into."""
        names = queue.namespace, queue.task
        queue.namespace = queue.namespace if namespace is None else namespace
        queue.task = queue.task if task is None else task
        if (queue.namespace, queue.task) != names:
            for group in self._groups_over(queue):
                self._enter(queue, group, now_us, late=True)

    def _groups_over(self, queue: QueueState) -> list[str]:
        return [group for scope, group in self.scopes if scope.covers(queue)]

    def partition_of(self, queue: QueueState, name: str, now_us: int) -> Partition:
        """Return the partition of that name, made where it is missing."""
        partition = queue.partitions.get(name)
        if partition is None:
            partition = Partition(next(self._partition_numbers), name, queue, now_us)
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
        # They know each other: only once they are parted is their memory free at once.
        queue.partitions.clear()
        self.waiting.pop(name, None)
        return True

    def drop_partition(self, queue_name: str, name: str, now_us: int) -> bool:
        """Delete a partition with all it holds; a queue is never without its default one."""
        queue = self.queues.get(queue_name)
        partition = None if queue is None else queue.partitions.pop(name, None)
        if queue is None or partition is None:
            return False
        for state in partition.groups.values():
            state.forget()
        partition.groups.clear()
        del self.partitions[partition.id]
        if name == m.DEFAULT_PARTITION:
            self.partition_of(queue, name, now_us)
        return True

    def clear(self, queue_name: str, name: str | None, now_us: int) -> int:
        """Remove all messages of a queue or of one partition; return how many."""
        queue = self.place(queue_name, name)
        wanted = queue.partitions.values() if name is None else [queue.partitions[name]]
        return sum(partition.clear(now_us) for partition in wanted)

    def place(self, queue_name: str, partition: str | None) -> QueueState:
        """Return the queue; raise where it, or the partition that is named, is missing."""
        queue = self.queues.get(queue_name)
        if queue is None:
            raise QueueNotFound(f"Queue '{queue_name}' not found")
        if partition is not None and partition not in queue.partitions:
            raise PartitionNotFound(f"Partition '{partition}' not found")
        return queue

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
            waiting = self.waiting.setdefault(queue_name, {})
            known = waiting.setdefault(group, Registration(wanted or m.Subscription(), now_us))
            if queue is not None:
                self._enter(queue, group, now_us)
        return queue, wanted is not None and wanted != known.subscription

    def meet_scope(
        self, scope: Scope, group: str, wanted: m.Subscription | None, now_us: int
    ) -> tuple[list[QueueState], bool]:
        """Register a group in all queues of a scope, as its first pop over the scope said."""
        late = (scope, group) in self.scopes
        known = self.scopes.setdefault(
            (scope, group), Registration(wanted or m.Subscription(), now_us)
        )
        queues = self.covered(scope)
        for queue in queues:
            self._enter(queue, group, now_us, late=late)
        return queues, wanted is not None and wanted != known.subscription

    def covered(self, scope: Scope) -> list[QueueState]:
        """Return the queues of a scope."""
        return [queue for queue in self.queues.values() if scope.covers(queue)]

    def _enter(self, queue: QueueState, group: str, now_us: int, *, late: bool = False) -> None:
        """Register a group that is new to a queue, as is remembered: for the queue, or a scope."""
        if group in queue.registrations:
            return
        waiting = self.waiting.get(queue.name, {})
        known = waiting.pop(group, None)
        if not waiting:
            self.waiting.pop(queue.name, None)
        if known is not None:
            queue.register(group, known, now_us)
            return
        said = next(
            said
            for (scope, name), said in self.scopes.items()
            if name == group and scope.covers(queue)
        )
        own = Registration(said.subscription, said.created_us)
        queue.register(group, own, now_us, late=late)

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
        if queue_name is None and not keep:
            for scope in [key for key in self.scopes if key[1] == group]:
                del self.scopes[scope]
        return dropped, changed

    def restart(self, group: str, from_us: int) -> int:
        """Set the recorded start of a group wherever there is one; return how many there are."""
        found = [queue.registrations.get(group) for queue in self.queues.values()]
        found += [waiting.get(group) for waiting in self.waiting.values()]
        found += [said for (_, name), said in self.scopes.items() if name == group]
        records = [registration for registration in found if registration is not None]
        for registration in records:
            registration.subscription = m.Subscription(mode="from", from_us=from_us)
        return len(records)

    # ------------------------------------------------------- seeks and dead letters

    def seek(self, target: m.Seek, now_us: int) -> int:
        """Move a group's position, registering the group where it is new (C-20)."""
        queue = self.place(target.queue, target.partition)
        self.meet(target.queue, target.group, None, now_us)
        states = queue.states(target.group, target.partition)
        for state in states:
            partition = state.partition
            if target.from_us is not None:
                position = partition.last_before(target.from_us)
            else:
                position = partition.last_seq if target.to == "end" else partition.removed
            state.seek(position, now_us)
        return len(states)

    def dead_letters(self, wanted: m.DeadLetterFilter) -> list[tuple[GroupState, m.DeadLetter]]:
        """Return all dead letters that a filter finds, the newest first, with whose they are."""
        found = [
            (state, letter)
            for state in self.states()
            if wanted.queue in (None, state.partition.queue.name)
            and wanted.group in (None, state.group)
            and wanted.partition in (None, state.partition.name)
            and wanted.partition_id in (None, state.partition.id)
            for letter in state.dead.values()
            if wanted.transaction_id in (None, letter.transaction_id)
            if wanted.failed_from_us is None or letter.failed_us >= wanted.failed_from_us
            if wanted.failed_to_us is None or letter.failed_us <= wanted.failed_to_us
        ]
        found.sort(
            key=lambda row: (row[1].failed_us, row[0].partition.number, row[1].seq), reverse=True
        )
        return found
