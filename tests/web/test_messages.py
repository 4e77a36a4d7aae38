"""Single messages over HTTP: lists and their pages, look-ups, and what an operator does by hand."""

from base64 import urlsafe_b64encode
from datetime import UTC, datetime
from urllib.parse import quote
from uuid import uuid4

import msgspec
import pytest

from queen_sync import inspection as i
from queen_sync.clock import ManualClock

MESSAGES = "/api/v1/messages"
EVER = {"from": "2000-01-01T00:00:00Z"}
NOBODY = "00000000-1000-8000-8000-000000000000"
ODD_NAMES = ["a b", "a/b", "ü 漢", "100%", "%2F", "+", "?x=1#y", "retry", "dlq", "names", '"']


def path_of(message, *more):
    return "/".join(
        [MESSAGES, message["partitionId"], quote(message["transactionId"], safe=""), *more]
    )


def listed(http, **query):
    answer = http.get(MESSAGES, query_string={**EVER, **query})
    assert answer.status_code == 200, answer.get_json()
    return answer.get_json()


def names(http, **query):
    return [message["transactionId"] for message in listed(http, **query)["messages"]]


def fill(http, queue, *words, **item):
    """Push one message after the other, named after their payloads."""
    return [http.push(queue, word, transactionId=word, **item)[0] for word in words]


# ------------------------------------------------------------------------------ the list


def test_a_listed_message_shows_all_but_its_payload(http, clock):
    """Every key as clients know it. QA-6."""
    trace = str(uuid4())
    body = {"queue": "q", "namespace": "billing", "task": "send", "options": {"priority": 3}}
    assert http.post("/api/v1/configure", body).status_code == 201
    clock.advance(0.123456)
    (receipt,) = http.push("q", 1, partition="p", transactionId="t", traceId=trace)
    http.pop("q", consumerGroup="done", autoAck="true")
    http.pop("q", consumerGroup="late", partition="none")
    claim = http.pop("q")
    assert listed(http) == {
        "messages": [
            {
                "id": receipt["id"],
                "transactionId": "t",
                "partitionId": receipt["partitionId"],
                "queuePath": "q/p",
                "queue": "q",
                "partition": "p",
                "status": "processing",
                "createdAt": "2026-01-01T00:00:00.123Z",
                "namespace": "billing",
                "task": "send",
                "queueStatus": "processing",
                "busStatus": {"consumedBy": 1, "totalGroups": 2},
                "traceId": trace,
                "producerSub": None,
                "queuePriority": 3,
                "leaseExpiresAt": "2026-01-01T00:05:00.123Z",
                "isEncrypted": False,
                "consumerGroups": [
                    {
                        "name": "__QUEUE_MODE__",
                        "consumed": False,
                        "status": "processing",
                        "deliveryCount": 1,
                        "retryCount": 0,
                        "errorMessage": None,
                        "leaseExpiresAt": claim["leaseExpiresAt"],
                    },
                    {
                        "name": "done",
                        "consumed": True,
                        "status": "completed",
                        "deliveryCount": 0,
                        "retryCount": 0,
                        "errorMessage": None,
                        "leaseExpiresAt": None,
                    },
                    {
                        "name": "late",
                        "consumed": False,
                        "status": "pending",
                        "deliveryCount": 0,
                        "retryCount": 0,
                        "errorMessage": None,
                        "leaseExpiresAt": None,
                    },
                ],
            }
        ],
        "mode": {"hasQueueMode": True, "busGroupsCount": 2, "type": "hybrid"},
        "nextCursor": None,
        "cursor": None,
    }


@pytest.mark.parametrize("count", [2, 30])
def test_a_list_over_many_queues_knows_each_of_them(http, count):
    for n in range(count):
        body = {"queue": f"q{n}", "namespace": f"n{n}", "options": {"priority": n}}
        http.post("/api/v1/configure", body)
        http.push(f"q{n}", n)
    shown = {(x["queue"], x["namespace"], x["queuePriority"]) for x in listed(http)["messages"]}
    assert shown == {(f"q{n}", f"n{n}", n) for n in range(count)}


