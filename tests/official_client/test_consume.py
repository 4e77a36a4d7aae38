"""The official client's consume loop."""

from __future__ import annotations

import asyncio

import pytest


def reader(queen, queue):
    """A consumer that stops soon after the last message."""
    return queen.queue(queue).timeout_millis(500).idle_millis(1000)


def collector():
    seen = []

    async def handle(messages):
        batch = messages if isinstance(messages, list) else [messages]
        seen.extend((message["partition"], message["data"]) for message in batch)

    return seen, handle


def test_the_handler_receives_the_message_and_it_is_acked(run, queue):
    async def case(queen):
        await queen.queue(queue).push({"data": {"n": 1}})
        seen, handle = collector()
        await queen.queue(queue).limit(1).each().consume(handle)
        return seen, await queen.queue(queue).wait(False).pop()

    seen, left = run(case)
    assert seen == [("Default", {"n": 1})]
    assert left == []


def test_two_partitions_are_consumed_whole(run, queue):
    """PLD-2: a consumer of one partition sees nothing of the other."""

    async def case(queen):
        found = {}
        for lane in ("a", "b"):
            await queen.queue(queue).partition(lane).push([{"data": n} for n in range(100)])
        for lane in ("a", "b"):
            seen, handle = collector()
            consumer = queen.queue(queue).partition(lane).batch(10).limit(100)
            await consumer.each().consume(handle)
            found[lane] = seen
        return found

    found = run(case)
    assert found == {lane: [(lane, n) for n in range(100)] for lane in ("a", "b")}


def test_a_batch_arrives_as_one_list(run, queue):
    async def case(queen):
        batches = []

        async def handle(messages):
            batches.append([message["data"] for message in messages])

        await queen.queue(queue).push([{"data": n} for n in range(3)])
        await queen.queue(queue).batch(3).limit(3).consume(handle)
        return batches

    assert run(case) == [[0, 1, 2]]


@pytest.mark.parametrize("batch", [1, 10])
def test_messages_come_in_order(run, queue, batch):
    """INV-ORDER."""

    async def case(queen):
        await queen.queue(queue).push([{"data": n} for n in range(100)])
        seen, handle = collector()
        await queen.queue(queue).batch(batch).limit(100).consume(handle)
        return seen

    assert [data for _, data in run(case)] == list(range(100))


@pytest.mark.parametrize("buffered", [False, True], ids=["pushed", "buffered"])
def test_concurrent_consumers_keep_the_order_of_each_partition(run, queue, buffered):
    """O-03, INV-ORDER: several workers, several lanes, each lane in its own order."""

    async def case(queen):
        for lane in ("a", "b", "c"):
            target = queen.queue(queue).partition(lane)
            if buffered:
                # A buffer that fills up is flushed in concurrent parts, in no order.
                options = {"message_count": 1000, "time_millis": 60_000}
                for n in range(50):
                    await target.buffer(options).push({"data": n})
            else:
                await target.push([{"data": n} for n in range(50)])
        await queen.flush_all_buffers()
        seen, handle = collector()
        await reader(queen, queue).concurrency(5).batch(7).consume(handle)
        return seen

    seen = run(case)
    assert len(seen) == 150
    for lane in ("a", "b", "c"):
        assert [data for where, data in seen if where == lane] == list(range(50))


def test_ten_thousand_messages_are_each_consumed_once(run, queue):
    """No loss, no duplicate, under concurrent consumers with large batches."""

    async def case(queen):
        for start in range(0, 10_000, 1000):
            lane = queen.queue(queue).partition(f"lane-{start // 1000}")
            await lane.push([{"data": n} for n in range(start, start + 1000)])
        seen, handle = collector()
        await reader(queen, queue).concurrency(5).batch(1000).consume(handle)
        return seen

    assert sorted(data for _, data in run(case)) == list(range(10_000))


def test_renewal_carries_a_slow_handler_past_its_lease(run, queue):
    """O-11: a 3 s handler on a 2 s lease, one delivery."""

    async def case(queen):
        await queen.queue(queue).config({"lease_time": 2}).create()
        await queen.queue(queue).push({"data": 1})
        deliveries = []
        rivals = []

        async def handle(message):
            deliveries.append(message["data"])
            rivals.append(asyncio.create_task(queen.queue(queue).timeout_millis(4000).pop()))
            await asyncio.sleep(3)

        await queen.queue(queue).renew_lease(True, 500).limit(1).each().consume(handle)
        return deliveries, await asyncio.gather(*rivals)

    assert run(case) == ([1], [[]])


def test_an_error_in_one_message_nacks_that_message_alone(run, queue):
    """O-59: earlier and later ones of the batch are done; the failing one comes again."""

    async def case(queen):
        await queen.queue(queue).push([{"data": n} for n in range(5)])
        attempts = []

        async def handle(message):
            attempts.append(message["data"])
            if message["data"] == 2 and attempts.count(2) == 1:
                raise RuntimeError("once")

        await reader(queen, queue).batch(5).each().consume(handle)
        return attempts

    assert run(case) == [0, 1, 2, 3, 4, 2]


def test_a_failing_batch_comes_back_whole_three_times(run, queue):
    """C-02: a hundred messages, the handler fails twice, the third attempt settles them."""

    async def case(queen):
        await queen.queue(queue).config({"retry_limit": 3}).create()
        await queen.queue(queue).push([{"data": n} for n in range(100)])
        attempts = []

        async def handle(messages):
            attempts.append([message["data"] for message in messages])
            if len(attempts) < 3:
                raise RuntimeError("not yet")

        await reader(queen, queue).batch(100).consume(handle)
        return attempts

    assert run(case) == [list(range(100))] * 3


def test_a_failing_group_does_not_touch_another(run, queue):
    """PLD-6: one group needs three attempts, the other one."""

    async def case(queen):
        await queen.queue(queue).config({"retry_limit": 3}).create()
        await queen.queue(queue).push([{"data": n} for n in range(100)])
        attempts = {"flaky": [], "steady": []}

        async def flaky(messages):
            attempts["flaky"].append(len(messages))
            if len(attempts["flaky"]) < 3:
                raise RuntimeError("not yet")

        async def steady(messages):
            attempts["steady"].append(len(messages))

        await reader(queen, queue).group("flaky").batch(100).consume(flaky)
        await reader(queen, queue).group("steady").batch(100).consume(steady)
        return attempts

    assert run(case) == {"flaky": [100, 100, 100], "steady": [100]}


def test_queues_can_be_chained(run, queue):
    """Each stage consumes, pushes on and acks; everything reaches the end."""

    async def case(queen):
        await queen.queue(f"{queue}-1").push([{"data": 1}, {"data": 2}])

        async def forward(message):
            await queen.queue(f"{queue}-2").push({"data": message["data"] * 10})

        seen, handle = collector()
        await queen.queue(f"{queue}-1").limit(2).each().consume(forward)
        await queen.queue(f"{queue}-2").limit(2).each().consume(handle)
        return seen

    assert [data for _, data in run(case)] == [10, 20]
