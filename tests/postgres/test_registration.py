"""Groups that register while partitions are made and pushes are in flight (C-07)."""

from __future__ import annotations

import random
import threading
import time

import pytest

from queen_sync import model as m
from queen_sync.backends import postgres_pop
from queen_sync.backends.postgres import PostgresBackend
from tests.postgres.sessions import (
    Call,
    connect,
    delay_commits,
    drain,
    fresh,
    message,
    number_of,
    open_transaction,
    push_in,
    repaired,
    together,
    until_blocked,
    value,
)

NEW = m.Subscription(mode="new")
ALL = m.Subscription()
BEGIN = "select queen.begin_group(%s, %s, %s, null, false, null)"


def test_a_group_registered_beside_a_push_that_makes_a_partition_reads_it(
    dsn: str, backend: PostgresBackend
) -> None:
    """C-07, the maker first: both uncommitted, the registrar waits, no lease row is missing."""
    queue = fresh()
    backend.configure(queue)
    with open_transaction(dsn) as maker:
        push_in(maker, queue, "made")
        registrar = Call(lambda: backend.subscribe(queue, "g", ALL))
        until_blocked(dsn)
    assert registrar.result()
    assert [x.partition for x in drain(backend, queue, "g")] == ["made"]
    assert repaired(dsn) == 0


def test_a_partition_made_while_a_group_begins_is_read_whole(
    dsn: str, backend: PostgresBackend
) -> None:
    """C-07, the registrar first: the maker waits and then sees the group."""
    queue = fresh()
    backend.configure(queue)
    with open_transaction(dsn) as registrar:
        registrar.execute(BEGIN, [queue, "g", "new"])
        push = Call(lambda: backend.push([message(queue, "a", "made")]))
        until_blocked(dsn)
    push.result()
    assert [x.partition for x in drain(backend, queue, "g")] == ["made"]
    assert repaired(dsn) == 0


def test_a_registration_does_not_wait_for_an_open_push_and_loses_no_wake_up(
    dsn: str, backend: PostgresBackend
) -> None:
    """C-07, O-15: the partition is passed by, and a pop looks at it again when the push is in."""
    queue = fresh()
    backend.push([message(queue, "before")])
    with open_transaction(dsn) as pusher:
        push_in(pusher, queue, value="in flight")
        assert backend.subscribe(queue, "g", NEW)
        assert not backend.pop(m.PopRequest(queue=queue, group="g"))
    assert [x.value for x in drain(backend, queue, "g")] == ["in flight"]
    assert repaired(dsn) == 0


def test_a_group_whose_registrar_died_is_carried_on_by_its_next_pop(
    dsn: str, backend: PostgresBackend
) -> None:
    """C-07: no pop of it is answered before all its lease rows are there."""
    queue = fresh()
    backend.push([message(queue, name, name) for name in "abc"])
    with connect(dsn) as dying:
        dying.execute(BEGIN, [queue, "g", "all"])
    assert {x.partition for x in drain(backend, queue, "g")} == set("abc")
    assert repaired(dsn) == 0


def test_a_queue_of_many_chunks_is_registered_whole(
    dsn: str, backend: PostgresBackend, monkeypatch: pytest.MonkeyPatch
) -> None:
    """C-07: each chunk is a transaction of its own, and the last one is not forgotten."""
    monkeypatch.setattr(postgres_pop, "REGISTER_CHUNK", 3)
    queue = fresh()
    backend.push([message(queue, f"m{i}", f"p{i}") for i in range(10)])
    backend.subscribe(queue, "g", ALL)
    rows = value(
        dsn,
        "select count(*) from queen.partition_leases l"
        " join queen.consumer_groups g on g.id = l.group_id where g.name = 'g'",
    )
    assert rows == 11  # and Default
    assert len(drain(backend, queue, "g")) == 10


def test_a_group_that_asks_while_its_queue_is_being_made_gets_everything(
    dsn: str, backend: PostgresBackend
) -> None:
    """C-07: the maker looked for wishes before this one was there; the wish is kept."""
    queue = fresh()
    with open_transaction(dsn) as maker:
        maker.execute("select queen.make_queue(%s, null)", [queue])
        assert not backend.pop(m.PopRequest(queue=queue, group="g", subscription=NEW))
    backend.push([message(queue, "first")])
    claim = backend.pop(m.PopRequest(queue=queue, group="g", subscription=NEW))
    assert [x.transaction_id for x in claim.messages] == ["first"]
    assert not claim.subscription_ignored


def test_groups_that_register_into_a_storm_of_new_partitions_miss_nothing(
    dsn: str, backend: PostgresBackend
) -> None:
    """C-07 under load: 16 groups, 80 partitions, commits that are late on purpose."""
    queue = fresh()
    backend.configure(queue)
    delay_commits(dsn)
    pushed: list[tuple[str, float, float]] = []
    registered: dict[str, tuple[float, float]] = {}
    lock = threading.Lock()

    def produce(number: int) -> None:
        dice = random.Random(number)
        for count in range(40):
            names = [f"{number}-{count}-{i}" for i in range(dice.choice([1, 1, 3]))]
            items = [message(queue, name, f"p{dice.randrange(80)}") for name in names]
            began = time.monotonic()
            backend.push(items)
            with lock:
                pushed.extend((name, began, time.monotonic()) for name in names)

    def register(number: int) -> None:
        for group in range(number, 16, 2):
            time.sleep(random.Random(group).uniform(0, 0.08))
            began = time.monotonic()
            backend.subscribe(queue, f"g{group}", ALL if group % 4 < 2 else NEW)
            registered[f"g{group}"] = (began, time.monotonic())

    together(
        *(lambda n=n: produce(n) for n in range(4)), *(lambda n=n: register(n) for n in (0, 1))
    )
    assert repaired(dsn) == 0
    for group, (began, ended) in registered.items():
        taken = [x.transaction_id for x in drain(backend, queue, group)]
        assert len(taken) == len(set(taken))
        everything = int(group[1:]) % 4 < 2
        for name, push_began, push_ended in pushed:
            if everything or push_began > ended:
                assert name in taken, f"{group} never got {name}"
            elif push_ended < began:
                assert name not in taken, f"{group} got {name} from before it began"


def test_first_pops_that_come_together_share_the_registration(
    dsn: str, backend: PostgresBackend
) -> None:
    """Each goes on where the others have come to: none of them does all the work again."""
    queue = fresh()
    backend.push([message(queue, f"m{i}", f"p{i}") for i in range(6)])
    numbers = [number_of(dsn, queue, f"p{i}") for i in range(6)]
    with connect(dsn) as one, connect(dsn) as other:
        row = one.execute(BEGIN, [queue, "g", "all"]).fetchone()
        assert row is not None
        group = value(dsn, "select id from queen.consumer_groups where name = 'g'")
        done = [
            session.execute("select queen.register_partitions(%s, 0, 3, null)", [group]).fetchone()
            for session in (one, other, one)
        ]
    default = number_of(dsn, queue)
    last = sorted([default, *numbers])
    assert done == [(last[2],), (last[5],), (last[6],)]
    assert len(drain(backend, queue, "g")) == 6
    assert repaired(dsn) == 0
