"""POST /api/v1/ack, /api/v1/ack/batch and /api/v1/lease/:lease/extend."""

import pytest

NOWHERE = "00000000-1000-8000-8000-000000000000"
UNKNOWN = "0192aaaa-0000-8000-8000-00000000abcd"


def _batch(http, *items, **body):
    answer = http.post("/api/v1/ack/batch", {"acknowledgments": list(items), **body})
    assert answer.status_code == 200, answer.get_data()
    return answer.get_json()


def _item(message, status="completed", **more):
    keys = ("transactionId", "partitionId", "leaseId")
    return {key: message[key] for key in keys} | {"status": status, **more}


def test_a_completed_ack_is_answered_with_one_object(http):
    http.push("invoices", 1, partition="cust-7", transactionId="inv-1")
    answer = http.ack(http.pop("invoices")["messages"][0])
    assert answer.pop("completedAt") == answer.pop("acknowledgedAt")
    assert answer == {
        "index": 0,
        "transactionId": "inv-1",
        "success": True,
        "error": None,
        "queueName": "invoices",
        "partitionName": "cust-7",
        "leaseReleased": True,
        "dlq": False,
        "status": "completed",
        "consumerGroup": None,
    }


@pytest.mark.parametrize(
    ("sent", "status", "dlq", "scheduled"),
    [
        (None, "completed", False, False),
        ("success", "completed", False, False),
        ("failed", "failed", False, True),
        ("retry", "pending", False, False),
        ("dlq", "dead_letter", True, False),
        ("dead_letter", "dead_letter", True, False),
    ],
)
def test_each_status_has_its_outcome(http, sent, status, dlq, scheduled):
    http.push("q", 1)
    answer = http.ack(http.pop("q")["messages"][0], sent)
    assert answer["success"] is True
    assert (answer["status"], answer["dlq"]) == (status, dlq)
    assert answer.get("retryScheduled", False) is scheduled
    assert (answer["completedAt"] is not None) == (status == "completed")
    assert (http.pop("q") is not None) == (status in ("failed", "pending"))


def test_a_failure_past_the_limit_is_dead_lettered(http):
    """C-02."""
    http.configure("q", retryLimit=1)
    http.push("q", 1)
    answers = [http.ack(http.pop("q")["messages"][0], "failed", error="no") for _ in range(2)]
    assert [answer["status"] for answer in answers] == ["failed", "dead_letter"]
    assert "retryScheduled" not in answers[1]


def test_a_repeat_is_answered_with_the_first_outcome(http):
    """C-04."""
    http.push("q", 1, 2)
    first, second = http.pop("q", batch=2)["messages"]
    http.ack(first, "failed")
    for status in ("completed", "failed"):
        again = http.ack(first, status)
        assert (again["success"], again["already"], again["status"]) == (True, True, "failed")
    assert http.ack(second)["leaseReleased"] is True
    assert http.ack(second, "dlq")["status"] == "completed"


@pytest.mark.parametrize(
    ("change", "code", "text"),
    [
        ({"transactionId": "other"}, "MESSAGE_NOT_FOUND", "Message not found"),
        ({"leaseId": UNKNOWN}, "LEASE_LOST", "Invalid or expired lease"),
        ({"leaseId": "no lease at all"}, "LEASE_LOST", "Invalid or expired lease"),
        ({"leaseId": None}, "LEASE_REQUIRED", "leaseId is required"),
        ({"leaseId": ""}, "LEASE_REQUIRED", "leaseId is required"),
        ({"consumerGroup": "other"}, "LEASE_LOST", "Invalid or expired lease"),
    ],
)
def test_an_ack_without_its_proof_is_refused_and_changes_nothing(http, change, code, text):
    """C-04."""
    http.push("q", 1)
    (message,) = http.pop("q")["messages"]
    answer = http.ack(message, **change)
    assert (answer["success"], answer["code"], answer["error"]) == (False, code, text)
    assert answer["status"] == ("not_found" if code == "MESSAGE_NOT_FOUND" else None)
    assert answer["leaseReleased"] is False
    assert "already" not in http.ack(message)


def test_a_late_ack_is_refused(http, clock):
    """C-04."""
    http.configure("q", leaseTime=10)
    http.push("q", 1)
    (message,) = http.pop("q")["messages"]
    clock.advance(10)
    assert http.ack(message)["code"] == "LEASE_LOST"
    (again,) = http.pop("q")["messages"]
    assert (again["errorMessage"], again["retryCount"]) == ("Partition lease expired", 1)
    assert http.ack(message)["code"] == "LEASE_LOST"


