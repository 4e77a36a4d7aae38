"""Holes: the seqs of messages that were deleted one by one, out of the middle of a partition.

Every lane has settled them, those that are made later too, so lag and depth stay arithmetic and
no pop ever meets one. A partition never begins with a hole: what lies before its first stored
message is simply gone.
"""

from __future__ import annotations

from queen_sync.backends.sqlite_connections import MAX_INTEGER, Session
from queen_sync.backends.sqlite_seqs import Seqs


def holes_of(session: Session, partition: int) -> Seqs:
    """Return which seqs behind the first stored message are no longer stored."""
    row = session.row("holes", partition)
    return Seqs() if row is None else Seqs.decode(row[0])


def count_stored(holes: Seqs, first: int, last: int) -> int:
    """Return how many messages are stored from ``first`` to ``last``, both counted."""
    return sum(end - start for start, end in holes.gaps(first, last + 1, MAX_INTEGER))


def begin_partition(session: Session, partition: int, first_seq: int, holes: Seqs) -> int:
    """Write where a partition begins and which holes it has; return where it does.

    Where ``first_seq`` is a hole, that is behind it.
    """
    holes.drop_until(first_seq)
    first_seq = holes.take_head(first_seq)
    session.run("set_first_seq", first_seq, partition)
    if holes:
        session.run("save_holes", partition, holes.encode(), len(holes))
    else:
        session.run("delete_holes", partition)
    return first_seq


def seq_before(session: Session, partition: int, low: int, high: int, instant_us: int) -> int:
    """Return a seq from ``low`` to ``high`` that parts older messages from all others.

    What is stored up to it was created before the instant, what is stored behind it was not:
    created_us never falls along seq, so halving finds it.
    """
    while low < high:
        middle = (low + high + 1) // 2
        row = session.row("first_stored", partition, middle, high)
        if row is not None and row[1] < instant_us:
            low = row[0]
        else:
            high = middle - 1
    return low
