"""Queue rows, then partitions, then lease rows: calls that cross never end in a deadlock."""

from __future__ import annotations

import random
import time

from queen_sync import model as m
from queen_sync.backends.postgres import PostgresBackend
from queen_sync.errors import QueueFull
from tests.postgres.conftest import MakeBackend
from tests.postgres.sessions import (
    HOLD,
    HOLD_BACK,
    SESSIONS,
    Call,
    ack_in,
    acks,
    connect,
    deadlocks,
    drain,
    execute,
    fresh,
    message,
    number_of,
    open_transaction,
    push_in,
    repaired,
    together,
    until,
    until_blocked,
    value,
)

LOCK_LEASE = (
    "select from queen.partition_leases l join queen.consumer_groups g on g.id = l.group_id"
    " where l.partition_id = %s and g.name = %s for no key update of l"
)


def no_deadlock(dsn: str, backend: PostgresBackend) -> None:
    """Assert it, once the sessions that would have reported one are gone."""
    backend.close()
    until(lambda: value(dsn, SESSIONS) == 0)
    assert deadlocks(dsn) == 0
    assert repaired(dsn) == 0


def test_transactions_in_opposite_directions_do_not_deadlock(
    dsn: str, backend: PostgresBackend
) -> None:
    """O-30, C-15: ack A and push B against ack B and push A; a limited queue is among them."""
    lanes, limited = fresh(), fresh()
    backend.configure(lanes)
    backend.configure(limited, {"max_queue_size": 100_000})
    for group in "gh":
        backend.subscribe(lanes, group, m.Subscription())
    for i in range(120):
        backend.push(
            [message(lanes, f"s{i}", f"p{i % 2}"), message(lanes, f"t{i}", f"p{1 - i % 2}")]
        )
    ends = time.monotonic() + 2.0

    def work(number: int) -> int:
        dice = random.Random(number)
        count = 0
        while time.monotonic() < ends:
            claim = backend.pop(m.PopRequest(queue=lanes, group="gh"[number % 2], max_messages=2))
            if not claim:
                continue
            count += 1
            target = lanes if count % 3 else limited
            pushes = [message(target, f"{number}-{count}-{i}", f"p{i}") for i in range(2)]
            dice.shuffle(pushes)
            backend.transact(m.Transaction(operations=[*acks(claim), *pushes]))
        return count

    done = together(*(lambda n=n: work(n) for n in range(6)))
    assert sum(done) > 20
    no_deadlock(dsn, backend)


def test_new_partitions_in_opposite_order_do_not_deadlock(
    dsn: str, backend: PostgresBackend
) -> None:
    """O-30: everybody's first push makes the same partitions, in any order, of two queues."""
    plain, limited = fresh(), fresh()
    backend.configure(plain)
    backend.configure(limited, {"max_queue_size": 100_000})
    backend.subscribe(plain, "g", m.Subscription())

    def work(number: int) -> None:
        dice = random.Random(number)
        for count in range(20):
            queues = [plain] if count % 2 else [plain, limited]
            items = [
                message(queue, f"{number}-{count}-{i}", f"p{count * 5 + i}")
                for i in range(5)
                for queue in queues
            ]
            dice.shuffle(items)
            backend.push(items)

    together(*(lambda n=n: work(n) for n in range(5)))
    assert len(drain(backend, plain, "g")) == 5 * 20 * 5
    no_deadlock(dsn, backend)


