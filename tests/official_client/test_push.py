"""Pushes through the official client."""

from __future__ import annotations

import asyncio

import pytest


def test_a_message_is_queued(run, queue):
    async def case(queen):
        return await queen.queue(queue).push({"data": {"n": 1}})

    (receipt,) = run(case)
    assert receipt["status"] == "queued"


def test_a_transaction_id_comes_back(run, queue):
    async def case(queen):
        return await queen.queue(queue).push({"transactionId": "inv-1", "data": 1})

    (receipt,) = run(case)
    assert receipt["transactionId"] == receipt["transaction_id"] == "inv-1"


@pytest.mark.parametrize("partition", ["Default", "customer-7"])
def test_a_repeated_transaction_id_is_a_duplicate(run, queue, partition):
    """C-16: and its receipt carries the id of the first."""

    async def case(queen):
        item = {"transactionId": "inv-1", "data": 1}
        lane = queen.queue(queue).partition(partition)
        (first,) = await lane.push(item)
        (second,) = await lane.push(item)
        return first, second, await lane.batch(10).wait(False).pop()

    first, second, stored = run(case)
    assert (first["status"], second["status"]) == ("queued", "duplicate")
    assert second["message_id"] == first["message_id"]
    assert len(stored) == 1


def test_a_transaction_id_belongs_to_its_partition(run, queue):
    """C-16: the same id in another partition is another message."""

    async def case(queen):
        item = {"transactionId": "inv-1", "data": 1}
        (first,) = await queen.queue(queue).partition("a").push(item)
        (second,) = await queen.queue(queue).partition("b").push(item)
        return first["status"], second["status"]

    assert run(case) == ("queued", "queued")


def test_duplicates_reach_the_callback_made_for_them(run, queue):
    async def case(queen):
        told = []

        async def note(items, _error):
            told.extend(item["transactionId"] for item in items)

        item = {"transactionId": "inv-1", "data": 1}
        await queen.queue(queue).push(item)
        await queen.queue(queue).push([item, {"data": 2}]).on_duplicate(note)
        return told

    assert run(case) == ["inv-1"]


@pytest.mark.parametrize(
    "payload",
    [None, {}, [], "", 0, False, "grüße → 你好", {"nested": {"a": [1, 2.5, None, True]}}],
    ids=repr,
)
def test_any_payload_survives(run, queue, payload):
    """C-10."""

    async def case(queen):
        await queen.queue(queue).push({"data": payload})
        return await queen.queue(queue).wait(False).pop()

    (message,) = run(case)
    assert message["data"] == payload
    assert type(message["data"]) is type(payload)


def test_a_large_payload_survives(run, queue):
    """C-10: about a megabyte."""
    payload = [{"n": n, "text": "x" * 80} for n in range(10_000)]

    async def case(queen):
        await queen.queue(queue).push({"data": payload})
        return await queen.queue(queue).wait(False).pop()

    (message,) = run(case)
    assert message["data"] == payload


def test_buffered_messages_arrive_when_the_buffer_is_flushed(run, queue):
    async def case(queen):
        lane = queen.queue(queue)
        for n in range(5):
            await lane.buffer({"message_count": 100, "time_millis": 60_000}).push({"data": n})
        before = await queen.queue(queue).batch(10).wait(False).pop()
        await lane.flush_buffer()
        return before, await queen.queue(queue).batch(10).wait(False).pop()

    before, after = run(case)
    assert before == []
    assert [message["data"] for message in after] == [0, 1, 2, 3, 4]


def test_a_full_buffer_flushes_itself(run, queue):
    async def case(queen):
        for n in range(4):
            await (
                queen.queue(queue)
                .buffer({"message_count": 4, "time_millis": 60_000})
                .push({"data": n})
            )
        return await queen.queue(queue).batch(10).timeout_millis(5000).pop()

    assert [message["data"] for message in run(case)] == [0, 1, 2, 3]


def test_a_full_queue_refuses_with_a_text_that_says_so(run, queue):
    """C-06, PLD-9: never over the limit, and nothing of the refused push is stored."""

    async def case(queen):
        await queen.queue(queue).config({"max_size": 10}).create()
        refused = []
        for n in range(20):
            try:
                await queen.queue(queue).push({"data": n})
            except Exception as error:
                refused.append(str(error))
        return refused, await queen.queue(queue).batch(100).wait(False).pop()

    refused, stored = run(case)
    assert len(refused) == 10
    assert all("max capacity" in text for text in refused)
    assert [message["data"] for message in stored] == list(range(10))


def test_a_delayed_message_is_withheld_until_it_is_due(run, queue):
    """Option delayedProcessing: the waiting pop returns when the delay ends, not at its own end."""

    async def case(queen):
        await queen.queue(queue).config({"delayed_processing": 2}).create()
        await queen.queue(queue).push({"data": 1})
        at_once = await queen.queue(queue).wait(False).pop()
        loop = asyncio.get_running_loop()
        began = loop.time()
        due = await queen.queue(queue).timeout_millis(20_000).pop()
        return at_once, due, loop.time() - began

    at_once, due, waited = run(case)
    assert at_once == []
    assert [message["data"] for message in due] == [1]
    assert waited < 5


def test_a_window_buffer_delivers_once_the_pushes_pause(run, queue):
    """C-08."""

    async def case(queen):
        await queen.queue(queue).config({"window_buffer": 1}).create()
        for n in range(3):
            await queen.queue(queue).push({"data": n})
        at_once = await queen.queue(queue).batch(10).wait(False).pop()
        return at_once, await queen.queue(queue).batch(10).timeout_millis(10_000).pop()

    at_once, later = run(case)
    assert at_once == []
    assert [message["data"] for message in later] == [0, 1, 2]
