"""The fixtures for applications' tests, used as an application would; and their page."""

import pytest

from queen_sync.errors import MessageNotFound
from queen_sync.model import Ack, NewMessage, PopRequest, Transaction
from queen_sync.testing import assert_pushed, drain
from tests.pages import files_of

pytest_plugins = ["pytester", "queen_sync.testing"]

FILES = files_of("how-to/unit-tests.md")


def test_the_examples_of_the_page_run(pytester):
    """docs/how-to/unit-tests.md"""
    for name, code in FILES.items():
        (pytester.path / name).write_text(code)
    result = pytester.runpytest_subprocess("-q", "-p", "no:randomly", "-W", "error")
    result.assert_outcomes(passed=FILES["test_billing.py"].count("\ndef test_"))
    assert set(FILES) == {"conftest.py", "billing.py", "test_billing.py"}


def test_the_examples_of_the_page_can_fail(pytester):
    """A page whose tests pass whatever the application does would teach nothing."""
    for name, code in FILES.items():
        broken = code.replace('transaction_id=f"order-{number}"', "transaction_id=None")
        (pytester.path / name).write_text(broken)
    result = pytester.runpytest_subprocess("-q", "-p", "no:randomly")
    result.assert_outcomes(failed=2, passed=2)
    result.stdout.fnmatch_lines(["*was pushed to 'orders' 2 times, not 1; pushed there:*"])


def test_every_test_begins_with_nothing(queen, queen_clock):
    assert queen.pushed == []
    assert drain(queen, "orders") == []
    assert queen.backend.queues() == []
    assert queen_clock.now_us() > 0


def test_what_was_pushed_is_found_by_any_part_of_it(queen):
    queen.push([NewMessage.of("q", {"n": 1}, partition="a", transaction_id="x")])
    assert_pushed(queen, "q")
    assert_pushed(queen, "q", {"n": 1})
    assert_pushed(queen, "q", partition="a", transaction_id="x")
    assert_pushed(queen, "q", {"n": 2}, times=0)
    assert_pushed(queen, "q", partition="b", times=0)
    assert_pushed(queen, "other", times=0)


def test_null_is_a_value_like_any_other(queen):
    queen.push([NewMessage.of("q", 0)])
    assert_pushed(queen, "q", None, times=0)
    queen.push([NewMessage.of("q", None)])
    assert_pushed(queen, "q", None)


def test_what_was_consumed_was_pushed_all_the_same(queen):
    queen.push([NewMessage.of("q", 1)])
    drain(queen, "q")
    assert_pushed(queen, "q", 1)


def test_a_push_of_a_transaction_counts_when_the_transaction_happened(queen):
    push = NewMessage.of("q", 1)
    lost = Ack(transaction_id="x", lease_id="00000000-0000-4000-8000-000000000000")
    with pytest.raises(MessageNotFound):
        queen.transact(Transaction(operations=[lost, push]))
    assert_pushed(queen, "q", times=0)
    queen.transact(Transaction(operations=[push]))
    assert_pushed(queen, "q", 1)


def test_a_missing_push_is_told_with_what_there_was(queen):
    queen.push([NewMessage.of("q", {"n": 1}, partition="a", transaction_id="x")])
    queen.push([NewMessage.of("other", 2)])
    with pytest.raises(pytest.fail.Exception) as caught:
        assert_pushed(queen, "q", {"n": 2}, partition="a")
    assert str(caught.value) == (
        "value={'n': 2}, partition='a' was pushed to 'q' 0 times, not 1; pushed there:\n"
        '    a id=x {"n":1}'
    )
    with pytest.raises(pytest.fail.Exception, match="pushed there:\n    nothing"):
        assert_pushed(queen, "empty")


def test_a_drain_keeps_order_and_completes(queen):
    queen.push([NewMessage.of("q", n) for n in range(250)])
    assert [message.value for message in drain(queen, "q")] == list(range(250))
    assert drain(queen, "q") == []
    assert [message.value for message in drain(queen, "q", group="audit")] == list(range(250))


def test_a_drain_leaves_what_is_held_or_not_yet_due(queen, queen_clock):
    queen.configure("q", {"delayed_processing_seconds": 5, "lease_seconds": 30})
    queen.push([NewMessage.of("q", 1)])
    assert drain(queen, "q") == []
    queen_clock.advance(5)
    assert queen.pop(PopRequest(queue="q"))
    assert drain(queen, "q") == []
    queen_clock.advance(30)
    assert [message.value for message in drain(queen, "q")] == [1]
