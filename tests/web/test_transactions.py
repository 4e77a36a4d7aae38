"""POST /api/v1/transaction."""

from typing import Any

import pytest

ROUTE = "/api/v1/transaction"
UNKNOWN = "0192aaaa-0000-8000-8000-00000000abcd"


def _push(queue: str, *payloads: Any, **item: Any) -> dict[str, Any]:
    items = [{"queue": queue, "payload": payload, **item} for payload in payloads]
    return {"type": "push", "items": items}


def _ack(message: dict[str, Any], status: str = "completed", **more: Any) -> dict[str, Any]:
    """As the official client writes it: neither lease nor group."""
    keys = ("transactionId", "partitionId")
    return {"type": "ack", **{key: message[key] for key in keys}, "status": status, **more}


def _commit(http, *operations, leases=(), **more):
    body = {"operations": list(operations), "requiredLeases": list(leases), **more}
    answer = http.post(ROUTE, body)
    assert answer.status_code == 200, answer.get_data()
    return answer.get_json()


def test_acks_and_pushes_happen_together(http):
    """C-15: the official client proves its acks by the leases that it lists."""
    http.push("source", 1)
    claim = http.pop("source", consumerGroup="g")
    done = _commit(
        http, _ack(claim["messages"][0]), _push("target", 2, 3), leases=[claim["leaseId"]]
    )
    assert done["success"] is True
    assert done["transactionId"]
    assert "repeated" not in done
    ack, first, second = done["results"]
    assert (ack["index"], ack["type"], ack["success"], ack["error"]) == (0, "ack", True, None)
    assert (ack["status"], ack["consumerGroup"], ack["dlq"]) == ("completed", "g", False)
    assert [r["index"] for r in (first, second)] == [1, 2]
    assert (first["type"], first["queueName"], first["success"]) == ("push", "target", True)
    messages = http.pop("target", batch=5)["messages"]
    assert [m["data"] for m in messages] == [2, 3]
    assert [m["id"] for m in messages] == [first["messageId"], second["messageId"]]
    assert http.pop("source", consumerGroup="g") is None


def test_the_fields_of_one_message_may_stand_on_the_operation(http):
    _commit(http, {"type": "push", "queue": "q", "partition": "p", "data": 7, "transactionId": "t"})
    (message,) = http.pop("q", "p")["messages"]
    assert (message["data"], message["transactionId"]) == (7, "t")


@pytest.mark.parametrize(
    ("change", "code", "text"),
    [
        ({"transactionId": "x"}, "MESSAGE_NOT_FOUND", "ACK operation failed: Message not found"),
        ({"leaseId": UNKNOWN}, "LEASE_LOST", "ACK operation failed: Invalid or expired lease"),
        ({}, "LEASE_REQUIRED", "ACK operation failed: leaseId is required"),
    ],
)
def test_one_refused_ack_refuses_everything(http, change, code, text):
    """C-15."""
    http.push("source", 1, 2)
    first, second = http.pop("source", batch=2)["messages"]
    refused = {**_ack(second), **change}
    done = _commit(http, _push("target", 1), _ack(first, leaseId=first["leaseId"]), refused)
    assert (done["success"], done["code"], done["error"]) == (False, code, text)
    assert (done["results"], done["index"]) == ([], 2)
    assert http.pop("target") is None
    assert "already" not in http.ack(first)


def test_a_required_lease_that_is_lost_refuses_everything(http):
    """C-15."""
    done = _commit(http, _push("q", 1), leases=[UNKNOWN])
    assert (done["success"], done["code"]) == (False, "LEASE_LOST")
    assert done["error"] == "Invalid or expired lease"
    assert http.pop("q") is None


def test_a_full_queue_refuses_everything_inside_a_200(http):
    """C-06."""
    http.configure("q", maxSize=1)
    done = _commit(http, _push("other", 1), _push("q", 1, 2))
    assert (done["success"], done["code"], done["queue"]) == (False, "QUEUE_FULL", "q")
    assert "exceed max capacity" in done["error"]
    assert http.pop("other") is None


def test_a_failed_ack_in_a_transaction_is_an_ordinary_one(http):
    http.configure("q", retryLimit=1)
    http.push("q", 1)
    for status in ("failed", "dead_letter"):
        claim = http.pop("q")
        done = _commit(http, _ack(claim["messages"][0], "failed"), leases=[claim["leaseId"]])
        assert done["results"][0]["status"] == status


