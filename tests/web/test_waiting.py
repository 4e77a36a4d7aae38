"""Pops that wait: who is woken, when, and who is let go. Real threads and real time."""

import random
import threading
import time
from collections.abc import Iterator
from concurrent.futures import Future, ThreadPoolExecutor

import pytest

from queen_sync import model as m
from queen_sync.backends.memory import MemoryBackend
from queen_sync.broker import Broker
from queen_sync.config import Settings
from queen_sync.errors import BackendUnavailable, Overloaded

SOON = 0.3
"""Seconds within which a wake-up must have arrived, on a busy machine."""
LONG = 20.0


@pytest.fixture
def backend() -> MemoryBackend:
    """On the system's clock: what is waited for here really takes its time."""
    return MemoryBackend()


@pytest.fixture
def settings() -> Settings:
    return Settings(backend="memory:", max_concurrent_polls=200)


@pytest.fixture
def pool(broker: Broker) -> Iterator[ThreadPoolExecutor]:
    with ThreadPoolExecutor(64) as pool:
        yield pool
        broker.drain()


def _push(broker: Broker, queue: str, *payloads: object, partition: str = "Default") -> None:
    broker.push([m.NewMessage.of(queue, value, partition=partition) for value in payloads])


def _wait_until(condition) -> None:
    deadline = time.monotonic() + 5
    while not condition():
        assert time.monotonic() < deadline
        time.sleep(0.001)


def _waiters(pool, broker: Broker, count: int, **request) -> list[Future[m.Claim]]:
    """Start waiting pops and return them when all are asleep."""
    before = broker.health().waiting_count
    asked = m.PopRequest(**{"queue": "q", **request})
    found = [pool.submit(broker.pop, asked, LONG) for _ in range(count)]
    _wait_until(lambda: broker.health().waiting_count == before + count)
    time.sleep(0.02)
    return found


def _values(claims) -> list[object]:
    return sorted(message.value for claim in claims for message in claim.messages)


def _seconds(call) -> float:
    begun = time.monotonic()
    call()
    return time.monotonic() - begun


# ------------------------------------------------------------------------------ wakes


@pytest.mark.parametrize("partition", [None, "p"])
def test_a_push_wakes_a_waiting_pop(pool, broker, partition):
    """Also of a queue that does not exist yet."""
    (waiter,) = _waiters(pool, broker, 1, partition=partition)
    _push(broker, "q", 1, partition="p")
    assert _values([waiter.result(SOON)]) == [1]


def test_a_pop_that_finds_something_does_not_wait(broker):
    _push(broker, "q", 1)
    assert _seconds(lambda: broker.pop(m.PopRequest(queue="q"), LONG)) < SOON


@pytest.mark.parametrize("seconds", [0.0, 0.1, 0.5])
def test_a_wait_ends_at_its_time(broker, seconds):
    taken = _seconds(lambda: broker.pop(m.PopRequest(queue="q"), seconds))
    assert seconds <= taken < seconds + 0.1
    assert broker.health().waiting_count == 0


def test_waits_have_a_default_and_a_maximum(backend):
    short = Settings(
        backend="memory:", default_timeout_milliseconds=100, max_timeout_milliseconds=200
    )
    broker = Broker(backend, short)
    for asked, expected in ((None, 0.1), (LONG, 0.2)):
        taken = _seconds(lambda asked=asked: broker.pop(m.PopRequest(queue="q"), asked))
        assert expected <= taken < expected + 0.1
    broker.close()


def test_fifty_waiters_and_fifty_pushes_meet_one_to_one(pool, broker):
    waiters = _waiters(pool, broker, 50)
    for value in range(50):
        _push(broker, "q", value, partition=f"p{value}")
    claims = [waiter.result(2) for waiter in waiters]
    assert [len(claim.messages) for claim in claims] == [1] * 50
    assert _values(claims) == list(range(50))


