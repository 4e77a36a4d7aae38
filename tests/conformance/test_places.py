"""Rules about order hold for servers, too, whose answers say nothing of places."""

import msgspec
import pytest

from queen_sync.conformance import checkers, published
from queen_sync.conformance.facts import Facts
from queen_sync.conformance.places import placed
from tests.conformance import histories as h
from tests.conformance.histories import acked, facts, message, popped, pushed
from tests.conformance.test_checkers import BAD, GOOD

NAMES = "abcx"
NEED_PLACES = {
    # What nobody numbers cannot be numbered wrongly,
    "order: a later push stands before an earlier one",
    "order: a far later push overtakes",
    "order: two at one place",
    "order: a request turned round",
    "retries: a number is left out",
    "retries: the second delivery comes first",
    # and of what was never delivered nobody knows where it would have been.
    "fan out: another message at the same place",
    "fifo: the head is skipped",
    "fifo: a hole inside the batch",
    "fifo: over the first message after a new group's beginning",
}


def without_places(operation):
    """The same call as another server answers it: no seq, no counts, but instants."""

    def stripped(item):
        if hasattr(item, "created_us") and not item.created_us:
            item = msgspec.structs.replace(item, created_us=1_000 + item.seq)
        if hasattr(item, "delivery_count"):
            item = msgspec.structs.replace(item, delivery_count=1)
        return msgspec.structs.replace(item, seq=0)

    answer = operation.answer
    if operation.name == "push" and answer:
        answer = [stripped(receipt) for receipt in answer]
    elif operation.name == "pop" and answer:
        messages = [stripped(told) for told in answer.messages]
        answer = msgspec.structs.replace(answer, messages=messages)
    elif operation.name == "dead_letters" and answer:
        letters = [stripped(letter) for letter in answer.items]
        answer = msgspec.structs.replace(answer, items=letters)
    return msgspec.structs.replace(operation, answer=answer)


@pytest.mark.parametrize("name", GOOD)
def test_a_right_history_breaks_no_rule(name):
    operations = [h.configured(lease_seconds=10, retry_limit=2), *map(without_places, GOOD[name])]
    assert [str(found) for found in checkers.violations(operations, drained=True)] == []


@pytest.mark.parametrize("name", sorted(set(BAD) - NEED_PLACES))
def test_a_wrong_history_is_found_out(name):
    rule, operations = BAD[name]
    assert rule(facts(*map(without_places, operations)))


@pytest.mark.parametrize("name", sorted(NEED_PLACES))
def test_what_needs_places_is_not_guessed(name):
    rule, operations = BAD[name]
    assert rule(facts(*map(without_places, operations))) == []


def test_a_message_that_comes_after_its_followers_is_found_out():
    """The instants say that it stood before them."""
    operations = (
        pushed(0, 1, a=1),
        pushed(2, 3, b=2),
        popped(4, 5, "L", message("b", 2)),
        acked(6, 7, "L", "b"),
        popped(8, 9, "M", message("a", 1)),
    )
    found = checkers.first_in_first_out(facts(*map(without_places, operations)))
    assert [violation.invariant for violation in found] == ["INV-FIFO"]


def test_a_message_that_says_it_is_older_than_an_earlier_push_is_found_out():
    """By its instant it stands before what had been answered when it was pushed."""
    operations = (
        pushed(0, 1, a=2),
        pushed(2, 3, b=1),
        popped(4, 5, "L", message("b", 1), message("a", 2)),
    )
    found = checkers.order(facts(*map(without_places, operations)))
    assert [violation.invariant for violation in found] == ["INV-ORDER"]


def test_ids_decide_between_equal_instants():
    first, second = (
        msgspec.structs.replace(message(name, 0), id=name, created_us=7) for name in "ab"
    )
    (pop,) = placed([popped(0, 1, "L", first, second)])
    assert [(told.id, told.seq) for told in pop.answer.messages] == [("a", 1), ("b", 2)]


def test_what_has_its_places_is_left_alone():
    operations = list(GOOD["a plain life"])
    assert placed(operations) is operations
    assert Facts(operations).numbered


def test_a_file_may_leave_places_out(tmp_path):
    """docs/reference/history.md: the instants at which messages were stored are enough."""
    path = tmp_path / "history.jsonl"
    lines = published.lines(map(without_places, GOOD["a plain life"]), {}, drained=True)
    text = b"".join(lines).replace(b'"seq":0,', b"").replace(b',"seq":0', b"")
    assert b"seq" not in text
    path.write_bytes(text)
    (history,) = published.read(path)
    assert checkers.violations(history.operations, drained=history.drained) == []
    assert not Facts(history.operations).numbered
