"""A pytest plugin that ends a run with one table: cases down, targets side by side.

Name it on the command line, ``-p queen_sync.conformance.plugin``; it changes nobody else's
runs. ``--queen-report FILE`` writes the same as JSON. Under xdist the controller collects.

With a target, ``--queen-backend pkg.module:factory`` or ``--queen-url http://host:6632``, the
shipped suite runs against it: ``--pyargs queen_sync.conformance.bound``. Against a server the cases
that wait are under way together (ahead.py), unless xdist runs them in several processes.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Mapping
from functools import partial
from pathlib import Path

import pytest

from queen_sync.conformance import target
from queen_sync.conformance.ahead import AHEAD, Ahead
from queen_sync.conformance.base import NOT_OFFERED, Cases, case_id, case_names
from queen_sync.conformance.levels import LEVELS, includes
from queen_sync.conformance.suite import (
    BackendConformance,
    ConcurrencyConformance,
    ServerConformance,
)

LABEL = "queen_case"
PASSED = "pass"
FAILED = "FAIL"
ABSENT = "not offered"
KNOWN = "known failure"
SKIPPED = "skipped"
_RANK = {PASSED: 0, SKIPPED: 1, ABSENT: 2, KNOWN: 3, FAILED: 4}
_REPORT = pytest.StashKey["ConformanceReport"]()


class ConformanceReport:
    """What became of every case on every target."""

    def __init__(self, path: Path | None) -> None:
        self.path = path
        self.results: dict[str, dict[str, str]] = {}
        self.reasons: dict[str, dict[str, str]] = {}

    @property
    def targets(self) -> list[str]:
        return sorted({target for row in self.results.values() for target in row})

    def add(self, case: str, target: str, result: str, reason: str = "") -> None:
        """Note a result; of several phases or tests of one case the worst counts."""
        row = self.results.setdefault(case, {})
        if _RANK[result] >= _RANK[row.get(target, PASSED)]:
            row[target] = result
            if reason:
                self.reasons.setdefault(case, {})[target] = reason

    def table(self) -> list[str]:
        """Return the lines of the table, with the totals last."""
        targets = self.targets
        label = max(len(case) for case in self.results)
        widths = [max(len(target), len(KNOWN)) for target in targets]

        def line(first: str, cells: list[str]) -> str:
            padded = [cell.ljust(width) for cell, width in zip(cells, widths, strict=True)]
            return "  ".join([first.ljust(label), *padded]).rstrip()

        lines = [line("case", targets)]
        lines += [
            line(case, [row.get(target, "-") for target in targets])
            for case, row in sorted(self.results.items())
        ]
        for result in (PASSED, FAILED, KNOWN, ABSENT, SKIPPED):
            counts = [str(self.totals(target)[result]) for target in targets]
            if any(count != "0" for count in counts):
                lines.append(line(f"total {result}", counts))
        return lines

    def totals(self, target: str) -> Mapping[str, int]:
        """Return how many cases of a target ended how."""
        return Counter(row[target] for row in self.results.values() if target in row)

    def document(self) -> Mapping[str, object]:
        """Return the report as plain JSON values."""
        return {
            "targets": {target: dict(self.totals(target)) for target in self.targets},
            "cases": [
                {"case": case, "results": row, "reasons": self.reasons.get(case, {})}
                for case, row in sorted(self.results.items())
            ],
        }

    # --------------------------------------------------------------------- hooks

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        label = dict(report.user_properties).get(LABEL)
        if not isinstance(label, str):
            return
        case, _, target = label.partition("\t")
        if report.failed:
            self.add(case, target, FAILED)
        elif report.skipped:
            reason = _reason(report)
            if hasattr(report, "wasxfail"):
                self.add(case, target, KNOWN, report.wasxfail)
            elif reason.startswith(NOT_OFFERED):
                self.add(case, target, ABSENT, reason.removeprefix(NOT_OFFERED))
            else:
                self.add(case, target, SKIPPED, reason)
        elif report.when == "call":
            self.add(case, target, PASSED)

    def pytest_terminal_summary(self, terminalreporter: pytest.TerminalReporter) -> None:
        if not self.results:
            return
        terminalreporter.section("conformance")
        for line in self.table():
            terminalreporter.write_line(line)
        if self.path is not None:
            self.path.write_text(json.dumps(self.document(), indent=2) + "\n", "utf-8")
            terminalreporter.write_line(f"written to {self.path}")


def _reason(report: pytest.TestReport) -> str:
    where = report.longrepr
    text = where[2] if isinstance(where, tuple) else str(where)
    return text.removeprefix("Skipped: ")


def pytest_addoption(parser: pytest.Parser) -> None:
    group = parser.getgroup("queen-sync")
    group.addoption(
        "--queen-report", metavar="FILE", type=Path, help="write the conformance table as JSON"
    )
    group.addoption(
        "--queen-backend",
        metavar="MODULE:FACTORY",
        help="what the bound suite runs against: a function of a clock that returns a backend",
    )
    group.addoption("--queen-url", metavar="URL", help="the same: the address of a server")
    group.addoption(
        "--queen-level",
        metavar="LEVEL",
        action="append",
        default=[],
        help=f"run only the cases of this level, or of several: {', '.join(LEVELS)}",
    )
    group.addoption(
        "--queen-known-failures",
        metavar="FILE",
        type=Path,
        help="JSON that maps cases of the bound suite to the reason why they fail",
    )
    group.addoption(
        "--queen-history",
        metavar="FILE",
        type=Path,
        help="add the histories of the cases under load to this file, as JSON lines",
    )


def pytest_configure(config: pytest.Config) -> None:
    target.check_levels(config.getoption("--queen-level"))
    chosen = target.chosen(config)
    known = config.getoption("--queen-known-failures")
    if known is not None:
        if chosen is None:
            raise pytest.UsageError("--queen-known-failures is about a target; name one")
        suites = (BackendConformance, ConcurrencyConformance, ServerConformance)
        cases = [name for suite in suites for name in case_names(suite)]
        chosen = chosen._replace(known_failures=target.known_failures(known, cases))
    if chosen is not None:
        config.stash[target.TARGET] = chosen
    if not hasattr(config, "workerinput"):
        report = ConformanceReport(config.getoption("--queen-report"))
        config.stash[_REPORT] = report
        config.pluginmanager.register(report, "queen-conformance-report")


def pytest_itemcollected(item: pytest.Item) -> None:
    """Label the cases, so that their reports can be told from others on any process."""
    if not isinstance(item, pytest.Function) or item.cls is None:
        return
    number = case_id(item.originalname)
    if number and issubclass(item.cls, Cases):
        words = item.originalname.removeprefix(f"test_{number.lower()}_").replace("_", " ")
        item.user_properties.append((LABEL, f"{number} {words}\t{item.cls.column(item.config)}"))


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Leave the cases of the levels that were asked for."""
    levels = config.getoption("--queen-level")
    if not levels:
        return
    kept: list[pytest.Item] = []
    left_out: list[pytest.Item] = []
    for item in items:
        number = case_id(getattr(item, "originalname", ""))
        (kept if includes(levels, number) else left_out).append(item)
    config.hook.pytest_deselected(items=left_out)
    items[:] = kept


def pytest_collection_finish(session: pytest.Session) -> None:
    """Begin the cases that can wait together, where time is a server's and real."""
    config = session.config
    chosen = config.stash.get(target.TARGET, None)
    under_xdist = hasattr(config, "workerinput") or config.getoption("numprocesses", default=None)
    if chosen is None or chosen.address is None or under_xdist or config.option.collectonly:
        return
    config.stash[AHEAD] = ahead = Ahead()
    for item in session.items:
        if isinstance(item, pytest.Function) and getattr(item.cls, "can_run_ahead", False):
            case = item.originalname
            if case_id(case):
                ahead.begin(item.nodeid, partial(item.cls.run_ahead, case, chosen, ahead))


def pytest_sessionfinish(session: pytest.Session) -> None:
    if AHEAD in session.config.stash:
        session.config.stash[AHEAD].close()
