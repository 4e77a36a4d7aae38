"""Rules of the code's shape that an import checker cannot say."""

import ast
import re
import tomllib
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
PACKAGE = ROOT / "queen_sync"
MODULES = sorted(PACKAGE.rglob("*.py"))
FAMILIES = ("memory", "sqlite", "postgres")
LONGEST_FILE = 460


def imported(path: Path) -> Iterator[str]:
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"{path}: relative imports hide the arrow"
            yield from (f"{node.module}.{alias.name}" for alias in node.names)


@pytest.mark.parametrize("family", FAMILIES)
def test_backends_never_import_each_other(family):
    others = tuple(f"queen_sync.backends.{other}" for other in FAMILIES if other != family)
    modules = sorted((PACKAGE / "backends").glob(f"{family}*.py"))
    assert modules, f"no backend named {family}"
    for path in modules:
        assert not [name for name in imported(path) if name.startswith(others)], path


def test_only_the_composition_roots_name_a_backend():
    # The fixtures for applications' tests are one: their store is the memory backend.
    roots = {PACKAGE / "cli.py", PACKAGE / "web" / "wsgi.py", PACKAGE / "testing.py"}
    concrete = tuple(f"queen_sync.backends.{family}" for family in FAMILIES)
    outside = [path for path in MODULES if path.parent != PACKAGE / "backends"]
    named = {path for path in outside if any(name.startswith(concrete) for name in imported(path))}
    assert named <= roots


def is_spliced(text: ast.expr) -> bool:
    """Whether the text is put together from anything but literals and named constants."""
    if isinstance(text, ast.JoinedStr):
        parts = [part.value for part in text.values if isinstance(part, ast.FormattedValue)]
        return not all(isinstance(part, ast.Name) and part.id.isupper() for part in parts)
    if isinstance(text, ast.BinOp):
        constant = isinstance(text.left, ast.Name) and text.left.id.isupper()
        return not (constant and isinstance(text.right, ast.Constant))
    formatted = isinstance(text, ast.Call) and getattr(text.func, "attr", "") == "format"
    return formatted and isinstance(text.func.value, ast.Constant)


def test_no_value_is_ever_spliced_into_sql():
    """QA-1: nothing that is executed is an f-string, a sum or a format call."""
    spliced = [
        f"{path.relative_to(ROOT)}:{node.lineno}"
        for path in MODULES
        for node in ast.walk(ast.parse(path.read_text()))
        if isinstance(node, ast.Call)
        and getattr(node.func, "attr", "") in {"execute", "executemany", "SQL"}
        and node.args
        and is_spliced(node.args[0])
    ]
    assert spliced == []


def test_no_file_is_too_long_to_read_at_once():
    long = {
        str(path.relative_to(ROOT)): length
        for path in MODULES
        if (length := path.read_text().count("\n")) > LONGEST_FILE
    }
    assert long == {}


def test_every_dependency_has_its_reason():
    """Each name in pyproject.toml stands in CONTRIBUTING.md with why it is needed."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())
    wanted = [
        *project["project"]["dependencies"],
        *(each for extra in project["project"]["optional-dependencies"].values() for each in extra),
        *(each for group in project["dependency-groups"].values() for each in group),
    ]
    names = {re.split(r"[\[<>=~!; ]", each)[0] for each in wanted}
    reasons = (ROOT / "CONTRIBUTING.md").read_text().partition("## Dependencies")[2]
    explained = set(re.findall(r"^\| `([^`]+)` \| \S.+ \|$", reasons, re.MULTILINE))
    assert names == explained


def test_every_runtime_dependency_is_imported():
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    names = {re.split(r"[\[<>=~!; ]", each)[0] for each in project["dependencies"]}
    used = {name.partition(".")[0] for path in MODULES for name in imported(path)}
    assert {name.replace("-", "_") for name in names} <= used
