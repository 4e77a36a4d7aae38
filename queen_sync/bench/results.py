"""The result of a measurement: every round as it was, the file that keeps it, and its medians."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from statistics import median
from typing import Literal

import msgspec

from queen_sync.bench.calibrate import Calibration
from queen_sync.bench.machine import Machine
from queen_sync.bench.plan import Case, LoadError, Tally
from queen_sync.bench.processes import Used

FORMAT = 1


class Figures(msgspec.Struct, frozen=True, kw_only=True):
    """One kind of call in one round, or the medians of several rounds."""

    call: str
    calls: float
    messages: float
    messages_per_second: float
    calls_per_second: float
    p50_milliseconds: float
    p95_milliseconds: float
    p99_milliseconds: float


class Round(msgspec.Struct, frozen=True, kw_only=True):
    """One case, measured once on one target."""

    target: str
    number: int
    case: Case
    figures: list[Figures]
    errors: dict[str, int]
    load_cpu_seconds: float
    server: Used | None = None
    database: Used | None = None


class Summary(msgspec.Struct, frozen=True, kw_only=True):
    """The medians of a case on a target over its rounds; errors are all that were met."""

    target: str
    case: Case
    figures: list[Figures]
    errors: dict[str, int]
    load_cpu_seconds: float
    server: Used | None = None
    database: Used | None = None


class Comparison(msgspec.Struct, frozen=True, kw_only=True):
    """One figure of two targets: the ratio of the medians, and that of the rounds by pairs."""

    case: Case
    call: str
    figure: Literal["messages_per_second", "calls_per_second", "p50_milliseconds"]
    target: float
    against: float
    ratio: float
    lowest: float
    highest: float


class Settings(msgspec.Struct, frozen=True, kw_only=True):
    """How it was measured."""

    modes: list[str]
    connections: int
    processes: int
    partitions: int
    payload_bytes: int
    seconds: float
    warmup_seconds: float
    rounds: int


class Result(msgspec.Struct, frozen=True, kw_only=True):
    """A whole measurement, as it is kept in a file."""

    version: str
    measured_at: str
    title: str | None = None
    targets: list[str]
    machine: Machine
    settings: Settings
    rounds: list[Round]
    medians: list[Summary]
    comparisons: list[Comparison]
    calibration: Calibration | None = None
    format: int = FORMAT

    @property
    def error_count(self) -> int:
        return sum(sum(each.errors.values()) for each in self.rounds)


def read(path: Path) -> Result:
    """Read a result file; LoadError where it is none."""
    try:
        result = msgspec.json.decode(path.read_bytes(), type=Result)
    except (OSError, msgspec.MsgspecError) as error:
        raise LoadError(f"{path} is no result of a measurement: {error}") from error
    if result.format != FORMAT:
        raise LoadError(f"{path} has format {result.format}; this version reads {FORMAT}")
    return result


def encode(result: Result) -> bytes:
    """Return a result as its file holds it."""
    return msgspec.json.format(msgspec.json.encode(result), indent=2) + b"\n"


def figures(tally: Tally) -> list[Figures]:
    """Return the figures of each kind of call in a tally.

    Pops and acks take turns, so both show the rate of messages that went through both.
    """
    seconds = max(tally.ended - tally.began, 1e-9)
    return [
        Figures(
            call=call,
            calls=len(times),
            messages=tally.messages[call],
            messages_per_second=tally.messages[call] / seconds,
            calls_per_second=len(times) / seconds,
            p50_milliseconds=percentile(times, 50) * 1000,
            p95_milliseconds=percentile(times, 95) * 1000,
            p99_milliseconds=percentile(times, 99) * 1000,
        )
        for call, times in tally.calls.items()
    ]


def percentile(values: Sequence[float], percent: int) -> float:
    """Return the smallest value that at least ``percent`` of all do not exceed."""
    ordered = sorted(values)
    return ordered[max(0, -(-len(ordered) * percent // 100) - 1)]


# ------------------------------------------------------------------------- medians


def medians(rounds: Iterable[Round]) -> list[Summary]:
    """Return the median of each figure over the rounds of each case on each target."""
    found: dict[tuple[str, Case], list[Round]] = {}
    for each in rounds:
        found.setdefault((each.target, each.case), []).append(each)
    return [_summary(group) for group in found.values()]


def _summary(rounds: Sequence[Round]) -> Summary:
    by_call: dict[str, list[Figures]] = {}
    for figure in itertools.chain.from_iterable(each.figures for each in rounds):
        by_call.setdefault(figure.call, []).append(figure)
    errors: dict[str, int] = {}
    for each in rounds:
        for what, count in each.errors.items():
            errors[what] = errors.get(what, 0) + count
    return Summary(
        target=rounds[0].target,
        case=rounds[0].case,
        figures=[_median(call, group) for call, group in by_call.items()],
        errors=errors,
        load_cpu_seconds=median(each.load_cpu_seconds for each in rounds),
        server=_median_used([each.server for each in rounds]),
        database=_median_used([each.database for each in rounds]),
    )


def _median(call: str, group: Sequence[Figures]) -> Figures:
    def middle(of: Callable[[Figures], float]) -> float:
        return median(of(figure) for figure in group)

    return Figures(
        call=call,
        calls=middle(lambda figure: figure.calls),
        messages=middle(lambda figure: figure.messages),
        messages_per_second=middle(lambda figure: figure.messages_per_second),
        calls_per_second=middle(lambda figure: figure.calls_per_second),
        p50_milliseconds=middle(lambda figure: figure.p50_milliseconds),
        p95_milliseconds=middle(lambda figure: figure.p95_milliseconds),
        p99_milliseconds=middle(lambda figure: figure.p99_milliseconds),
    )


def _median_used(group: Sequence[Used | None]) -> Used | None:
    seen = [used for used in group if used is not None]
    if not seen:
        return None
    return Used(
        processes=max(used.processes for used in seen),
        cpu_seconds=median(used.cpu_seconds for used in seen),
        memory_megabytes=median(used.memory_megabytes for used in seen),
    )


# ---------------------------------------------------------------------- comparison


def compare(rounds: Sequence[Round], target: str, against: str) -> list[Comparison]:
    """Return how a target does against another, case by case and call by call.

    Rounds are paired as they were played, one after the other, so what slows the machine
    down for a while slows both of a pair; the spread is that of the pairs' ratios.
    """
    mine = {(each.case, each.number): each for each in rounds if each.target == target}
    theirs = {(each.case, each.number): each for each in rounds if each.target == against}
    pairs: dict[tuple[Case, str], list[tuple[Figures, Figures]]] = {}
    for key in mine.keys() & theirs.keys():
        others = {figure.call: figure for figure in theirs[key].figures}
        for figure in mine[key].figures:
            if figure.call in others:
                pair = figure, others[figure.call]
                pairs.setdefault((key[0], figure.call), []).append(pair)
    order = list(dict.fromkeys((each.case, f.call) for each in rounds for f in each.figures))
    return [
        comparison
        for case, call in order
        if (case, call) in pairs
        for comparison in _compared(case, call, pairs[case, call])
    ]


def _compared(
    case: Case, call: str, pairs: Sequence[tuple[Figures, Figures]]
) -> Iterable[Comparison]:
    moved = any(figure.messages for pair in pairs for figure in pair)
    rates: Literal["messages_per_second", "calls_per_second"]
    rates = "messages_per_second" if moved else "calls_per_second"
    names: tuple[Literal["messages_per_second", "calls_per_second", "p50_milliseconds"], ...]
    names = (rates, "p50_milliseconds")
    for name in names:
        values = [(getattr(mine, name), getattr(theirs, name)) for mine, theirs in pairs]
        usable = [(mine, theirs) for mine, theirs in values if mine and theirs]
        if not usable:
            continue
        ratios = [mine / theirs for mine, theirs in usable]
        target, against = (median(side) for side in zip(*usable, strict=True))
        yield Comparison(
            case=case,
            call=call,
            figure=name,
            target=target,
            against=against,
            ratio=target / against,
            lowest=min(ratios),
            highest=max(ratios),
        )
