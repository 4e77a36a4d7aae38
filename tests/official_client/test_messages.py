"""Single messages, cleanup and traces through the official client's admin methods."""

from __future__ import annotations

import httpx
import pytest


async def push(queen, queue, *values, partition="Default"):
    """Push values one by one; return their receipts."""
    receipts = []
    for value in values:
        receipts += await queen.queue(queue).partition(partition).push([{"data": value}])
    return receipts


def place(receipt):
    return receipt["partition_id"], receipt["transaction_id"]


def test_messages_are_listed_by_page_and_by_status(run, queue):
    """QA-6: newest first; what the client passes on as parameters reaches the server."""

    async def case(queen):
        await push(queen, queue, *range(3), partition="p")
        await push(queen, queue, 3)
        (message,) = await queen.queue(queue).partition("p").wait(False).pop()
        await queen.ack(message)
        pages = [
            await queen.admin.list_messages(queue=queue),
            await queen.admin.list_messages(queue=queue, limit=2),
            await queen.admin.list_messages(queue=queue, limit=2, offset=2),
            await queen.admin.list_messages(queue=queue, partition="p", status="pending"),
            await queen.admin.list_messages(queue=queue, status="completed"),
        ]
        following = await queen.admin.list_messages(queue=queue, limit=2, cursor=pages[1]["cursor"])
        return message, pages, following

    message, pages, following = run(case)
    whole, first, second, pending, completed = [page["messages"] for page in pages]
    assert len(whole) == 4
    assert whole == first + second == first + following["messages"]
    assert [each["partition"] for each in pending] == ["p", "p"]
    assert [each["id"] for each in completed] == [message["id"]]
    assert pages[0]["mode"] == {"hasQueueMode": True, "busGroupsCount": 0, "type": "queue"}
    assert all("payload" not in each for each in whole)


def test_a_message_is_looked_up_and_deleted(run, queue):
    """C-16."""

    async def case(queen):
        (receipt,) = await push(queen, queue, {"n": 1})
        shown = await queen.admin.get_message(*place(receipt))
        deleted = await queen.admin.delete_message(*place(receipt))
        after = await queen.queue(queue).wait(False).pop()
        with pytest.raises(Exception, match="Message not found"):
            await queen.admin.get_message(*place(receipt))
        with pytest.raises(Exception, match="Message not found"):
            await queen.admin.delete_message(*place(receipt))
        return receipt, shown, deleted, after

    receipt, shown, deleted, after = run(case)
    assert (shown["id"], shown["payload"], shown["status"]) == (
        receipt["message_id"],
        {"n": 1},
        "pending",
    )
    assert shown["queue"] == queue
    assert deleted["success"] is True
    assert after == []


def test_a_message_goes_to_the_dead_letters_and_back(run, queue):
    """C-12: with fresh attempts."""

    async def case(queen):
        (receipt,) = await push(queen, queue, "x")
        await queen.queue(queue).partition("none").wait(False).pop()
        moved = await queen.admin.move_message_to_dlq(*place(receipt))
        dead = await queen.queue(queue).dlq().get()
        nothing = await queen.queue(queue).wait(False).pop()
        retried = await queen.admin.retry_message(*place(receipt))
        again = await queen.queue(queue).wait(False).pop()
        return receipt, moved, dead, nothing, retried, again

    receipt, moved, dead, nothing, retried, again = run(case)
    assert (moved["movedToDLQ"], retried["retried"]) == (True, True)
    assert [letter["id"] for letter in dead["messages"]] == [receipt["message_id"]]
    assert nothing == []
    assert [(message["data"], message["retryCount"]) for message in again] == [("x", 0)]


def test_a_failed_message_is_retried_at_once(run, queue):
    """C-02: its retry delay ends, its count stays."""

    async def case(queen):
        await queen.queue(queue).config({"retry_delay": 3_600_000}).create()
        (receipt,) = await push(queen, queue, "x")
        (message,) = await queen.queue(queue).wait(False).pop()
        await queen.ack(message, False, {"error": "why"})
        waiting = await queen.queue(queue).wait(False).pop()
        await queen.admin.retry_message(*place(receipt))
        return waiting, await queen.queue(queue).wait(False).pop()

    waiting, again = run(case)
    assert waiting == []
    assert [message["retryCount"] for message in again] == [1]


def test_a_queue_and_a_partition_are_cleared(run, queue):
    """INV-COUNTERS."""

    async def case(queen):
        await push(queen, queue, 1, 2, partition="p")
        await push(queen, queue, 3)
        return (
            await queen.admin.clear_queue(queue, "p"),
            await queen.admin.clear_queue(queue),
            await queen.queue(queue).wait(False).pop(),
        )

    partition, whole, after = run(case)
    assert (partition["cleared"], partition["count"], partition["partition"]) == (True, 2, "p")
    assert (whole["count"], whole["partition"], after) == (1, "all", [])


def test_a_consumer_files_notes_that_are_found_again(run, queue):
    """By message and by name; the consumer's own `trace` never raises."""
    names = [f"{queue} step/1", f"{queue} two"]

    async def case(queen):
        receipts = await push(queen, queue, {"n": 1})
        answers = []

        async def handle(message):
            config = {"data": {"at": 1}, "traceName": names, "eventType": "step"}
            answers.append(await message["trace"](config))
            answers.append(await message["trace"]({"data": "plain", "traceName": names[1]}))
            answers.append(await message["trace"]({"no": "data"}))

        await queen.queue(queue).group("g").limit(1).each().consume(handle)
        return (
            receipts[0],
            answers,
            await queen.admin.get_traces_for_message(*place(receipts[0])),
            await queen.admin.get_traces_by_name(names[1], limit=1, offset=1),
            await queen.admin.get_trace_names(limit=1000),
        )

    receipt, answers, of_message, of_name, listed = run(case)
    assert [answer["success"] for answer in answers] == [True, True, False]
    notes = of_message["traces"]
    assert [note["id"] for note in notes] == [answer["traceId"] for answer in answers[:2]]
    assert [(note["event_type"], note["data"], note["trace_names"]) for note in notes] == [
        ("step", {"at": 1}, names),
        ("info", "plain", names[1:]),
    ]
    assert {note["consumer_group"] for note in notes} == {"g"}
    assert of_name["total"] == 2
    (note,) = of_name["traces"]
    assert (note["id"], note["message_payload"]) == (notes[1]["id"], {"n": 1})
    assert (note["queue_name"], note["transaction_id"]) == (queue, receipt["transaction_id"])
    counts = {each["trace_name"]: each["trace_count"] for each in listed["trace_names"]}
    assert [counts[name] for name in names] == [1, 2]


def test_a_name_with_a_slash_works_where_the_path_is_quoted(server, run, queue):
    """C-18: on real gunicorn, which hands the raw target over; the client leaves slashes as is."""

    async def case(queen):
        item = {"data": 1, "transactionId": "a/b ü"}
        (receipt,) = await queen.queue(queue).push([item])
        return receipt

    receipt = run(case)
    with httpx.Client(base_url=server.url, trust_env=False) as client:
        path = f"/api/v1/messages/{receipt['partition_id']}/a%2Fb%20%C3%BC"
        assert client.get(path).json()["id"] == receipt["message_id"]
        assert client.get("/api/v1/messages/a%2Fb%20%C3%BC").status_code == 200
        assert client.delete(path).json()["deleted"] is True
        assert client.head(path).status_code == 404
