"""Sets of seqs as the list of their edges: ``[1, 101]`` is 1 to 100, ``[1, 5, 6, 9]`` lacks the 5.

A batch of 10,000 is two numbers, and acked whole it goes back to none, in whatever order. The
worst case, every second message settled, costs 16 bytes a message in the lease row. A row per
message would cost 10,000 rows written by each pop; bits relative to the position grow with every
message that is completed past a failing head, for as long as it fails.

Adding what is outside and taking out what is inside are the same step: each of the edges ``seq``
and ``seq + 1`` appears where it was missing and goes where it was.
"""

from __future__ import annotations

import struct
from bisect import bisect_left, bisect_right
from collections.abc import Iterable, Iterator
from itertools import chain

Range = tuple[int, int]
"""The first seq and the one after the last."""


class Seqs:
    """A set of seqs that can be changed."""

    __slots__ = ("edges",)

    def __init__(self, edges: list[int] | None = None) -> None:
        self.edges: list[int] = [] if edges is None else edges

    @classmethod
    def of(cls, ranges: Iterable[Range]) -> Seqs:
        """Return the set of ascending ranges that may touch but do not overlap."""
        edges: list[int] = []
        for first, end in ranges:
            if edges and edges[-1] == first:
                edges[-1] = end
            else:
                edges += (first, end)
        return cls(edges)

    @classmethod
    def decode(cls, blob: bytes | None) -> Seqs:
        """Return the set that `encode` wrote."""
        return cls() if blob is None else cls(list(struct.unpack(f"<{len(blob) // 8}q", blob)))

    def encode(self) -> bytes | None:
        """Return the set as a blob, None where it is empty."""
        return struct.pack(f"<{len(self.edges)}q", *self.edges) if self.edges else None

    def copy(self) -> Seqs:
        return Seqs(self.edges.copy())

    def __contains__(self, seq: int) -> bool:
        return bisect_right(self.edges, seq) % 2 == 1

    def __bool__(self) -> bool:
        return bool(self.edges)

    def __len__(self) -> int:
        return sum(self.edges[1::2]) - sum(self.edges[::2])

    def __iter__(self) -> Iterator[int]:
        return chain.from_iterable(range(first, end) for first, end in self.ranges())

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Seqs) and self.edges == other.edges

    __hash__ = None  # type: ignore[assignment]  # it can be changed

    def __repr__(self) -> str:
        return f"Seqs({self.edges})"

    def ranges(self) -> Iterator[Range]:
        """Yield the ranges of the set, ascending."""
        return zip(self.edges[::2], self.edges[1::2], strict=True)

    def add(self, seq: int) -> None:
        if seq not in self:
            self._flip(seq)

    def discard(self, seq: int) -> None:
        if seq in self:
            self._flip(seq)

    def _flip(self, seq: int) -> None:
        edges = self.edges
        start = stop = bisect_left(edges, seq)
        new = []
        for edge in (seq, seq + 1):
            if stop < len(edges) and edges[stop] == edge:
                stop += 1
            else:
                new.append(edge)
        edges[start:stop] = new

    def take_head(self, seq: int) -> int:
        """Take out the range that begins at ``seq``; return its end, or ``seq`` without one."""
        if not self.edges or self.edges[0] != seq:
            return seq
        end = self.edges[1]
        del self.edges[:2]
        return end

    def drop_until(self, seq: int) -> None:
        """Take out everything below ``seq``."""
        index = bisect_right(self.edges, seq)
        if index % 2:
            index -= 1
            self.edges[index] = seq
        del self.edges[:index]

    def within(self, first: int, end: int) -> Seqs:
        """Return what of the set lies from ``first`` to before ``end``."""
        ranges = ((max(low, first), min(high, end)) for low, high in self.ranges())
        return Seqs.of((low, high) for low, high in ranges if low < high)

    def minus(self, other: Seqs) -> Seqs:
        """Return what is in this set and not in the other."""
        left: list[Range] = []
        for first, end in self.ranges():
            left += other.gaps(first, end, end - first)
        return Seqs.of(left)

    def both(self, other: Seqs) -> Seqs:
        """Return what is in both sets."""
        return self.minus(self.minus(other))

    def gaps(self, first: int, end: int, room: int) -> list[Range]:
        """Return the lowest ``room`` numbers from ``first`` on that are not in the set."""
        found: list[Range] = []
        edges = self.edges
        index = bisect_right(edges, first)
        if index % 2:
            first = edges[index]
            index += 1
        while first < end and room > 0:
            stop = min(end, first + room, edges[index] if index < len(edges) else end)
            found.append((first, stop))
            room -= stop - first
            if index >= len(edges) or stop < edges[index]:
                break
            first = edges[index + 1]
            index += 2
        return found


def together(ranges: Iterable[Range]) -> Seqs:
    """Return the set of ranges in any order, which may overlap."""
    edges: list[int] = []
    for first, end in sorted(ranges):
        if edges and first <= edges[-1]:
            edges[-1] = max(edges[-1], end)
        else:
            edges += (first, end)
    return Seqs(edges)


def united(ranges: Iterable[Range]) -> int:
    """Return how many numbers the ranges, in any order, hold together."""
    count = 0
    reached = 0
    for first, end in sorted(ranges):
        count += max(0, end - max(first, reached))
        reached = max(reached, end)
    return count
