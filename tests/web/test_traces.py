"""Notes about messages over HTTP: filed, and found by message or by name."""

from urllib.parse import quote

import msgspec
import pytest

TRACES = "/api/v1/traces"
NOBODY = "00000000-1000-8000-8000-000000000000"
ODD_NAMES = ["a b", "a/b", "ü 漢", "100%", "%2F", "+", "names", "by-name", '"']


def file_note(http, message, **body):
    place = {key: message[key] for key in ("transactionId", "partitionId")}
    answer = http.post(TRACES, {**place, "data": {"n": 1}, **body})
    assert answer.status_code == 201, answer.get_json()
    assert answer.get_json().keys() == {"success", "traceId"}
    assert answer.get_json()["success"] is True
    return answer.get_json()["traceId"]


def about(http, message):
    path = f"{TRACES}/{message['partitionId']}/{quote(message['transactionId'], safe='')}"
    answer = http.get(path)
    assert answer.status_code == 200, answer.get_json()
    assert answer.get_json().keys() == {"traces"}
    return answer.get_json()["traces"]


def named(http, name, **query):
    answer = http.get(f"{TRACES}/by-name/{quote(name, safe='')}", query_string=query)
    assert answer.status_code == 200, answer.get_json()
    return answer.get_json()


@pytest.fixture
def receipt(http):
    return http.push("q", {"n": 1}, partition="p", transactionId="t")[0]


def test_a_note_is_found_by_its_message_and_by_its_names(http, clock, receipt):
    """Every key as clients know it."""
    clock.advance(0.25)
    trace_id = file_note(
        http, receipt, consumerGroup="g", traceNames=["a", "b"], eventType="step", data=[1, None]
    )
    note = {
        "id": trace_id,
        "event_type": "step",
        "data": [1, None],
        "consumer_group": "g",
        "worker_id": None,
        "created_at": "2026-01-01T00:00:00.250000Z",
        "trace_names": ["a", "b"],
        "message_id": receipt["id"],
        "transaction_id": "t",
        "partition_id": receipt["partitionId"],
        "queue_name": "q",
        "partition_name": "p",
    }
    assert about(http, receipt) == [note]
    for name in ("a", "b"):
        assert named(http, name) == {
            "traces": [note | {"message_payload": {"n": 1}}],
            "total": 1,
            "pagination": {"limit": 100, "offset": 0, "total": 1},
        }


@pytest.mark.parametrize(
    ("body", "shown"),
    [
        ({}, {}),
        ({"consumerGroup": None, "traceNames": None, "eventType": None}, {}),
        ({"consumerGroup": "", "eventType": ""}, {}),
        ({"consumerGroup": "__QUEUE_MODE__", "traceNames": []}, {}),
        ({"traceNames": "one"}, {"trace_names": ["one"]}),
        ({"traceNames": ["a", "b", "a"]}, {"trace_names": ["a", "b"]}),
        ({"data": None}, {"data": None}),
        ({"data": "text"}, {"data": "text"}),
    ],
    ids=str,
)
def test_what_a_note_does_not_say_has_a_usual_value(http, receipt, body, shown):
    file_note(http, receipt, **body)
    (note,) = about(http, receipt)
    expected = {
        "event_type": "info",
        "data": {"n": 1},
        "consumer_group": "__QUEUE_MODE__",
        "trace_names": [],
    } | shown
    assert {key: note[key] for key in expected} == expected


def test_the_data_of_a_note_comes_back_byte_for_byte(http, receipt):
    """C-10, as payloads do."""
    text = b'{"n": 1.10,"n":1e999, "s":"\\u0000"}'
    place = {key: receipt[key] for key in ("transactionId", "partitionId")}
    body = msgspec.json.encode({**place, "traceNames": "a", "data": msgspec.Raw(text)})
    assert http.send(TRACES, body).status_code == 201
    for path in (f"{receipt['partitionId']}/t", "by-name/a"):
        assert b'"data":' + text in http.get(f"{TRACES}/{path}").get_data()


