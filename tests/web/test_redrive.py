"""Dead letters given back to their groups, one or many, or deleted for good (C-12)."""

import msgspec
import pytest

DLQ = "/api/v1/dlq"
REDRIVE = f"{DLQ}/redrive"


def _bury(http, queue, *payloads, group="__QUEUE_MODE__", partition="Default"):
    """Push messages named after their payloads and dead-letter them."""
    for payload in payloads:
        http.push(queue, payload, partition=partition, transactionId=str(payload))
    claim = http.pop(queue, partition, consumerGroup=group, batch=len(payloads))
    for message in claim["messages"]:
        http.ack(message, "dlq")
    return claim["messages"]


def _listed(http, **query):
    return sorted(m["data"] for m in http.get(DLQ, query_string=query).get_json()["messages"])


@pytest.fixture
def dead(http, clock):
    """Dead letters of two queues, two groups and two partitions; returns the partition's id."""
    (first,) = _bury(http, "q", 1, partition="x")
    clock.advance(10)
    _bury(http, "q", 2, partition="y")
    _bury(http, "q", 3, partition="z", group="g")
    _bury(http, "other", 4)
    assert _listed(http) == [1, 2, 3, 4]
    return first["partitionId"]


FILTERS = [
    ({}, [1, 2, 3, 4]),
    ({"queue": "q"}, [1, 2, 3]),
    ({"consumerGroup": "g"}, [3]),
    ({"queue": "q", "consumerGroup": "__QUEUE_MODE__"}, [1, 2]),
    ({"partition": "y"}, [2]),
    ({"transactionId": "4"}, [4]),
    ({"queue": "q", "from": "2026-01-01T00:00:05Z"}, [2, 3]),
    ({"to": "2026-01-01T00:00:05Z"}, [1]),
    ({"queue": "none"}, []),
]


@pytest.mark.parametrize("place", ["query", "body", "both"])
@pytest.mark.parametrize(("filters", "chosen"), FILTERS, ids=str)
def test_every_filter_chooses_what_is_redriven(http, dead, filters, chosen, place):
    """C-12."""
    given = {"query": {"query_string": filters}, "body": {"json": filters}}
    given["both"] = given["query"] | given["body"]
    answer = http.call("POST", REDRIVE, **given[place])
    assert (answer.status_code, answer.get_json()) == (200, {"success": True, "count": len(chosen)})
    assert _listed(http) == sorted({1, 2, 3, 4} - set(chosen))


@pytest.mark.parametrize("place", ["query_string", "json"])
@pytest.mark.parametrize(("filters", "chosen"), FILTERS, ids=str)
def test_every_filter_chooses_what_is_purged(http, dead, filters, chosen, place):
    answer = http.delete(DLQ, **{place: filters})
    assert (answer.status_code, answer.get_json()) == (200, {"success": True, "count": len(chosen)})
    assert _listed(http) == sorted({1, 2, 3, 4} - set(chosen))
    assert http.post(REDRIVE).get_json()["count"] == 4 - len(chosen)


def test_a_partition_can_be_chosen_by_its_id(http, dead):
    """In the listing too, as by a transaction id."""
    assert _listed(http, partitionId=dead.upper()) == [1]
    assert _listed(http, transactionId="3", queue="q") == [3]
    assert http.post(REDRIVE, {"partitionId": dead}).get_json()["count"] == 1
    assert _listed(http) == [2, 3, 4]


def test_a_redriven_message_comes_again_to_its_group_with_fresh_attempts(http):
    """C-12."""
    http.configure("q", retryLimit=0)
    http.push("q", "bad")
    http.pop("q", consumerGroup="h", autoAck="true")
    http.ack(http.pop("q", consumerGroup="g")["messages"][0], "failed", error="no")
    http.push("q", "next")
    assert http.post(REDRIVE, {"queue": "q"}).get_json()["count"] == 1
    (message,) = http.pop("q", consumerGroup="g", batch=9)["messages"]
    assert (message["data"], message["deliveryCount"], message["retryCount"]) == ("bad", 1, 0)
    assert [m["data"] for m in http.pop("q", consumerGroup="h", batch=9)["messages"]] == ["next"]
    assert http.ack(message, "failed")["status"] == "dead_letter"
    assert _listed(http) == ["bad"]


def test_what_was_purged_is_gone(http):
    _bury(http, "q", 1, 2)
    assert http.delete(f"{DLQ}?transactionId=1").get_json()["count"] == 1
    assert http.delete(f"{DLQ}?transactionId=1").get_json()["count"] == 0
    assert http.post(REDRIVE).get_json()["count"] == 1
    assert http.pop("q")["messages"][0]["data"] == 2


