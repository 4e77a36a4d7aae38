"""POST /api/v1/push."""

import pytest

ROUTE = "/api/v1/push"


def test_a_push_is_answered_in_order_with_every_spelling_of_its_keys(http):
    """INV-DEDUP: a duplicate carries the id of the first."""
    answer = http.post(
        ROUTE,
        {
            "items": [
                {"queue": "q", "payload": 1, "transactionId": "a"},
                {"queue": "q", "payload": 2},
                {"queue": "q", "payload": 3, "transactionId": "a"},
            ]
        },
    )
    assert answer.status_code == 201
    receipts = answer.get_json()
    assert [r["status"] for r in receipts] == ["queued", "queued", "duplicate"]
    assert [r["index"] for r in receipts] == [0, 1, 2]
    assert receipts[2]["message_id"] == receipts[0]["message_id"]
    for receipt in receipts:
        assert receipt["id"] == receipt["messageId"] == receipt["message_id"]
        assert receipt["transactionId"] == receipt["transaction_id"]
        assert receipt["partitionId"] == receipt["partition_id"]
        assert receipt["traceId"] is receipt["trace_id"] is None
        assert receipt["queueName"] == receipt["queue"] == "q"
        assert receipt["partition"] == "Default"
        assert "error" not in receipt
        assert "queueDepth" not in receipt


def test_receipts_of_several_partitions_name_their_own(http):
    items = [{"queue": q, "partition": p, "payload": 0} for q in ("a", "b") for p in ("x", "y")]
    receipts = http.post(ROUTE, {"items": items}).get_json()
    assert [(r["queue"], r["partition"]) for r in receipts] == [
        (item["queue"], item["partition"]) for item in items
    ]
    assert len({r["partitionId"] for r in receipts}) == 4


def test_an_empty_push_is_answered_with_an_empty_array(http):
    answer = http.post(ROUTE, {"items": []})
    assert (answer.status_code, answer.get_json()) == (201, [])


def test_a_message_id_is_the_transaction_id_of_whoever_named_none(http):
    (receipt,) = http.push("q", 1, transactionId="")
    assert receipt["transactionId"] == receipt["id"]


def test_a_trace_id_comes_back_in_its_canonical_spelling(http):
    trace = "0192AAAA-0000-7000-8000-00000000ABCD"
    (receipt,) = http.push("q", 1, traceId=trace)
    assert receipt["traceId"] == trace.lower()
    assert http.pop("q")["messages"][0]["traceId"] == trace.lower()


@pytest.mark.parametrize("key", ["payload", "data"])
def test_either_key_carries_the_payload(http, key):
    http.post(ROUTE, {"items": [{"queue": "q", key: {"n": 1}}]})
    assert http.pop("q")["messages"][0]["data"] == {"n": 1}


def test_of_both_keys_the_payload_wins_also_when_it_is_null(http):
    http.post(ROUTE, {"items": [{"queue": "q", "payload": None, "data": 1}]})
    assert http.pop("q")["messages"][0]["data"] is None


def test_a_push_that_names_no_partition_goes_to_the_default_one(http):
    http.post(ROUTE, {"items": [{"queue": "q", "partition": None, "payload": 1}, {"queue": "q"}]})
    assert len(http.pop("q", "Default", batch=5)["messages"]) == 2


def test_the_same_transaction_id_in_another_partition_is_another_message(http):
    http.push("q", 1, transactionId="a", partition="x")
    (receipt,) = http.push("q", 1, transactionId="a", partition="y")
    assert receipt["status"] == "queued"


def test_a_dotted_name_gives_a_new_queue_its_labels(http):
    http.push("a.b.c", 1)
    body = http.post("/api/v1/configure", {"queue": "a.b.c"}).get_json()
    assert (body["namespace"], body["task"]) == ("a", "b")


def test_without_auto_create_a_missing_queue_is_an_error(http, backend):
    body = {"items": [{"queue": "q", "payload": 1}], "config": {"autoCreate": False}}
    answer = http.post(ROUTE, body)
    assert (answer.status_code, answer.get_json()["code"]) == (404, "QUEUE_NOT_FOUND")
    assert backend.queue("q") is None
    http.configure("q")
    assert http.post(ROUTE, body).status_code == 201


def test_a_full_queue_refuses_the_whole_push_and_says_how_full_it_is(http):
    """C-06."""
    http.configure("invoices", maxSize=2)
    http.push("invoices", 1)
    body = {"items": [{"queue": name, "payload": 0} for name in ("other", "invoices", "invoices")]}
    answer = http.post(ROUTE, body)
    assert answer.status_code == 429
    assert answer.headers["Retry-After"] == "1"
    assert answer.get_json() == {
        "error": "Queue 'invoices' would exceed max capacity (2). Current: 1, Batch: 2",
        "code": "QUEUE_FULL",
        "queue": "invoices",
        "maxQueueSize": 2,
        "queueDepth": 1,
        "remainingCapacity": 1,
        "batch": 2,
    }
    assert http.pop("other") is None
    (receipt,) = http.push("invoices", 2)
    assert (receipt["queueDepth"], receipt["remainingCapacity"]) == (2, 0)


