"""One clock decides, the database's, whatever the hosts of the servers believe (O-56)."""

from __future__ import annotations

import json
import subprocess
import sys
from typing import Any

import pytest

from queen_sync import model as m
from queen_sync.clock import ManualClock
from tests.postgres.conftest import MakeBackend
from tests.postgres.sessions import acks, drain, fresh, message, repaired, value

# A process whose clock is off by so many seconds, from before anything is imported. It pops and
# acks as it is told, a line at a time, and says what it got.
HOST = """
import datetime, json, sys, time
off = float(sys.argv[1])
real, real_ns = time.time, time.time_ns
time.time = lambda: real() + off
time.time_ns = lambda: real_ns() + int(off * 1_000_000_000)
class Shifted(datetime.datetime):
    @classmethod
    def now(cls, tz=None):
        return cls.fromtimestamp(time.time(), tz)
datetime.datetime = Shifted
from queen_sync import model as m
from queen_sync.backends.postgres import PostgresBackend
backend = PostgresBackend(sys.argv[2], migrate=False)
queue = sys.argv[3]
claim = None
for line in sys.stdin:
    do = line.strip()
    if do == "push":
        [receipt] = backend.push([m.NewMessage.of(queue, off)])
        said = receipt.seq
    elif do == "pop":
        claim = backend.pop(m.PopRequest(queue=queue))
        said = [claim.expires_us, [x.created_us for x in claim.messages]]
    elif do == "ack":
        [answer] = backend.ack([m.Ack(transaction_id=x.transaction_id, partition_id=x.partition_id,
            lease_id=claim.lease_id) for x in claim.messages])
        said = answer.ok
    elif do == "wait":
        said = backend.next_ready_in(m.PopRequest(queue=queue))
    elif do == "sweep":
        said = backend.sweep().expired
    print(json.dumps(said), flush=True)
backend.close()
"""
HOUR_SECONDS = 3_600


class Host:
    def __init__(self, dsn: str, queue: str, off_seconds: int) -> None:
        self._process = subprocess.Popen(
            [sys.executable, "-c", HOST, str(off_seconds), dsn, queue],
            stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True,
        )  # fmt: skip

    def __call__(self, do: str) -> Any:
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._process.stdin.write(f"{do}\n")
        self._process.stdin.flush()
        return json.loads(self._process.stdout.readline())

    def close(self) -> None:
        self._process.communicate(timeout=20)
        assert self._process.returncode == 0


def test_hosts_whose_clocks_are_a_minute_off_lease_and_ack_by_the_same_clock(
    dsn: str, make_backend: MakeBackend
) -> None:
    """O-56: no lease of 30 s ends early or late, and no delay of 10 s."""
    backend = make_backend()
    queue = fresh()
    backend.configure(queue, {"lease_seconds": 30})
    early, late = Host(dsn, queue, -60), Host(dsn, queue, 60)
    try:
        assert [late("push"), early("push")] == [1, 2]
        now = int(value(dsn, "select extract(epoch from clock_timestamp()) * 1000000"))
        expires, [created] = late("pop")
        assert abs(created - now) < 20_000_000
        assert abs(expires - now - 30_000_000) < 20_000_000
        # To the one whose clock is ahead it ran out half a minute ago, to the other it begins to.
        assert early("pop") == [None, []]
        assert late("pop") == [None, []]
        assert [early("sweep"), late("sweep")] == [0, 0]
        for host in (early, late):
            assert 0 < host("wait") <= 30
        assert backend.partitions(queue)[0].groups[0].lease_expires_us == expires
    finally:
        early.close()
        late.close()


def test_an_ack_of_a_host_whose_clock_is_ahead_is_in_time(
    dsn: str, make_backend: MakeBackend
) -> None:
    """O-56, C-04: by its own clock its lease was over before it began."""
    backend = make_backend()
    queue = fresh()
    backend.configure(queue, {"lease_seconds": 30, "delayed_processing_seconds": 0})
    host = Host(dsn, queue, 3_600)
    try:
        host("push")
        assert host("pop")[1]
        assert host("ack") is True
        assert host("pop") == [None, []]
        backend.configure(queue, {"delayed_processing_seconds": 10})
        host("push")
        assert host("pop") == [None, []]
        assert 0 < host("wait") <= 10
    finally:
        host.close()


@pytest.mark.parametrize("step", ["before the pop", "under the lease"])
def test_a_clock_that_steps_back_loses_and_repeats_nothing(
    dsn: str, make_backend: MakeBackend, step: str
) -> None:
    """O-56: the database's host was put back by an hour; instants in the log never fall."""
    before, after = ManualClock(), ManualClock()
    before.advance(HOUR_SECONDS)
    one, two = make_backend(clock=before), make_backend(clock=after)
    queue = fresh()
    one.configure(queue, {"lease_seconds": 30, "retry_delay_milliseconds": 1_000})
    one.push([message(queue, "first")])
    request = m.PopRequest(queue=queue, max_messages=10)
    if step == "under the lease":
        claim = one.pop(request)
        two.push([message(queue, "second")])
        assert not two.pop(request)  # no second lease, though it looks an hour long now
        assert all(answer.ok for answer in two.ack(acks(claim)))
        left = ["second"]
    else:
        two.push([message(queue, "second")])
        left = ["first", "second"]
    after.advance(HOUR_SECONDS)
    assert [x.transaction_id for x in drain(two, queue, m.QUEUE_MODE)] == left
    stored = value(dsn, "select array_agg(created_at order by seq) from queen.messages")
    assert stored == sorted(stored)
    assert repaired(dsn) == 0
