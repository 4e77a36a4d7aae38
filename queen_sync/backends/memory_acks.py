"""How the memory backend judges acks: which message is meant, under which lease, and then what.

The order of the checks is the contract's (C-04): a message that cannot be found, a lease id
that is missing where the queue wants one, a lease that is not the message's any more.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import NamedTuple

import msgspec

from queen_sync import model as m
from queen_sync.backends.memory_leases import Hold, Lease, Snapshot
from queen_sync.backends.memory_partition import Partition
from queen_sync.backends.memory_pushes import check_pushes, count_new, wants_key
from queen_sync.backends.memory_state import GroupState
from queen_sync.backends.memory_store import Store
from queen_sync.backends.refusals import (
    AMBIGUOUS,
    LOST,
    NO_LEASE,
    NOT_FOUND,
    NOT_PROCESSED,
    Reason,
    error_of,
)
from queen_sync.errors import (
    AlreadySettled,
    InvalidRequest,
    LeaseLost,
    NotSupported,
    QueenError,
    QueueFull,
)


class Target(NamedTuple):
    """What an ack means: a message, by its seq, under a lease in a partition."""

    state: GroupState
    hold: Hold
    seq: int


class Verdict(NamedTuple):
    """What became of an ack; ``target`` None: refused for ``reason``."""

    ack: m.Ack
    partition: Partition | None
    target: Target | None = None
    reason: Reason | None = None
    status: m.Status | None = None
    already: bool = False

    def error(self) -> QueenError:
        """Return a refusal as the error that a transaction raises."""
        return error_of(*(self.reason or NOT_FOUND))

    def value(self) -> m.Acked:
        """Return the answer; made after the whole call, since it tells whether the lease ended."""
        code, text = self.reason or (None, None)
        where = self.partition
        target = self.target
        return m.Acked(
            transaction_id=self.ack.transaction_id,
            status=self.status,
            already=self.already,
            code=code,
            reason=text,
            queue=None if where is None else where.queue.name,
            partition=None if where is None else where.name,
            group=self.ack.group,
            lease_released=target is not None and target.state.closed is target.hold,
        )


class Judge:
    """Judges the acks of one call, at one instant, in their order.

    ``touched`` holds every state that an ack may have changed, as it was before.
    """

    def __init__(self, store: Store, now_us: int, *, undoable: bool = False) -> None:
        self._store = store
        self._now_us = now_us
        self._undoable = undoable
        self._given: set[tuple[Hold, int]] = set()
        self.touched: dict[GroupState, Snapshot | None] = {}

    def give(self, ack: m.Ack) -> Verdict:
        """Apply one ack, or say why not."""
        partition, found = self._resolve(ack)
        if not isinstance(found, Target):
            return Verdict(ack, partition, reason=found)
        state, hold, seq = found
        first = hold.outcomes.get(seq)
        if first is not None:
            return Verdict(ack, partition, found, status=first, already=True)
        if state not in self.touched:
            self.touched[state] = state.snapshot() if self._undoable else None
        self._given.add((hold, seq))
        status = state.give(seq, ack.outcome, ack.error, self._now_us)
        return Verdict(ack, partition, found, status=status)

    def stood_before(self, verdict: Verdict) -> bool:
        """Whether an outcome was there before this call: what makes it a repeat (C-15)."""
        target = verdict.target
        return (
            verdict.already and target is not None and (target.hold, target.seq) not in self._given
        )

    def undo(self) -> None:
        """Put every state back as it was."""
        for state, saved in self.touched.items():
            if saved is not None:
                state.restore(saved)
        self.touched = {}

    def ready(self) -> set[str]:
        """Return the queues in which an ack has left something to pop."""
        return {
            state.partition.queue.name
            for state in self.touched
            if state.hold is None and state.left()
        }

    # ----------------------------------------------------------- finding the message

    def _resolve(self, ack: m.Ack) -> tuple[Partition | None, Target | Reason]:
        if ack.partition_id is not None:
            partition = self._store.partitions.get(ack.partition_id)
            if partition is None or not self._known(partition, ack):
                return None, NOT_FOUND
            return partition, self._under_lease(partition, ack)
        if ack.lease_id is not None:
            found = list(self._in_lease(ack.lease_id, ack))
        else:
            found = list(self._unfenced(ack))
        if len(found) == 1:
            return found[0].state.partition, found[0]
        if found:
            return None, AMBIGUOUS
        return None, self._nowhere(ack)

    def _known(self, partition: Partition, ack: m.Ack) -> bool:
        """Whether the partition has the message: stored, or given back to the group."""
        state = partition.groups.get(ack.group)
        if state is None:
            return partition.find(ack.transaction_id) is not None
        return bool(state.named(ack.transaction_id))

    def _target(self, state: GroupState, ack: m.Ack) -> Target | None:
        """Return what the ack means among what the group may hold there, or None.

        Of several messages of one name it is that which the lease covers, the live one first.
        """
        targets = []
        for seq in state.named(ack.transaction_id):
            if ack.lease_id is None:
                hold = state.covering(seq, self._now_us)
            else:
                hold = state.held(ack.lease_id, self._now_us)
            if hold is not None and hold.covers(seq):
                targets.append(Target(state, hold, seq))
        targets.sort(key=lambda target: target.hold is not state.hold)
        return next(iter(targets), None)

    def _under_lease(self, partition: Partition, ack: m.Ack) -> Target | Reason:
        unfenced = ack.lease_id is None
        if unfenced and partition.queue.options.require_lease_id:
            return NO_LEASE
        state = partition.groups.get(ack.group)
        target = None if state is None else self._target(state, ack)
        return target or (NOT_PROCESSED if unfenced else LOST)

    def _in_lease(self, lease_id: str, ack: m.Ack) -> Iterator[Target]:
        """Yield where a lease of the group covers a message of that name."""
        lease = self._store.leases.get(lease_id)
        if lease is None or lease.group != ack.group:
            return
        whole = msgspec.structs.replace(ack, lease_id=lease_id)
        for state in lease.states:
            target = self._target(state, whole)
            if target is not None:
                yield target

    def _unfenced(self, ack: m.Ack) -> Iterator[Target]:
        """Yield where a message of that name may be acked without a lease id."""
        for partition in self._store.partitions.values():
            state = partition.groups.get(ack.group)
            if state is None or partition.queue.options.require_lease_id:
                continue
            target = self._target(state, ack)
            if target is not None:
                yield target

    def _nowhere(self, ack: m.Ack) -> Reason:
        """Return why an ack that names no partition means nothing."""
        owners = [
            partition.queue
            for partition in self._store.partitions.values()
            if self._known(partition, ack)
        ]
        if not owners:
            return NOT_FOUND
        if ack.lease_id is not None:
            return LOST
        required = any(queue.options.require_lease_id for queue in owners)
        return NO_LEASE if required else NOT_PROCESSED

    # ------------------------------------------------------------------ transactions

    def check_required(self, lease_ids: Sequence[str]) -> list[Lease]:
        """Return a transaction's required leases; LeaseLost where one holds nothing any more."""
        leases = []
        for lease_id in lease_ids:
            lease = self._store.leases.get(lease_id)
            if lease is None or not any(
                state.held(lease_id, self._now_us) for state in lease.states
            ):
                raise LeaseLost(LOST[1])
            leases.append(lease)
        return leases

    def adopt(self, ack: m.Ack, required: Sequence[Lease]) -> m.Ack:
        """Return an ack with the lease and group that it leaves to the transaction (C-15)."""
        if ack.lease_id is not None:
            lease = self._store.leases.get(ack.lease_id)
            if lease is None or ack.group != m.QUEUE_MODE:
                return ack
            return msgspec.structs.replace(ack, group=lease.group)
        covering: dict[Partition, m.Ack] = {}
        for lease in required:
            if ack.group not in (m.QUEUE_MODE, lease.group):
                continue
            whole = msgspec.structs.replace(ack, lease_id=lease.id, group=lease.group)
            for target in self._in_lease(lease.id, whole):
                where = target.state.partition
                if ack.partition_id in (None, where.id):
                    covering.setdefault(
                        where, msgspec.structs.replace(whole, partition_id=where.id)
                    )
        if len(covering) > 1:
            raise InvalidRequest(AMBIGUOUS[1], "partitionId")
        return next(iter(covering.values()), ack)


