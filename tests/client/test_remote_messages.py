"""Single messages, cleanup and traces through the client; the conformance suite has the rest."""

from __future__ import annotations

import msgspec
import pytest

from queen_sync import errors, inspection as i, model as m
from tests.client.application import acks_of, pop, push
from tests.client.test_remote_recovery import without


@pytest.fixture
def transport_calls(queen):
    """What is asked of the server, request by request."""
    requests = []
    queen._calls._http.event_hooks = {"request": [requests.append]}
    return requests


ODD_NAMES = ["a b", "a/b", "\u00fc \u6f22", "100%", "%2F", "+", "?x=1#y", "retry", "dlq"]


@pytest.mark.parametrize("name", ODD_NAMES)
def test_any_name_is_sent_whole(queen, name):
    """C-18: by every call that puts one into a path or a query."""
    message = m.NewMessage.of(name, 1, partition=name, transaction_id=name)
    (receipt,) = queen.push([message])
    place = receipt.partition_id, name
    for found in (queen.message(*place), queen.message_named(name)):
        assert found is not None
        assert (found.id, found.queue, found.partition) == (receipt.id, name, name)
    claim = queen.pop(m.PopRequest(queue=name, group=name))
    wanted = i.MessageFilter(queue=name, partition=name, group=name, status="processing")
    assert [found.id for found in queen.messages(wanted).items] == [receipt.id]
    trace_id = queen.add_trace(
        i.Trace(partition_id=place[0], transaction_id=name, names=[name], kind=name, group=name)
    )
    assert [note.id for note in queen.traces(*place)] == [trace_id]
    assert [note.id for note in queen.traces_named(i.TraceFilter(name=name)).items] == [trace_id]
    assert [found.name for found in queen.trace_names()] == [name]
    queen.ack(acks_of(claim, "failed"))
    assert queen.retry_now(*place, group=name) == 1
    assert queen.bury(*place, group=name, error="by hand") == 1
    assert queen.delete_message(*place)
    assert queen.clear(name, name) == 0
    assert queen.delete_partition(name, name)


@pytest.mark.parametrize("name", ["", ".", "..", "a\0", "x" * 256])
def test_what_no_message_can_be_called_is_not_asked_for(queen, transport_calls, name):
    """C-18: there is none, and no request is made of it that could mean another."""
    (receipt,) = push(queen, 1)
    queen.capabilities  # noqa: B018  # asked for once
    transport_calls.clear()
    for partition_id, called in ((receipt.partition_id, name), ("no id", "t")):
        assert queen.message(partition_id, called) is None
        assert not queen.delete_message(partition_id, called)
        assert list(queen.traces(partition_id, called)) == []
        for refused in (queen.bury, queen.retry_now):
            with pytest.raises(errors.MessageNotFound):
                refused(partition_id, called)
    assert queen.message_named(name) is None
    assert transport_calls == []


@pytest.mark.parametrize("field", ["queue", "partition", "namespace", "task", "group"])
def test_an_empty_filter_is_not_sent_as_none(queen, field):
    """It would list everything."""
    push(queen, 1)
    with pytest.raises(errors.InvalidRequest):
        queen.messages(msgspec.convert({field: ""}, i.MessageFilter))


def test_what_is_old_is_listed_too(queen, clock):
    """A server lists the last hour unless told otherwise; the contract knows no such limit."""
    (receipt,) = push(queen, 1)
    clock.advance(7_200)
    assert [found.id for found in queen.messages(i.MessageFilter()).items] == [receipt.id]


def test_an_instant_comes_back_to_the_microsecond(queen, clock):
    """Though the list shows milliseconds: the id of a message knows the rest."""
    clock.advance(0.123_456)
    (receipt,) = push(queen, 1)
    found = queen.messages(i.MessageFilter()).items[0]
    assert found.created_us == clock.now_us()
    assert queen.message(receipt.partition_id, receipt.id).created_us == clock.now_us()


def test_what_is_under_a_lease_is_not_buried(queen):
    """The server answers with a conflict, the contract with 0."""
    (receipt,) = push(queen, 1)
    pop(queen)
    place = receipt.partition_id, receipt.id
    assert (queen.bury(*place), queen.retry_now(*place)) == (0, 0)


def test_a_retry_at_once_leaves_dead_letters_alone(queen):
    (receipt,) = push(queen, 1)
    queen.ack(acks_of(pop(queen), "dlq"))
    assert queen.retry_now(receipt.partition_id, receipt.id) == 0
    assert queen.dead_letters(m.DeadLetterFilter()).total == 1


def test_a_note_without_a_group_is_one_of_the_consumers_without_one(queen):
    (receipt,) = push(queen, 1)
    note = i.Trace(partition_id=receipt.partition_id, transaction_id=receipt.id)
    queen.add_trace(note)
    assert queen.traces(receipt.partition_id, receipt.id)[0].group == m.QUEUE_MODE


def test_clearing_what_does_not_exist_is_refused(queen):
    push(queen, 1)
    with pytest.raises(errors.QueueNotFound):
        queen.clear("nowhere")
    with pytest.raises(errors.PartitionNotFound):
        queen.clear("invoices", "nowhere")
    for names in (("", None), ("invoices", "")):
        with pytest.raises(errors.InvalidRequest):
            queen.clear(*names)
    assert not queen.delete_partition("invoices", "nowhere")


@pytest.mark.parametrize(
    ("feature", "call"),
    [
        ("messages", lambda queen: queen.message("", "")),
        ("messages", lambda queen: queen.message_named("t")),
        ("messages", lambda queen: queen.messages(i.MessageFilter())),
        ("cleanup", lambda queen: queen.delete_message("", "")),
        ("cleanup", lambda queen: queen.bury("", "")),
        ("cleanup", lambda queen: queen.retry_now("", "")),
        ("cleanup", lambda queen: queen.clear("q")),
        ("cleanup", lambda queen: queen.delete_partition("q", "p")),
        ("traces", lambda queen: queen.traces("", "")),
        ("traces", lambda queen: queen.traces_named(i.TraceFilter(name="a"))),
        ("traces", lambda queen: queen.trace_names()),
        ("traces", lambda queen: queen.count_trace_names()),
    ],
)
def test_what_the_server_lacks_is_refused_here(queen, store, feature, call):
    """O-14."""
    without(store, feature)
    with pytest.raises(errors.NotSupported) as caught:
        call(queen)
    assert caught.value.feature == feature