def test_acks_make_room_in_a_full_queue(http):
    """C-06."""
    http.configure("q", maxSize=1)
    http.push("q", 1)
    http.ack(http.pop("q")["messages"][0])
    assert http.push("q", 2)[0]["status"] == "queued"


@pytest.mark.parametrize(
    ("item", "field", "text"),
    [
        ({}, "queue", "Queue must be a string"),
        ({"queue": None}, "queue", "Queue must be a string"),
        ({"queue": 5}, "queue", "Queue must be a string"),
        (7, "items", "Queue must be a string"),
        (None, "items", "Queue must be a string"),
        ({"queue": ""}, "queue", "queue is required"),
        ({"queue": "q" * 256}, "queue", "queue name exceeds 255 characters"),
        ({"queue": ".."}, "queue", "queue may not be '.' or '..' nor hold NUL"),
        ({"queue": "__system_events__"}, "queue", None),
        ({"queue": "q", "partition": 5}, "partition", "Partition must be a string"),
        ({"queue": "q", "partition": ""}, "partition", "partition is required"),
        ({"queue": "q", "partition": "a\0b"}, "partition", None),
        ({"queue": "q", "transactionId": 5}, "transactionId", "TransactionId must be a string"),
        ({"queue": "q", "transactionId": "t" * 256}, "transactionId", None),
        ({"queue": "q", "traceId": 5}, "traceId", "TraceId must be a string"),
        ({"queue": "q", "traceId": "nope"}, "traceId", "TraceId must be a UUID"),
    ],
)
def test_one_malformed_item_refuses_the_whole_push(http, backend, item, field, text):
    answer = http.post(ROUTE, {"items": [{"queue": "good", "payload": 1}, item]})
    body = answer.get_json()
    assert (answer.status_code, body["code"], body["field"]) == (400, "INVALID_REQUEST", field)
    if text is not None:
        assert body["error"] == text
    assert backend.queues() == []


@pytest.mark.parametrize("body", [{}, [], {"items": None}, {"items": {}}, {"items": "x"}, 5, None])
def test_a_push_without_items_is_refused(http, body):
    answer = http.post(ROUTE, body) if body is not None else http.send(ROUTE, b"null")
    assert answer.status_code == 400
    assert answer.get_json() == {
        "error": "items array is required",
        "code": "INVALID_REQUEST",
        "field": "items",
    }


def test_more_messages_than_a_batch_may_hold_are_refused(http, backend):
    answer = http.post(ROUTE, {"items": [{"queue": "q"}] * 10_001})
    assert (answer.status_code, answer.get_json()["field"]) == (400, "items")
    assert backend.queues() == []


# ------------------------------------------------------------------ payloads: C-10

TEXTS = [
    b"12345678901234567890123456789012345678901234567890",
    b"1e999",
    b"-0",
    b"1.10",
    b"null",
    b'""',
    b'"\\u0000"',
    b'"\\ud83d\\ude00"',
    '"grüße \U0001f451"'.encode(),
    b'{"b":1,"a":2,"b":3}',
    b'{"a" : [ 1 , 2 ] }',
    b'"' + b"x" * 100_000 + b'"',
    b"[" * 512 + b"]" * 512,
    b'{"a":' * 512 + b"1" + b"}" * 512,
    b'"' + b"[" * 600 + b'"',
]


@pytest.mark.parametrize("text", TEXTS, ids=lambda text: text[:20].decode())
def test_a_payload_comes_back_byte_for_byte(http, text):
    """C-10."""
    answer = http.send(ROUTE, b'{"items":[{"queue":"q","payload": ' + text + b" }]}")
    assert answer.status_code == 201, answer.get_data()
    raw = http.get("/api/v1/pop/queue/q").get_data()
    assert b'"data":' + text + b',"payload":' + text + b"}" in raw


BAD_TEXTS = [
    b"NaN",
    b"Infinity",
    b"-Infinity",
    b'"\\ud800"',
    b'"\\udc00"',
    b'{"\\ud800":1}',
    b'"\x01"',
    b'"\n"',
    b'"\xff"',
    b'"\xed\xa0\x80"',
    b"\xef\xbb\xbf1",
    b"01",
    b"1.",
    b"'a'",
    b"[1,]",
    b"tru",
    b"1 2",
    b"[" * 100_000 + b"]" * 100_000,
    b"",
]
TOO_DEEP = [b"[" * 513 + b"]" * 513, b'{"a":' * 513 + b"1" + b"}" * 513]


@pytest.mark.parametrize(
    ("key", "text"),
    [(key, text) for key in (b"payload", b"data", b"ignored") for text in BAD_TEXTS]
    + [(key, text) for key in (b"payload", b"data") for text in TOO_DEEP],
    ids=lambda text: repr(text[:20]),
)
def test_what_is_not_json_is_refused_and_nothing_is_stored(http, backend, key, text):
    """C-10."""
    body = b'{"items":[{"queue":"q","payload":1},{"queue":"q","' + key + b'":' + text + b"}]}"
    answer = http.send(ROUTE, body)
    assert (answer.status_code, answer.get_json()["code"]) == (400, "INVALID_REQUEST")
    assert answer.get_json()["field"] in ("payload", "body")
    assert backend.queues() == []


def test_many_flat_payloads_are_not_taken_for_a_deep_one(http):
    assert len(http.push("q", *[{"a": [1, {"b": []}]}] * 300)) == 300
