"""``queen-sync conformance``: what somebody sees who has a server and no Python file."""

import json
import re
import socket
import subprocess
import sys
import threading
from contextlib import contextmanager

import pytest
from werkzeug.serving import WSGIRequestHandler, make_server

from queen_sync.backends.memory import MemoryBackend
from queen_sync.broker import Broker
from queen_sync.config import Settings
from queen_sync.conformance import published
from queen_sync.conformance.base import case_id, case_names
from queen_sync.conformance.command import command
from queen_sync.conformance.levels import LEVELS, includes
from queen_sync.conformance.suite import (
    BackendConformance,
    ConcurrencyConformance,
    ServerConformance,
)
from queen_sync.web import create_app
from tests.conformance import histories as h
from tests.conformance.histories import acked, message, popped, pushed
from tests.pages import DOCS

CACHED = "L03 no answer of a pop may be cached"
HEAD = "L03 head takes nothing from a queue"
COMMAND = (sys.executable, "-m", "queen_sync.cli", "conformance")


class Silent(WSGIRequestHandler):
    def log_request(self, *_):
        pass


@contextmanager
def served(backend, *missing, dropped_header=""):
    """A server of a backend, in this process.

    It has no route that holds one of the ``missing`` words, and one header gets lost.
    """
    settings = Settings()
    broker = Broker(backend, settings)
    application = create_app(broker, settings)

    def outer(environ, start_response):
        if any(word in environ["PATH_INFO"] for word in missing):
            start_response("404 Not Found", [("Content-Type", "text/html")])
            return [b"<h1>Nothing here</h1>"]

        def start(status, headers, *rest):
            kept = [(name, value) for name, value in headers if name != dropped_header]
            return start_response(status, kept, *rest)

        return application(environ, start)

    server = make_server("127.0.0.1", 0, outer, threaded=True, request_handler=Silent)
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    try:
        yield f"http://127.0.0.1:{server.port}"
    finally:
        server.shutdown()
        thread.join()
        server.server_close()
        broker.close()


@pytest.fixture
def run(tmp_path):
    def command(*arguments, **environment):
        done = subprocess.run(
            [*COMMAND, *map(str, arguments)],
            cwd=tmp_path,
            capture_output=True,
            text=True,
            timeout=100,
            check=False,
            env={"PATH": "/usr/bin:/bin", **environment},
        )
        return done.returncode, done.stdout + done.stderr

    return command


def results(path):
    (column,) = json.loads(path.read_text())["targets"]
    return {row["case"]: row["results"][column] for row in json.loads(path.read_text())["cases"]}


def test_a_server_that_keeps_its_promises_passes(run, tmp_path):
    """The directory's own settings of pytest and the environment's change nothing."""
    (tmp_path / "pytest.ini").write_text("[pytest]\naddopts = --no-such-option\n")
    (tmp_path / "conftest.py").write_text("raise RuntimeError\n")
    with served(MemoryBackend()) as url:
        code, said = run(url, "--level", "wire", "--report", "out.json", PYTEST_ADDOPTS="-x -k no")
    assert code == 0, said
    found = results(tmp_path / "out.json")
    assert found == {CACHED: "pass", HEAD: "pass"}
    assert "offers: " in said.splitlines()[0]
    assert "total pass" in said


def test_what_a_server_does_not_have_is_not_offered(run, tmp_path):
    """It lists no features, and answers 404 to what it has not. INV-OFF-REFUSES, O-14."""
    missing = ("/capabilities", "/dlq", "/consumer-groups", "/resources")
    with served(MemoryBackend(), *missing) as url:
        code, said = run(url, "--level", "bus", "--report", "out.json")
    assert code == 0, said
    report = json.loads((tmp_path / "out.json").read_text())
    reasons = {row["case"]: " ".join(row["reasons"].values()) for row in report["cases"]}
    found = results(tmp_path / "out.json")
    assert {found[name] for name in found if name.startswith("G05 ")} == {"pass"}
    assert {found[name] for name in found if name.startswith("G11 ")} == {"not offered"}
    assert {reasons[name] for name in found if name.startswith("G11 ")} >= {"delete"}
    assert set(found.values()) == {"pass", "not offered"}


