"""The command line of the measurement, and its two forms of output."""

from __future__ import annotations

import json
from contextlib import closing
from dataclasses import asdict
from pathlib import Path

import click
from rich.console import Console
from rich.table import Table

from queen_sync.bench.machine import Machine, describe
from queen_sync.bench.measure import Bench, Figures, is_http, medians
from queen_sync.bench.plan import Plan
from queen_sync.errors import QueenError


@click.command(name="bench")
@click.argument("target")
@click.option("--batch", "batches", type=click.IntRange(1, 10_000), multiple=True, default=(1, 100))
@click.option("--connections", type=click.IntRange(1, 1000), default=16, show_default=True)
@click.option("--processes", type=click.IntRange(1, 64), default=2, show_default=True)
@click.option("--partitions", type=click.IntRange(1, 100_000), default=64, show_default=True)
@click.option("--payload-bytes", type=click.IntRange(2, 1_000_000), default=130, show_default=True)
@click.option("--seconds", type=click.FloatRange(0.1, 600), default=5.0, show_default=True)
@click.option("--rounds", type=click.IntRange(1, 100), default=3, show_default=True)
@click.option(
    "--disk",
    type=click.Path(exists=True, file_okay=False, writable=True, path_type=Path),
    default=Path(),
    help="A directory on the store's disk, to time fsync there [here]",
)
@click.option("--json", "as_json", is_flag=True, help="Print JSON instead of tables")
def command(
    *,
    target: str,
    batches: tuple[int, ...],
    connections: int,
    processes: int,
    partitions: int,
    payload_bytes: int,
    seconds: float,
    rounds: int,
    disk: Path,
    as_json: bool,
) -> None:
    """Measure pushes, and pops with their acks, on TARGET.

    TARGET is a server (http://host:port, load over HTTP) or a store (postgresql://…, the
    library itself, without a server). Each round pushes to a queue of its own for so many
    seconds and then takes what it pushed for as long; shown are medians over the rounds.
    """
    if not target.startswith(("http://", "postgresql://", "postgres://")):
        raise click.BadParameter("must be http://… or postgresql://…", param_hint="TARGET")
    processes = min(processes, connections)
    plan = Plan(
        target=target,
        queue="",
        operation="push",
        batch=1,
        connections=connections,
        partitions=partitions,
        payload_bytes=payload_bytes,
        seconds=seconds,
    )
    machine = describe(disk)
    played: list[list[Figures]] = []
    try:
        with closing(Bench(plan, processes)) as bench:
            for number in range(rounds):
                played += [bench.round(batch) for batch in batches]
                click.echo(f"round {number + 1} of {rounds} done", err=True)
    except QueenError as error:
        raise click.ClickException(error.message) from error
    result = medians(played)
    if as_json:
        shown = asdict(plan) | {"target": without_password(target), "processes": processes}
        for name in ("queue", "operation", "batch"):
            del shown[name]
        report = {
            "machine": asdict(machine),
            "load": shown | {"rounds": rounds},
            "medians": [asdict(figure) for figure in result],
            "rounds": [[asdict(figure) for figure in each] for each in played],
        }
        click.echo(json.dumps(report, indent=2))
    else:
        _show(machine, plan, processes, rounds, result)


def _show(machine: Machine, plan: Plan, processes: int, rounds: int, result: list[Figures]) -> None:
    click.echo(
        f"{machine.cores} cores, Python {machine.python}, {machine.system}; "
        f"fsync {machine.fsync_milliseconds:.3f} ms; load before {machine.load_before:.2f}"
    )
    way = "over HTTP" if is_http(plan.target) else "library"
    click.echo(
        f"{way}: {plan.connections} connections in {processes} processes, "
        f"{plan.partitions} partitions, payloads of {len(plan.payload)} bytes, "
        f"{rounds} rounds of {plan.seconds:g} s, medians"
    )
    table = Table()
    for column in ("call", "batch", "messages/s", "calls/s", "p50 ms", "p95 ms", "p99 ms"):
        table.add_column(column, justify="left" if column == "call" else "right")
    for figure in result:
        table.add_row(
            figure.call,
            f"{figure.batch:,}",
            f"{figure.messages_per_second:,.0f}",
            f"{figure.calls_per_second:,.0f}",
            f"{figure.p50_milliseconds:.2f}",
            f"{figure.p95_milliseconds:.2f}",
            f"{figure.p99_milliseconds:.2f}",
        )
    Console().print(table)


def without_password(target: str) -> str:
    """Return a target as it may be kept in a file."""
    before, at, after = target.rpartition("@")
    head, colon, _ = before.rpartition(":")
    return f"{head}@{after}" if at and colon and "//" in head else target