@pytest.mark.parametrize(
    ("groups", "mode"),
    [
        ([], {"hasQueueMode": False, "busGroupsCount": 0, "type": "none"}),
        ([None], {"hasQueueMode": True, "busGroupsCount": 0, "type": "queue"}),
        (["a", "b"], {"hasQueueMode": False, "busGroupsCount": 2, "type": "bus"}),
        ([None, "a"], {"hasQueueMode": True, "busGroupsCount": 1, "type": "hybrid"}),
    ],
)
def test_the_mode_tells_who_reads(http, groups, mode):
    (receipt,) = http.push("q", 1)
    for group in groups:
        http.pop("q", "none", **({} if group is None else {"consumerGroup": group}))
    assert listed(http)["mode"] == mode
    assert http.get(path_of(receipt)).get_json()["mode"] == mode | {"consumedByGroups": 0}


class TestNow:
    @pytest.fixture
    def clock(self):
        """The store's clock, set by that of the machine."""
        return ManualClock(datetime.now(UTC))

    def test_a_list_without_a_beginning_holds_what_is_new(self, http):
        fill(http, "q", "new")
        assert len(http.get(MESSAGES).get_json()["messages"]) == 1


def test_a_list_without_a_beginning_is_of_the_last_hour(http, clock):
    """Unless it is that of a trace, which is listed whole. PLD-8."""
    trace = str(uuid4())
    fill(http, "q", "old", traceId=trace)
    clock.advance(2 * 3600)
    assert http.get(MESSAGES).get_json()["messages"] == []
    for query in ({"from": "2026-01-01T00:00:00Z"}, {"traceId": trace.upper()}):
        found = http.get(MESSAGES, query_string=query).get_json()["messages"]
        assert [message["transactionId"] for message in found] == ["old"]


def test_a_trace_is_listed_over_all_queues_oldest_first(http, clock):
    """PLD-8."""
    trace = str(uuid4())
    for n in range(4):
        fill(http, f"q{n % 2}", f"t{n}", traceId=trace)
        fill(http, "q0", f"other{n}")
        clock.advance(1)
    page = http.get(MESSAGES, query_string={"traceId": trace, "limit": 3}).get_json()
    assert [message["transactionId"] for message in page["messages"]] == ["t0", "t1", "t2"]
    query = {"traceId": trace, "cursor": page["cursor"]}
    rest = http.get(MESSAGES, query_string=query).get_json()
    assert [message["transactionId"] for message in rest["messages"]] == ["t3"]


@pytest.fixture
def stock(http, clock):
    """Messages of two queues and three partitions, a second apart, for all filters."""
    for queue, namespace, task in (("a", "n", "x"), ("b", "n", "y")):
        http.post("/api/v1/configure", {"queue": queue, "namespace": namespace, "task": task})
    for word, queue, partition in (
        ("one", "a", "Default"),
        ("two", "a", "p"),
        ("three", "b", "p"),
        ("four", "a", "Default"),
    ):
        fill(http, queue, word, partition=partition)
        clock.advance(1)


@pytest.mark.parametrize(
    ("query", "found"),
    [
        ({}, ["four", "three", "two", "one"]),
        ({"queue": ""}, ["four", "three", "two", "one"]),
        ({"queue": "a"}, ["four", "two", "one"]),
        ({"partition": "p"}, ["three", "two"]),
        ({"queue": "a", "partition": "p"}, ["two"]),
        ({"namespace": "n"}, ["four", "three", "two", "one"]),
        ({"ns": "n"}, ["four", "three", "two", "one"]),
        ({"ns": "n", "namespace": "n", "task": "y"}, ["three"]),
        ({"ns": "m"}, []),
        ({"task": "x"}, ["four", "two", "one"]),
        ({"from": "2026-01-01T00:00:02Z"}, ["four", "three"]),
        ({"to": "2026-01-01T00:00:01Z"}, ["two", "one"]),
        ({"to": "2026-01-01T00:00:00.999Z"}, ["one"]),
        ({"to": "2026-01-01T00:00"}, ["four", "three", "two", "one"]),
        ({"to": "2025-12-31T23:59"}, []),
        ({"limit": "2"}, ["four", "three"]),
        ({"limit": "2", "offset": "1"}, ["three", "two"]),
        ({"limit": "x", "offset": "y"}, ["four", "three", "two", "one"]),
        ({"limit": "1000000"}, ["four", "three", "two", "one"]),
        ({"unknown": "x"}, ["four", "three", "two", "one"]),
    ],
    ids=str,
)
def test_a_list_can_be_narrowed(http, stock, query, found):
    """QA-6."""
    assert names(http, **query) == found


