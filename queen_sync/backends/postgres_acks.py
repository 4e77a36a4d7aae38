"""Acks into calls of ``queen.ack``, one for each lease they name, and its answers into `Acked`."""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Mapping, Sequence
from datetime import datetime
from typing import Any, NamedTuple

import msgspec

from queen_sync import ids, model as m
from queen_sync.backends.postgres_connections import Cursor, array_text
from queen_sync.backends.postgres_push import address_of
from queen_sync.backends.refusals import (
    AMBIGUOUS,
    LOST,
    NO_LEASE,
    NOT_FOUND,
    NOT_PROCESSED,
    Reason,
    error_of,
)

_ACK = (
    "select verdict, results, queue_name, partition_name, released, more, queue_id"
    " from queen.ack(%s, %s, %s::uuid, %b::text[], %t::int8[], %t::int8[], %b::text[],"
    " %b::text[], %s)"
)
_LOCK_LEASES = (
    "select queen.lock_leases(%s::uuid[], %b::int8[], %s::text[], %s::text[], %s::text[])"
)
_ACK_MANY = (
    "select verdict, results, queue_name, partition_name, released, more, queue_id"
    " from queen.ack_many(%b::int8[], %s::text[], %s::uuid[], %b::int8[]::int4[], %b::text[],"
    " %t::int8[], %t::int8[], %b::text[], %b::text[], %s, %s)"
)
_FIND = "select partition_id, covered, requires_lease from queen.find_acked(%s, %s::uuid, %s)"
_NOT_A_LEASE = "00000000-0000-0000-0000-000000000000"
_LETTER: Mapping[m.Outcome, str] = {"completed": "c", "failed": "f", "retry": "r", "dlq": "d"}
_STATUS: Mapping[str, m.Status] = {
    "c": "completed",
    "f": "failed",
    "r": "pending",
    "d": "dead_letter",
}
Work = dict[int, str]
"""Queues, by number and name, that have something to pop, now or sooner than was known."""


class _Lease(NamedTuple):
    """What one call of the function is about; the order is that in which rows are locked."""

    partition: int
    group: str
    lease: str


def lease_text(lease: str | None) -> str | None:
    """Return a lease id that the database can read; text that is none names no lease at all."""
    return lease if lease is None or ids.number(lease) is not None else _NOT_A_LEASE


def settle(
    cursor: Cursor,
    acks: Sequence[m.Ack],
    now: datetime | None,
    patience: str | None = None,
) -> tuple[list[m.Acked], Work]:
    """Judge the acks, each by itself, in one statement once their partitions are known."""
    answers: list[m.Acked | None] = [None] * len(acks)
    alike: dict[Hashable, list[int]] = {}
    for index, ack in enumerate(acks):
        place = (ack.partition_id, ack.group, ack.lease_id)
        alike.setdefault(index if ack.partition_id is None else place, []).append(index)
    calls: dict[_Lease, list[int]] = {}
    for indexes in alike.values():
        first = acks[indexes[0]]
        where = _partition(cursor, first)
        if isinstance(where, m.Acked):
            for index in indexes:
                answers[index] = msgspec.structs.replace(
                    where, transaction_id=acks[index].transaction_id
                )
        else:
            key = _Lease(where, first.group, lease_text(first.lease_id) or "")
            calls[key] = sorted(calls.get(key, []) + indexes)
    work: Work = {}
    ordered = sorted(calls.items())
    if len(ordered) == 1:
        _judge(cursor, acks, ordered[0], now, answers, work)
    elif ordered:
        _judge_many(cursor, acks, ordered, now, patience, answers, work)
    return [answer for answer in answers if answer is not None], work


def lock_leases(
    cursor: Cursor,
    leases: Iterable[str | None],
    partitions: Iterable[int | None],
    groups: Iterable[str],
    pushes: tuple[Sequence[str], Sequence[str]] = ((), ()),
) -> None:
    """Lock the lease rows of several leases, acks and pushes (queues, partitions) in one order."""
    queues, names = pushes
    cursor.execute(
        _LOCK_LEASES,
        [
            sorted(filter(None, leases)),
            sorted(filter(None, partitions)),
            sorted(groups),
            list(queues),
            list(names),
        ],
    )


class _Items(NamedTuple):
    """What is said of each message, as the functions want it; None where nobody says it."""

    names: list[str]
    seqs: str | None
    stamps: str | None
    outcomes: list[str] | None
    errors: list[str | None] | None


