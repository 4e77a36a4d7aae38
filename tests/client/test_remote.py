"""The client against the application itself, in one process, on the memory backend."""

from __future__ import annotations

import threading

import pytest

from queen_sync import errors, model as m
from queen_sync.backends.base import FEATURES
from queen_sync.client import RemoteBackend
from queen_sync.payloads import JsonText
from tests.client.application import acks_of, pop, push

NOT_CARRIED = {"counters", "clock"}


def test_the_features_are_the_store_s_less_what_the_wire_cannot_carry(queen, store):
    assert queen.capabilities.features == store.capabilities.features - NOT_CARRIED
    assert queen.capabilities.durable is store.capabilities.durable
    assert queen.capabilities.shared is store.capabilities.shared
    assert queen.capabilities.features < frozenset(FEATURES)


def test_check_returns_the_health_page(queen):
    assert queen.check()["status"] == "healthy"


def test_a_configured_queue_comes_back_as_the_store_has_it(queen, store):
    """C-11: every option, the ids, what changed."""
    options = {"lease_seconds": 7, "max_queue_size": 3, "require_lease_id": False}
    made = queen.configure("a.b", options)
    assert made.created
    assert made.queue == store.queue("a.b")
    assert (made.queue.namespace, made.queue.task) == ("a", "b")
    changed = queen.configure("a.b", {"lease_seconds": 8}, namespace="", task="other")
    assert not changed.created
    assert changed.queue == store.queue("a.b")
    assert changed.queue.options.max_queue_size == 3
    assert changed.changes["lease_seconds"] == m.Change(old=7, new=8)


def test_an_option_that_the_server_cannot_honour_is_refused(queen, store):
    """O-14, with the name of the feature."""
    missing = "enc"
    assert missing not in store.capabilities.features
    with pytest.raises(errors.NotSupported) as raised:
        queen.configure("invoices", {"encryption_enabled": True})
    assert raised.value.feature == missing


def test_a_receipt_says_what_the_store_says(queen, store):
    """C-16: the duplicate carries the first message's id, seq and trace id."""
    trace = "0192f0c1-0000-7000-8000-000000000001"
    first, second = queen.push(
        [
            m.NewMessage.of("invoices", 1, transaction_id="inv-1", trace_id=trace),
            m.NewMessage.of("invoices", 2, partition="customer/7"),
        ]
    )
    (again,) = push(queen, 3, transaction_id="inv-1")
    assert (first.status, first.seq, first.transaction_id) == ("queued", 1, "inv-1")
    assert (second.partition, second.seq) == ("customer/7", 1)
    assert second.transaction_id == second.id
    assert again.duplicate
    assert (again.id, again.seq, again.trace_id) == (first.id, first.seq, trace)
    assert first.partition_id == store.queue("invoices").default_partition_id


def test_a_push_may_leave_missing_queues_missing(queen, store):
    with pytest.raises(errors.QueueNotFound):
        queen.push([m.NewMessage.of("invoices", 1)], create=False)
    assert store.queue("invoices") is None


def test_nothing_is_sent_for_nothing():
    """An empty push or ack is answered without a server."""
    with RemoteBackend("http://127.0.0.1:1") as nowhere:
        assert nowhere.push([]) == []
        assert nowhere.ack([]) == []


def test_a_full_queue_is_refused_with_its_figures(queen):
    """C-06, PLD-9."""
    queen.configure("invoices", {"max_queue_size": 3})
    (receipt,) = push(queen, 1)
    assert (receipt.depth, receipt.remaining) == (1, 2)
    with pytest.raises(errors.QueueFull) as raised:
        push(queen, 2, 3, 4)
    error = raised.value
    assert (error.queue, error.max_queue_size) == ("invoices", 3)
    assert (error.depth, error.pushed, error.remaining) == (1, 3, 2)


PAYLOADS = [
    b"null",
    b'""',
    b"1e999",
    b"-0",
    b"1.10",
    b"123456789012345678901234567890",
    rb'"\u0000\/\ud83d\ude00"',
    b'{"b":1,"a":2,"b":3}',
    b'{"spaced" : [ 1,\t2 ]}',
    '"grüße 你好 \U0001f600\u2028"'.encode(),
    b"[" * 512 + b"]" * 512,
]


@pytest.mark.parametrize("text", PAYLOADS, ids=lambda text: text[:20].decode())
def test_a_payload_goes_there_and_back_byte_for_byte(queen, text):
    """C-10."""
    queen.push([m.NewMessage(queue="invoices", payload=JsonText.check(text))])
    (message,) = pop(queen).messages
    assert message.payload == text


