"""Cases under way together end as they would have ended alone."""

import threading

import pytest

from queen_sync.conformance.ahead import Ahead, Gate

DEADLINE_SECONDS = 30


@pytest.fixture
def ahead():
    ahead = Ahead(max_under_way=20, max_awake=2)
    yield ahead
    ahead.close()


def test_a_run_ends_as_it_ended(ahead):
    """With its own result, its own error, or its own word that it is not offered."""

    def fails():
        raise AssertionError("wrong")

    def skips():
        pytest.skip("not offered: time")

    for run in (fails, skips, list):
        ahead.begin(run.__name__, run)
    ahead.end("list")
    with pytest.raises(AssertionError, match="wrong"):
        ahead.end("fails")
    with pytest.raises(pytest.skip.Exception, match="time"):
        ahead.end("skips")
    assert ahead.has_begun("fails")
    assert not ahead.has_begun("another")


def test_those_that_sleep_keep_nobody_from_beginning():
    """Ten cases that wait for each other in their sleep, where two may be awake."""
    together = threading.Barrier(10)

    class Waiting(Gate):
        def leave(self):
            super().leave()
            if threading.current_thread() in sleepers:
                together.wait(DEADLINE_SECONDS)

    sleepers = set()
    ahead = Ahead(max_under_way=10, max_awake=2)
    ahead.gate = Waiting(2)

    def run():
        sleepers.add(threading.current_thread())
        ahead.gate.sleep(0)
        sleepers.remove(threading.current_thread())

    for n in range(10):
        ahead.begin(str(n), run)
    for n in range(10):
        ahead.end(str(n))
    ahead.close()


def test_nobody_begins_while_enough_are_awake(ahead):
    """Whoever comes third, of two, begins when one of them has ended."""
    begun = {name: threading.Event() for name in "abc"}
    may_end = {name: threading.Event() for name in "abc"}

    def run(name):
        begun[name].set()
        assert may_end[name].wait(DEADLINE_SECONDS)

    for name in "ab":
        ahead.begin(name, lambda name=name: run(name))
        assert begun[name].wait(DEADLINE_SECONDS)
    ahead.begin("c", lambda: run("c"))
    assert not begun["c"].wait(0.05)
    may_end["a"].set()
    assert begun["c"].wait(DEADLINE_SECONDS)
    for event in may_end.values():
        event.set()
    ahead.rest()


def test_closing_drops_what_has_not_begun():
    ahead = Ahead(max_under_way=1)
    begun, may_end = threading.Event(), threading.Event()

    def first():
        begun.set()
        assert may_end.wait(DEADLINE_SECONDS)

    ran = []
    ahead.begin("first", first)
    ahead.begin("second", lambda: ran.append("second"))
    assert begun.wait(DEADLINE_SECONDS)
    threading.Timer(0.05, may_end.set).start()
    ahead.close()
    ahead.end("first")
    assert ran == []
