"""Histories as files: written, read again, and judged the same."""

import json
import math
import time
from functools import partial
from pathlib import Path

import pytest

from queen_sync import model as m
from queen_sync.backends.memory import MemoryBackend
from queen_sync.conformance import checkers, published, summary
from queen_sync.conformance.history import History, recorded
from queen_sync.conformance.workloads import Pipeline, Workload, together
from queen_sync.errors import InvalidRequest
from tests.conformance import histories as h
from tests.conformance.histories import acked, message, popped, pushed
from tests.conformance.test_checkers import BAD, GOOD

PAGE = Path(__file__).parents[2] / "docs" / "reference" / "history.md"


def written(operations, *, drained=False):
    return list(published.lines(operations, {"case": "written"}, drained=drained))


@pytest.fixture
def read(tmp_path):
    def read_again(lines):
        path = tmp_path / "history.jsonl"
        path.write_bytes(b"".join(lines))
        return list(published.read(path))

    return read_again


@pytest.fixture(scope="module")
def busy():
    """The history of a real run in which about everything happens."""
    history = History()
    with MemoryBackend() as backend:
        target = recorded(backend, history)
        target.configure("q", {"lease_seconds": 1, "retry_limit": 2})
        work = Workload(target, "q", lease_seconds=1, partitions=3)
        line = Pipeline(target, "q", "out", lease_seconds=1)
        until = time.monotonic() + 1.5
        together(
            partial(work.produce, 1, until),
            partial(work.consume, 2, until),
            partial(work.consume, 3, until, "group"),
            partial(line.work, 4, until, deaths=0.1, zombies=0.1),
        )
        work.drain((m.QUEUE_MODE, "group"))
    return history.operations


def test_what_is_read_again_is_written_the_same(busy, read):
    lines = written(busy, drained=True)
    (again,) = read(lines)
    assert again.drained
    assert again.about == {"case": "written"}
    assert written(again.operations, drained=True) == lines
    assert {"push", "pop", "ack", "transact", "dead_letters"} <= {o.name for o in again.operations}


def test_a_history_is_judged_the_same_after_it_was_read(busy, read):
    (again,) = read(written(busy, drained=True))
    assert checkers.violations(again.operations, drained=True) == []
    assert checkers.violations(busy, drained=True) == []


@pytest.mark.parametrize("name", GOOD)
def test_a_good_history_is_good_when_read(name, read):
    (again,) = read(written([h.configured(lease_seconds=10, retry_limit=2), *GOOD[name]]))
    assert checkers.violations(again.operations, drained=False) == []


@pytest.mark.parametrize("name", BAD)
def test_a_bad_history_is_as_bad_when_read(name, read):
    _, operations = BAD[name]
    whole = [h.configured(lease_seconds=10, retry_limit=2, max_queue_size=0), *operations]
    (again,) = read(written(whole, drained=True))
    found = [v.invariant for v in checkers.violations(again.operations, drained=True)]
    assert found == [v.invariant for v in checkers.violations(whole, drained=True)]


def test_what_has_no_end_stays_open(read):
    (again,) = read(written([h.unanswered_push(0, "a")]))
    (operation,) = again.operations
    assert (operation.outcome, operation.returned) == ("info", math.inf)


def test_a_file_may_hold_several_histories(tmp_path):
    path = tmp_path / "history.jsonl"
    for case in ("one", "two"):
        history = History([pushed(0, 1, a=1)])
        published.append(path, history, {"case": case}, drained=case == "two")
    first, second = published.read(path)
    assert (first.about["case"], first.drained) == ("one", False)
    assert (second.about["case"], second.drained) == ("two", True)


def test_calls_that_only_look_are_left_out(read):
    (again,) = read(written([h.operation("groups", 0, 1, "q", answer=[]), pushed(0, 1, a=1)]))
    assert [operation.name for operation in again.operations] == ["push"]