@pytest.mark.parametrize(
    "name", ["a/b", "a b", "a%2Fb", "?#&=+%", "prüfung → 你好", "x" * 255, "..."]
)
def test_any_name_works_everywhere(queen, store, name):
    """C-18: queue, partition, group and transaction id, in paths, queries and bodies."""
    queen.configure(name)
    push(queen, 1, queue=name, partition=name, transaction_id=name)
    claim = pop(queen, queue=name, partition=name, group=name)
    (message,) = claim.messages
    assert (message.queue, message.partition, message.transaction_id) == (name, name, name)
    (answer,) = queen.ack(acks_of(claim, "dlq"))
    assert answer.dead_lettered
    (letter,) = queen.dead_letters(m.DeadLetterFilter(queue=name, group=name, partition=name)).items
    assert (letter.queue, letter.partition, letter.group) == (name, name, name)
    assert queen.restart_subscription(name, 0) == 1
    assert queen.delete_group(name) == 2  # Default and the one of that name
    assert queen.delete_queue(name)
    assert store.queue(name) is None


def test_subscribe_registers_a_group_without_taking_anything(queen, store):
    """C-07: also for a queue that does not exist yet."""
    push(queen, 1)
    assert queen.subscribe("invoices", "late", m.Subscription(mode="new"))
    assert not queen.subscribe("invoices", "late", m.Subscription(mode="all"))
    assert queen.subscribe("invoices", "late", m.Subscription(mode="new"))
    push(queen, 2)
    assert [message.value for message in pop(queen, group="late").messages] == [2]
    assert queen.subscribe("unmade", "early", m.Subscription(mode="new"))
    assert store.queue("unmade") is None
    push(queen, 3, queue="unmade")
    assert [message.value for message in pop(queen, queue="unmade", group="early").messages] == [3]


def test_a_group_may_begin_at_an_instant(queen, clock):
    """C-07: to the microsecond, that instant included."""
    push(queen, 1)
    clock.advance(0.000_001)
    push(queen, 2)
    start = m.Subscription(mode="from", from_us=clock.now_us())
    claim = pop(queen, group="timed", subscription=start)
    assert [message.value for message in claim.messages] == [2]


def test_a_later_different_subscription_is_reported(queen):
    """C-07: on claims with and without messages."""
    new = m.Subscription(mode="new")
    push(queen, 1)
    assert not pop(queen, group="whole").subscription_ignored
    claim = pop(queen, group="whole", subscription=new)
    assert claim.subscription_ignored
    assert not claim


def test_a_group_is_forgotten_or_only_its_progress(queen, clock):
    """C-07."""
    push(queen, 1)
    start = clock.now_us()
    clock.advance(1)
    push(queen, 2)
    claim = pop(queen, group="timed", subscription=m.Subscription(mode="from", from_us=start + 1))
    assert [message.value for message in claim.messages] == [2]
    assert queen.delete_group("timed", keep_subscription=True) == 1
    assert [message.value for message in pop(queen, group="timed").messages] == [2]
    queen.delete_group("timed")
    assert [message.value for message in pop(queen, group="timed").messages] == [1, 2]
    assert queen.delete_group("nobody") == 0


def test_a_group_may_be_forgotten_on_one_queue(queen):
    """C-07: its place in the other queue stays."""
    for name in ("invoices", "receipts"):
        push(queen, 1, queue=name)
        queen.ack(acks_of(pop(queen, queue=name, group="audit")))
    assert queen.delete_group("audit", queue="invoices") == 1
    assert pop(queen, queue="invoices", group="audit")
    assert not pop(queen, queue="receipts", group="audit")


def test_a_missing_queue_is_deleted_without_a_fuss(queen):
    push(queen, 1)
    assert queen.delete_queue("invoices")
    assert not queen.delete_queue("invoices")


def test_dead_letters_are_paged_newest_first(queen, clock):
    for number in range(3):
        push(queen, number, transaction_id=f"inv-{number}")
        queen.ack(acks_of(pop(queen), "dlq", error=f"no {number}"))
        clock.advance(1)
    page = queen.dead_letters(m.DeadLetterFilter(queue="invoices", limit=2, offset=1))
    assert page.total == 3
    assert [letter.transaction_id for letter in page.items] == ["inv-1", "inv-0"]
    letter = page.items[0]
    assert (letter.error, letter.payload, letter.seq) == ("no 1", b"1", 2)
    assert letter.failed_us == clock.now_us() - 2_000_000
    assert (letter.group, letter.delivery_count, letter.failure_count) == (m.QUEUE_MODE, 1, 0)
    since = queen.dead_letters(
        m.DeadLetterFilter(queue="invoices", failed_from_us=letter.failed_us + 1)
    )
    assert [each.transaction_id for each in since.items] == ["inv-2"]
    until = queen.dead_letters(
        m.DeadLetterFilter(queue="invoices", failed_to_us=letter.failed_us - 1)
    )
    assert [each.transaction_id for each in until.items] == ["inv-0"]


def test_many_threads_share_one_client(queen):
    """O-61: every answer belongs to its own call."""
    mixed_up = []

    def work(number):
        for count in range(20):
            name = f"{number}-{count}"
            (receipt,) = push(queen, name, partition=f"lane-{number}", transaction_id=name)
            if receipt.transaction_id != name or receipt.partition != f"lane-{number}":
                mixed_up.append(name)

    threads = [threading.Thread(target=work, args=(number,)) for number in range(16)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(timeout=60)
    assert mixed_up == []
    claim = pop(queen, max_messages=1000, max_partitions=100)
    assert len(claim.messages) == 16 * 20
