"""GET /api/v1/consumer-groups, of one group, and those that lag."""

import pytest


@pytest.fixture
def readers(http, clock):
    """Two groups: one is half-way through a queue, the other has read nothing of two."""
    http.push("q", 1, 2, partition="a")
    clock.advance(10)
    http.push("q", 3, partition="b")
    http.push("other", 1)
    http.pop("q", consumerGroup="slow", partition="none")
    http.pop("other", consumerGroup="slow", partition="none", subscriptionMode="new")
    claim = http.pop("q", consumerGroup="quick", batch=2)
    http.ack(claim["messages"][0])
    clock.advance(20)
    return http


def test_each_group_of_each_queue_is_a_row(readers):
    """QB-5: lag in messages and in seconds, progress, and where it began."""
    body = readers.get("/api/v1/consumer-groups").get_json()
    assert [(row["name"], row["queueName"]) for row in body] == [
        ("quick", "q"),
        ("slow", "other"),
        ("slow", "q"),
    ]
    assert body[0] == {
        "name": "quick",
        "queueName": "q",
        "topics": ["q"],
        "members": 3,
        "partitionsWithLag": 2,
        "totalLag": 2,
        "maxTimeLag": 30,
        "state": "Stable",
        "subscriptionMode": "all",
        "subscriptionTimestamp": None,
        "subscriptionCreatedAt": "2026-01-01T00:00:10.000000Z",
        "activeLeases": 1,
        "batchSize": 2,
        "processing": 1,
        "failed": 0,
        "deadLetter": 0,
        "oldestWaitingAt": "2026-01-01T00:00:00.000000Z",
        "lastConsumedAt": "2026-01-01T00:00:10.000000Z",
    }
    assert (body[1]["subscriptionMode"], body[1]["totalLag"], body[1]["state"]) == (
        "new",
        0,
        "Dead",
    )
    assert (body[2]["totalLag"], body[2]["lastConsumedAt"]) == (3, None)


def test_without_groups_the_list_is_empty(http):
    http.push("q", 1)
    assert http.get("/api/v1/consumer-groups").get_json() == []
    assert http.get("/api/v1/consumer-groups/lagging").get_json() == []


@pytest.mark.parametrize(
    ("query", "found"),
    [
        ("queue=other", [("slow", "other")]),
        ("consumerGroup=quick", [("quick", "q")]),
        ("consumerGroup=slow&queue=q", [("slow", "q")]),
        ("consumerGroup=nobody", []),
    ],
)
def test_the_list_of_groups_can_be_narrowed(readers, query, found):
    body = readers.get(f"/api/v1/consumer-groups?{query}").get_json()
    assert [(row["name"], row["queueName"]) for row in body] == found


def test_the_group_of_queue_mode_has_its_name(http):
    http.push("q", 1)
    http.pop("q")
    (row,) = http.get("/api/v1/consumer-groups").get_json()
    assert row["name"] == "__QUEUE_MODE__"
    assert list(http.get("/api/v1/consumer-groups/__QUEUE_MODE__").get_json()) == ["q"]


def test_a_group_that_is_far_behind_lags(readers, clock):
    """QB-5: more than 300 seconds."""
    clock.advance(300)
    states = {
        row["name"]: row["state"]
        for row in readers.get("/api/v1/consumer-groups?queue=q").get_json()
    }
    assert states == {"quick": "Lagging", "slow": "Lagging"}


def test_a_group_shows_where_it_began(http):
    http.push("q", 1)
    http.pop("q", consumerGroup="g", subscriptionFrom="2026-01-01T00:00:00Z")
    (row,) = http.get("/api/v1/consumer-groups").get_json()
    assert (row["subscriptionMode"], row["subscriptionTimestamp"]) == (
        "from",
        "2026-01-01T00:00:00.000000Z",
    )


def test_a_group_is_shown_partition_by_partition(readers):
    """QB-5."""
    body = readers.get("/api/v1/consumer-groups/quick").get_json()
    assert list(body) == ["q"]
    assert body["q"]["partitions"] == [
        {
            "partition": "Default",
            "workerId": None,
            "lastConsumedAt": None,
            "totalConsumed": 0,
            "offsetLag": 0,
            "timeLagSeconds": 0,
            "leaseActive": False,
        },
        {
            "partition": "a",
            "workerId": None,
            "lastConsumedAt": "2026-01-01T00:00:10.000000Z",
            "totalConsumed": 1,
            "offsetLag": 1,
            "timeLagSeconds": 30,
            "leaseActive": True,
        },
        {
            "partition": "b",
            "workerId": None,
            "lastConsumedAt": None,
            "totalConsumed": 0,
            "offsetLag": 1,
            "timeLagSeconds": 20,
            "leaseActive": False,
        },
    ]
    both = readers.get("/api/v1/consumer-groups/slow?limit=1").get_json()
    assert {queue: len(rows["partitions"]) for queue, rows in both.items()} == {"other": 1, "q": 0}


def test_an_unknown_group_is_not_found(readers):
    answer = readers.get("/api/v1/consumer-groups/nobody")
    assert (answer.status_code, answer.get_json()["code"]) == (404, "GROUP_NOT_FOUND")


def test_what_lags_comes_first_of_all_the_latest(readers):
    """QB-5, and the word `lagging` is no group's name here."""
    body = readers.get("/api/v1/consumer-groups/lagging?minLagSeconds=25").get_json()
    assert [(row["consumer_group"], row["partition_name"]) for row in body] == [
        ("quick", "a"),
        ("slow", "a"),
    ]
    row = body[0]
    assert row.pop("partition_id")
    assert row == {
        "consumer_group": "quick",
        "queue_name": "q",
        "partition_name": "a",
        "worker_id": None,
        "offset_lag": 1,
        "time_lag_seconds": 30,
        "lag_hours": 0.01,
        "oldest_unconsumed_at": "2026-01-01T00:00:00.000000Z",
        "last_consumed_at": "2026-01-01T00:00:10.000000Z",
    }


@pytest.mark.parametrize(
    ("query", "count"), [("minLagSeconds=20", 4), ("minLagSeconds=31", 0), ("", 0)]
)
def test_how_late_is_late_can_be_said(readers, query, count):
    """An hour where it is not."""
    assert len(readers.get(f"/api/v1/consumer-groups/lagging?{query}").get_json()) == count


@pytest.mark.parametrize(
    ("path", "field"),
    [
        ("/api/v1/consumer-groups/lagging?minLagSeconds=long", "minLagSeconds"),
        ("/api/v1/consumer-groups/lagging?minLagSeconds=-1", "minLagSeconds"),
        ("/api/v1/consumer-groups/lagging?limit=0", "limit"),
        ("/api/v1/consumer-groups/g?offset=x", "offset"),
        ("/api/v1/consumer-groups/" + "g" * 256, "consumerGroup"),
        ("/api/v1/consumer-groups?queue=" + "q" * 256, "queue"),
    ],
)
def test_a_bad_parameter_is_refused_and_named(http, path, field):
    """INV-NO-500."""
    answer = http.get(path)
    assert (answer.status_code, answer.get_json()["code"]) == (400, "INVALID_REQUEST")
    assert answer.get_json()["field"] == field