def test_one_push_to_many_partitions_wakes_as_many_waiters(pool, broker):
    """There is one hint: whoever got something wakes the next."""
    waiters = _waiters(pool, broker, 50)
    broker.push([m.NewMessage.of("q", value, partition=f"p{value}") for value in range(50)])
    assert _values([waiter.result(1.5) for waiter in waiters]) == list(range(50))


def test_one_message_does_not_wake_the_whole_crowd(pool, broker, backend, monkeypatch):
    waiters = _waiters(pool, broker, 50)
    tries = []
    original = backend.pop
    monkeypatch.setattr(backend, "pop", lambda request: tries.append(1) or original(request))
    _push(broker, "q", 1)
    _wait_until(lambda: sum(waiter.done() for waiter in waiters) == 1)
    time.sleep(0.05)
    assert len(tries) <= 4


def test_waiters_of_every_kind_are_woken(pool, broker):
    """A named partition, another group and whoever takes any partition are lanes of their own."""
    (anybody,) = _waiters(pool, broker, 1, group="g")
    (elsewhere,) = _waiters(pool, broker, 1, group="h", partition="other")
    (named,) = _waiters(pool, broker, 1, group="h", partition="p")
    _push(broker, "q", 1, partition="p")
    assert _values([anybody.result(SOON)]) == _values([named.result(SOON)]) == [1]
    assert not elsewhere.done()


def test_nobody_gets_more_than_it_asked_for(pool, broker):
    """O-18."""
    waiters = _waiters(pool, broker, 5, max_messages=10)
    for partition in range(5):
        _push(broker, "q", *range(10), partition=f"p{partition}")
    claims = [waiter.result(SOON) for waiter in waiters]
    assert [len(claim.messages) for claim in claims] == [10] * 5
    assert len({claim.messages[0].partition for claim in claims}) == 5


def test_a_partition_goes_to_one_waiter_until_it_is_acked(pool, broker):
    """O-18: and the ack wakes the next."""
    waiters = _waiters(pool, broker, 2, max_messages=10)
    _push(broker, "q", *range(15))
    _wait_until(lambda: any(waiter.done() for waiter in waiters))
    time.sleep(0.05)
    (first,) = [waiter.result() for waiter in waiters if waiter.done()]
    (second,) = [waiter for waiter in waiters if not waiter.done()]
    assert [message.value for message in first.messages] == list(range(10))
    broker.ack([m.Ack(transaction_id=t.id, lease_id=first.lease_id) for t in first.messages])
    assert _values([second.result(SOON)]) == list(range(10, 15))


def test_a_message_given_back_wakes_a_waiter(pool, broker):
    _push(broker, "q", 1)
    held = broker.pop(m.PopRequest(queue="q"))
    (waiter,) = _waiters(pool, broker, 1)
    broker.release(held.lease_id)
    assert _values([waiter.result(SOON)]) == [1]


def test_a_transaction_wakes_a_waiter(pool, broker):
    (waiter,) = _waiters(pool, broker, 1)
    broker.transact(m.Transaction(operations=[m.NewMessage.of("q", 1)]))
    assert _values([waiter.result(SOON)]) == [1]


def test_no_wake_up_is_missed_however_push_and_pop_meet(pool, broker):
    """O-17: register first, then look."""
    chance = random.Random(17)
    for round_number in range(300):
        offset = chance.uniform(-0.003, 0.003)
        asked = m.PopRequest(queue="q", auto_ack=True)
        if offset < 0:
            waiter = pool.submit(broker.pop, asked, LONG)
            time.sleep(-offset)
            _push(broker, "q", round_number)
        else:
            pushed = pool.submit(_push, broker, "q", round_number)
            time.sleep(offset / 10)
            waiter = pool.submit(broker.pop, asked, LONG)
            pushed.result(1)
        assert _values([waiter.result(1)]) == [round_number]


# ------------------------------------------------------------------------------- time


