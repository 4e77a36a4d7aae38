"""A result on the terminal: tables, and beside them what they were measured on."""

from __future__ import annotations

import sys
from collections.abc import Iterable, Iterator, Sequence

import click
from rich.console import Console
from rich.table import Table

from queen_sync.bench.calibrate import Calibration
from queen_sync.bench.machine import Machine
from queen_sync.bench.modes import label
from queen_sync.bench.plan import Case
from queen_sync.bench.processes import Used
from queen_sync.bench.results import Comparison, Figures, Result, Summary
from queen_sync.bench.wake_load import OTHER, SAME

HEADINGS = ("work", "call", "batch", "messages/s", "calls/s", "p50 ms", "p95 ms", "p99 ms", "ratio")
COMPARED = ("work", "call", "batch", "figure", "A", "B", "A / B", "spread")
NOT_AVAILABLE = "not available"
WIDTH = 120
"""Of tables that go to a file or through a pipe."""


def show(result: Result) -> None:
    """Print a result."""
    if result.title is not None:
        click.echo(result.title)
    for line in (*about_machine(result.machine, result.calibration), about_load(result)):
        click.echo(line)
    console = Console(width=None if sys.stdout.isatty() else WIDTH)
    for target in result.targets:
        summaries = [each for each in result.medians if each.target == target]
        console.print(_table(target, HEADINGS, rows(summaries)))
        for line in (*about_usage(summaries), *about_errors(summaries)):
            click.echo(line)
    if result.comparisons:
        title = f"A = {result.targets[0]}\nB = {result.targets[1]}"
        console.print(_table(title, COMPARED, compared(result.comparisons)))


def _table(title: str, headings: Sequence[str], lines: Iterable[Sequence[str]]) -> Table:
    table = Table(title=title, title_justify="left")
    for heading in headings:
        left = heading in ("work", "call", "figure")
        table.add_column(heading, justify="left" if left else "right")
    for line in lines:
        table.add_row(*line)
    return table


# -------------------------------------------------------------------------- as words


def about_machine(machine: Machine, calibration: Calibration | None) -> Iterator[str]:
    """Yield what the figures were measured on."""
    yield (
        f"{machine.cores} cores, Python {machine.python}, {machine.system}; "
        f"fsync {machine.fsync_milliseconds:.3f} ms; load before {machine.load_before:.2f}"
    )
    if calibration is None:
        yield "not calibrated (--calibrate)"
        return
    yield (
        f"Python {calibration.python_loops_per_second / 1e6:,.1f} million loops/s; bare Flask "
        f"{calibration.flask_requests_per_second:,.0f} requests/s "
        f"in {calibration.flask_workers} workers"
    )
    yield (
        "generator ceiling per process: at least "
        f"{calibration.generator_calls_per_second:,.0f} calls/s, "
        f"{calibration.generator_pushed_per_second:,.0f} messages/s pushed by 100, "
        f"{calibration.generator_popped_per_second:,.0f} popped and acked by 100"
    )


def about_load(result: Result) -> str:
    """Return how it was measured."""
    settings = result.settings
    return (
        f"{settings.connections} connections in {settings.processes} "
        f"process{'es' * (settings.processes != 1)}, "
        f"{settings.partitions:,} partitions, payloads of {settings.payload_bytes:,} bytes, unless "
        f"a mode says otherwise; {settings.rounds} rounds of {settings.seconds:g} s after "
        f"{settings.warmup_seconds:g} s of warm-up, medians"
    )


def about_usage(summaries: Sequence[Summary]) -> Iterator[str]:
    """Yield what the processes used in each case, medians of the rounds."""
    for each in summaries:
        yield (
            f"{named(each.case)}: load {each.load_cpu_seconds:.1f} CPU s; "
            f"server {used(each.server)}; database {used(each.database)}"
        )


def used(processes: Used | None) -> str:
    """Return what some processes used in words."""
    if processes is None:
        return NOT_AVAILABLE
    return (
        f"{processes.cpu_seconds:.1f} CPU s, {processes.memory_megabytes:,.0f} MB "
        f"in {processes.processes} process{'es' * (processes.processes != 1)}"
    )


def about_errors(summaries: Sequence[Summary]) -> Iterator[str]:
    """Yield the errors of each case."""
    for each in summaries:
        for what, count in sorted(each.errors.items()):
            yield f"ERRORS in {named(each.case)}: {count:,} x {what}"


def named(case: Case) -> str:
    """Return a case in words."""
    apart = label(case)
    what = f"{case.mode} ({apart})" if apart else case.mode
    kind = f" {case.operation}" if case.mode in ("partitions", "payload") else ""
    return f"{what}{kind}, batch {case.batch:,}"


# ------------------------------------------------------------------------ as figures


def rows(summaries: Sequence[Summary]) -> Iterator[list[str]]:
    """Yield the lines of a table: of cases of one mode, each is held against the first."""
    firsts: dict[tuple[object, ...], float] = {}
    for each in summaries:
        case = each.case
        for figure in each.figures:
            key = case.mode, case.operation, case.batch, figure.call
            first = firsts.setdefault(key, figure.messages_per_second)
            apart = label(case)
            yield [
                f"{case.mode}: {apart}" if apart else case.mode,
                figure.call,
                f"{case.batch:,}",
                f"{figure.messages_per_second:,.0f}" if figure.messages else "",
                f"{figure.calls_per_second:,.0f}",
                f"{figure.p50_milliseconds:.2f}",
                f"{figure.p95_milliseconds:.2f}",
                f"{figure.p99_milliseconds:.2f}",
                f"{figure.messages_per_second / first:.2f}" if apart and first else "",
            ]
        share = other_share(each.figures)
        if share is not None:
            yield [case.mode, f"{share:.0%} through another process", *[""] * 7]


def other_share(figures: Sequence[Figures]) -> float | None:
    """Return how many of the wake-ups went through another process; None where nobody knows."""
    calls = {figure.call: figure.calls for figure in figures}
    known = sum(calls.get(route, 0) for route in (SAME, OTHER))
    return calls.get(OTHER, 0) / known if known else None


def compared(comparisons: Iterable[Comparison]) -> Iterator[list[str]]:
    """Yield the lines of a comparison."""
    for each in comparisons:
        apart = label(each.case)
        decimals = 2 if each.figure == "p50_milliseconds" else 0
        yield [
            f"{each.case.mode}: {apart}" if apart else each.case.mode,
            each.call,
            f"{each.case.batch:,}",
            each.figure.replace("_per_second", "/s").replace("_milliseconds", " ms"),
            f"{each.target:,.{decimals}f}",
            f"{each.against:,.{decimals}f}",
            f"{each.ratio:.2f}",
            f"{each.lowest:.2f} to {each.highest:.2f}",
        ]
