"""The recorder: what it writes down, and what it says about it."""

import math
import threading

import pytest

from queen_sync import model as m
from queen_sync.backends.memory import MemoryBackend
from queen_sync.clock import ManualClock, SystemClock
from queen_sync.conformance import BackendConformance
from queen_sync.conformance.history import History, recorded
from queen_sync.errors import BackendUnavailable, OutcomeUnknown, QueueNotFound


@pytest.fixture
def history():
    return History()


@pytest.fixture
def target(history):
    with MemoryBackend() as backend:
        yield recorded(backend, history)


def refuse(error):
    raise error


def test_an_answer_is_recorded_with_its_call(history, target):
    (receipt,) = target.push([m.NewMessage.of("q", 1)])
    (operation,) = history.operations
    assert (operation.name, operation.outcome, operation.answer) == ("push", "ok", [receipt])
    assert operation.invoked <= operation.returned < math.inf


def test_a_definite_error_is_a_failure_and_reaches_the_caller(history, target):
    with pytest.raises(QueueNotFound):
        target.push([m.NewMessage.of("q", 1)], create=False)
    (operation,) = history.operations
    assert (operation.outcome, operation.options) == ("fail", {"create": False})
    assert isinstance(operation.error, QueueNotFound)
    assert operation.returned < math.inf


@pytest.mark.parametrize("error", [OutcomeUnknown("no answer"), ConnectionResetError()])
def test_what_nobody_knows_stays_open_for_ever(history, error):
    with pytest.raises(type(error)):
        history.call("push", refuse, error)
    (operation,) = history.operations
    assert (operation.outcome, operation.returned) == ("info", math.inf)


def test_a_thread_goes_on_as_another_process_after_an_unknown_outcome(history):
    for error in (
        BackendUnavailable("away"),
        OutcomeUnknown("no answer"),
        BackendUnavailable("away"),
    ):
        with pytest.raises(type(error)):
            history.call("push", refuse, error)
    first, second, third = (operation.process for operation in history.operations)
    assert first == second != third


def test_every_thread_is_a_process_of_its_own(history, target):
    threads = [threading.Thread(target=target.push, args=([],)) for _ in range(5)]
    for thread in threads:
        thread.start()
        thread.join()
    assert len({operation.process for operation in history.operations}) == 5


def test_closing_the_recorded_backend_leaves_it_to_its_owner(target):
    target.close()
    assert target.push([m.NewMessage.of("q", 1)])


def test_a_story_is_the_last_calls_in_few_words(history, target):
    for n in range(4):
        target.push([m.NewMessage.of("q", n, transaction_id=f"order-{n}")])
    claim = target.pop(m.PopRequest(queue="q", max_messages=9))
    target.ack([m.Ack(transaction_id="order-0", lease_id=claim.lease_id, outcome="failed")])
    target.pop(m.PopRequest(queue="q"))
    lines = history.story(4).splitlines()
    assert lines[0] == "... 3 earlier calls"
    assert "push([q/Default id=order-3 3]) -> [queued Default#4]" in lines[1]
    assert "pop(queue='q' max_messages=9) -> lease" in lines[2]
    assert "Default#1 x1 0" in lines[2]
    assert "ack([failed order-0 lease" in lines[3]
    assert lines[3].endswith("-> [failed]")
    assert lines[4].endswith("-> empty")


def test_a_history_without_calls_says_so(history):
    assert history.story() == "no call was made"


@pytest.mark.parametrize(
    ("takes_clock", "clock", "by_hand"),
    [
        (None, ManualClock(), True),
        (False, ManualClock(), False),
        (None, SystemClock(), False),
        (True, SystemClock(), False),
    ],
)
def test_time_is_advanced_by_hand_only_where_the_target_follows(takes_clock, clock, by_hand):
    case = BackendConformance()
    case.takes_clock = takes_clock
    with MemoryBackend() as backend:
        case.bind(backend, clock)
        assert case.by_hand is by_hand
        before = clock.now_us()
        case.advance(0.01)
        assert clock.now_us() >= before + (
            10_000 if by_hand or isinstance(clock, SystemClock) else 0
        )
