"""Listings of the SQLite backend: the rows of the oracle, and no more work than a page needs."""

import random
import sqlite3

import msgspec
import pytest

from queen_sync import inspection as i, model as m
from queen_sync.backends.memory import MemoryBackend
from queen_sync.backends.sqlite import SqliteBackend
from queen_sync.backends.sqlite_connections import Session
from queen_sync.backends.sqlite_listing import page_of
from queen_sync.clock import ManualClock

QUEUES = ("orders", "bills", "orders.late")
PARTITIONS = ("a", "b", "c")
GROUPS = ("one", "two")
TRACES = (
    None,
    None,
    f"{1:08x}-0000-4000-8000-000000000000",
    f"{2:08x}-0000-4000-8000-000000000000",
)


def live(chance, backends, clock):
    """Let both backends live through the same: pushes, outcomes, deletions, deaths, returns."""
    numbers = iter(range(10_000))
    for _ in range(60):
        clock.advance(chance.choice([0, 0, 1, 11]))
        queue, group = chance.choice(QUEUES), chance.choice(GROUPS)
        what = chance.choice(["push", "push", "push", "take", "take", "delete", "bury", "redrive"])
        if what == "push":
            items = [
                m.NewMessage.of(
                    queue,
                    1,
                    partition=chance.choice(PARTITIONS),
                    transaction_id=f"t{next(numbers)}",
                    trace_id=chance.choice(TRACES),
                )
                for _ in range(chance.randint(1, 5))
            ]
            for backend in backends:
                backend.push(items)
        elif what == "take":
            outcomes = [chance.choice([*m.OUTCOMES, None]) for _ in range(4)]
            for backend in backends:
                take(backend, queue, group, outcomes)
        elif what == "redrive":
            for backend in backends:
                backend.redrive(m.DeadLetterFilter(queue=queue, group=group))
        else:
            number = chance.randrange(200)
            for backend in backends:
                one = backend.message_named(f"t{number}")
                if one is not None and what == "delete":
                    backend.delete_message(one.partition_id, one.id)
                elif one is not None:
                    backend.bury(one.partition_id, one.id)


def take(backend, queue, group, outcomes):
    claim = backend.pop(m.PopRequest(queue=queue, group=group, max_messages=4, max_partitions=2))
    backend.ack(
        [
            m.Ack(
                transaction_id=message.id,
                partition_id=message.partition_id,
                lease_id=claim.lease_id,
                group=group,
                outcome=outcome,
            )
            for message, outcome in zip(claim.messages, outcomes, strict=False)
            if outcome is not None
        ]
    )


def any_filter(chance, began_us, now_us):
    """Return a filter that has some of everything."""

    def maybe(values, often=0.3):
        return chance.choice(list(values)) if chance.random() < often else None

    instants = range(began_us - 1_000_000, now_us + 1_000_000, 500_000)
    return i.MessageFilter(
        queue=maybe(QUEUES),
        partition=maybe(PARTITIONS),
        namespace=maybe(["orders"], 0.1),
        task=maybe(["late"], 0.1),
        trace_id=maybe(TRACES[2:]),
        status=maybe(i.STATUSES, 0.6),
        group=maybe([*GROUPS, "nobody"], 0.4),
        from_us=maybe(instants),
        to_us=maybe(instants),
        limit=chance.choice([1, 2, 3, 100]),
        offset=chance.choice([0, 0, 1, 4]),
    )


def whole(backend, wanted):
    """Return a listing read to its end: what is told of each message, and where pages end."""
    found = []
    while True:
        page = backend.messages(wanted)
        found.append([(x.queue, x.partition, x.transaction_id, x.states) for x in page.items])
        if page.next_before is None:
            return found
        wanted = msgspec.structs.replace(wanted, before=page.next_before, offset=0)


