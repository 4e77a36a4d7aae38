"""The arithmetic of the measurement, without anything that is measured."""

from __future__ import annotations

import json
from collections import Counter

import pytest

from queen_sync.bench import results
from queen_sync.bench.measure import shares, shown
from queen_sync.bench.modes import MODES, Load, label
from queen_sync.bench.plan import Case, LoadError, Plan, Tally
from queen_sync.bench.processes import Used
from queen_sync.bench.results import Figures, Round, compare, figures, medians, percentile
from queen_sync.bench.tables import other_share, rows

PUSH = Case(mode="push", operation="push", batch=10)


def figure(call="push", rate=1.0, p50=1.0, *, calls=1.0, messages=1.0):
    return Figures(
        call=call,
        calls=calls,
        messages=messages,
        messages_per_second=rate,
        calls_per_second=rate,
        p50_milliseconds=p50,
        p95_milliseconds=p50,
        p99_milliseconds=p50,
    )


def played(number, *found, target="a", case=PUSH, errors=None, server=None):
    return Round(
        target=target,
        number=number,
        case=case,
        figures=list(found),
        errors=errors or {},
        load_cpu_seconds=1.0,
        server=server,
    )


def plan(**more):
    usual = {
        "target": "",
        "queue": "q",
        "operation": "push",
        "batch": 1,
        "connections": 1,
        "partitions": 1,
        "payload_bytes": 130,
        "seconds": 1,
    }
    return Plan(**{**usual, **more})


@pytest.mark.parametrize(
    ("percent", "expected"), [(1, 1), (50, 50), (95, 95), (99, 99), (100, 100)]
)
def test_a_percentile_is_a_value_that_was_measured(percent, expected):
    assert percentile([float(n) for n in range(100, 0, -1)], percent) == expected


def test_a_single_value_is_every_percentile():
    assert {percentile([7.0], percent) for percent in (1, 50, 99)} == {7.0}


def test_rates_count_what_was_done_while_anybody_was_busy():
    """Two processes: the time runs from the first start to the last message."""
    early = Tally(Counter(push=100), began=10.0, ended=12.0, calls={"push": [0.01] * 10})
    late = Tally(Counter(push=300), began=11.0, ended=14.0, calls={"push": [0.03] * 30})
    (found,) = figures(Tally.merged([early, late]))
    assert (found.messages, found.messages_per_second) == (400, 100)
    assert (found.calls, found.calls_per_second) == (40, 10)
    assert found.p50_milliseconds == pytest.approx(30)


def test_errors_of_all_processes_are_counted_together():
    tallies = [Tally(errors=Counter({"push: HTTP 503": n})) for n in (1, 2)]
    assert Tally.merged(tallies).errors == {"push: HTTP 503": 3}


def test_medians_are_taken_figure_by_figure():
    rounds = [
        played(1, figure(rate=1, p50=9), server=Used(2, 3.0, 100.0)),
        played(2, figure(rate=2, p50=8), errors={"push: lost": 1}),
        played(3, figure(rate=3, p50=1), errors={"push: lost": 2}, server=Used(2, 5.0, 200.0)),
    ]
    (found,) = medians(rounds)
    assert (found.figures[0].messages_per_second, found.figures[0].p50_milliseconds) == (2, 8)
    assert found.errors == {"push: lost": 3}
    assert found.server == Used(2, 4.0, 150.0)
    assert found.database is None


def test_targets_are_compared_round_by_round():
    """A machine that is slow for a while is slow for both of a pair: the spread stays narrow."""
    rounds = [
        played(number, figure(rate=rate * factor), target=target)
        for number, factor in ((1, 1), (2, 10), (3, 2))
        for target, rate in (("a", 300), ("b", 100))
    ]
    rate, latency = compare(rounds, "a", "b")
    assert (rate.figure, rate.target, rate.against, rate.ratio) == (
        "messages_per_second",
        600,
        200,
        3,
    )
    assert (rate.lowest, rate.highest) == (3, 3)
    assert (latency.figure, latency.ratio) == ("p50_milliseconds", 1)


def test_the_spread_of_a_comparison_is_that_of_its_pairs():
    rounds = [
        played(number, figure(rate=rate), target=target)
        for number, rates in enumerate(((100, 100), (150, 100), (300, 200)))
        for target, rate in zip("ab", rates, strict=True)
    ]
    rate, _ = compare(rounds, "a", "b")
    assert (rate.lowest, rate.ratio, rate.highest) == (1.0, 1.5, 1.5)


def test_calls_that_move_nothing_are_compared_by_their_number():
    rounds = [played(1, figure("empty pop", 10, messages=0), target=each) for each in "ab"]
    assert compare(rounds, "a", "b")[0].figure == "calls_per_second"


def test_cases_of_a_mode_are_held_against_the_first():
    """Ratios: 10 groups against 1, many partitions against 10."""
    cases = MODES["groups"].cases(Load((10,), 4, 8, 130))
    rounds = [
        played(1, figure(rate=rate), case=case)
        for case, rate in zip(cases, (200, 500), strict=True)
    ]
    assert [row[-1] for row in rows(medians(rounds))] == ["1.00", "2.50"]
    assert [label(case) for case in cases] == ["1 group", "10 groups"]


def test_a_wake_up_through_another_process_is_told_apart_where_the_server_tells():
    same, other = (
        figure(f"wake, {which} process", calls=n) for which, n in (("same", 3), ("other", 1))
    )
    assert other_share([figure("wake"), same, other]) == 0.25
    assert other_share([figure("wake"), same]) == 0
    assert other_share([figure("wake")]) is None


@pytest.mark.parametrize("mode", MODES)
def test_every_mode_makes_cases_of_its_own(mode):
    cases = MODES[mode].cases(Load((1, 100), 5, 8, 130))
    assert cases
    assert len(set(cases)) == len(cases)
    assert {case.mode for case in cases} == {mode}
    assert all(case.connections >= 1 for case in cases)


def test_what_compares_differs_in_one_thing_only():
    few, many = MODES["partitions"].cases(Load((1,), 4, 8, 130))[:2]
    assert (few.partitions, many.partitions) == (10, 100_000)
    one, ten = MODES["groups"].cases(Load((1,), 4, 8, 130))
    assert one.connections == ten.connections == 10


@pytest.mark.parametrize("size", [2, 20, 130, 5000])
def test_a_payload_has_the_size_that_was_asked_for(size):
    made = plan(payload_bytes=size).payload
    assert len(made) == max(size, len('{"text": ""}'))
    json.loads(made)


def test_processes_share_everything_and_nothing_twice():
    whole = plan(connections=5, lanes=range(7), limit=10)
    parts = list(shares(whole, 2))
    assert [part.connections for part in parts] == [3, 2]
    assert [part.first_caller for part in parts] == [0, 3]
    assert sorted(lane for part in parts for lane in part.lanes) == list(range(7))
    assert [part.limit for part in parts] == [5, 5]


@pytest.mark.parametrize(
    ("given", "kept"),
    [
        ("postgresql://me:secret@host:5432/queen", "postgresql://me@host:5432/queen"),
        ("postgresql://me@host/queen", "postgresql://me@host/queen"),
        ("http://host:6632", "http://host:6632"),
    ],
)
def test_a_result_holds_no_password(given, kept):
    assert shown(given) == kept


@pytest.mark.parametrize("text", ["", "{}", "[1]", "no json"])
def test_what_is_no_result_is_refused(tmp_path, text):
    path = tmp_path / "result.json"
    path.write_text(text)
    with pytest.raises(LoadError, match=r"result\.json is no result"):
        results.read(path)
