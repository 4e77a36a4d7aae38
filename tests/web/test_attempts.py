"""Attempt ids: a pop that is repeated gets the same claim (C-13)."""

import time
from concurrent.futures import Future, ThreadPoolExecutor

import msgspec
import pytest

from queen_sync import model as m
from queen_sync.backends.memory import MemoryBackend
from queen_sync.broker import Broker
from queen_sync.config import Settings

POP = "/api/v1/pop/queue/q"
LONG = 20.0
SOON = 0.3


def _ids(claim):
    return [message["id"] for message in claim["messages"]]


@pytest.mark.parametrize("path", [POP, "/api/v1/pop", "/api/v1/pop/ns/n"])
def test_a_repeated_pop_gets_the_same_claim_and_no_second_one(http, path):
    """C-13: whatever else it asks for."""
    http.post("/api/v1/configure", {"queue": "q", "namespace": "n"})
    for partition in "xyz":
        http.push("q", 1, 2, partition=partition)

    def pop(**query):
        return http.get(path, query_string={"namespace": "n", **query}).get_json()

    first = pop(attemptId="a", batch=2)
    assert pop(attemptId="a", batch=9, partitions=3) == first
    other = pop(attemptId="b", batch=2)
    assert other["leaseId"] != first["leaseId"]
    assert other["partition"] != first["partition"]


def test_a_repeat_carries_what_is_still_open(http):
    """C-13."""
    http.push("q", 1, 2, 3)
    claim = http.pop("q", attemptId="a", batch=3)
    http.ack(claim["messages"][1])
    again = http.pop("q", attemptId="a", batch=3)
    assert again["leaseId"] == claim["leaseId"]
    assert [message["data"] for message in again["messages"]] == [1, 3]
    assert [message["deliveryCount"] for message in again["messages"]] == [1, 1]


@pytest.mark.parametrize("end", ["acked", "expired"])
def test_after_its_lease_an_attempt_id_is_as_good_as_new(http, clock, end):
    """C-13."""
    http.configure("q", leaseTime=10)
    http.push("q", 1)
    http.push("q", 2)
    claim = http.pop("q", attemptId="a")
    if end == "acked":
        http.ack(claim["messages"][0])
    clock.advance(10)
    again = http.pop("q", attemptId="a")
    assert again["leaseId"] != claim["leaseId"]
    assert again["messages"][0]["data"] == (2 if end == "acked" else 1)


def test_an_attempt_belongs_to_its_group(http):
    """C-13."""
    http.push("q", 1)
    claims = [http.pop("q", attemptId="a", consumerGroup=group) for group in ("g", "h", "g")]
    assert claims[0]["leaseId"] != claims[1]["leaseId"]
    assert claims[0] == claims[2]


@pytest.mark.parametrize("attempt", ["x" * 256, "..", "a\0"])
def test_an_attempt_id_obeys_the_rule_of_names(http, attempt):
    answer = http.get(POP, query_string={"attemptId": attempt})
    assert (answer.status_code, answer.get_json()["field"]) == (400, "attemptId")


def test_an_empty_attempt_id_is_none(http):
    http.push("q", 1)
    assert http.pop("q", attemptId="")
    assert http.pop("q", attemptId="") is None


def test_a_pop_that_settles_at_once_cannot_be_repeated(http):
    """C-13, C-19."""
    http.push("q", 1)
    answer = http.get(POP, query_string={"attemptId": "a", "autoAck": "true"})
    assert (answer.status_code, answer.get_json()["field"]) == (400, "attemptId")
    assert http.pop("q") is not None


def test_a_backend_without_attempts_refuses_them_by_name(http, backend):
    """O-14."""
    backend.capabilities = msgspec.structs.replace(
        backend.capabilities, features=backend.capabilities.features - {"popretry"}
    )
    http.push("q", 1)
    answer = http.get(POP, query_string={"attemptId": "a"})
    body = answer.get_json()
    assert (answer.status_code, body["code"], body["feature"]) == (409, "NOT_SUPPORTED", "popretry")
    assert http.pop("q") is not None


def test_a_lost_answer_keeps_the_claim_for_its_repeat(http, app):
    """O-16: giving it back would take it from a repeat that came over another connection."""
    http.push("q", 1)
    environ = app.test_client()._request_from_builder_args((f"{POP}?attemptId=a",), {}).environ
    body = app(environ, lambda *_: None)
    repeated = http.pop("q", attemptId="a")
    body.close()
    assert http.pop("q") is None
    assert http.ack(repeated["messages"][0])["status"] == "completed"


def test_a_client_that_left_meanwhile_can_still_repeat(broker):
    """O-16."""
    broker.push([m.NewMessage.of("q", 1)])
    request = m.PopRequest(queue="q", attempt_id="a")
    left = iter([False, True])
    lost = broker.pop(request, abandoned=lambda: next(left))
    again = broker.pop(request)
    assert (again.lease_id, again.messages[0].delivery_count) == (lost.lease_id, 1)
    assert broker.health().counters["claims_given_back"] == 0


# ----------------------------------------------------------------------------- waiting


@pytest.fixture
def living():
    """A broker on the system's clock."""
    broker = Broker(MemoryBackend(), Settings(backend="memory:"))
    yield broker
    broker.close()


def _waiter(pool, broker: Broker, seconds: float = LONG, **request) -> Future[m.Claim]:
    """Start a waiting pop and return it when it is asleep."""
    before = broker.health().waiting_count
    waiter = pool.submit(broker.pop, m.PopRequest(queue="q", **request), seconds)
    deadline = time.monotonic() + 5
    while broker.health().waiting_count == before:
        assert time.monotonic() < deadline
    time.sleep(0.02)
    return waiter


def test_a_waiting_pop_can_be_repeated(living):
    """C-13: the repeat gets the claim that the first one got, at once."""
    with ThreadPoolExecutor(1) as pool:
        first = _waiter(pool, living, attempt_id="a")
        living.push([m.NewMessage.of("q", 1)])
        claim = first.result(SOON)
    begun = time.monotonic()
    assert living.pop(m.PopRequest(queue="q", attempt_id="a"), LONG) == claim
    assert time.monotonic() - begun < SOON


def test_a_repeat_that_waits_too_is_woken_wherever_it_stands(living):
    """C-13: between the two stands somebody who gets nothing and would end the chain of wakes."""
    with ThreadPoolExecutor(4) as pool:
        first = _waiter(pool, living, attempt_id="a")
        between = _waiter(pool, living)
        behind = _waiter(pool, living, attempt_id="a")
        elsewhere = _waiter(pool, living, attempt_id="a", partition="other")
        living.push([m.NewMessage.of("q", 1)])
        claims = [waiter.result(SOON) for waiter in (first, behind, elsewhere)]
        assert [claim.lease_id for claim in claims] == [claims[0].lease_id] * 3
        assert not between.done()
        living.drain()


def test_a_repeat_never_ends_empty_while_its_claim_lives(monkeypatch):
    """C-13: the claim was given by another process, of which no hint tells."""
    backend = MemoryBackend()
    monkeypatch.setattr(backend, "listen", lambda _: lambda: None)
    broker = Broker(backend, Settings(backend="memory:"))
    with ThreadPoolExecutor(1) as pool:
        waiter = _waiter(pool, broker, 0.5, attempt_id="a")
        backend.push([m.NewMessage.of("q", 1)])
        elsewhere = backend.pop(m.PopRequest(queue="q", attempt_id="a"))
        assert waiter.result(1).lease_id == elsewhere.lease_id
    broker.close()
