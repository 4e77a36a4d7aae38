"""The command, with a short run of everything that it measures."""

from __future__ import annotations

import json
import sys
from pathlib import Path

import httpx
import psycopg
import pytest
from click.testing import CliRunner

from queen_sync.bench import command, results
from queen_sync.bench.machine import fsync_seconds
from queen_sync.bench.modes import MODES
from queen_sync.bench.report import BEGIN, END
from tests.bench.older_server import older_server
from tests.serving import serve, started

SHORT = (
    *("--seconds", "0.2", "--warmup", "0", "--rounds", "1", "--connections", "4"),
    *("--partitions", "8", "--many-partitions", "20", "--batch", "10"),
)


needs_proc = pytest.mark.skipif(sys.platform != "linux", reason="reads /proc")


def run(*arguments, code=0):
    done = CliRunner().invoke(command, [str(each) for each in arguments])
    assert done.exit_code == code, done.output
    return done


def measured(*arguments):
    return json.loads(run(*SHORT, *arguments, "--json").stdout)


def calls_of(report):
    return {
        (each["case"]["mode"], figure["call"])
        for each in report["medians"]
        for figure in each["figures"]
    }


EVERY_CALL = {
    ("push", "push"),
    ("pop", "pop"),
    ("pop-ack", "pop"),
    ("pop-ack", "ack"),
    ("latency", "pop"),
    ("latency", "ack"),
    ("empty", "empty pop"),
    ("wake", "wake"),
    ("wake", "wake, same process"),
    ("mixed", "push"),
    ("mixed", "pop"),
    ("mixed", "ack"),
    ("groups", "pop"),
    ("groups", "ack"),
    ("partitions", "push"),
    ("partitions", "pop"),
    ("partitions", "ack"),
    ("payload", "push"),
    ("payload", "pop"),
    ("payload", "ack"),
    ("ids", "push"),
}
MAYBE = {("mixed", "pop"), ("mixed", "ack")}
"""A consumer that meets no message in so short a time has nothing to show."""
STORE_MODES = ("push", "pop", "pop-ack", "mixed", "partitions", "ids")


def test_making_a_page_durable_takes_some_time(tmp_path):
    assert 0 < fsync_seconds(tmp_path) < 10


def test_every_mode_measures_a_server_without_errors(tmp_path):
    """All modes over HTTP; the result file holds every round; the queues are gone afterwards."""
    out = tmp_path / "result.json"
    modes = [word for mode in MODES for word in ("--mode", mode)]
    with serve("--backend", "memory:") as url:
        report = measured(url, *modes, "--out", out, "--strict")
        health = httpx.get(f"{url}/health").json()
    assert calls_of(report) | MAYBE == EVERY_CALL
    assert all(each["errors"] == {} for each in report["rounds"])
    assert health["backend"]["queues"] == 0
    assert json.loads(results.encode(results.read(out))) == report
    for each in report["medians"]:
        for figure in each["figures"]:
            assert figure["calls"] > 0
            assert 0 < figure["p50_milliseconds"] <= figure["p95_milliseconds"]
            assert figure["p95_milliseconds"] <= figure["p99_milliseconds"]
    assert report["machine"]["fsync_milliseconds"] > 0


def test_messages_are_counted_by_what_was_moved():
    with serve("--backend", "memory:") as url:
        report = measured(url, "--mode", "push", "--mode", "groups")
    push, one, ten = report["medians"]
    (pushed,) = push["figures"]
    assert pushed["messages"] == pushed["calls"] * 10
    assert (one["case"]["groups"], ten["case"]["groups"]) == (1, 10)
    for each in (one, ten):
        popped, acked = each["figures"]
        assert 0 < acked["messages"] <= popped["messages"] <= popped["calls"] * 10


@needs_proc
def test_what_the_server_costs_is_found_by_who_listens():
    with started("--backend", "memory:") as server:
        report = measured(server.url, "--mode", "push", "--seconds", "1")
        assert len(server.workers) == 1
    used = report["medians"][0]["server"]
    assert used["processes"] == 2
    assert used["cpu_seconds"] > 0
    assert used["memory_megabytes"] > 10
    assert report["medians"][0]["database"] is None


@needs_proc
def test_the_database_of_a_server_counts_apart(served_dsn):
    """Named by a process, since a server that calls it over a socket file cannot be traced."""
    with started("--backend", served_dsn, "--workers", "2") as server:
        postmaster = postmaster_of(served_dsn)
        report = measured(
            *(server.url, "--mode", "wake", "--mode", "push", "--seconds", "1"),
            *("--database-pid", postmaster),
        )
    wake, push = report["medians"]
    assert push["server"]["processes"] == 3
    assert push["database"]["cpu_seconds"] > 0
    assert push["database"]["processes"] > 1
    assert {figure["call"] for figure in wake["figures"]} >= {"wake"}


def postmaster_of(dsn):
    with psycopg.connect(dsn) as connection:
        (backend,) = connection.execute("select pg_backend_pid()").fetchone()
        stat = Path(f"/proc/{backend}/stat").read_text()
    return int(stat.rpartition(")")[2].split()[1])