@pytest.mark.parametrize(
    ("text", "found"),
    [
        ("2026-01-01T00:00:07Z", 3),  # the second
        ("2026-01-01T00:00:07.5Z", 1),  # the millisecond
        ("2026-01-01T00:00:07.500Z", 1),
        ("2026-01-01T00:00:07.500123Z", 0),  # the microsecond
        ("2026-01-01T00:00:07.500124Z", 1),
        ("2026-01-01T00:00:07.000000Z", 0),
        ("2026-01-01T00:01:00.000Z", 4),  # the minute
        ("2026-01-01T00:01Z", 4),
        ("2026-01-01 01:01+01:00", 4),
    ],
)
def test_the_end_of_a_span_counts_as_far_as_it_is_written(http, clock, text, found):
    """A row is found again by the instant that the list shows of it. QA-6."""
    for seconds in (7.500124, 0.2, 0.2, 112 - 60):
        clock.advance(seconds)
        fill(http, "q", str(clock.now_us()))
    assert len(names(http, to=text)) == found


def test_each_status_can_be_listed(http, clock):
    """For one group, and for all of them together: what the rows then show. INV-COUNTERS."""
    fill(http, "q", "done", "failed", "dead", "held", "new")
    claim = http.pop("q", consumerGroup="g", batch=4)
    for message, outcome in zip(claim["messages"], ("completed", "failed", "dlq"), strict=False):
        http.ack(message, outcome)
    http.pop("q", consumerGroup="h", partition="none")
    of_g = {
        "completed": "done",
        "failed": "failed",
        "dead_letter": "dead",
        "processing": "held",
        "pending": "new",
    }
    for status, name in of_g.items():
        assert names(http, status=status, consumerGroup="g") == [name]
        (message,) = listed(http, status=status, consumerGroup="g")["messages"]
        assert (message["status"], len(message["consumerGroups"])) == (status, 1)
    # The other group waits for all of them.
    for status, name in {**of_g, "completed": None, "pending": "new,done"}.items():
        assert names(http, status=status) == ([] if name is None else name.split(","))
    assert names(http, status="pending", consumerGroup="h") == [
        "new",
        "held",
        "dead",
        "failed",
        "done",
    ]
    assert names(http, consumerGroup="nobody") == []


# ------------------------------------------------------------------------------- paging


@pytest.mark.parametrize("form", ["cursor", "pair", "rounded pair", "offset"])
@pytest.mark.parametrize("limit", [1, 3, 7])
def test_pages_meet_every_message_once(http, clock, form, limit):
    """Also messages of one instant, and though the list shows milliseconds only. QA-6."""
    for n in range(7):
        clock.advance(0.000001)
        fill(http, "q", f"t{n}", partition=f"p{n % 3}")
        if n % 2:
            http.push("q", 0, 0, partition="p9")
    found, query = [], {"limit": limit}
    for _ in range(20):
        page = listed(http, **query)
        found += [message["id"] for message in page["messages"]]
        following = page["nextCursor"]
        if following is None:
            assert page["cursor"] is None
            break
        last = page["messages"][-1]
        assert following["lastId"] == last["id"]
        query = {
            "limit": limit,
            **{
                "cursor": {"cursor": page["cursor"]},
                "pair": following,
                "rounded pair": {"lastCreatedAt": last["createdAt"], "lastId": last["id"]},
                "offset": {"offset": len(found)},
            }[form],
        }
    assert len(found) == len(set(found)) == 13
    assert found == [message["id"] for message in listed(http)["messages"]]


