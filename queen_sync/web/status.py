"""The routes that show how things go: status pages, leases, and figures over time."""

from __future__ import annotations

import os
import socket
from collections.abc import Iterable
from typing import Any

from queen_sync import stats as s, wire
from queen_sync.inspection import MAX_PAGE
from queen_sync.web import paths
from queen_sync.web.answers import Answer, json_answer
from queen_sync.web.routing import Route, reads, with_optional
from queen_sync.web.views import Views


class Status(Views):
    """What dashboards draw."""

    def table(self) -> Iterable[Route]:
        return (
            *reads("/api/v1/status", self._status),
            *reads("/api/v1/status/queues", self._queues),
            *reads("/api/v1/status/queues/*", self._queue),
            *reads("/api/v1/status/analytics", self._series),
            *reads("/api/v1/status/buffers", self._buffers),
            *reads("/api/v1/status/leases", self._leases),
            *reads("/api/v1/status/lanes", self._lanes),
            *reads("/api/v1/analytics", self._figures),
            *reads("/api/v1/analytics/queues", self._figures),
            *reads("/api/v1/analytics/queue/*", self._queue_figures),
            *reads("/api/v1/analytics/ns/*", self._label_figures),
            *reads("/api/v1/analytics/ns/*/task/*", self._label_figures),
            *reads("/api/v1/analytics/queue-depths", self._depths),
            *reads("/api/v1/analytics/throughput", self._throughput),
            *reads("/api/v1/analytics/queue-lag", self._queue_lag),
            *reads("/api/v1/analytics/queue-stats", self._queue_stats),
        )

    # ---------------------------------------------------------------------- status

    def _status(self, environ: dict[str, Any], _: list[str]) -> Answer:
        query = paths.query(environ)
        choice = wire.decode_choice(query)
        span = wire.decode_span(query, self._clock.now_us())
        rows = self._chosen(choice)
        names = {queue.name for queue, _ in rows}
        groups = [g for g in self._backend.group_stats(queue=choice.queue) if g.queue in names]
        buckets = self._counts(choice, span, span.bucket_minutes)
        return json_answer(wire.encode_status(span, buckets, rows, groups, self._worker()))

    def _worker(self) -> wire.Worker:
        totals = self._broker.totals()
        return wire.Worker(
            worker_id=os.getpid(),
            hostname=socket.gethostname(),
            free_slots=max(0, self._settings.max_concurrent_polls - self._broker.waiting_count),
            message_count=totals["pushed"] + totals["popped"] + totals["acked"],
        )

    def _queues(self, environ: dict[str, Any], _: list[str]) -> Answer:
        query = paths.query(environ)
        page = wire.decode_page(query, 100)
        rows = self._rows(wire.decode_choice(query))
        part = rows[page.offset : page.offset + page.limit]
        return json_answer(wire.encode_queues(part, page, len(rows)))

    def _queue(self, environ: dict[str, Any], parameters: list[str]) -> Answer:
        (name,) = parameters
        page = wire.decode_page(paths.query(environ))
        queue, stats = self._row(name)
        partitions = self._backend.partitions(name, limit=page.limit, offset=page.offset)
        return json_answer(wire.encode_queue_status(queue, stats, partitions, page))

    def _series(self, environ: dict[str, Any], _: list[str]) -> Answer:
        query = paths.query(environ)
        interval, minutes = wire.decode_interval(query)
        span = wire.decode_span(query, self._clock.now_us(), wire.DAY)
        buckets = self._counts(wire.decode_choice(query), span, minutes)
        return json_answer(wire.encode_series(buckets, interval, span))

    def _buffers(self, _: dict[str, Any], __: list[str]) -> Answer:
        return json_answer(wire.encode_buffers(os.getpid(), healthy=self._broker.health().healthy))

    def _leases(self, environ: dict[str, Any], _: list[str]) -> Answer:
        query = paths.query(environ)
        choice, page = wire.decode_choice(query), wire.decode_page(query, 100)
        now_us = self._clock.now_us()
        rows = self._chosen(choice)
        first = s.LaneFilter(queue=choice.queue, leased=True, order="expiry", limit=MAX_PAGE)
        soonest = self._backend.lanes(first)
        leases = soonest[: page.limit]
        if page.offset:
            wanted = s.LaneFilter(
                queue=choice.queue,
                leased=True,
                order="expiry",
                limit=page.limit,
                offset=page.offset,
            )
            leases = self._backend.lanes(wanted)
        span = wire.Span(now_us - wire.HOUR, now_us)
        counts = s.total([each.counts for each in self._counts(choice, span, 60)])
        return json_answer(wire.encode_leases(leases, soonest, rows, counts, page, now_us))

    def _lanes(self, environ: dict[str, Any], _: list[str]) -> Answer:
        wanted = wire.decode_lanes(paths.query(environ))
        page = wire.Page(wanted.limit, wanted.offset)
        return json_answer(wire.encode_lanes(self._backend.lanes(wanted), page))

    # ------------------------------------------------------------------- analytics

    def _figures(self, environ: dict[str, Any], _: list[str]) -> Answer:
        rows = self._chosen(wire.decode_choice(paths.query(environ)))
        return json_answer(wire.encode_all_figures(rows))

    def _queue_figures(self, _: dict[str, Any], parameters: list[str]) -> Answer:
        (name,) = parameters
        return json_answer(wire.encode_figures(*self._row(name)))

    def _label_figures(self, _: dict[str, Any], parameters: list[str]) -> Answer:
        namespace, task = with_optional(parameters)
        rows = self._rows(wire.Choice(namespace=namespace, task=task))
        return json_answer(wire.encode_all_figures(rows, as_paths=True))

    def _depths(self, environ: dict[str, Any], _: list[str]) -> Answer:
        rows = self._chosen(wire.decode_choice(paths.query(environ)))
        return json_answer(wire.encode_depths(rows))

    def _throughput(self, environ: dict[str, Any], _: list[str]) -> Answer:
        query = paths.query(environ)
        span = wire.decode_span(query, self._clock.now_us())
        buckets = self._counts(wire.decode_choice(query), span, span.bucket_minutes)
        return json_answer(wire.encode_throughput(buckets, span.bucket_minutes))

    def _queue_lag(self, environ: dict[str, Any], _: list[str]) -> Answer:
        query = paths.query(environ)
        span = wire.decode_span(query, self._clock.now_us())
        choice = wire.decode_choice(query)
        buckets = self._counts(choice, span, span.bucket_minutes, by_queue=True)
        return json_answer(wire.encode_queue_lag(buckets))

    def _queue_stats(self, environ: dict[str, Any], _: list[str]) -> Answer:
        query = paths.query(environ)
        # This one route has other names for its span, and takes the usual ones too.
        named = {"from": query.get("fromDateTime", ""), "to": query.get("toDateTime", "")}
        given = {name: value for name, value in named.items() if value}
        span = wire.decode_span({**query, **given}, self._clock.now_us())
        choice = wire.decode_choice(query)
        counts = [each.counts for each in self._counts(choice, span, span.bucket_minutes)]
        rows = self._chosen(choice)
        return json_answer(wire.encode_queue_stats(rows, s.total(counts), span))
