"""Encrypted queues as the official client uses them, with a key in the server's environment."""

from __future__ import annotations

import psycopg

SECRET = {"to": "somebody", "amount": 4711}
OPTIONS = {
    "leaseTime": 600,
    "retryLimit": 5,
    "retryDelay": 2000,
    "maxSize": 20_000,
    "ttl": 7200,
    "deadLetterQueue": True,
    "dlqAfterMaxRetries": True,
    "priority": 7,
    "delayedProcessing": 3,
    "windowBuffer": 4,
    "retentionSeconds": 400_000,
    "completedRetentionSeconds": 50_000,
    "retentionEnabled": True,
    "encryptionEnabled": True,
    "maxWaitTimeSeconds": 3_000,
}


def test_all_options_are_echoed_as_they_were_sent(run, queue):
    """configureQueue: fifteen of them, encryption among them."""

    async def case(queen):
        return await queen.queue(queue).config(OPTIONS).create()

    echoed = run(case)["options"]
    assert {name: echoed[name] for name in OPTIONS} == OPTIONS


def test_an_encrypted_payload_is_pushed_and_popped(run, queue, served_dsn):
    """push_encrypted_payload: the consumer sees what was pushed, the table does not."""

    async def case(queen):
        await queen.queue(queue).config({"encryptionEnabled": True}).create()
        await queen.queue(queue).push([{"data": SECRET}])
        return await queen.queue(queue).batch(1).wait(False).pop()

    (message,) = run(case)
    assert message["data"] == SECRET
    with psycopg.connect(served_dsn) as session:
        stored = session.execute(
            "select m.payload::text, m.encryption_key_id from queen.messages m"
            " join queen.partitions p on p.id = m.partition_id"
            " join queen.queues q on q.id = p.queue_id where q.name = %s",
            [queue],
        ).fetchall()
    assert len(stored) == 1
    assert "somebody" not in stored[0][0]
    assert stored[0][1]