def test_pushes_to_many_queues_and_acks_of_many_partitions_do_not_deadlock(
    dsn: str, backend: PostgresBackend
) -> None:
    """O-30: three queues in any order, claims over all partitions of each."""
    queues = [fresh() for _ in range(3)]
    for queue in queues:
        backend.configure(queue)
        backend.subscribe(queue, "g", m.Subscription())
    pushing = [True]

    def push(number: int) -> None:
        dice = random.Random(number)
        for count in range(40):
            items = [
                message(queue, f"{number}-{count}-{i}", f"p{i}")
                for queue in queues
                for i in range(3)
            ]
            dice.shuffle(items)
            backend.push(items)

    def push_all() -> None:
        together(*(lambda n=n: push(n) for n in range(3)))
        pushing[0] = False

    def consume(number: int) -> int:
        dice = random.Random(number)
        count = 0
        while pushing[0]:
            claims = [
                backend.pop(m.PopRequest(queue=queue, group="g", max_messages=30, max_partitions=3))
                for queue in dice.sample(queues, 3)
            ]
            every = [ack for claim in claims for ack in acks(claim)]
            dice.shuffle(every)
            assert all(answer.ok for answer in backend.ack(every))
            count += len(every)
        return count

    counts = together(push_all, *(lambda n=n: consume(n) for n in range(3)))[1:]
    left = sum(len(drain(backend, queue, "g")) for queue in queues)
    assert sum(counts) + left == 3 * 40 * 9
    no_deadlock(dsn, backend)


def test_one_call_locks_the_rows_of_several_groups_in_the_order_of_their_numbers(
    dsn: str, backend: PostgresBackend
) -> None:
    """O-30: as pushes and transactions do, whatever the names of the groups are."""
    queue = fresh()
    backend.configure(queue)
    for group in ("z-first", "a-second"):
        backend.subscribe(queue, group, m.Subscription())
    backend.push([message(queue, "m")])
    claims = [
        backend.pop(m.PopRequest(queue=queue, group=group)) for group in ("a-second", "z-first")
    ]
    partition = number_of(dsn, queue)
    with open_transaction(dsn) as other:
        other.execute(LOCK_LEASE, [partition, "z-first"])
        call = Call(lambda: backend.ack([ack for claim in claims for ack in acks(claim)]))
        until_blocked(dsn)
        # Had the call begun with a-second, this would be the deadlock.
        other.execute(LOCK_LEASE + " nowait", [partition, "a-second"])
    assert all(answer.ok for answer in call.result())


def test_a_transaction_of_one_group_does_not_hide_the_partition_from_another(
    dsn: str, backend: PostgresBackend
) -> None:
    """O-04: it locks the lease rows that it touches, and no others."""
    queue = fresh()
    backend.configure(queue)
    for group in "gh":
        backend.subscribe(queue, group, m.Subscription())
    backend.push([message(queue, "m")])
    claim = backend.pop(m.PopRequest(queue=queue, group="g"))
    with connect(dsn) as other, other.transaction():
        locked = other.execute(
            "select queen.lock_leases(%s::uuid[], %s::int8[], %s::text[], '{}', '{}')",
            [[claim.lease_id], [number_of(dsn, queue)], ["g"]],
        )
        assert locked.rowcount == 1
        assert backend.pop(m.PopRequest(queue=queue, group="h"))


def test_the_sweep_passes_over_a_push_into_a_queue_deleted_meanwhile(
    dsn: str, backend: PostgresBackend
) -> None:
    """C-16: what it stores goes with the next sweep, and nothing is left behind."""
    queue = fresh()
    backend.push([message(queue, "m")])
    backend.subscribe(queue, "g", m.Subscription())
    with open_transaction(dsn) as pusher:
        push_in(pusher, queue)
        assert backend.delete_queue(queue)
        began = time.monotonic()
        backend.sweep()
        assert time.monotonic() - began < 2  # it did not wait for the push
    backend.sweep()
    for table in ("messages", "partitions", "partition_leases", "consumer_groups", "queues"):
        assert value(dsn, f"select count(*) from queen.{table}") == 0, table


def test_a_dead_letter_of_a_deleted_queue_does_not_turn_up_in_its_successor(
    dsn: str, backend: PostgresBackend
) -> None:
    """C-16: the ack that wrote it was in flight when the queue was deleted."""
    queue = fresh()
    backend.push([message(queue, "m")])
    claim = backend.pop(m.PopRequest(queue=queue))
    with open_transaction(dsn) as acker:
        ack_in(acker, claim, "dlq")
        assert backend.delete_queue(queue)
        backend.configure(queue)
    assert backend.dead_letters(m.DeadLetterFilter(queue=queue)).total == 0
    backend.sweep()
    assert value(dsn, "select count(*) from queen.dead_letters") == 0


