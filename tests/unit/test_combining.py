"""Folding concurrent calls (H13): one for many, each with its own answer, no lane held up twice."""

import threading
import time
from collections.abc import Callable

import pytest

from queen_sync.combining import Combiner
from queen_sync.errors import BackendUnavailable, OutcomeUnknown, QueueFull


class Store:
    """Counts calls; a gate holds the first one until others have gathered."""

    def __init__(self) -> None:
        self.together: list[list[str]] = []
        self.alone: list[str] = []
        self.gate = threading.Event()
        self.first = threading.Event()
        self.refuse: Callable[[list[str]], None] = lambda calls: None

    def run_together(self, calls):
        self.together.append(list(calls))
        if "first" in calls:
            self.first.set()
            assert self.gate.wait(10)
        else:
            self.refuse(list(calls))
        return [call.upper() for call in calls]

    def run_alone(self, call):
        self.alone.append(call)
        if call == "full":
            raise QueueFull("q", 1, 1, 1)
        return call.upper()


def combiner(store: Store) -> Combiner[str, str]:
    return Combiner(
        store.run_together,
        store.run_alone,
        kind=lambda call: call.split("/")[0] if "/" in call else "",
        lanes=lambda call: frozenset({call}),
    )


def gathered(combining, store, calls):
    """Make calls at once that gather while the first is under way; return answers or errors."""
    results = {}

    def do(call):
        try:
            results[call] = combining.do(call)
        except Exception as error:
            results[call] = error

    threads = [threading.Thread(target=do, args=("first",))]
    threads[0].start()
    assert store.first.wait(10)
    for call in calls:
        threads.append(threading.Thread(target=do, args=(call,)))
        threads[-1].start()
    deadline = time.monotonic() + 10
    while len(combining._line) < len(calls) and time.monotonic() < deadline:
        time.sleep(0.001)
    store.gate.set()
    for thread in threads:
        thread.join(10)
    return results


def test_a_single_call_is_made_at_once():
    store = Store()
    assert combiner(store).do("a") == "A"
    assert store.together == [["a"]]
    assert not store.alone


def test_one_that_is_alone_waits_for_nobody(monkeypatch):
    monkeypatch.setattr("queen_sync.combining.GATHER_SECONDS", 3600)
    store = Store()
    combining = combiner(store)
    for call in "abc":
        combining.do(call)
    assert store.together == [["a"], ["b"], ["c"]]


def test_those_who_were_answered_together_come_together_again(monkeypatch):
    """The one that is back first waits for the others."""
    store = Store()
    combining = combiner(store)
    gathered(combining, store, ["a", "b"])
    store.together.clear()
    monkeypatch.setattr("queen_sync.combining.GATHER_SECONDS", 3600)
    threads = [threading.Thread(target=combining.do, args=(call,)) for call in ("a", "b")]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(20)
    assert [sorted(calls) for calls in store.together] == [["a", "b"]]


def test_one_whose_company_has_gone_waits_for_a_moment_only():
    store = Store()
    combining = combiner(store)
    gathered(combining, store, ["a", "b"])
    assert combining.do("c") == "C"
    assert combining._crowd == 1


def test_calls_that_gather_are_folded_and_each_gets_its_own_answer():
    store = Store()
    results = gathered(combiner(store), store, ["a", "b", "c"])
    assert results == {"first": "FIRST", "a": "A", "b": "B", "c": "C"}
    assert [sorted(calls) for calls in store.together] == [["first"], ["a", "b", "c"]]


def test_calls_of_other_kinds_are_folded_apart():
    store = Store()
    results = gathered(combiner(store), store, ["x/1", "y/1", "x/2", "y/2"])
    assert results["y/2"] == "Y/2"
    folded = sorted(sorted(calls) for calls in store.together[1:])
    assert folded == [["x/1", "x/2"], ["y/1", "y/2"]]


def test_a_refused_fold_is_made_one_by_one_with_each_its_own_error():
    """One caller's full queue is not another's (H13 c)."""
    store = Store()

    def refuse(calls):
        raise QueueFull("q", 1, 1, 2)

    store.refuse = refuse
    results = gathered(combiner(store), store, ["a", "full", "b"])
    assert isinstance(results["full"], QueueFull)
    assert (results["a"], results["b"]) == ("A", "B")


def test_an_unknown_outcome_is_everybodys_and_nothing_is_made_again():
    """Repeating what may have been committed would store unnamed messages twice (H13 b)."""
    store = Store()

    def refuse(calls):
        raise OutcomeUnknown("lost")

    store.refuse = refuse
    results = gathered(combiner(store), store, ["a", "b"])
    assert isinstance(results["a"], OutcomeUnknown)
    assert isinstance(results["b"], OutcomeUnknown)
    assert results["a"] is not results["b"]
    assert not store.alone


def test_a_leader_that_dies_leaves_nobody_waiting():
    """H13 f: whatever ends the leader, its crew is told and the next one leads."""
    store = Store()
    combining = combiner(store)

    def refuse(calls):
        raise MemoryError

    store.refuse = refuse
    results = gathered(combining, store, ["a", "b"])
    assert sorted(type(results[call]).__name__ for call in ("a", "b")) == [
        "MemoryError",
        "OutcomeUnknown",
    ]
    store.refuse = lambda calls: None
    assert combining.do("c") == "C"


def test_a_blocked_lane_does_not_hold_up_the_others_again():
    """H13 a: after one refused fold the blocked lane's calls go alone; others fold on."""
    store = Store()
    blocked = threading.Event()
    combining = combiner(store)

    def refuse(calls):
        if "stuck" in calls:
            raise BackendUnavailable("a row is taken")

    store.refuse = refuse
    run_alone = store.run_alone

    def alone(call):
        if call == "stuck":
            assert blocked.wait(10)
        return run_alone(call)

    combining._run_alone = alone
    outcome = []
    thread = threading.Thread(
        target=lambda: outcome.append(gathered(combining, store, ["a", "stuck", "b"]))
    )
    thread.start()
    deadline = time.monotonic() + 10
    while "stuck" not in combining._busy and time.monotonic() < deadline:
        time.sleep(0.001)
    second = threading.Thread(target=combining.do, args=("stuck",))
    second.start()
    started = time.monotonic()
    assert combining.do("c") == "C"
    assert time.monotonic() - started < 5
    assert not any("stuck" in calls for calls in store.together[2:])
    blocked.set()
    thread.join(10)
    second.join(10)
    assert outcome[0]["stuck"] == "STUCK"
    assert not combining._busy


@pytest.mark.parametrize("threads", [2, 16])
def test_under_load_every_call_is_answered_once(threads):
    store = Store()
    combining = combiner(store)
    wrong = []

    def work(number):
        for index in range(200):
            call = f"{number}-{index}"
            if combining.do(call) != call.upper():
                wrong.append(call)

    workers = [threading.Thread(target=work, args=(number,)) for number in range(threads)]
    for worker in workers:
        worker.start()
    for worker in workers:
        worker.join(60)
    made = [call for calls in store.together for call in calls] + store.alone
    assert not wrong
    assert sorted(made) == sorted(f"{n}-{i}" for n in range(threads) for i in range(200))
