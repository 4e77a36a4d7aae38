"""The routes under /api/v1/status and /api/v1/analytics."""

import os
import socket
from uuid import UUID

import pytest

from queen_sync import stats as s

SIX = ("total", "pending", "processing", "completed", "failed", "deadLetter")
START = "2026-01-01T00:00:00.000000Z"


def counts(*numbers):
    return dict(zip(SIX, numbers, strict=True))


@pytest.fixture
def busy(http, clock):
    """A queue with a limit and a lease on four of its ten messages, and a plain one."""
    options = {"maxSize": 20, "leaseTime": 60}
    http.post("/api/v1/configure", {"queue": "billing.send.mail", "options": options})
    http.push("billing.send.mail", *range(10))
    http.push("plain", 1, partition="p")
    clock.advance(30)
    messages = http.pop("billing.send.mail", batch=4)["messages"]
    for message, outcome in zip(messages, ("completed", "failed", "dlq"), strict=False):
        http.ack(message, outcome)
    return http


# --------------------------------------------------------------------------- status


def test_the_status_page_has_everything(busy, clock):
    """PL-9, PLD-11, INV-COUNTERS."""
    clock.advance(40)
    busy.push("plain", 2, partition="p")
    body = busy.get("/api/v1/status").get_json()
    assert body["timeRange"] == {
        "from": "2025-12-31T23:01:10.000000Z",
        "to": "2026-01-01T00:01:10.000000Z",
    }
    assert (body["bucketMinutes"], body["pointCount"], body["statsAge"]) == (1, 2, 0)
    newest, oldest = body["throughput"]
    assert (newest["timestamp"], newest["ingested"]) == ("2026-01-01T00:01:00.000000Z", 1)
    unknown = {name for name, value in oldest.items() if value is None}
    assert unknown == {
        "avgEventLoopLagMs",
        "maxEventLoopLagMs",
        "minFreeSlots",
        "dbErrors",
        "queenCpuUserPct",
        "queenCpuSysPct",
        "queenRssMb",
        "dbPoolActive",
        "dbPoolIdle",
        "dbPoolSize",
    }
    assert {name: value for name, value in oldest.items() if name not in unknown} == {
        "timestamp": START,
        "ingested": 11,
        "processed": 2,
        "popMessages": 4,
        "ingestedPerSecond": 0.18,
        "processedPerSecond": 0.03,
        "popPerSecond": 0.07,
        "avgLagMs": 30_000,
        "maxLagMs": 30_000,
        "ackFailed": 0,
        "dlqCount": 1,
    }
    assert [(q["name"], q["partitions"], q["totalConsumed"]) for q in body["queues"]] == [
        ("billing.send.mail", 1, 1),
        ("plain", 2, 0),
    ]
    assert body["messages"] == {
        **counts(12, 9, 1, 1, 1, 1),
        "requests": {"push": 3, "pop": 1, "ack": 3},
        "batchEfficiency": {"push": 4.0, "pop": 4.0, "ack": 1.0},
    }
    assert body["leases"] == {
        "active": 1,
        "partitionsWithLeases": 1,
        "totalBatchSize": 4,
        "totalAcked": 3,
    }
    assert body["deadLetterQueue"]["totalMessages"] == 1
    (worker,) = body["workers"]
    assert (worker["workerId"], worker["hostname"]) == (os.getpid(), socket.gethostname())
    assert worker["messagesProcessed"] == 12 + 4 + 3
    assert body["errors"] == {"dbErrors": None, "ackFailed": 0, "dlqMessages": 1}


def test_the_status_page_can_be_narrowed(busy):
    body = busy.get("/api/v1/status?queue=plain").get_json()
    assert [queue["name"] for queue in body["queues"]] == ["plain"]
    assert [point["ingested"] for point in body["throughput"]] == [1]
    assert body["leases"]["active"] == 0
    body = busy.get("/api/v1/status?namespace=billing&task=send").get_json()
    assert [point["ingested"] for point in body["throughput"]] == [10]
    assert busy.get("/api/v1/status?namespace=none").get_json()["throughput"] == []


@pytest.mark.parametrize(("hours", "minutes"), [(2, 1), (3, 5), (13, 15), (49, 60), (24 * 15, 360)])
def test_a_longer_span_has_longer_buckets(http, clock, hours, minutes):
    clock.advance(3600 * hours)
    body = http.get(f"/api/v1/status?from={START}").get_json()
    assert body["bucketMinutes"] == minutes


