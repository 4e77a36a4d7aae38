"""GET /api/v1/pop/queue/:queue[/partition/:partition]."""

import re

import pytest

NOW = "2026-01-01T00:00:00.000000Z"
UUID = re.compile(r"[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}")


def test_a_pop_carries_the_keys_of_all_generations(http):
    (receipt,) = http.push("invoices", {"n": 1}, partition="cust-7", transactionId="inv-1")
    claim = http.pop("invoices")
    lease = claim["leaseId"]
    assert UUID.fullmatch(lease)
    (message,) = claim.pop("messages")
    assert claim == {
        "success": True,
        "queue": "invoices",
        "partition": "cust-7",
        "partitionId": receipt["partitionId"],
        "leaseId": lease,
        "leaseExpiresAt": "2026-01-01T00:05:00.000000Z",
        "consumerGroup": "__QUEUE_MODE__",
        "partitionsClaimed": 1,
    }
    assert message == {
        "id": receipt["id"],
        "transactionId": "inv-1",
        "traceId": None,
        "data": {"n": 1},
        "payload": {"n": 1},
        "producerSub": None,
        "createdAt": NOW,
        "partitionId": receipt["partitionId"],
        "partition": "cust-7",
        "queue": "invoices",
        "leaseId": lease,
        "consumerGroup": "__QUEUE_MODE__",
        "priority": 0,
        "retryCount": 0,
        "deliveryCount": 1,
        "errorMessage": None,
    }


def test_created_at_has_six_digits_of_the_second(http, clock):
    clock.advance(0.000_042)
    http.push("q", 1)
    assert http.pop("q")["messages"][0]["createdAt"] == "2026-01-01T00:00:00.000042Z"


def test_a_failed_message_comes_back_with_its_count_and_error(http):
    http.push("q", 1)
    http.ack(http.pop("q")["messages"][0], "failed", error='no "luck"')
    (message,) = http.pop("q")["messages"]
    assert message["retryCount"] == 1
    assert message["deliveryCount"] == 2
    assert message["errorMessage"] == 'no "luck"'


def test_a_leased_partition_is_answered_204_with_nothing(http):
    """C-01."""
    http.push("q", 1, 2)
    http.pop("q")
    answer = http.get("/api/v1/pop/queue/q")
    assert answer.status_code == 204
    assert answer.get_data() == b""
    assert "Content-Type" not in answer.headers


@pytest.mark.parametrize("path", ["/api/v1/pop/queue/none", "/api/v1/pop/queue/q/partition/none"])
def test_what_does_not_exist_has_nothing_to_pop_and_is_not_made(http, backend, path):
    http.configure("q")
    assert http.get(path).status_code == 204
    assert [queue.name for queue in backend.queues()] == ["q"]


def test_two_pops_get_different_partitions(http):
    """C-01."""
    http.push("q", 1, partition="x")
    http.push("q", 2, partition="y")
    assert {http.pop("q")["partition"], http.pop("q")["partition"]} == {"x", "y"}
    assert http.pop("q") is None


@pytest.mark.parametrize("name", ["partitions", "maxPartitions"])
def test_a_pop_over_several_partitions_has_one_lease_and_one_cap(http, name):
    for partition in "xyz":
        http.push("q", 1, 2, partition=partition)
    claim = http.pop("q", batch=5, **{name: 3})
    messages = claim["messages"]
    assert len(messages) == 5
    assert claim["partitionsClaimed"] == 3
    assert {m["leaseId"] for m in messages} == {claim["leaseId"]}
    assert [m["partition"] for m in messages] == ["x", "x", "y", "y", "z"]
    assert len({m["partitionId"] for m in messages}) == 3
    assert (claim["partition"], claim["partitionId"]) == ("x", messages[0]["partitionId"])


def test_a_named_partition_is_the_only_one_that_is_taken(http):
    http.push("q", 1, partition="x")
    http.push("q", 2, partition="y")
    claim = http.pop("q", "y", batch=5, partitions=5)
    assert [m["data"] for m in claim["messages"]] == [2]


@pytest.mark.parametrize("batch", ["0", "-1", "abc", "1.5", "", "٣"])
def test_a_batch_that_says_nothing_sensible_is_one(http, batch):
    http.push("q", 1, 2)
    assert len(http.pop("q", batch=batch)["messages"]) == 1


@pytest.mark.parametrize("batch", ["10001", "9" * 5000])
def test_a_batch_beyond_the_limit_is_cut_to_it(http, batch):
    http.push("q", 1, 2)
    assert len(http.pop("q", batch=batch)["messages"]) == 2


