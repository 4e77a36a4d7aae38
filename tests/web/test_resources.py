"""The routes under /api/v1/resources, and POST /api/v1/stats/refresh."""

import pytest

SIX = ("total", "pending", "processing", "completed", "failed", "deadLetter")


def counts(*numbers):
    return dict(zip(SIX, numbers, strict=True))


@pytest.fixture
def busy(http, clock):
    """Ten messages: one of each outcome, one in flight and six untouched; one elsewhere."""
    http.post("/api/v1/configure", {"queue": "billing.send.mail", "options": {"priority": 7}})
    http.push("billing.send.mail", *range(10))
    clock.advance(1)
    http.push("plain", 1, partition="p")
    messages = http.pop("billing.send.mail", batch=4)["messages"]
    for message, outcome in zip(messages, ("completed", "failed", "dlq"), strict=False):
        http.ack(message, outcome)
    return http


def test_queues_are_listed_newest_first_with_what_they_hold(busy):
    """PL-9, INV-COUNTERS."""
    body = busy.get("/api/v1/resources/queues").get_json()
    assert body["pagination"] == {"limit": 1000, "offset": 0, "total": 2}
    plain, mail = body["queues"]
    assert plain.pop("id")
    assert plain.pop("partitionId")
    assert plain.pop("options")["leaseTime"] == 300
    assert plain == {
        "name": "plain",
        "namespace": "",
        "task": "",
        "priority": 0,
        "createdAt": "2026-01-01T00:00:01.000000Z",
        "partitions": 2,
        "leasedPartitions": 0,
        "messages": {**counts(1, 1, 0, 0, 0, 0), "stored": 1},
    }
    assert (mail["name"], mail["namespace"], mail["task"]) == (
        "billing.send.mail",
        "billing",
        "send",
    )
    assert mail["messages"] == {**counts(10, 7, 1, 1, 1, 1), "stored": 10}
    assert mail["leasedPartitions"] == 1


@pytest.mark.parametrize(
    ("query", "names"),
    [
        ({"namespace": "billing"}, ["billing.send.mail"]),
        ({"ns": "billing", "task": "send"}, ["billing.send.mail"]),
        ({"task": "other"}, []),
        ({"search": "LAI"}, ["plain"]),
        ({"search": "send"}, ["billing.send.mail"]),
        ({"limit": "1"}, ["plain"]),
        ({"limit": "1", "offset": "1"}, ["billing.send.mail"]),
        ({"offset": "2"}, []),
        ({"limit": "999999"}, ["plain", "billing.send.mail"]),
    ],
)
def test_the_list_of_queues_can_be_narrowed_and_paged(busy, query, names):
    """PL-1."""
    body = busy.get("/api/v1/resources/queues", query_string=query).get_json()
    assert [queue["name"] for queue in body["queues"]] == names


def test_without_queues_the_lists_are_empty(http):
    assert http.get("/api/v1/resources/queues").get_json()["queues"] == []
    assert http.get("/api/v1/resources/partitions").get_json() == {"partitions": []}
    assert http.get("/api/v1/resources/namespaces").get_json() == {"namespaces": []}
    assert http.get("/api/v1/resources/tasks").get_json() == {"tasks": []}


def test_a_queue_is_shown_with_its_partitions_and_their_groups(busy):
    """PLD-10, INV-COUNTERS."""
    body = busy.get("/api/v1/resources/queues/billing.send.mail").get_json()
    assert body["totals"] == {**counts(10, 7, 1, 1, 1, 1), "stored": 10}
    assert (body["priority"], body["options"]["priority"]) == (7, 7)
    assert body["pagination"] == {"limit": 1000, "offset": 0, "total": 1}
    (partition,) = body["partitions"]
    assert partition.pop("id") == body["partitionId"]
    assert partition == {
        "name": "Default",
        "createdAt": "2026-01-01T00:00:00.000000Z",
        "stats": counts(10, 7, 1, 1, 1, 1),
        "stored": 10,
        "waiting": 8,
        "oldestMessage": "2026-01-01T00:00:00.000000Z",
        "newestMessage": "2026-01-01T00:00:00.000000Z",
        "consumerGroups": [
            {
                "name": "__QUEUE_MODE__",
                "lag": 8,
                "processing": 1,
                "failed": 1,
                "deadLetter": 1,
                "leaseExpiresAt": "2026-01-01T00:05:01.000000Z",
                "batchSize": 4,
                "oldestWaitingAt": "2026-01-01T00:00:00.000000Z",
                "unreadable": None,
            }
        ],
    }


def test_the_partitions_of_a_queue_come_in_pages(http):
    """The totals are those of all of them."""
    for name in "abc":
        http.push("q", 1, partition=name)
    body = http.get("/api/v1/resources/queues/q?limit=2&offset=1").get_json()
    assert [partition["name"] for partition in body["partitions"]] == ["a", "b"]
    assert body["totals"]["total"] == 3
    assert body["pagination"] == {"limit": 2, "offset": 1, "total": 4}


def test_a_name_with_a_slash_is_found(http):
    """C-18."""
    http.push("a/b c", 1)
    assert http.get("/api/v1/resources/queues/a%2Fb%20c").get_json()["name"] == "a/b c"


