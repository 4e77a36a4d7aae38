"""Pops, acks and leases through the official client."""

from __future__ import annotations

import asyncio
import time


def test_an_empty_queue_gives_nothing(run, queue):
    async def case(queen):
        await queen.queue(queue).create()
        return await queen.queue(queue).wait(False).pop()

    assert run(case) == []


def test_a_message_is_popped_with_all_that_an_ack_needs(run, queue):
    async def case(queen):
        await queen.queue(queue).push({"transactionId": "inv-1", "data": {"n": 1}})
        return await queen.queue(queue).wait(False).pop()

    (message,) = run(case)
    assert message["transactionId"] == "inv-1"
    assert message["data"] == {"n": 1}
    assert message["partitionId"]
    assert message["leaseId"]
    assert message["partition"] == "Default"
    assert message["consumerGroup"] == "__QUEUE_MODE__"


def test_a_waiting_pop_is_woken_by_a_push(run, queue):
    """O-17: well before its own end."""

    async def case(queen):
        await queen.queue(queue).create()
        began = time.monotonic()
        waiting = asyncio.create_task(queen.queue(queue).timeout_millis(20_000).pop())
        await asyncio.sleep(1)
        await queen.queue(queue).push({"data": 1})
        return await waiting, time.monotonic() - began

    messages, seconds = run(case)
    assert [message["data"] for message in messages] == [1]
    assert 1 <= seconds < 4


def test_a_waiting_pop_ends_when_it_was_told_to(run, queue):
    """O-16: an empty answer in time, not a broken connection."""

    async def case(queen):
        await queen.queue(queue).create()
        began = time.monotonic()
        messages = await queen.queue(queue).timeout_millis(700).pop()
        return messages, time.monotonic() - began

    messages, seconds = run(case)
    assert messages == []
    assert 0.6 <= seconds < 2


def test_an_ack_succeeds_and_the_message_stays_away(run, queue):
    async def case(queen):
        await queen.queue(queue).push({"data": 1})
        (message,) = await queen.queue(queue).wait(False).pop()
        answer = await queen.ack(message)
        return answer, await queen.queue(queue).wait(False).pop()

    answer, left = run(case)
    assert answer["success"] is True
    assert answer["status"] == "completed"
    assert left == []


def test_a_nack_brings_the_message_back(run, queue):
    """C-02: at the head of its partition, before anything newer."""

    async def case(queen):
        await queen.queue(queue).push([{"data": 1}, {"data": 2}])
        (message,) = await queen.queue(queue).wait(False).pop()
        answer = await queen.ack(message, False, {"error": "not now"})
        return answer, await queen.queue(queue).batch(10).wait(False).pop()

    answer, again = run(case)
    assert answer["success"] is True
    assert [message["data"] for message in again] == [1, 2]
    assert [message["retryCount"] for message in again] == [1, 0]


def test_a_batch_of_acks_may_differ_item_by_item(run, queue):
    """C-04: each message has its own outcome; only the failed one returns."""

    async def case(queen):
        await queen.queue(queue).push([{"data": n} for n in range(3)])
        messages = await queen.queue(queue).batch(3).wait(False).pop()
        messages[1]["_status"] = False
        answer = await queen.ack(messages)
        return answer, await queen.queue(queue).batch(10).wait(False).pop()

    answer, again = run(case)
    assert answer["success"] is True
    assert [item["success"] for item in answer["results"]] == [True, True, True]
    assert [message["data"] for message in again] == [1]


def test_what_was_not_acked_returns_when_the_lease_runs_out(run, queue):
    """C-03, PLD-5: the acked one does not."""

    async def case(queen):
        await queen.queue(queue).config({"lease_time": 1}).create()
        await queen.queue(queue).push([{"data": 1}, {"data": 2}])
        first, second = await queen.queue(queue).batch(2).wait(False).pop()
        await queen.ack(first)
        leased = await queen.queue(queue).wait(False).pop()
        again = await queen.queue(queue).batch(2).timeout_millis(10_000).pop()
        late = await queen.ack(second)
        in_time = await queen.ack(again[0])
        return leased, again, late, in_time, await queen.queue(queue).wait(False).pop()

    leased, again, late, in_time, left = run(case)
    assert leased == []
    assert [message["data"] for message in again] == [2]
    assert late["success"] is False, "an ack under the lost lease must be refused (O-07)"
    assert in_time["success"] is True
    assert left == []


def test_a_lease_can_be_renewed(run, queue):
    """C-20: and the answer names the new expiry."""

    async def case(queen):
        await queen.queue(queue).config({"lease_time": 2}).create()
        await queen.queue(queue).push({"data": 1})
        (message,) = await queen.queue(queue).wait(False).pop()
        renewed = await queen.renew(message)
        await asyncio.sleep(2.5)
        return renewed, await queen.queue(queue).wait(False).pop(), await queen.ack(message)

    renewed, taken, answer = run(case)
    assert renewed["success"] is True
    assert renewed["newExpiresAt"]
    assert taken == []
    assert answer["success"] is True


def test_a_lost_lease_cannot_be_renewed(run, queue):
    """C-04: the client reports what it was answered."""

    async def case(queen):
        await queen.queue(queue).push({"data": 1})
        (message,) = await queen.queue(queue).wait(False).pop()
        await queen.ack(message)
        return await queen.renew(message)

    renewed = run(case)
    assert renewed["success"] is False
    assert "ease" in renewed["error"]


def test_one_pop_may_drain_several_partitions_under_one_lease(run, queue):
    """C-05: six messages over three partitions, one lease id, one batch of acks."""

    async def case(queen):
        for lane in ("a", "b", "c"):
            await queen.queue(queue).partition(lane).push([{"data": 1}, {"data": 2}])
        messages = await queen.queue(queue).batch(100).partitions(3).wait(False).pop()
        answer = await queen.ack(messages)
        return messages, answer, await queen.queue(queue).batch(100).wait(False).pop()

    messages, answer, left = run(case)
    assert len(messages) == 6
    assert len({message["leaseId"] for message in messages}) == 1
    assert {message["partition"] for message in messages} == {"a", "b", "c"}
    assert [item["success"] for item in answer["results"]] == [True] * 6
    assert left == []


def test_the_batch_caps_all_partitions_of_a_pop_together(run, queue):
    async def case(queen):
        for lane in ("a", "b", "c"):
            await queen.queue(queue).partition(lane).push([{"data": n} for n in range(10)])
        return await queen.queue(queue).batch(10).partitions(3).wait(False).pop()

    assert len(run(case)) == 10


def test_a_pop_takes_one_partition_unless_told_otherwise(run, queue):
    async def case(queen):
        for lane in ("a", "b", "c"):
            await queen.queue(queue).partition(lane).push([{"data": n} for n in range(5)])
        return await queen.queue(queue).batch(100).wait(False).pop()

    messages = run(case)
    assert len(messages) == 5
    assert len({message["partition"] for message in messages}) == 1


def test_names_with_blanks_and_umlauts_work(run, queue):
    """C-18: the client leaves the encoding of its paths to its HTTP library."""
    name = f"{queue} früh →"

    async def case(queen):
        await queen.queue(name).partition("größe 7").push({"data": 1})
        return await queen.queue(name).partition("größe 7").wait(False).pop()

    (message,) = run(case)
    assert message["partition"] == "größe 7"