def test_an_ack_without_partition_finds_its_message_by_the_lease(http):
    http.push("q", 1)
    assert http.ack(http.pop("q")["messages"][0], partitionId=None)["status"] == "completed"


def test_an_ambiguous_name_needs_the_partition(http):
    for partition in "xy":
        http.push("q", 1, partition=partition, transactionId="same")
    message = http.pop("q", batch=2, partitions=2)["messages"][0]
    answer = http.ack(message, partitionId=None)
    assert answer["code"] == "INVALID_REQUEST"
    assert answer["error"] == "transactionId is ambiguous, partitionId required"
    assert http.ack(message)["success"] is True


def test_a_queue_may_do_without_lease_ids(http):
    """C-04."""
    http.configure("q", requireLeaseId=False)
    http.push("q", 1)
    (message,) = http.pop("q")["messages"]
    assert http.ack(message, leaseId=None)["success"] is True
    assert http.ack(message, leaseId=None)["already"] is True


@pytest.mark.parametrize(
    ("body", "field", "text"),
    [
        ({}, "transactionId", "transactionId is required"),
        ([], "transactionId", "transactionId is required"),
        ({"transactionId": ""}, "transactionId", "transactionId is required"),
        ({"transactionId": None}, "transactionId", None),
        ({"transactionId": "t" * 256}, "transactionId", None),
        ({"transactionId": "t", "partitionId": "x"}, "partitionId", "partitionId must be a UUID"),
        (
            {"transactionId": "t", "status": "done"},
            "status",
            "status must be one of completed, failed, retry, dlq",
        ),
        ({"transactionId": "t", "consumerGroup": "g" * 256}, "consumerGroup", None),
        ({"transactionId": "t", "leaseId": "a\0b"}, "leaseId", None),
        ({"transactionId": "t", "leaseId": 5}, "leaseId", None),
        ({"transactionId": "t", "error": {"a": 1}}, "error", None),
    ],
)
def test_a_malformed_ack_is_refused(http, body, field, text):
    answer = http.post("/api/v1/ack", body)
    given = answer.get_json()
    assert (answer.status_code, given["code"], given["field"]) == (400, "INVALID_REQUEST", field)
    if text is not None:
        assert given["error"] == text


@pytest.mark.parametrize(
    ("body", "text"), [(b"", "Empty request body"), (b" ", "Empty request body"), (b"{", None)]
)
def test_a_body_that_cannot_be_read_is_refused(http, body, text):
    answer = http.send("/api/v1/ack", body)
    error = answer.get_json()["error"]
    assert (answer.status_code, answer.get_json()["field"]) == (400, "body")
    assert error == text if text is not None else error.startswith("Invalid JSON: ")


# ---------------------------------------------------------------------------- batches


def test_a_batch_is_answered_item_by_item(http):
    """Also where one is malformed: only a push is refused whole."""
    http.push("q", 1, 2, 3)
    first, second, third = http.pop("q", batch=3)["messages"]
    answers = _batch(
        http,
        _item(first),
        {"status": "completed"},
        17,
        _item(second, "done"),
        _item(second, "failed", error="no"),
        {"transactionId": "nobody", "partitionId": NOWHERE, "leaseId": UNKNOWN},
        _item(third),
    )
    assert [answer["index"] for answer in answers] == list(range(7))
    assert [answer["success"] for answer in answers] == [
        True,
        False,
        False,
        False,
        True,
        False,
        True,
    ]
    assert [answer.get("code") for answer in answers] == [
        None,
        "INVALID_REQUEST",
        "INVALID_REQUEST",
        "INVALID_REQUEST",
        None,
        "MESSAGE_NOT_FOUND",
        None,
    ]
    assert answers[1]["error"] == "Each acknowledgment must have a valid transactionId string"
    assert answers[3]["transactionId"] == second["transactionId"]
    assert answers[3]["field"] == "status"
    assert all(answer["error"] is None for answer in answers if answer["success"])


def test_only_the_failed_one_of_a_batch_comes_back_and_ends_in_the_dead_letters_once(http):
    """C-01, C-02."""
    http.configure("q", retryLimit=1)
    http.push("q", 1, 2, 3)
    first, second, third = http.pop("q", batch=3)["messages"]
    _batch(http, _item(first), _item(second, "failed"), _item(third))
    claim = http.pop("q", batch=3)
    assert [m["data"] for m in claim["messages"]] == [2]
    _batch(http, _item(claim["messages"][0], "failed"))
    assert http.pop("q") is None
    assert http.get("/api/v1/dlq?queue=q").get_json()["total"] == 1