def test_a_duplicate_push_is_reported_and_fails_nothing(http):
    """C-15."""
    (first,) = http.push("q", 1, transactionId="a")
    done = _commit(http, _push("q", 9, transactionId="a"), _push("q", 2))
    assert [result["status"] for result in done["results"]] == ["duplicate", "queued"]
    assert done["results"][0]["messageId"] == first["id"]
    assert done["results"][0]["duplicate"] is True


def test_a_transaction_that_is_sent_twice_happens_once(http):
    """C-15."""
    http.push("q", 1)
    claim = http.pop("q")
    sent = (_ack(claim["messages"][0]), _push("out", 2, transactionId="o"))
    assert "repeated" not in _commit(http, *sent, leases=[claim["leaseId"]])
    again = _commit(http, *sent, leases=[claim["leaseId"]])
    assert (again["success"], again["repeated"]) == (True, True)
    assert again["results"][0]["already"] is True
    other = _commit(http, sent[0], _push("out", 3), leases=[claim["leaseId"]])
    assert (other["success"], other["code"]) == (False, "ALREADY_SETTLED")
    assert len(http.pop("out", batch=9)["messages"]) == 1


def test_a_pushed_message_of_a_limited_queue_says_how_much_room_is_left(http):
    """C-06."""
    http.configure("q", maxSize=3)
    (result,) = _commit(http, _push("q", 1))["results"]
    assert (result["queueDepth"], result["remainingCapacity"]) == (1, 2)


def test_an_ambiguous_name_refuses_the_transaction_inside_a_200(http):
    for partition in "xy":
        http.push("q", 1, partition=partition, transactionId="same")
    lease = http.pop("q", batch=2, partitions=2)["leaseId"]
    ack = {"type": "ack", "transactionId": "same", "leaseId": lease}
    done = _commit(http, _push("target", 1), ack)
    assert (done["success"], done["code"], done["index"]) == (False, "INVALID_REQUEST", 1)
    assert http.pop("target") is None


def test_empty_extras_of_a_later_client_are_passed_over(http):
    assert _commit(http, _push("q", 1), kv=[], timers=[])["success"] is True


@pytest.mark.parametrize(
    ("body", "field", "text"),
    [
        ({}, "operations", "operations array required"),
        ([], "operations", "operations array required"),
        ({"operations": None}, "operations", "operations array required"),
        ({"operations": {}}, "operations", "operations array required"),
        ({"operations": []}, "operations", "operations array cannot be empty"),
        ({"operations": [{"type": "push", "items": []}]}, "operations", None),
        ({"operations": [{"type": "pop"}]}, "type", "Unknown operation type: pop"),
        ({"operations": [{}]}, "type", "type is required"),
        ({"operations": [5]}, "operations", "Each operation must be an object"),
        ({"operations": [{"type": "push"}]}, "queue", "Queue must be a string"),
        ({"operations": [{"type": "push", "items": [{}]}]}, "queue", "Queue must be a string"),
        ({"operations": [{"type": "push", "items": 5}]}, "items", None),
        ({"operations": [{"type": "ack"}]}, "transactionId", "transactionId is required"),
        ({"operations": [{"type": "ack", "transactionId": "a", "status": "x"}]}, "status", None),
        ({"operations": [_push("q", 1)], "requiredLeases": [5]}, "requiredLeases", None),
        ({"operations": [_push("q", 1)], "kv": [1]}, "kv", None),
        ({"operations": [_push("q", 1)] * 10_001}, "operations", None),
    ],
)
def test_a_malformed_transaction_is_refused_before_anything_is_tried(
    http, backend, body, field, text
):
    if isinstance(body, dict) and isinstance(body.get("operations"), list) and body["operations"]:
        body = {**body, "operations": [_push("first", 1), *body["operations"]]}
        if text is None and field == "operations" and len(body["operations"]) == 2:
            body["operations"] = body["operations"][1:]
    answer = http.post(ROUTE, body)
    given = answer.get_json()
    assert (answer.status_code, given["code"], given["field"]) == (400, "INVALID_REQUEST", field)
    if text is not None:
        assert given["error"] == text
    assert backend.queues() == []
