"""Pages of the documentation as files: a code block with a title is the file of that name."""

from __future__ import annotations

import re
from pathlib import Path

DOCS = Path(__file__).parents[1] / "docs"
_BLOCK = re.compile(r"^```python title=(?P<name>\S+)\n(?P<code>.*?)^```$", re.MULTILINE | re.DOTALL)


def files_of(page: str) -> dict[str, str]:
    """Return the titled code blocks of a page, by their titles."""
    text = (DOCS / page).read_text("utf-8")
    return {found["name"]: found["code"] for found in _BLOCK.finditer(text)}