def _items(acks: Sequence[m.Ack], partitions: Sequence[int]) -> _Items:
    found = ids.addresses([ack.transaction_id for ack in acks])
    ours = [
        said if said and said.partition == partition else None
        for said, partition in zip(found, partitions, strict=True)
    ]
    errors = [ack.error for ack in acks]
    plain = all(ack.outcome == "completed" for ack in acks)
    return _Items(
        names=[ack.transaction_id for ack in acks],
        seqs=array_text(a and a.seq for a in ours) if any(ours) else None,
        stamps=array_text(a and a.stamp for a in ours) if any(ours) else None,
        outcomes=None if plain else [_LETTER[ack.outcome] for ack in acks],
        errors=errors if any(errors) else None,
    )


def _judge(
    cursor: Cursor,
    acks: Sequence[m.Ack],
    call: tuple[_Lease, list[int]],
    now: datetime | None,
    answers: list[m.Acked | None],
    work: Work,
) -> None:
    """Judge the acks of one lease."""
    key, indexes = call
    items = _items([acks[index] for index in indexes], [key.partition] * len(indexes))
    row = cursor.execute(
        _ACK, [key.partition, key.group, key.lease or None, *items, now]
    ).fetchone()
    assert row is not None
    _answer(acks, call, row, answers, work)


def _judge_many(
    cursor: Cursor,
    acks: Sequence[m.Ack],
    calls: Sequence[tuple[_Lease, list[int]]],
    now: datetime | None,
    patience: str | None,
    answers: list[m.Acked | None],
    work: Work,
) -> None:
    """Judge the acks of several leases, their rows locked in one order first."""
    chosen = [acks[index] for _, indexes in calls for index in indexes]
    items = _items(chosen, [key.partition for key, indexes in calls for _ in indexes])
    rows = cursor.execute(
        _ACK_MANY,
        [
            [key.partition for key, _ in calls],
            [key.group for key, _ in calls],
            [key.lease or None for key, _ in calls],
            [len(indexes) for _, indexes in calls],
            *items,
            patience,
            now,
        ],
    ).fetchall()
    for call, row in zip(calls, rows, strict=True):
        _answer(acks, call, row, answers, work)


def _answer(
    acks: Sequence[m.Ack],
    call: tuple[_Lease, list[int]],
    row: tuple[Any, ...],
    answers: list[m.Acked | None],
    work: Work,
) -> None:
    """Turn the answer about one lease into answers to its acks."""
    key, indexes = call
    _, results, queue, partition, released, more, queue_number = row
    if more:
        work[queue_number] = queue
    chosen = [acks[index] for index in indexes]
    for index, ack, letter in zip(indexes, chosen, results or "c" * len(chosen), strict=True):
        status = _STATUS.get(letter.lower()) if letter not in "nlq" else None
        if status is None:
            code, reason = _refusal(letter, unfenced=not key.lease)
            answers[index] = m.Acked(
                transaction_id=ack.transaction_id,
                code=code,
                reason=reason,
                queue=queue,
                partition=partition,
                group=ack.group,
            )
        else:
            answers[index] = m.Acked(
                transaction_id=ack.transaction_id,
                status=status,
                already=letter.isupper(),
                queue=queue,
                partition=partition,
                group=ack.group,
                lease_released=released,
            )


def _refusal(letter: str, *, unfenced: bool) -> Reason:
    if letter == "n":
        return NOT_FOUND
    if letter == "q":
        return NO_LEASE
    return NOT_PROCESSED if unfenced else LOST


def _partition(cursor: Cursor, ack: m.Ack) -> int | m.Acked:
    """Return the number of the partition that an ack is about, or why there is none."""
    if ack.partition_id is not None:
        number = ids.partition_number(ack.partition_id)
        return number if number is not None else _refused(ack, NOT_FOUND)
    said = address_of(ack.transaction_id)
    cursor.execute(_FIND, [ack.transaction_id, lease_text(ack.lease_id), ack.group])
    rows = cursor.fetchall()
    if not rows:
        if said is not None and said.partition:
            return said.partition
        return _refused(ack, NOT_FOUND)
    if ack.lease_id is not None:
        usable = [number for number, covered, _ in rows if covered]
        if not usable:
            return _refused(ack, LOST)
    else:
        usable = [number for number, covered, required in rows if covered and not required]
        if not usable and any(required for _, _, required in rows):
            return _refused(ack, NO_LEASE)
        if not usable:
            return _refused(ack, NOT_PROCESSED)
    if len(usable) > 1:
        return _refused(ack, AMBIGUOUS)
    return int(usable[0])


def _refused(ack: m.Ack, why: Reason) -> m.Acked:
    code, reason = why
    return m.Acked(transaction_id=ack.transaction_id, code=code, reason=reason, group=ack.group)


def raise_first_refusal(answers: Iterable[tuple[int, m.Acked]]) -> None:
    """Raise what the first refused ack of a transaction was refused with."""
    for index, answer in sorted(answers, key=lambda pair: pair[0]):
        if answer.code is not None:
            error = error_of(answer.code, answer.reason or answer.code)
            error.index = index
            raise error
