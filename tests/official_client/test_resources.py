"""The official client's administrator looks at queues, partitions and consumer groups."""

from __future__ import annotations

import httpx
import pytest

MISSING = "nobody-has-this-name"


async def fill(queen, queue):
    """Push three messages to a partition with a namespace, and complete one for a group."""
    await queen.queue(queue).namespace(f"{queue}-ns").task(f"{queue}-task").create()
    await queen.queue(queue).partition("lane").push([{"data": n} for n in range(3)])
    messages = await queen.queue(queue).group(f"{queue}-group").batch(2).wait(False).pop()
    await queen.ack(messages[0], True, {"group": f"{queue}-group"})


def test_queues_are_listed_and_shown(run, queue):
    """PL-9, INV-COUNTERS."""

    async def case(queen):
        await fill(queen, queue)
        listed = await queen.admin.list_queues(search=queue, limit=10)
        return listed, await queen.admin.get_queue(queue)

    listed, shown = run(case)
    (row,) = listed["queues"]
    assert (row["name"], row["partitions"]) == (queue, 2)
    assert (row["messages"]["total"], row["messages"]["pending"]) == (3, 1)
    assert shown["totals"]["processing"] == 1
    assert [partition["name"] for partition in shown["partitions"]] == ["Default", "lane"]


def test_partitions_namespaces_and_tasks_are_listed(run, queue):
    """PL-1, PL-9."""

    async def case(queen):
        await fill(queen, queue)
        partitions = await queen.admin.get_partitions(queue=queue, minDepth=1)
        return partitions, await queen.admin.get_namespaces(), await queen.admin.get_tasks()

    partitions, namespaces, tasks = run(case)
    assert [(p["name"], p["depth"]) for p in partitions["partitions"]] == [("lane", 2)]
    assert f"{queue}-ns" in {each["namespace"] for each in namespaces["namespaces"]}
    assert f"{queue}-task" in {each["task"] for each in tasks["tasks"]}


def test_the_overview_and_the_status_page_are_read(run, queue):
    """PL-9: what the client has just done is counted."""

    async def case(queen):
        await fill(queen, queue)
        await queen.admin.refresh_consumer_stats()
        overview = await queen.admin.get_overview()
        return overview, await queen.admin.get_status(queue=queue)

    overview, status = run(case)
    assert overview["queues"] >= 1
    assert overview["messages"]["total"] >= 3
    assert status["messages"]["total"] == 3
    assert status["leases"]["active"] == 1


def test_the_status_of_queues_is_read(run, queue):
    """PL-9."""

    async def case(queen):
        await fill(queen, queue)
        listed = await queen.admin.get_queue_stats(namespace=f"{queue}-ns")
        detail = await queen.admin.get_queue_detail(queue, includePartitions=True)
        return listed, detail, await queen.admin.get_analytics(interval="minute")

    listed, detail, series = run(case)
    assert [row["name"] for row in listed["queues"]] == [queue]
    assert detail["queue"]["config"]["retryLimit"] == 3
    assert detail["totals"]["messages"]["total"] == detail["totals"]["total"] == 3
    assert series["interval"] == "minute"


def test_consumer_groups_are_listed_and_shown(run, queue):
    """QB-5."""

    async def case(queen):
        await fill(queen, queue)
        refreshed = await queen.admin.refresh_consumer_stats()
        listed = await queen.admin.list_consumer_groups()
        shown = await queen.admin.get_consumer_group(f"{queue}-group")
        return refreshed, listed, shown, await queen.admin.get_lagging_consumers(0)

    refreshed, listed, shown, lagging = run(case)
    assert refreshed["success"] is True
    (row,) = [row for row in listed if row["name"] == f"{queue}-group"]
    assert (row["queueName"], row["totalLag"], row["state"]) == (queue, 2, "Stable")
    lanes = {lane["partition"]: lane for lane in shown[queue]["partitions"]}
    assert (lanes["lane"]["offsetLag"], lanes["lane"]["leaseActive"]) == (2, True)
    assert f"{queue}-group" in {row["consumer_group"] for row in lagging}


def test_a_group_is_sought_and_deleted_for_one_queue(run, queue):
    """QB-5, C-20."""

    async def case(queen):
        await fill(queen, queue)
        group = f"{queue}-group"
        sought = await queen.admin.seek_consumer_group(group, queue, {"toEnd": True})
        after = await queen.admin.get_consumer_group(group)
        deleted = await queen.admin.delete_consumer_group_for_queue(group, queue)
        left = [row["name"] for row in await queen.admin.list_consumer_groups()]
        return sought, after, deleted, left

    sought, after, deleted, left = run(case)
    assert (sought["success"], sought["partitionsUpdated"]) == (True, 2)
    assert {lane["offsetLag"] for lane in after[queue]["partitions"]} == {0}
    assert (deleted["success"], deleted["queueName"]) == (True, queue)
    assert f"{queue}-group" not in left


@pytest.mark.parametrize("look", ["get_queue", "get_queue_detail", "get_consumer_group"])
def test_what_is_missing_is_an_error_that_is_not_tried_again(run, look):
    async def case(queen):
        try:
            await getattr(queen.admin, look)(MISSING)
        except httpx.HTTPStatusError as error:
            return error.response.status_code
        return None

    assert run(case) == 404
