"""The sweep beside consumers, and beside rows that it cannot mend."""

from __future__ import annotations

import pytest

from queen_sync import model as m
from queen_sync.clock import ManualClock, to_datetime
from tests.postgres.conftest import MakeBackend
from tests.postgres.sessions import (
    Call,
    ack_in,
    acks,
    drain,
    execute,
    fresh,
    message,
    number_of,
    open_transaction,
    push_in,
    repaired,
    value,
)

BROKEN = """
create function public.broken() returns trigger language plpgsql as
$$ begin raise exception 'a row like this cannot be' using errcode = '{state}'; end $$;
create trigger broken before insert on queen.retries for each row
when (new.partition_id = {partition}) execute function public.broken();
"""
LEASED = "select count(*) from queen.partition_leases where lease_id is not null"


@pytest.mark.parametrize("state", ["23514", "55P03"])
def test_one_bad_row_does_not_hold_up_the_sweep(
    dsn: str, make_backend: MakeBackend, state: str
) -> None:
    """O-09: nineteen leases come back in the first pass, the twentieth when it can."""
    clock = ManualClock()
    backend = make_backend(clock=clock)
    queue = fresh()
    backend.configure(queue, {"lease_seconds": 10})
    for i in range(20):
        backend.push([message(queue, f"m{i}", f"p{i}")])
        assert backend.pop(m.PopRequest(queue=queue, partition=f"p{i}"))
    execute(dsn, BROKEN.format(state=state, partition=number_of(dsn, queue, "p0")))
    clock.advance(10)
    assert [backend.sweep().expired for _ in range(3)] == [19, 0, 0]
    assert value(dsn, LEASED) == 1
    execute(dsn, "drop function public.broken() cascade")
    assert backend.sweep().expired == 1
    assert len(drain(backend, queue, m.QUEUE_MODE)) == 20


def test_a_step_that_fails_does_not_keep_the_next_from_its_work(
    dsn: str, make_backend: MakeBackend
) -> None:
    """O-09: leftovers that cannot be removed do not hide a lost wake-up."""
    backend = make_backend()
    queue, dead = fresh(), fresh()
    backend.push([message(queue, "m"), message(dead, "m")])
    backend.subscribe(queue, m.QUEUE_MODE, m.Subscription())
    backend.delete_queue(dead)
    execute(
        dsn,
        "create function public.broken() returns trigger language plpgsql as"
        " $$ begin raise exception 'on purpose'; end $$",
        "create trigger broken before delete on queen.messages execute function public.broken()",
        "update queen.partition_leases set ready_at = null",
    )
    assert backend.sweep().repaired == 1
    assert len(drain(backend, queue, m.QUEUE_MODE)) == 1


def test_the_self_check_finds_what_must_never_be_and_mends_it(
    dsn: str, make_backend: MakeBackend
) -> None:
    """INV-COMPLETE: a lost wake-up and a missing lease row are counted, each once."""
    backend = make_backend()
    queue = fresh()
    backend.push([message(queue, name, name) for name in "ab"])
    backend.subscribe(queue, "g", m.Subscription())
    assert repaired(dsn) == 0
    a, b = number_of(dsn, queue, "a"), number_of(dsn, queue, "b")
    execute(
        dsn,
        f"update queen.partition_leases set ready_at = null where partition_id = {a}",
        f"delete from queen.partition_leases where partition_id = {b}",
    )
    assert not backend.pop(m.PopRequest(queue=queue, group="g"))
    assert backend.sweep().repaired == 2
    assert backend.sweep().repaired == 0
    assert {x.partition for x in drain(backend, queue, "g")} == {"a", "b"}


def test_the_sweep_leaves_a_lease_alone_that_is_being_acked(
    dsn: str, make_backend: MakeBackend
) -> None:
    """O-08: acked in time, in a transaction that is open when the lease runs out."""
    clock = ManualClock()
    backend = make_backend(clock=clock)
    queue = fresh()
    backend.configure(queue, {"lease_seconds": 10})
    backend.push([message(queue, "m")])
    claim = backend.pop(m.PopRequest(queue=queue))
    with open_transaction(dsn) as acker:
        ack_in(acker, claim, now=to_datetime(clock.now_us()))
        clock.advance(11)
        assert backend.sweep().expired == 0
    assert backend.sweep().expired == 0
    assert not backend.pop(m.PopRequest(queue=queue))
    assert [answer.already for answer in backend.ack(acks(claim))] == [True]