def test_notes_of_a_message_are_listed_oldest_first(http, clock, receipt):
    filed = []
    for _ in range(3):
        filed.append(file_note(http, receipt))
        clock.advance(1)
    assert [note["id"] for note in about(http, receipt)] == filed
    by_id = receipt | {"transactionId": receipt["id"]}
    assert [note["id"] for note in about(http, by_id)] == filed
    assert about(http, receipt | {"transactionId": "none"}) == []
    assert about(http, receipt | {"partitionId": NOBODY}) == []


def test_notes_of_a_name_come_in_pages_over_all_queues(http, clock):
    filed = []
    for n in range(5):
        (receipt,) = http.push(f"q{n % 2}", n)
        filed.append(file_note(http, receipt, traceNames="a"))
        clock.advance(1)
    pages = [named(http, "a", limit=2, offset=offset) for offset in (0, 2, 4, 6)]
    assert [[note["id"] for note in page["traces"]] for page in pages] == [
        filed[:2],
        filed[2:4],
        filed[4:],
        [],
    ]
    assert [page["total"] for page in pages] == [5] * 4
    assert pages[1]["pagination"] == {"limit": 2, "offset": 2, "total": 5}
    assert [note["message_payload"] for note in pages[1]["traces"]] == [2, 3]
    span = {"from": "2026-01-01T00:00:01Z", "to": "2026-01-01T00:00:03Z"}
    assert [note["id"] for note in named(http, "a", **span)["traces"]] == filed[1:4]
    assert named(http, "nothing") == {
        "traces": [],
        "total": 0,
        "pagination": {"limit": 100, "offset": 0, "total": 0},
    }


def test_names_are_counted_the_last_used_first(http, clock, receipt):
    (other,) = http.push("q", 2)
    for message, names in ((receipt, ["a"]), (receipt, ["a", "b"]), (other, ["b"])):
        clock.advance(1)
        file_note(http, message, traceNames=names)
    assert http.get(f"{TRACES}/names").get_json() == {
        "trace_names": [
            {
                "trace_name": "b",
                "trace_count": 2,
                "message_count": 2,
                "last_seen": "2026-01-01T00:00:03.000000Z",
            },
            {
                "trace_name": "a",
                "trace_count": 2,
                "message_count": 1,
                "last_seen": "2026-01-01T00:00:02.000000Z",
            },
        ],
        "total": 2,
        "pagination": {"limit": 50, "offset": 0, "total": 2},
    }
    page = http.get(f"{TRACES}/names?limit=1&offset=1").get_json()
    assert [found["trace_name"] for found in page["trace_names"]] == ["a"]
    assert page["pagination"] == {"limit": 1, "offset": 1, "total": 2}


@pytest.mark.parametrize("name", ODD_NAMES)
def test_any_name_names_a_note_and_a_message(http, name):
    """C-18."""
    (receipt,) = http.push("q", 1, transactionId=name)
    trace_id = file_note(http, receipt, traceNames=[name], eventType=name, consumerGroup=name)
    (note,) = about(http, receipt)
    assert note["id"] == trace_id
    assert (note["event_type"], note["consumer_group"]) == (name, name)
    assert [note["id"] for note in named(http, name)["traces"]] == [trace_id]


def test_a_note_goes_with_its_message(http, receipt):
    file_note(http, receipt, traceNames="a")
    http.delete(f"/api/v1/messages/{receipt['partitionId']}/t")
    assert (about(http, receipt), named(http, "a")["traces"]) == ([], [])
    assert http.get(f"{TRACES}/names").get_json()["total"] == 0


