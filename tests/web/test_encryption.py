"""Encrypted queues over HTTP: with a key, with another one, and without."""

import logging

import pytest

from queen_sync.backends.memory import MemoryBackend
from queen_sync.broker import Broker
from queen_sync.encryption import PAUSE_SECONDS, KeyRing
from queen_sync.web import create_app
from tests.web.conftest import Http

KEYS = KeyRing.parse("", "here:" + "5a" * 32)
OTHER = KeyRing.parse("", "there:" + "a5" * 32)
CARD = {"card": "4111"}


@pytest.fixture
def backend(clock):
    return MemoryBackend(clock, keys=KEYS)


@pytest.fixture
def change_keys(backend):
    """Give the store other keys, as if the server had been started anew with them."""

    def change(keys):
        backend._store.keys = keys

    return change


@pytest.fixture
def keyless(settings, clock):
    """The application of a server that has no key at all, with its backend."""
    backend = MemoryBackend(clock)
    broker = Broker(backend, settings, clock)
    yield Http(create_app(broker, settings)), backend
    broker.close()


def features(http):
    return http.get("/api/v1/capabilities").get_json()["features"]


def test_a_payload_goes_in_and_out_as_it_is(http):
    """INV-ENCRYPT: and the option is echoed, also by a later configure that does not name it."""
    assert http.configure("q", encryptionEnabled=True)["options"]["encryptionEnabled"] is True
    assert http.configure("q", leaseTime=60)["options"]["encryptionEnabled"] is True
    (receipt,) = http.push("q", CARD)
    (message,) = http.pop("q")["messages"]
    assert message["data"] == CARD
    assert receipt["transaction_id"] == message["transactionId"] != message["id"]
    assert http.ack({**message, "transactionId": message["id"]})["success"] is True


def test_dead_letters_and_the_page_of_a_message_are_opened(http):
    """wire.md a.2."""
    http.configure("q", encryptionEnabled=True)
    http.push("q", CARD, transactionId="x")
    (message,) = http.pop("q")["messages"]
    shown = http.get(f"/api/v1/messages/{message['partitionId']}/x").get_json()
    assert (shown["payload"], shown["isEncrypted"]) == (CARD, True)
    assert "payloadError" not in shown
    http.ack(message, "dlq")
    (letter,) = http.get("/api/v1/dlq").get_json()["messages"]
    assert (letter["data"], letter["payload"], letter["isEncrypted"]) == (CARD, CARD, True)
    assert "payloadError" not in letter


def test_a_server_without_the_key_says_which_one_it_wants(http, clock, change_keys, caplog):
    """O-52: never ciphertext as data; nothing is burned, and it is no bug."""
    http.configure("q", encryptionEnabled=True)
    http.push("q", CARD, "dead", transactionId=None)
    (first,) = http.pop("q")["messages"]
    http.ack(first, "dlq")
    change_keys(OTHER)
    with caplog.at_level(logging.ERROR):
        answer = http.get("/api/v1/pop/queue/q")
    assert answer.status_code == 503
    body = answer.get_json()
    assert body["code"] == "UNDECRYPTABLE"
    assert body["error"] == (
        "a payload in partition 'Default' of queue 'q' cannot be decrypted:"
        " key 'here' is not configured here"
    )
    assert [record.exc_info for record in caplog.records] == [None]
    assert http.pop("q") is None
    (letter,) = http.get("/api/v1/dlq").get_json()["messages"]
    assert (letter["data"], letter["isEncrypted"]) == (None, True)
    assert "'here'" in letter["payloadError"]
    shown = http.get(f"/api/v1/messages/{first['partitionId']}/{first['id']}").get_json()
    assert (shown["payload"], shown["isEncrypted"]) == (None, True)
    assert shown["payloadError"] == letter["payloadError"]
    change_keys(KEYS)
    clock.advance(PAUSE_SECONDS)
    (message,) = http.pop("q")["messages"]
    assert (message["data"], message["deliveryCount"]) == ("dead", 1)


def test_a_waiting_pop_is_answered_by_what_can_be_opened(http, change_keys):
    """O-52: other partitions flow."""
    http.configure("q", encryptionEnabled=True)
    http.push("q", CARD, partition="closed")
    change_keys(OTHER)
    assert http.get("/api/v1/pop/queue/q?wait=true&timeout=5000").status_code == 503
    http.push("q", "open", partition="open")
    (message,) = http.pop("q", wait="true", timeout=5000)["messages"]
    assert message["data"] == "open"


def test_without_a_key_it_cannot_be_switched_on(keyless):
    """O-14, O-52: 400 with the option's name, and there is no queue."""
    http, backend = keyless
    assert "enc" not in features(http)
    answer = http.post("/api/v1/configure", {"queue": "q", "options": {"encryptionEnabled": True}})
    body = answer.get_json()
    assert (answer.status_code, body["code"]) == (400, "NOT_SUPPORTED")
    assert (body["field"], body["feature"]) == ("encryptionEnabled", "enc")
    assert backend.queue("q") is None


def test_without_a_key_nothing_is_pushed_to_an_encrypted_queue(http, change_keys, backend):
    """O-52: neither by a push nor by a transaction; one 400 for all of the request."""
    assert "enc" in features(http)
    http.configure("q", encryptionEnabled=True)
    change_keys(None)
    items = [{"queue": "other", "payload": 1}, {"queue": "q", "payload": CARD}]
    operations = [{"type": "push", "items": items}]
    for path, body in (("push", {"items": items}), ("transaction", {"operations": operations})):
        answer = http.post(f"/api/v1/{path}", body)
        assert (answer.status_code, answer.get_json()["code"]) == (400, "NOT_SUPPORTED")
        assert "queue 'q' is encrypted and no key is configured here" in answer.get_json()["error"]
    assert backend.queue("other") is None
    assert backend.partitions("q")[0].pushed_count == 0
