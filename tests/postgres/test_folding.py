"""Calls folded into one on a real database (H13): own answers, blocked lanes, limits."""

import threading
import time
from concurrent.futures import ThreadPoolExecutor

import psycopg
import pytest

from queen_sync import model as m
from queen_sync.broker import Broker
from queen_sync.config import Settings
from queen_sync.errors import QueueFull
from tests.postgres.sessions import value


@pytest.fixture
def broker(make_backend):
    broker = Broker(make_backend(pool_size=16), Settings())
    yield broker
    broker.close()


def push(broker, partition, value=1, **options):
    return broker.push([m.NewMessage.of("q", value, partition=partition, **options)])[0]


def at_once(works):
    with ThreadPoolExecutor(len(works)) as pool:
        return [each.result(60) for each in [pool.submit(work) for work in works]]


def test_many_single_pushes_at_once_are_stored_once_each_in_fewer_commits(broker, dsn):
    push(broker, "p0")
    before = value(dsn, "select count(distinct created_at) from queen.messages")
    receipts = at_once(
        [
            lambda n=n: [
                push(broker, f"p{n % 4}", [n, i], transaction_id=f"{n}-{i}") for i in range(20)
            ]
            for n in range(16)
        ]
    )
    ids = {receipt.id for each in receipts for receipt in each}
    assert len(ids) == 320
    assert value(dsn, "select count(*) from queen.messages") == 321
    calls = value(dsn, "select count(distinct created_at) from queen.messages") - before
    assert calls < 320, "no two pushes shared a step"


def test_one_id_pushed_by_many_at_once_is_stored_once(broker):
    """H13 d, J03: callers folded into one call see each other's messages."""
    push(broker, "p0")
    receipts = at_once([lambda: push(broker, "p0", transaction_id="same") for _ in range(16)])
    assert sorted(receipt.status for receipt in receipts) == ["duplicate"] * 15 + ["queued"]
    assert len({receipt.id for receipt in receipts}) == 1


def test_a_full_queue_refuses_only_whom_it_must(broker):
    """H13 c, J05: the limit is exact, and those who fit are stored."""
    broker.configure("q", {"max_queue_size": 10})

    def one():
        try:
            return push(broker, "p0").status
        except QueueFull:
            return "full"

    outcomes = at_once([one for _ in range(16)])
    assert sorted(outcomes) == ["full"] * 6 + ["queued"] * 10


def test_a_blocked_lane_holds_up_nobody_else(broker, dsn):
    """H13 a, O-04: somebody's open transaction on one partition is not felt in the others."""
    for name in ("stuck", "free"):
        push(broker, name)
    stop = threading.Event()
    slowest = 0.0
    with psycopg.connect(dsn) as session, ThreadPoolExecutor(8) as pool:
        session.execute("select 1 from queen.partitions where name = 'stuck' for update")
        blocked = [pool.submit(push, broker, "stuck") for _ in range(2)]

        def others():
            worst = 0.0
            while not stop.is_set():
                started = time.monotonic()
                push(broker, "free")
                worst = max(worst, time.monotonic() - started)
            return worst

        free = [pool.submit(others) for _ in range(4)]
        time.sleep(1.5)
        stop.set()
        slowest = max(each.result(30) for each in free)
        assert not any(each.done() for each in blocked)
        session.rollback()
        assert [each.result(30).status for each in blocked] == ["queued", "queued"]
    assert slowest < 1.0


def test_single_acks_at_once_settle_each_its_own(broker):
    """H13: acks of many leases in one call, a lost one among them, each answered by itself."""
    for n in range(12):
        push(broker, f"p{n}", n)
    claims = [broker.pop(m.PopRequest(queue="q")) for _ in range(12)]
    broker.release(claims[0].lease_id)

    def ack(claim):
        message = claim.messages[0]
        return broker.ack(
            [
                m.Ack(
                    transaction_id=message.transaction_id,
                    partition_id=message.partition_id,
                    lease_id=claim.lease_id,
                )
            ]
        )[0]

    answers = at_once([lambda c=claim: ack(c) for claim in claims])
    assert [answer.status for answer in answers] == ["pending"] + ["completed"] * 11
    assert [answer.already for answer in answers] == [True] + [False] * 11
    assert broker.backend.groups("q")[0].lag == 1
