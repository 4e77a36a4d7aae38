"""The bell: what ends a wait, and when."""

import threading

from queen_sync.bell import Bell


def test_a_ring_before_the_wait_ends_it():
    bell = Bell()
    bell.ring()
    bell.ring()
    assert bell.wait(20)


def test_rings_end_one_wait():
    bell = Bell()
    bell.ring()
    bell.ring()
    assert bell.wait(0)
    assert not bell.wait(0)


def test_a_ring_that_was_hushed_is_forgotten():
    bell = Bell()
    bell.ring()
    bell.hush()
    bell.hush()
    assert not bell.wait(0)


def test_a_ring_ends_the_wait_of_another_thread():
    bell = Bell()
    heard = []
    sleeper = threading.Thread(target=lambda: heard.append(bell.wait()))
    sleeper.start()
    bell.ring()
    sleeper.join(20)
    assert heard == [True]
