"""The routes that list what there is: queues, partitions, namespaces, tasks and groups."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from itertools import islice
from typing import Any

from queen_sync import errors, inspection as i, model as m, stats as s, wire
from queen_sync.inspection import MAX_PAGE
from queen_sync.web import paths
from queen_sync.web.answers import Answer, json_answer
from queen_sync.web.routing import Route, reads
from queen_sync.web.views import Views

RECENT_MINUTES = 5
"""Over how many whole minutes the throughput of the overview is told."""


class Resources(Views):
    """What operators and dashboards look at."""

    def table(self) -> Iterable[Route]:
        return (
            *reads("/api/v1/resources/queues", self._queues),
            *reads("/api/v1/resources/queues/*", self._queue),
            *reads("/api/v1/resources/partitions", self._partitions),
            *reads("/api/v1/resources/namespaces", self._namespaces),
            *reads("/api/v1/resources/tasks", self._tasks),
            *reads("/api/v1/resources/overview", self._overview),
            *reads("/api/v1/consumer-groups", self._groups),
            *reads("/api/v1/consumer-groups/lagging", self._lagging),
            *reads("/api/v1/consumer-groups/*", self._group),
            ("POST", "/api/v1/stats/refresh", self._refresh),
        )

    # ---------------------------------------------------------------------- queues

    def _queues(self, environ: dict[str, Any], _: list[str]) -> Answer:
        query = paths.query(environ)
        page, search = wire.decode_page(query), wire.decode_search(query)
        rows = [row for row in self._rows(wire.decode_choice(query)) if _matches(row[0], search)]
        rows.sort(key=lambda row: row[0].created_us, reverse=True)
        part = rows[page.offset : page.offset + page.limit]
        return json_answer(wire.encode_queues(part, page, len(rows)))

    def _queue(self, environ: dict[str, Any], parameters: list[str]) -> Answer:
        (name,) = parameters
        page = wire.decode_page(paths.query(environ))
        queue, stats = self._row(name)
        partitions = self._backend.partitions(name, limit=page.limit, offset=page.offset)
        return json_answer(wire.encode_queue(queue, stats, partitions, page))

    def _partitions(self, environ: dict[str, Any], _: list[str]) -> Answer:
        query = paths.query(environ)
        choice, page = wire.decode_choice(query), wire.decode_page(query)
        least = wire.decode_number(query, "minDepth", 0)
        found = self._deep(self._chosen(choice), least)
        part = islice(found, page.offset, page.offset + page.limit)
        return json_answer(wire.encode_partitions(part))

    def _deep(
        self, rows: Iterable[tuple[m.Queue, s.QueueStats]], least: int
    ) -> Iterator[tuple[m.Queue, i.PartitionState]]:
        """Yield the partitions of queues in which so much waits, reading no more than is asked."""
        for queue, stats in rows:
            if stats.waiting_count < least:
                continue
            for offset in range(0, stats.partition_count, MAX_PAGE):
                for state in self._backend.partitions(queue.name, limit=MAX_PAGE, offset=offset):
                    if state.waiting_count >= least:
                        yield queue, state

    def _namespaces(self, _: dict[str, Any], __: list[str]) -> Answer:
        labels: dict[str, list[s.QueueStats]] = {}
        for queue, stats in self._rows(wire.Choice()):
            if queue.namespace:
                labels.setdefault(queue.namespace, []).append(stats)
        return json_answer(wire.encode_labels("namespaces", "namespace", labels))

    def _tasks(self, _: dict[str, Any], __: list[str]) -> Answer:
        labels: dict[str, list[s.QueueStats]] = {}
        for queue, stats in self._rows(wire.Choice()):
            if queue.task:
                labels.setdefault(queue.task, []).append(stats)
        return json_answer(wire.encode_labels("tasks", "task", labels))

    def _overview(self, _: dict[str, Any], __: list[str]) -> Answer:
        now_us = self._clock.now_us()
        rows = self._rows(wire.Choice())
        # The minute that has just begun would make every rate too low.
        end_us = s.minute_of(now_us) - 1
        span = wire.Span(end_us + 1 - RECENT_MINUTES * s.MINUTE, end_us)
        recent = s.total([each.counts for each in self._counts(wire.Choice(), span, 1)])
        body = wire.encode_overview(
            [queue for queue, _ in rows],
            [stats for _, stats in rows],
            self._backend.group_stats(),
            recent,
            RECENT_MINUTES,
            now_us,
        )
        return json_answer(body)

    def _refresh(self, _: dict[str, Any], __: list[str]) -> Answer:
        self._broker.flush_counts()
        return json_answer(wire.encode_refreshed(len(self._backend.queue_stats())))

    # ---------------------------------------------------------------------- groups

    def _groups(self, environ: dict[str, Any], _: list[str]) -> Answer:
        group, queue = wire.decode_group_choice(paths.query(environ))
        found = self._backend.group_stats(group, queue)
        return json_answer(wire.encode_groups(found, self._clock.now_us()))

    def _group(self, environ: dict[str, Any], parameters: list[str]) -> Answer:
        (group,) = parameters
        m.check_name(group, "consumerGroup")
        page = wire.decode_page(paths.query(environ))
        queues = [stats.queue for stats in self._backend.group_stats(group)]
        if not queues:
            raise errors.GroupNotFound(f"Consumer group '{group}' not found")
        wanted = s.LaneFilter(group=group, limit=page.limit, offset=page.offset)
        lanes = self._backend.lanes(wanted)
        return json_answer(wire.encode_group(lanes, queues, self._clock.now_us()))

    def _lagging(self, environ: dict[str, Any], _: list[str]) -> Answer:
        now_us = self._clock.now_us()
        wanted = wire.decode_lagging(paths.query(environ), now_us)
        return json_answer(wire.encode_lagging(self._backend.lanes(wanted), now_us))


def _matches(queue: m.Queue, search: str) -> bool:
    texts = (queue.name, queue.namespace, queue.task)
    return any(search in text.casefold() for text in texts)
