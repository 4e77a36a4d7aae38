"""Dead letters through the official client."""

from __future__ import annotations


async def fail(queen, queue, times, group=None, error="the printer is on fire"):
    """Pop and nack one message so many times; return the retry counts seen."""
    seen = []
    context = {"error": error} | ({"group": group} if group else {})
    for _ in range(times):
        reader = queen.queue(queue).wait(False)
        (message,) = await (reader.group(group) if group else reader).pop()
        seen.append(message["retryCount"])
        await queen.ack(message, False, context)
    return seen


def test_after_its_last_retry_a_message_is_a_dead_letter(run, queue):
    """C-02: retryLimit 2 makes three attempts; the list shows the payload and the reason."""

    async def case(queen):
        options = {"retry_limit": 2, "dlq_after_max_retries": True}
        await queen.queue(queue).config(options).create()
        (receipt,) = await queen.queue(queue).push({"data": {"n": 1}})
        counts = await fail(queen, queue, 3)
        after = await queen.queue(queue).wait(False).pop()
        return receipt, counts, after, await queen.queue(queue).dlq().get()

    receipt, counts, after, dead = run(case)
    assert counts == [0, 1, 2]
    assert after == []
    assert dead["total"] == 1
    (letter,) = dead["messages"]
    assert letter["id"] == receipt["message_id"]
    assert letter["data"] == {"n": 1}
    assert "the printer is on fire" in letter["errorMessage"]


def test_dead_lettering_needs_no_flag_and_lets_the_next_one_flow(run, queue):
    """C-02: the two flags have no effect."""

    async def case(queen):
        await queen.queue(queue).config({"retry_limit": 0}).create()
        await queen.queue(queue).push([{"data": 1}, {"data": 2}])
        await fail(queen, queue, 1)
        return await queen.queue(queue).wait(False).pop()

    assert [message["data"] for message in run(case)] == [2]


def test_dead_letters_are_listed_by_group_and_page(run, queue):
    async def case(queen):
        await queen.queue(queue).config({"retry_limit": 0}).create()
        await queen.queue(queue).push([{"data": n} for n in range(3)])
        await fail(queen, queue, 3, group="billing")
        await fail(queen, queue, 1, group="audit")
        return (
            await queen.queue(queue).dlq("billing").get(),
            await queen.queue(queue).dlq("audit").get(),
            await queen.queue(queue).dlq("billing").limit(1).offset(1).get(),
            await queen.queue(queue).dlq("nobody").get(),
        )

    billing, audit, page, nobody = run(case)
    assert [letter["data"] for letter in billing["messages"]] == [2, 1, 0]
    assert [letter["data"] for letter in audit["messages"]] == [0]
    assert [letter["data"] for letter in page["messages"]] == [1]
    assert page["total"] == 3
    assert (nobody["messages"], nobody["total"]) == ([], 0)


def test_a_queue_without_failures_has_no_dead_letters(run, queue):
    async def case(queen):
        await queen.queue(queue).push({"data": 1})
        return await queen.queue(queue).dlq().get()

    dead = run(case)
    assert (dead["messages"], dead["total"]) == ([], 0)
