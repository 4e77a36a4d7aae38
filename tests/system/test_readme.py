"""The code of the README runs as it stands there."""

import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from tests.serving import serve

README = (Path(__file__).parents[2] / "README.md").read_text()
ADDRESS = "http://127.0.0.1:6632"


def blocks(language):
    return re.findall(rf"^```{language}\n(.*?)^```", README, re.MULTILINE | re.DOTALL)


@pytest.fixture(scope="module")
def url():
    with serve("--backend", "memory:") as address:
        yield address


@pytest.mark.skipif(shutil.which("curl") is None, reason="the example needs curl")
def test_the_example_with_curl_pushes_pops_and_acks(url):
    (script,) = blocks("sh")
    done = subprocess.run(
        ["/bin/sh", "-eu", "-c", script.replace(ADDRESS, url)],
        capture_output=True,
        text=True,
        timeout=60,
        check=True,
    )
    assert re.search(r'"data":\{"total": ?42\}', done.stdout)
    assert done.stdout.count('"success":true') >= 1
    assert '"success":false' not in done.stdout


@pytest.mark.parametrize("number", range(len(blocks("python"))))
def test_the_python_examples_run(url, number):
    code = blocks("python")[number].replace(ADDRESS, url)
    subprocess.run([sys.executable, "-W", "error", "-c", code], timeout=60, check=True)


def test_the_options_that_the_readme_names_exist():
    for command in re.findall(r"^\$ (queen-sync serve.*)$", README, re.MULTILINE):
        options = re.findall(r"--[a-z-]+", command)
        shown = subprocess.run(
            [sys.executable, "-m", "queen_sync.cli", "serve", "--help"],
            capture_output=True,
            text=True,
            check=True,
        ).stdout
        assert all(option in shown for option in options)