def test_the_status_of_queues_is_a_page(busy):
    body = busy.get("/api/v1/status/queues?limit=1&offset=1").get_json()
    assert [queue["name"] for queue in body["queues"]] == ["plain"]
    assert body["pagination"] == {"limit": 1, "offset": 1, "total": 2}
    body = busy.get("/api/v1/status/queues?namespace=billing").get_json()
    assert [queue["name"] for queue in body["queues"]] == ["billing.send.mail"]
    assert body["pagination"] == {"limit": 100, "offset": 0, "total": 1}


def test_the_status_of_one_queue(busy):
    """PLD-10, INV-COUNTERS."""
    body = busy.get("/api/v1/status/queues/billing.send.mail").get_json()
    queue = body["queue"]
    assert queue.pop("id")
    assert queue == {
        "name": "billing.send.mail",
        "namespace": "billing",
        "task": "send",
        "priority": 0,
        "createdAt": START,
        "config": {
            "leaseTime": 60,
            "retryLimit": 3,
            "retryDelay": 0,
            "ttl": 0,
            "maxQueueSize": 20,
            "deadLetterQueue": False,
        },
    }
    (partition,) = body["partitions"]
    assert partition.pop("id")
    same = counts(10, 7, 1, 1, 1, 1)
    assert partition == {
        "name": "Default",
        "createdAt": START,
        "messages": same,
        "stats": same,
        "cursor": {"totalConsumed": 1, "batchesConsumed": None},
        "lastActivity": START,
        "oldestMessage": START,
        "newestMessage": START,
    }
    assert body["totals"] == {"messages": same, **same}


def test_a_series_counts_what_came_by_interval(busy, clock):
    """PL-9."""
    clock.advance(3600)
    busy.push("plain", 1, 2)
    body = busy.get("/api/v1/status/analytics").get_json()
    assert body == {
        "dataPoints": [
            {"timestamp": START, "messages": 11},
            {"timestamp": "2026-01-01T01:00:00.000000Z", "messages": 2},
        ],
        "interval": "hour",
        "from": "2025-12-31T01:00:30.000000Z",
        "to": "2026-01-01T01:00:30.000000Z",
    }
    body = busy.get("/api/v1/status/analytics?interval=day").get_json()
    assert [point["messages"] for point in body["dataPoints"]] == [13]
    body = busy.get(f"/api/v1/status/analytics?interval=minute&from={START}&to={START}").get_json()
    assert [point["messages"] for point in body["dataPoints"]] == [11]


def test_there_is_no_buffer_to_speak_of(http):
    assert http.get("/api/v1/status/buffers").get_json() == {
        "pending": 0,
        "failed": 0,
        "dbHealthy": True,
        "worker": os.getpid(),
    }


# --------------------------------------------------------------------------- leases


def test_leases_utilisation_and_depths_are_shown(busy, clock):
    """PLD-10, PLD-11."""
    clock.advance(10)
    body = busy.get("/api/v1/status/leases").get_json()
    (lease,) = body["leases"]
    assert lease.pop("partitionId")
    assert lease == {
        "queue": "billing.send.mail",
        "partition": "Default",
        "consumerGroup": "__QUEUE_MODE__",
        "totalConsumed": 2,
        "lag": 8,
        "processing": 1,
        "batchSize": 4,
        "leaseExpiresAt": "2026-01-01T00:01:30.000000Z",
        "oldestWaitingAt": START,
        "takenAt": "2026-01-01T00:00:30.000000Z",
        "secondsLeft": 50.0,
        "secondsHeld": 10,
    }
    assert body["stuck"] == []
    assert body["utilisation"] == [
        {
            "queue": "billing.send.mail",
            "partitions": 1,
            "leasedPartitions": 1,
            "percentLeased": 100.0,
        },
        {"queue": "plain", "partitions": 2, "leasedPartitions": 0, "percentLeased": 0.0},
    ]
    assert body["depths"] == [
        {
            "queue": "billing.send.mail",
            "depth": 8,
            "processing": 1,
            "partitions": 1,
            "maxQueueSize": 20,
            "remainingCapacity": 12,
            "percentFull": 40.0,
        },
        {
            "queue": "plain",
            "depth": 1,
            "processing": 0,
            "partitions": 2,
            "maxQueueSize": 0,
            "remainingCapacity": None,
            "percentFull": None,
        },
    ]
    assert body["metrics"] == {
        "percentLeased": 33.33,
        "averageSecondsHeld": 10.0,
        "maxSecondsHeld": 10,
        "percentCompleted": 33.33,
    }


