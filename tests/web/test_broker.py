"""What the broker adds to a backend: limits, defaults, numbers."""

import msgspec
import pytest

from queen_sync import model as m
from queen_sync.broker import Broker
from queen_sync.config import Settings
from queen_sync.errors import BackendUnavailable, InvalidRequest, NotSupported, PayloadTooLarge


def _limit(backend, **changes):
    backend.capabilities = msgspec.structs.replace(backend.capabilities, **changes)


def _message(value=1, **more):
    return m.NewMessage.of("q", value, **more)


@pytest.mark.parametrize("as_transaction", [False, True])
def test_a_payload_over_the_limit_of_the_backend_is_refused(broker, backend, as_transaction):
    _limit(backend, max_payload_bytes=5)
    items = [_message("abc"), _message("abcd")]
    transaction = m.Transaction(operations=items)
    with pytest.raises(PayloadTooLarge) as caught:
        broker.transact(transaction) if as_transaction else broker.push(items)
    assert caught.value.field == "payload"
    assert backend.queues() == []
    assert broker.push(items[:1])


def test_a_batch_over_the_limit_of_the_backend_is_refused(broker, backend):
    _limit(backend, max_batch=2)
    acks = [m.Ack(transaction_id="a")] * 3
    for call in (
        lambda: broker.push([_message()] * 3),
        lambda: broker.ack(acks),
        lambda: broker.transact(m.Transaction(operations=acks)),
    ):
        with pytest.raises(InvalidRequest, match="more than 2"):
            call()
    assert backend.queues() == []


@pytest.mark.parametrize(("max_batch_size", "max_batch"), [(2, 10), (10, 2)])
def test_a_pop_is_cut_to_the_smaller_limit(backend, max_batch_size, max_batch):
    _limit(backend, max_batch=max_batch)
    broker = Broker(backend, Settings(backend="memory:", max_batch_size=max_batch_size))
    for _ in range(3):
        broker.push([_message()])
    assert len(broker.pop(m.PopRequest(queue="q", max_messages=5)).messages) == 2
    for partition in "xyz":
        broker.push([m.NewMessage.of("many", 1, partition=partition)])
    request = m.PopRequest(queue="many", max_messages=5, max_partitions=5)
    assert broker.pop(request).partition_count == 2
    broker.close()


def test_nothing_asked_is_nothing_answered(broker):
    assert (broker.push([]), broker.ack([])) == ([], [])
    assert broker.health().counters["push_requests"] == 0


@pytest.mark.parametrize("seconds", [0, -1, 86_401])
def test_an_extend_has_bounds(broker, seconds):
    with pytest.raises(InvalidRequest):
        broker.extend("x", seconds)


def test_an_option_without_effect_is_refused_before_the_backend_sees_it(broker, backend):
    """O-14."""
    with pytest.raises(NotSupported) as caught:
        broker.configure("q", {"encryption_enabled": True})
    assert caught.value.feature == "enc"
    assert broker.configure("q", {"encryption_enabled": False}).created
    with pytest.raises(InvalidRequest):
        broker.configure("q", {"leaseTime": 1})


@pytest.mark.parametrize("name", ["", "..", "x" * 256, "a\0"])
def test_names_are_checked_wherever_they_come_in(broker, name):
    """C-18."""
    everything = m.Subscription()
    for call in (
        lambda: broker.configure(name),
        lambda: broker.delete_queue(name),
        lambda: broker.subscribe(name, "g", everything),
        lambda: broker.subscribe("q", name, everything),
        lambda: broker.delete_group(name),
        lambda: broker.delete_group("g", queue=name),
        lambda: broker.restart_subscription(name, 0),
    ):
        with pytest.raises(InvalidRequest):
            call()


def test_a_group_can_be_subscribed_before_it_pops(broker):
    """C-07."""
    broker.push([_message("old")])
    assert broker.subscribe("q", "g", m.Subscription(mode="new"))
    assert not broker.subscribe("q", "g", m.Subscription(mode="all"))
    assert not broker.pop(m.PopRequest(queue="q", group="g"))


def test_the_counters_say_what_happened(broker):
    broker.push([_message(transaction_id="a"), _message(transaction_id="a")])
    claim = broker.pop(m.PopRequest(queue="q"))
    broker.pop(m.PopRequest(queue="q"))
    ack = m.Ack(transaction_id="a", lease_id=claim.lease_id)
    broker.ack([ack, m.Ack(transaction_id="a")])
    broker.transact(m.Transaction(operations=[_message()]))
    assert broker.health().counters == {
        "push_requests": 1,
        "pushed": 1,
        "duplicates": 1,
        "pop_requests": 2,
        "popped": 1,
        "pops_empty": 1,
        "ack_requests": 1,
        "acked": 1,
        "acks_refused": 1,
        "transactions": 1,
        "claims_given_back": 0,
    }


def test_what_cannot_be_given_back_runs_out_as_usual(broker, backend, clock):
    broker.push([_message()])
    claim = broker.pop(m.PopRequest(queue="q"))
    _limit(backend, features=backend.capabilities.features - {"release"})
    broker.give_back(claim, m.PopRequest(queue="q"))
    assert not broker.pop(m.PopRequest(queue="q"))
    clock.advance(300)
    assert broker.pop(m.PopRequest(queue="q"))


def test_giving_back_never_fails_the_caller(broker, backend, monkeypatch, caplog):
    broker.push([_message()])
    claim = broker.pop(m.PopRequest(queue="q"))
    original = backend.release

    def fail(_):
        raise BackendUnavailable("gone for a moment")

    monkeypatch.setattr(backend, "release", fail)
    broker.give_back(claim, m.PopRequest(queue="q"))
    assert "gone for a moment" in caplog.text
    monkeypatch.setattr(backend, "release", original)
    broker.give_back(claim, m.PopRequest(queue="q"))
    broker.give_back(claim, m.PopRequest(queue="q"))
    assert broker.health().counters["claims_given_back"] == 1
