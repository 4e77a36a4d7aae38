"""The routes that manage queues, groups and dead letters, and those about the server."""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping
from typing import Any

from queen_sync import __version__, errors, model as m, wire
from queen_sync.backends.base import OPTION_FEATURE
from queen_sync.web import paths
from queen_sync.web.answers import Answer, json_answer
from queen_sync.web.errors import of_queen_error
from queen_sync.web.routing import Route, Routes, reads, with_optional


class Admin(Routes):
    """What operators call to change something."""

    def table(self) -> Iterable[Route]:
        return (
            *reads("/health", self._health),
            *reads("/api/v1/capabilities", self._capabilities),
            ("POST", "/api/v1/configure", self._configure),
            ("DELETE", "/api/v1/resources/queues/*", self._delete_queue),
            *reads("/api/v1/dlq", self._dead_letters),
            ("DELETE", "/api/v1/dlq", self._purge),
            ("POST", "/api/v1/dlq/redrive", self._redrive),
            ("DELETE", "/api/v1/consumer-groups/*", self._delete_group),
            ("DELETE", "/api/v1/consumer-groups/*/queues/*", self._delete_group),
            ("POST", "/api/v1/consumer-groups/*/subscription", self._restart),
            ("POST", "/api/v1/consumer-groups/*/queues/*/seek", self._seek),
            ("POST", "/api/v1/consumer-groups/*/queues/*/partitions/*/seek", self._seek),
        )

    def _configure(self, environ: dict[str, Any], _: list[str]) -> Answer:
        wanted = wire.decode_configure(self._body(environ))
        try:
            done = self._broker.configure(
                wanted.queue, wanted.options, namespace=wanted.namespace, task=wanted.task
            )
        except errors.NotSupported as error:
            # The request is wrong for this server, and the answer says where.
            answer = of_queen_error(error, _option_of(error.feature, wanted.options))
            answer.status = 400
            return answer
        return json_answer(wire.encode_configured(done, by_path=wanted.by_path), 201)

    def _delete_queue(self, _: dict[str, Any], parameters: list[str]) -> Answer:
        (queue,) = parameters
        existed = self._broker.delete_queue(queue)
        return json_answer(wire.encode_deleted_queue(queue, existed=existed))

    def _delete_group(self, environ: dict[str, Any], parameters: list[str]) -> Answer:
        group, queue = with_optional(parameters)
        forget = wire.decode_switch(paths.query(environ), "deleteMetadata", default=True)
        count = self._broker.delete_group(group, queue=queue, keep_subscription=not forget)
        return json_answer(wire.encode_deleted_group(group, queue, count, metadata_deleted=forget))

    def _restart(self, environ: dict[str, Any], parameters: list[str]) -> Answer:
        (group,) = parameters
        from_us = wire.decode_restart(self._body(environ))
        count = self._broker.restart_subscription(group, from_us)
        return json_answer(wire.encode_restarted(group, from_us, count))

    def _seek(self, environ: dict[str, Any], parameters: list[str]) -> Answer:
        group, queue, *partition = parameters
        body = self._body(environ)
        target = wire.decode_seek(body, group, queue, partition[0] if partition else None)
        return json_answer(wire.encode_sought(target, self._broker.seek(target)))

    def _redrive(self, environ: dict[str, Any], _: list[str]) -> Answer:
        wanted = wire.decode_dead_letter_choice(paths.query(environ), self._body(environ))
        return json_answer(wire.encode_count(self._broker.redrive(wanted)))

    def _purge(self, environ: dict[str, Any], _: list[str]) -> Answer:
        wanted = wire.decode_dead_letter_choice(paths.query(environ), self._body(environ))
        return json_answer(wire.encode_count(self._broker.purge(wanted)))

    def _dead_letters(self, environ: dict[str, Any], _: list[str]) -> Answer:
        wanted = wire.decode_dead_letter_filter(paths.query(environ), self._settings.max_batch_size)
        return json_answer(wire.encode_dead_letters(self._broker.dead_letters(wanted), wanted))

    def _capabilities(self, _: dict[str, Any], __: list[str]) -> Answer:
        offered = self._broker.capabilities
        body = wire.encode_capabilities(
            features=offered.features,
            durable=offered.durable,
            shared=offered.shared,
            max_batch=offered.max_batch,
            max_payload_bytes=min(offered.max_payload_bytes, self._settings.max_body_bytes),
            clock_resolution_us=offered.clock_resolution_us,
            version=__version__,
        )
        return json_answer(body)

    def _health(self, _: dict[str, Any], __: list[str]) -> Answer:
        health = self._broker.health()
        body = wire.encode_health(
            healthy=health.healthy,
            version=__version__,
            worker_id=os.getpid(),
            uptime_seconds=health.uptime_seconds,
            draining=health.draining,
            stats={**health.counters, "waiting": health.waiting_count},
            facts=health.facts,
        )
        return json_answer(body, 200 if health.healthy else 503)


def _option_of(feature: str, options: Mapping[str, int | bool]) -> str | None:
    """Return the wire's name of the option that asks for a feature."""
    for name, value in options.items():
        if OPTION_FEATURE.get(name) == feature and value != m.OPTION_DEFAULTS[name]:
            return wire.OPTION_NAMES[name]
    return None
