"""Claims over HTTP: popped, acked, extended, given back, settled in transactions."""

from __future__ import annotations

import threading

import pytest

from queen_sync import errors, model as m
from queen_sync.broker import Broker
from queen_sync.client import ApplicationTransport, RemoteBackend
from queen_sync.config import Settings
from queen_sync.web import create_app
from tests.client.application import acks_of, pop, push


def test_a_claim_is_what_the_store_gave(queen, clock):
    """Ids, seqs, times, counts and the expiry survive the wire to the microsecond."""
    clock.advance(0.123_457)
    receipts = push(queen, {"n": 1}, {"n": 2})
    claim = pop(queen)
    assert [message.id for message in claim.messages] == [receipt.id for receipt in receipts]
    assert [message.seq for message in claim.messages] == [1, 2]
    assert {message.created_us for message in claim.messages} == {clock.now_us()}
    assert claim.expires_us == clock.now_us() + 300 * 1_000_000
    assert (claim.group, claim.partition_count) == (m.QUEUE_MODE, 1)
    assert [message.value for message in claim.messages] == [{"n": 1}, {"n": 2}]
    assert [message.delivery_count for message in claim.messages] == [1, 1]
    assert not pop(queen)


def test_an_auto_ack_claim_has_nothing_to_ack(queen):
    """C-19."""
    push(queen, 1)
    claim = pop(queen, auto_ack=True)
    assert len(claim.messages) == 1
    assert claim.lease_id is None
    assert not pop(queen)


def test_each_ack_of_a_call_is_answered_for_itself(queen):
    """C-04: in order, with codes, whatever the others are."""
    push(queen, 1, 2, 3, 4)
    claim = pop(queen)
    outcomes = ("completed", "failed", "retry", "dlq")
    acks = [
        m.Ack(
            transaction_id=message.transaction_id,
            partition_id=message.partition_id,
            lease_id=claim.lease_id,
            outcome=outcome,
            error="why",
        )
        for message, outcome in zip(claim.messages, outcomes, strict=True)
    ]
    strange = m.Ack(
        transaction_id="unknown",
        partition_id=claim.messages[0].partition_id,
        lease_id=claim.lease_id,
    )
    bare = m.Ack(
        transaction_id=claim.messages[0].transaction_id,
        partition_id=claim.messages[0].partition_id,
    )
    answers = queen.ack([*acks, acks[0], strange, bare])
    assert [answer.status for answer in answers[:4]] == [
        "completed",
        "failed",
        "pending",
        "dead_letter",
    ]
    assert [answer.already for answer in answers] == [False] * 4 + [True, False, False]
    assert [answer.code for answer in answers[4:]] == [None, "MESSAGE_NOT_FOUND", "LEASE_REQUIRED"]
    assert all(answer.lease_released for answer in answers[:4])
    assert {answer.queue for answer in answers[:4]} == {"invoices"}
    again = pop(queen)
    assert [message.value for message in again.messages] == [2, 3]
    assert [message.failure_count for message in again.messages] == [1, 0]
    assert [message.error for message in again.messages] == ["why", None]


def test_acks_of_several_groups_may_share_a_call(queen):
    """PLD-6."""
    push(queen, 1)
    claims = [pop(queen, group=group) for group in (m.QUEUE_MODE, "billing", "audit")]
    answers = queen.ack([ack for claim in claims for ack in acks_of(claim)])
    assert [answer.status for answer in answers] == ["completed"] * 3
    assert [answer.group for answer in answers] == [m.QUEUE_MODE, "billing", "audit"]
    assert not any(pop(queen, group=claim.group) for claim in claims)


def test_a_late_ack_is_refused(queen, clock):
    """O-07, C-04."""
    push(queen, 1)
    claim = pop(queen)
    clock.advance(300)
    (answer,) = queen.ack(acks_of(claim))
    assert answer.code == "LEASE_LOST"
    assert answer.reason == "Invalid or expired lease"
    assert len(pop(queen).messages) == 1


def test_extend_returns_the_new_expiry_or_raises(queen, clock):
    """C-20."""
    push(queen, 1)
    claim = pop(queen)
    assert queen.extend(claim.lease_id, 1000) == clock.now_us() + 1000 * 1_000_000
    assert queen.extend(claim.lease_id) == clock.now_us() + 1000 * 1_000_000
    queen.ack(acks_of(claim))
    with pytest.raises(errors.LeaseLost):
        queen.extend(claim.lease_id, 10)


def test_release_gives_the_open_messages_back_uncharged(queen):
    """Those with an outcome keep it; the claim comes again at once."""
    push(queen, 1, 2, 3)
    claim = pop(queen, group="billing")
    queen.ack(acks_of(claim)[:1])
    queen.release(claim.lease_id)
    again = pop(queen, group="billing")
    assert [message.value for message in again.messages] == [2, 3]
    assert [message.failure_count for message in again.messages] == [0, 0]
    assert [message.delivery_count for message in again.messages] == [2, 2]


def test_a_claim_is_given_back_once(queen, clock):
    push(queen, 1)
    claim = pop(queen)
    queen.release(claim.lease_id)
    with pytest.raises(errors.LeaseLost):
        queen.release(claim.lease_id)
    lost = pop(queen)
    clock.advance(300)
    with pytest.raises(errors.LeaseLost):
        queen.release(lost.lease_id)


