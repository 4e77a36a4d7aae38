"""Histories written by hand: each call says when it began, when it ended, and what came of it."""

import math

from queen_sync import model as m
from queen_sync.conformance.facts import Facts
from queen_sync.conformance.history import Operation
from queen_sync.errors import LeaseLost, QueueFull
from queen_sync.payloads import JsonText

QUEUE = "q"
PARTITION = "P"


def message_id(seq):
    return f"id-{seq}"


def payload(name):
    return JsonText.of(name)


def operation(name, start, end, *arguments, answer=None, error=None, outcome=None, **options):
    if outcome is None:
        outcome = "fail" if error else "info" if math.isinf(end) else "ok"
    return Operation(
        process=0,
        name=name,
        arguments=arguments,
        options=options,
        invoked=start,
        returned=end,
        outcome=outcome,
        answer=answer,
        error=error,
    )


def configured(**options):
    return operation("configure", -1.0, -0.9, QUEUE, options)


def item(name, partition=PARTITION, queue=QUEUE):
    return m.NewMessage(
        queue=queue, payload=payload(name), partition=partition, transaction_id=name
    )


def receipt(name, seq, *, duplicate=False, identity=None, queue=QUEUE, partition=PARTITION):
    return m.Receipt(
        status="duplicate" if duplicate else "queued",
        id=identity or message_id(seq),
        transaction_id=name,
        queue=queue,
        partition=partition,
        partition_id=f"{queue}/{partition}",
        seq=seq,
    )


def pushed(start, end, **seqs):
    """A push of messages by name, each with the seq that it was given."""
    items = [item(name) for name in seqs]
    return operation("push", start, end, items, answer=[receipt(n, s) for n, s in seqs.items()])


def repeated(start, end, name, seq, **changes):
    answer = [receipt(name, seq, duplicate=True, **changes)]
    return operation("push", start, end, [item(name)], answer=answer)


def unanswered_push(start, *names):
    return operation("push", start, math.inf, [item(name) for name in names])


def refused_push(start, end, *names, error):
    return operation("push", start, end, [item(name) for name in names], error=error)


def full(limit):
    return QueueFull(QUEUE, limit, limit, 1)


def message(name, seq, count=1, identity=None, text=None):
    return m.Message(
        id=identity or message_id(seq),
        transaction_id=name,
        queue=QUEUE,
        partition=PARTITION,
        partition_id=f"{QUEUE}/{PARTITION}",
        seq=seq,
        payload=payload(name if text is None else text),
        created_us=0,
        delivery_count=count,
    )


def popped(start, end, lease, *messages, group="g", auto_ack=False, mode=None):
    subscription = mode and m.Subscription(mode=mode)
    request = m.PopRequest(queue=QUEUE, group=group, auto_ack=auto_ack, subscription=subscription)
    claim = m.Claim(messages=messages, lease_id=lease, group=group, partition_count=1)
    return operation("pop", start, end, request, answer=claim)


def acked(start, end, lease, name, status="completed", *, group="g", already=False, refused=False):
    outcome = {"dead_letter": "dlq", "pending": "retry"}.get(status, status)
    ack = m.Ack(
        transaction_id=name,
        outcome=outcome,
        partition_id=f"{QUEUE}/{PARTITION}",
        group=group,
        lease_id=lease,
    )
    answer = m.Acked(
        transaction_id=name,
        status=None if refused else status,
        already=already,
        code=LeaseLost.code if refused else None,
    )
    if math.isinf(end):
        return operation("ack", start, end, [ack])
    return operation("ack", start, end, [ack], answer=[answer])


def extended(start, end, lease, seconds):
    return operation("extend", start, end, lease, seconds, answer=0)


def released(start, end, lease):
    return operation("release", start, end, lease)


def listed(start, end, *letters):
    items = [
        m.DeadLetter(
            id=message_id(seq),
            transaction_id=name,
            queue=QUEUE,
            partition=PARTITION,
            partition_id=f"{QUEUE}/{PARTITION}",
            seq=seq,
            group="g",
            payload=payload(name),
            created_us=0,
            failed_us=0,
        )
        for name, seq in letters
    ]
    page = m.DeadLetters(items=items, total=len(items))
    return operation("dead_letters", start, end, m.DeadLetterFilter(queue=QUEUE), answer=page)


def unanswered_transaction(start, *items):
    return operation("transact", start, math.inf, m.Transaction(operations=items))


def lost():
    return LeaseLost("Invalid or expired lease")


def refused_transaction(start, end, *items):
    return operation("transact", start, end, m.Transaction(operations=items), error=lost())


def facts(*operations):
    return Facts([configured(lease_seconds=10, retry_limit=2), *operations])
