"""The line of lanes that wait: what a pop meets on its way, and in which order (C-05)."""

import pytest

from queen_sync import model as m
from queen_sync.backends import sqlite_pop
from queen_sync.backends.sqlite import SqliteBackend
from queen_sync.clock import ManualClock


@pytest.fixture
def clock():
    return ManualClock()


@pytest.fixture
def backend(path, clock):
    with SqliteBackend(path, clock=clock) as backend:
        yield backend


def push(backend, partition, *values):
    backend.push([m.NewMessage.of("q", value, partition=partition) for value in values])


def pop(backend, count=10, partitions=1):
    return backend.pop(m.PopRequest(queue="q", max_messages=count, max_partitions=partitions))


def given(claim):
    return [(message.partition, message.value) for message in claim.messages]


def test_a_lane_that_moves_back_in_the_line_on_the_way_is_taken_once(backend, clock):
    """C-09: its eviction dates it anew, behind its old place and before the end of the line."""
    backend.configure("q", {"ttl_seconds": 20})
    pop(backend)
    push(backend, "a", "too old")
    push(backend, "b", "too old")
    clock.advance(15)
    push(backend, "a", 1, 2)
    push(backend, "b", 3)
    clock.advance(10)
    claim = pop(backend, partitions=5)
    assert given(claim) == [("a", 1), ("a", 2), ("b", 3)]
    assert claim.partition_count == 2


def test_a_lane_whose_lease_ran_out_is_taken_once(backend, clock):
    """C-03: taken back and given again in the same pop, in one claim of several partitions."""
    backend.configure("q", {"lease_seconds": 5, "delayed_processing_seconds": 8})
    pop(backend)
    push(backend, "a", 1)
    clock.advance(8)
    pop(backend)
    push(backend, "b", 2)
    clock.advance(10)
    claim = pop(backend, partitions=5)
    assert given(claim) == [("a", 1), ("b", 2)]


def test_lanes_that_are_put_off_do_not_hide_what_is_ready(backend, clock, monkeypatch):
    """A pop that has put off many goes on in another transaction until it has looked at all."""
    monkeypatch.setattr(sqlite_pop, "MAX_ROUNDS", 3)
    backend.configure("q", {"window_buffer_seconds": 60})
    pop(backend)
    for number in range(20):
        push(backend, f"restless {number}", 1)
    push(backend, "quiet", "yes")
    clock.advance(59)
    for number in range(20):
        push(backend, f"restless {number}", 2)
    clock.advance(1)
    assert given(pop(backend, partitions=30)) == [("quiet", "yes")]
    assert not pop(backend)
    assert backend.next_ready_in(m.PopRequest(queue="q")) == 59


def test_a_shorter_delay_counts_for_what_is_stored(backend, clock):
    """C-11: lanes are dated anew, also those with failures, and keep their order."""
    backend.configure("q", {"delayed_processing_seconds": 5, "lease_seconds": 100})
    pop(backend)
    push(backend, "a", 1)
    clock.advance(5)
    claim = pop(backend)
    backend.ack(
        [
            m.Ack(
                transaction_id=claim.messages[0].id,
                partition_id=claim.messages[0].partition_id,
                lease_id=claim.lease_id,
                outcome="failed",
            )
        ]
    )
    backend.configure("q", {"delayed_processing_seconds": 1_000})
    clock.advance(1)
    push(backend, "b", 2)
    assert not pop(backend)
    assert backend.next_ready_in(m.PopRequest(queue="q")) == 994
    backend.configure("q", {"delayed_processing_seconds": 0})
    # a waits since its lease ended, b since it was pushed, which was later.
    assert given(pop(backend, partitions=2)) == [("a", 1), ("b", 2)]


def test_a_limited_queue_counts_what_is_settled_here_and_there(backend):
    """C-06: what every group has settled makes room, wherever in the partition it lies."""
    backend.configure("q", {"max_queue_size": 4})
    for group in ("g", "h"):
        backend.subscribe("q", group, m.Subscription())
    push(backend, "a", 1, 2, 3, 4)
    for group, chosen in (("g", (1, 2)), ("h", (2, 3))):
        claim = backend.pop(m.PopRequest(queue="q", group=group, max_messages=4))
        backend.ack(
            [
                m.Ack(
                    transaction_id=claim.messages[place].id,
                    partition_id=claim.messages[place].partition_id,
                    lease_id=claim.lease_id,
                    group=group,
                )
                for place in chosen
            ]
        )
    # Of the four, both have settled the third.
    (receipt,) = backend.push([m.NewMessage.of("q", 5, partition="b")])
    assert (receipt.depth, receipt.remaining) == (4, 0)
