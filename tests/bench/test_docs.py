"""The page about the measurement says all that the code has."""

from __future__ import annotations

import dataclasses
import re
from pathlib import Path

import click
import msgspec
import pytest

from queen_sync.bench import command, report, results
from queen_sync.bench.calibrate import Calibration
from queen_sync.bench.machine import Machine
from queen_sync.bench.modes import DEFAULT_MODES, MODES
from queen_sync.bench.plan import Case
from queen_sync.bench.processes import Used

DOCS = Path(__file__).parents[2] / "docs"
PAGE = (DOCS / "how-to" / "load-test.md").read_text()


def fields(kind):
    found = (
        dataclasses.fields(kind) if dataclasses.is_dataclass(kind) else msgspec.structs.fields(kind)
    )
    return [field.name for field in found]


@pytest.mark.parametrize(
    "kind",
    [
        results.Result,
        results.Round,
        results.Figures,
        results.Comparison,
        results.Settings,
        Case,
        Machine,
        Calibration,
        Used,
    ],
)
def test_every_key_of_a_result_is_documented(kind):
    _, _, form = PAGE.partition("### The result file")
    assert [name for name in fields(kind) if f"`{name}`" not in form] == []


def test_every_option_is_documented():
    options = [each for each in command.params if isinstance(each, click.Option)]
    missing = [each.opts[0] for each in options if not re.search(rf"{each.opts[0]}\b", PAGE)]
    assert missing == []


def test_every_mode_is_documented():
    table = re.findall(r"^\| `([a-z-]+)` \| ", PAGE.partition("Without one it is")[0], re.MULTILINE)
    assert table == list(MODES)
    assert set(DEFAULT_MODES) <= set(MODES)


def test_defaults_are_documented():
    defaults = {each.name: each.default for each in command.params}
    for name in ("connections", "processes", "partitions", "payload_bytes", "rounds"):
        option = f"--{name.replace('_', '-')}"
        assert f"`{option}` ({defaults[name]})" in PAGE or f"`{option}`, {defaults[name]}" in PAGE


def test_the_page_of_figures_has_a_place_for_them():
    text = (DOCS / "explanation" / "performance.md").read_text()
    assert text.index(report.BEGIN) < text.index(report.END)
