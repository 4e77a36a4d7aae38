"""What a pop of the memory backend takes, and what it is given: the choice and the claim."""

from __future__ import annotations

from collections.abc import Sequence
from heapq import heapify, heappop
from itertools import groupby

from queen_sync import ids, model as m
from queen_sync.backends.memory_encryption import opened
from queen_sync.backends.memory_leases import Lease
from queen_sync.backends.memory_state import GroupState
from queen_sync.backends.memory_store import QueueState, Scope, Store
from queen_sync.backends.memory_values import Stored
from queen_sync.clock import SECOND
from queen_sync.encryption import PAUSE_SECONDS, KeyRing
from queen_sync.errors import Undecryptable

Taken = list[tuple[GroupState, list[Stored]]]
"""Partitions as one group sees them, with a batch of each."""


def scope_of(request: m.PopRequest) -> Scope:
    """Return the scope of a pop that names no queue."""
    return Scope(request.namespace, request.task)


def pop(store: Store, request: m.PopRequest, now_us: int) -> m.Claim:
    """Register the group where it is new, and give it what waits."""
    if request.queue:
        queue, ignored = store.meet(request.queue, request.group, request.subscription, now_us)
        queues = [] if queue is None else [queue]
    else:
        queues, ignored = store.meet_scope(
            scope_of(request), request.group, request.subscription, now_us
        )
    attempt = request.queue, scope_of(request), request.group, request.attempt_id or ""
    lease = store.attempts.get(attempt)
    if lease is not None and (held := lease.live_in(now_us)):
        return _claim_again(store.keys, lease, held, ignored=ignored)
    taken, closed = choose(store.keys, queues, request, now_us)
    if not taken and closed is not None:
        raise closed
    if not taken:
        return m.Claim(group=request.group, subscription_ignored=ignored)
    messages = [message for state, batch in taken for message in state.deliver(batch)]
    lease = None
    if request.auto_ack:
        for state, batch in taken:
            state.complete_now(batch, now_us)
    else:
        lease = _lease(request.group, taken, now_us)
        store.leases[lease.id] = lease
        if request.attempt_id is not None:
            store.attempts[attempt] = lease
    return m.Claim(
        messages=messages,
        lease_id=None if lease is None else lease.id,
        group=request.group,
        expires_us=None if lease is None else lease.expires_us,
        partition_count=len(taken),
        subscription_ignored=ignored,
    )


def _lease(group: str, taken: Taken, now_us: int) -> Lease:
    """Put what was taken under a fresh lease."""
    first = taken[0][0].partition
    lease = Lease(
        ids.lease_id(first.number),
        group,
        now_us + first.queue.options.effective_lease_seconds * SECOND,
        alone=sum(len(batch) for _, batch in taken) == 1,
    )
    for state, batch in taken:
        state.take(lease, batch, now_us)
    return lease


def _claim_again(
    keys: KeyRing | None, lease: Lease, held: Sequence[GroupState], *, ignored: bool
) -> m.Claim:
    """Return the claim that a live lease gave, less what has its outcome (C-13)."""
    messages: list[m.Message] = []
    for state in held:
        assert state.hold is not None
        batch = [state.message(seq) for seq in sorted(state.hold.open)]
        batch, closed = opened(keys, state.partition, batch)
        if closed is not None:
            raise closed  # the lease is somebody's who could read it
        messages += state.deliver(batch)
    return m.Claim(
        messages=messages,
        lease_id=lease.id,
        group=lease.group,
        expires_us=lease.expires_us,
        partition_count=len(held),
        subscription_ignored=ignored,
    )


# --------------------------------------------------------------------------- the choice


def choose(
    keys: KeyRing | None, queues: Sequence[QueueState], request: m.PopRequest, now_us: int
) -> tuple[Taken, Undecryptable | None]:
    """Return what a pop takes: of the highest priority that has anything to give (C-17).

    And why the first lane could not be read that came up and could not.
    """
    first = None

    def priority(queue: QueueState) -> int:
        return -queue.options.priority

    for _, equals in groupby(sorted(queues, key=priority), key=priority):
        states = [
            state for queue in equals for state in queue.states(request.group, request.partition)
        ]
        taken, closed = _choose_among(keys, states, request, now_us)
        first = first or closed
        if taken:
            return taken, first
    return [], first


def _choose_among(
    keys: KeyRing | None, states: Sequence[GroupState], request: m.PopRequest, now_us: int
) -> tuple[Taken, Undecryptable | None]:
    """Return partitions of one queue, the longest waiting first, and a batch of each (C-05).

    When a partition's turn has come, a lease that has run out is taken back (C-03) and what
    has waited too long is evicted (C-09); what is due then is given. A message that goes
    alone is the whole claim, so a claim that has begun passes it over. A batch ends before a
    payload that cannot be opened; a lane that begins with one is left alone for a while.
    """
    turns = [
        (since_us, state.partition.number, state)
        for state in states
        if (since_us := state.waiting_since_us(now_us)) is not None
    ]
    heapify(turns)
    taken: Taken = []
    first = None
    room = request.max_messages
    while turns and room and len(taken) < request.max_partitions:
        _, _, state = heappop(turns)
        if taken and state.partition.queue is not taken[0][0].partition.queue:
            continue
        if state.hold is not None:
            state.expire(now_us)
        state.evict(now_us)
        ready_us = state.ready_us()
        if ready_us is None or ready_us > now_us:
            continue
        batch = state.batch(room, now_us)
        alone = state.goes_alone(batch[0].seq)
        if alone and taken:
            continue
        batch, closed = opened(keys, state.partition, batch)
        if not batch:
            first = first or closed
            state.rests_until_us = now_us + PAUSE_SECONDS * SECOND
            continue
        taken.append((state, batch))
        room -= len(batch)
        if alone:
            break
    return taken, first


def next_ready_us(store: Store, request: m.PopRequest) -> int | None:
    """Return from when a pop may find something by time alone; None: never."""
    if request.queue:
        queue = store.queues.get(request.queue)
        queues = [] if queue is None else [queue]
    else:
        queues = store.covered(scope_of(request))
    instants = []
    for queue in queues:
        if request.group in queue.registrations:
            instants += [
                ready_us
                for state in queue.states(request.group, request.partition)
                if (ready_us := state.next_ready_us()) is not None
            ]
        elif any(partition.messages for partition in queue.partitions.values()):
            # Its first pop has still to come, and may find whatever is stored.
            instants.append(0)
    return min(instants, default=None)