@pytest.mark.parametrize("what", ["status", "cursor"])
def test_a_page_of_one_status_goes_on_where_it_ended(http, what):
    """QA-6, INV-COUNTERS."""
    fill(http, "q", *map(str, range(9)))
    for message in http.pop("q", batch=9)["messages"][::2]:
        http.ack(message)
    page = listed(http, status="completed", limit=2)
    assert [message["transactionId"] for message in page["messages"]] == ["8", "6"]
    more = page["nextCursor"] if what == "status" else {"cursor": page["cursor"]}
    page = listed(http, status="completed", limit=3, **more)
    assert [message["transactionId"] for message in page["messages"]] == ["4", "2", "0"]
    assert page["nextCursor"] is None


def forged(packed):
    return urlsafe_b64encode(packed).decode()


@pytest.mark.parametrize(
    ("query", "field"),
    [
        ({"queue": "q" * 256}, "queue"),
        ({"queue": "a\0"}, "queue"),
        ({"partition": ".."}, "partition"),
        ({"ns": "."}, "ns"),
        ({"namespace": "x" * 256}, "namespace"),
        ({"ns": "a", "namespace": "b"}, "ns"),
        ({"task": ".."}, "task"),
        ({"consumerGroup": "x" * 256}, "consumerGroup"),
        ({"status": "evicted"}, "status"),
        ({"status": "PENDING"}, "status"),
        ({"traceId": "x"}, "traceId"),
        ({"from": "yesterday"}, "from"),
        ({"from": "0001-01-01T00:00:00+23:59"}, "from"),
        ({"to": "9999-12-31T23:59:59-23:59"}, "to"),
        ({"to": "1"}, "to"),
        ({"limit": "0"}, "limit"),
        ({"limit": "-1"}, "limit"),
        ({"offset": "-1"}, "offset"),
        ({"offset": str(i.MAX_OFFSET + 1)}, "offset"),
        ({"offset": "9" * 40}, "offset"),
        ({"lastId": NOBODY}, "lastCreatedAt"),
        ({"lastCreatedAt": "2026-01-01T00:00:00Z"}, "lastId"),
        ({"lastCreatedAt": "x", "lastId": NOBODY}, "lastCreatedAt"),
        ({"lastCreatedAt": "2026-01-01T00:00:00Z", "lastId": "x"}, "lastId"),
        (
            {
                "lastCreatedAt": "2026-01-01T00:00:00Z",
                "lastId": "5f0c3a52-5a3e-4c0e-9a51-0f6d1c7b2e34",
            },
            "lastId",
        ),
        ({"cursor": "x"}, "cursor"),
        ({"cursor": "é"}, "cursor"),
        ({"cursor": forged(bytes(24))}, "cursor"),
        ({"cursor": forged(bytes(23))}, "cursor"),
        ({"cursor": forged(b"\xff" * 8 + bytes(6) + b"\x80\x00\x80" + bytes(7))}, "cursor"),
        ({"cursor": "x", "lastId": NOBODY}, "cursor"),
    ],
    ids=str,
)
def test_a_list_that_makes_no_sense_is_refused(http, query, field):
    answer = http.get(MESSAGES, query_string=query)
    body = answer.get_json()
    assert (answer.status_code, body["code"], body["field"]) == (400, "INVALID_REQUEST", field)


def test_a_queue_lists_its_messages_briefly(http, clock):
    """A bare array."""
    clock.advance(0.5)
    (receipt,) = http.push("a b", 1, partition="p", transactionId="t")
    assert http.get("/api/v1/status/queues/a%20b/messages").get_json() == [
        {
            "id": receipt["id"],
            "transactionId": "t",
            "partitionId": receipt["partitionId"],
            "queuePath": "a b/p",
            "queue": "a b",
            "partition": "p",
            "status": "pending",
            "createdAt": "2026-01-01T00:00:00.500Z",
        }
    ]


def test_a_queue_s_messages_come_in_pages(http):
    http.configure("empty")
    assert http.get("/api/v1/status/queues/empty/messages").get_json() == []
    assert http.get("/api/v1/status/queues/nowhere/messages").status_code == 404
    fill(http, "q", *map(str, range(60)))
    path = "/api/v1/status/queues/q/messages"
    assert len(http.get(path).get_json()) == 50
    page = http.get(f"{path}?limit=2&offset=3").get_json()
    assert [message["transactionId"] for message in page] == ["56", "55"]
    assert http.get(f"{path}?offset=60").get_json() == []
    assert http.get(f"{path}?limit=0").get_json()["field"] == "limit"
    assert http.get("/api/v1/status/queues/.%2E/messages").get_json()["field"] == "queue"


