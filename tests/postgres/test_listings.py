"""What a list of messages by status reads of a long partition: the page, not what lies between."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from queen_sync import inspection as i, model as m
from queen_sync.backends.postgres import PostgresBackend
from tests.databases import TestServer
from tests.postgres.sessions import acks, execute
from tests.postgres.test_plans import EXPLAIN, INDEXED, Watched

QUEUE, LENGTH, BATCH = "long", 20_000, 5_000


@pytest.fixture(scope="module")
def long_dsn(postgres_server: TestServer) -> Iterator[str]:
    """A partition in which one message in a thousand has died, among completed ones."""
    with postgres_server.database(migrated=True) as dsn:
        with PostgresBackend(dsn, migrate=False) as backend:
            for _ in range(LENGTH // BATCH):
                backend.push([m.NewMessage.of(QUEUE, 1) for _ in range(BATCH)])
            for _ in range(LENGTH // BATCH):
                claim = backend.pop(m.PopRequest(queue=QUEUE, group="g", max_messages=BATCH))
                dead, done = acks(claim, "dlq"), acks(claim)
                answers = backend.ack(
                    [dead[n] if n % 1_000 == 999 else done[n] for n in range(BATCH)]
                )
                assert all(answer.ok for answer in answers)
        execute(dsn, "analyze", EXPLAIN)
        yield dsn


def listed(dsn: str, wanted: i.MessageFilter) -> tuple[i.MessagePage, float]:
    """Return a page, and how many messages were read for it, all of them through an index."""
    with PostgresBackend(dsn, migrate=False, pool_size=1) as backend:
        page, plans = Watched(backend).plans(lambda backend: backend.messages(wanted))
    reads = plans.reads("messages")
    assert {node.kind for node in reads} <= INDEXED
    assert "JIT" not in plans.text
    return page, sum(node.rows for node in reads)


@pytest.mark.parametrize("group", [None, "g"])
@pytest.mark.parametrize(("status", "found"), [("dead_letter", 5), ("failed", 0)])
def test_a_rare_status_is_found_without_reading_all_others(
    long_dsn: str, status: i.MessageStatus, found: int, group: str | None
) -> None:
    """QA-6: the messages that it passes over are not read."""
    wanted = i.MessageFilter(queue=QUEUE, status=status, group=group, limit=5)
    page, read_count = listed(long_dsn, wanted)
    assert len(page.items) == found
    assert (page.next_before is not None) == (found > 0)
    assert read_count <= 4 * 6


def test_a_common_status_reads_a_page(long_dsn: str) -> None:
    """QA-6: also where it lies in many pieces."""
    wanted = i.MessageFilter(queue=QUEUE, status="completed", limit=100)
    page, read_count = listed(long_dsn, wanted)
    assert len(page.items) == 100
    assert 100 < read_count <= 4 * 101
