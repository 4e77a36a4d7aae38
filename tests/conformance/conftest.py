"""How long the cases under load run here, and the table of the mutants at the end of a run."""

import os
from collections.abc import Iterator

import pytest

# Half of what a backend gets that is tested alone: here there are five.
os.environ.setdefault("QUEEN_STRESS_SECONDS", "2")

KILLED_BY = "queen_mutant"


def _killed(reporter: pytest.TerminalReporter) -> Iterator[tuple[str, str, str]]:
    for report in reporter.stats.get("passed", []):
        for name, value in getattr(report, "user_properties", []):
            if name == KILLED_BY:
                yield tuple(value)


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    killed = sorted(_killed(terminalreporter))
    if not killed:
        return
    failed = [
        report
        for report in terminalreporter.stats.get("failed", [])
        if "test_a_mutant_is_killed" in report.nodeid
    ]
    terminalreporter.section(f"{len(killed)} of {len(killed) + len(failed)} mutants killed")
    width = max(len(mutant) for mutant, _, _ in killed)
    for mutant, case, seconds in killed:
        terminalreporter.write_line(f"{mutant.ljust(width)}  {seconds} s  {case}")
