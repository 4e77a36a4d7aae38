"""Queues as rows: made, changed and read, and what the server says of itself."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime
from typing import Any

import msgspec

from queen_sync import model as m
from queen_sync.backends.postgres_connections import Cursor
from queen_sync.backends.postgres_rows import OPTION_COLUMNS, QUEUE_COLUMNS, queue_of
from queen_sync.errors import BackendUnavailable

QUEUE = f"select {QUEUE_COLUMNS} from queen.queues q where q.deleted_at is null"
QUEUE_NAMED = f"{QUEUE} and q.name = %s"
QUEUES = f"{QUEUE} order by q.name"
_QUEUE_LOCKED = f"{QUEUE_NAMED} for no key update of q"
_SET_OPTIONS = (
    f"update queen.queues q set ({', '.join(OPTION_COLUMNS)}) = (select "
    f"{', '.join('o.' + name for name in OPTION_COLUMNS)}"
    " from json_populate_record(null::queen.queues, %s::json) o),"
    " sealed = q.sealed or (%s::json->>'encryption_enabled')::boolean,"
    " namespace = %s, task = %s, configured_at = coalesce(%s, clock_timestamp()) where q.id = %s"
)
_FACTS = (
    "select current_setting('server_version'), current_setting('fsync'),"
    " current_setting('full_page_writes'), current_setting('synchronous_commit'),"
    " current_setting('max_connections')::int, pg_is_in_recovery(),"
    " (select u.found_count from queen.upkeep u where u.step = 'repair'),"
    " (select coalesce(max(extract(epoch from clock_timestamp() - a.xact_start)), 0)::int"
    " from pg_stat_activity a where a.backend_xmin is not null and a.pid <> pg_backend_pid()"
    " and a.datname = current_database()),"
    " (select coalesce(sum(t.n_dead_tup), 0)::bigint from pg_stat_user_tables t"
    " where t.schemaname = 'queen' and t.relname in ('partitions', 'partition_leases'))"
)
OLD_SNAPSHOT_SECONDS = 60
"""From this age on a transaction is worth a warning: what it may see cannot be cleared away."""
MAX_TRIES = 5
"""How often a queue is made again that somebody else deletes meanwhile."""
_TIMING = {"delayed_processing_seconds", "window_buffer_seconds"}


def facts(cursor: Cursor) -> Mapping[str, Any]:
    """Return what matters of the server's settings, and warnings where one can lose messages."""
    row = cursor.execute(_FACTS).fetchone()
    assert row is not None
    names = ("version", "fsync", "full_page_writes", "synchronous_commit")
    found: dict[str, Any] = dict(zip(names, row, strict=False))
    found["max_connections"], in_recovery, found["repaired"] = row[4:7]
    found["oldest_snapshot_seconds"], found["dead_rows"] = row[7:]
    found["warnings"] = [
        f"{name} is off: a message that was acknowledged can be lost"
        for name in names[1:]
        if found[name] == "off"
    ]
    if in_recovery:
        found["warnings"].append("this server is a standby and cannot write")
    if found["oldest_snapshot_seconds"] >= OLD_SNAPSHOT_SECONDS:
        found["warnings"].append(
            f"a transaction has been open for {found['oldest_snapshot_seconds']} s:"
            " until it ends pops become slower"
        )
    if found["repaired"]:
        found["warnings"].append(
            f"{found['repaired']} broken invariants were found and repaired so far: report this"
        )
    return found


def configure(
    cursor: Cursor,
    queue: str,
    asked: Mapping[str, int | bool],
    namespace: str | None,
    task: str | None,
    now: datetime | None,
) -> tuple[m.Configured, int]:
    """Make a queue or change it (C-11); return what was done, and the queue's number."""
    for _ in range(MAX_TRIES):
        cursor.execute("select queen.make_queue(%s, %s, %s, %s)", [queue, now, namespace, task])
        made = cursor.fetchone()
        row = cursor.execute(_QUEUE_LOCKED, [queue]).fetchone()
        if row is not None:  # else somebody deleted it between the two
            break
    else:
        raise BackendUnavailable("the queue keeps being deleted")
    assert made is not None
    before = queue_of(row)
    after = msgspec.structs.replace(
        before,
        options=msgspec.structs.replace(before.options, **asked),
        namespace=before.namespace if namespace is None else namespace,
        task=before.task if task is None else task,
    )
    settings = msgspec.json.encode(after.options).decode()
    cursor.execute(_SET_OPTIONS, [settings, settings, after.namespace, after.task, now, row[0]])
    changes = _changes(before, after)
    if changes.keys() & _TIMING:
        cursor.execute("select queen.restamp(%s, %s)", [row[0], now])
    return m.Configured(queue=after, created=made[0], changes=changes), row[0]


def _changes(before: m.Queue, after: m.Queue) -> dict[str, m.Change]:
    old = {
        "namespace": before.namespace,
        "task": before.task,
        **msgspec.structs.asdict(before.options),
    }
    new = {
        "namespace": after.namespace,
        "task": after.task,
        **msgspec.structs.asdict(after.options),
    }
    return {name: m.Change(old=old[name], new=new[name]) for name in new if old[name] != new[name]}