@pytest.mark.parametrize("seed", range(6))
def test_every_filter_finds_what_the_oracle_finds(path, seed):
    """QA-6, PLD-8: page by page, in the same order, beside holes, leases, deaths and returns."""
    chance = random.Random(seed)
    clock = ManualClock()
    began_us = clock.now_us()
    oracle = MemoryBackend(clock=clock)
    with SqliteBackend(path, clock=clock, synchronous="normal") as subject:
        backends = (oracle, subject)
        for backend in backends:
            for queue in QUEUES:
                backend.configure(queue, {"lease_seconds": 10, "retry_limit": 1})
        for group in GROUPS[: 1 + seed % 2]:
            for backend in backends:
                backend.subscribe("orders", group, m.Subscription(mode="new"))
        live(chance, backends, clock)
        sizes = set()
        for _ in range(150):
            wanted = any_filter(chance, began_us, clock.now_us())
            expected = whole(oracle, wanted)
            assert whole(subject, wanted) == expected, wanted
            sizes.add(sum(map(len, expected)))
        assert len(sizes) > 10, "the filters hardly found anything"


@pytest.fixture
def statements(path, backend):
    """A session on the file, and the list of the statements that it has executed."""
    connection = sqlite3.connect(path)
    said: list[str] = []
    connection.set_trace_callback(said.append)
    yield Session(connection, 0), said
    connection.close()


def test_a_page_opens_no_partition_that_was_last_pushed_to_before_it_ends(path, statements):
    """QA-6: of 500 partitions only those are read whose messages are on the page."""
    clock = ManualClock()
    session, said = statements
    with SqliteBackend(path, clock=clock, synchronous="normal") as backend:
        for number in range(500):
            backend.push([m.NewMessage.of("orders", 1, partition=f"p{number}")])
            clock.advance(1)
    rows, more = page_of(session, i.MessageFilter(queue="orders", limit=5))
    assert [row[6] for row in rows] == ["p499", "p498", "p497", "p496", "p495"]
    assert more
    assert len(said) < 15


@pytest.mark.parametrize("status", ["failed", "dead_letter", "processing"])
def test_what_a_status_passes_over_is_not_read(statements, backend, status):
    """QA-6: three rare messages are found among 20,000, in other partitions and between others."""
    session, said = statements
    backend.push([m.NewMessage.of("orders", n, partition=f"p{n % 200}") for n in range(20_000)])
    request = m.PopRequest(queue="orders", partition="p7", max_messages=90)
    claim = backend.pop(request)
    outcomes = {10: "failed", 40: "dlq", 70: None}
    backend.ack(
        [
            m.Ack(
                transaction_id=message.id,
                partition_id=message.partition_id,
                lease_id=claim.lease_id,
                outcome=outcomes.get(number, "completed"),
            )
            for number, message in enumerate(claim.messages)
            if outcomes.get(number, "completed") is not None
        ]
    )
    wanted = {"failed": 11, "dead_letter": 41, "processing": 71}
    session.now_us = claim.expires_us - 1
    rows, more = page_of(session, i.MessageFilter(status=status))
    assert [(row[6], row[2]) for row in rows] == [("p7", wanted[status])]
    assert not more
    assert sum("newest" in line or "order by m.seq desc" in line for line in said) == 1
    assert len(said) < 15


def test_numbers_past_64_bits_find_nothing_or_everything(backend):
    """P29: an instant past what SQLite can hold is only far away."""
    far = 10**30
    (receipt,) = backend.push([m.NewMessage.of("orders", 1, trace_id=TRACES[2])])
    for trace in (None, TRACES[2]):
        spans = [(-far, far), (far, None), (None, -far)]
        found = [
            len(backend.messages(i.MessageFilter(from_us=low, to_us=high, trace_id=trace)).items)
            for low, high in spans
        ]
        assert found == [1, 0, 0]
        behind = 1 if trace is None else 0
        before = i.MessageFilter(before=(far, receipt.id), trace_id=trace)
        assert len(backend.messages(before).items) == behind
    assert backend.traces_named(i.TraceFilter(name="x", from_us=-far, to_us=far)).total == 0


@pytest.mark.parametrize("name", ["\0", "a\0b", "\ud800", "x" * 10_000])
def test_a_name_that_cannot_be_stored_names_nothing(backend, name):
    """INV-NO-500: whatever is looked up, nothing is found, and nothing breaks."""
    (receipt,) = backend.push([m.NewMessage.of("orders", 1, transaction_id="a")])
    assert backend.message(receipt.partition_id, name) is None
    assert backend.message_named(name) is None
    assert not backend.delete_message(receipt.partition_id, name)
    assert list(backend.traces(receipt.partition_id, name)) == []