def test_auto_ack_settles_on_delivery_and_gives_no_lease(http):
    """C-19."""
    http.push("q", 1, 2)
    claim = http.pop("q", autoAck="true", batch=2)
    assert claim["leaseId"] == ""
    assert claim["leaseExpiresAt"] is None
    assert [m["leaseId"] for m in claim["messages"]] == ["", ""]
    assert http.pop("q") is None


@pytest.mark.parametrize("word", ["false", "0", "yes", ""])
def test_a_switch_is_off_unless_it_says_true_or_1(http, word):
    http.push("q", 1)
    assert http.pop("q", autoAck=word)["leaseId"]


def test_unknown_parameters_are_passed_over(http):
    http.push("q", 1)
    assert http.pop("q", autopilot="true", namespace="n", task="t", x="y")


# ---------------------------------------------------------------------- groups (C-07)


def test_groups_and_queue_mode_each_get_every_message(http):
    http.push("q", 1)
    for group in ("", "__QUEUE_MODE__"):
        claim = http.pop("q", consumerGroup=group, autoAck="1")
        assert (claim is not None) == (group == "")
    for group in ("g", "h"):
        claim = http.pop("q", consumerGroup=group)
        assert claim["consumerGroup"] == claim["messages"][0]["consumerGroup"] == group


@pytest.mark.parametrize(
    "start",
    [{"subscriptionMode": "new"}, {"subscriptionMode": "new-only"}, {"subscriptionFrom": "now"}],
)
def test_a_group_that_begins_with_new_gets_what_is_pushed_later(http, start):
    """C-07."""
    http.push("q", "old")
    assert http.pop("q", consumerGroup="g", **start) is None
    http.push("q", "new")
    claim = http.pop("q", consumerGroup="g", batch=9, **start)
    assert [m["data"] for m in claim["messages"]] == ["new"]


@pytest.mark.parametrize("start", [{}, {"subscriptionMode": "all"}, {"subscriptionMode": ""}])
def test_any_other_group_begins_with_everything(http, start):
    """C-07."""
    http.push("q", "old")
    assert http.pop("q", consumerGroup="g", **start) is not None


@pytest.mark.parametrize(
    "start",
    ["2026-01-01T00:00:10Z", "2026-01-01T00:00:10", "2026-01-01T02:00:10+02:00"],
)
def test_a_group_can_begin_at_a_time(http, clock, start):
    """C-07."""
    http.push("q", 0)
    clock.advance(10)
    http.push("q", 10)
    # As a client writes it that does not quote the plus sign.
    answer = http.get(
        f"/api/v1/pop/queue/q?batch=9&consumerGroup=g&subscriptionFrom={start}&subscriptionMode=new"
    )
    assert [m["data"] for m in answer.get_json()["messages"]] == [10]


@pytest.mark.parametrize(
    ("query", "field"),
    [
        ({"subscriptionMode": "latest"}, "subscriptionMode"),
        ({"subscriptionFrom": "1767225600000"}, "subscriptionFrom"),
        ({"subscriptionFrom": "yesterday"}, "subscriptionFrom"),
        ({"consumerGroup": "g" * 256}, "consumerGroup"),
        ({"consumerGroup": "a\0"}, "consumerGroup"),
        ({"consumerGroup": ".."}, "consumerGroup"),
    ],
)
def test_what_cannot_be_understood_of_a_group_is_refused(http, query, field):
    query = {"consumerGroup": "g", **query}
    answer = http.get("/api/v1/pop/queue/q", query_string=query)
    assert (answer.status_code, answer.get_json()["field"]) == (400, field)


def test_a_group_has_one_start_and_another_wish_is_reported(http):
    """C-07."""
    http.push("q", 1)
    http.pop("q", consumerGroup="g", subscriptionMode="all", autoAck="true")
    for mode, ignored in (("new", "ignored"), ("all", None), (None, None)):
        query = {"consumerGroup": "g"} | ({"subscriptionMode": mode} if mode else {})
        answer = http.get("/api/v1/pop/queue/q", query_string=query)
        assert answer.headers.get("X-Queen-Subscription") == ignored


def test_a_query_may_hold_plain_utf_8(http):
    http.push("q", 1)
    raw = {"QUERY_STRING": "consumerGroup=gr\u00c3\u00bc"}
    assert (
        http.get("/api/v1/pop/queue/q", environ_overrides=raw).get_json()["consumerGroup"] == "grü"
    )


def test_queue_mode_has_no_subscription(http):
    http.push("q", 1)
    assert http.pop("q", subscriptionMode="new") is not None


def test_a_group_name_of_255_characters_is_fine(http):
    http.push("q", 1)
    assert http.pop("q", consumerGroup="ü" * 255)["consumerGroup"] == "ü" * 255
