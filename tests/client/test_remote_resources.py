"""Queues, groups, partitions and lanes over HTTP are those of the store behind it."""

import pytest

from queen_sync import model as m, stats as s
from queen_sync.inspection import MAX_PAGE

BAD_NAMES = ("", ".", "..", "x" * 256, "\0")


@pytest.fixture
def busy(queen, store):
    """Two queues with a group each, some of whose work is under a lease."""
    queen.configure("a/b c", {"retry_limit": 7}, namespace="näme", task="t")
    queen.push([m.NewMessage.of("a/b c", n, partition=f"p/{n}") for n in range(3)])
    queen.push([m.NewMessage.of("plain", 1)])
    queen.pop(m.PopRequest(queue="a/b c", group="g/ü"))
    subscription = m.Subscription(mode="from", from_us=1)
    queen.pop(m.PopRequest(queue="plain", group="other", subscription=subscription))
    return store


def test_queues_and_groups_are_the_store_s(queen, busy):
    """C-18, QB-5: with their options, ids and instants to the microsecond."""
    assert queen.queues() == busy.queues()
    assert queen.queue("a/b c") == busy.queue("a/b c")
    assert queen.groups("a/b c") == busy.groups("a/b c")
    assert queen.groups("plain") == busy.groups("plain")


def test_partitions_and_figures_are_the_store_s(queen, busy):
    """PLD-10, INV-COUNTERS."""
    assert queen.partitions("a/b c") == busy.partitions("a/b c")
    assert queen.queue_stats() == busy.queue_stats()
    assert queen.queue_stats("plain") == busy.queue_stats("plain")
    assert queen.group_stats() == busy.group_stats()
    assert queen.group_stats("g/ü", "a/b c") == busy.group_stats("g/ü", "a/b c")


@pytest.mark.parametrize("order", s.LANE_ORDERS)
def test_lanes_are_the_store_s(queen, busy, order):
    for wanted in (
        s.LaneFilter(order=order),
        s.LaneFilter(order=order, queue="a/b c", group="g/ü", partition="p/1"),
        s.LaneFilter(order=order, leased=True),
        s.LaneFilter(order=order, limit=1, offset=1),
        s.LaneFilter(order=order, waiting_since_us=busy.partitions("plain")[0].oldest_us),
        s.LaneFilter(order=order, waiting_since_us=0),
    ):
        assert queen.lanes(wanted) == busy.lanes(wanted)


def test_a_long_listing_is_read_to_its_end(queen, store):
    """QA-6: page after page."""
    queen.push([m.NewMessage.of("q", 1, partition=f"p{n}") for n in range(MAX_PAGE + 1)])
    found = queen.partitions("q")
    assert len(found) == MAX_PAGE + 2
    assert found == store.partitions("q")


@pytest.mark.parametrize("name", ["nobody's", *BAD_NAMES])
def test_what_is_not_there_is_found_empty(queen, busy, name):
    """Also a name that nothing can have."""
    assert queen.queue(name) is None
    assert list(queen.partitions(name)) == []
    assert list(queen.queue_stats(name)) == []
    assert list(queen.groups(name)) == []
    assert list(queen.group_stats(name)) == []
    assert list(queen.lanes(s.LaneFilter(queue=name))) == []