@pytest.mark.parametrize(
    ("options", "seconds"),
    [
        ({"retry_delay_milliseconds": 300}, 0.3),
        ({"lease_seconds": 1}, 1.0),
        ({"delayed_processing_seconds": 1}, 1.0),
        ({"window_buffer_seconds": 1}, 1.0),
    ],
    ids=str,
)
def test_what_time_alone_makes_available_is_slept_to_exactly(broker, options, seconds):
    broker.configure("q", options)
    begun = time.monotonic()
    _push(broker, "q", 1)
    if claim := broker.pop(m.PopRequest(queue="q")):
        begun = time.monotonic()
        if "retry_delay_milliseconds" in options:
            outcome = m.Ack(
                transaction_id=claim.messages[0].id, lease_id=claim.lease_id, outcome="failed"
            )
            broker.ack([outcome])
    claim = broker.pop(m.PopRequest(queue="q"), LONG)
    assert _values([claim]) == [1]
    assert seconds - 0.01 <= time.monotonic() - begun < seconds + 0.15


def test_time_wakes_a_crowd_one_by_one_and_serves_it_all(pool, broker):
    broker.configure("q", {"delayed_processing_seconds": 1})
    for value in range(10):
        _push(broker, "q", value, partition=f"p{value}")
    waiters = _waiters(pool, broker, 10)
    assert _values([waiter.result(2) for waiter in waiters]) == list(range(10))


def test_a_lost_hint_costs_two_seconds_at_most(backend, settings, monkeypatch):
    """O-17: the safety net."""
    monkeypatch.setattr(backend, "listen", lambda _: lambda: None)
    broker = Broker(backend, settings)
    with ThreadPoolExecutor(1) as pool:
        (waiter,) = _waiters(pool, broker, 1)
        _push(broker, "q", 1)
        assert _values([waiter.result(2.5)]) == [1]
    broker.close()


# ----------------------------------------------------------------------- limits, leaving


def test_too_many_waiters_are_refused_with_a_text_that_loops_understand(backend):
    """O-19."""
    broker = Broker(backend, Settings(backend="memory:", threads=4, max_concurrent_polls=2))
    with ThreadPoolExecutor(2) as pool:
        _waiters(pool, broker, 2)
        with pytest.raises(Overloaded, match=r"^too many waiting connections$"):
            broker.pop(m.PopRequest(queue="q"), LONG)
        _push(broker, "other", 1)
        assert broker.pop(m.PopRequest(queue="other"), LONG)
        assert not broker.pop(m.PopRequest(queue="q"))
        _push(broker, "other", 2, partition="p")
        gone = m.PopRequest(queue="other")
        assert not broker.pop(gone, LONG, lambda: True)
        assert broker.pop(gone, LONG)
        broker.drain()
    broker.close()


def test_a_drain_ends_all_waits_and_takes_nothing_any_more(pool, broker):
    """O-21."""
    waiters = _waiters(pool, broker, 30)
    broker.drain()
    assert not any(waiter.result(SOON) for waiter in waiters)
    _push(broker, "q", 1)
    assert _seconds(lambda: broker.pop(m.PopRequest(queue="q"), LONG)) < SOON
    assert not broker.pop(m.PopRequest(queue="q"))
    assert broker.health().draining


def test_what_was_taken_before_a_drain_can_be_acked_after_it(broker):
    """O-21."""
    _push(broker, "q", 1)
    claim = broker.pop(m.PopRequest(queue="q"))
    broker.drain()
    (answer,) = broker.ack([m.Ack(transaction_id=claim.messages[0].id, lease_id=claim.lease_id)])
    assert answer.status == "completed"


def test_closing_ends_waits_and_threads_and_may_be_done_twice(backend, settings):
    broker = Broker(backend, settings)
    with ThreadPoolExecutor(1) as pool:
        (waiter,) = _waiters(pool, broker, 1)
        broker.close()
        assert not waiter.result(SOON)
    broker.close()
    assert not [t for t in threading.enumerate() if t.name == "queen-waiting"]


