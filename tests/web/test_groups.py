"""Dead letters, the removal of a group and its new start."""

import pytest

DLQ = "/api/v1/dlq"


def _bury(http, queue, *payloads, group="__QUEUE_MODE__", partition="Default"):
    http.push(queue, *payloads, partition=partition)
    claim = http.pop(queue, partition, consumerGroup=group, batch=len(payloads))
    for message in claim["messages"]:
        http.ack(message, "dlq", error=f"bad {message['data']}")


def _listed(http, **query):
    return [m["data"] for m in http.get(DLQ, query_string=query).get_json()["messages"]]


def test_a_dead_letter_has_the_payload_and_the_reason(http, clock):
    (receipt,) = http.push("q", {"n": 1}, transactionId="t", partition="p")
    clock.advance(1)
    http.ack(http.pop("q")["messages"][0], "dlq", error="no")
    answer = http.get(f"{DLQ}?queue=q")
    assert answer.status_code == 200
    assert answer.get_json() == {
        "messages": [
            {
                "id": receipt["id"],
                "transactionId": "t",
                "traceId": None,
                "partitionId": receipt["partitionId"],
                "queue": "q",
                "partition": "p",
                "consumerGroup": "__QUEUE_MODE__",
                "errorMessage": "no",
                "retryCount": 0,
                "deliveryCount": 1,
                "data": {"n": 1},
                "payload": {"n": 1},
                "isEncrypted": False,
                "producerSub": None,
                "createdAt": "2026-01-01T00:00:00.000000Z",
                "failedAt": "2026-01-01T00:00:01.000000Z",
            }
        ],
        "pagination": {"limit": 100, "offset": 0, "total": 1},
        "total": 1,
    }


def test_dead_letters_are_paged_newest_first(http, clock):
    for payload in range(5):
        _bury(http, "q", payload)
        clock.advance(1)
    assert _listed(http, queue="q") == [4, 3, 2, 1, 0]
    assert _listed(http, queue="q", limit=2, offset=1) == [3, 2]
    assert _listed(http, queue="q", limit=0) == []
    assert _listed(http, queue="q", limit="x", offset="-3") == [4, 3, 2, 1, 0]
    assert http.get(f"{DLQ}?queue=q&limit=1").get_json()["total"] == 5


def test_every_filter_of_the_dead_letters_counts(http, clock):
    _bury(http, "q", 1, partition="x")
    clock.advance(10)
    _bury(http, "q", 2, partition="y", group="g")
    _bury(http, "other", 3)
    assert sorted(_listed(http)) == [1, 2, 3]
    assert _listed(http, queue="q", partition="x") == [1]
    assert _listed(http, consumerGroup="g") == [2]
    assert _listed(http, queue="q", consumerGroup="__QUEUE_MODE__") == [1]
    assert _listed(http, queue="q", **{"from": "2026-01-01T00:00:05Z"}) == [2]
    assert _listed(http, queue="q", to="2026-01-01T00:00:05Z") == [1]


@pytest.mark.parametrize(
    ("query", "field"),
    [
        ("from=x", "from"),
        ("to=2026-13-01", "to"),
        (f"queue={'q' * 256}", "queue"),
        ("partition=a%00", "partition"),
        ("consumerGroup=..", "consumerGroup"),
    ],
)
def test_a_filter_that_cannot_be_read_is_refused(http, query, field):
    answer = http.get(f"{DLQ}?{query}")
    assert (answer.status_code, answer.get_json()["field"]) == (400, field)


def test_a_deleted_group_begins_anew(http):
    http.push("q", 1, partition="x")
    http.push("q", 2, partition="y")
    for _ in range(2):
        http.pop("q", consumerGroup="g", autoAck="true")
    body = http.delete("/api/v1/consumer-groups/g").get_json()
    assert body.pop("deletedPartitions") >= 2
    assert body == {"success": True, "consumerGroup": "g", "metadataDeleted": True}
    assert len(http.pop("q", consumerGroup="g", partitions=2, batch=9)["messages"]) == 2


def test_an_unknown_group_is_deleted_without_complaint(http):
    body = http.delete("/api/v1/consumer-groups/nobody").get_json()
    assert (body["success"], body["deletedPartitions"]) == (True, 0)


def test_a_group_that_keeps_its_metadata_begins_where_it_began(http, clock):
    """C-07."""
    http.push("q", "old")
    clock.advance(1)
    http.pop("q", consumerGroup="g", subscriptionMode="new")
    http.push("q", "new")
    body = http.delete("/api/v1/consumer-groups/g?deleteMetadata=false").get_json()
    assert body["metadataDeleted"] is False
    assert [m["data"] for m in http.pop("q", consumerGroup="g", batch=9)["messages"]] == ["new"]


def test_a_group_can_be_removed_from_one_queue_alone(http):
    for queue in ("a", "b"):
        http.push(queue, 1)
        http.pop(queue, consumerGroup="g", autoAck="true")
    body = http.delete("/api/v1/consumer-groups/g/queues/a").get_json()
    assert (body["queueName"], body["deletedPartitions"]) == ("a", 1)  # its Default
    assert http.pop("a", consumerGroup="g") is not None
    assert http.pop("b", consumerGroup="g") is None


def test_a_group_is_given_a_new_start(http, clock):
    http.push("q", "old")
    clock.advance(10)
    http.push("q", "new")
    http.pop("q", consumerGroup="g", batch=9, autoAck="true")
    answer = http.post(
        "/api/v1/consumer-groups/g/subscription",
        {"subscriptionTimestamp": "2026-01-01T00:00:05Z"},
    )
    assert answer.get_json() == {
        "success": True,
        "consumerGroup": "g",
        "newTimestamp": "2026-01-01T00:00:05.000000Z",
        "rowsUpdated": 1,
    }
    http.delete("/api/v1/consumer-groups/g?deleteMetadata=false")
    assert [m["data"] for m in http.pop("q", consumerGroup="g", batch=9)["messages"]] == ["new"]


@pytest.mark.parametrize(
    ("body", "text"),
    [
        (b"", "Missing subscriptionTimestamp in request body"),
        (b"[]", "Missing subscriptionTimestamp in request body"),
        (b"{}", "Missing subscriptionTimestamp in request body"),
        (b'{"subscriptionTimestamp":"x"}', "subscriptionTimestamp must be an ISO 8601 timestamp"),
        (b'{"subscriptionTimestamp":5}', None),
    ],
)
def test_a_new_start_that_is_no_time_is_refused(http, body, text):
    answer = http.send("/api/v1/consumer-groups/g/subscription", body)
    given = answer.get_json()
    assert (answer.status_code, given["field"]) == (400, "subscriptionTimestamp")
    if text is not None:
        assert given["error"] == text


@pytest.mark.parametrize("name", ["g" * 256, "%00", "..", ""])
@pytest.mark.parametrize("method", ["DELETE", "POST"])
def test_a_group_name_obeys_the_rule_of_names(http, method, name):
    """C-18."""
    path = f"/api/v1/consumer-groups/{name}" + ("/subscription" if method == "POST" else "")
    body = {"subscriptionTimestamp": "2026-01-01T00:00:00Z"}
    answer = http.call(method, path, json=body)
    assert (answer.status_code, answer.get_json()["field"]) == (400, "consumerGroup")
