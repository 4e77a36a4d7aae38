"""POST /api/v1/consumer-groups/:group/queues/:queue[/partitions/:partition]/seek (C-20)."""

import msgspec
import pytest

GROUP = "/api/v1/consumer-groups/g"
SEEK = f"{GROUP}/queues/q/seek"
SEEK_ONE = f"{GROUP}/queues/q/partitions/x/seek"


@pytest.fixture
def read(http, clock):
    """Two partitions with a message at each of three instants, all read by the group."""
    for second in range(3):
        http.push("q", f"x{second}", partition="x")
        http.push("q", f"y{second}", partition="y")
        clock.advance(1)
    assert len(_rest(http)) == 6
    return http


def _rest(http, **query):
    """Pop what there is for the group, settled at once."""
    values = []
    while claim := http.pop("q", consumerGroup="g", autoAck="1", batch=9, partitions=9, **query):
        values += [message["data"] for message in claim["messages"]]
    return sorted(values)


@pytest.mark.parametrize(
    ("body", "found"),
    [
        ({"toStart": True}, ["x0", "x1", "x2", "y0", "y1", "y2"]),
        ({"toEnd": True}, []),
        ({"timestamp": "2026-01-01T00:00:01Z"}, ["x1", "x2", "y1", "y2"]),
        ({"timestamp": "2026-01-01T01:00:01.000001+01:00", "toEnd": False}, ["x2", "y2"]),
        ({"toStart": True, "toEnd": None, "timestamp": None}, ["x0", "x1", "x2", "y0", "y1", "y2"]),
    ],
    ids=str,
)
def test_a_group_is_moved_in_all_partitions_of_a_queue(read, body, found):
    """C-20: a time includes the messages of that instant."""
    answer = read.post(SEEK, body)
    assert answer.status_code == 200
    assert answer.get_json()["partitionsUpdated"] >= 2
    assert _rest(read) == found


def test_what_lies_before_the_new_position_is_skipped(read):
    """C-20."""
    read.push("q", "new", partition="x")
    read.post(SEEK, {"toEnd": True})
    assert _rest(read) == []
    read.push("q", "newer", partition="x")
    assert _rest(read) == ["newer"]


def test_the_answer_says_what_was_moved_and_where_to(read):
    answer = read.post(SEEK, {"timestamp": "2026-01-01T00:00:01Z"}).get_json()
    assert answer.pop("partitionsUpdated") >= 2
    assert answer == {
        "success": True,
        "consumerGroup": "g",
        "queueName": "q",
        "seekToStart": False,
        "seekToEnd": False,
        "targetTimestamp": "2026-01-01T00:00:01.000000Z",
    }


@pytest.mark.parametrize(
    ("body", "moved_to", "found"),
    [
        (b"", "end", []),
        (b"{}", "end", []),
        (b"[]", "end", []),
        (b'{"toStart":true}', "start", ["x0", "x1", "x2"]),
        (b'{"timestamp":"2026-01-01T00:00:02Z"}', "2026-01-01T00:00:02.000000Z", ["x2"]),
    ],
)
def test_one_partition_is_moved_alone_and_to_its_end_where_nothing_is_said(
    read, body, moved_to, found
):
    read.post(SEEK, {"toEnd": True})
    answer = read.send(SEEK_ONE, body)
    assert answer.get_json() == {
        "success": True,
        "consumerGroup": "g",
        "queueName": "q",
        "partitionName": "x",
        "seekToStart": moved_to == "start",
        "seekToEnd": moved_to == "end",
        "targetTimestamp": None if moved_to in ("start", "end") else moved_to,
        "partitionsUpdated": 1,
        "updated": True,
        "cursorMovedTo": moved_to,
    }
    assert _rest(read) == found


def test_a_seek_ends_the_leases_of_the_group(http):
    """C-20: what was popped before can be acked no more."""
    http.push("q", 1)
    (message,) = http.pop("q", consumerGroup="g")["messages"]
    http.post(SEEK, {"toStart": True})
    assert http.ack(message)["code"] == "LEASE_LOST"
    assert http.pop("q", consumerGroup="g")["messages"][0]["data"] == 1


def test_queue_mode_can_be_moved_as_well(http):
    http.push("q", 1)
    assert http.pop("q", autoAck="true")
    answer = http.post("/api/v1/consumer-groups/__QUEUE_MODE__/queues/q/seek", {"toStart": True})
    assert answer.get_json()["consumerGroup"] == "__QUEUE_MODE__"
    assert http.pop("q") is not None


@pytest.mark.parametrize(
    ("body", "field"),
    [
        (b"", "timestamp"),
        (b"{}", "timestamp"),
        (b'{"toEnd":false}', "timestamp"),
        (b'{"timestamp":""}', "timestamp"),
        (b'{"toEnd":true,"toStart":true}', "timestamp"),
        (b'{"toEnd":true,"timestamp":"2026-01-01T00:00:00Z"}', "timestamp"),
        (b'{"timestamp":"soon"}', "timestamp"),
        (b'{"timestamp":1767225600000}', "timestamp"),
        (b'{"toEnd":"true"}', "toEnd"),
        (b'{"toStart":1}', "toStart"),
        (b"5", "body"),
        (b"{", "body"),
    ],
)
def test_a_seek_without_one_clear_target_moves_nothing(read, body, field):
    answer = read.send(SEEK, body)
    assert (answer.status_code, answer.get_json()["field"]) == (400, field)
    assert _rest(read) == []


@pytest.mark.parametrize(
    ("path", "code"),
    [
        (f"{GROUP}/queues/none/seek", "QUEUE_NOT_FOUND"),
        (f"{GROUP}/queues/none/partitions/x/seek", "QUEUE_NOT_FOUND"),
        (f"{GROUP}/queues/q/partitions/none/seek", "PARTITION_NOT_FOUND"),
    ],
)
def test_what_does_not_exist_cannot_be_moved_in(read, path, code):
    answer = read.post(path, {"toEnd": True})
    assert (answer.status_code, answer.get_json()["code"]) == (404, code)


@pytest.mark.parametrize("name", ["x" * 256, "%00", "..", ""])
def test_the_names_of_a_seek_obey_the_rule_of_names(http, name):
    """C-18."""
    for path, field in (
        (f"/api/v1/consumer-groups/{name}/queues/q/seek", "consumerGroup"),
        (f"{GROUP}/queues/{name}/seek", "queue"),
        (f"{GROUP}/queues/q/partitions/{name}/seek", "partition"),
    ):
        answer = http.post(path, {"toEnd": True})
        assert (answer.status_code, answer.get_json()["field"]) == (400, field)


def test_a_backend_without_seek_refuses_it_by_name(read, backend):
    """O-14."""
    backend.capabilities = msgspec.structs.replace(
        backend.capabilities, features=backend.capabilities.features - {"seek"}
    )
    answer = read.post(SEEK, {"toStart": True})
    body = answer.get_json()
    assert (answer.status_code, body["code"], body["feature"]) == (409, "NOT_SUPPORTED", "seek")
    assert _rest(read) == []