def test_a_broker_starts_no_thread_before_somebody_waits(broker):
    """O-25: threads do not survive a fork."""
    broker.pop(m.PopRequest(queue="q"))
    assert not [t for t in threading.enumerate() if t.name == "queen-waiting"]


class _Client:
    """A client that may hang up."""

    def __init__(self) -> None:
        self.gone = False

    def __call__(self) -> bool:
        return self.gone


@pytest.mark.parametrize("auto_ack", [False, True])
def test_a_waiter_whose_client_is_gone_takes_nothing(pool, broker, auto_ack):
    """O-15: and the wake that it got goes to somebody who is there."""
    request = m.PopRequest(queue="q", auto_ack=auto_ack)
    for value in range(50):
        client = _Client()
        dead = pool.submit(broker.pop, request, LONG, client)
        _wait_until(lambda: broker.health().waiting_count == 1)
        client.gone = True
        living = pool.submit(broker.pop, request, LONG)
        _push(broker, "q", value, partition=f"p{value}")
        assert _values([living.result(SOON)]) == [value]
        assert not dead.result(1.5)


def test_the_dead_do_not_use_up_the_limit(backend):
    """O-15: they are noticed within a second."""
    broker = Broker(backend, Settings(backend="memory:", threads=4, max_concurrent_polls=1))
    client = _Client()
    with ThreadPoolExecutor(1) as pool:
        dead = pool.submit(broker.pop, m.PopRequest(queue="q"), LONG, client)
        _wait_until(lambda: broker.health().waiting_count == 1)
        client.gone = True
        assert not dead.result(1.5)
    assert broker.health().waiting_count == 0
    broker.close()


def test_a_claim_whose_client_left_meanwhile_is_given_back_uncharged(broker):
    """O-16."""
    _push(broker, "q", 1)
    answers = iter([False, True])
    assert not broker.pop(m.PopRequest(queue="q"), abandoned=lambda: next(answers))
    (again,) = broker.pop(m.PopRequest(queue="q")).messages
    assert (again.failure_count, again.delivery_count) == (0, 2)
    assert broker.health().counters["claims_given_back"] == 1


def test_a_waiter_that_fails_passes_its_wake_on(pool, broker, backend, monkeypatch):
    (first, second) = _waiters(pool, broker, 2)
    original = backend.pop
    failures = [BackendUnavailable("gone for a moment")]

    def pop(request):
        if failures:
            raise failures.pop()
        return original(request)

    monkeypatch.setattr(backend, "pop", pop)
    _push(broker, "q", 1)
    with pytest.raises(BackendUnavailable):
        first.result(SOON)
    assert _values([second.result(SOON)]) == [1]


def test_a_client_that_cannot_be_asked_ends_nothing_for_the_others(pool, broker, caplog):
    asked = threading.Event()
    calls = iter(range(10))

    def broken() -> bool:
        if next(calls) == 0:
            return False
        asked.set()
        raise OSError("no such socket")

    strange = pool.submit(broker.pop, m.PopRequest(queue="other"), 1.5, broken)
    client = _Client()
    dead = pool.submit(broker.pop, m.PopRequest(queue="q"), LONG, client)
    assert asked.wait(1.5)
    client.gone = True
    assert not dead.result(1.5)
    assert not strange.result(1.5)
    assert "cannot say whether its client is there" in caplog.text


# --------------------------------------------------------------------------- defaults


def test_the_default_subscription_is_that_of_real_groups_that_name_none(backend):
    """C-07."""
    broker = Broker(backend, Settings(backend="memory:", default_subscription_mode="new"))
    _push(broker, "q", 1)
    everything = m.Subscription(mode="all")
    assert not broker.pop(m.PopRequest(queue="q", group="g"))
    assert broker.pop(m.PopRequest(queue="q", group="h", subscription=everything))
    assert broker.pop(m.PopRequest(queue="q"))
    claim = broker.pop(m.PopRequest(queue="q", group="h"))
    assert claim.subscription_ignored is False
    broker.close()
