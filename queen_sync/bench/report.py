"""The tables of a document, written from result files between two marks."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path

from queen_sync.bench.plan import LoadError
from queen_sync.bench.results import Result, Summary
from queen_sync.bench.tables import (
    COMPARED,
    HEADINGS,
    about_errors,
    about_load,
    about_machine,
    compared,
    named,
    rows,
    used,
)

BEGIN, END = "<!-- figures: begin -->", "<!-- figures: end -->"


def write(document: Path, results: Sequence[Result]) -> None:
    """Replace what stands between the marks of a document by the tables of some results."""
    try:
        text = document.read_text()
    except OSError as error:
        raise LoadError(f"cannot read {document}: {error}") from error
    before, begin, rest = text.partition(BEGIN)
    _, end, after = rest.partition(END)
    if not begin or not end:
        raise LoadError(f"{document} has no place for figures: {BEGIN} … {END}")
    document.write_text(f"{before}{begin}\n\n{markdown(results)}\n{end}{after}")


def markdown(results: Sequence[Result]) -> str:
    """Return the tables of some results in Markdown."""
    return "\n".join(line for result in results for line in _lines(result))


def _lines(result: Result) -> Iterator[str]:
    heading = "###" if result.title is None else "####"
    if result.title is not None:
        yield f"### {result.title}"
        yield ""
    for line in about_machine(result.machine, result.calibration):
        yield f"{_sentence(line)}  "
    yield f"{_sentence(about_load(result))}  "
    yield f"queen-sync {result.version}, {result.measured_at[:10]}."
    yield ""
    for target in result.targets:
        summaries = [each for each in result.medians if each.target == target]
        yield f"{heading} {target}"
        yield ""
        yield from _table(HEADINGS, rows(summaries))
        yield from _usage(summaries)
        errors = list(about_errors(summaries))
        yield from (f"- {line}" for line in errors)
        if errors:
            yield ""
    if result.comparisons:
        yield f"{heading} {result.targets[0]} (A) against {result.targets[1]} (B)"
        yield ""
        yield from _table(COMPARED, compared(result.comparisons))


def _usage(summaries: Iterable[Summary]) -> Iterator[str]:
    lines = [
        [named(each.case), f"{each.load_cpu_seconds:.1f}", used(each.server), used(each.database)]
        for each in summaries
    ]
    yield from _table(("work", "CPU s of the load", "server", "database"), lines)


def _table(headings: Sequence[str], lines: Iterable[Sequence[str]]) -> Iterator[str]:
    yield f"| {' | '.join(headings)} |"
    yield f"|{' --- |' * len(headings)}"
    for line in lines:
        yield f"| {' | '.join(line)} |"
    yield ""


def _sentence(line: str) -> str:
    return f"{line[0].upper()}{line[1:]}."