def test_a_broken_server_fails_with_the_rule_and_the_calls(run, tmp_path):
    with served(MemoryBackend(), dropped_header="Cache-Control") as url:
        code, said = run(url, "--level", "wire", "--report", "out.json")
        assert code == 1
        assert results(tmp_path / "out.json") == {CACHED: "FAIL", HEAD: "pass"}
        assert "C-14: Over HTTP, HEAD takes nothing" in said
        assert "Calls and answers:" in said
        assert "push([queue-" in said

        known = tmp_path / "known.json"
        known.write_text(json.dumps({CACHED: "tracker#7: behind a proxy"}))
        code, said = run(url, "--level", "wire", "--known-failures", known)
        assert code == 0, said
        assert "total known failure" in said

        listed = {CACHED: "tracker#7", "test_" + HEAD.lower().replace(" ", "_"): "tracker#8"}
        known.write_text(json.dumps(listed))
        code, said = run(url, "--level", "wire", "--known-failures", known)
        assert code == 1
        assert "[XPASS(strict)] tracker#8" in said


class ForgetsGroups(MemoryBackend):
    """Deletes no group, and says so."""

    def delete_group(self, group, **_):
        return 0


def test_cases_under_way_together_are_told_as_if_they_had_run_alone(run, tmp_path):
    """Each with its place, its rule and its own calls; what is known to fail has to."""
    with served(ForgetsGroups()) as url:
        code, said = run(url, "--level", "bus", "--report", "out.json")
        assert code == 1
        found = results(tmp_path / "out.json")
        failed = [name for name in found if found[name] == "FAIL"]
        assert {name[:3] for name in failed} == {"G11", "G13"}
        assert re.search(r"cases/\w+\.py:\d+: in test_g11_", said)
        assert "INV-SUBSCRIBE: A group's beginning is fixed once" in said
        assert said.count("Calls and answers:") == len(failed)

        known = tmp_path / "known.json"
        passes = next(name for name in found if found[name] == "pass")
        known.write_text(json.dumps(dict.fromkeys([*failed, passes], "tracker#9")))
        code, said = run(url, "--level", "bus", "--known-failures", known, "--report", "out.json")
    assert code == 1
    assert said.count("[XPASS(strict)] tracker#9") == 1
    again = results(tmp_path / "out.json")
    assert {name for name in again if again[name] == "known failure"} == set(failed)
    assert [name for name in again if again[name] == "FAIL"] == [passes]


def test_a_known_failure_that_is_no_case_is_refused(run, tmp_path):
    (tmp_path / "known.json").write_text('{"A99 nothing": "never"}')
    with served(MemoryBackend()) as url:
        code, said = run(url, "--known-failures", "known.json")
    assert code != 0
    assert "no such case: test_a99_nothing" in said


def test_nobody_there_is_said_in_one_line(run):
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    code, said = run(f"http://127.0.0.1:{port}")
    assert code == 1
    assert said.startswith("Error: GET /api/v1/capabilities")
    assert len(said.splitlines()) == 1


@pytest.mark.parametrize("missing", ["pytest", "hypothesis"])
def test_a_missing_extra_is_named(run, tmp_path, missing):
    (tmp_path / "sitecustomize.py").write_text(
        "import importlib.util\n"
        "find = importlib.util.find_spec\n"
        f"importlib.util.find_spec = lambda n, *a: None if n == {missing!r} else find(n, *a)\n"
    )
    code, said = run("http://127.0.0.1:1", PYTHONPATH=str(tmp_path))
    assert code == 1
    assert said.strip() == (
        f"Error: {missing} missing; the suite needs: pip install 'queen-sync[conformance]'"
    )


def test_the_command_line_starts_without_pytest():
    """Serving needs no extra."""
    script = (
        "import sys, queen_sync.cli; print([n for n in ('pytest', '_pytest') if n in sys.modules])"
    )
    said = subprocess.run(
        [sys.executable, "-c", script], capture_output=True, text=True, check=True
    )
    assert said.stdout.strip() == "[]"


