"""The memory backend: the reference model, for unit tests and as the oracle of the others.

It says what the promises say, message by message and group by group, under one lock: nothing
here is clever. `memory_partition` holds the messages, `memory_state` a group's progress in
them, `memory_store` the queues; `memory_pushes`, `memory_pops` and `memory_acks` say how a
push, a pop and an ack are judged. All of it ends with the process.
"""

from __future__ import annotations

import logging
import os
import threading
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import msgspec

from queen_sync import inspection as i, model as m
from queen_sync.backends import memory_inspection as looks
from queen_sync.backends.base import Capabilities, Hint
from queen_sync.backends.memory_acks import Judge, try_transaction
from queen_sync.backends.memory_encryption import shown_letter
from queen_sync.backends.memory_leases import Lease
from queen_sync.backends.memory_pops import next_ready_us, pop
from queen_sync.backends.memory_pushes import check_pushes, store_pushes
from queen_sync.backends.memory_state import GroupState
from queen_sync.backends.memory_stats import MemoryStatistics
from queen_sync.backends.memory_store import QueueState, Store
from queen_sync.backends.refusals import LOST
from queen_sync.clock import SECOND, Clock, SystemClock
from queen_sync.encryption import KeyRing
from queen_sync.errors import (
    BackendUnavailable,
    InvalidRequest,
    LeaseLost,
    QueenError,
)

log = logging.getLogger(__name__)

MIN_EXTENSION_SECONDS = 60