# ---------------------------------------------------------------------------- one message


def test_a_message_is_shown_whole(http, clock):
    """Every key as clients know it. C-02, INV-PAYLOAD."""
    body = {
        "queue": "q",
        "namespace": "n",
        "task": "t",
        "options": {"retryLimit": 0, "retryDelay": 5, "ttl": 9999, "priority": 2, "leaseTime": 60},
    }
    http.post("/api/v1/configure", body)
    text = b'{"items":[{"queue":"q","transactionId":"a/b","payload":{"n": 1.10,"n":1e999}}]}'
    (receipt,) = http.send("/api/v1/push", text).get_json()
    http.ack(http.pop("q", consumerGroup="g")["messages"][0], "failed", error="why")
    claim = http.pop("q", consumerGroup="h")
    answer = http.get(path_of(receipt))
    assert b'"payload":{"n": 1.10,"n":1e999}' in answer.get_data()
    shown = msgspec.json.decode(answer.get_data(), type=dict[str, msgspec.Raw])
    del shown["payload"]
    assert {key: msgspec.json.decode(value) for key, value in shown.items()} == {
        "id": receipt["id"],
        "transactionId": "a/b",
        "partitionId": receipt["partitionId"],
        "queuePath": "q/Default",
        "queue": "q",
        "partition": "Default",
        "namespace": "n",
        "task": "t",
        "status": "dead_letter",
        "isEncrypted": False,
        "traceId": None,
        "producerSub": None,
        "createdAt": "2026-01-01T00:00:00.000Z",
        "errorMessage": "why",
        "retryCount": 1,
        "leaseExpiresAt": "2026-01-01T00:01:00.000Z",
        "queueConfig": {
            "leaseTime": 60,
            "retryLimit": 0,
            "retryDelay": 5,
            "ttl": 9999,
            "priority": 2,
        },
        "mode": {
            "hasQueueMode": False,
            "busGroupsCount": 2,
            "consumedByGroups": 0,
            "type": "bus",
        },
        "consumerGroups": [
            {
                "name": "g",
                "consumed": False,
                "status": "dead_letter",
                "deliveryCount": 1,
                "retryCount": 1,
                "errorMessage": "why",
                "leaseExpiresAt": None,
            },
            {
                "name": "h",
                "consumed": False,
                "status": "processing",
                "deliveryCount": 1,
                "retryCount": 0,
                "errorMessage": None,
                "leaseExpiresAt": claim["leaseExpiresAt"],
            },
        ],
    }


def test_only_a_dead_letter_shows_why_and_how_often_it_failed(http):
    (receipt,) = http.push("q", 1)
    http.ack(http.pop("q")["messages"][0], "failed", error="why")
    shown = http.get(path_of(receipt)).get_json()
    assert (shown["status"], shown["errorMessage"], shown["retryCount"]) == ("failed", None, None)
    assert shown["consumerGroups"][0]["errorMessage"] == "why"
    http.ack(http.pop("q")["messages"][0])
    assert http.get(path_of(receipt)).get_json()["mode"]["consumedByGroups"] == 0


@pytest.mark.parametrize("name", ODD_NAMES)
def test_any_name_names_a_message(http, name):
    """In its partition and alone, by every route. C-18."""
    queue, partition = f"q{name}", f"p{name}"
    place = {"transactionId": name, "partition": partition}
    (receipt,) = http.push(queue, 1, **place)
    alone = f"{MESSAGES}/{quote(name, safe='')}"
    for path in (path_of(receipt), alone):
        assert http.get(path).get_json()["id"] == receipt["id"]
        assert http.call("HEAD", path).status_code == 200
    for path in (path_of(receipt), alone):
        http.ack(http.pop(queue, partition)["messages"][0], "failed")
        assert http.post(f"{path}/dlq", {"error": "by hand"}).status_code == 200
        assert http.post(f"{path}/retry").status_code == 200
    for path in (path_of(receipt), alone):
        http.push(queue, 2, **place)
        assert http.delete(path).status_code == 200
        assert http.delete(path).status_code == 404
    for cleared in ("", f"?partition={quote(partition, safe='')}"):
        http.push(queue, 3, **place)
        answer = http.delete(f"/api/v1/queues/{quote(queue, safe='')}/clear{cleared}")
        assert answer.get_json()["count"] == 1
    places = quote(queue, safe=""), quote(partition, safe="")
    answer = http.delete("/api/v1/resources/queues/{}/partitions/{}".format(*places))
    assert answer.get_json()["existed"]


