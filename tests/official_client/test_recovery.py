"""Pops over a namespace or task, seek and retry through the official client."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from uuid import uuid4

import pytest

from tests.serving import Server, started


@pytest.fixture(scope="module")
def server() -> Iterator[Server]:
    with started("--backend", "memory:") as running:
        yield running
        assert "Traceback" not in running.output, running.output


@pytest.fixture
def space() -> str:
    """A namespace that nobody else uses."""
    return f"space-{uuid4().hex[:8]}"


def values(messages):
    return [message["data"] for message in messages]


async def make(queen, queue, namespace, task, **options):
    await queen.queue(queue).namespace(namespace).task(task).config(options).create()


def test_a_pop_over_a_namespace_takes_the_higher_priority_first(run, queue, space):
    """C-17."""

    async def case(queen):
        await make(queen, f"{queue}-low", space, "send")
        await make(queen, f"{queue}-high", space, "print", priority=9)
        await queen.queue(f"{queue}-low").push([{"data": "low"}])
        await queen.queue(f"{queue}-high").push([{"data": "high"}])
        found = []
        for reader in (
            queen.queue().namespace(space),
            queen.queue().namespace(space).task("send"),
            queen.queue().task("nothing"),
        ):
            messages = await reader.wait(False).batch(9).pop()
            found.append(values(messages))
            for message in messages:
                assert (await queen.ack(message))["success"] is True
        return found

    assert run(case) == [["high"], ["low"], []]


def test_a_consumer_of_a_namespace_is_woken_by_any_of_its_queues(run, queue, space):
    """C-17, O-17."""

    async def case(queen):
        seen = []

        async def handle(message):
            seen.append(message["data"])

        reader = queen.queue().namespace(space).group("g").limit(2).each().batch(1)
        consuming = asyncio.ensure_future(reader.consume(handle))
        await asyncio.sleep(0.5)
        await make(queen, queue, space, "send")
        await queen.queue(queue).push([{"data": 1}])
        await make(queen, f"{queue}-2", space, "print")
        await queen.queue(f"{queue}-2").push([{"data": 2}])
        await consuming
        return seen

    assert sorted(run(case)) == [1, 2]


def test_a_group_is_moved_back_and_reads_again(run, queue):
    """C-20."""

    async def case(queen):
        await queen.queue(queue).push([{"data": n} for n in range(3)])
        reader = queen.queue(queue).group("g").wait(False).batch(9)
        for message in await reader.pop():
            await queen.ack(message, True, {"group": "g"})
        assert await reader.pop() == []
        moved = await queen.admin.seek_consumer_group(
            "g", queue, {"timestamp": "2020-01-01T00:00:00Z"}
        )
        again = await reader.pop()
        ended = await queen.admin.seek_consumer_group("g", queue, {"toEnd": True})
        return moved, values(again), ended, await reader.pop()

    moved, again, ended, after = run(case)
    assert (moved["success"], moved["partitionsUpdated"]) == (True, 1)
    assert again == [0, 1, 2]
    assert ended["seekToEnd"] is True
    assert after == []


def test_a_dead_letter_is_retried(run, queue):
    """C-12: the client sends no body."""

    async def case(queen):
        await queen.queue(queue).config({"retry_limit": 0}).create()
        await queen.queue(queue).push([{"data": "bad"}])
        reader = queen.queue(queue).wait(False)
        (message,) = await reader.pop()
        await queen.ack(message, False)
        retried = await queen.admin.retry_message(message["partitionId"], message["transactionId"])
        (again,) = await reader.pop()
        return retried, again, await queen.queue(queue).dlq().get()

    retried, again, dead = run(case)
    assert (retried["success"], retried["retried"]) == (True, True)
    assert (again["data"], again["retryCount"]) == ("bad", 0)
    assert dead["total"] == 0