def test_a_lease_found_expired_and_given_again_meanwhile_survives_the_sweep(
    dsn: str, make_backend: MakeBackend
) -> None:
    """O-08: between reading and writing, the sweeper's row got a new owner."""
    clock = ManualClock()
    backend = make_backend(clock=clock)
    queue = fresh()
    backend.configure(queue, {"lease_seconds": 10})
    backend.push([message(queue, "m")])
    backend.pop(m.PopRequest(queue=queue))
    clock.advance(11)
    now = to_datetime(clock.now_us())
    found = "select array[partition_ids[1], group_ids[1]] from queen.next_lanes('expire', 10, %s)"
    partition, group = value(dsn, found, [now])
    again = backend.pop(m.PopRequest(queue=queue))
    assert again
    assert value(dsn, "select queen.expire_lease(%s, %s, %s)", [partition, group, now]) is False
    assert all(answer.ok for answer in backend.ack(acks(again)))


def test_what_runs_out_while_retention_removes_it_is_still_a_dead_letter(
    dsn: str, make_backend: MakeBackend
) -> None:
    """C-03, C-09: the copy is taken before the message goes, and no retry is left behind."""
    clock = ManualClock()
    backend = make_backend(clock=clock)
    queue = fresh()
    backend.configure(
        queue,
        {"lease_seconds": 10, "retry_limit": 1, "retention_enabled": True, "retention_seconds": 30},
    )
    backend.push([message(queue, "killer")])
    for _ in range(2):
        assert backend.pop(m.PopRequest(queue=queue))
        clock.advance(11)
    clock.advance(30)
    where = [number_of(dsn, queue), to_datetime(clock.now_us())]
    assert value(dsn, "select queen.retain(%s, 100, %s)", where) == 1
    assert value(dsn, "select count(*) from queen.retries") == 0
    [letter] = backend.dead_letters(m.DeadLetterFilter(queue=queue)).items
    assert (letter.transaction_id, letter.error) == ("killer", m.EXPIRED)


def test_retention_passes_over_a_partition_that_a_push_holds(
    dsn: str, make_backend: MakeBackend
) -> None:
    """O-09, C-09: an open transaction of a library caller does not hold up the sweep."""
    backend = make_backend(lock_timeout_milliseconds=60_000)
    queue = fresh()
    backend.configure(queue, {"retention_enabled": True, "retention_seconds": 1})
    backend.push([message(queue, "old")])
    execute(dsn, "update queen.messages set created_at = created_at - interval '1 hour'")
    with open_transaction(dsn) as pusher:
        push_in(pusher, queue)
        sweep = Call(backend.sweep)
        assert sweep.result().removed == 0
    assert backend.sweep().removed == 1


@pytest.mark.parametrize("says_partition", [False, True])
def test_a_redriven_message_is_acked_by_its_name_though_another_bears_it_now(
    make_backend: MakeBackend, *, says_partition: bool
) -> None:
    """C-12, C-16: retention freed the name, and somebody pushed it again before the redrive."""
    clock = ManualClock()
    backend = make_backend(clock=clock)
    queue = fresh()
    backend.configure(queue, {"retention_enabled": True, "retention_seconds": 30})
    request = m.PopRequest(queue=queue, max_messages=10)
    for pushed_again in (False, True):
        backend.push([message(queue, "name")])
        backend.ack(acks(backend.pop(request), "dlq"))
        clock.advance(31)
        assert backend.sweep().removed == 1
        if pushed_again:
            backend.push([message(queue, "name")])
        assert backend.redrive(m.DeadLetterFilter(queue=queue))
        claim = backend.pop(request)
        [ack] = acks(claim)
        if not says_partition:
            ack = m.Ack(transaction_id="name", lease_id=claim.lease_id)
        [answer] = backend.ack([ack])
        assert answer.ok, (pushed_again, answer)
    [left] = drain(backend, queue, m.QUEUE_MODE)
    assert (left.transaction_id, left.seq) == ("name", 3)