def test_a_message_is_found_by_its_own_id_too(http):
    (receipt,) = http.push("q", 1, transactionId="t")
    for path in (
        path_of(receipt | {"transactionId": receipt["id"]}),
        f"{MESSAGES}/{receipt['id']}",
    ):
        assert http.get(path).get_json()["transactionId"] == "t"


def test_a_name_alone_means_the_oldest_partition_s_message(http):
    """As do deletion, retry and dead-lettering under it. C-16."""
    first, second = (http.push("q", n, transactionId="t", partition=f"p{n}")[0] for n in (1, 2))
    alone = f"{MESSAGES}/t"
    assert http.get(alone).get_json()["id"] == first["id"]
    assert http.delete(alone).get_json()["partitionId"] == first["partitionId"]
    assert http.get(alone).get_json()["id"] == second["id"]
    http.pop("q", "none")
    assert http.post(f"{alone}/dlq").get_json()["partitionId"] == second["partitionId"]
    assert http.post(f"{alone}/retry").get_json()["partitionId"] == second["partitionId"]
    assert http.delete(alone).status_code == 200
    for path in (alone, path_of(first), path_of(second)):
        answer = http.get(path)
        assert (answer.status_code, answer.get_json()) == (
            404,
            {"error": "Message not found", "code": "MESSAGE_NOT_FOUND"},
        )


@pytest.mark.parametrize(
    ("method", "path", "field"),
    [
        ("GET", f"{MESSAGES}/x/t", "partitionId"),
        ("GET", f"{MESSAGES}/{NOBODY}/{'t' * 256}", "transactionId"),
        ("GET", f"{MESSAGES}/{NOBODY}/%2E%2E", "transactionId"),
        ("GET", f"{MESSAGES}/{'t' * 256}", "transactionId"),
        ("GET", f"{MESSAGES}/", "transactionId"),
        ("DELETE", f"{MESSAGES}/x/t", "partitionId"),
        ("DELETE", f"{MESSAGES}/{'t' * 256}", "transactionId"),
        ("DELETE", f"{MESSAGES}/{NOBODY}/a%00", "transactionId"),
        ("POST", f"{MESSAGES}/x/t/dlq", "partitionId"),
        ("POST", f"{MESSAGES}/{NOBODY}/t/dlq?consumerGroup=..", "consumerGroup"),
        ("POST", f"{MESSAGES}/{'t' * 256}/dlq", "transactionId"),
        ("POST", f"{MESSAGES}/x/t/retry", "partitionId"),
        ("DELETE", "/api/v1/queues/%2E/clear", "queue"),
        ("DELETE", "/api/v1/queues/q/clear?partition=", "partition"),
        ("DELETE", "/api/v1/queues/q/clear?partitoin=p", "partitoin"),
        ("DELETE", f"/api/v1/queues/q/clear?partition={'p' * 256}", "partition"),
        ("DELETE", "/api/v1/resources/queues/q/partitions/..", "partition"),
        ("DELETE", f"/api/v1/resources/queues/{'q' * 256}/partitions/p", "queue"),
    ],
)
def test_a_path_that_makes_no_sense_is_refused(http, method, path, field):
    """INV-NO-500: and nothing is touched."""
    fill(http, "q", "t")
    answer = http.call(method, path)
    body = answer.get_json()
    assert (answer.status_code, body["code"], body["field"]) == (400, "INVALID_REQUEST", field)
    assert names(http) == ["t"]


# ------------------------------------------------------------------------------- by hand


