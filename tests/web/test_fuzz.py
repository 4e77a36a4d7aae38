"""Arbitrary bodies and queries: never a 5xx, and nothing done that was refused."""

from typing import Any

import msgspec
import pytest
from hypothesis import HealthCheck, given, settings, strategies as st

from queen_sync import model as m

KEYS = st.sampled_from(
    [
        "items", "queue", "partition", "payload", "data", "transactionId", "traceId", "config",
        "autoCreate", "acknowledgments", "consumerGroup", "partitionId", "status", "leaseId",
        "error", "operations", "type", "requiredLeases", "kv", "options", "namespace", "task",
        "leaseTime", "maxSize", "requireLeaseId", "seconds", "subscriptionTimestamp",
        "toStart", "toEnd", "timestamp", "from", "to", "traceNames", "eventType",
    ]
)  # fmt: skip
LEAVES = (
    st.none()
    | st.booleans()
    | st.integers(-(10**30), 10**30)
    | st.floats(allow_nan=False, allow_infinity=False)
    | st.sampled_from(["", "q", "push", "ack", "completed", "\0", "..", "x" * 256, "__system_"])
    | st.sampled_from(["0192aaaa-0000-8000-8000-00000000abcd", "2026-01-01T00:00:00Z"])
    | st.text(max_size=8)
)
VALUES = st.recursive(
    LEAVES,
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(KEYS, inner, max_size=6),
    max_leaves=25,
)
ITEM = st.fixed_dictionaries(
    {"queue": st.just("q")}, optional={"payload": VALUES, "partition": LEAVES}
)
ACK = st.fixed_dictionaries(
    {"transactionId": LEAVES}, optional={"status": LEAVES, "leaseId": LEAVES}
)
SEEK = st.fixed_dictionaries({}, optional={"toStart": LEAVES, "toEnd": LEAVES, "timestamp": LEAVES})
NEARLY = {
    "/api/v1/configure": st.fixed_dictionaries(
        {"queue": st.just("q")}, optional={"options": VALUES, "task": LEAVES}
    ),
    "/api/v1/push": st.fixed_dictionaries({"items": st.lists(ITEM | VALUES, max_size=3)}),
    "/api/v1/ack": ACK,
    "/api/v1/ack/batch": st.fixed_dictionaries(
        {"acknowledgments": st.lists(ACK | VALUES, max_size=3)}, optional={"consumerGroup": LEAVES}
    ),
    "/api/v1/transaction": st.fixed_dictionaries(
        {
            "operations": st.lists(
                st.fixed_dictionaries(
                    {"type": st.just("push"), "items": st.lists(ITEM, max_size=2)}
                )
                | ACK.map(lambda ack: {"type": "ack", **ack})
                | VALUES,
                max_size=3,
            )
        },
        optional={"requiredLeases": VALUES},
    ),
    "/api/v1/lease/x/extend": st.fixed_dictionaries({}, optional={"seconds": VALUES}),
    "/api/v1/consumer-groups/g/subscription": st.fixed_dictionaries(
        {}, optional={"subscriptionTimestamp": VALUES}
    ),
    "/api/v1/consumer-groups/g/queues/q/seek": SEEK,
    "/api/v1/consumer-groups/g/queues/q/partitions/Default/seek": SEEK,
    "/api/v1/dlq/redrive": st.dictionaries(
        st.sampled_from(["queue", "consumerGroup", "partition", "partitionId", "from", "to"]),
        LEAVES,
    ),
    "/api/v1/messages/0192aaaa-0000-8000-8000-00000000abcd/t/retry": st.fixed_dictionaries(
        {}, optional={"consumerGroup": VALUES}
    ),
    "/api/v1/messages/t/dlq": st.fixed_dictionaries(
        {}, optional={"consumerGroup": VALUES, "error": LEAVES}
    ),
    "/api/v1/traces": st.fixed_dictionaries(
        {
            "transactionId": LEAVES,
            "partitionId": st.just("0192aaaa-0000-8000-8000-00000000abcd"),
            "data": VALUES,
        },
        optional={"traceNames": VALUES, "eventType": LEAVES, "consumerGroup": LEAVES},
    ),
}

FUZZ = settings(
    max_examples=150,
    deadline=None,
    suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow],
)


def _stored(backend) -> tuple[Any, list[m.Queue]]:
    return backend.check()["messages"], list(backend.queues())


@pytest.mark.parametrize("route", NEARLY)
def test_no_json_body_is_a_bug_and_none_that_is_refused_does_anything(http, backend, route):
    """C-10, C-11."""

    @FUZZ
    @given(body=NEARLY[route] | VALUES)
    def check(body):
        before = _stored(backend)
        answer = http.send(route, msgspec.json.encode(body))
        assert answer.status_code < 500
        if answer.status_code >= 400:
            assert answer.get_json()["code"]
            assert _stored(backend) == before
        elif route.endswith("transaction") and not answer.get_json()["success"]:
            assert _stored(backend) == before

    check()


@pytest.mark.parametrize("route", NEARLY)
def test_no_bytes_are_a_bug(http, backend, route):
    @FUZZ
    @given(body=st.binary(max_size=60))
    def check(body):
        before = _stored(backend)
        answer = http.send(route, body)
        assert answer.status_code < 500
        assert _stored(backend) == before

    check()


@FUZZ
@given(
    query=st.dictionaries(
        st.sampled_from(
            ["batch", "partitions", "consumerGroup", "autoAck", "subscriptionMode",
             "subscriptionFrom", "from", "to", "limit", "offset", "queue", "attemptId",
             "namespace", "task", "partitionId", "transactionId", "ns", "status", "traceId",
             "cursor", "lastCreatedAt", "lastId"]
        ),
        st.text(max_size=12) | st.integers(-(10**25), 10**25).map(str) | st.just("2026-01-01"),
    ),
    path=st.sampled_from(
        [
            "/api/v1/pop/queue/q", "/api/v1/pop", "/api/v1/dlq", "/api/v1/messages",
            "/api/v1/status/queues/q/messages", "/api/v1/traces/by-name/a", "/api/v1/traces/names",
        ]
    ),
)  # fmt: skip
def test_no_query_is_a_bug(http, query, path):
    assert http.get(path, query_string=query).status_code < 500


@FUZZ
@given(
    path=st.text(alphabet="/%20ABCFfqaé\0\n.?#*", max_size=20),
    prefix=st.sampled_from(
        [
            "/",
            "/api/v1/pop/queue/",
            "/api/v1/pop/ns/",
            "/api/v1/consumer-groups/",
            "/api/v1/messages/",
            "/api/v1/traces/",
        ]
    ),
    method=st.sampled_from(["GET", "HEAD", "POST", "DELETE", "PUT", "PATCH", "OPTIONS"]),
)
def test_no_path_is_a_bug(http, prefix, path, method):
    raw = (prefix + path).encode().decode("latin-1")
    answer = http.call(method, "/", environ_overrides={"RAW_URI": raw, "REQUEST_URI": raw})
    assert answer.status_code < 500