class MemoryBackend(MemoryStatistics):
    """Queues in the memory of one process; threads may share it, processes may not."""

    capabilities = Capabilities(
        features=frozenset(
            {
                "extend",
                "release",
                "sub_new",
                "sub_from",
                "delete",
                "browse",
                "dlq",
                "txn",
                "retrydelay",
                "delay",
                "window",
                "cap",
                "prio",
                "popretry",
                "seek",
                "redrive",
                "evict",
                "retention",
                "spread",
                "stats",
                "counters",
                "messages",
                "cleanup",
                "traces",
                "clock",
            }
        ),
        durable=False,
        shared=False,
    )

    def __init__(self, clock: Clock | None = None, *, keys: KeyRing | None = None) -> None:
        if keys is not None:
            self.capabilities = self.capabilities.plus("enc")
        self._clock: Clock = clock or SystemClock()
        self._lock = threading.Lock()
        self._store = Store(keys)
        self._listeners: dict[object, Callable[[Hint], None]] = {}
        self._pid = os.getpid()
        self._closed = False

    def _open(self) -> threading.Lock:
        """Return the lock, where this process may use the backend.

        The process is checked before the lock is waited for: a fork may have copied it locked.
        """
        if os.getpid() != self._pid:
            raise BackendUnavailable(
                f"the memory backend belongs to process {self._pid} and was used in process "
                f"{os.getpid()}: its queues are not shared. Make it after the fork, or use a "
                "backend that several processes can share"
            )
        if self._closed:
            raise BackendUnavailable("the memory backend is closed")
        return self._lock

    def _tell(self, queues: set[str]) -> None:
        """Call the listeners; the lock is free and the change can be seen."""
        if not queues:
            return
        hint = frozenset(queues)
        for callback in list(self._listeners.values()):
            try:
                callback(hint)
            except Exception:
                log.exception("a listener failed; the change that it was told of stands")

    def close(self) -> None:
        self._closed = True
        self._listeners = {}
        self._store = Store()

    def check(self) -> Mapping[str, Any]:
        with self._open():
            partitions = self._store.partitions.values()
            return {
                "backend": "memory",
                "queues": len(self._store.queues),
                "partitions": len(partitions),
                "messages": sum(len(partition.messages) for partition in partitions),
                "warnings": ["everything is kept in this process and is gone when it ends"],
            }

    # ------------------------------------------------------------------ catalogue

    def configure(
        self,
        queue: str,
        options: Mapping[str, int | bool] | None = None,
        *,
        namespace: str | None = None,
        task: str | None = None,
    ) -> m.Configured:
        named = self.capabilities.check_configure(queue, options, namespace, task)
        with self._open():
            known = self._store.queues.get(queue)
            state = known or self._store.make_queue(
                queue, self._clock.now_us(), namespace=namespace, task=task
            )
            before = _settings(state)
            state.options = msgspec.structs.replace(state.options, **named)
            self._store.rename_scope(state, namespace, task, self._clock.now_us())
            changes = {
                name: m.Change(old=before[name], new=value)
                for name, value in _settings(state).items()
                if before[name] != value
            }
            configured = m.Configured(queue=state.value(), created=known is None, changes=changes)
        self._tell({queue})
        return configured

    def queue(self, name: str) -> m.Queue | None:
        with self._open():
            found = self._store.queues.get(name)
            return None if found is None else found.value()

    def queues(self) -> Sequence[m.Queue]:
        with self._open():
            return [found.value() for _, found in sorted(self._store.queues.items())]

    def delete_queue(self, name: str) -> bool:
        with self._open():
            deleted = self._store.drop_queue(name)
        # Whoever waits for the queue has to say anew where its group begins.
        self._tell({name} if deleted else set())
        return deleted

    # ----------------------------------------------------------------------- flow

    def push(self, items: Sequence[m.NewMessage], *, create: bool = True) -> list[m.Receipt]:
        with self._open():
            check_pushes(self._store, items, create=create)
            receipts, changed = store_pushes(self._store, items, self._clock.now_us())
        self._tell(changed)
        return receipts

    def pop(self, request: m.PopRequest) -> m.Claim:
        with self._open():
            return pop(self._store, request, self._clock.now_us())

    def ack(self, acks: Sequence[m.Ack]) -> list[m.Acked]:
        with self._open():
            judge = Judge(self._store, self._clock.now_us())
            verdicts = [judge.give(ack) for ack in acks]
            answers = [verdict.value() for verdict in verdicts]
            ready = judge.ready()
        self._tell(ready)
        return answers

    def _live(self, lease_id: str, now_us: int) -> tuple[Lease, list[GroupState]]:
        """Return a live lease and where it is held; LeaseLost where it is not live."""
        lease = self._store.leases.get(lease_id)
        held = [] if lease is None else lease.live_in(now_us)
        if lease is None or not held:
            raise LeaseLost(LOST[1])
        return lease, held

    def extend(self, lease_id: str, seconds: int | None = None) -> int:
        if seconds is not None and not 1 <= seconds <= m.MAX_LEASE_SECONDS:
            raise InvalidRequest(f"seconds must be 1 to {m.MAX_LEASE_SECONDS}", "seconds")
        with self._open():
            now_us = self._clock.now_us()
            lease, held = self._live(lease_id, now_us)
            if seconds is None:
                options = held[0].partition.queue.options
                seconds = max(MIN_EXTENSION_SECONDS, options.effective_lease_seconds)
            lease.expires_us = max(lease.expires_us, now_us + seconds * SECOND)
            return lease.expires_us

    def release(self, lease_id: str) -> None:
        with self._open():
            now_us = self._clock.now_us()
            _, held = self._live(lease_id, now_us)
            for state in held:
                state.release(now_us)
            queues = {state.partition.queue.name for state in held}
        self._tell(queues)

    def transact(self, transaction: m.Transaction) -> m.Transacted:
        with self._open():
            now_us = self._clock.now_us()
            judge = Judge(self._store, now_us, undoable=True)
            try:
                verdicts, repeated = try_transaction(judge, self._store, transaction)
            except QueenError:
                judge.undo()
                raise
            pushes = [item for item in transaction.operations if isinstance(item, m.NewMessage)]
            stored, changed = store_pushes(self._store, pushes, now_us)
            receipts = iter(stored)
            results: list[m.Acked | m.Receipt] = [
                verdicts[index].value() if isinstance(operation, m.Ack) else next(receipts)
                for index, operation in enumerate(transaction.operations)
            ]
            changed |= judge.ready()
        self._tell(changed)
        return m.Transacted(results=results, repeated=repeated)

    # --------------------------------------------------------------------- groups

    def subscribe(self, queue: str, group: str, subscription: m.Subscription) -> bool:
        m.check_name(queue, "queue")
        m.check_name(group, "consumerGroup")
        with self._open():
            _, ignored = self._store.meet(queue, group, subscription, self._clock.now_us())
            return not ignored

    def groups(self, queue: str) -> Sequence[m.Group]:
        with self._open():
            found = self._store.queues.get(queue)
            names = [] if found is None else sorted(found.registrations)
            now_us = self._clock.now_us()
            return [] if found is None else [found.group(name, now_us) for name in names]

    def delete_group(
        self, group: str, *, queue: str | None = None, keep_subscription: bool = False
    ) -> int:
        with self._open():
            dropped, changed = self._store.drop_group(group, queue, keep=keep_subscription)
        self._tell(changed)
        return dropped

    def restart_subscription(self, group: str, from_us: int) -> int:
        with self._open():
            return self._store.restart(group, from_us)

    def seek(self, target: m.Seek) -> int:
        with self._open():
            moved = self._store.seek(target, self._clock.now_us())
        self._tell({target.queue})
        return moved

    # --------------------------------------------------------------------- browse

    def dead_letters(self, wanted: m.DeadLetterFilter) -> m.DeadLetters:
        with self._open():
            found = [letter for _, letter in self._store.dead_letters(wanted)]
            page = [
                shown_letter(self._store.keys, letter)
                for letter in found[wanted.offset : wanted.offset + wanted.limit]
            ]
        return m.DeadLetters(items=page, total=len(found))

    def redrive(self, wanted: m.DeadLetterFilter) -> int:
        with self._open():
            now_us = self._clock.now_us()
            found = self._store.dead_letters(wanted)
            for state, letter in found:
                state.redrive(letter.seq, now_us)
        self._tell({letter.queue for _, letter in found})
        return len(found)

    def purge(self, wanted: m.DeadLetterFilter) -> int:
        with self._open():
            found = self._store.dead_letters(wanted)
            for state, letter in found:
                del state.dead[letter.seq]
        return len(found)

    def removals(self, queue: str) -> Sequence[m.Removal]:
        with self._open():
            found = self._store.queues.get(queue)
            return [] if found is None else list(found.removals)

    def partitions(
        self, queue: str, *, limit: int | None = None, offset: int = 0
    ) -> Sequence[i.PartitionState]:
        with self._open():
            found = looks.partitions(self._store, queue, self._clock.now_us())
        return found[offset:] if limit is None else found[offset : offset + limit]

    def message(self, partition_id: str, transaction_id: str) -> i.StoredMessage | None:
        with self._open():
            found = looks.find(self._store, partition_id, transaction_id)
            return looks.message(self._store, found, self._clock.now_us())

    def message_named(self, transaction_id: str) -> i.StoredMessage | None:
        with self._open():
            found = looks.find_named(self._store, transaction_id)
            return looks.message(self._store, found, self._clock.now_us())

    def messages(self, wanted: i.MessageFilter) -> i.MessagePage:
        with self._open():
            return looks.messages(self._store, wanted, self._clock.now_us())

    # -------------------------------------------------------------------- cleanup

    def delete_message(self, partition_id: str, transaction_id: str) -> bool:
        with self._open():
            found = looks.find(self._store, partition_id, transaction_id)
            if found is None:
                return False
            found.partition.delete(found.message, self._clock.now_us())
        self._tell({found.partition.queue.name})
        return True

    def bury(
        self,
        partition_id: str,
        transaction_id: str,
        group: str | None = None,
        error: str | None = None,
    ) -> int:
        with self._open():
            found = looks.place_of(self._store, partition_id, transaction_id)
            reason = None if error is None else m.storable(error)
            count = looks.bury(found, group, reason, self._clock.now_us())
        self._tell({found.partition.queue.name})
        return count

    def retry_now(self, partition_id: str, transaction_id: str, group: str | None = None) -> int:
        with self._open():
            found = looks.place_of(self._store, partition_id, transaction_id)
            count = looks.retry_now(found, group, self._clock.now_us())
        self._tell({found.partition.queue.name})
        return count

    def clear(self, queue: str, partition: str | None = None) -> int:
        with self._open():
            count = self._store.clear(queue, partition, self._clock.now_us())
        self._tell({queue})
        return count

    def delete_partition(self, queue: str, partition: str) -> bool:
        with self._open():
            return self._store.drop_partition(queue, partition, self._clock.now_us())

    # --------------------------------------------------------------------- traces

    def add_trace(self, trace: i.Trace) -> str:
        with self._open():
            found = looks.place_of(self._store, trace.partition_id, trace.transaction_id)
            return looks.add_trace(self._store, found, trace, self._clock.now_us())

    def traces(self, partition_id: str, transaction_id: str) -> Sequence[i.TraceRecord]:
        with self._open():
            return looks.traces(self._store, partition_id, transaction_id)

    def traces_named(self, wanted: i.TraceFilter) -> i.TracePage:
        with self._open():
            return looks.traces_named(self._store, wanted)

    def trace_names(self, limit: int = 100, offset: int = 0) -> Sequence[i.TraceName]:
        i.check_page(limit, offset)
        with self._open():
            return looks.trace_names(self._store, limit, offset)

    def count_trace_names(self) -> int:
        with self._open():
            return looks.count_trace_names(self._store)

    # --------------------------------------------------------- upkeep and wake-ups

    def sweep(self) -> m.SweepReport:
        with self._open():
            now_us = self._clock.now_us()
            changed = set()
            expired = evicted = 0
            for state in self._store.states():
                if state.hold is not None and not state.hold.live(now_us):
                    state.expire(now_us)
                    expired += 1
                    changed.add(state.partition.queue.name)
                if gone := state.evict(now_us):
                    evicted += gone
                    changed.add(state.partition.queue.name)
            removed = sum(partition.retain(now_us) for partition in self._store.partitions.values())
        self._tell(changed)
        return m.SweepReport(expired=expired, evicted=evicted, removed=removed)

    def next_ready_in(self, request: m.PopRequest) -> float | None:
        with self._open():
            ready_us = next_ready_us(self._store, request)
            if ready_us is None:
                return None
            return max(0, ready_us - self._clock.now_us()) / SECOND

    def listen(self, callback: Callable[[Hint], None]) -> Callable[[], None]:
        token = object()
        with self._open():
            self._listeners[token] = callback

        def stop() -> None:
            self._listeners.pop(token, None)

        return stop


def _settings(queue: QueueState) -> dict[str, int | bool | str]:
    """Return all that a configure may change."""
    return {
        **msgspec.structs.asdict(queue.options),
        "namespace": queue.namespace,
        "task": queue.task,
    }