@pytest.mark.parametrize(
    "arguments",
    [
        [],
        ["http://127.0.0.1:1", "--check", "history.jsonl"],
        ["--check", "history.jsonl", "--history", "other.jsonl"],
        ["--check", "nowhere.jsonl"],
        ["ftp://127.0.0.1"],
        ["http://127.0.0.1:1", "--level", "most"],
    ],
)
def test_a_call_that_makes_no_sense_is_refused(run, tmp_path, arguments):
    (tmp_path / "history.jsonl").touch()
    code, said = run(*arguments)
    assert code == 2
    assert said.startswith("Usage: ")


# ------------------------------------------------------------------------ histories


def write(path, *operations, drained=True):
    about = {"case": path.name}
    path.write_bytes(b"".join(published.lines(operations, about, drained=drained)))


def test_a_recorded_history_is_checked_without_a_server(run, tmp_path):
    plain = (pushed(0, 1, a=1), popped(2, 3, "L", message("a", 1)), acked(4, 5, "L", "a"))
    write(tmp_path / "good.jsonl", *plain)
    code, said = run("--check", "good.jsonl", "--report", "out.json")
    assert code == 0
    assert said.strip() == (
        "good.jsonl: 3 operations; 1 messages attempted, 1 acknowledged, 0 unknown of which 0 were "
        "recovered; 1 deliveries, 0 of them again; 0 lost, 0 unexpected, 0 duplicated; 0 violations"
    )
    (report,) = json.loads((tmp_path / "out.json").read_text())
    assert (report["lost"], report["violations"]) == (0, [])


def test_a_history_with_a_loss_ends_in_an_error(run, tmp_path):
    lost = (pushed(0, 1, a=1, b=2), popped(2, 3, "L", message("a", 1)), acked(4, 5, "L", "a"))
    write(tmp_path / "bad.jsonl", h.configured(lease_seconds=10), *lost)
    code, said = run("--check", "bad.jsonl")
    assert code == 1
    assert "1 lost" in said
    assert "INV-NO-LOSS: P#2 is lost to g" in said


def test_a_file_that_is_no_history_is_refused_by_its_line(run, tmp_path):
    (tmp_path / "bad.jsonl").write_text('{"type": "history"}\n{"type": "operation"}\n')
    code, said = run("--check", "bad.jsonl")
    assert code == 1
    assert said.startswith("Error: bad.jsonl:2: ")


@pytest.mark.slow
def test_a_run_under_load_writes_what_can_be_checked(run, tmp_path):
    """The recorder and the checker are two doors of one house."""
    with served(MemoryBackend()) as url:
        code, said = run(url, "--level", "stress", "--history", "load.jsonl")
    assert code == 0, said
    histories = list(published.read(tmp_path / "load.jsonl"))
    assert {case_id(history.about["case"]) for history in histories} >= {"J02", "J04", "J05", "J07"}
    code, said = run("--check", "load.jsonl")
    assert code == 0, said
    assert said.count("0 violations") == len(histories)


# --------------------------------------------------------------------------- levels


def test_every_case_belongs_to_full_or_wire():
    suites = (BackendConformance, ConcurrencyConformance, ServerConformance)
    for suite in suites:
        for name in case_names(suite):
            full = includes(["full"], case_id(name))
            assert full != includes(["wire"], case_id(name)), name


@pytest.mark.parametrize(
    ("level", "inside", "outside"),
    [
        ("core", "A01 E12 J01", "F01 G01 H01 I01 J02 L03"),
        ("queue", "A01 F01 H01 J01", "G01 I01 J02 L03"),
        ("bus", "G01", "A01 J01 L03"),
        ("full", "A01 G01 I01 J02", "K01 L03"),
        ("wire", "L03", "A01"),
        ("stress", "J01 J02", "I05 L03"),
    ],
)
def test_a_level_is_what_its_name_says(level, inside, outside):
    assert level in LEVELS
    assert [case for case in inside.split() if not includes([level], case)] == []
    assert [case for case in outside.split() if includes([level], case)] == []


def test_the_page_about_the_command_names_its_levels_and_options():
    """docs/how-to/test-a-server.md"""
    page = (DOCS / "how-to" / "test-a-server.md").read_text("utf-8")
    assert set(re.findall(r"^\| `([a-z]+)` \|", page, re.MULTILINE)) == set(LEVELS)
    options = {option for parameter in command.params for option in parameter.opts}
    assert [name for name in options if name.startswith("--") and name not in page] == []
