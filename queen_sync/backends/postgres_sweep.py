"""One pass of upkeep, in many small transactions: one bad row holds up no other (O-09)."""

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
"""How many rows of each kind one pass takes on, and how many messages go in one transaction."""
MAX_ROUNDS = 100
"""How often one pass goes back to the same partition."""
MAX_UNAVAILABLE = 3
"""So many rows in one sweep may fail for want of a connection or a lock before it gives up."""

_EXPIRED = "select partition_id, group_id from queen.expired_leases(%s::int4, %s)"
_EXPIRE = "select queen.expire_lease(%s, %s, %s)"
_EVICTABLE = "select partition_id, group_id from queen.evictable(%s::int4, %s)"
_EVICT = "select queen.evict_old(%s, %s, %s)"
_RETAINED = "select queen.retained_partitions(%s)"
_RETAIN = "select queen.retain(%s, %s::int4, %s)"


class Sweep:
    """One pass."""

    def __init__(self, connections: Connections, now: datetime | None) -> None:
        self._db = connections
        self._now = now
        self._unavailable = 0

    def run(self) -> m.SweepReport:
        """Take back expired leases, evict, retain, remove leftovers, and look for broken rows."""
        now = self._now
        expired = evicted = removed = 0
        for row in self._rows(_EXPIRED, [ROWS, now]):
            expired += self._one(_EXPIRE, [*row, now])
        for row in self._rows(_EVICTABLE, [ROWS, now]):
            evicted += self._one(_EVICT, [*row, now])
        for (partition,) in self._rows(_RETAINED, [now]):
            for _ in range(MAX_ROUNDS):
                gone = self._one(_RETAIN, [partition, ROWS, now])
                removed += gone
                if gone < ROWS:
                    break
        cleared = self._one("select queen.remove_leftovers(%s::int4)", [ROWS])
        cleared += self._one("select queen.remove_claims(%s::int4)", [ROWS])
        self._one("select queen.forget_removals(%s::int4, %s)", [ROWS, now])
        self._one("select queen.restamp_late(%s::int4, %s)::text", [ROWS, now])
        repaired = self._one("select queen.repair(%s)", [now])
        return m.SweepReport(
            expired=expired, evicted=evicted, removed=removed, cleared=cleared, repaired=repaired
        )

    def _rows(self, statement: str, arguments: Sequence[Any]) -> list[tuple[Any, ...]]:
        return self._db.call(lambda cursor: cursor.execute(statement, arguments).fetchall())

    def _one(self, statement: str, arguments: Sequence[Any]) -> int:
        """Run one step, and go on to the next where it fails; the next sweep tries it again."""
        try:
            row = self._db.call(lambda cursor: cursor.execute(statement, arguments).fetchone())
        except QueenError as error:
            log.exception("a step of the sweep failed: %s %s", statement, arguments)
            self._unavailable += isinstance(error, BackendUnavailable)
            if self._unavailable >= MAX_UNAVAILABLE:
                raise  # it is not the rows
            return 0
        return int(row[0] or 0) if row is not None and isinstance(row[0], int) else 0
