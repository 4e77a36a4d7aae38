"""CONTRACT.md and the suite point at each other."""

import re

from queen_sync.backends.base import FEATURES
from queen_sync.conformance import contract
from queen_sync.conformance.base import case_names
from queen_sync.conformance.suite import (
    BackendConformance,
    ConcurrencyConformance,
    ServerConformance,
)

SUITES = (BackendConformance, ConcurrencyConformance, ServerConformance)


def test_the_twenty_decisions_are_numbered_without_a_gap():
    decisions = [number for number in contract.rules() if number.startswith("C-")]
    assert decisions == [f"C-{n:02}" for n in range(1, 21)]


def test_every_number_has_its_text_and_its_cases():
    text = contract.CONTRACT.read_text("utf-8")
    headings = re.findall(r"^\*\*([A-Z0-9-]+)\*\*", text, re.MULTILINE)
    assert headings == list(contract.rules())
    assert all(contract.rules().values())
    assert [number for number, cases in contract.listed_cases().items() if not cases] == []


def test_the_lists_of_cases_are_those_of_the_cases_themselves():
    text = contract.CONTRACT.read_text("utf-8")
    assert text == contract.rewritten(text, contract.proofs(contract.docstrings()))


def test_every_case_names_a_number_that_exists():
    for suite in SUITES:
        for name in case_names(suite):
            named = contract.NUMBER.findall(getattr(suite, name).__doc__)
            assert named, f"{name} names no rule"
            assert set(named) <= set(contract.rules()), name


def test_every_test_of_a_suite_is_a_case_with_an_id():
    for suite in SUITES:
        tests = {name for name in dir(suite) if name.startswith("test_")}
        assert tests == {*case_names(suite), "test_known_failures_are_cases"}


def test_every_feature_is_asked_for_by_a_name_that_exists():
    for suite in SUITES:
        for name in case_names(suite):
            assert set(getattr(getattr(suite, name), "needs", ())) <= set(FEATURES), name
