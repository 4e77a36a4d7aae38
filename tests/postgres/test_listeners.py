"""The connection that listens for wake-ups, when it is lost without a word (O-26)."""

from __future__ import annotations

import logging
import socket
import time
from collections.abc import Iterator

import pytest

from queen_sync import model as m
from queen_sync.backends import postgres_hints
from queen_sync.backends.postgres import PostgresBackend
from queen_sync.broker import Broker
from queen_sync.config import Settings
from tests.postgres.conftest import MakeBackend
from tests.postgres.proxy import Proxy
from tests.postgres.sessions import Call, execute, fresh, message, until, value
from tests.postgres.test_hints import KILL, Ear

PATIENCE_SECONDS = 30.0


@pytest.fixture
def proxy(dsn: str) -> Iterator[Proxy]:
    way = Proxy(dsn)
    yield way
    way.close()


def test_a_listener_that_hears_nothing_asks_and_comes_back_when_there_is_no_answer(
    backend: PostgresBackend,
    make_backend: MakeBackend,
    proxy: Proxy,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """O-26: the way swallows everything and no connection ends; a new one goes through."""
    monkeypatch.setattr(postgres_hints, "BEAT_SECONDS", 0.2)
    ear = Ear(make_backend(listen_dsn=proxy.dsn))
    proxy.silence()
    assert ear.next(PATIENCE_SECONDS) is None  # listening again: look everywhere
    queue = fresh()
    backend.push([message(queue)])
    ear.until(frozenset({queue}))
    ear.stop()


def test_a_hint_that_is_not_answered_is_sent_again_on_another_connection(
    dsn: str, make_backend: MakeBackend, proxy: Proxy
) -> None:
    """O-26: the same for the connection that sends."""
    ear = Ear(make_backend())
    sender = make_backend(proxy.dsn)
    queue = fresh()
    sender.configure(queue)
    ear.until(frozenset({queue}))
    number = int(value(dsn, "select id from queen.queues"))
    proxy.silence()
    sender._hints.changed({number: queue})
    assert ear.next(PATIENCE_SECONDS) == frozenset({queue})
    ear.stop()


def test_a_push_while_nobody_listens_is_delivered_all_the_same(
    dsn: str, make_backend: MakeBackend
) -> None:
    """O-26: killed over and over, the listener is never what a delivery hangs on."""
    consumer, producer = make_backend(), make_backend()
    broker = Broker(consumer, Settings(backend="memory:"))
    queue = fresh()
    consumer.configure(queue)
    for number in range(3):
        pop = Call(lambda: broker.pop(m.PopRequest(queue=queue), 60))
        until(lambda: broker.health().waiting_count == 1)
        execute(dsn, KILL.format(query="listen"))
        producer.push([message(queue, str(number), f"p{number}")])
        assert [x.transaction_id for x in pop.result().messages] == [str(number)]
    broker.close()


def test_a_server_that_cannot_be_reached_fills_no_log(
    proxy: Proxy, make_backend: MakeBackend, caplog: pytest.LogCaptureFixture
) -> None:
    """O-26: many tries, one line in ten seconds."""
    ear = Ear(make_backend(listen_dsn=proxy.dsn))

    def said() -> int:
        return len([x for x in caplog.records if x.name == postgres_hints.__name__])

    with caplog.at_level(logging.INFO, postgres_hints.__name__):
        proxy.close()
        until(said)
        began = time.monotonic()
        time.sleep(1.5)  # more than five tries
        assert said() <= 1 + (time.monotonic() - began) / postgres_hints.QUIET_SECONDS
    ear.stop()


def test_connections_over_tcp_find_out_that_the_other_host_is_gone(
    proxy: Proxy, make_backend: MakeBackend
) -> None:
    """O-26: keepalive is on, soon, for calls and for hints; an address that says otherwise wins."""
    backend = make_backend(proxy.dsn)
    said = make_backend(f"{proxy.dsn} keepalives_idle=77")
    for dialled, idle in ((backend, 10), (said, 77)):
        for connection in (dialled._db.dedicated(), dialled._db._acquire()):
            with socket.socket(fileno=socket.dup(connection.fileno())) as wire:
                assert wire.getsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE) == 1
                assert wire.getsockopt(socket.IPPROTO_TCP, socket.TCP_KEEPIDLE) == idle
                assert wire.getsockopt(socket.IPPROTO_TCP, socket.TCP_USER_TIMEOUT) == 30_000
            connection.close()
