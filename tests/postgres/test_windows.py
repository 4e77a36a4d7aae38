"""The window buffer over restarts: all that it knows is in the database."""

from __future__ import annotations

from queen_sync import model as m
from queen_sync.backends.postgres import PostgresBackend
from queen_sync.clock import ManualClock
from tests.postgres.sessions import fresh, message

WINDOW_SECONDS = 2


def test_restarts_do_not_put_off_the_cap_of_a_window(dsn: str) -> None:
    """O-47, C-08: one message a second for 20 s, each from another process than the one before."""
    clock = ManualClock()
    queue = fresh()
    request = m.PopRequest(queue=queue, max_messages=7)
    with PostgresBackend(dsn, clock=clock, migrate=False) as backend:
        backend.configure(queue, {"window_buffer_seconds": WINDOW_SECONDS})
    for second in range(10 * WINDOW_SECONDS):
        with PostgresBackend(dsn, clock=clock, migrate=False) as backend:
            backend.push([message(queue, str(second))])
            assert not backend.pop(request)
            ready_in = backend.next_ready_in(request)
            assert ready_in is not None
            assert 0 < ready_in <= min(WINDOW_SECONDS, 10 * WINDOW_SECONDS - second)
        clock.advance(1)
    with PostgresBackend(dsn, clock=clock, migrate=False) as backend:
        backend.push([message(queue, "last")])
        claim = backend.pop(request)
        assert [x.transaction_id for x in claim.messages] == list("0123456")  # no more than asked
