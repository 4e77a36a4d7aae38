"""The reference page of the settings, and that each setting does something."""

import ast
from pathlib import Path

from queen_sync import config

ROOT = Path(__file__).parents[2]
PACKAGE = ROOT / "queen_sync"


def test_the_reference_page_is_what_the_code_says():
    page = (ROOT / "docs" / "reference" / "settings.md").read_text()
    assert page == config.reference(), "run: make docs"


def test_every_setting_is_read_by_something():
    """PL-13: no option that does nothing."""
    read = set()
    for path in PACKAGE.rglob("*.py"):
        if path.name != "config.py":
            nodes = ast.walk(ast.parse(path.read_text()))
            read |= {node.attr for node in nodes if isinstance(node, ast.Attribute)}
    derived = {"backend"}  # read as `store`
    assert {variable.field for variable in config.VARIABLES} - derived <= read
    assert "store" in read
