"""Every id has its case, or its reason; and whatever is left out names a feature."""

import json
import re
import subprocess
import sys
from pathlib import Path

from queen_sync.backends.base import FEATURES
from queen_sync.conformance.base import OWN_WORK, case_id, case_names
from queen_sync.conformance.matrix import ELSEWHERE, GROUPS, ids
from queen_sync.conformance.suite import (
    BackendConformance,
    ConcurrencyConformance,
    ServerConformance,
)

ROOT = Path(__file__).parents[2]
SUITES = (BackendConformance, ConcurrencyConformance, ServerConformance)
SHOWN_BY_SERVERS = {"http", "sockets"}


def present():
    return {case_id(name) for suite in SUITES for name in case_names(suite)}


def test_every_id_has_its_case_or_its_reason_and_none_has_both():
    assert len(list(ids())) == 123
    assert {number for number in ids() if number not in present()} == set(ELSEWHERE)
    assert {number[0] for number in present()} == set(GROUPS)


def test_what_stands_elsewhere_stands_there():
    for reason in ELSEWHERE.values():
        for path in re.findall(r"tests/\S+\.py", reason):
            assert (ROOT / path).exists(), path


def test_a_case_ends_in_pass_or_in_the_name_of_a_feature(tmp_path):
    """No case is left out for a reason of its own. INV-OFF-REFUSES."""
    (tmp_path / "plain.py").write_text(
        "from queen_sync.backends.memory import MemoryBackend\n"
        "def memory(clock):\n"
        "    return MemoryBackend(clock=clock)\n"
    )
    done = subprocess.run(
        [
            *(sys.executable, "-m", "pytest", "-c", "/dev/null", "-q", "-p", "no:cacheprovider"),
            *("-p", "queen_sync.conformance.plugin", "--pyargs", "queen_sync.conformance.bound"),
            *("--queen-backend=plain:memory", "--queen-report=out.json"),
            *("-k", "TestBackend or TestServer"),
        ],
        cwd=tmp_path,
        env={"PATH": "/usr/bin:/bin", "PYTHONPATH": str(tmp_path)},
        capture_output=True,
        text=True,
        timeout=110,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    report = json.loads((tmp_path / "out.json").read_text())
    (counts,) = report["targets"].values()
    assert set(counts) == {"pass", "not offered"}
    reasons = {reason for row in report["cases"] for reason in row["reasons"].values()}
    named = {name for reason in reasons for name in reason.split(", ")}
    assert named <= {*FEATURES, *OWN_WORK, *SHOWN_BY_SERVERS}
