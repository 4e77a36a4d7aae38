"""What the generator sends and reads: of this server, and of others that speak the wire."""

from __future__ import annotations

import json

import pytest

from queen_sync.bench.connection import Answer, Lost, parse
from queen_sync.bench.plan import Plan
from queen_sync.bench.requests import Requests, read_pop, refusal

CHUNKED = b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n"


def plan(**more):
    usual = {
        "target": "http://127.0.0.1:1/base%20",
        "queue": "q",
        "operation": "push",
        "batch": 2,
        "connections": 1,
        "partitions": 3,
        "payload_bytes": 60,
        "seconds": 1,
    }
    return Plan(**{**usual, **more})


def body_of(request):
    head, _, body = request.partition(b"\r\n\r\n")
    assert f"Content-Length: {len(body)}".encode() in head
    assert head.startswith(b"POST /base%20/api/v1/")
    return json.loads(body)


@pytest.mark.parametrize(
    ("received", "answer"),
    [
        (b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\nX: y\r\n\r\n{}", Answer(200, b"{}")),
        (b"HTTP/1.1 200 OK\r\nX: y\r\ncontent-length:0\r\n\r\n", Answer(200, b"")),
        (b"HTTP/1.1 204 No Content\r\n\r\n", Answer(204, b"")),
        (CHUNKED + b"2;x=y\r\n[]\r\n1\r\n \r\n0\r\n\r\n", Answer(200, b"[] ")),
    ],
)
def test_an_answer_is_read_once_it_is_whole(received, answer):
    assert parse(received) == answer
    for end in range(len(received)):
        assert parse(received[:end]) is None


def test_an_answer_without_a_length_ends_the_connection():
    with pytest.raises(Lost):
        parse(b"HTTP/1.1 200 OK\r\n\r\n{}")


@pytest.mark.parametrize(
    "answer",
    [
        Answer(204, b""),
        Answer(200, b""),
        Answer(200, b"[]"),
        Answer(200, b"{}"),
        Answer(200, b'{"success":false,"error":"no_available_partition","messages":[]}'),
        Answer(200, b'{"success":false,"error":"lease_held","messages":[]}'),
        Answer(200, b'{"success":true,"messages":[null],"leaseId":null,"partitionId":null}'),
    ],
)
def test_an_empty_pop_has_many_forms(answer):
    popped = read_pop(answer)
    assert (popped.messages, popped.error) == ([], None)


@pytest.mark.parametrize(
    "body",
    [
        b'{"success":false,"error":"relation does not exist","messages":[]}',
        b"<html/>",
        b'{"messages":[{"id":"x"}]}',
    ],
)
def test_a_pop_that_failed_is_no_empty_one(body):
    assert read_pop(Answer(200, body)).error


def test_a_claim_comes_in_an_object_or_as_a_bare_array():
    message = '{"transactionId":"t","partitionId":"p","leaseId":"l","data":[1]}'
    for body in (f'{{"messages":[{message},null]}}', f"[{message}]"):
        (found,) = read_pop(Answer(200, body.encode())).messages
        assert (found.transaction_id, found.partition_id, found.lease_id) == ("t", "p", "l")


def test_an_ack_proves_the_lease_of_its_message_or_of_the_whole_claim():
    popped = read_pop(
        Answer(
            200,
            b'{"leaseId":"whole","messages":[{"transactionId":"a","partitionId":"p"},'
            b'{"transactionId":"b","partitionId":"p","leaseId":"own"}]}',
        )
    )
    body = body_of(Requests(plan()).ack(popped, "group-1"))
    assert [each["leaseId"] for each in body["acknowledgments"]] == ["whole", "own"]
    assert {each["status"] for each in body["acknowledgments"]} == {"completed"}
    assert body["consumerGroup"] == "group-1"


@pytest.mark.parametrize(
    ("call", "answer", "wrong"),
    [
        ("push", Answer(201, b'[{"status":"queued"}]'), None),
        ("push", Answer(200, b'[{"status": "failed"}]'), "push: failed"),
        ("push", Answer(200, b'[{"status":"buffered"}]'), "push: buffered"),
        ("push", Answer(201, b'[{"status":"duplicate"}]'), "push: duplicate"),
        ("push", Answer(429, b"{}"), "push: HTTP 429"),
        ("ack", Answer(200, b'[{"success":true},{"success": false}]'), "ack: refused"),
        ("ack", Answer(200, b'[{"success":true}]'), None),
        ("pop", Answer(200, b'{"success":false,"messages":[]}'), None),
        ("pop", Answer(503, b""), "pop: HTTP 503"),
    ],
)
def test_an_error_is_found_in_the_status_or_in_the_body(call, answer, wrong):
    assert refusal(call, answer) == wrong


@pytest.mark.parametrize("partitions", [3, 100_000])
def test_pushes_go_round_the_partitions(partitions):
    """Kept ready, and put together as needed where they would be too many."""
    requests = Requests(plan(partitions=partitions, payload_bytes=2000))
    for number in (0, 1, partitions + 2):
        items = body_of(requests.push(number))["items"]
        assert [item["partition"] for item in items] == [f"lane-{number % partitions:06}"] * 2
        assert "transactionId" not in items[0]


def test_named_messages_are_never_named_twice():
    one, two = Requests(plan(named=True)), Requests(plan(named=True))
    names = [
        item["transactionId"]
        for requests in (one, two)
        for number in range(5)
        for item in body_of(requests.push(number))["items"]
    ]
    assert len(names) == len(set(names)) == 20


def test_partitions_are_made_many_at_a_time():
    items = body_of(Requests(plan()).make_lanes(range(3)))["items"]
    assert [item["partition"] for item in items] == ["lane-000000", "lane-000001", "lane-000002"]