def test_a_queue_that_is_deleted_and_made_again_swallows_no_push(
    dsn: str, make_backend: MakeBackend
) -> None:
    """C-16, INV-DURABLE: a push begun after the deletion was answered is in the new queue."""
    backend = make_backend()
    queue = fresh()
    backend.configure(queue)
    running = [True]
    receipts: list[tuple[str, float, float]] = []

    def push(number: int) -> None:
        count = 0
        while running[0]:
            name = f"{number}-{count}"
            began = time.monotonic()
            backend.push([message(queue, name, f"p{count % 3}")])
            receipts.append((name, began, time.monotonic()))
            count += 1

    def delete() -> tuple[float, float]:
        for _ in range(25):
            time.sleep(0.02)
            began = time.monotonic()
            assert backend.delete_queue(queue)
            ended = time.monotonic()
            backend.push([message(queue, f"marker {ended}")])
            assert backend.queue(queue) is not None
        time.sleep(0.1)
        running[0] = False
        return began, ended

    began, ended = together(delete, *(lambda n=n: push(n) for n in range(3)))[0]
    there = {x.transaction_id for x in drain(backend, queue, "g")}
    after = {name for name, start, _ in receipts if start > ended}
    before = {name for name, _, end in receipts if end < began}
    assert after
    assert after <= there
    assert not before & there
    assert repaired(dsn) == 0


def test_a_seek_over_many_partitions_holds_no_lease_row_while_it_waits_for_one(
    dsn: str, backend: PostgresBackend
) -> None:
    """O-30, C-20: all partitions come before the first lease row, however many they are."""
    queue = fresh()
    backend.push([message(queue, f"m{i}", f"p{i:03}") for i in range(120)])
    backend.subscribe(queue, "g", m.Subscription())
    with open_transaction(dsn) as pusher:
        push_in(pusher, queue, "p119")
        seek = Call(lambda: backend.seek(m.Seek(queue=queue, group="g")))
        until_blocked(dsn)
        pusher.execute(LOCK_LEASE + " nowait", [number_of(dsn, queue, "p000"), "g"])
    seek.result()


def test_a_group_of_many_queues_is_deleted_with_all_queues_locked_before_its_first_lease_row(
    dsn: str, backend: PostgresBackend
) -> None:
    """O-30: a transaction that holds the later queue may want the lease row of the earlier one."""
    first, second = fresh(), fresh()
    for queue in (first, second):
        backend.configure(queue)
        backend.subscribe(queue, "g", m.Subscription())
    with open_transaction(dsn) as other:
        other.execute("select from queen.queues where name = %s for no key update", [second])
        deletion = Call(lambda: backend.delete_group("g"))
        until_blocked(dsn)
        other.execute(LOCK_LEASE + " nowait", [number_of(dsn, first), "g"])
    assert deletion.result() == 2


def test_a_limit_set_while_pushes_wait_for_their_partitions_is_exact(
    dsn: str, backend: PostgresBackend
) -> None:
    """C-06: they looked for limited queues before there was one, and must look again."""
    queue = fresh()
    backend.push([message(queue, name, name) for name in "abcd"])
    assert len(drain(backend, queue, "g")) == 4
    execute(dsn, HOLD_BACK)
    with connect(dsn) as holder:
        holder.execute("select pg_advisory_lock(%s)", [HOLD])
        with open_transaction(dsn) as other:
            other.execute("select from queen.partitions where name in ('a', 'b') for update")
            calls = []
            for names in ("ac", "bd"):
                items = [message(queue, "slow", name) for name in names]
                calls.append(Call(lambda items=items: backend.push(items)))
                until_blocked(dsn, len(calls))
            backend.configure(queue, {"max_queue_size": 2})
        until_blocked(dsn, 2)  # one at its commit, the other for the queue
    # They are told apart by nothing: whichever had the queue first is stored.
    outcomes = []
    for call in calls:
        try:
            outcomes.append(len(call.result()))
        except QueueFull:
            outcomes.append(0)
    assert sorted(outcomes) == [0, 2]
    assert len(drain(backend, queue, "g")) == 2