def test_a_lease_that_is_about_to_end_is_stuck(busy, clock):
    """PLD-10: within thirty seconds."""
    clock.advance(29.999)
    assert busy.get("/api/v1/status/leases").get_json()["stuck"] == []
    clock.advance(0.001)
    body = busy.get("/api/v1/status/leases").get_json()
    assert [(lease["queue"], lease["secondsHeld"]) for lease in body["stuck"]] == [
        ("billing.send.mail", 30)
    ]
    clock.advance(30)
    body = busy.get("/api/v1/status/leases").get_json()
    assert (body["leases"], body["stuck"]) == ([], [])
    assert body["metrics"]["averageSecondsHeld"] is None


def test_leases_come_in_pages_of_one_queue_or_all(http, clock):
    for name in "abc":
        http.push("q", 1, partition=name)
        http.pop("q")
        clock.advance(1)
    http.push("other", 1)
    http.pop("other")
    body = http.get("/api/v1/status/leases?queue=q&limit=1&offset=1").get_json()
    assert [lease["partition"] for lease in body["leases"]] == ["b"]
    assert body["pagination"] == {"limit": 1, "offset": 1}
    assert [row["queue"] for row in body["utilisation"]] == ["q"]
    body = http.get("/api/v1/status/leases").get_json()
    assert [lease["queue"] for lease in body["leases"]] == ["q", "q", "q", "other"]


def test_the_hottest_and_the_slowest_partitions_are_found(http, clock):
    """QB-5, PL-9."""
    http.pop("q", consumerGroup="g", partition="none")
    http.push("q", 1, partition="slow")
    clock.advance(1)
    http.push("q", *range(5), partition="hot")

    def lanes(query):
        body = http.get(f"/api/v1/status/lanes?queue=q&{query}").get_json()
        return [lane["partition"] for lane in body["lanes"]]

    assert lanes("order=lag&limit=1") == ["hot"]
    assert lanes("order=age&limit=1") == ["slow"]
    assert lanes("waitingSince=2026-01-01T00:00:00Z") == ["slow"]
    assert lanes("consumerGroup=nobody") == []
    assert lanes("partition=hot&consumerGroup=g") == ["hot"]
    assert lanes("leased=true") == []
    assert lanes("order=name&offset=1") == ["hot", "slow"]


# ------------------------------------------------------------------------- analytics


def test_figures_of_queues_by_namespace_task_and_name(busy):
    """PL-1, PL-9."""
    mail = {
        "queue": "billing.send.mail",
        "namespace": "billing",
        "task": "send",
        "partitions": 1,
        **counts(10, 7, 1, 1, 1, 1),
        "stored": 10,
        "waiting": 8,
        "leasedPartitions": 1,
    }
    for path in ("?namespace=billing", "?task=send", "/queues?queue=billing.send.mail"):
        assert busy.get(f"/api/v1/analytics{path}").get_json() == {"queues": [mail]}
    assert busy.get("/api/v1/analytics/queue/billing.send.mail").get_json() == mail
    for path in ("/api/v1/analytics", "/api/v1/analytics/queues"):
        names = [row["queue"] for row in busy.get(path).get_json()["queues"]]
        assert names == ["billing.send.mail", "plain"]


def test_older_paths_name_queues_by_their_path(busy):
    """PL-1, PL-9: whether the labels stand in the name or beside it."""
    busy.post("/api/v1/configure", {"queue": "letters", "namespace": "billing", "task": "print"})
    body = busy.get("/api/v1/analytics/ns/billing").get_json()
    assert [row["queue"] for row in body["queues"]] == [
        "billing/send/mail",
        "billing/print/letters",
    ]
    body = busy.get("/api/v1/analytics/ns/billing/task/print").get_json()
    assert [row["queue"] for row in body["queues"]] == ["billing/print/letters"]
    assert busy.get("/api/v1/analytics/ns/none").get_json() == {"queues": []}


def test_depths_are_told_against_limits(busy):
    """PLD-10."""
    body = busy.get("/api/v1/analytics/queue-depths").get_json()
    assert [(row["queue"], row["depth"], row["remainingCapacity"]) for row in body["depths"]] == [
        ("billing.send.mail", 8, 12),
        ("plain", 1, None),
    ]


def test_throughput_by_the_minute(busy):
    """PL-9."""
    (point,) = busy.get("/api/v1/analytics/throughput").get_json()["throughput"]

    def flow(minute, second):
        return {"messagesPerMinute": minute, "messagesPerSecond": second}

    assert point == {
        "timestamp": START,
        "incoming": flow(11, 0.18),
        "completed": flow(1, 0.02),
        "processing": flow(4, 0.07),
        "failed": flow(1, 0.02),
        "deadLetter": flow(1, 0.02),
        "lag": {"avgSeconds": 30, "avgMilliseconds": 30_000, "sampleCount": 1},
    }
    body = busy.get("/api/v1/analytics/throughput?queue=plain").get_json()
    assert [point["incoming"]["messagesPerMinute"] for point in body["throughput"]] == [1]


