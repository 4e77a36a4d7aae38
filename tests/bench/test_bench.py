"""The measurement: its arithmetic, and a short run of each kind."""

from __future__ import annotations

import json

import httpx
import pytest
from click.testing import CliRunner

from queen_sync.bench import command
from queen_sync.bench.command import without_password
from queen_sync.bench.machine import fsync_seconds
from queen_sync.bench.measure import Figures, figures, medians, percentile
from queen_sync.bench.plan import Plan, Tally
from tests.serving import serve

SHORT = ("--seconds", "0.5", "--rounds", "2", "--connections", "4", "--partitions", "8", "--json")


def measured(*arguments):
    done = CliRunner().invoke(command, arguments)
    assert done.exit_code == 0, done.output
    return json.loads(done.stdout)


@pytest.mark.parametrize(
    ("percent", "expected"), [(1, 1), (50, 50), (95, 95), (99, 99), (100, 100)]
)
def test_a_percentile_is_a_value_that_was_measured(percent, expected):
    assert percentile([float(n) for n in range(100, 0, -1)], percent) == expected


def test_a_single_value_is_every_percentile():
    assert {percentile([7.0], percent) for percent in (1, 50, 99)} == {7.0}


def test_rates_count_what_was_done_while_anybody_was_busy():
    """Two processes: the time runs from the first start to the last message."""
    early = Tally(messages=100, began=10.0, ended=12.0, calls={"push": [0.01] * 10})
    late = Tally(messages=300, began=11.0, ended=14.0, calls={"push": [0.03] * 30})
    (figure,) = figures(Tally.merged([early, late]), 10)
    assert figure.messages_per_second == 100
    assert figure.calls_per_second == 10
    assert figure.p50_milliseconds == pytest.approx(30)


def test_medians_are_taken_figure_by_figure():
    rounds = [
        [Figures("push", 1, *map(float, row))]
        for row in ((1, 9, 1, 1, 1), (2, 8, 5, 2, 9), (3, 7, 3, 3, 4))
    ]
    assert medians(rounds) == [Figures("push", 1, 2.0, 8.0, 3.0, 2.0, 4.0)]


@pytest.mark.parametrize("size", [2, 20, 130, 5000])
def test_a_payload_has_the_size_that_was_asked_for(size):
    plan = Plan(
        target="",
        queue="q",
        operation="push",
        batch=1,
        connections=1,
        partitions=1,
        payload_bytes=size,
        seconds=1,
    )
    assert len(plan.payload) == max(size, len('{"text": ""}'))
    json.loads(plan.payload)


def test_making_a_page_durable_takes_some_time(tmp_path):
    assert 0 < fsync_seconds(tmp_path) < 10


def test_a_server_is_measured_over_http():
    """Figures for each call and batch; what was pushed is popped and acked, then removed."""
    with serve("--backend", "memory:") as url:
        report = measured(url, *SHORT, "--batch", "1", "--batch", "10")
        health = httpx.get(f"{url}/health").json()
    assert health["status"] == "healthy"
    assert len(report["rounds"]) == 4
    found = {(each["call"], each["batch"]): each for each in report["medians"]}
    assert set(found) == {(call, batch) for call in ("push", "pop", "ack") for batch in (1, 10)}
    for (_, batch), each in found.items():
        assert each["messages_per_second"] == pytest.approx(
            each["calls_per_second"] * batch, rel=0.25
        )
        assert 0 < each["p50_milliseconds"] <= each["p95_milliseconds"] <= each["p99_milliseconds"]
    assert report["machine"]["fsync_milliseconds"] > 0


def test_the_table_names_the_machine_and_the_load():
    with serve("--backend", "memory:") as url:
        done = CliRunner().invoke(
            command, [url, "--seconds", "0.2", "--rounds", "1", "--batch", "5", "--processes", "1"]
        )
    assert done.exit_code == 0, done.output
    assert "fsync" in done.stdout
    assert "16 connections in 1 processes" in done.stdout
    assert "messages/s" in done.stdout


def test_a_store_is_measured_without_a_server(postgres_dsn):
    report = measured(postgres_dsn, *SHORT, "--batch", "10")
    assert {each["call"] for each in report["medians"]} == {"push", "pop", "ack"}
    assert all(each["messages_per_second"] > 0 for each in report["medians"])


@pytest.mark.parametrize(
    ("given", "kept"),
    [
        ("postgresql://me:secret@host:5432/queen", "postgresql://me@host:5432/queen"),
        ("postgresql://me@host/queen", "postgresql://me@host/queen"),
        ("http://host:6632", "http://host:6632"),
    ],
)
def test_a_report_holds_no_password(given, kept):
    assert without_password(given) == kept


def test_a_server_that_is_not_there_is_reported_plainly():
    done = CliRunner().invoke(command, ["http://127.0.0.1:1", *SHORT])
    assert done.exit_code == 1
    assert "refused" in done.output


@pytest.mark.parametrize(
    "target", ["memory:", "embedded:./data", "https://example.org", "nonsense"]
)
def test_what_cannot_be_measured_is_refused(target):
    done = CliRunner().invoke(command, [target])
    assert done.exit_code == 2
    assert "TARGET" in done.output