def test_partitions_are_listed_with_their_depth(busy):
    body = busy.get("/api/v1/resources/partitions?minDepth=1").get_json()
    assert [
        (p["queue"], p["name"], p["depth"], p["processing"], p["total"]) for p in body["partitions"]
    ] == [
        ("billing.send.mail", "Default", 8, 1, 10),
        ("plain", "p", 1, 0, 1),
    ]
    assert set(body["partitions"][0]) == {
        "id",
        "name",
        "queue",
        "namespace",
        "task",
        "queuePriority",
        "createdAt",
        "depth",
        "processing",
        "total",
    }
    assert body["partitions"][0]["queuePriority"] == 7


@pytest.mark.parametrize(
    ("query", "names"),
    [
        ("queue=plain", ["Default", "p"]),
        ("queue=plain&minDepth=1", ["p"]),
        ("minDepth=9", []),
        ("limit=1&offset=1", ["Default"]),
        ("namespace=billing", ["Default"]),
    ],
)
def test_the_list_of_partitions_can_be_narrowed_and_paged(busy, query, names):
    body = busy.get(f"/api/v1/resources/partitions?{query}").get_json()
    assert [partition["name"] for partition in body["partitions"]] == names


def test_namespaces_and_tasks_sum_up_their_queues(busy):
    """PL-1, PL-9: queues without one are in none."""
    busy.push("billing.collect.calls", 1, 2)
    body = busy.get("/api/v1/resources/namespaces").get_json()
    assert body == {
        "namespaces": [
            {
                "namespace": "billing",
                "queues": 2,
                "partitions": 2,
                "messages": {"total": 12, "pending": 9},
            }
        ]
    }
    body = busy.get("/api/v1/resources/tasks").get_json()
    assert [(task["task"], task["queues"]) for task in body["tasks"]] == [
        ("collect", 1),
        ("send", 1),
    ]


def test_the_overview_puts_everything_into_a_few_numbers(busy, clock):
    """PL-9."""
    busy.pop("plain", consumerGroup="g")
    clock.advance(59)
    assert busy.get("/api/v1/resources/overview").get_json() == {
        "queues": 2,
        "partitions": 3,
        "namespaces": 1,
        "tasks": 1,
        "messages": counts(11, 7, 2, 1, 1, 1),
        "lag": {
            "time": {"avg": 59.5, "median": 59.5, "min": 59, "max": 60},
            "offset": {"avg": 4.5, "median": 4.5, "min": 1, "max": 8},
        },
        # Of the five whole minutes before: eleven pushed, one completed and one dead.
        "throughput": {"ingestedPerSecond": 0.04, "processedPerSecond": 0.01},
        "timestamp": "2026-01-01T00:01:00.000000Z",
        "statsAge": 0,
    }


def test_an_empty_overview_is_all_zeros(http):
    body = http.get("/api/v1/resources/overview").get_json()
    assert body["messages"] == counts(0, 0, 0, 0, 0, 0)
    assert body["lag"]["time"] == {"avg": 0, "median": 0, "min": 0, "max": 0}


@pytest.mark.parametrize("body", [b"", b"{}", b"[]"])
def test_a_refresh_says_what_there_is(busy, body):
    answer = busy.send("/api/v1/stats/refresh", body)
    assert answer.status_code == 200
    assert answer.get_json() == {
        "success": True,
        "partition": {},
        "queue": {"queuesUpdated": 2},
        "namespace": {},
        "task": {},
        "system": {},
        "cleanup": {},
    }


@pytest.mark.parametrize(
    ("path", "code"),
    [
        ("/api/v1/resources/queues/nobody's", "QUEUE_NOT_FOUND"),
        ("/api/v1/resources/partitions?queue=nobody's", "QUEUE_NOT_FOUND"),
    ],
)
def test_an_unknown_queue_is_not_found(http, path, code):
    answer = http.get(path)
    assert (answer.status_code, answer.get_json()["code"]) == (404, code)


@pytest.mark.parametrize(
    ("path", "field"),
    [
        ("/api/v1/resources/queues?limit=0", "limit"),
        ("/api/v1/resources/queues?limit=ten", "limit"),
        ("/api/v1/resources/queues?limit=1.5", "limit"),
        ("/api/v1/resources/queues?offset=-1", "offset"),
        ("/api/v1/resources/queues?offset=99999999999", "offset"),
        ("/api/v1/resources/queues?namespace=" + "x" * 256, "namespace"),
        ("/api/v1/resources/queues/q?limit=-5", "limit"),
        ("/api/v1/resources/queues/" + "x" * 256, "queue"),
        ("/api/v1/resources/partitions?minDepth=deep", "minDepth"),
        ("/api/v1/resources/partitions?queue=..", "queue"),
    ],
)
def test_a_bad_parameter_is_refused_and_named(http, path, field):
    """INV-NO-500."""
    answer = http.get(path)
    assert (answer.status_code, answer.get_json()["code"]) == (400, "INVALID_REQUEST")
    assert answer.get_json()["field"] == field
