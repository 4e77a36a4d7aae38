"""The suite is tested too: backends that are broken on purpose fail the cases made for them."""

import time
from functools import partial

import pytest

from queen_sync.backends.memory import MemoryBackend
from queen_sync.conformance import BackendConformance, harness, workloads
from queen_sync.conformance.checkers import violations
from queen_sync.conformance.history import History, recorded
from queen_sync.conformance.workloads import Workload, together
from queen_sync.errors import QueenError
from tests.conformance import (
    mutants_of_cleanup,
    mutants_of_listings,
    mutants_of_moves,
    mutants_of_statistics,
    mutants_of_stores,
)
from tests.conformance.conftest import KILLED_BY
from tests.conformance.mutants import MUTANTS

assert all(
    each.MUTANTS is MUTANTS
    for each in (
        mutants_of_cleanup,
        mutants_of_listings,
        mutants_of_moves,
        mutants_of_statistics,
        mutants_of_stores,
    )
)

VERDICTS = (AssertionError, QueenError, pytest.fail.Exception)
MODEL_MUTANTS = {
    "doublelease",
    "nofence",
    "nodedup",
    "drop",
    "lateorder",
    "revbatch",
    "revpop",
    "skiphead",
    "expiryskip",
    "expiryack",
    "expirynocount",
    "nackack",
    "settleall",
    "dlqlost",
    "dlqstuck",
    "retryoff1",
    "nocap",
    "capoff1",
    "cappartial",
    "nodelay",
    "nowindow",
    "reuselease",
    "sharelease",
    "txnsplit",
    "acklost",
    "partialrelease",
}
"""The ways of being wrong that every queue invites; the others came with our own features."""


@pytest.mark.parametrize("name", MUTANTS)
def test_a_mutant_is_killed_by_the_cases_made_for_it(name, monkeypatch, record_property):
    break_it, killers = MUTANTS[name]
    began = time.perf_counter()
    with monkeypatch.context() as patch:
        break_it(patch)
        found = harness.failures(BackendConformance, MemoryBackend, killers)
    assert list(found) == list(killers), f"{name} survives"
    # One that falls over proves nothing: it has to be found wrong.
    assert [error for error in found.values() if not isinstance(error, VERDICTS)] == []
    record_property(KILLED_BY, (name, killers[0], f"{time.perf_counter() - began:.2f}"))


def test_the_model_mutants_are_all_there():
    assert len(MODEL_MUTANTS) == 26
    assert MODEL_MUTANTS - set(MUTANTS) == set()


def test_the_unbroken_backend_passes_the_same_cases():
    killers = {case for _, cases in MUTANTS.values() for case in cases}
    assert harness.failures(BackendConformance, MemoryBackend, sorted(killers)) == {}


def test_the_whole_suite_can_be_run_as_values():
    assert harness.failures(BackendConformance, MemoryBackend) == {}


@pytest.mark.parametrize(
    ("name", "invariant"),
    [
        ("doublelease", "INV-CLAIM"),
        ("nofence", "INV-FENCE"),
        ("nodedup", "INV-DEDUP"),
        ("settleall", "C-04"),
        ("skiphead", "INV-FIFO"),
        ("expirynocount", "INV-RETRY"),
        ("revbatch", "INV-FIFO"),
    ],
)
def test_a_mutant_is_found_out_by_its_history_too(name, invariant, monkeypatch):
    """The checkers see from the outside what the directed cases ask for."""
    MUTANTS[name][0](monkeypatch)
    monkeypatch.setattr(workloads, "ZOMBIES", 0.3)
    # A race that shows the fault is likely in each round, not certain on a busy machine.
    assert any(invariant in invariants_broken_by_load() for _ in range(5))


def invariants_broken_by_load():
    history = History()
    with MemoryBackend() as backend:
        target = recorded(backend, history)
        target.configure("q", {"lease_seconds": 1, "retry_limit": 2})
        work = Workload(target, "q", lease_seconds=1, partitions=5)
        until = time.monotonic() + 1.6
        consumers = [partial(work.consume, number, until) for number in range(10, 16)]
        together(*(partial(work.produce, number, until) for number in range(4)), *consumers)
    return {found.invariant for found in violations(history.operations, drained=False)}
