"""The numbers of the memory backend: queues, groups and lanes, and counts by the minute."""

from __future__ import annotations

import threading
from abc import abstractmethod
from collections.abc import Iterator, Sequence

from queen_sync import stats as s
from queen_sync.backends.base import Backend
from queen_sync.backends.memory_inspection import partition_state
from queen_sync.backends.memory_state import GroupState
from queen_sync.backends.memory_store import QueueState, Store
from queen_sync.clock import Clock

NEVER = 2**63


class MemoryStatistics(Backend):
    """What `MemoryBackend` tells of itself as a whole."""

    _clock: Clock
    _store: Store

    @abstractmethod
    def _open(self) -> threading.Lock:
        """Return the lock, where this process may use the backend."""

    def queue_stats(self, queue: str | None = None) -> Sequence[s.QueueStats]:
        with self._open():
            now_us = self._clock.now_us()
            return [_queue(each, now_us) for each in self._queues(queue)]

    def group_stats(
        self, group: str | None = None, queue: str | None = None
    ) -> Sequence[s.GroupStats]:
        with self._open():
            now_us = self._clock.now_us()
            found = [
                _group(each, name, now_us)
                for each in self._queues(queue)
                for name in each.registrations
                if group in (None, name)
            ]
        return sorted(found, key=lambda stats: (stats.group, stats.queue))

    def lanes(self, wanted: s.LaneFilter) -> Sequence[s.LaneStats]:
        with self._open():
            now_us = self._clock.now_us()
            found = [_lane(state, now_us) for state in self._states(wanted)]
        since_us = wanted.waiting_since_us
        found = [
            lane
            for lane in found
            if (not wanted.leased or lane.lease_expires_us is not None)
            and (since_us is None or (lane.oldest_waiting_us or NEVER) <= since_us)
        ]
        found.sort(key=lambda lane: (_rank(lane, wanted.order), *_name(lane)))
        return found[wanted.offset : wanted.offset + wanted.limit]

    def add_counts(self, counts: Sequence[s.QueueCounts]) -> None:
        with self._open():
            for each in counts:
                key = s.minute_of(each.start_us), each.queue
                known = self._store.counts.get(key, s.Counts())
                self._store.counts[key] = s.total([known, each.counts])

    def counts(self, wanted: s.CountFilter) -> Sequence[s.QueueCounts]:
        with self._open():
            kept = list(self._store.counts.items())
        buckets: dict[tuple[int, str], list[s.Counts]] = {}
        for (minute_us, queue), counts in kept:
            if wanted.from_us <= minute_us <= wanted.to_us and (
                wanted.queues is None or queue in wanted.queues
            ):
                key = wanted.bucket_of(minute_us), queue if wanted.by_queue else ""
                buckets.setdefault(key, []).append(counts)
        return [
            s.QueueCounts(start_us=start_us, queue=queue, counts=s.total(counts))
            for (start_us, queue), counts in sorted(buckets.items(), key=lambda bucket: bucket[0])
        ]

    def forget_counts(self, before_us: int) -> int:
        with self._open():
            old = [key for key in self._store.counts if key[0] < before_us]
            for key in old:
                del self._store.counts[key]
        return len(old)

    def _queues(self, name: str | None) -> list[QueueState]:
        return [queue for key, queue in sorted(self._store.queues.items()) if name in (None, key)]

    def _states(self, wanted: s.LaneFilter) -> Iterator[GroupState]:
        for queue in self._queues(wanted.queue):
            for group in queue.registrations:
                if wanted.group in (None, group):
                    yield from queue.states(group, wanted.partition)


def _queue(queue: QueueState, now_us: int) -> s.QueueStats:
    parts = [s.of_partition(partition_state(each, now_us)) for each in queue.partitions.values()]
    return s.QueueStats(
        queue=queue.name,
        partition_count=len(parts),
        leased_count=sum(part.leased_count for part in parts),
        pushed_count=sum(part.pushed_count for part in parts),
        stored_count=sum(part.stored_count for part in parts),
        waiting_count=sum(part.waiting_count for part in parts),
        in_flight_count=sum(part.in_flight_count for part in parts),
        retrying_count=sum(part.retrying_count for part in parts),
        dead_count=sum(part.dead_count for part in parts),
    )


def _group(queue: QueueState, name: str, now_us: int) -> s.GroupStats:
    registration = queue.registrations[name]
    lanes = [_lane(state, now_us) for state in queue.states(name)]
    states = [partition_state(each, now_us, name).groups[0] for each in queue.partitions.values()]
    waiting = [lane.oldest_waiting_us for lane in lanes if lane.oldest_waiting_us is not None]
    taken = [lane.taken_us for lane in lanes if lane.taken_us is not None]
    return s.GroupStats(
        queue=queue.name,
        group=name,
        subscription=registration.subscription,
        created_us=registration.created_us,
        partition_count=len(lanes),
        lagging_count=sum(lane.lag > 0 for lane in lanes),
        leased_count=sum(lane.lease_expires_us is not None for lane in lanes),
        lease_count=sum(lane.lease_count for lane in lanes),
        lag=sum(lane.lag for lane in lanes),
        in_flight_count=sum(lane.in_flight_count for lane in lanes),
        retrying_count=sum(state.retrying_count for state in states),
        dead_count=sum(state.dead_count for state in states),
        oldest_waiting_us=min(waiting, default=None),
        taken_us=max(taken, default=None),
    )


def _lane(state: GroupState, now_us: int) -> s.LaneStats:
    seen = partition_state(state.partition, now_us, state.group).groups[0]
    return s.LaneStats(
        queue=state.partition.queue.name,
        partition=state.partition.name,
        partition_id=state.partition.id,
        group=state.group,
        passed_count=state.position + len(state.settled),
        lag=seen.lag,
        in_flight_count=seen.in_flight_count,
        lease_count=seen.lease_count,
        lease_expires_us=seen.lease_expires_us,
        oldest_waiting_us=seen.oldest_waiting_us,
        taken_us=state.taken_us,
    )


def _rank(lane: s.LaneStats, order: s.LaneOrder) -> int:
    if order == "lag":
        return -lane.lag
    if order == "age":
        return NEVER if lane.oldest_waiting_us is None else lane.oldest_waiting_us
    if order == "expiry":
        return NEVER if lane.lease_expires_us is None else lane.lease_expires_us
    return 0


def _name(lane: s.LaneStats) -> tuple[str, str, str]:
    return lane.queue, lane.partition, lane.group