def test_a_deleted_message_is_gone(http):
    """C-16: with its dead letters and its traces."""
    (receipt,) = http.push("q", 1, transactionId="t")
    http.ack(http.pop("q")["messages"][0], "dlq")
    answer = http.delete(path_of(receipt))
    assert (answer.status_code, answer.get_json()) == (
        200,
        {
            "success": True,
            "deleted": True,
            "partitionId": receipt["partitionId"],
            "transactionId": "t",
            "message": "Message deleted successfully",
        },
    )
    assert http.get("/api/v1/dlq").get_json()["total"] == 0
    answer = http.delete(path_of(receipt))
    assert (answer.status_code, answer.get_json()) == (
        404,
        {
            "success": False,
            "deleted": False,
            "partitionId": receipt["partitionId"],
            "transactionId": "t",
            "message": "Message not found",
            "error": "Message not found",
            "code": "MESSAGE_NOT_FOUND",
        },
    )


def test_a_message_is_dead_lettered_by_hand(http):
    """For all groups that have it still to settle, or for one. INV-DLQ."""
    (receipt,) = http.push("q", 1, transactionId="t")
    for group in ("g", "h", "done"):
        http.pop("q", "none", consumerGroup=group)
    http.pop("q", consumerGroup="done", autoAck="true")
    answer = http.post(f"{path_of(receipt, 'dlq')}?consumerGroup=g")
    assert (answer.status_code, answer.get_json()) == (
        200,
        {
            "success": True,
            "movedToDLQ": True,
            "transactionId": "t",
            "partitionId": receipt["partitionId"],
            "count": 1,
        },
    )
    answer = http.post(path_of(receipt, "dlq"), {"error": "by hand"})
    assert answer.get_json()["count"] == 1
    dead = http.get("/api/v1/dlq").get_json()["messages"]
    assert {letter["consumerGroup"]: letter["errorMessage"] for letter in dead} == {
        "g": None,
        "h": "by hand",
    }
    answer = http.post(path_of(receipt, "dlq"))
    assert (answer.status_code, answer.get_json()["code"]) == (409, "CONFLICT")


@pytest.mark.parametrize("body", [b"", b"{}", b"[]", b'{"consumerGroup":null,"error":null}'])
def test_dead_lettering_needs_no_body(http, body):
    (receipt,) = http.push("q", 1)
    http.pop("q", "none")
    assert http.send(path_of(receipt, "dlq"), body).status_code == 200


@pytest.mark.parametrize(
    ("body", "field"),
    [
        (b"{", "body"),
        (b"5", "body"),
        (b'{"consumerGroup":5}', "consumerGroup"),
        (b'{"consumerGroup":".."}', "consumerGroup"),
        (b'{"error":{}}', "error"),
    ],
)
def test_dead_lettering_that_cannot_be_read_changes_nothing(http, body, field):
    (receipt,) = http.push("q", 1)
    http.pop("q", "none")
    answer = http.send(path_of(receipt, "dlq"), body)
    assert (answer.status_code, answer.get_json()["field"]) == (400, field)
    assert http.pop("q") is not None


def test_what_is_not_there_cannot_be_dead_lettered(http):
    (receipt,) = http.push("q", 1)
    for path in (path_of(receipt | {"transactionId": "none"}, "dlq"), f"{MESSAGES}/none/dlq"):
        answer = http.post(path)
        assert (answer.status_code, answer.get_json()["code"]) == (404, "MESSAGE_NOT_FOUND")


def test_a_failed_message_loses_its_delay_and_nothing_else(http):
    """C-01, C-02."""
    http.configure("q", retryDelay=3_600_000)
    receipts = fill(http, "q", "bad", "next")
    http.ack(http.pop("q")["messages"][0], "failed", error="why")
    assert http.pop("q") is None
    answer = http.post(path_of(receipts[0], "retry"))
    assert (answer.status_code, answer.get_json()["retried"]) == (200, True)
    bad, following = http.pop("q", batch=9)["messages"]
    assert (bad["data"], bad["retryCount"], bad["errorMessage"]) == ("bad", 1, "why")
    assert following["data"] == "next"


