"""The remote backend's view of queues, groups and partitions."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TypeVar

from queen_sync import errors, inspection as i, model as m, stats as s, wire_client
from queen_sync.client.remote_base import API, Remote
from queen_sync.inspection import MAX_PAGE

T = TypeVar("T")


class RemoteResources(Remote):
    """What the server lists.

    A listing of several pages is read page after page: what changes meanwhile may be missing
    or be there twice.
    """

    def queue(self, name: str) -> m.Queue | None:
        self.capabilities.require("browse")
        if not _is_name(name):
            return None
        try:
            response = self._calls.send(
                "GET", *API, "resources", "queues", name, query={"limit": "1"}, reads=True
            )
        except errors.QueueNotFound:
            return None
        return self._calls.read(response, wire_client.decode_queue, reads=True)

    def queues(self) -> Sequence[m.Queue]:
        self.capabilities.require("browse")
        found = self._pages(wire_client.decode_queues, "resources", "queues")
        return sorted(found, key=lambda queue: queue.name)

    def groups(self, queue: str) -> Sequence[m.Group]:
        self.capabilities.require("browse")
        return [
            m.Group(
                queue=stats.queue,
                name=stats.group,
                subscription=stats.subscription,
                created_us=stats.created_us,
                lag=stats.lag,
                leased=stats.leased_count,
            )
            for stats in self._group_stats(None, queue)
        ]

    def partitions(
        self, queue: str, *, limit: int | None = None, offset: int = 0
    ) -> Sequence[i.PartitionState]:
        self.capabilities.require("stats")
        if not _is_name(queue) or limit == 0:
            return []
        try:
            return self._pages(
                lambda body: wire_client.decode_partitions(body, queue),
                "resources",
                "queues",
                queue,
                limit=limit,
                offset=offset,
            )
        except errors.QueueNotFound:
            return []

    def queue_stats(self, queue: str | None = None) -> Sequence[s.QueueStats]:
        self.capabilities.require("stats")
        if queue is not None and not _is_name(queue):
            return []
        query = {} if queue is None else {"queue": queue}
        try:
            response = self._calls.send("GET", *API, "analytics", "queues", query=query, reads=True)
        except errors.QueueNotFound:
            return []
        return self._calls.read(response, wire_client.decode_figures, reads=True)

    def group_stats(
        self, group: str | None = None, queue: str | None = None
    ) -> Sequence[s.GroupStats]:
        self.capabilities.require("stats")
        return self._group_stats(group, queue)

    def _group_stats(self, group: str | None, queue: str | None) -> list[s.GroupStats]:
        given = {"consumerGroup": group, "queue": queue}
        query = {name: value for name, value in given.items() if value is not None}
        if not all(map(_is_name, query.values())):
            return []
        response = self._calls.send("GET", *API, "consumer-groups", query=query, reads=True)
        return self._calls.read(response, wire_client.decode_groups, reads=True)

    def lanes(self, wanted: s.LaneFilter) -> Sequence[s.LaneStats]:
        self.capabilities.require("stats")
        names = (wanted.queue, wanted.group, wanted.partition)
        if not all(name is None or _is_name(name) for name in names):
            return []
        query = wire_client.lane_query(wanted)
        response = self._calls.send("GET", *API, "status", "lanes", query=query, reads=True)
        return self._calls.read(response, wire_client.decode_lanes, reads=True)

    def removals(self, queue: str) -> Sequence[m.Removal]:  # noqa: ARG002  # the contract's
        self._refuse("removals")

    def _pages(
        self,
        decode: Callable[[bytes], tuple[list[T], int]],
        *segments: str,
        limit: int | None = None,
        offset: int = 0,
    ) -> list[T]:
        """Return what a listing holds from ``offset`` on, read page by page."""
        found: list[T] = []
        while True:
            wanted = MAX_PAGE if limit is None else min(MAX_PAGE, limit - len(found))
            query = {"limit": str(wanted), "offset": str(offset + len(found))}
            response = self._calls.send("GET", *API, *segments, query=query, reads=True)
            page, total = self._calls.read(response, decode, reads=True)
            found += page
            if not page or offset + len(found) >= total or len(found) == limit:
                return found


def _is_name(text: str) -> bool:
    """Return whether anything can have that name; the server refuses to look for others."""
    try:
        m.check_name(text, "queue")
    except errors.InvalidRequest:
        return False
    return True
