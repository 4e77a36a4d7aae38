"""Moving a group, and giving dead letters back, through the client."""

from __future__ import annotations

import json

import msgspec
import pytest

from queen_sync import errors, model as m
from queen_sync.client import RemoteBackend
from tests.client.application import acks_of, pop, push


def without(store, feature):
    offered = store.capabilities
    store.capabilities = msgspec.structs.replace(offered, features=offered.features - {feature})


def values(claim):
    return [message.value for message in claim.messages]


@pytest.fixture
def read(queen, clock):
    """Two partitions with messages of two instants, a microsecond apart; all were read."""
    for number in range(2):
        push(queen, f"x{number}", partition="x")
        push(queen, f"y{number}", partition="y")
        clock.advance(0.000_001)
    queen.ack(acks_of(pop(queen, max_partitions=2)))
    return queen


@pytest.mark.parametrize(
    ("partition", "to", "found"),
    [
        (None, "start", ["x0", "x1", "y0", "y1"]),
        (None, "end", []),
        (None, "time", ["x1", "y1"]),
        ("x", "start", ["x0", "x1"]),
        ("x", "end", []),
        ("x", "time", ["x1"]),
    ],
)
def test_a_group_goes_where_it_is_sent(read, clock, partition, to, found):
    """C-20: to the microsecond."""
    from_us = clock.now_us() - 1 if to == "time" else None
    target = m.Seek(queue="invoices", partition=partition, to=to, from_us=from_us)
    moved = read.seek(target)
    assert moved == 1 if partition else moved >= 2
    assert sorted(values(pop(read, max_partitions=2))) == found


def test_a_seek_ends_the_leases_of_its_group(queen):
    """C-20."""
    push(queen, 1)
    claim = pop(queen, group="g")
    queen.seek(m.Seek(queue="invoices", group="g", to="start"))
    assert [answer.code for answer in queen.ack(acks_of(claim))] == ["LEASE_LOST"]
    assert values(pop(queen, group="g")) == [1]


def test_a_seek_where_nothing_is_says_what_is_missing(read):
    with pytest.raises(errors.QueueNotFound):
        read.seek(m.Seek(queue="none"))
    with pytest.raises(errors.PartitionNotFound):
        read.seek(m.Seek(queue="invoices", partition="none"))


@pytest.mark.parametrize("name", ["a/b", "a b", "?#&=+%", "prüfung → 你好", "x" * 255])
def test_any_name_can_be_moved_redriven_and_purged(queen, name):
    """C-18."""
    push(queen, 1, queue=name, partition=name, transaction_id=name)
    claim = pop(queen, queue=name, partition=name, group=name)
    assert queen.seek(m.Seek(queue=name, group=name, partition=name, to="start")) == 1
    chosen = m.DeadLetterFilter(queue=name, group=name, partition=name, transaction_id=name)
    claim = pop(queen, queue=name, partition=name, group=name)
    queen.ack(acks_of(claim, "dlq"))
    assert queen.redrive(chosen) == 1
    queen.ack(acks_of(pop(queen, queue=name, partition=name, group=name), "dlq"))
    assert queen.purge(chosen) == 1
    assert queen.dead_letters(chosen).total == 0


@pytest.fixture
def dead(queen, clock):
    """Four dead letters, a second apart, that each filter tells apart."""
    letters = []
    for number, (queue, partition, group) in enumerate(
        [("q", "x", "g"), ("q", "y", "g"), ("q", "y", "h"), ("other", "x", "g")]
    ):
        wanted = {"queue": queue, "partition": partition}
        push(queen, number, transaction_id=str(number), **wanted)
        claim = pop(queen, group=group, subscription=m.Subscription(mode="all"), **wanted)
        mine = [ack for ack in acks_of(claim, "dlq") if ack.transaction_id == str(number)]
        queen.ack(mine + [a for a in acks_of(claim) if a.transaction_id != str(number)])
        letters += queen.dead_letters(m.DeadLetterFilter(transaction_id=str(number))).items
        clock.advance(1)
    return letters


