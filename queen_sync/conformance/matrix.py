"""Which cases there are to be: how many ids each group began with, and what stands elsewhere.

A number that no case of the suite has is listed here with the reason; later cases go on counting.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping

GROUPS: Mapping[str, int] = {
    "A": 12,  # one call at a time
    "B": 11,  # payloads and names
    "C": 8,  # duplicates
    "D": 13,  # leases and acks
    "E": 11,  # expiry and fencing
    "F": 14,  # retries and dead letters
    "G": 12,  # groups and where they begin
    "H": 13,  # limits, delays, windows, ages, priorities; later: what can be looked at
    "I": 6,  # transactions
    "J": 14,  # many at once
    "L": 9,  # what only a server has
}
"""How many ids each group of cases began with."""
ELSEWHERE: Mapping[str, str] = {
    "B11": "names shown by a page: a page is no part of the interface that the suite speaks",
    "L01": "bodies and queries without sense, in tests/web/test_fuzz.py and "
    "tests/web/test_nasty_queries.py: what a server calls wrong is its own choice",
    "L02": "names full of SQL are in B08, queries in tests/web/test_nasty_queries.py",
    "L04": "limits of bodies and headers, in tests/web/test_transport.py: they are settings",
    "L05": "more connections than threads, in tests/system/test_keep_alive.py: how many there "
    "are is a setting",
    "L06": "signing in: no part of the interface that the suite speaks",
    "L07": "roles: no part of it either",
    "L09": "what a server writes into its log is not seen from outside: "
    "tests/web/test_transport.py",
}
"""Ids that no case of the suite has, and why."""


def ids() -> Iterator[str]:
    """Yield the ids that each group began with."""
    for letter, count in GROUPS.items():
        yield from (f"{letter}{number:02}" for number in range(1, count + 1))