def test_a_retry_can_leave_dead_letters_where_they_are(http):
    http.configure("q", retryDelay=3_600_000)
    receipts = fill(http, "q", "dead", "bad")
    for message, outcome in zip(http.pop("q", batch=2)["messages"], ("dlq", "failed"), strict=True):
        http.ack(message, outcome)
    answers = [http.post(f"{path_of(each, 'retry')}?deadLetters=false") for each in receipts]
    assert [answer.status_code for answer in answers] == [409, 200]
    assert http.get("/api/v1/dlq").get_json()["total"] == 1
    missing = path_of(receipts[0] | {"transactionId": "none"}, "retry")
    assert http.post(f"{missing}?deadLetters=false").status_code == 404


def test_a_dead_letter_is_retried_by_name_when_its_message_is_gone(http):
    """C-12: it comes from its own copy."""
    fill(http, "q", "t")
    http.ack(http.pop("q")["messages"][0], "dlq")
    assert http.delete("/api/v1/queues/q/clear").get_json()["count"] == 1
    assert http.get(f"{MESSAGES}/t").status_code == 404
    assert http.post(f"{MESSAGES}/t/retry").get_json()["retried"]
    assert http.pop("q")["messages"][0]["data"] == "t"
    answer = http.post(f"{MESSAGES}/nobody/retry")
    assert (answer.status_code, answer.get_json()["code"]) == (404, "MESSAGE_NOT_FOUND")


# ------------------------------------------------------------------------------ clearing


def test_a_queue_is_cleared(http):
    fill(http, "q", "a", "b", partition="p")
    fill(http, "q", "c")
    answer = http.delete("/api/v1/queues/q/clear?partition=p")
    assert (answer.status_code, answer.get_json()) == (
        200,
        {"cleared": True, "count": 2, "queue": "q", "partition": "p"},
    )
    answer = http.delete("/api/v1/queues/q/clear")
    assert answer.get_json() == {"cleared": True, "count": 1, "queue": "q", "partition": "all"}
    assert names(http) == []


def test_what_does_not_exist_is_not_cleared(http):
    http.configure("q")
    answer = http.delete("/api/v1/queues/q/clear?partition=none")
    assert (answer.status_code, answer.get_json()["code"]) == (404, "PARTITION_NOT_FOUND")
    answer = http.delete("/api/v1/queues/none/clear")
    assert (answer.status_code, answer.get_json()["code"]) == (404, "QUEUE_NOT_FOUND")


def test_a_partition_is_deleted(http):
    (receipt,) = fill(http, "q", "a", partition="p")
    path = "/api/v1/resources/queues/q/partitions/p"
    for existed in (True, False):
        answer = http.delete(path)
        assert (answer.status_code, answer.get_json()) == (
            200,
            {"deleted": True, "queue": "q", "partition": "p", "existed": existed},
        )
    assert http.get(path_of(receipt)).status_code == 404
    assert http.push("q", 1, partition="p")[0]["partitionId"] != receipt["partitionId"]


@pytest.mark.parametrize(
    ("feature", "calls"),
    [
        (
            "messages",
            [
                ("GET", MESSAGES),
                ("GET", f"{MESSAGES}/t"),
                ("GET", f"{MESSAGES}/{NOBODY}/t"),
                ("GET", "/api/v1/status/queues/q/messages"),
            ],
        ),
        (
            "cleanup",
            [
                ("DELETE", f"{MESSAGES}/{NOBODY}/t"),
                ("POST", f"{MESSAGES}/{NOBODY}/t/dlq"),
                ("POST", f"{MESSAGES}/{NOBODY}/t/retry?deadLetters=false"),
                ("DELETE", "/api/v1/queues/q/clear"),
                ("DELETE", "/api/v1/resources/queues/q/partitions/p"),
            ],
        ),
    ],
)
def test_what_a_store_does_not_offer_is_refused_by_name(http, backend, feature, calls):
    """O-14."""
    fill(http, "q", "t")
    backend.capabilities = msgspec.structs.replace(
        backend.capabilities, features=backend.capabilities.features - {feature}
    )
    for method, path in calls:
        answer = http.call(method, path)
        assert (answer.status_code, answer.get_json()["feature"]) == (409, feature)
