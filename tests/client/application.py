"""Short ways to use a backend."""

from __future__ import annotations

from queen_sync import model as m


def pop(queen, queue="invoices", **wanted):
    return queen.pop(m.PopRequest(queue=queue, **{"max_messages": 10, **wanted}))


def push(queen, *values, queue="invoices", **wanted):
    return queen.push([m.NewMessage.of(queue, value, **wanted) for value in values])


def acks_of(claim, outcome="completed", **more):
    return [
        m.Ack(
            transaction_id=message.transaction_id,
            partition_id=message.partition_id,
            lease_id=claim.lease_id,
            group=claim.group,
            outcome=outcome,
            **more,
        )
        for message in claim.messages
    ]
