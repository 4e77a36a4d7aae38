"""The routes of the flow: push, pop, ack, extend, transaction."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from functools import partial
from typing import Any
from uuid import uuid4

from queen_sync import errors, model as m, wire
from queen_sync.web import paths
from queen_sync.web.answers import Answer, empty, json_answer
from queen_sync.web.connection import ReceiptedBody, hang_up_check
from queen_sync.web.routing import Route, Routes, with_optional


class Flow(Routes):
    """What producers and consumers call."""

    def table(self) -> Iterable[Route]:
        return (
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
        )

    def _push(self, environ: dict[str, Any], _: list[str]) -> Answer:
        push = wire.decode_push(self._body(environ))
        receipts = self._broker.push(push.items, create=push.create)
        encode = wire.encode_receipts_by_path if push.by_path else wire.encode_receipts
        return json_answer(encode(receipts), 201)

    def _pop_scope(self, environ: dict[str, Any], _: list[str]) -> Answer:
        query = paths.query(environ)
        namespace, task = wire.decode_scope(query)
        return self._pop(environ, *wire.decode_pop(query, namespace=namespace, task=task))

    def _pop_queue(self, environ: dict[str, Any], parameters: list[str]) -> Answer:
        queue, partition = with_optional(parameters)
        query = paths.query(environ)
        return self._pop(environ, *wire.decode_pop(query, queue=queue, partition=partition))

    def _pop_labels(self, environ: dict[str, Any], parameters: list[str]) -> Answer:
        namespace, task = with_optional(parameters)
        query = paths.query(environ)
        wanted = wire.decode_pop(query, namespace=namespace, task=task)
        return self._pop(environ, *wanted, named=partial(wire.path_in, namespace))

    def _pop_dotted(self, environ: dict[str, Any], parameters: list[str]) -> Answer:
        queue = self._queue_at(*parameters)
        wanted = wire.decode_pop(paths.query(environ), queue=queue)
        return self._pop(environ, *wanted, named=lambda _: "/".join(parameters))

    def _queue_at(self, namespace: str, task: str, name: str) -> str:
        """Return the queue that a path of three parts means.

        It is the one of that dotted name; where there is none, one that carries the first two
        parts as labels and the last as its name.
        """
        dotted = wire.dotted_queue(namespace, task, name)
        if "browse" in self._broker.capabilities.features:
            backend = self._broker.backend
            plain = backend.queue(name) if backend.queue(dotted) is None else None
            if plain is not None and (plain.namespace, plain.task) == (namespace, task):
                return name
        return dotted

    def _pop(
        self,
        environ: dict[str, Any],
        request: m.PopRequest,
        wait_seconds: float | None,
        named: Callable[[str], str] = str,
    ) -> Answer:
        """Pop; ``named`` gives the name by which the answer calls a queue."""
        claim = self._broker.pop(request, wait_seconds, hang_up_check(environ))
        if claim:
            body = ReceiptedBody(
                wire.encode_claim(claim, named),
                lambda: self._broker.give_back(claim, request),
            )
            answer = Answer(200, body)
        else:
            answer = empty()
        if claim.subscription_ignored:
            answer.headers.append(("X-Queen-Subscription", "ignored"))
        return answer

    def _ack(self, environ: dict[str, Any], _: list[str]) -> Answer:
        (acked,) = self._broker.ack([wire.decode_ack(self._body(environ))])
        return json_answer(wire.encode_ack(acked, self._clock.now_us()))

    def _ack_batch(self, environ: dict[str, Any], _: list[str]) -> Answer:
        items = wire.decode_acks(self._body(environ))
        acked = iter(self._broker.ack([each for each in items if isinstance(each, m.Ack)]))
        answers = [next(acked) if isinstance(each, m.Ack) else each for each in items]
        return json_answer(wire.encode_acks(answers, self._clock.now_us()))

    def _extend(self, environ: dict[str, Any], parameters: list[str]) -> Answer:
        (lease_id,) = parameters
        m.check_name(lease_id, "leaseId")
        seconds = wire.decode_extend(self._body(environ))
        try:
            expires_us = self._broker.extend(lease_id, seconds)
        except errors.LeaseLost:
            return json_answer(wire.encode_lease_refused(lease_id), 404)
        return json_answer(wire.encode_extended(lease_id, expires_us))

    def _transaction(self, environ: dict[str, Any], _: list[str]) -> Answer:
        transaction = wire.decode_transaction(self._body(environ))
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
