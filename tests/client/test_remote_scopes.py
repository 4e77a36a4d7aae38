"""Pops over a namespace or task, and pops that are repeated, through the client."""

from __future__ import annotations

import msgspec
import pytest

from queen_sync import errors, model as m
from tests.client.application import acks_of, push


def without(store, feature):
    offered = store.capabilities
    store.capabilities = msgspec.structs.replace(offered, features=offered.features - {feature})


@pytest.fixture
def mail(queen):
    queen.configure("letters", {"priority": 1}, namespace="mail", task="send")
    queen.configure("stamps", {"priority": 2}, namespace="mail", task="print")
    for queue in ("letters", "stamps"):
        push(queen, queue, queue=queue)
    return queen


@pytest.mark.parametrize(
    ("scope", "found"),
    [
        ({"namespace": "mail"}, ("stamps", 2)),
        ({"task": "send"}, ("letters", 1)),
        ({"namespace": "mail", "task": "send"}, ("letters", 1)),
    ],
    ids=str,
)
def test_a_pop_over_a_scope_says_which_queue_it_met(mail, scope, found):
    """C-17."""
    claim = mail.pop(m.PopRequest(**scope, max_messages=9))
    (message,) = claim.messages
    assert (message.queue, message.priority) == found
    assert message.value == found[0]
    assert [answer.status for answer in mail.ack(acks_of(claim))] == ["completed"]


@pytest.mark.parametrize("name", ["a/b", "a b", "?#&=+%", "prüfung → 你好", "x" * 255])
def test_any_name_works_as_a_scope_and_as_an_attempt_id(queen, name):
    """C-18."""
    queen.configure("q", namespace=name, task=name)
    push(queen, 1, queue="q")
    request = m.PopRequest(namespace=name, task=name, group=name, attempt_id=name)
    assert queen.pop(request).messages[0].queue == "q"
    assert queen.pop(request)


def test_a_group_of_a_scope_begins_as_it_says(mail):
    """C-07: and a later different wish is reported."""
    new = m.Subscription(mode="new")
    assert not mail.pop(m.PopRequest(namespace="mail", group="g", subscription=new))
    push(mail, "later", queue="letters")
    assert mail.pop(m.PopRequest(namespace="mail", group="g")).messages[0].value == "later"
    everything = m.Subscription(mode="all")
    claim = mail.pop(m.PopRequest(namespace="mail", group="g", subscription=everything))
    assert claim.subscription_ignored


def test_a_repeated_pop_returns_the_same_claim(queen):
    """C-13: less what has its outcome, also where it waits."""
    push(queen, 1, 2)
    request = m.PopRequest(queue="invoices", max_messages=2, attempt_id="a")
    claim = queen.pop(request)
    assert queen.pop(request) == claim
    queen.ack(acks_of(claim)[:1])
    again = queen.pop_waiting(request, 5)
    assert again.lease_id == claim.lease_id
    assert again.messages == claim.messages[1:]
    assert not queen.pop(m.PopRequest(queue="invoices", attempt_id="b"))


def test_a_repeated_claim_is_given_back_once(queen):
    """C-13: what the first answer held is known only once."""
    push(queen, 1, 2)
    request = m.PopRequest(queue="invoices", max_messages=2, attempt_id="a")
    claim = queen.pop(request)
    queen.pop(request)
    queen.release(claim.lease_id)
    with pytest.raises(errors.LeaseLost):
        queen.release(claim.lease_id)
    again = queen.pop(request)
    assert again.lease_id != claim.lease_id
    assert [message.delivery_count for message in again.messages] == [2, 2]


@pytest.mark.parametrize(
    ("feature", "request_"),
    [
        ("prio", m.PopRequest(namespace="mail")),
        ("prio", m.PopRequest(task="send")),
        ("popretry", m.PopRequest(queue="letters", attempt_id="a")),
    ],
)
def test_a_pop_that_the_server_cannot_honour_is_refused_by_name(mail, store, feature, request_):
    """O-14."""
    without(store, feature)
    with pytest.raises(errors.NotSupported) as raised:
        mail.pop(request_)
    assert raised.value.feature == feature


def test_the_options_of_the_features_go_through(queen, store):
    """C-11."""
    options = {
        "priority": 7,
        "ttl_seconds": 60,
        "max_wait_seconds": 30,
        "retention_enabled": True,
        "retention_seconds": 3600,
        "completed_retention_seconds": 600,
        "spread_partitions": 3,
    }
    queen.configure("invoices", options)
    kept = msgspec.structs.asdict(store.queue("invoices").options)
    assert {name: kept[name] for name in options} == options


def test_a_receipt_names_the_partition_that_a_push_was_spread_to(queen):
    queen.configure("invoices", {"spread_partitions": 3})
    receipts = [push(queen, number)[0] for number in range(4)]
    assert [receipt.partition for receipt in receipts] == [
        "Default",
        "Default-2",
        "Default-3",
        "Default",
    ]
    (pushed,) = queen.transact(m.Transaction(operations=[m.NewMessage.of("invoices", 4)])).results
    assert pushed.partition == "Default-2"
