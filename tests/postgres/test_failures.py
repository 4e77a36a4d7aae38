"""What a failure means, and what it leaves behind: nothing (O-27, O-28, K02)."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from queen_sync import model as m
from queen_sync.backends.postgres import PostgresBackend
from queen_sync.backends.postgres_connections import RETRIES
from queen_sync.errors import (
    BackendError,
    BackendUnavailable,
    OutcomeUnknown,
    QueenError,
)
from tests.postgres.conftest import MakeBackend
from tests.postgres.proxy import Proxy
from tests.postgres.sessions import (
    SESSIONS,
    Call,
    connect,
    drain,
    execute,
    fresh,
    message,
    open_transaction,
    together,
    until,
    until_blocked,
    value,
)

HOLD = 6633
# What a message of these names does to the push that brings it.
MISCHIEF = f"""
create sequence public.tries;
create function public.mischief() returns trigger language plpgsql as $$
begin
    if new.transaction_id like 'stuck%' then
        perform pg_advisory_xact_lock_shared({HOLD});
    elsif new.transaction_id like 'refused%' then
        raise exception 'on purpose' using errcode = '23514';
    elsif new.transaction_id like 'victim%' then
        perform nextval('public.tries');
        raise exception 'deadlock detected' using errcode = '40P01';
    elsif new.transaction_id like 'killed%' then
        perform pg_terminate_backend(pg_backend_pid());
        perform pg_sleep(10);
    end if;
    return new;
