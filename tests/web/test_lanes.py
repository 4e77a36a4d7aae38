"""Who is woken, step by step: the meetings that chance brings about too seldom."""

import math
import threading
import time
from concurrent.futures import ThreadPoolExecutor

from queen_sync import model as m
from queen_sync.waiting import Waiting

REQUEST = m.PopRequest(queue="q")
EMPTY = m.Claim()
FOUND = m.Claim(
    messages=[
        m.Message(
            id="i",
            transaction_id="i",
            queue="q",
            partition="p",
            partition_id="p",
            seq=1,
            payload=b"1",
            created_us=0,
        )
    ]
)
SOON = 0.3
HINT = frozenset({"q"})


def _waiting() -> Waiting:
    return Waiting(lambda _: None, limit=10)


def _asleep(waiting: Waiting, count: int) -> None:
    deadline = time.monotonic() + 5
    while sum(len(lane.asleep) for lane in waiting._lanes.values()) != count:
        assert time.monotonic() < deadline
        time.sleep(0.001)


def test_a_hint_in_the_middle_of_a_try_makes_it_try_again():
    """O-17: it may have looked before there was anything to see."""
    waiting = _waiting()
    tries = []

    def attempt() -> m.Claim:
        tries.append(1)
        if len(tries) == 1:
            waiting.wake(HINT)
            return EMPTY
        return FOUND

    begun = time.monotonic()
    assert waiting.pop(REQUEST, 1.5, attempt)
    assert time.monotonic() - begun < SOON


def test_a_wake_that_comes_while_one_succeeds_goes_to_the_next():
    waiting = _waiting()
    second_tries = []

    def second_attempt() -> m.Claim:
        second_tries.append(1)
        return EMPTY if len(second_tries) == 1 else FOUND

    with ThreadPoolExecutor(1) as pool:
        others = []

        def first_attempt() -> m.Claim:
            waiting.wake(HINT)
            others.append(pool.submit(waiting.pop, REQUEST, 1.5, second_attempt))
            _asleep(waiting, 1)
            return FOUND

        assert waiting.pop(REQUEST, 1.5, first_attempt)
        assert others[0].result(SOON)
    waiting.close()


def test_hints_go_to_sleepers_first_and_the_longest_sleeper_before_the_others():
    waiting = _waiting()
    open_for = threading.Event()
    served = []

    def attempt(name: str) -> m.Claim:
        if not open_for.is_set():
            return EMPTY
        served.append(name)
        return FOUND

    with ThreadPoolExecutor(3) as pool:
        for number, name in enumerate("abc"):
            pool.submit(waiting.pop, REQUEST, 1.5, lambda name=name: attempt(name))
            _asleep(waiting, number + 1)
        # Woken for nothing, the first keeps its place.
        waiting.wake(HINT)
        time.sleep(0.05)
        _asleep(waiting, 3)
        open_for.set()
        waiting.wake(HINT)
    assert served == ["a", "b", "c"]
    waiting.close()


def test_a_wake_that_finds_nothing_ends_the_chain():
    waiting = _waiting()
    tries = []
    with ThreadPoolExecutor(3) as pool:
        for number in range(3):
            pool.submit(waiting.pop, REQUEST, 0.5, lambda: tries.append(1) or EMPTY)
            _asleep(waiting, number + 1)
        waiting.wake(HINT)
        time.sleep(0.1)
        assert len(tries) == 4
    waiting.close()


def test_a_hint_wakes_the_lanes_of_its_queues_alone_and_no_name_means_all():
    waiting = _waiting()
    tries = []
    with ThreadPoolExecutor(2) as pool:
        for number, queue in enumerate("qr"):
            request = m.PopRequest(queue=queue)
            pool.submit(waiting.pop, request, 0.6, lambda queue=queue: tries.append(queue) or EMPTY)
            _asleep(waiting, number + 1)
        tries.clear()
        for hint, expected in ((HINT, ["q"]), (frozenset({"other"}), []), (None, ["q", "r"])):
            waiting.wake(hint)
            time.sleep(0.05)
            assert sorted(tries) == expected
            tries.clear()
    waiting.close()


def test_a_try_that_outlasts_the_wait_is_the_last():
    waiting = _waiting()
    tries = []
    waiting.pop(REQUEST, 0.02, lambda: tries.append(1) or time.sleep(0.05) or EMPTY)
    assert len(tries) == 1
    waiting.close()


def test_a_drain_in_the_middle_of_a_try_is_not_slept_through():
    waiting = _waiting()
    begun = time.monotonic()
    assert not waiting.pop(REQUEST, 1.5, lambda: waiting.drain() or EMPTY)
    assert time.monotonic() - begun < SOON


def test_the_attendant_is_there_again_after_a_time_with_nobody():
    dues = iter([None, None, 0.1, None])
    waiting = Waiting(lambda _: next(dues), limit=10)
    waiting.pop(REQUEST, 0.01, lambda: EMPTY)
    deadline = time.monotonic() + 5
    while waiting._attending_until != math.inf:
        assert time.monotonic() < deadline
        time.sleep(0.001)
    waiting.pop(REQUEST, 0.01, lambda: EMPTY)
    answers = iter([EMPTY, FOUND])
    begun = time.monotonic()
    assert waiting.pop(REQUEST, 1.5, lambda: next(answers))
    assert 0.1 <= time.monotonic() - begun < SOON
    waiting.close()


def test_nothing_is_kept_of_those_who_left():
    waiting = _waiting()
    for queue in "abc":
        waiting.pop(m.PopRequest(queue=queue), 0.01, lambda: EMPTY)
    assert (waiting.count, waiting._lanes, waiting._of_queue) == (0, {}, {})
    waiting.close()


def test_something_due_that_is_never_given_is_not_asked_for_in_a_hot_loop():
    waiting = Waiting(lambda _: 0.0, limit=10)
    tries = []
    waiting.pop(REQUEST, 1.0, lambda: tries.append(1) or EMPTY)
    assert 3 <= len(tries) <= 15
    waiting.close()