@pytest.mark.parametrize(
    ("body", "field", "text"),
    [
        ({"transactionId": None}, "transactionId", "transactionId and partitionId are required"),
        ({"transactionId": ""}, "transactionId", "transactionId and partitionId are required"),
        ({"partitionId": None}, "partitionId", "transactionId and partitionId are required"),
        ({"partitionId": "x"}, "partitionId", "partitionId must be a UUID"),
        ({"transactionId": "t" * 256}, "transactionId", "exceeds 255"),
        ({"transactionId": 5}, "transactionId", "must be a string"),
        ({"traceNames": [""]}, "traceNames", "required"),
        ({"traceNames": "n" * 256}, "traceNames", "exceeds 255"),
        ({"traceNames": ["a", 5]}, "traceNames", "wrong type"),
        ({"traceNames": 5}, "traceNames", "traceNames must be"),
        ({"traceNames": ["n"] * 101}, "traceNames", "at most 100"),
        ({"eventType": ".."}, "eventType", "may not be"),
        ({"eventType": 5}, "eventType", "eventType must be"),
        ({"consumerGroup": "."}, "consumerGroup", "may not be"),
        ({"consumerGroup": {}}, "consumerGroup", "consumerGroup must be"),
    ],
    ids=str,
)
def test_a_note_that_makes_no_sense_is_refused(http, receipt, body, field, text):
    """INV-NO-500: by the name of the key, and nothing is filed."""
    place = {key: receipt[key] for key in ("transactionId", "partitionId")}
    answer = http.post(TRACES, {**place, "data": 1, "traceNames": "a", **body})
    found = answer.get_json()
    assert (answer.status_code, found["code"], found["field"]) == (400, "INVALID_REQUEST", field)
    assert text in found["error"]
    assert about(http, receipt) == []


@pytest.mark.parametrize(
    ("body", "field"),
    [
        (b"", "body"),
        (b"{", "body"),
        (b"[]", "transactionId"),
        (b'{"transactionId":"t","partitionId":"%b"}' % NOBODY.encode(), "data"),
        (b'{"transactionId":"t","partitionId":"%b","data":NaN}' % NOBODY.encode(), "body"),
        (b'{"transactionId":"t","partitionId":"%b","data":"\xff"}' % NOBODY.encode(), "body"),
        (
            b'{"transactionId":"t","partitionId":"%b","data":%b}'
            % (NOBODY.encode(), b"[" * 513 + b"]" * 513),
            "data",
        ),
    ],
)
def test_a_body_that_cannot_be_read_files_nothing(http, body, field):
    """C-10."""
    answer = http.send(TRACES, body)
    assert (answer.status_code, answer.get_json()["field"]) == (400, field)


def test_a_note_needs_its_message(http, receipt):
    for place in ({"transactionId": "none"}, {"partitionId": NOBODY}):
        body = {"transactionId": "t", "partitionId": receipt["partitionId"], "data": 1, **place}
        answer = http.post(TRACES, body)
        assert (answer.status_code, answer.get_json()) == (
            404,
            {"success": False, "error": "Message not found", "code": "MESSAGE_NOT_FOUND"},
        )


@pytest.mark.parametrize(
    ("path", "field"),
    [
        (f"{TRACES}/x/t", "partitionId"),
        (f"{TRACES}/{NOBODY}/{'t' * 256}", "transactionId"),
        (f"{TRACES}/by-name/%2E%2E", "traceName"),
        (f"{TRACES}/by-name/", "traceName"),
        (f"{TRACES}/by-name/a?limit=0", "limit"),
        (f"{TRACES}/by-name/a?offset=-1", "offset"),
        (f"{TRACES}/by-name/a?from=x", "from"),
        (f"{TRACES}/by-name/a?to=x", "to"),
        (f"{TRACES}/names?limit=-5", "limit"),
        (f"{TRACES}/names?offset=100001", "offset"),
    ],
)
def test_a_look_up_that_makes_no_sense_is_refused(http, path, field):
    answer = http.get(path)
    body = answer.get_json()
    assert (answer.status_code, body["code"], body["field"]) == (400, "INVALID_REQUEST", field)


def test_a_store_without_traces_refuses_them_by_name(http, backend, receipt):
    """O-14."""
    backend.capabilities = msgspec.structs.replace(
        backend.capabilities, features=backend.capabilities.features - {"traces"}
    )
    place = {key: receipt[key] for key in ("transactionId", "partitionId")}
    for answer in (
        http.post(TRACES, {**place, "data": 1}),
        http.get(f"{TRACES}/{receipt['partitionId']}/t"),
        http.get(f"{TRACES}/by-name/a"),
        http.get(f"{TRACES}/names"),
    ):
        assert (answer.status_code, answer.get_json()["feature"]) == (409, "traces")
