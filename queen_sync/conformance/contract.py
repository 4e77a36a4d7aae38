"""CONTRACT.md read as data: its numbers, and the cases that prove each.

``python -m queen_sync.conformance`` writes the lists of cases anew, after a case
was added or renamed.
"""

from __future__ import annotations

import functools
import re
from collections import defaultdict
from collections.abc import Iterable, Mapping
from pathlib import Path

CONTRACT = Path(__file__).with_name("CONTRACT.md")
NUMBER = re.compile(r"\b(?:C-\d\d|INV-[A-Z0-9]+(?:-[A-Z0-9]+)*)\b")
_ENTRY = re.compile(
    r"^\*\*(?P<number>[A-Z0-9-]+)\*\* (?P<text>.*?)\n"
    r"Cases: (?P<cases>.*)$",
    re.MULTILINE | re.DOTALL,
)
NONE = "none"


@functools.cache
def rules() -> Mapping[str, str]:
    """Return every number with its text, as the contract states it."""
    return {number: text for number, (text, _) in _entries(CONTRACT.read_text("utf-8")).items()}


def listed_cases() -> Mapping[str, list[str]]:
    """Return the case ids that the contract lists for every number."""
    entries = _entries(CONTRACT.read_text("utf-8"))
    return {number: re.findall(r"[A-L]\d\d", tail) for number, (_, tail) in entries.items()}


def rules_named_in(text: str) -> Mapping[str, str]:
    """Return those rules of the contract that a docstring names."""
    known = rules()
    return {number: known[number] for number in NUMBER.findall(text) if number in known}


def proofs(docstrings: Mapping[str, str]) -> Mapping[str, list[str]]:
    """Return which cases name which number, from case id to docstring."""
    found: dict[str, set[str]] = defaultdict(set)
    for case, text in docstrings.items():
        for number in NUMBER.findall(text):
            found[number].add(case)
    return {number: sorted(cases) for number, cases in found.items()}


def rewritten(text: str, proved: Mapping[str, Iterable[str]]) -> str:
    """Return the contract's text with its lists of cases brought up to date."""
    number = ""
    lines = []
    for line in text.splitlines():
        found = re.match(r"\*\*([A-Z0-9-]+)\*\*", line)
        number = found.group(1) if found else number
        if line.startswith("Cases: "):
            lines.append("Cases: " + (", ".join(proved.get(number, ())) or NONE))
        else:
            lines.append(line)
    return "\n".join(lines) + "\n"


def docstrings() -> Mapping[str, str]:
    """Return the docstrings of all cases of the suite, by case id."""
    # The suite's classes ask this module for their rules, so it cannot import them first.
    from queen_sync.conformance import (  # noqa: PLC0415
        BackendConformance,
        ConcurrencyConformance,
        ServerConformance,
    )
    from queen_sync.conformance.base import case_id, case_names  # noqa: PLC0415

    found: dict[str, str] = defaultdict(str)
    for suite in (BackendConformance, ConcurrencyConformance, ServerConformance):
        for name in case_names(suite):
            found[case_id(name)] += f"{getattr(suite, name).__doc__ or ''}\n"
    return found


def _entries(text: str) -> Mapping[str, tuple[str, str]]:
    entries = {}
    for block in text.split("\n\n"):
        found = _ENTRY.match(block.strip())
        if found:
            said = " ".join(found["text"].split())
            entries[found["number"]] = said, found["cases"]
    return entries
