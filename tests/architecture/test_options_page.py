"""The page of queue options lists each option as it is, and a case that shows it."""

import re
from pathlib import Path

from queen_sync.conformance import cases
from queen_sync.model import OPTION_DEFAULTS
from queen_sync.wire import OPTION_NAMES

PAGE = Path(__file__).parents[2] / "docs/reference/queue-options.md"
ROW = re.compile(
    r"^\| `(?P<wire>\w+)`(?:, `\w+`)? \| `(?P<name>\w+)` \| .*? \| (?P<default>\w+).*?"
    r" \| .* \| `(?P<case>test_\w+)` \|$",
    re.MULTILINE,
)


def rows():
    return list(ROW.finditer(PAGE.read_text()))


def test_every_option_is_listed_once_by_both_its_names():
    assert {row["name"]: row["wire"] for row in rows()} == dict(OPTION_NAMES)
    assert len(rows()) == len(OPTION_NAMES)


def test_defaults_are_those_of_the_code():
    shown = {row["name"]: row["default"] for row in rows()}
    assert shown == {name: str(value).lower() for name, value in OPTION_DEFAULTS.items()}


def test_every_case_that_is_named_exists():
    source = "\n".join(path.read_text() for path in Path(cases.__file__).parent.glob("*.py"))
    missing = [row["case"] for row in rows() if f"def {row['case']}(" not in source]
    assert missing == []
