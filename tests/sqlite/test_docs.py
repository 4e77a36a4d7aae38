"""The code on the page about this backend runs as it stands."""

import re
from pathlib import Path

from queen_sync.backends.sqlite import SqliteBackend

PAGE = Path(__file__).parents[2] / "docs" / "explanation" / "sqlite.md"


def test_the_code_of_the_page_runs(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    blocks = re.findall(r"^```python\n(.*?)^```$", PAGE.read_text(), re.MULTILINE | re.DOTALL)
    assert len(blocks) == 2
    for block in blocks:
        exec(compile(block, str(PAGE), "exec"), {})
    with SqliteBackend(tmp_path / "backup.db") as restored:
        assert restored.groups("orders")[0].lag == 0
        assert restored.queue("orders") is not None