def test_how_long_messages_waited_by_queue(busy):
    """QB-5, PL-9: where nothing was popped there is nothing to tell."""
    assert busy.get("/api/v1/analytics/queue-lag").get_json() == [
        {
            "bucketTime": START,
            "queueName": "billing.send.mail",
            "popCount": 4,
            "avgLagMs": 30_000,
            "maxLagMs": 30_000,
        }
    ]
    assert busy.get("/api/v1/analytics/queue-lag?queue=plain").get_json() == []


def test_what_happened_in_a_queue_in_a_time(busy):
    path = f"/api/v1/analytics/queue-stats?queue=plain&fromDateTime={START}&toDateTime={START}"
    body = busy.get(path).get_json()
    assert body["timeRange"] == {"from": START, "to": START}
    assert [row["queue"] for row in body["queues"]] == ["plain"]
    assert body["totals"] == counts(1, 1, 0, 0, 0, 0)
    assert (body["counts"]["pushed"], body["counts"]["popped"]) == (1, 0)


# -------------------------------------------------------------------------- counting


def test_every_call_is_counted_once_where_it_belongs(http, broker, backend, clock):
    """PL-9, INV-COUNTERS."""
    http.push("a", 1, 2, 3, 4, 5)
    http.push("a", 6, transactionId="t")
    http.push("a", 6, transactionId="t")
    claim = http.pop("a", batch=5)
    http.pop("b")
    first, second, third, fourth, fifth = claim["messages"]
    for message, outcome in ((first, "completed"), (first, "completed"), (second, "failed")):
        http.ack(message, outcome)
    http.ack(third, "retry")
    http.ack({**third, "leaseId": "gone"})
    http.ack({**third, "partitionId": str(UUID(int=0))})
    done = {key: fourth[key] for key in ("transactionId", "partitionId", "leaseId")}
    push = {"type": "push", "items": [{"queue": "c", "payload": 1}]}
    body = {"operations": [{"type": "ack", **done}, push]}
    assert http.post("/api/v1/transaction", body).get_json()["success"] is True
    http.ack(fifth, "dlq")
    broker.flush_counts()
    now_us = clock.now_us()
    rows = backend.counts(s.CountFilter(from_us=now_us, to_us=now_us, by_queue=True))
    assert {row.queue: row.counts for row in rows} == {
        "": s.Counts(ack_requests=1, refused=1),
        "a": s.Counts(
            push_requests=3,
            pushed=6,
            duplicates=1,
            pop_requests=1,
            popped=5,
            ack_requests=6,
            completed=2,
            failed=1,
            given_back=1,
            dead_lettered=1,
            refused=1,
            transactions=1,
        ),
        "b": s.Counts(pop_requests=1, pops_empty=1),
        "c": s.Counts(pushed=1, transactions=1),
    }


# ---------------------------------------------------------------------- what is wrong


@pytest.mark.parametrize(
    "path",
    [
        "/api/v1/status?queue=nobody's",
        "/api/v1/status/queues/nobody's",
        "/api/v1/status/leases?queue=nobody's",
        "/api/v1/analytics/queue/nobody's",
        "/api/v1/analytics/queue-depths?queue=nobody's",
    ],
)
def test_an_unknown_queue_is_not_found(http, path):
    answer = http.get(path)
    assert (answer.status_code, answer.get_json()["code"]) == (404, "QUEUE_NOT_FOUND")


@pytest.mark.parametrize(
    ("path", "field"),
    [
        ("/api/v1/status?from=yesterday", "from"),
        ("/api/v1/status?to=2026-13-01", "to"),
        (f"/api/v1/status?from={START}&to=2025-01-01T00:00:00Z", "from"),
        ("/api/v1/status/queues?limit=none", "limit"),
        ("/api/v1/status/analytics?interval=week", "interval"),
        ("/api/v1/status/leases?offset=-1", "offset"),
        ("/api/v1/status/lanes?order=random", "order"),
        ("/api/v1/status/lanes?waitingSince=long", "waitingSince"),
        ("/api/v1/analytics/throughput?from=x", "from"),
        ("/api/v1/analytics/queue-lag?to=x", "to"),
        ("/api/v1/analytics/queue-stats?fromDateTime=x", "from"),
        ("/api/v1/analytics/queue/" + "x" * 256, "queue"),
    ],
)
def test_a_bad_parameter_is_refused_and_named(http, clock, path, field):
    """INV-NO-500."""
    clock.advance(60)
    answer = http.get(path)
    assert (answer.status_code, answer.get_json()["code"]) == (400, "INVALID_REQUEST")
    assert answer.get_json()["field"] == field
