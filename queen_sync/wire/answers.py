"""Bodies of answers to pushes, pops, acks and transactions, written from values of the model.

Answers carry the keys of every generation of clients: several spellings of one value are
meant. What is the same for all messages of a claim is written once and spliced in, and
payloads are copied as they are.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import msgspec

from queen_sync import model as m
from queen_sync.errors import MessageNotFound, QueenError
from queen_sync.wire.refusals import error_answer
from queen_sync.wire.requests import RefusedAck
from queen_sync.wire.texts import instant, instant_milliseconds, json_text

_json = msgspec.json.encode

# ----------------------------------------------------------------------------- push


def encode_receipts(receipts: Sequence[m.Receipt]) -> bytes:
    """Return the answer of a push, in the order of the request."""
    parts: list[str] = []
    known: tuple[str, str] | None = None
    names = partition_ids = ""
    for index, receipt in enumerate(receipts):
        # Most pushes go to one partition, and its names are written once.
        if known != (receipt.queue, receipt.partition_id):
            known = (receipt.queue, receipt.partition_id)
            queue = _string(receipt.queue)
            names = f'"queueName":{queue},"queue":{queue},"partition":{_string(receipt.partition)}'
            partition_id = _string(receipt.partition_id)
            partition_ids = f'"partition_id":{partition_id},"partitionId":{partition_id}'
        own = receipt.id
        name = f'"{own}"' if receipt.transaction_id == own else _string(receipt.transaction_id)
        trace = "null" if receipt.trace_id is None else f'"{receipt.trace_id}"'
        room = (
            ""
            if receipt.depth is None
            else f',"queueDepth":{receipt.depth},"remainingCapacity":{receipt.remaining or 0}'
        )
        parts.append(
            f'{{"index":{index},"status":"{receipt.status}",{names},"id":"{own}",'
            f'"message_id":"{own}","messageId":"{own}","transaction_id":{name},'
            f'"transactionId":{name},{partition_ids},"trace_id":{trace},"traceId":{trace}{room}}}'
        )
    return f"[{','.join(parts)}]".encode()


def encode_receipts_by_path(receipts: Sequence[m.Receipt]) -> bytes:
    """Return the answer of a push as older clients know it."""
    return _json(
        {
            "messages": [
                {
                    "id": receipt.id,
                    "transactionId": receipt.transaction_id,
                    "traceId": receipt.trace_id,
                    "status": receipt.status,
                }
                for receipt in receipts
            ]
        }
    )


def _string(text: str) -> str:
    return json_text(text).decode()


# ------------------------------------------------------------------------------ pop


def encode_claim(claim: m.Claim, named: Callable[[str], str] = str) -> bytes:
    """Return the answer of a pop that found something.

    ``named`` gives the name by which a queue is shown: a pop that named it by path is told it so.
    """
    first = claim.messages[0]
    lease_id = _string(claim.lease_id or "")
    group = _string(claim.group)
    expires = "null" if claim.expires_us is None else f'"{instant(claim.expires_us)}"'
    head = (
        f'{{"success":true,"queue":{_string(named(first.queue))},'
        f'"partition":{_string(first.partition)},"partitionId":{_string(first.partition_id)},'
        f'"leaseId":{lease_id},"leaseExpiresAt":{expires},"consumerGroup":{group},'
        f'"partitionsClaimed":{claim.partition_count},"messages":['
    )
    parts = [head.encode()]
    partition_id = shared = separator = created = ""
    created_us: int | None = None
    for message in claim.messages:
        if message.partition_id != partition_id:
            partition_id = message.partition_id
            shared = (
                f'"producerSub":null,"partitionId":{_string(partition_id)},'
                f'"partition":{_string(message.partition)},'
                f'"queue":{_string(named(message.queue))},'
                f'"leaseId":{lease_id},"consumerGroup":{group},"priority":{message.priority}'
            )
        if message.created_us != created_us:  # what was pushed together was created together
            created_us = message.created_us
            created = instant(created_us)
        own = message.id
        name = f'"{own}"' if message.transaction_id == own else _string(message.transaction_id)
        trace = "null" if message.trace_id is None else f'"{message.trace_id}"'
        error = "null" if message.error is None else _string(message.error)
        parts += (
            (
                f'{separator}{{"id":"{own}","transactionId":{name},"traceId":{trace},'
                f'"createdAt":"{created}",{shared},'
                f'"retryCount":{message.failure_count},"deliveryCount":{message.delivery_count},'
                f'"errorMessage":{error},"data":'
            ).encode(),
            message.payload,
            b',"payload":',
            message.payload,
            b"}",
        )
        separator = ","
    parts.append(b"]}")
    return b"".join(parts)


def path_in(namespace: str, queue: str) -> str:
    """Return a queue as a path of three parts where its name begins with the namespace."""
    if not queue.startswith(f"{namespace}.") or queue.count(".") < 2:
        return queue
    return queue.replace(".", "/", 2)


# ------------------------------------------------------------------ acks and leases


def _refused(answer: dict[str, Any], code: str, reason: str) -> dict[str, Any]:
    not_found = code == MessageNotFound.code
    return answer | {
        "success": False,
        "error": reason,
        "code": code,
        "leaseReleased": False,
        "dlq": False,
        "status": "not_found" if not_found else None,
    }


def _ack_answer(index: int, acked: m.Acked | RefusedAck, now_us: int) -> dict[str, Any]:
    answer: dict[str, Any] = {"index": index, "transactionId": acked.transaction_id}
    if isinstance(acked, RefusedAck):
        refused = _refused(answer, acked.error.code, acked.error.message)
        return refused | {"field": acked.error.field}
    answer |= {
        "queueName": acked.queue,
        "partitionName": acked.partition,
        "consumerGroup": None if acked.group == m.QUEUE_MODE else acked.group,
    }
    if acked.code is not None:
        return _refused(answer, acked.code, acked.reason or acked.code)
    now = instant_milliseconds(now_us)
    answer |= {
        "success": True,
        "error": None,
        "leaseReleased": acked.lease_released,
        "dlq": acked.dead_lettered,
        "status": acked.status,
        "completedAt": now if acked.status == "completed" else None,
        "acknowledgedAt": now,
    }
    if acked.already:
        answer["already"] = True
    elif acked.status == "failed":
        answer["retryScheduled"] = True
    return answer


def encode_ack(acked: m.Acked, now_us: int) -> bytes:
    """Return the answer of a single ack."""
    return _json(_ack_answer(0, acked, now_us))


def encode_acks(answers: Sequence[m.Acked | RefusedAck], now_us: int) -> bytes:
    """Return the answer of an ack batch, in the order of the request."""
    parts: list[str] = []
    like: m.Acked | None = None
    rest = ""
    for index, each in enumerate(answers):
        # Most acks of a batch have the same outcome in one partition, and it is written once.
        if isinstance(each, m.Acked):
            if like is None or not _alike(each, like):
                like = each
                rest = _rest(each, now_us)
            parts.append(f'{{"index":{index},"transactionId":{_string(each.transaction_id)}{rest}')
        else:
            parts.append(_json(_ack_answer(index, each, now_us)).decode())
    return f"[{','.join(parts)}]".encode()


def _alike(one: m.Acked, other: m.Acked) -> bool:
    """Whether two answers differ in nothing but the message."""
    return (
        one.status == other.status
        and one.already == other.already
        and one.code == other.code
        and one.reason == other.reason
        and one.queue == other.queue
        and one.partition == other.partition
        and one.group == other.group
        and one.lease_released == other.lease_released
    )


def _rest(acked: m.Acked, now_us: int) -> str:
    """Return an answer from the comma on that follows the message's name."""
    answer = _ack_answer(0, acked, now_us)
    del answer["index"], answer["transactionId"]
    return f",{_json(answer).decode()[1:]}"