def test_acks_in_reverse_order_lose_and_repeat_nothing(http):
    """C-04: never "everything up to"."""
    http.push("q", 1, 2, 3)
    messages = http.pop("q", batch=3)["messages"]
    answers = [http.ack(message) for message in reversed(messages)]
    assert [answer["leaseReleased"] for answer in answers] == [False, False, True]
    assert http.pop("q") is None


def test_the_group_of_a_batch_counts_unless_an_item_names_its_own(http):
    http.push("q", 1)
    (of_g,) = http.pop("q", consumerGroup="g")["messages"]
    (of_h,) = http.pop("q", consumerGroup="h")["messages"]
    answers = _batch(http, _item(of_g), _item(of_h, consumerGroup="h"), consumerGroup="g")
    assert [(a["success"], a["consumerGroup"]) for a in answers] == [(True, "g"), (True, "h")]


def test_an_empty_batch_is_answered_with_an_empty_array(http):
    assert _batch(http) == []


@pytest.mark.parametrize(
    ("body", "field"),
    [
        ({}, "acknowledgments"),
        ([], "acknowledgments"),
        ({"acknowledgments": None}, "acknowledgments"),
        ({"acknowledgments": {}}, "acknowledgments"),
        ({"acknowledgments": [], "consumerGroup": "g" * 256}, "consumerGroup"),
        ({"acknowledgments": [], "consumerGroup": 5}, "consumerGroup"),
        ({"acknowledgments": [{"transactionId": "a"}] * 10_001}, "acknowledgments"),
    ],
)
def test_a_batch_that_is_none_is_refused(http, body, field):
    answer = http.post("/api/v1/ack/batch", body)
    assert (answer.status_code, answer.get_json()["field"]) == (400, field)


# ---------------------------------------------------------------------------- leases


@pytest.mark.parametrize("body", [b"", b"{}", b"[]", b'{"seconds":null}'])
def test_an_extend_may_say_nothing(http, clock, body):
    """C-20: without a number it is the lease time, at least a minute."""
    http.configure("q", leaseTime=10)
    http.push("q", 1)
    lease = http.pop("q")["leaseId"]
    clock.advance(5)
    answer = http.send(f"/api/v1/lease/{lease}/extend", body)
    expires = "2026-01-01T00:01:05.000000Z"
    assert answer.status_code == 200
    assert answer.get_json() == {
        "index": 0,
        "leaseId": lease,
        "success": True,
        "renewed": True,
        "error": None,
        "expiresAt": expires,
        "newExpiresAt": expires,
        "lease_expires_at": expires,
    }


def test_an_extend_never_shortens(http):
    """C-20."""
    http.push("q", 1)
    claim = http.pop("q")
    answer = http.post(f"/api/v1/lease/{claim['leaseId']}/extend", {"seconds": 1})
    assert answer.get_json()["expiresAt"] == claim["leaseExpiresAt"]


@pytest.mark.parametrize("seconds", [0, -1, 86_401, 1.5, "60", True, [1], 10**30])
def test_an_extend_by_a_senseless_time_is_refused(http, seconds):
    http.push("q", 1)
    lease = http.pop("q")["leaseId"]
    answer = http.post(f"/api/v1/lease/{lease}/extend", {"seconds": seconds})
    assert (answer.status_code, answer.get_json()["field"]) == (400, "seconds")


@pytest.mark.parametrize("lease", [UNKNOWN, "nonsense", "a%20b", "ü"])
def test_an_extend_of_no_lease_is_404(http, lease):
    """A 200 would be success for every client, whatever its body says."""
    answer = http.send(f"/api/v1/lease/{lease}/extend", b"")
    body = answer.get_json()
    assert (answer.status_code, body["code"]) == (404, "LEASE_LOST")
    assert (body["success"], body["renewed"], body["error"]) == (False, False, "Lease not found")


def test_a_lease_that_has_run_out_is_not_extended(http, clock):
    """C-04."""
    http.configure("q", leaseTime=10)
    http.push("q", 1)
    lease = http.pop("q")["leaseId"]
    clock.advance(10)
    assert http.send(f"/api/v1/lease/{lease}/extend", b"").status_code == 404