def test_a_server_of_the_first_generation_is_measured_too():
    """200 for an empty pop, a lease named once, answers in chunks, no /health."""
    with older_server() as server:
        report = measured(server.url, *(w for m in ("pop-ack", "ids") for w in ("--mode", m)))
        assert len(server.deleted) == 3
    assert calls_of(report) == {("pop-ack", "pop"), ("pop-ack", "ack"), ("ids", "push")}
    assert all(each["errors"] == {} for each in report["rounds"])


def test_errors_are_counted_and_shown():
    with older_server(refuse=2, hang_up=3) as server:
        shown = run(server.url, *SHORT, "--mode", "push")
        strict = run(server.url, *SHORT, "--mode", "push", "--strict", code=1)
    assert "x push: HTTP 503" in shown.stdout
    assert "x push: the server closed the connection" in shown.stdout
    assert "calls went wrong" in strict.output


def test_a_target_on_which_nothing_succeeds_has_no_figures():
    with older_server(refuse=1) as server:
        done = run(server.url, *SHORT, "--mode", "push", code=1)
    assert "nothing was done" in done.output
    assert "HTTP 503" in done.output


def test_two_targets_are_measured_in_turn_and_compared(tmp_path):
    with serve("--backend", "memory:") as url, older_server() as server:
        done = run(
            *(url, "--against", server.url, *SHORT, "--mode", "push", "--rounds", 2),
            *("--out", tmp_path / "result.json"),
        )
        result = results.read(tmp_path / "result.json")
    # Whoever was first in one round is second in the next.
    assert [each.target for each in result.rounds] == [url, server.url, server.url, url]
    (rate, latency) = result.comparisons
    assert rate.ratio == pytest.approx(rate.target / rate.against)
    assert rate.lowest <= rate.highest
    assert latency.figure == "p50_milliseconds"
    assert "A / B" in done.stdout


def test_a_comparison_and_its_machine_are_written_into_a_document(tmp_path):
    """--report replaces what stands between the marks, and only that."""
    out, document = tmp_path / "result.json", tmp_path / "page.md"
    run("memory:", *SHORT, "--mode", "partitions", "--out", out)
    document.write_text(f"# Title\n\n{BEGIN}\nold\n{END}\n\nThe end.\n")
    run(out, out, "--report", document)
    text = document.read_text()
    assert text.startswith(f"# Title\n\n{BEGIN}\n")
    assert text.endswith(f"{END}\n\nThe end.\n")
    assert "old" not in text
    assert text.count("### memory:") == 2
    assert "| partitions: 20 partitions | push | 10 |" in text
    assert "fsync" in text
    once = text
    run(out, out, "--report", document)
    assert document.read_text() == once


def test_a_document_without_a_place_for_figures_is_left_alone(tmp_path):
    out, document = tmp_path / "result.json", tmp_path / "page.md"
    run("memory:", *SHORT, "--mode", "empty", "--out", out)
    document.write_text("# Title\n")
    done = run(out, "--report", document, code=1)
    assert "no place for figures" in done.output
    assert document.read_text() == "# Title\n"


@pytest.mark.parametrize("scheme", ["memory", "sqlite", "postgresql"])
def test_a_store_is_measured_without_a_server(scheme, tmp_path, postgres_dsn):
    target = {
        "memory": "memory:",
        "sqlite": f"sqlite:///{tmp_path}/queen.db",
        "postgresql": postgres_dsn,
    }[scheme]
    modes = [*STORE_MODES, "empty", "latency", "groups"] if scheme == "memory" else STORE_MODES
    report = measured(target, *(word for mode in modes for word in ("--mode", mode)), "--strict")
    expected = {each for each in EVERY_CALL if each[0] in modes}
    assert calls_of(report) | MAYBE & expected == expected
    assert report["settings"]["processes"] == (1 if scheme == "memory" else 2)


def test_the_tables_name_the_machine_and_the_load():
    done = run("memory:", *SHORT, "--mode", "ids")
    assert "fsync" in done.stdout
    assert "not calibrated" in done.stdout
    assert "4 connections in 1 process, 8 partitions" in done.stdout
    assert "messages/s" in done.stdout
    assert "ids: named by the caller" in done.stdout
    assert "database not available" in done.stdout


def test_a_server_that_is_not_there_is_reported_plainly():
    done = run("http://127.0.0.1:1", *SHORT, code=1)
    assert "refused" in done.output
    assert "Traceback" not in done.output


@pytest.mark.parametrize(
    "arguments",
    [
        ["embedded:./data"],
        ["https://example.org"],
        ["nonsense"],
        ["memory:", "memory:"],
        ["memory:", "--against", "memory:"],
        ["memory:", "--mode", "wake"],
        ["sqlite:///x.db", "--footprint", "1000"],
        [],
    ],
)
def test_what_cannot_be_measured_is_refused(arguments):
    done = run(*arguments, code=2)
    assert "Usage" in done.output