@pytest.mark.parametrize(
    ("query", "body", "field"),
    [
        ("qeue=q", b"", "qeue"),
        ("queue=q&limit=1", b"", "limit"),
        ("queue=q&offset=1", b"", "offset"),
        ("queue=", b"", "queue"),
        ("partition=", b"", "partition"),
        ("consumerGroup=", b"", "consumerGroup"),
        ("transactionId=", b"", "transactionId"),
        ("partitionId=", b"", "partitionId"),
        ("partitionId=x", b"", "partitionId"),
        ("from=", b"", "from"),
        ("to=yesterday", b"", "to"),
        (f"queue={'q' * 256}", b"", "queue"),
        ("", b'{"group":"g"}', "group"),
        ("", b'{"queue":5}', "body"),
        ("", b'{"queue":["q"]}', "body"),
        ("", b'["q"]', "body"),
        ("", b'"q"', "body"),
        ("", b"{", "body"),
        ("queue=q", b'{"queue":"other"}', "queue"),
    ],
)
def test_a_slip_in_a_filter_never_chooses_more_than_was_meant(http, dead, query, body, field):
    for method, path in (("POST", REDRIVE), ("DELETE", DLQ)):
        answer = http.call(method, path, query_string=query, data=body)
        assert (answer.status_code, answer.get_json()["field"]) == (400, field)
    assert _listed(http) == [1, 2, 3, 4]


@pytest.mark.parametrize("body", [b"", b"{}", b"[]", b" ", b'{"queue":null,"from":null}'])
def test_without_a_filter_all_are_chosen(http, dead, body):
    assert http.send(REDRIVE, body).get_json()["count"] == 4


# ------------------------------------------------------------------- one message's retry


def _retry(http, message, **given):
    path = f"/api/v1/messages/{message['partitionId']}/{message['transactionId']}/retry"
    return http.call("POST", path, **given)


def test_one_message_is_retried_by_name(http):
    """C-12: its neighbour stays dead."""
    first, _ = _bury(http, "q", 1, 2)
    answer = _retry(http, first)
    assert (answer.status_code, answer.get_json()) == (
        200,
        {
            "success": True,
            "retried": True,
            "transactionId": "1",
            "partitionId": first["partitionId"],
            "count": 1,
        },
    )
    assert [message["data"] for message in http.pop("q", batch=9)["messages"]] == [1]
    assert _listed(http) == [2]


@pytest.mark.parametrize("place", ["query_string", "json"])
def test_a_retry_can_be_for_one_group_alone(http, place):
    for group in ("g", "h"):
        (message,) = _bury(http, "q", 1, group=group)
    assert _retry(http, message, **{place: {"consumerGroup": "g"}}).status_code == 200
    assert http.pop("q", consumerGroup="g") is not None
    assert http.pop("q", consumerGroup="h") is None
    assert _retry(http, message, **{place: {"consumerGroup": "g"}}).status_code == 404
    assert _retry(http, message, **{place: {}}).status_code == 200
    assert http.pop("q", consumerGroup="h") is not None


def test_what_is_not_dead_cannot_be_retried(http):
    (receipt,) = http.push("q", 1)
    answer = _retry(http, receipt)
    assert answer.status_code == 404
    assert answer.get_json() == {
        "error": "Message not found or not in a failed state",
        "code": "MESSAGE_NOT_FOUND",
    }
    assert _retry(http, receipt | {"transactionId": "none"}).status_code == 404


@pytest.mark.parametrize(
    ("message", "given", "field"),
    [
        ({"partitionId": "x"}, {}, "partitionId"),
        ({"transactionId": "x" * 256}, {}, "transactionId"),
        ({}, {"json": {"consumerGroup": ".."}}, "consumerGroup"),
        ({}, {"json": {"consumerGroup": 5}}, "consumerGroup"),
        ({}, {"query_string": {"consumerGroup": "x" * 256}}, "consumerGroup"),
        ({}, {"data": b"{"}, "body"),
        ({}, {"data": b"5"}, "body"),
    ],
)
def test_a_retry_that_cannot_be_read_changes_nothing(http, message, given, field):
    (dead,) = _bury(http, "q", 1)
    answer = _retry(http, dead | message, **given)
    assert (answer.status_code, answer.get_json()["field"]) == (400, field)
    assert _listed(http) == [1]


def test_a_backend_without_redrive_refuses_it_by_name(http, backend, dead):
    """O-14."""
    backend.capabilities = msgspec.structs.replace(
        backend.capabilities, features=backend.capabilities.features - {"redrive"}
    )
    for answer in (
        http.post(REDRIVE, {"queue": "q"}),
        http.delete(f"{DLQ}?queue=q"),
        _retry(http, {"partitionId": dead, "transactionId": "1"}),
    ):
        body = answer.get_json()
        assert (answer.status_code, body["code"]) == (409, "NOT_SUPPORTED")
        assert body["feature"] == "redrive"
    assert _listed(http) == [1, 2, 3, 4]
