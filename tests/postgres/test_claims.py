"""A claim is committed whole or not at all."""

from __future__ import annotations

import pytest

from queen_sync import model as m
from queen_sync.backends.postgres import PostgresBackend
from queen_sync.errors import BackendError, QueenError
from tests.postgres.sessions import acks, connect, drain, execute, fresh, message, number_of, value

FAIL = """
create function public.fail() returns trigger language plpgsql as
$$ begin raise exception 'on purpose' using errcode = '{state}'; end $$;
create trigger fail before update on queen.partition_leases for each row
when (new.partition_id = {partition} and new.lease_id is not null)
execute function public.fail();
"""


def three_partitions(backend: PostgresBackend) -> tuple[str, m.PopRequest]:
    queue = fresh()
    for name in "abc":
        backend.push([message(queue, name, name)])
    backend.subscribe(queue, m.QUEUE_MODE, m.Subscription())
    return queue, m.PopRequest(queue=queue, max_messages=10, max_partitions=3)


@pytest.mark.parametrize("state", ["55P03", "57014", "40001", "XX000"])
def test_a_claim_whose_second_partition_fails_leases_nothing(
    dsn: str, backend: PostgresBackend, state: str
) -> None:
    """O-32: whatever the failure, the first partition is free again."""
    queue, everything = three_partitions(backend)
    execute(dsn, FAIL.format(state=state, partition=number_of(dsn, queue, "b")))
    with pytest.raises(BackendError) as failed:
        backend.pop(everything)
    assert failed.value.definite
    execute(dsn, "drop function public.fail() cascade")
    assert [group.leased for group in backend.groups(queue)] == [0]
    assert value(dsn, "select count(*) from queen.claims") == 0
    assert [x.transaction_id for x in backend.pop(everything).messages] == ["a", "b", "c"]


def test_a_partition_that_somebody_holds_is_passed_by(dsn: str, backend: PostgresBackend) -> None:
    """O-04, O-32: the claim has the others, and the one held comes later."""
    queue, everything = three_partitions(backend)
    with connect(dsn) as other, other.transaction():
        other.execute(
            "select from queen.partition_leases where partition_id = %s for update",
            [number_of(dsn, queue, "b")],
        )
        claim = backend.pop(everything)
    assert [x.partition for x in claim.messages] == ["a", "c"]
    assert claim.partition_count == 2
    assert all(answer.ok for answer in backend.ack(acks(claim)))
    assert [x.partition for x in drain(backend, queue, m.QUEUE_MODE)] == ["b"]


def test_an_ack_whose_bookkeeping_fails_changes_nothing(dsn: str, backend: PostgresBackend) -> None:
    """O-32, C-04: the lease lives on and the same ack counts once the fault is gone."""
    queue = fresh()
    backend.push([message(queue, "m")])
    claim = backend.pop(m.PopRequest(queue=queue))
    execute(
        dsn,
        "create function public.fail() returns trigger language plpgsql as"
        " $$ begin raise exception 'on purpose' using errcode = '53100'; end $$",
        "create trigger fail before insert on queen.dead_letters execute function public.fail()",
    )
    with pytest.raises(QueenError) as failed:
        backend.ack(acks(claim, "dlq"))
    assert (failed.value.code, failed.value.definite) == ("BACKEND_UNAVAILABLE", True)
    execute(dsn, "drop function public.fail() cascade")
    [answer] = backend.ack(acks(claim, "dlq"))
    assert answer.dead_lettered
    assert not answer.already
