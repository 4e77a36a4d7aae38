"""The command line of the measurement."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import ExitStack, closing
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path

import click
import msgspec

from queen_sync import __version__
from queen_sync.bench import report as report_file, results, tables
from queen_sync.bench.calibrate import calibrate
from queen_sync.bench.footprint import BATCH, Footprint, footprint
from queen_sync.bench.machine import describe
from queen_sync.bench.measure import Bench, is_http, shown
from queen_sync.bench.modes import DEFAULT_MODES, MODES, OVER_HTTP_ONLY, Load
from queen_sync.bench.plan import Case
from queen_sync.bench.processes import Watched, find
from queen_sync.errors import QueenError

_STORES = ("memory:", "sqlite:", "postgresql://", "postgres://")
_MODES = "; ".join(f"{mode.name}: {mode.says}" for mode in MODES.values())


@dataclass(frozen=True, kw_only=True)
class Wanted:
    """What is to be measured."""

    targets: Sequence[str]
    modes: Sequence[str]
    cases: Sequence[Case]
    processes: int
    seconds: float
    warmup_seconds: float
    rounds: int
    load: Load
    title: str | None
    calibrated: bool
    disk: Path
    watched: Watched | None
    """The processes that were named; None: look for them."""


@click.command(name="bench", epilog=f"Modes: {_MODES}.")
@click.argument("targets", metavar="TARGET", nargs=-1, required=True)
@click.option("--against", metavar="TARGET", help="Measure a second target in turn, and compare")
@click.option(
    "--mode",
    "modes",
    type=click.Choice(list(MODES)),
    multiple=True,
    help=f"What to measure, may be repeated [{', '.join(DEFAULT_MODES)}]",
)
@click.option("--batch", "batches", type=click.IntRange(1, 10_000), multiple=True, default=(1, 100))
@click.option("--connections", type=click.IntRange(1, 1000), default=16, show_default=True)
@click.option("--processes", type=click.IntRange(1, 64), default=2, show_default=True)
@click.option("--partitions", type=click.IntRange(1, 100_000), default=64, show_default=True)
@click.option(
    "--many-partitions",
    type=click.IntRange(11, 100_000),
    default=100_000,
    show_default=True,
    help="How many partitions the mode partitions holds against 10",
)
@click.option("--payload-bytes", type=click.IntRange(2, 1_000_000), default=130, show_default=True)
@click.option("--seconds", type=click.FloatRange(0.1, 600), default=5.0, show_default=True)
@click.option("--warmup", type=click.FloatRange(0, 600), default=1.0, show_default=True)
@click.option("--rounds", type=click.IntRange(1, 100), default=3, show_default=True)
@click.option("--calibrate", "calibrated", is_flag=True, help="Measure this machine's parts first")
@click.option(
    "--server-pid",
    "server_pids",
    type=int,
    multiple=True,
    help="A process of the server, its children count too [who listens at TARGET]",
)
@click.option(
    "--database-pid",
    "database_pids",
    type=int,
    multiple=True,
    help="A process of the database, its children count too [whom the server called over TCP]",
)
@click.option(
    "--disk",
    type=click.Path(exists=True, file_okay=False, writable=True, path_type=Path),
    default=Path(),
    help="A directory on the store's disk, to time fsync there [here]",
)
@click.option("--title", help="What is measured, in words, for the heading of its tables")
@click.option("--out", type=click.Path(dir_okay=False, path_type=Path), help="Keep the result")
@click.option("--json", "as_json", is_flag=True, help="Print JSON instead of tables")
@click.option("--strict", is_flag=True, help="Exit with 1 if any call went wrong")
@click.option(
    "--footprint",
    "messages",
    type=click.IntRange(BATCH, 100_000_000),
    help="Measure how much memory so many messages take (memory: only)",
)
@click.option(
    "--report",
    "document",
    type=click.Path(dir_okay=False, path_type=Path),
    help="Write the tables of result files, named instead of TARGET, into a document",
)
def command(
    *,
    targets: tuple[str, ...],
    against: str | None,
    modes: tuple[str, ...],
    batches: tuple[int, ...],
    connections: int,
    processes: int,
    partitions: int,
    many_partitions: int,
    payload_bytes: int,
    seconds: float,
    warmup: float,
    rounds: int,
    calibrated: bool,
    server_pids: tuple[int, ...],
    database_pids: tuple[int, ...],
    disk: Path,
    title: str | None,
    out: Path | None,
    as_json: bool,
    strict: bool,
    messages: int | None,
    document: Path | None,
) -> None:
    """Measure what TARGET does with pushes, pops and acks.

    TARGET is a server (http://host:port, load over HTTP) or a store (postgresql://…,
    sqlite:///FILE or memory:, the library itself, without a server). Each case runs on a queue
    of its own, in several rounds; shown are medians over the rounds.
    """
    try:
        if document is not None:
            report_file.write(document, [results.read(Path(each)) for each in targets])
            return
        if len(targets) > 1:
            raise click.BadParameter("only one; a second comes --against", param_hint="TARGET")
        named = (*targets, *([against] if against else ()))
        _check(named, modes)
        if messages is not None:
            _footprint(targets[0], messages, payload_bytes, partitions, as_json=as_json)
            return
        load = Load(batches, connections, partitions, payload_bytes, many_partitions)
        modes = modes or DEFAULT_MODES
        wanted = Wanted(
            targets=named,
            modes=modes,
            cases=[case for mode in modes for case in MODES[mode].cases(load)],
            processes=processes,
            seconds=seconds,
            warmup_seconds=warmup,
            rounds=rounds,
            load=load,
            title=title,
            calibrated=calibrated,
            disk=disk,
            watched=_watched(server_pids, database_pids),
        )
        result = measure(wanted)
    except QueenError as error:
        raise click.ClickException(error.message) from error
    if out is not None:
        out.write_bytes(results.encode(result))
    if as_json:
        click.echo(results.encode(result), nl=False)
    else:
        tables.show(result)
    if strict and result.error_count:
        click.echo(f"{result.error_count:,} calls went wrong", err=True)
        raise SystemExit(1)


def measure(wanted: Wanted) -> results.Result:
    """Measure all cases on all targets, the targets in turn within each round."""
    machine = describe(wanted.disk)
    calibration = calibrate(wanted.processes) if wanted.calibrated else None
    played = []
    with ExitStack() as stack:
        benches = [
            stack.enter_context(
                closing(Bench(target, wanted.processes, wanted.seconds, _look(wanted, target)))
            )
            for target in wanted.targets
        ]
        processes = max(bench.processes for bench in benches)
        for case in wanted.cases:
            for bench in benches:
                bench.warm_up(case, wanted.warmup_seconds)
            for number in range(1, wanted.rounds + 1):
                # Whoever came second comes first next: being second must not be an advantage.
                order = benches if number % 2 else benches[::-1]
                played += [bench.round(case, number) for bench in order]
                click.echo(
                    f"{tables.named(case)}: round {number} of {wanted.rounds} done", err=True
                )
    names = [shown(target) for target in wanted.targets]
    return results.Result(
        version=__version__,
        measured_at=datetime.now(UTC).isoformat(timespec="seconds"),
        title=wanted.title,
        targets=names,
        machine=machine,
        calibration=calibration,
        settings=results.Settings(
            modes=list(wanted.modes),
            connections=wanted.load.connections,
            partitions=wanted.load.partitions,
            payload_bytes=wanted.load.payload_bytes,
            processes=processes,
            seconds=wanted.seconds,
            warmup_seconds=wanted.warmup_seconds,
            rounds=wanted.rounds,
        ),
        rounds=played,
        medians=results.medians(played),
        comparisons=results.compare(played, *names) if len(names) > 1 else [],
    )


def _check(targets: Sequence[str], modes: Sequence[str]) -> None:
    """Refuse what cannot be measured."""
    for target in targets:
        if not is_http(target) and not target.startswith(_STORES):
            raise click.BadParameter(
                "must be http://…, postgresql://…, sqlite:///FILE or memory:", param_hint="TARGET"
            )
        for mode in OVER_HTTP_ONLY & set(modes):
            if not is_http(target):
                raise click.BadParameter(f"{mode} needs a server", param_hint="--mode")
    if len(set(targets)) < len(targets):
        raise click.BadParameter("is TARGET itself", param_hint="--against")


def _watched(server: Sequence[int], database: Sequence[int]) -> Watched | None:
    if not server and not database:
        return None
    return Watched(frozenset(server), frozenset(database))


def _look(wanted: Wanted, target: str) -> Watched:
    """Return the processes to watch: those that were named, else those that can be found."""
    named = wanted.watched
    if len(wanted.targets) > 1 or named is None:
        return find(target) if is_http(target) else Watched()
    if is_http(target):
        found = find(target)
        return Watched(named.server or found.server, named.database or found.database)
    return named


def _footprint(
    target: str, messages: int, payload_bytes: int, partitions: int, *, as_json: bool
) -> None:
    if target != "memory:":
        raise click.BadParameter("is measured on memory: only", param_hint="--footprint")
    found = footprint(messages - messages % BATCH, payload_bytes, partitions)
    if as_json:
        click.echo(msgspec.json.format(msgspec.json.encode(found)))
    else:
        _show_footprint(found)


def _show_footprint(found: Footprint) -> None:
    click.echo(
        f"{found.messages:,} messages of {found.payload_bytes:,} bytes in "
        f"{found.partitions:,} partitions, {BATCH} a call: "
        f"{found.pushed_per_second:,.0f} messages/s pushed, "
        f"{found.drained_per_second:,.0f} popped and acked"
    )
    click.echo(
        f"memory of the process: {found.start_megabytes:,.0f} MB at the start, "
        f"{found.queued_megabytes:,.0f} with all queued, {found.drained_megabytes:,.0f} with all "
        f"acked, {found.removed_megabytes:,.0f} after removal, {found.peak_megabytes:,.0f} at most"
    )