@pytest.mark.parametrize(
    "operation",
    [h.operation("seek", 0, 1, m.Seek(queue="q"), answer=1), h.configured(ttl_seconds=5)],
    ids=["call", "option"],
)
def test_what_the_rules_do_not_cover_is_not_written(operation):
    with pytest.raises(InvalidRequest, match="cannot be checked"):
        written([operation])


BEGIN = {"type": "history", "version": 1}
PUSH = {
    "type": "operation",
    "process": 0,
    "call": "push",
    "began": 0.0,
    "ended": 1.0,
    "outcome": "ok",
    "request": {"items": []},
    "answer": {"receipts": []},
}


@pytest.mark.parametrize(
    ("lines", "told"),
    [
        ([], "holds no history"),
        ([PUSH], "1: the first line must have the type"),
        ([{**BEGIN, "version": 2}], "1: version 2 is not known"),
        ([BEGIN, {"type": "other"}], "2: Invalid value"),
        ([BEGIN, {**PUSH, "call": "seek"}], "2: histories with seek cannot be checked"),
        ([BEGIN, {**PUSH, "ended": None}], "2: exactly the outcome info has no end"),
        ([BEGIN, {**PUSH, "answer": None}], "2: an operation that is ok has its answer"),
        ([BEGIN, {**PUSH, "request": {}}], "2: 'items'"),
        ([BEGIN, {**PUSH, "request": {"items": [{"queue": "q", "payload": 1}]}}], "2: a payload"),
        ([BEGIN, {"type": "drained"}, PUSH], "3: a drained history goes on"),
    ],
)
def test_a_line_that_cannot_be_read_is_named(lines, told, read):
    with pytest.raises(InvalidRequest) as caught:
        read([json.dumps(line).encode() + b"\n" for line in lines])
    assert told in str(caught.value)


def test_the_example_of_the_page_is_a_history_with_one_violation(read):
    """docs/reference/history.md shows a history of which somebody else's program could be proud."""
    text = PAGE.read_text("utf-8").partition("```jsonl\n")[2].partition("```")[0]
    (history,) = read([text.encode()])
    verdict = summary.judge(history)
    assert [found.invariant for found in verdict.violations] == ["INV-DURABLE-ACK"]
    assert (verdict.attempted, verdict.acknowledged, verdict.recovered) == (2, 1, 1)


def test_the_page_names_every_field_that_is_written(busy):
    """A field that is not described is not published."""
    page = PAGE.read_text("utf-8")
    names = set()

    def collect(value):
        if isinstance(value, dict):
            names.update(value)
            for each in value.values():
                collect(each)
        elif isinstance(value, list):
            for each in value:
                collect(each)

    for line in written(busy, drained=True):
        told = json.loads(line)
        if told.get("call") == "configure":
            told["request"].pop("options")
        told.pop("about", None)
        collect(told)
    assert [name for name in sorted(names) if f"`{name}`" not in page] == []


def test_a_verdict_counts_what_became_of_the_messages():
    operations = [
        pushed(0, 1, a=1, b=2),
        h.unanswered_push(0, "c"),
        popped(2, 3, "L", message("a", 1), message("b", 2), message("c", 3)),
        acked(3, 4, "L", "a"),
        popped(20, 21, "M", message("b", 2, 2), message("c", 3, 2)),
        acked(22, 23, "M", "b"),
        acked(22, 23, "M", "c"),
    ]
    options = h.configured(lease_seconds=10)
    verdict = summary.judge(published.Published({}, [options, *operations], drained=True))
    assert (verdict.attempted, verdict.acknowledged) == (3, 2)
    assert (verdict.unknown, verdict.recovered) == (1, 1)
    assert (verdict.deliveries, verdict.redeliveries) == (5, 2)
    assert (verdict.lost, verdict.unexpected, verdict.violations) == (0, 0, [])
    lost = summary.judge(published.Published({}, [*operations[:4]], drained=True))
    assert lost.lost == 1
    assert json.loads(json.dumps(lost.document()))["violations"][0]["rule"] == "INV-NO-LOSS"
