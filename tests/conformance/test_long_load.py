"""The cases under load at their full length; the ordinary run has short forms of them."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

LENGTH_SECONDS = "40"
"""Ten thousand partitions in J13."""


@pytest.mark.slow
@pytest.mark.timeout(1200)
@pytest.mark.parametrize("store", ["sqlite", "postgres"])
@pytest.mark.parametrize("cases", ["j02 or j09", "j13 or j14"])
def test_a_store_keeps_its_promises_under_long_load(store, cases):
    done = subprocess.run(
        [
            *(sys.executable, "-m", "pytest", "-q", "-p", "no:randomly", "--timeout=600"),
            str(Path(__file__).with_name(f"test_{store}.py")),
            *("-k", f"UnderLoad and ({cases})"),
        ],
        env={**os.environ, "QUEEN_STRESS_SECONDS": LENGTH_SECONDS},
        cwd=Path(__file__).parents[2],
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    assert "2 passed" in done.stdout
