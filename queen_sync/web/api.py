"""The routes: what a request asks the broker, and how its answer is written."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from typing import Any
from uuid import uuid4

import flask
from werkzeug.exceptions import HTTPException, MethodNotAllowed, RequestEntityTooLarge

from queen_sync import __version__, errors, model as m, wire
from queen_sync.backends.base import OPTION_FEATURE
from queen_sync.broker import Broker
from queen_sync.clock import Clock, SystemClock
from queen_sync.config import Settings
from queen_sync.web import paths
from queen_sync.web.connection import ReceiptedBody, hang_up_check
from queen_sync.web.errors import json_answer, of_queen_error

Handler = Callable[[dict[str, Any], list[str]], flask.Response]


class Api:
    """Answers requests for the paths under ``/api/v1`` and for ``/health``."""

    def __init__(self, broker: Broker, settings: Settings, clock: Clock | None = None) -> None:
        """Answer for a broker; the clock only dates answers, the backend's decides."""
        self._broker = broker
        self._settings = settings
        self._clock = clock or SystemClock()
        self._table = paths.Table[Handler]()
        for method, pattern, handler in (
            ("GET", "/health", self._health),
            ("HEAD", "/health", self._health),
            ("GET", "/api/v1/capabilities", self._capabilities),
            ("HEAD", "/api/v1/capabilities", self._capabilities),
            ("POST", "/api/v1/configure", self._configure),
            ("DELETE", "/api/v1/resources/queues/*", self._delete_queue),
            ("POST", "/api/v1/push", self._push),
            # No HEAD here: a pop takes messages (C-14).
            ("GET", "/api/v1/pop", self._pop_scope),
            ("GET", "/api/v1/pop/queue/*", self._pop_queue),
            ("GET", "/api/v1/pop/queue/*/partition/*", self._pop_queue),
            # The same three as older clients ask for them.
            ("GET", "/api/v1/pop/ns/*", self._pop_labels),
            ("GET", "/api/v1/pop/ns/*/task/*", self._pop_labels),
            ("GET", "/api/v1/pop/ns/*/task/*/queue/*", self._pop_dotted),
            ("POST", "/api/v1/ack", self._ack),
            ("POST", "/api/v1/ack/batch", self._ack_batch),
            ("POST", "/api/v1/lease/*/extend", self._extend),
            ("POST", "/api/v1/transaction", self._transaction),
            ("GET", "/api/v1/dlq", self._dead_letters),
            ("HEAD", "/api/v1/dlq", self._dead_letters),
            ("DELETE", "/api/v1/dlq", self._purge),
            ("POST", "/api/v1/dlq/redrive", self._redrive),
            ("POST", "/api/v1/messages/*/*/retry", self._retry),
            ("DELETE", "/api/v1/consumer-groups/*", self._delete_group),
            ("DELETE", "/api/v1/consumer-groups/*/queues/*", self._delete_group),
            ("POST", "/api/v1/consumer-groups/*/subscription", self._restart),
            ("POST", "/api/v1/consumer-groups/*/queues/*/seek", self._seek),
            ("POST", "/api/v1/consumer-groups/*/queues/*/partitions/*/seek", self._seek),
        ):
            self._table.add(method, pattern, handler)

    def answer(self) -> flask.Response | None:
        """Answer the request at hand; None where its path is none of ours."""
        environ = flask.request.environ
        method = environ["REQUEST_METHOD"]
        if method == "OPTIONS":
            return _empty()
        found = self._table.find(paths.segments(environ))
        if found is None:
            return None
        methods, parameters = found
        handler = methods.get(method)
        if handler is None:
            raise MethodNotAllowed(valid_methods=list(methods))
        return handler(environ, parameters)

    # ------------------------------------------------------------------ catalogue

    def _configure(self, _: dict[str, Any], __: list[str]) -> flask.Response:
        wanted = wire.decode_configure(self._body())
        try:
            done = self._broker.configure(
                wanted.queue, wanted.options, namespace=wanted.namespace, task=wanted.task
            )
        except errors.NotSupported as error:
            # The request is wrong for this server, and the answer says where.
            answer = of_queen_error(error, _option_of(error.feature, wanted.options))
            answer.status_code = 400
            return answer
        return json_answer(wire.encode_configured(done), 201)

    def _delete_queue(self, _: dict[str, Any], parameters: list[str]) -> flask.Response:
        (queue,) = parameters
        existed = self._broker.delete_queue(queue)
        return json_answer(wire.encode_deleted_queue(queue, existed=existed))

    # ----------------------------------------------------------------------- flow

    def _push(self, _: dict[str, Any], __: list[str]) -> flask.Response:
        items, create = wire.decode_push(self._body())
        receipts = self._broker.push(items, create=create)
        return json_answer(wire.encode_receipts(receipts), 201)

    def _pop_scope(self, environ: dict[str, Any], _: list[str]) -> flask.Response:
        query = paths.query(environ)
        namespace, task = wire.decode_scope(query)
        return self._pop(environ, *wire.decode_pop(query, namespace=namespace, task=task))

    def _pop_queue(self, environ: dict[str, Any], parameters: list[str]) -> flask.Response:
        queue, partition = _with_optional(parameters)
        query = paths.query(environ)
        return self._pop(environ, *wire.decode_pop(query, queue=queue, partition=partition))

    def _pop_labels(self, environ: dict[str, Any], parameters: list[str]) -> flask.Response:
        namespace, task = _with_optional(parameters)
        query = paths.query(environ)
        return self._pop(environ, *wire.decode_pop(query, namespace=namespace, task=task))

    def _pop_dotted(self, environ: dict[str, Any], parameters: list[str]) -> flask.Response:
        queue = wire.dotted_queue(*parameters)
        return self._pop(environ, *wire.decode_pop(paths.query(environ), queue=queue))

    def _pop(
        self, environ: dict[str, Any], request: m.PopRequest, wait_seconds: float | None
    ) -> flask.Response:
        claim = self._broker.pop(request, wait_seconds, hang_up_check(environ))
        if claim:
            body = wire.encode_claim(claim)
            answer = flask.Response(
                ReceiptedBody(body, lambda: self._broker.give_back(claim, request)),
                content_type="application/json",
            )
            answer.content_length = len(body)
        else:
            answer = _empty()
        if claim.subscription_ignored:
            answer.headers["X-Queen-Subscription"] = "ignored"
        return answer

    def _ack(self, _: dict[str, Any], __: list[str]) -> flask.Response:
        (acked,) = self._broker.ack([wire.decode_ack(self._body())])
        return json_answer(wire.encode_ack(acked, self._clock.now_us()))

    def _ack_batch(self, _: dict[str, Any], __: list[str]) -> flask.Response:
        items = wire.decode_acks(self._body())
        acked = iter(self._broker.ack([each for each in items if isinstance(each, m.Ack)]))
        answers = [next(acked) if isinstance(each, m.Ack) else each for each in items]
        return json_answer(wire.encode_acks(answers, self._clock.now_us()))

    def _extend(self, _: dict[str, Any], parameters: list[str]) -> flask.Response:
        (lease_id,) = parameters
        m.check_name(lease_id, "leaseId")
        seconds = wire.decode_extend(self._body())
        try:
            expires_us = self._broker.extend(lease_id, seconds)
        except errors.LeaseLost:
            return json_answer(wire.encode_lease_refused(lease_id), 404)
        return json_answer(wire.encode_extended(lease_id, expires_us))

    def _transaction(self, _: dict[str, Any], __: list[str]) -> flask.Response:
        transaction = wire.decode_transaction(self._body())
        name = str(uuid4())
        try:
            done = self._broker.transact(transaction)
        except (errors.Conflict, errors.NotFound, errors.QueueFull) as error:
            return json_answer(wire.encode_transaction_refused(name, transaction.operations, error))
        except errors.InvalidRequest as error:
            if error.index is None:
                raise
            # Sound by itself, but not for the state that it met (an ambiguous name).
            return json_answer(wire.encode_transaction_refused(name, transaction.operations, error))
        return json_answer(wire.encode_transacted(name, done, self._clock.now_us()))

    # ----------------------------------------------------------- groups, dead letters

    def _delete_group(self, environ: dict[str, Any], parameters: list[str]) -> flask.Response:
        group, queue = _with_optional(parameters)
        forget = wire.decode_switch(paths.query(environ), "deleteMetadata", default=True)
        count = self._broker.delete_group(group, queue=queue, keep_subscription=not forget)
        return json_answer(wire.encode_deleted_group(group, queue, count, metadata_deleted=forget))

    def _restart(self, _: dict[str, Any], parameters: list[str]) -> flask.Response:
        (group,) = parameters
        from_us = wire.decode_restart(self._body())
        count = self._broker.restart_subscription(group, from_us)
        return json_answer(wire.encode_restarted(group, from_us, count))

    def _seek(self, _: dict[str, Any], parameters: list[str]) -> flask.Response:
        group, queue, *partition = parameters
        target = wire.decode_seek(self._body(), group, queue, partition[0] if partition else None)
        return json_answer(wire.encode_sought(target, self._broker.seek(target)))

    def _redrive(self, environ: dict[str, Any], _: list[str]) -> flask.Response:
        wanted = wire.decode_dead_letter_choice(paths.query(environ), self._body())
        return json_answer(wire.encode_count(self._broker.redrive(wanted)))

    def _purge(self, environ: dict[str, Any], _: list[str]) -> flask.Response:
        wanted = wire.decode_dead_letter_choice(paths.query(environ), self._body())
        return json_answer(wire.encode_count(self._broker.purge(wanted)))

    def _retry(self, environ: dict[str, Any], parameters: list[str]) -> flask.Response:
        partition_id, transaction_id = parameters
        query = paths.query(environ)
        wanted = wire.decode_retry(query, self._body(), partition_id, transaction_id)
        if not self._broker.redrive(wanted):
            raise errors.MessageNotFound("Message not found or not in a failed state")
        return json_answer(wire.encode_retried(partition_id, transaction_id))

    def _dead_letters(self, environ: dict[str, Any], _: list[str]) -> flask.Response:
        wanted = wire.decode_dead_letter_filter(paths.query(environ), self._settings.max_batch_size)
        return json_answer(wire.encode_dead_letters(self._broker.dead_letters(wanted), wanted))

    # --------------------------------------------------------------------- server

    def _body(self) -> bytes:
        """Return the whole body of the request."""
        try:
            body = flask.request.get_data(cache=False)
        except HTTPException:
            raise
        except Exception as error:
            # Each server has its own exceptions for a body that breaks off or is framed wrong.
            raise errors.InvalidRequest("the body could not be read", "body") from error
        if len(body) > self._settings.max_body_bytes:
            raise RequestEntityTooLarge
        return body

    def _capabilities(self, _: dict[str, Any], __: list[str]) -> flask.Response:
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

    def _health(self, _: dict[str, Any], __: list[str]) -> flask.Response:
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


def _with_optional(parameters: list[str]) -> tuple[str, str | None]:
    """Return the parameters of a path whose second one may be missing."""
    first, *second = parameters
    return first, second[0] if second else None


def _empty() -> flask.Response:
    answer = flask.Response(status=204)
    del answer.headers["Content-Type"]
    return answer