def test_a_claim_that_somebody_else_settled_cannot_be_given_back(queen, store):
    """Every ack of it is a repeat that changes nothing, and the caller is told."""
    push(queen, 1)
    claim = pop(queen)
    store.ack(acks_of(claim))
    with pytest.raises(errors.LeaseLost):
        queen.release(claim.lease_id)
    assert not pop(queen)


def test_a_claim_over_several_partitions_is_given_back_whole(queen):
    for partition in ("a", "b", "c"):
        push(queen, 1, partition=partition)
    claim = pop(queen, max_partitions=3)
    assert claim.partition_count == 3
    queen.release(claim.lease_id)
    assert len(pop(queen, max_partitions=3).messages) == 3


def test_what_was_acked_is_forgotten(queen):
    """O-55: an honest consumer's client keeps nothing, lane by lane of a claim."""
    for partition in ("a", "b"):
        push(queen, 1, 2, partition=partition)
    claim = pop(queen, max_partitions=2)
    remembered = queen._handed_out
    assert len(remembered) == 4
    queen.ack(acks_of(claim)[:2])
    assert len(remembered) == 2
    queen.transact(m.Transaction(operations=acks_of(claim)[2:]))
    assert len(remembered) == 0
    with pytest.raises(errors.LeaseLost):
        queen.release(claim.lease_id)


def test_what_is_remembered_of_claims_is_bounded(store):
    """The newest claim is always kept, older ones go first."""
    settings = Settings(backend="memory:")
    broker = Broker(store, settings)
    transport = ApplicationTransport(create_app(broker, settings))
    with RemoteBackend("http://in-process", transport=transport, max_remembered=3) as queen:
        for partition in ("a", "b"):
            push(queen, 1, 2, partition=partition)
        older, newer = (pop(queen) for _ in range(2))
        with pytest.raises(errors.LeaseLost):
            queen.release(older.lease_id)
        queen.release(newer.lease_id)
    broker.close()


def test_a_transaction_moves_messages(queen):
    """C-15: answers in the order of its operations."""
    push(queen, 1)
    claim = pop(queen)
    done = queen.transact(
        m.Transaction(
            operations=[
                m.NewMessage.of("receipts", 2, transaction_id="r-1"),
                *acks_of(claim),
                m.NewMessage.of("receipts", 3, partition="lane", transaction_id="r-2"),
            ]
        )
    )
    first, acked, second = done.results
    assert isinstance(first, m.Receipt)
    assert isinstance(acked, m.Acked)
    assert isinstance(second, m.Receipt)
    assert (first.status, first.seq, first.transaction_id) == ("queued", 1, "r-1")
    assert (acked.status, acked.lease_released) == ("completed", True)
    assert (second.partition, second.queue) == ("lane", "receipts")
    assert not done.repeated


def test_a_repeated_transaction_says_so(queen):
    """C-15: the same acks and the same transaction ids change nothing."""
    push(queen, 1)
    claim = pop(queen)
    move = m.Transaction(
        operations=[*acks_of(claim), m.NewMessage.of("receipts", 2, transaction_id="r-1")]
    )
    first = queen.transact(move)
    again = queen.transact(move)
    assert again.repeated
    assert again.results[0].already
    assert again.results[1].duplicate
    assert again.results[1].id == first.results[1].id


def test_a_repeat_that_would_push_again_is_refused(queen):
    """C-15."""
    push(queen, 1)
    claim = pop(queen)
    move = m.Transaction(operations=[*acks_of(claim), m.NewMessage.of("receipts", 2)])
    queen.transact(move)
    with pytest.raises(errors.AlreadySettled):
        queen.transact(move)


def test_a_refused_transaction_raises_what_its_element_was_refused_with(queen, clock):
    """C-15: the class, the index, and nothing applied."""
    queen.configure("receipts", {"max_queue_size": 1})
    push(queen, 1)
    claim = pop(queen)
    with pytest.raises(errors.QueueFull) as full:
        queen.transact(
            m.Transaction(
                operations=[
                    *acks_of(claim),
                    m.NewMessage.of("receipts", 2),
                    m.NewMessage.of("receipts", 3),
                ]
            )
        )
    assert (full.value.queue, full.value.max_queue_size, full.value.pushed) == ("receipts", 1, 2)
    clock.advance(300)
    with pytest.raises(errors.LeaseLost) as lost:
        queen.transact(m.Transaction(operations=[m.NewMessage.of("receipts", 2), *acks_of(claim)]))
    assert lost.value.index == 1
    assert not pop(queen, queue="receipts")
    assert len(pop(queen).messages) == 1


def test_an_ack_in_a_transaction_may_take_its_lease_from_the_required_ones(queen):
    """C-15, O-60: and its group with it."""
    push(queen, 1)
    claim = pop(queen, group="billing")
    (message,) = claim.messages
    bare = m.Ack(transaction_id=message.transaction_id, partition_id=message.partition_id)
    done = queen.transact(m.Transaction(operations=[bare], required_leases=[claim.lease_id]))
    assert done.results[0].status == "completed"
    assert done.results[0].group == "billing"
    assert not pop(queen, group="billing")
    assert pop(queen)


def test_a_waiting_pop_is_woken_by_a_push(queen):
    """O-17: through the same client, from another thread."""
    claims = []
    waiter = threading.Thread(
        target=lambda: claims.append(queen.pop_waiting(m.PopRequest(queue="invoices"), 20))
    )
    waiter.start()
    push(queen, 1)
    waiter.join(timeout=10)
    assert not waiter.is_alive()
    assert [message.value for message in claims[0].messages] == [1]