CHOICES = {
    "all": (lambda dead: {}, [0, 1, 2, 3]),
    "queue": (lambda dead: {"queue": "q"}, [0, 1, 2]),
    "group": (lambda dead: {"group": "g"}, [0, 1, 3]),
    "partition": (lambda dead: {"partition": "y"}, [1, 2]),
    "partition_id": (lambda dead: {"partition_id": dead[0].partition_id}, [0]),
    "transaction_id": (lambda dead: {"transaction_id": "2"}, [2]),
    "since": (lambda dead: {"failed_from_us": dead[2].failed_us}, [2, 3]),
    "until": (lambda dead: {"failed_to_us": dead[2].failed_us}, [0, 1, 2]),
    "paged": (lambda dead: {"limit": 1, "offset": 1}, [0, 1, 2, 3]),
    "nothing": (lambda dead: {"queue": "q", "group": "none"}, []),
}


@pytest.mark.parametrize("choice", CHOICES)
@pytest.mark.parametrize("call", ["redrive", "purge"])
def test_every_filter_reaches_the_store(queen, dead, call, choice):
    """C-12: a lost one would choose too much."""
    filters, chosen = CHOICES[choice]
    assert getattr(queen, call)(m.DeadLetterFilter(**filters(dead))) == len(chosen)
    left = queen.dead_letters(m.DeadLetterFilter()).items
    assert sorted(int(letter.payload) for letter in left) == sorted({0, 1, 2, 3} - set(chosen))


def test_the_listing_knows_all_filters_too(queen, dead):
    for filters, chosen in CHOICES.values():
        wanted = m.DeadLetterFilter(**{"limit": 100, **filters(dead), "offset": 0})
        page = queen.dead_letters(wanted)
        assert page.total == len(chosen)


@pytest.mark.parametrize("field", ["queue", "group", "partition", "transaction_id"])
@pytest.mark.parametrize("call", ["redrive", "purge", "dead_letters"])
def test_an_empty_filter_is_refused_since_the_wire_takes_it_for_none(queen, dead, call, field):
    with pytest.raises(errors.InvalidRequest):
        getattr(queen, call)(m.DeadLetterFilter(**{field: ""}))
    assert queen.dead_letters(m.DeadLetterFilter()).total == 4


def test_a_redriven_message_comes_again_with_fresh_attempts(queen):
    """C-12."""
    push(queen, 1)
    queen.ack(acks_of(pop(queen), "dlq", error="no"))
    assert queen.redrive(m.DeadLetterFilter(queue="invoices")) == 1
    claim = pop(queen)
    assert [(each.delivery_count, each.failure_count) for each in claim.messages] == [(1, 0)]
    assert queen.ack(acks_of(claim))[0].status == "completed"


@pytest.mark.parametrize(
    ("feature", "call"),
    [
        ("seek", lambda queen: queen.seek(m.Seek(queue="q"))),
        ("redrive", lambda queen: queen.redrive(m.DeadLetterFilter())),
        ("redrive", lambda queen: queen.purge(m.DeadLetterFilter())),
    ],
)
def test_what_the_server_does_not_offer_is_refused_by_name(queen, store, dead, feature, call):
    """O-14."""
    without(store, feature)
    with pytest.raises(errors.NotSupported) as raised:
        call(queen)
    assert raised.value.feature == feature
    assert queen.dead_letters(m.DeadLetterFilter()).total == 4


def test_a_purge_names_its_filters_where_nobody_drops_them(scripted, scripts):
    """The body of a DELETE may be lost on its way."""

    def play(connection, request):
        features = b'{"features":["redrive"]}'
        body = features if b"/capabilities " in request else b'{"success":true,"count":3}'
        scripts["answer"]("200 OK", body)(connection, request)

    server = scripted(play)
    with RemoteBackend(server.url) as queen:
        assert queen.purge(m.DeadLetterFilter(queue="q", group="g")) == 3
    assert server.requests[-1].startswith(b"DELETE /api/v1/dlq?queue=q&consumerGroup=g HTTP")


def test_an_answer_without_a_count_is_of_unknown_outcome(scripted, scripts):
    def play(connection, request):
        body = {"features": ["redrive"]} if b"/capabilities " in request else {"success": True}
        scripts["answer"]("200 OK", json.dumps(body).encode())(connection, request)

    with RemoteBackend(scripted(play).url) as queen, pytest.raises(errors.OutcomeUnknown):
        queen.redrive(m.DeadLetterFilter())