def encode_extended(lease_id: str, expires_us: int) -> bytes:
    """Return the answer of an extend, with the new expiry under all its names."""
    expires = instant(expires_us)
    return _json(
        {
            "index": 0,
            "leaseId": lease_id,
            "success": True,
            "renewed": True,
            "error": None,
            "expiresAt": expires,
            "newExpiresAt": expires,
            "lease_expires_at": expires,
        }
    )


# --------------------------------------------------------------------- transactions


def encode_transacted(name: str, done: m.Transacted, now_us: int) -> bytes:
    """Return the answer of a transaction that happened, now or before."""
    answer: dict[str, Any] = {
        "transactionId": name,
        "success": True,
        "results": [
            _ack_answer(index, each, now_us) | {"type": "ack"}
            if isinstance(each, m.Acked)
            else _push_answer(index, each)
            for index, each in enumerate(done.results)
        ],
    }
    if done.repeated:
        answer["repeated"] = True
    return _json(answer)


def _push_answer(index: int, receipt: m.Receipt) -> dict[str, Any]:
    answer: dict[str, Any] = {
        "index": index,
        "type": "push",
        "success": True,
        "status": receipt.status,
        "transactionId": receipt.transaction_id,
        "messageId": receipt.id,
        "partitionId": receipt.partition_id,
        "queueName": receipt.queue,
        "partition": receipt.partition,
        "traceId": receipt.trace_id,
    }
    if receipt.duplicate:
        answer["duplicate"] = True
    if receipt.depth is not None:
        answer |= {"queueDepth": receipt.depth, "remainingCapacity": receipt.remaining or 0}
    return answer


def encode_transaction_refused(
    name: str, operations: Sequence[m.Ack | m.NewMessage], error: QueenError
) -> bytes:
    """Return the answer of a transaction of which nothing was done."""
    at = error.index
    of_ack = at is not None and isinstance(operations[at], m.Ack)
    text = f"ACK operation failed: {error.message}" if of_ack else error.message
    return _json(
        {"transactionId": name, "success": False, **error_answer(error, text), "results": []}
    )