def _at(index: int, error: QueenError) -> QueenError:
    """Return an error with the number of the operation that it refuses.

    An error that its own frame named would hold that frame, and the leases in it, in a cycle.
    """
    error.index = index
    return error


def try_transaction(
    judge: Judge, store: Store, transaction: m.Transaction
) -> tuple[dict[int, Verdict], bool]:
    """Apply the acks and check the pushes; return verdicts by index, and whether all is old.

    The acks come first: what they settle makes room. Raises what refuses the whole.
    """
    required = judge.check_required(transaction.required_leases)
    verdicts: dict[int, Verdict] = {}
    pushes: dict[int, m.NewMessage] = {}
    for index, operation in enumerate(transaction.operations):
        if isinstance(operation, m.NewMessage):
            pushes[index] = operation
            continue
        try:
            verdict = judge.give(judge.adopt(operation, required))
            if verdict.reason is not None:
                raise verdict.error()
        except QueenError as error:
            error.index = index
            raise
        verdicts[index] = verdict
    new = count_new(store, list(pushes.values()))
    repeats = [index for index, verdict in verdicts.items() if judge.stood_before(verdict)]
    if repeats and new:
        raise _at(
            repeats[0],
            AlreadySettled(
                "the transaction has acks that were given before and pushes that are new"
            ),
        )
    try:
        check_pushes(store, list(pushes.values()), create=True)
    except QueueFull as error:
        error.index = next(i for i, item in pushes.items() if item.queue == error.queue)
        raise
    except NotSupported as error:
        error.index = next(i for i, item in pushes.items() if wants_key(store, item.queue))
        raise
    return verdicts, not new and len(repeats) == len(verdicts)
