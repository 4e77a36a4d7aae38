"""Acks and pushes that happen together, through the official client."""

from __future__ import annotations

import asyncio

import pytest


async def popped(queen, queue, count=1):
    messages = await queen.queue(queue).batch(count).wait(False).pop()
    assert len(messages) == count
    return messages


async def left(queen, queue, **options):
    reader = queen.queue(queue).batch(2000).wait(False)
    if "group" in options:
        reader = reader.group(options["group"])
    return [message["data"] for message in await reader.pop()]


def test_a_message_moves_from_one_queue_to_another(run, queue):
    """C-15."""

    async def case(queen):
        await queen.queue(queue).push({"data": 1})
        (message,) = await popped(queen, queue)
        move = queen.transaction().ack(message).queue(f"{queue}-out").push({"data": 10})
        answer = await move.commit()
        return answer, await left(queen, queue), await left(queen, f"{queue}-out")

    answer, source, target = run(case)
    assert answer["success"] is True
    assert [result["type"] for result in answer["results"]] == ["ack", "push"]
    assert (source, target) == ([], [10])


def test_one_transaction_pushes_to_several_queues_and_partitions(run, queue):
    async def case(queen):
        await queen.queue(queue).push({"data": 0})
        (message,) = await popped(queen, queue)
        transaction = queen.transaction().ack(message)
        transaction.queue(f"{queue}-a").push({"data": 1})
        transaction.queue(f"{queue}-b").push([{"data": 2}, {"data": 3}])
        transaction.queue(f"{queue}-c").partition("lane").push({"data": 4})
        await transaction.commit()
        lane = await queen.queue(f"{queue}-c").partition("lane").wait(False).pop()
        return (
            await left(queen, queue),
            await left(queen, f"{queue}-a"),
            await left(queen, f"{queue}-b"),
            [message["data"] for message in lane],
        )

    assert run(case) == ([], [1], [2, 3], [4])


def test_one_transaction_acks_several_messages(run, queue):
    async def case(queen):
        await queen.queue(queue).push([{"data": n} for n in range(3)])
        messages = await popped(queen, queue, 3)
        await queen.transaction().ack(messages).queue(f"{queue}-out").push({"data": 9}).commit()
        return await left(queen, queue), await left(queen, f"{queue}-out")

    assert run(case) == ([], [9])


def test_a_consumer_may_commit_by_itself(run, queue):
    """The client's acks in a transaction name no lease: it is taken from requiredLeases."""

    async def case(queen):
        await queen.queue(queue).push([{"data": n} for n in range(3)])

        async def handle(message):
            out = queen.transaction().ack(message).queue(f"{queue}-out")
            await out.push({"data": message["data"] + 100}).commit()

        await queen.queue(queue).auto_ack(False).limit(3).each().consume(handle)
        return await left(queen, queue), await left(queen, f"{queue}-out")

    assert run(case) == ([], [100, 101, 102])


def test_stages_can_be_chained_by_transactions(run, queue):
    async def case(queen):
        await queen.queue(f"{queue}-1").push({"data": 1})
        for stage in (1, 2):
            (message,) = await popped(queen, f"{queue}-{stage}")
            out = queen.transaction().ack(message).queue(f"{queue}-{stage + 1}")
            await out.push({"data": message["data"] * 10}).commit()
        return [await left(queen, f"{queue}-{stage}") for stage in (1, 2, 3)]

    assert run(case) == [[], [], [100]]


@pytest.mark.parametrize("count", [5, 1000])
def test_one_transaction_may_push_many(run, queue, count):
    async def case(queen):
        await queen.queue(queue).push({"data": 0})
        (message,) = await popped(queen, queue)
        items = [{"data": n} for n in range(count)]
        await queen.transaction().ack(message).queue(f"{queue}-out").push(items).commit()
        return await left(queen, f"{queue}-out")

    assert run(case) == list(range(count))


def test_a_failed_ack_in_a_transaction_dead_letters_at_limit_0(run, queue):
    """C-15: an ordinary failed ack; with retryLimit 0 it is the last."""

    async def case(queen):
        await queen.queue(queue).config({"retry_limit": 0}).create()
        await queen.queue(queue).push({"data": 1})
        (message,) = await popped(queen, queue)
        out = queen.transaction().ack(message, "failed").queue(f"{queue}-out")
        await out.push({"data": "told"}).commit()
        dead = await queen.queue(queue).dlq().get()
        return await left(queen, queue), await left(queen, f"{queue}-out"), dead

    source, target, dead = run(case)
    assert (source, target) == ([], ["told"])
    assert [message["data"] for message in dead["messages"]] == [1]


def test_an_empty_transaction_is_refused_by_the_client(run):
    async def case(queen):
        with pytest.raises(Exception, match="no operations"):
            await queen.transaction().commit()

    run(case)


def test_an_unknown_message_undoes_the_whole_transaction(run, queue):
    """C-15: nothing pushed, the valid ack not applied, the message comes again."""

    async def case(queen):
        await queen.queue(queue).config({"lease_time": 1}).create()
        await queen.queue(queue).push({"data": 1})
        (message,) = await popped(queen, queue)
        unknown = {**message, "transactionId": "never-pushed", "leaseId": None}
        transaction = queen.transaction().ack(message).ack(unknown)
        transaction.queue(f"{queue}-out").push({"data": "must not appear"})
        with pytest.raises(Exception, match="not found"):
            await transaction.commit()
        again = await queen.queue(queue).timeout_millis(10_000).pop()
        return [each["data"] for each in again], await left(queen, f"{queue}-out")

    assert run(case) == ([1], [])


def test_a_lost_lease_undoes_the_whole_transaction(run, queue):
    """O-07, C-04: what another consumer may be working on is not settled behind its back."""

    async def case(queen):
        await queen.queue(queue).config({"lease_time": 1}).create()
        await queen.queue(queue).push({"data": 1})
        (message,) = await popped(queen, queue)
        await asyncio.sleep(1.2)
        out = queen.transaction().ack(message).queue(f"{queue}-out")
        with pytest.raises(Exception, match="lease"):
            await out.push({"data": "must not appear"}).commit()
        return await left(queen, f"{queue}-out")

    assert run(case) == []


@pytest.mark.parametrize("named", [True, False], ids=["named", "from the lease"])
def test_a_transaction_acks_for_the_group_that_popped(run, queue, named):
    """O-60: the group's own progress moves, whether or not the caller names it again."""

    async def case(queen):
        await queen.queue(queue).push([{"data": 1}, {"data": 2}])
        messages = await queen.queue(queue).group("billing").batch(2).wait(False).pop()
        context = {"consumer_group": "billing"} if named else None
        transaction = queen.transaction().ack(messages, "completed", context)
        await transaction.queue(f"{queue}-out").push({"data": 9}).commit()
        return (
            await left(queen, queue, group="billing"),
            await left(queen, queue, group="audit"),
            await left(queen, queue),
        )

    assert run(case) == ([], [1, 2], [1, 2])
