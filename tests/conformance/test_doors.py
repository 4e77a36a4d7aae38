"""The suite from pytest's command line, pointed at backends that somebody else has written."""

import json
import subprocess
import sys
from pathlib import Path

import pytest

from queen_sync.conformance import published
from queen_sync.conformance.base import case_id
from tests.pages import DOCS, files_of

EXAMPLES = DOCS / "examples"
PLUGIN = ("-p", "queen_sync.conformance.plugin", "-p", "no:randomly", "-p", "no:cacheprovider")
PYTEST = (sys.executable, "-m", "pytest", "-c", "/dev/null", "-q", "--tb=short")
BOUND = ("--pyargs", "queen_sync.conformance.bound")


@pytest.fixture
def run(tmp_path):
    """Run pytest where the examples lie; return its exit code, what it said, and its report."""

    def in_examples(*arguments, **environment):
        report = tmp_path / "report.json"
        done = subprocess.run(
            [*PYTEST, *PLUGIN, *arguments, f"--queen-report={report}"],
            cwd=tmp_path,
            capture_output=True,
            text=True,
            timeout=110,
            check=False,
            env={"PATH": "/usr/bin:/bin", "PYTHONPATH": str(EXAMPLES), **environment},
        )
        said = done.stdout + done.stderr
        return done.returncode, said, json.loads(report.read_text()) if report.exists() else None

    return in_examples


def by_result(report):
    found = {}
    for row in report["cases"]:
        (result,) = row["results"].values()
        found.setdefault(result, set()).add(row["case"])
    return found


def test_the_examples_are_those_of_the_page():
    """docs/tutorial/third-party-backend.md shows what is tested here, to the letter."""
    shown = files_of("tutorial/third-party-backend.md")
    for path in EXAMPLES.glob("*.py"):
        assert shown[path.name] == path.read_text("utf-8"), path.name
    assert shown["zipped_backend.py"].count("\n") < 100


def test_the_backend_of_the_tutorial_passes_what_it_offers(run):
    code, said, report = run(*BOUND, "--queen-backend=zipped_memory:zipped", "--queen-level=core")
    assert code == 0, said
    assert list(report["targets"]) == ["zipped_memory:zipped"]
    found = by_result(report)
    assert set(found) == {"pass", "not offered"}
    assert len(found["pass"]) > 75
    assert {case[0] for case in found["pass"]} == set("ABCDEJ")
    reasons = {row["case"]: row["reasons"] for row in report["cases"]}
    assert all(reasons[case] for case in found["not offered"])


def test_what_the_tutorial_does_not_offer_refuses_in_every_other_level(run):
    code, said, report = run(
        *BOUND, "--queen-backend=zipped_memory:zipped", "--queen-level=queue", "--queen-level=bus"
    )
    assert code == 0, said
    found = by_result(report)
    assert set(found) == {"pass", "not offered"}
    assert len(found["not offered"]) > len(found["pass"])


def test_a_feature_added_in_a_hurry_fails_readably(run):
    code, said, report = run(
        *BOUND, "--queen-backend=hasty_backend:hasty", "--queen-level=core", "--queen-level=queue"
    )
    assert code == 1
    failed = by_result(report)["FAIL"]
    assert {case.split()[0] for case in failed} == {"E09", "E11", "F09"}
    assert "INV-DLQ: A message is among the dead letters of a group exactly if" in said
    assert "Calls and answers:" in said
    assert """[b'"killer"']""" in said


def test_the_test_file_of_the_page_runs(run, tmp_path):
    name = "test_zipped.py"
    (tmp_path / name).write_text(files_of("tutorial/third-party-backend.md")[name])
    code, said, report = run(name, "-k", "a0 or d0")
    assert code == 0, said
    assert list(report["targets"]) == ["TestZipped"]


def test_known_failures_are_named_in_a_file(run, tmp_path):
    known = tmp_path / "known.json"
    reasons = dict.fromkeys(
        [
            "E09 a message that kills its consumers ends among the dead letters",
            "E09 its neighbours are not dead lettered for its sake",
            "test_e11_a_claim_over_partitions_finds_its_killer",
        ],
        "tracker#3: dead letters stay compressed",
    )
    known.write_text(json.dumps(reasons))
    arguments = [*BOUND, "--queen-backend=hasty_backend:hasty", "--queen-level=core"]
    code, said, report = run(*arguments, f"--queen-known-failures={known}")
    assert code == 0, said
    assert len(by_result(report)["known failure"]) == 3


def test_histories_are_written_by_any_process(run, tmp_path):
    """Under xdist several processes add to one file, each history whole."""
    path = tmp_path / "load.jsonl"
    code, said, _ = run(
        *BOUND,
        "--queen-backend=tests_memory:memory",
        f"--queen-history={path}",
        *("-n", "2", "-k", "j05 or j07"),
        PYTHONPATH=str(_memory(tmp_path)),
        QUEEN_STRESS_SECONDS="1.5",
    )
    assert code == 0, said
    histories = list(published.read(path))
    assert {case_id(each.about["case"]) for each in histories} == {"J05", "J07"}
    assert {each.about["target"] for each in histories} == {"tests_memory:memory"}


def _memory(path: Path) -> Path:
    (path / "tests_memory.py").write_text(
        "from queen_sync.backends.memory import MemoryBackend\n"
        "def memory(clock):\n"
        "    return MemoryBackend(clock=clock)\n"
    )
    return path


@pytest.mark.parametrize(
    ("arguments", "told"),
    [
        ([], "name a target: --queen-backend pkg.module:factory"),
        (["--queen-backend=zipped_memory"], "wanted is package.module:factory"),
        (["--queen-backend=zipped_memory:nothing"], "has no attribute 'nothing'"),
        (["--queen-backend=nowhere:nothing"], "No module named 'nowhere'"),
        (["--queen-backend=a:b", "--queen-url=http://127.0.0.1:1"], "exclude each other"),
        (["--queen-url=http://127.0.0.1:1"], "GET /api/v1/capabilities"),
        (["--queen-level=most"], "no such level: most; one of core, queue,"),
        (["--queen-known-failures=none.json"], "name one"),
        (
            ["--queen-backend=zipped_memory:zipped", "--queen-known-failures=none.json"],
            "No such file",
        ),
    ],
)
def test_a_target_that_makes_no_sense_is_told_what_is_wanted(run, arguments, told):
    code, said, _ = run(*BOUND, "-k", "a01", *arguments)
    assert code != 0
    assert told in said
    assert "INTERNALERROR" not in said