end $$;
create trigger mischief before insert on queen.messages
for each row execute function public.mischief();
"""
STATE = "select current_setting('transaction_isolation'), pg_current_xact_id_if_assigned()"


@pytest.fixture
def mischief(dsn: str) -> Iterator[None]:
    """Messages that fail their push, and a lock that stuck ones wait for."""
    execute(dsn, MISCHIEF)
    with connect(dsn) as holder:
        holder.execute("select pg_advisory_lock(%s)", [HOLD])
        yield


@pytest.fixture
def proxy(dsn: str) -> Iterator[Proxy]:
    way = Proxy(dsn)
    yield way
    way.close()


def several(queue: str, name: str) -> list[m.NewMessage]:
    """Return a push of two queues, which is a transaction of several statements."""
    return [message(queue, name), message(f"{queue}-too", name)]


@pytest.mark.usefixtures("mischief")
def test_no_failed_transaction_meets_the_pools_next_user(make_backend: MakeBackend) -> None:
    """O-28: 52 failures of four kinds on a pool of two, in both ways to run a statement."""
    backend = make_backend(pool_size=2, lock_timeout_milliseconds=10)
    queue = fresh()
    for i in range(13):
        for kind in ("stuck", "refused", "killed"):
            items = several(queue, f"{kind}{i}") if i % 2 else [message(queue, f"{kind}{i}")]
            with pytest.raises(BackendError):
                backend.push(items)
        backend._db.call(lambda cursor: cursor.execute(STATE).fetchone())
        [receipt] = backend.push([message(queue, f"good{i}")])
        assert not receipt.duplicate
    with pytest.raises(BackendUnavailable):
        backend.push(several(queue, "victim"))
    states = together(*[lambda: backend._db.call(lambda c: c.execute(STATE).fetchone())] * 4)
    assert states == [("read committed", None)] * 4
    assert [x.transaction_id for x in drain(backend, queue, "g")] == [f"good{i}" for i in range(13)]


@pytest.mark.usefixtures("mischief")
def test_a_statement_that_takes_too_long_is_a_definite_failure(make_backend: MakeBackend) -> None:
    """O-27: statement_timeout ends it, nothing is stored, and the connection serves on."""
    backend = make_backend(pool_size=1, statement_timeout_milliseconds=150)
    queue = fresh()
    backend.configure(queue)
    for items in ([message(queue, "stuck")], several(queue, "stuck")):
        with pytest.raises(BackendUnavailable):
            backend.push(items)
    backend.push([message(queue, "good")])
    assert [x.transaction_id for x in drain(backend, queue, "g")] == ["good"]


@pytest.mark.usefixtures("mischief")
def test_a_deadlock_victim_is_tried_again_a_bounded_number_of_times(
    dsn: str, backend: PostgresBackend
) -> None:
    """O-30: and then the caller is told that nothing happened."""
    queue = fresh()
    with pytest.raises(BackendUnavailable) as failed:
        backend.push([message(queue, "victim")])
    assert failed.value.definite
    assert value(dsn, "select last_value from public.tries") == RETRIES + 1


def test_a_real_deadlock_does_not_reach_the_caller(dsn: str, backend: PostgresBackend) -> None:
    """O-30: with a library caller that locks against the order, one of the two is tried again."""
    queue = fresh()
    backend.push([message(queue, "m", name) for name in "ab"])
    lock = (
        "select from queen.partitions p where p.name = %s"
        " and p.queue_id = (select id from queen.queues where name = %s) for update"
    )
    with open_transaction(dsn) as other:
        other.execute("set local deadlock_timeout = '1min'")  # the backend's session finds it
        other.execute(lock, ["b", queue])
        push = Call(lambda: backend.push([message(queue, "n", name) for name in "ab"]))
        until_blocked(dsn)
        other.execute(lock, ["a", queue])
    assert [receipt.duplicate for receipt in push.result()] == [False, False]


@pytest.mark.usefixtures("mischief")
def test_a_backend_killed_before_the_commit_was_sent_stored_nothing(
    make_backend: MakeBackend,
) -> None:
    """K02: of several statements the commit is the last, so the failure is definite."""
    backend = make_backend(pool_size=1)
    queue = fresh()
    with pytest.raises(BackendUnavailable) as failed:
        backend.push(several(queue, "killed"))
    assert failed.value.definite
    assert backend.queue(queue) is None


@pytest.mark.usefixtures("mischief")
def test_a_backend_killed_in_a_statement_that_commits_by_itself_leaves_doubt(
    make_backend: MakeBackend,
) -> None:
    """K02: the client cannot tell, and says so."""
    backend = make_backend(pool_size=1)
    with pytest.raises(OutcomeUnknown) as failed:
        backend.push([message(fresh(), "killed")])
    assert not failed.value.definite


def test_a_connection_cut_before_the_commit_is_a_definite_failure(
    dsn: str, make_backend: MakeBackend, proxy: Proxy
) -> None:
    """K02: the transaction had begun, and its end was never asked for."""
    backend = make_backend(proxy.dsn, pool_size=1)
    queue = fresh()
    proxy.cut_before(b"queen.lock_partitions")
    with pytest.raises(BackendUnavailable):
        backend.push(several(queue, "m"))
    assert proxy.cuts == 1
    assert backend.queue(queue) is None
    assert len(backend.push(several(queue, "m"))) == 2


@pytest.mark.parametrize("stored", [False, True])
@pytest.mark.parametrize("one_statement", [False, True])
def test_a_connection_cut_at_the_commit_leaves_doubt_and_a_repeat_settles_it(
    make_backend: MakeBackend, proxy: Proxy, *, stored: bool, one_statement: bool
) -> None:
    """K02, INV-DEDUP: it may have happened or not, and the same push again stores it once."""
    backend = make_backend(proxy.dsn, pool_size=1)
    queue = fresh()
    items = [message(queue, "m")] if one_statement else several(queue, "m")
    request = b"queen.push" if one_statement else b"commit\0"
    (proxy.cut_after if stored else proxy.cut_before)(request)
    with pytest.raises(OutcomeUnknown):
        backend.push(items)
    assert proxy.cuts == 1
    again = backend.push(items)
    assert [receipt.duplicate for receipt in again] == [stored] * len(items)
    assert len(drain(backend, queue, "g")) == 1


def test_connections_that_died_idle_are_replaced_before_anything_is_sent(
    dsn: str, make_backend: MakeBackend, proxy: Proxy
) -> None:
    """O-27: found dead before a statement went out, they are no failure at all."""
    backend = make_backend(proxy.dsn, pool_size=2)
    queue = fresh()
    backend.push([message(queue, "a")])
    proxy.cut_all()
    backend.push([message(queue, "b")])
    execute(
        dsn,
        "select pg_terminate_backend(pid) from pg_stat_activity"
        " where application_name = 'queen-sync' and datname = current_database()",
    )
    until(lambda: value(dsn, SESSIONS) == 0)
    backend.push([message(queue, "c")])
    assert [x.transaction_id for x in drain(backend, queue, "g")] == ["a", "b", "c"]


def test_a_value_that_the_driver_refuses_is_no_lost_connection(backend: PostgresBackend) -> None:
    """K02: nothing was sent, so there is no doubt about the outcome."""
    with pytest.raises(QueenError) as failed:
        backend.delete_group("a\0b")
    assert failed.value.definite
    assert not isinstance(failed.value, BackendUnavailable)
