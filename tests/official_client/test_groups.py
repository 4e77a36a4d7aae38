"""Consumer groups and where they begin, through the official client."""

from __future__ import annotations

import asyncio
from datetime import UTC, datetime, timedelta

import pytest


def pop(queen, queue, group=None, **subscription):
    reader = queen.queue(queue).batch(100).wait(False)
    if group:
        reader = reader.group(group)
    if "mode" in subscription:
        reader = reader.subscription_mode(subscription["mode"])
    if "start" in subscription:
        reader = reader.subscription_from(subscription["start"])
    return reader.pop()


def data(messages):
    return [message["data"] for message in messages]


@pytest.mark.parametrize("partition", ["Default", "customer-7"])
def test_every_group_gets_every_message(run, queue, partition):
    """PLD-6."""

    async def case(queen):
        lane = queen.queue(queue).partition(partition)
        await lane.push([{"data": n} for n in range(10)])
        found = {}
        for group in ("billing", "audit", None):
            messages = await pop(queen, queue, group)
            await queen.ack(messages, True, {"group": group} if group else None)
            found[group] = (data(messages), data(await pop(queen, queue, group)))
        return found

    everything = (list(range(10)), [])
    assert run(case) == dict.fromkeys(("billing", "audit", None), everything)


@pytest.mark.parametrize(
    "subscription", [{"mode": "new"}, {"mode": "new-only"}, {"start": "now"}], ids=str
)
def test_a_new_group_skips_what_was_there(run, queue, subscription):
    """C-07: nothing old, everything pushed afterwards, in new partitions too."""

    async def case(queen):
        await queen.queue(queue).push([{"data": n} for n in range(5)])
        first = await pop(queen, queue, "late", **subscription)
        await queen.queue(queue).push([{"data": n} for n in range(5, 7)])
        await queen.queue(queue).partition("made later").push({"data": 7})
        later = []
        for _ in range(2):
            messages = await pop(queen, queue, "late", **subscription)
            await queen.ack(messages, True, {"group": "late"})
            later += data(messages)
        return data(first), sorted(later), data(await pop(queen, queue, "whole"))

    first, later, whole = run(case)
    assert first == []
    assert later == [5, 6, 7]
    assert whole == [0, 1, 2, 3, 4, 5, 6]


def test_a_group_may_begin_at_a_time(run, queue):
    """C-07: created at that instant or later."""

    async def case(queen):
        await queen.queue(queue).push({"data": "before"})
        await asyncio.sleep(0.2)
        (between,) = await queen.queue(queue).push({"data": "after"})
        (stored,) = [
            message
            for message in await pop(queen, queue, "whole")
            if message["id"] == between["message_id"]
        ]
        return data(await pop(queen, queue, "timed", start=stored["createdAt"]))

    assert run(case) == ["after"]


def test_a_group_may_begin_in_the_past(run, queue):
    async def case(queen):
        await queen.queue(queue).push([{"data": n} for n in range(3)])
        past = (datetime.now(UTC) - timedelta(hours=1)).isoformat().replace("+00:00", "Z")
        return data(await pop(queen, queue, "timed", start=past))

    assert run(case) == [0, 1, 2]


@pytest.mark.parametrize("subscription", [{"mode": "all"}, {}], ids=["all", "default"])
def test_a_group_begins_with_everything_unless_told_otherwise(run, queue, subscription):
    """C-07."""

    async def case(queen):
        await queen.queue(queue).push([{"data": n} for n in range(3)])
        return data(await pop(queen, queue, "whole", **subscription))

    assert run(case) == [0, 1, 2]


def test_a_group_begins_once(run, queue):
    """C-07: a later, different mode changes nothing."""

    async def case(queen):
        await queen.queue(queue).push([{"data": n} for n in range(3)])
        await pop(queen, queue, "late", mode="new")
        return data(await pop(queen, queue, "late", mode="all"))

    assert run(case) == []


def test_a_group_may_subscribe_before_its_queue_exists(run, queue):
    """C-07: what is pushed after that pop is delivered."""

    async def case(queen):
        first = await pop(queen, queue, "early", mode="new")
        await queen.queue(queue).push({"data": 1})
        return data(first), data(await pop(queen, queue, "early", mode="new"))

    assert run(case) == ([], [1])
