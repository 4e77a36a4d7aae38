"""Queues and consumer groups as the official client manages them."""

from __future__ import annotations

import httpx


def test_a_queue_is_created(run, queue):
    async def case(queen):
        return await queen.queue(queue).create()

    answer = run(case)
    assert answer["configured"] is True
    assert answer["queue"] == queue


def test_options_are_echoed_as_they_were_sent(run, queue):
    """C-11: the client's nine defaults and what was set over them."""

    async def case(queen):
        options = {"lease_time": 60, "retry_limit": 5, "max_size": 5000}
        return await queen.queue(queue).namespace("billing").task("send").config(options).create()

    answer = run(case)
    echoed = answer["options"]
    assert (echoed["leaseTime"], echoed["retryLimit"]) == (60, 5)
    assert (echoed["priority"], echoed["maxSize"]) == (0, 5000)
    assert (answer["namespace"], answer["task"]) == ("billing", "send")


def test_a_priority_is_echoed_where_it_has_an_effect(run, queue, server):
    """O-14: elsewhere it is refused by name, never stored for nothing."""
    features = httpx.get(f"{server.url}/api/v1/capabilities").json()["features"]

    async def case(queen):
        try:
            answer = await queen.queue(queue).config({"priority": 7}).create()
        except httpx.HTTPStatusError as error:
            return error.response.status_code, error.response.json()["field"]
        return answer["options"]["priority"]

    assert run(case) == (7 if "prio" in features else (400, "priority"))


def test_zero_stays_zero(run, queue):
    """A retry limit of 0 is not the default of 3."""

    async def case(queen):
        return await queen.queue(queue).config({"retry_limit": 0}).create()

    assert run(case)["options"]["retryLimit"] == 0


def test_an_unknown_option_is_refused_and_named(run, queue):
    """C-11, O-14: nothing is accepted that would have no effect."""

    async def case(queen):
        failed = []

        async def note(error):
            failed.append(str(error))

        await queen.queue(queue).config({"retries_limit": 5}).create().on_error(note)
        return failed

    (text,) = run(case)
    assert "retriesLimit" in text


def test_a_deleted_queue_is_gone_with_its_messages(run, queue):
    """C-16: and deleting it again is answered alike."""

    async def case(queen):
        await queen.queue(queue).push({"data": 1})
        first = await queen.queue(queue).delete()
        again = await queen.queue(queue).delete()
        return first, again, await queen.queue(queue).wait(False).pop()

    first, again, left = run(case)
    assert first["deleted"] is True
    assert again["deleted"] is True
    assert left == []


def test_a_deleted_group_reads_everything_again(run, queue):
    """C-07: its progress is forgotten, the stored messages are not."""

    async def case(queen):
        await queen.queue(queue).push([{"data": n} for n in range(10)])
        reader = queen.queue(queue).group("audit").batch(100).wait(False)
        first = await reader.pop()
        await queen.ack(first, True, {"group": "audit"})
        between = await reader.pop()
        deleted = await queen.delete_consumer_group("audit")
        return first, between, deleted, await reader.pop()

    first, between, deleted, second = run(case)
    assert [message["data"] for message in first] == list(range(10))
    assert between == []
    assert deleted["success"] is True
    assert [message["data"] for message in second] == list(range(10))


def test_the_start_of_a_group_can_be_moved(run, queue):
    """C-07: with its progress deleted and its start kept, it begins at the new time."""

    async def case(queen):
        await queen.queue(queue).push({"data": 1})
        reader = queen.queue(queue).group(f"{queue}-late").wait(False)
        at_first = await reader.subscription_mode("new").pop()
        updated = await queen.update_consumer_group_timestamp(
            f"{queue}-late", "2020-01-01T00:00:00Z"
        )
        await queen.delete_consumer_group(f"{queue}-late", delete_metadata=False)
        return at_first, updated, await reader.pop()

    at_first, updated, later = run(case)
    assert at_first == []
    assert updated["success"] is True
    assert [message["data"] for message in later] == [1]
