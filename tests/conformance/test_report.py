"""What a stranger sees who points the suite at a backend: table, JSON, strictness, stories."""

import json

import pytest

pytest_plugins = ["pytester"]

BINDING = """
import pytest
from queen_sync.backends.base import Capabilities
from queen_sync.backends.memory import MemoryBackend
from queen_sync.conformance.cases.core import CoreCases
from queen_sync.conformance.cases.expiry import ExpiryCases

class Whole(MemoryBackend):
    pass

class Poor(MemoryBackend):
    capabilities = Capabilities(features=MemoryBackend.capabilities.features - {"dlq"})

    def dead_letters(self, wanted):
        self.capabilities.require("dlq")

class Forgetful(MemoryBackend):
    def push(self, items, *, create=True):
        receipts = super().push(items, create=create)
        return receipts[:-1]

class Binding(CoreCases, ExpiryCases):
    @pytest.fixture
    def backend(self, clock):
        with self.kind(clock=clock) as backend:
            yield backend
"""


@pytest.fixture
def run(pytester):
    """Run bindings with the plugin, in a process of their own, and return result and report."""

    def run_bindings(classes, *arguments):
        pytester.makepyfile(test_bindings=BINDING + classes)
        pytester.makeini("[pytest]\naddopts = -p queen_sync.conformance.plugin -p no:randomly")
        result = pytester.runpytest_subprocess("--queen-report=out.json", *arguments)
        report = pytester.path / "out.json"
        return result, json.loads(report.read_text()) if report.exists() else None

    return run_bindings


def cases(report):
    return {row["case"]: row["results"] for row in report["cases"]}


BOTH = """
class TestWhole(Binding):
    kind = Whole

class TestPoor(Binding):
    target_name = "poor man's"
    kind = Poor
"""


@pytest.mark.parametrize("how", [[], ["-n", "2"]], ids=["one process", "xdist"])
def test_one_table_shows_all_targets_side_by_side(run, how):
    result, report = run(BOTH, *how)
    assert result.ret == 0
    assert set(report["targets"]) == {"TestWhole", "poor man's"}
    dead = "E09 a message that kills its consumers ends among the dead letters"
    assert cases(report)[dead] == {"TestWhole": "pass", "poor man's": "not offered"}
    row = next(row for row in report["cases"] if row["case"] == dead)
    assert row["reasons"] == {"poor man's": "dlq"}
    assert report["targets"]["TestWhole"] == {"pass": len(report["cases"])}
    result.stdout.fnmatch_lines(
        ["*= conformance =*", "case *TestWhole *poor man's", f"{dead} *pass *not offered"]
    )


def test_a_failure_tells_the_rule_and_the_calls(run):
    result, report = run("\nclass TestForgetful(Binding):\n    kind = Forgetful\n", "-k", "a04")
    assert result.ret == 1
    assert cases(report) == {"A04 a batch comes out in request order": {"TestForgetful": "FAIL"}}
    result.stdout.fnmatch_lines(
        [
            "*200 messages of one request, popped by sevens, keep their order.",
            "*INV-ORDER: Each partition has one order.*",
            "*Calls and answers:",
            "*push(*200 in all*) -> *queued Default#1*199 in all*",
        ]
    )


def test_the_calls_of_cases_that_pass_are_not_shown(run):
    result, _ = run("\nclass TestWhole(Binding):\n    kind = Whole\n", "-k", "a04")
    assert result.ret == 0
    result.stdout.no_fnmatch_line("*Calls and answers*")


KNOWN = """
class TestForgetful(Binding):
    kind = {kind}
    known_failures = {{"{name}": "tracker#1: drops the last receipt"}}
"""


def test_a_known_failure_is_expected(run):
    name = "test_a04_a_batch_comes_out_in_request_order"
    result, report = run(KNOWN.format(kind="Forgetful", name=name), "-k", "a04")
    assert result.ret == 0
    (row,) = report["cases"]
    assert row["results"] == {"TestForgetful": "known failure"}
    assert "tracker#1" in row["reasons"]["TestForgetful"]


def test_a_known_failure_that_passes_is_a_failure(run):
    name = "test_a04_a_batch_comes_out_in_request_order"
    result, report = run(KNOWN.format(kind="Whole", name=name), "-k", "a04")
    assert result.ret == 1
    assert list(cases(report).values()) == [{"TestForgetful": "FAIL"}]


def test_a_known_failure_that_is_no_case_is_a_failure(run):
    result, _ = run(KNOWN.format(kind="Whole", name="test_a99_nothing"), "-k", "known_failures")
    assert result.ret == 1


def test_a_binding_without_a_backend_is_told_what_is_missing(run):
    classes = "\nclass TestNothing(CoreCases):\n    pass\n"
    result, report = run(classes, "-k", "a04")
    assert result.ret == 1
    assert list(cases(report).values()) == [{"TestNothing": "FAIL"}]
    result.stdout.fnmatch_lines(["*TestNothing needs a fixture 'backend'*"])


def test_runs_of_other_tests_get_no_table(run):
    result, report = run("\ndef test_something_else():\n    pass\n", "-k", "something_else")
    assert (result.ret, report) == (0, None)
    result.stdout.no_fnmatch_line("*= conformance =*")
