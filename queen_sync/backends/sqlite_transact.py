"""A transaction of acks and pushes: the acks first, since what they settle makes room (C-15)."""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

from queen_sync import ids, model as m
from queen_sync.backends.refusals import AMBIGUOUS
from queen_sync.backends.sqlite_acks import Judge, Verdict
from queen_sync.backends.sqlite_connections import Session
from queen_sync.backends.sqlite_lanes import Lane
from queen_sync.backends.sqlite_push import store, wants_key
from queen_sync.errors import AlreadySettled, InvalidRequest, NotSupported, QueenError, QueueFull


def transact(session: Session, transaction: m.Transaction) -> tuple[m.Transacted, set[str]]:
    """Apply a transaction; return its answers and the queues that may be popped.

    Whoever calls undoes what was done when this raises.
    """
    acks = [(i, each) for i, each in enumerate(transaction.operations) if isinstance(each, m.Ack)]
    pushes = [
        (i, each) for i, each in enumerate(transaction.operations) if isinstance(each, m.NewMessage)
    ]
    judge = Judge(session, [ack for _, ack in acks])
    required = [
        (lease, lane, group)
        for lease in transaction.required_leases
        for lane, group in judge.standing(lease)
    ]
    verdicts: dict[int, Verdict] = {}
    for index, ack in acks:
        try:
            verdict = judge.give(_adopt(judge, ack, required))
            if verdict.reason is not None:
                raise verdict.error()
        except QueenError as error:
            error.index = index
            raise
        verdicts[index] = verdict
    changed = judge.save()
    repeats = [index for index, verdict in verdicts.items() if judge.stood_before(verdict)]
    receipts, new = _push(session, pushes, repeats)
    changed |= new
    results: dict[int, m.Acked | m.Receipt] = {i: v.value() for i, v in verdicts.items()}
    results.update(zip((index for index, _ in pushes), receipts, strict=True))
    return (
        m.Transacted(
            results=[results[index] for index in sorted(results)],
            repeated=not new and len(repeats) == len(verdicts),
        ),
        changed,
    )


def _push(
    session: Session, pushes: Sequence[tuple[int, m.NewMessage]], repeats: Sequence[int]
) -> tuple[list[m.Receipt], set[str]]:
    """Store the pushes, unless some ack is a repeat and there is anything new to store."""
    try:
        receipts, new = store(session, [item for _, item in pushes])
    except QueueFull as error:
        if repeats:
            raise _repeated(repeats[0]) from error
        error.index = next(index for index, item in pushes if item.queue == error.queue)
        raise
    except NotSupported as error:
        error.index = next(index for index, item in pushes if wants_key(session, item.queue))
        raise
    if repeats and new:
        raise _repeated(repeats[0])
    return receipts, new


def _repeated(index: int) -> AlreadySettled:
    error = AlreadySettled(
        "the transaction has acks that were given before and pushes that are new"
    )
    error.index = index
    return error


def _adopt(judge: Judge, ack: m.Ack, required: Sequence[tuple[str, Lane, str]]) -> m.Ack:
    """Return an ack with the lease and group that it leaves to the transaction."""
    if ack.lease_id is not None:
        owner = judge.owner_of(ack.lease_id) if ack.group == m.QUEUE_MODE else None
        return ack if owner is None else msgspec.structs.replace(ack, group=owner)
    covering: dict[int, m.Ack] = {}
    for lease, lane, group in required:
        where = ids.partition_id(lane.place.partition)
        if (
            ack.group in (m.QUEUE_MODE, group)
            and ack.partition_id in (None, where)
            and judge.covers(lane, group, lease, ack.transaction_id)
        ):
            bound = msgspec.structs.replace(ack, lease_id=lease, group=group, partition_id=where)
            covering.setdefault(lane.place.partition, bound)
    if len(covering) > 1:
        raise InvalidRequest(AMBIGUOUS[1], "partitionId")
    return next(iter(covering.values()), ack)
