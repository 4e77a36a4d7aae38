"""What a process counts, by minute and queue, until somebody takes it."""

import threading

import pytest

from queen_sync import metering, model as m, stats as s
from queen_sync.backends.memory import MemoryBackend
from queen_sync.broker import Broker
from queen_sync.clock import ManualClock
from queen_sync.config import Settings
from queen_sync.errors import BackendUnavailable, OutcomeUnknown
from queen_sync.metering import Meter


def receipt(queue, status="queued"):
    own = "00000000-1000-8000-8000-000000000000"
    return m.Receipt(
        status=status,
        id=own,
        transaction_id=own,
        queue=queue,
        partition="Default",
        partition_id=own,
        seq=1,
    )


def taken(meter):
    """Return what was counted, as {(minute, queue): counts that are not 0}."""
    return {
        (each.start_us // s.MINUTE, each.queue): {
            name: count for name in s.COUNT_NAMES if (count := getattr(each.counts, name))
        }
        for each in meter.take()
    }


def test_counts_are_told_apart_by_minute_and_queue():
    """PL-9."""
    clock = ManualClock()
    meter = Meter(clock, by_minute=True)
    now = clock.now_us() // s.MINUTE
    meter.pushed([receipt("a"), receipt("b"), receipt("b", "duplicate")])
    clock.advance(60)
    meter.pushed([receipt("a")])
    assert taken(meter) == {
        (now, "a"): {"push_requests": 1, "pushed": 1},
        (now, "b"): {"push_requests": 1, "pushed": 1, "duplicates": 1},
        (now + 1, "a"): {"push_requests": 1, "pushed": 1},
    }
    assert taken(meter) == {}
    assert (meter.totals()["pushed"], meter.totals()["duplicates"]) == (3, 1)


def test_what_could_not_be_kept_is_counted_again():
    """PL-9: sums add up, and of delays the largest counts."""
    clock = ManualClock()
    meter = Meter(clock, by_minute=True)
    backend = MemoryBackend(clock)
    for seconds in (5, 3):
        backend.push([m.NewMessage.of("q", 1)])
        clock.advance(seconds)
        request = m.PopRequest(queue="q", auto_ack=True)
        meter.popped(request, backend.pop(request))
        if seconds == 5:
            lost = meter.take()
    meter.put_back(lost)
    (counts,) = taken(meter).values()
    assert counts == {
        "pop_requests": 2,
        "popped": 2,
        "delay_milliseconds": 8_000,
        "max_delay_milliseconds": 5_000,
    }


def test_the_delay_of_a_pop_is_that_of_its_oldest_message():
    """QB-5: whichever partition it lies in."""
    clock = ManualClock()
    meter = Meter(clock, by_minute=True)
    backend = MemoryBackend(clock)
    backend.push([m.NewMessage.of("q", 1, partition="late")])
    clock.advance(1)
    backend.push([m.NewMessage.of("q", 2, partition="early")])
    request = m.PopRequest(queue="q", max_messages=9, max_partitions=9)
    claim = backend.pop(request)
    clock.advance(1)
    meter.popped(request, m.Claim(messages=claim.messages[::-1], partition_count=2))
    ((counts,),) = [taken(meter).values()]
    assert counts["delay_milliseconds"] == 2_000


def test_names_without_end_do_not_fill_the_memory(monkeypatch):
    """INV-NO-500: beyond the limit queues are counted together."""
    monkeypatch.setattr(metering, "MAX_ROWS", 2)
    clock = ManualClock()
    meter = Meter(clock, by_minute=True)
    for n in range(5):
        request = m.PopRequest(queue=f"made up {n}")
        meter.popped(request, m.Claim())
    counted = {queue: counts["pop_requests"] for (_, queue), counts in taken(meter).items()}
    assert counted == {"made up 0": 1, "made up 1": 1, "": 3}


def test_without_anybody_who_takes_them_no_minutes_are_kept():
    meter = Meter(ManualClock(), by_minute=False)
    meter.pushed([receipt("q")])
    meter.popped(m.PopRequest(queue="q"), m.Claim())
    meter.acked([m.Acked(transaction_id="t", status="completed", queue="q")])
    meter.transacted(m.Transacted(results=[receipt("q")]))
    assert meter.take() == []
    totals = meter.totals()
    assert [totals[name] for name in ("pushed", "pops_empty", "acked", "transactions")] == [1] * 4


def test_threads_lose_no_counts():
    meter = Meter(ManualClock(), by_minute=True)

    def work():
        for _ in range(500):
            meter.pushed([receipt("q")])

    threads = [threading.Thread(target=work) for _ in range(4)]
    for thread in threads:
        thread.start()
    rows = []
    while any(thread.is_alive() for thread in threads):
        rows += meter.take()
    for thread in threads:
        thread.join()
    rows += meter.take()
    assert s.total([row.counts for row in rows]).pushed == 2_000


@pytest.mark.parametrize("error", [BackendUnavailable("gone"), OutcomeUnknown("who knows")])
def test_counts_that_cannot_be_written_wait_for_the_next_time(error):
    """PL-9, O-09: and the call that made them has long been answered."""
    clock = ManualClock()
    backend = MemoryBackend(clock)
    write = backend.add_counts

    def failing(counts):
        raise error

    backend.add_counts = failing
    broker = Broker(backend, Settings(backend="memory:"), clock)
    broker.push([m.NewMessage.of("q", 1)])
    broker.flush_counts()
    broker.push([m.NewMessage.of("q", 2)])
    backend.add_counts = write
    broker.flush_counts()
    wanted = s.CountFilter(from_us=clock.now_us(), to_us=clock.now_us(), queues=["q"])
    assert [row.counts.pushed for row in backend.counts(wanted)] == [2]
    broker.close()


def test_a_closing_broker_writes_what_it_counted():
    """PL-9."""
    clock = ManualClock()
    backend = MemoryBackend(clock)
    written = []
    backend.add_counts = written.extend
    broker = Broker(backend, Settings(backend="memory:"), clock)
    broker.push([m.NewMessage.of("q", 1)])
    broker.close()
    assert [(row.queue, row.counts.pushed) for row in written] == [("q", 1)]
