"""The routes about single messages: lists, look-ups, cleanup by hand, and traces."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from contextlib import suppress
from typing import Any

from queen_sync import errors, inspection as i, model as m, wire
from queen_sync.backends.base import Backend
from queen_sync.web import paths
from queen_sync.web.answers import Answer, json_answer
from queen_sync.web.errors import status_of
from queen_sync.web.routing import Handler, Route, Routes, reads

MESSAGE = "/api/v1/messages/*/*"
VERBS = ("retry", "dlq")
"""What is done to a message by a path behind it; also names that a message may have."""
FEW_QUEUES = 10


class Messages(Routes):
    """What operators call about single messages."""

    def table(self) -> Iterable[Route]:
        return (
            *reads("/api/v1/messages", self._list),
            *reads("/api/v1/status/queues/*/messages", self._list_queue),
            *self._of_one_message(),
            # Older clients know a message by its transaction id alone.
            *reads("/api/v1/messages/*", self._show_named),
            ("DELETE", "/api/v1/messages/*", self._named(self._delete)),
            ("POST", "/api/v1/messages/*/retry", self._named(self._retry, dead=True)),
            ("POST", "/api/v1/messages/*/dlq", self._named(self._bury)),
            ("DELETE", "/api/v1/queues/*/clear", self._clear),
            ("DELETE", "/api/v1/resources/queues/*/partitions/*", self._delete_partition),
            ("POST", "/api/v1/traces", self._file_trace),
            *reads("/api/v1/traces/*/*", self._traces),
            *reads("/api/v1/traces/by-name/*", self._traces_named),
            *reads("/api/v1/traces/names", self._trace_names),
        )

    def _of_one_message(self) -> Iterable[Route]:
        """Return the routes of a message in its partition.

        A literal segment goes before a parameter, so a message that is called like one of the
        verbs needs routes of its own.
        """
        for name in (None, *VERBS):
            path = MESSAGE if name is None else f"/api/v1/messages/*/{name}"

            def called(handler: Handler, name: str | None = name) -> Handler:
                if name is None:
                    return handler
                return lambda environ, parameters: handler(environ, [*parameters, name])

            yield from reads(path, called(self._show))
            yield "DELETE", path, called(self._delete)
            yield "POST", f"{path}/retry", called(self._retry)
            yield "POST", f"{path}/dlq", called(self._bury)

    def _backend(self, feature: str) -> Backend:
        """Return the store, which has to offer a feature."""
        self._broker.capabilities.require(feature)
        return self._broker.backend

    # ------------------------------------------------------------------ looking

    def _list(self, environ: dict[str, Any], _: list[str]) -> Answer:
        wanted = wire.decode_message_filter(paths.query(environ), self._clock.now_us())
        page = self._backend("messages").messages(wanted)
        queues = self._queues({message.queue for message in page.items})
        return json_answer(wire.encode_messages(page, queues))

    def _list_queue(self, environ: dict[str, Any], parameters: list[str]) -> Answer:
        (queue,) = parameters
        wanted = wire.decode_queue_messages(paths.query(environ), queue)
        page = self._backend("messages").messages(wanted)
        if not page.items and self._backend("browse").queue(queue) is None:
            raise errors.QueueNotFound("Queue not found")
        return json_answer(wire.encode_queue_messages(page))

    def _show(self, _: dict[str, Any], parameters: list[str]) -> Answer:
        place = wire.decode_place(*parameters)
        return self._shown(self._backend("messages").message(*place))

    def _show_named(self, _: dict[str, Any], parameters: list[str]) -> Answer:
        (transaction_id,) = parameters
        return self._shown(self._find(transaction_id))

    def _shown(self, message: i.StoredMessage | None) -> Answer:
        if message is None:
            raise errors.MessageNotFound("Message not found")
        return json_answer(wire.encode_message(message, self._queue(message.queue)))

    def _queue(self, name: str) -> m.Queue | None:
        """Return a queue where the store can say it; it may be gone by now."""
        if "browse" not in self._broker.capabilities.features:
            return None
        return self._broker.backend.queue(name)

    def _queues(self, names: set[str]) -> Mapping[str, m.Queue]:
        """Return queues by name: a few are asked for by name, many in one call."""
        if len(names) > FEW_QUEUES and "browse" in self._broker.capabilities.features:
            return {queue.name: queue for queue in self._broker.backend.queues()}
        found = (self._queue(name) for name in names)
        return {queue.name: queue for queue in found if queue is not None}

    def _find(self, transaction_id: str) -> i.StoredMessage | None:
        m.check_name(transaction_id, "transactionId")
        return self._backend("messages").message_named(transaction_id)

    def _named(self, handler: Handler, *, dead: bool = False) -> Handler:
        """Return a handler that is told the transaction id alone, of a message or a dead letter."""

        def answer(environ: dict[str, Any], parameters: list[str]) -> Answer:
            (transaction_id,) = parameters
            found: i.StoredMessage | m.DeadLetter | None = self._find(transaction_id)
            if found is None and dead:
                wanted = m.DeadLetterFilter(transaction_id=transaction_id, limit=1)
                found = next(iter(self._broker.dead_letters(wanted).items), None)
            if found is None:
                raise errors.MessageNotFound("Message not found")
            return handler(environ, [found.partition_id, transaction_id])

        return answer

    # ------------------------------------------------------------------ cleanup

    def _delete(self, _: dict[str, Any], parameters: list[str]) -> Answer:
        place = wire.decode_place(*parameters)
        if self._backend("cleanup").delete_message(*place):
            return json_answer(wire.encode_deleted_message(*place))
        missing = errors.MessageNotFound("Message not found")
        return json_answer(wire.encode_nothing_deleted(*place, missing), status_of(missing))

    def _retry(self, environ: dict[str, Any], parameters: list[str]) -> Answer:
        """Give a message's dead letters back, and let it wait for no delay where it failed."""
        partition_id, transaction_id = parameters
        query = paths.query(environ)
        wanted = wire.decode_retry(query, self._body(environ), partition_id, transaction_id)
        place = str(wanted.partition_id), transaction_id
        if not wire.decode_switch(query, "deadLetters", default=True):
            count = self._backend("cleanup").retry_now(*place, wanted.group)
            if not count:
                raise errors.Conflict("Message is not in a failed state")
            return json_answer(wire.encode_retried(*place, count))
        count = self._broker.redrive(wanted)
        if "cleanup" in self._broker.capabilities.features:
            # A dead letter outlives its message, which is no reason to refuse it.
            with suppress(errors.MessageNotFound):
                count += self._broker.backend.retry_now(*place, wanted.group)
        if not count:
            raise errors.MessageNotFound("Message not found or not in a failed state")
        return json_answer(wire.encode_retried(*place, count))

    def _bury(self, environ: dict[str, Any], parameters: list[str]) -> Answer:
        place = wire.decode_place(*parameters)
        group, error = wire.decode_bury(paths.query(environ), self._body(environ))
        count = self._backend("cleanup").bury(*place, group=group, error=error)
        if not count:
            raise errors.Conflict("No group has the message left to settle, or a lease holds it")
        return json_answer(wire.encode_buried(*place, count))

    def _clear(self, environ: dict[str, Any], parameters: list[str]) -> Answer:
        (queue,) = parameters
        place = wire.decode_clear(paths.query(environ), queue)
        return json_answer(wire.encode_cleared(*place, self._backend("cleanup").clear(*place)))

    def _delete_partition(self, _: dict[str, Any], parameters: list[str]) -> Answer:
        queue, partition = parameters
        m.check_name(queue, "queue")
        m.check_name(partition, "partition")
        existed = self._backend("cleanup").delete_partition(queue, partition)
        return json_answer(wire.encode_deleted_partition(queue, partition, existed=existed))

    # ------------------------------------------------------------------- traces

    def _file_trace(self, environ: dict[str, Any], _: list[str]) -> Answer:
        trace = wire.decode_trace(self._body(environ))
        try:
            trace_id = self._backend("traces").add_trace(trace)
        except errors.MessageNotFound as error:
            return json_answer(wire.encode_trace_refused(error), status_of(error))
        return json_answer(wire.encode_trace_filed(trace_id), 201)

    def _traces(self, _: dict[str, Any], parameters: list[str]) -> Answer:
        place = wire.decode_place(*parameters)
        return json_answer(wire.encode_traces(self._backend("traces").traces(*place)))

    def _traces_named(self, environ: dict[str, Any], parameters: list[str]) -> Answer:
        (name,) = parameters
        wanted = wire.decode_trace_filter(paths.query(environ), name)
        page = self._backend("traces").traces_named(wanted)
        return json_answer(wire.encode_named_traces(page, wanted, self._payloads(page)))

    def _payloads(self, page: i.TracePage) -> dict[str, bytes]:
        """Return the payloads of the messages that notes are about, each looked up once."""
        if "messages" not in self._broker.capabilities.features:
            return {}
        places = {record.message_id: record.partition_id for record in page.items}
        found = (self._broker.backend.message(place, name) for name, place in places.items())
        return {message.id: message.payload for message in found if message is not None}

    def _trace_names(self, environ: dict[str, Any], _: list[str]) -> Answer:
        limit, offset = wire.decode_trace_name_page(paths.query(environ))
        backend = self._backend("traces")
        names = backend.trace_names(limit, offset)
        total = backend.count_trace_names()
        return json_answer(wire.encode_trace_names(names, limit, offset, total))
