"""The command ``queen-sync conformance``: a server in any language against the suite."""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from importlib.util import find_spec
from pathlib import Path

import click

from queen_sync.conformance.levels import LEVELS
from queen_sync.errors import QueenError

NEEDED = ("pytest", "hypothesis")
SHOWN_VIOLATIONS = 5
_FILE = click.Path(dir_okay=False, path_type=Path)
_GIVEN = click.Path(exists=True, dir_okay=False, path_type=Path)


@click.command(name="conformance")
@click.argument("url", required=False)
@click.option(
    "--level",
    "levels",
    type=click.Choice(list(LEVELS)),
    multiple=True,
    default=("full",),
    show_default=True,
    help="Which cases; may be given again",
)
@click.option("--report", type=_FILE, help="Write the results as JSON")
@click.option(
    "--known-failures", type=_GIVEN, help="JSON that maps cases to the reason why they fail"
)
@click.option(
    "--history", type=_FILE, help="Add the histories of the cases under load, as JSON lines"
)
@click.option(
    "--check", type=_GIVEN, help="Instead of a server, check histories that were recorded before"
)
def command(
    *,
    url: str | None,
    levels: Sequence[str],
    report: Path | None,
    known_failures: Path | None,
    history: Path | None,
    check: Path | None,
) -> None:
    """Run the conformance suite against the server at URL, in real time.

    The server may be written in any language; what it says that it does not offer is left
    out, and shown as such. The exit code is 0 only if every case that is offered passes. Queues
    of random names are made there and left behind.

    With --check no server is asked: the rules are run over a file of histories.
    """
    if (url is None) == (check is None):
        raise click.UsageError("name either the URL of a server or a file with --check")
    if check is not None:
        if known_failures is not None or history is not None:
            raise click.UsageError("--check takes neither --known-failures nor --history")
        with _told_plainly():
            sys.exit(_check(check, report))
    missing = [name for name in NEEDED if find_spec(name) is None]
    if missing:
        raise click.ClickException(
            f"{' and '.join(missing)} missing; the suite needs: "
            "pip install 'queen-sync[conformance]'"
        )
    assert url is not None
    if not url.startswith(("http://", "https://")):
        raise click.BadParameter("must be http://… or https://…", param_hint="URL")
    with _told_plainly():
        _ask(url)
    options = [f"--queen-url={url}", *(f"--queen-level={level}" for level in levels)]
    for name, path in (
        ("report", report),
        ("known-failures", known_failures),
        ("history", history),
    ):
        if path is not None:
            options.append(f"--queen-{name}={path.absolute()}")
    sys.exit(_run(options))


def _ask(url: str) -> None:
    """Find out that somebody is there, before two hundred cases do."""
    # Late, as pytest is: whoever only checks histories needs no HTTP.
    from queen_sync.client import RemoteBackend  # noqa: PLC0415

    with RemoteBackend(url) as backend:
        offered = sorted(backend.capabilities.features)
    click.echo(f"{url} offers: {', '.join(offered)}")


def _run(options: Sequence[str]) -> int:
    """Run the suite with pytest, whatever the directory and the environment say of pytest."""
    import pytest  # noqa: PLC0415 - an extra that the rest of the command line does without

    # The options and plugins of the directory that this happens to be run in are not for us.
    os.environ.pop("PYTEST_ADDOPTS", None)
    os.environ["PYTEST_DISABLE_PLUGIN_AUTOLOAD"] = "1"
    fixed = [
        *("-p", "queen_sync.conformance.plugin", "--pyargs", "queen_sync.conformance.bound"),
        *("-c", os.devnull, "--rootdir", str(Path(__file__).parent), "--noconftest"),
        *("-p", "no:cacheprovider", "--import-mode=importlib", "--no-header", "-q"),
        *("--tb=short", "--show-capture=no", "-rN", "-W", "error"),
    ]
    return int(pytest.main([*fixed, *options]))


def _check(path: Path, report: Path | None) -> int:
    """Run the rules over the histories of a file and say what they find."""
    from queen_sync.conformance import published, summary  # noqa: PLC0415 - as above

    documents: list[Mapping[str, object]] = []
    broken = 0
    for number, history in enumerate(published.read(path), 1):
        verdict = summary.judge(history)
        name = " on ".join(history.about.values()) or f"history {number}"
        click.echo(f"{name}: {verdict.sentence}")
        for violation in verdict.violations[:SHOWN_VIOLATIONS]:
            click.echo(str(violation))
        more = len(verdict.violations) - SHOWN_VIOLATIONS
        if more > 0:
            click.echo(f"... {more} more")
        documents.append({"about": dict(history.about), **verdict.document()})
        broken += bool(verdict.violations)
    if report is not None:
        report.write_text(json.dumps(documents, indent=2) + "\n", "utf-8")
    return min(1, broken)


@contextmanager
def _told_plainly() -> Iterator[None]:
    try:
        yield
    except QueenError as error:
        raise click.ClickException(error.message) from error
