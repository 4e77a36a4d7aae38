"""Answers of servers of an earlier generation: fewer keys, no codes, other ids."""

from __future__ import annotations

import json

import pytest

from queen_sync import errors, model as m
from queen_sync.client import RemoteBackend

ACKS = [
    m.Ack(transaction_id=f"inv-{outcome}", partition_id="p", lease_id="l", outcome=outcome)
    for outcome in m.OUTCOMES
]


@pytest.fixture
def answered(scripted, scripts):
    """A client of a server that gives one answer, whatever it is asked."""
    clients = []

    def start(body, status="200 OK"):
        text = json.dumps(body).encode() if body is not None else b""
        # Without the route, a server of that age answers 404 and a page.
        no_route = scripts["answer"]("404 Not Found", b"<html/>", "text/html")
        plain = scripts["answer"](status, text)

        def play(connection, request):
            (no_route if b"/capabilities " in request else plain)(connection, request)

        clients.append(RemoteBackend(scripted(play).url))
        return clients[-1]

    yield start
    for client in clients:
        client.close()


def test_a_receipt_may_lack_what_is_not_known(answered):
    """A duplicate there names no partition."""
    queen = answered(
        [
            {"index": 1, "status": "duplicate", "transaction_id": "b", "message_id": "0192-b"},
            {"index": 0, "status": "queued", "message_id": "0192-a", "partition_id": "p"},
        ]
    )
    first, second = queen.push(
        [m.NewMessage.of("q", 1), m.NewMessage.of("q", 2, transaction_id="b")]
    )
    assert (first.id, first.transaction_id, first.partition_id) == ("0192-a", "0192-a", "p")
    assert (second.id, second.duplicate, second.partition_id) == ("0192-b", True, "")
    assert (first.seq, second.seq) == (0, 0)


@pytest.mark.parametrize(
    "body",
    [
        {"success": False, "error": "no_available_partition", "messages": []},
        {"success": True, "messages": [], "leaseId": "l", "partitionId": None},
        {"messages": [None]},
        None,
    ],
    ids=["refused", "delayed", "nulls", "no body"],
)
def test_an_empty_claim_has_many_spellings(answered, body):
    claim = answered(body).pop(m.PopRequest(queue="q", group="billing"))
    assert not claim
    assert (claim.lease_id, claim.group) == (None, "billing")


def test_a_message_may_lack_its_queue_and_counts(answered):
    message = {"id": "0192", "transactionId": "t", "partitionId": "p", "data": None}
    claim = answered({"leaseId": "l", "messages": [message, {**message, "retryCount": 2}]}).pop(
        m.PopRequest(queue="q")
    )
    first, second = claim.messages
    assert (first.queue, first.partition, first.payload) == ("q", "Default", b"null")
    assert (first.delivery_count, first.failure_count) == (1, 0)
    assert (second.delivery_count, second.failure_count) == (3, 2)
    assert claim.partition_count == 1


def test_an_accepted_ack_without_a_status_became_what_was_asked(answered):
    body = [{"transactionId": ack.transaction_id, "success": True, "error": None} for ack in ACKS]
    body[1]["dlq"] = True
    answers = answered(body).ack(ACKS)
    assert [answer.status for answer in answers] == [
        "completed",
        "dead_letter",
        "pending",
        "dead_letter",
    ]
    assert all(answer.ok for answer in answers)


@pytest.mark.parametrize(
    ("text", "code"),
    [
        ("Message not found", "MESSAGE_NOT_FOUND"),
        ("Invalid or expired lease", "LEASE_LOST"),
        ("leaseId is required", "LEASE_REQUIRED"),
        ("Message is not being processed", "LEASE_LOST"),
        (None, "LEASE_LOST"),
    ],
)
def test_a_refusal_without_a_code_is_told_from_its_text(answered, text, code):
    (answer,) = answered([{"success": False, "error": text}]).ack(ACKS[:1])
    assert (answer.code, answer.status, answer.reason) == (code, None, text)


def test_an_answer_for_another_number_of_acks_is_no_answer(answered):
    with pytest.raises(errors.OutcomeUnknown):
        answered([{"success": True}]).ack(ACKS)


def test_an_extend_may_be_answered_by_a_list(answered):
    expires = {"success": True, "error": None, "expiresAt": "2026-03-01T10:00:00.250Z"}
    assert answered([expires]).extend("l", 5) % 1_000_000 == 250_000
    with pytest.raises(errors.LeaseLost, match="already expired"):
        answered([{"success": False, "error": "Lease already expired"}]).extend("l", 5)


@pytest.mark.parametrize(
    ("text", "kind"),
    [
        ("ACK operation failed: Message not found", errors.MessageNotFound),
        ("ACK operation failed: Invalid or expired lease", errors.LeaseLost),
        ("Queue 'q' would exceed max capacity (5). Current: 4, Batch: 2", errors.QueueFull),
        ("something else", errors.Conflict),
    ],
)
def test_a_failed_transaction_without_a_code_is_told_from_its_text(answered, text, kind):
    queen = answered({"transactionId": "x", "success": False, "error": text, "results": []})
    with pytest.raises(errors.QueenError) as raised:
        queen.transact(m.Transaction(operations=ACKS[:1]))
    assert type(raised.value) is kind


def test_a_full_queue_without_figures_is_read_from_its_text(answered):
    sent = errors.QueueFull("it's full", 5, 4, 2)
    queen = answered({"error": sent.message, "code": "QUEUE_FULL"}, "429 Too Many Requests")
    with pytest.raises(errors.QueueFull) as raised:
        queen.push([m.NewMessage.of("it's full", 1)])
    error = raised.value
    assert (error.queue, error.max_queue_size) == ("it's full", 5)
    assert (error.depth, error.pushed, error.message) == (4, 2, sent.message)


def test_a_transaction_that_succeeded_may_lack_names(answered):
    results = [
        {"index": 0, "type": "ack", "success": True, "transactionId": "inv-completed"},
        {"index": 1, "type": "push", "success": True, "transactionId": "r", "messageId": "0192"},
    ]
    queen = answered({"success": True, "results": results})
    done = queen.transact(m.Transaction(operations=[ACKS[0], m.NewMessage.of("receipts", 1)]))
    assert done.results[0].status == "completed"
    assert (done.results[1].id, done.results[1].queue) == ("0192", "receipts")


def test_a_configured_queue_keeps_the_options_that_are_known(answered):
    body = {
        "configured": True,
        "queue": "q",
        "namespace": None,
        "options": {"leaseTime": 7, "somethingElse": 5},
    }
    done = answered(body, "201 Created").configure("q", {"lease_seconds": 7})
    assert done.queue.options == m.QueueOptions(lease_seconds=7)
    assert (done.created, done.changes, done.queue.namespace) == (False, {}, "")


def test_dead_letters_may_lack_their_total(answered):
    letter = {
        "id": "0192",
        "transactionId": "t",
        "partitionId": "p",
        "queue": "q",
        "partition": "lane",
        "consumerGroup": "billing",
        "errorMessage": "no",
        "retryCount": 3,
        "data": {"n": 1},
        "createdAt": "2026-03-01T10:00:00.123456Z",
        "failedAt": "2026-03-01T10:00:01.000Z",
    }
    page = answered({"messages": [letter], "pagination": {}}).dead_letters(m.DeadLetterFilter())
    (item,) = page.items
    assert page.total == 1
    assert (item.queue, item.partition, item.group) == ("q", "lane", "billing")
    assert (item.failure_count, item.error) == (3, "no")
    assert item.failed_us - item.created_us == 876_544
