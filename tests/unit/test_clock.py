"""The clocks, and the two ways of writing an instant."""

import threading
import time
from datetime import UTC, datetime, timedelta, timezone

import pytest
from hypothesis import given, strategies as st

from queen_sync.clock import ManualClock, SystemClock, to_datetime, to_us


@given(st.integers(to_us(datetime(1, 1, 1, tzinfo=UTC)), to_us(datetime(9999, 12, 31, tzinfo=UTC))))
def test_an_instant_survives_both_conversions(instant_us):
    """O-02: no microsecond is lost on the way."""
    assert to_us(to_datetime(instant_us)) == instant_us


@given(st.datetimes(timezones=st.just(UTC)))
def test_a_datetime_survives_both_conversions(instant):
    assert to_datetime(to_us(instant)) == instant


def test_an_instant_is_the_same_in_every_zone():
    """P22."""
    utc = datetime(2026, 3, 1, 12, tzinfo=UTC)
    assert to_us(utc.astimezone(timezone(timedelta(hours=5, minutes=30)))) == to_us(utc)


def test_a_datetime_without_a_zone_is_no_instant():
    """P22."""
    with pytest.raises(TypeError):
        to_us(datetime(2026, 3, 1, 12))  # noqa: DTZ001  that it is naive is the point


def test_a_manual_clock_stands_still():
    start = datetime(2026, 5, 1, tzinfo=UTC)
    clock = ManualClock(start)
    assert clock.now_us() == clock.now_us() == to_us(start)


@given(st.lists(st.integers(0, 10**12), max_size=10))
def test_a_manual_clock_moves_by_exactly_what_it_is_told(steps_us):
    clock = ManualClock()
    before = clock.now_us()
    for step_us in steps_us:
        clock.advance(step_us / 1_000_000)
    assert clock.now_us() - before == sum(steps_us)


def test_a_manual_clock_does_not_go_back():
    clock = ManualClock()
    before = clock.now_us()
    with pytest.raises(ValueError, match="does not go back"):
        clock.advance(-0.000001)
    assert clock.now_us() == before


def test_a_manual_clock_loses_no_step_between_threads():
    clock = ManualClock()
    before = clock.now_us()

    def move():
        for _ in range(1000):
            clock.advance(0.000001)

    threads = [threading.Thread(target=move) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert clock.now_us() - before == 4000


def test_the_system_clock_counts_microseconds_of_utc():
    low = time.time_ns() // 1000
    now = SystemClock().now_us()
    assert low <= now <= time.time_ns() // 1000
