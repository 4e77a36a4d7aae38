"""How the memory backend stores pushes: in which partition, whether there is room, and once.

A queue may spread what names no partition over several (PLD-12): a message with a transaction
id goes where the id says, so that a repeat meets the first; the others of one call go together
where no call went for longest.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import msgspec

from queen_sync import ids, model as m
from queen_sync.backends.memory_encryption import seal
from queen_sync.backends.memory_partition import Partition
from queen_sync.backends.memory_store import QueueState, Store
from queen_sync.backends.memory_values import Stored
from queen_sync.encryption import no_key
from queen_sync.errors import QueueFull, QueueNotFound


def count_new(store: Store, items: Sequence[m.NewMessage]) -> dict[str, int]:
    """Return how many messages, duplicates aside, each queue would get."""
    new: dict[str, int] = {}
    seen: set[tuple[str, str, str]] = set()
    for item in items:
        name = item.transaction_id
        queue = store.queues.get(item.queue)
        if name is not None:
            partition_name = item.partition if queue is None else _place(queue, item)
            partition = None if queue is None else queue.partitions.get(partition_name)
            key = (item.queue, partition_name, name)
            if key in seen or (partition is not None and partition.find(name) is not None):
                continue
            seen.add(key)
        new[item.queue] = new.get(item.queue, 0) + 1
    return new


def wants_key(store: Store, queue_name: str) -> bool:
    """Whether what is pushed to a queue has to be sealed."""
    queue = store.queues.get(queue_name)
    return queue is not None and queue.options.encryption_enabled


def check_pushes(store: Store, items: Sequence[m.NewMessage], *, create: bool) -> None:
    """Refuse pushes that name a missing queue, want a key or do not fit (C-06); store nothing."""
    names = {item.queue for item in items}
    if store.keys is None:
        for name in filter(lambda name: wants_key(store, name), sorted(names)):
            raise no_key(name)
    if not create:
        for name in names - store.queues.keys():
            raise QueueNotFound(f"Queue '{name}' not found")
    limited = {
        name: limit
        for name in names & store.queues.keys()
        if (limit := store.queues[name].options.max_queue_size)
    }
    if not limited:
        return
    new = count_new(store, [item for item in items if item.queue in limited])
    for name, pushed in new.items():
        depth = store.queues[name].depth()
        if depth + pushed > limited[name]:
            raise QueueFull(name, limited[name], depth, pushed)


def store_pushes(
    store: Store, items: Sequence[m.NewMessage], now_us: int
) -> tuple[list[m.Receipt], set[str]]:
    """Store checked pushes; return their receipts and the queues that got something new."""
    receipts = []
    changed = set()
    # What one call makes is made in the order of names, whatever the order of its items.
    for queue_name in sorted({item.queue for item in items} - store.queues.keys()):
        store.make_queue(queue_name, now_us)
    places = _places(store, items)
    for queue_name, partition_name in sorted(set(places)):
        store.partition_of(store.queues[queue_name], partition_name, now_us)
    for item, (queue_name, partition_name) in zip(items, places, strict=True):
        queue = store.queues[queue_name]
        partition = queue.partitions[partition_name]
        if item.transaction_id is None and _is_spread(queue, item):
            partition.spread_at = queue.spreads
        name = item.transaction_id
        first = None if name is None else partition.find(name)
        message = first or _append(store, partition, item, now_us)
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
    return _with_depths(store, receipts), changed


def _append(store: Store, partition: Partition, item: m.NewMessage, now_us: int) -> Stored:
    if not partition.queue.options.encryption_enabled:
        return partition.append(item, now_us)
    return partition.append(seal(store.keys, partition, item), now_us, encrypted=True)


def _with_depths(store: Store, receipts: list[m.Receipt]) -> list[m.Receipt]:
    """Add the depth after the push where the queue has a limit."""
    depths: Mapping[str, tuple[int, int]] = {
        name: (store.queues[name].depth(), limit)
        for name in {receipt.queue for receipt in receipts}
        if (limit := store.queues[name].options.max_queue_size)
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


# ------------------------------------------------------------------------ spreading


def _places(store: Store, items: Sequence[m.NewMessage]) -> list[tuple[str, str]]:
    """Return the queue and the partition that each item goes to."""
    idlest: dict[str, str] = {}
    places = []
    for item in items:
        queue = store.queues[item.queue]
        if item.transaction_id is not None or not _is_spread(queue, item):
            places.append((queue.name, _place(queue, item)))
            continue
        if queue.name not in idlest:
            idlest[queue.name] = _idlest(queue)
            queue.spreads += 1
        places.append((queue.name, idlest[queue.name]))
    return places


def _is_spread(queue: QueueState, item: m.NewMessage) -> bool:
    return queue.options.spread_partitions > 1 and item.partition == m.DEFAULT_PARTITION


def _place(queue: QueueState, item: m.NewMessage) -> str:
    """Return the partition of an item with a transaction id.

    An id that the server gave to a message of one of the partitions stays with that message.
    """
    name = item.transaction_id
    if name is None or not _is_spread(queue, item):
        return item.partition
    count = queue.options.spread_partitions
    address = ids.address(name)
    for partition in queue.partitions.values() if address else ():
        stored = partition.find(name)
        if stored is not None and stored.id == name and _is_one_of(partition.name, count):
            return partition.name
    return m.spread_name(m.spread_index(name, count))


def _is_one_of(partition_name: str, count: int) -> bool:
    return partition_name in map(m.spread_name, range(count))


def _idlest(queue: QueueState) -> str:
    """Return the partition that no call has spread to for longest; never is longer."""

    def last_used(index: int) -> tuple[int, int]:
        partition = queue.partitions.get(m.spread_name(index))
        return (0 if partition is None else partition.spread_at), index

    return m.spread_name(min(range(queue.options.spread_partitions), key=last_used))
