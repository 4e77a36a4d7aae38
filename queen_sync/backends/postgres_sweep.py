"""One pass of upkeep, in many small transactions: one bad row holds up no other (O-09).

Any number of processes share a database and each of them sweeps. Every step has a lock that is
tried, never waited for, so that one process at a time does it; the steps that go through the whole
store keep in the database how far they have got, and the next sweep goes on there, whichever
process it is in. So the work of all sweeps together does not grow with the number of processes.
"""

from __future__ import annotations

import logging
from collections.abc import Sequence
from datetime import datetime
from typing import Any

from queen_sync import model as m
from queen_sync.backends.postgres_connections import Connections
from queen_sync.errors import BackendUnavailable, QueenError

log = logging.getLogger(__name__)

ROWS = 1_000
"""How many rows one transaction looks at or removes."""
MAX_CHUNKS = 100
"""How many such chunks of one step a sweep takes on; the next sweep goes on behind them."""
MAX_ROUNDS = 100
"""How often one pass goes back to the same partition."""
MAX_UNAVAILABLE = 3
"""So many rows in one sweep may fail for want of a connection or a lock before it gives up."""
REPAIR_INTERVAL_SECONDS = 600
"""How long after the last look for broken invariants the next one begins."""

_LANES = "select partition_ids, group_ids, more from queen.next_lanes(%s, %s::int4, %s)"
_EXPIRE = "select queen.expire_lease(%s, %s, %s)"
_EVICT = "select queen.evict_old(%s, %s, %s)"
_RETAINED = "select partition_ids, more from queen.next_retained(%s::int4, %s)"
_RETAIN = "select queen.retain(%s, %s::int4, %s)"
_REPAIR = "select repaired, more from queen.repair_some(%s::int4, %s::int4, %s)"


class Sweep:
    """One pass."""

    def __init__(
        self,
        connections: Connections,
        now: datetime | None,
        *,
        repair_interval_seconds: int = REPAIR_INTERVAL_SECONDS,
    ) -> None:
        self._db = connections
        self._now = now
        self._repair_interval_seconds = repair_interval_seconds
        self._unavailable = 0

    def run(self) -> m.SweepReport:
        """Take back expired leases, evict, retain, remove leftovers, and look for broken rows."""
        now = self._now
        expired = self._lanes("expire", _EXPIRE)
        evicted = self._lanes("evict", _EVICT)
        removed = self._retain()
        cleared = self._one("select queen.remove_leftovers(%s::int4)", [ROWS])
        cleared += self._one("select queen.remove_claims(%s::int4)", [ROWS])
        self._one("select queen.forget_removals(%s::int4, %s)", [ROWS, now])
        self._one("select queen.restamp_late(%s::int4, %s)::text", [ROWS, now])
        return m.SweepReport(
            expired=expired,
            evicted=evicted,
            removed=removed,
            cleared=cleared,
            repaired=self._repair(),
        )

    def _lanes(self, step: str, statement: str) -> int:
        """Do something about each lane that the step finds; return the sum of what it says."""
        total = 0
        for _ in range(MAX_CHUNKS):
            row = self._row(_LANES, [step, ROWS, self._now])
            if row is None:
                break
            partitions, groups, more = row
            for lane in zip(partitions, groups, strict=True):
                total += self._one(statement, [*lane, self._now])
            if not more:
                break
        return total

    def _retain(self) -> int:
        total = 0
        for _ in range(MAX_CHUNKS):
            row = self._row(_RETAINED, [ROWS, self._now])
            if row is None:
                break
            partitions, more = row
            for partition in partitions:
                for _ in range(MAX_ROUNDS):
                    gone = self._one(_RETAIN, [partition, ROWS, self._now])
                    total += gone
                    if gone < ROWS:
                        break
            if not more:
                break
        return total

    def _repair(self) -> int:
        total = 0
        for _ in range(MAX_CHUNKS):
            row = self._row(_REPAIR, [ROWS, self._repair_interval_seconds, self._now])
            if row is None:
                break
            repaired, more = row
            total += repaired
            if not more:
                break
        return total

    def _one(self, statement: str, arguments: Sequence[Any]) -> int:
        """Run a statement that counts what it has done; other answers, and failures, are 0."""
        row = self._row(statement, arguments)
        return int(row[0] or 0) if row is not None and isinstance(row[0], int) else 0

    def _row(self, statement: str, arguments: Sequence[Any]) -> tuple[Any, ...] | None:
        """Run one small transaction; None where it failed: the next sweep tries it again."""
        try:
            return self._db.call(lambda cursor: cursor.execute(statement, arguments).fetchone())
        except QueenError as error:
            log.exception("a step of the sweep failed: %s %s", statement, arguments)
            self._unavailable += isinstance(error, BackendUnavailable)
            if self._unavailable >= MAX_UNAVAILABLE:
                raise  # it is not the rows
            return None
