"""Which cases a run is about: a level is a set of groups of cases, by their letters."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

LEVELS: Mapping[str, str] = {
    "core": "A B C D E J01",
    "queue": "A B C D E F H J01 L08",
    "bus": "G",
    "full": "A B C D E F G H I J L08",
    "wire": "L03",
    "stress": "J",
}
"""Groups of cases, and single ones, by level.

``core`` is what a queue cannot do without; ``queue`` adds retries, dead letters and the options of
a queue; ``bus`` is about consumer groups, ``stress`` about many threads, ``wire`` about HTTP
itself; ``full`` is everything else.
"""


def includes(levels: Iterable[str], case: str) -> bool:
    """Return whether one of the levels contains a case, named by its id."""
    return any(case[:1] in parts or case in parts for parts in map(str.split, _parts(levels)))


def _parts(levels: Iterable[str]) -> Iterable[str]:
    return (LEVELS[level] for level in levels)
