"""The remote backend's calls about single messages, dead letters, cleanup and traces."""

from __future__ import annotations

from collections.abc import Sequence

from queen_sync import errors, ids, inspection as i, model as m, wire_client
from queen_sync.client.remote_base import API, Remote


class RemoteMessages(Remote):
    """What is asked about messages, and done to them by hand."""

    # --------------------------------------------------------------- dead letters

    def dead_letters(self, wanted: m.DeadLetterFilter) -> m.DeadLetters:
        self.capabilities.require("dlq")
        query = wire_client.dead_letter_query(wanted)
        response = self._calls.send("GET", *API, "dlq", query=query, reads=True)
        return self._calls.read(response, wire_client.decode_dead_letters, reads=True)

    def redrive(self, wanted: m.DeadLetterFilter) -> int:
        self.capabilities.require("redrive")
        body = wire_client.dead_letter_body(wanted)
        response = self._calls.send("POST", *API, "dlq", "redrive", body=body)
        return self._calls.read(response, wire_client.decode_count)

    def purge(self, wanted: m.DeadLetterFilter) -> int:
        self.capabilities.require("redrive")
        # Not in the body: on its way somebody may drop that of a DELETE, and all filters with it.
        query = wire_client.dead_letter_filters(wanted)
        response = self._calls.send("DELETE", *API, "dlq", query=query)
        return self._calls.read(response, wire_client.decode_count)

    # ------------------------------------------------------------------- messages

    def message(self, partition_id: str, transaction_id: str) -> i.StoredMessage | None:
        self.capabilities.require("messages")
        if not _is_place(partition_id, transaction_id):
            return None
        return self._read_message(partition_id, transaction_id)

    def message_named(self, transaction_id: str) -> i.StoredMessage | None:
        self.capabilities.require("messages")
        return self._read_message(transaction_id) if _is_name(transaction_id) else None

    def _read_message(self, *segments: str) -> i.StoredMessage | None:
        try:
            response = self._calls.send("GET", *API, "messages", *segments, reads=True)
        except errors.MessageNotFound:
            return None
        return self._calls.read(response, wire_client.decode_message, reads=True)

    def messages(self, wanted: i.MessageFilter) -> i.MessagePage:
        self.capabilities.require("messages")
        query = wire_client.message_query(wanted)
        response = self._calls.send("GET", *API, "messages", query=query, reads=True)
        return self._calls.read(response, wire_client.decode_messages, reads=True)

    # -------------------------------------------------------------------- cleanup

    def delete_message(self, partition_id: str, transaction_id: str) -> bool:
        self.capabilities.require("cleanup")
        if not _is_place(partition_id, transaction_id):
            return False
        try:
            self._calls.send("DELETE", *API, "messages", partition_id, transaction_id)
        except errors.MessageNotFound:
            return False
        return True

    def bury(
        self,
        partition_id: str,
        transaction_id: str,
        group: str | None = None,
        error: str | None = None,
    ) -> int:
        reason = None if error is None else m.storable(error)
        body = wire_client.encode_by_hand(group, reason)
        return self._by_hand("dlq", partition_id, transaction_id, body)

    def retry_now(self, partition_id: str, transaction_id: str, group: str | None = None) -> int:
        body = wire_client.encode_by_hand(group)
        # Left alone: what is dead is given back with `redrive`.
        return self._by_hand("retry", partition_id, transaction_id, body, {"deadLetters": "false"})

    def _by_hand(
        self,
        verb: str,
        partition_id: str,
        transaction_id: str,
        body: bytes,
        query: dict[str, str] | None = None,
    ) -> int:
        self.capabilities.require("cleanup")
        if not _is_place(partition_id, transaction_id):
            raise errors.MessageNotFound("Message not found")
        segments = (*API, "messages", partition_id, transaction_id, verb)
        try:
            response = self._calls.send("POST", *segments, query=query, body=body)
        except errors.Conflict:
            return 0
        return self._calls.read(response, wire_client.decode_count)

    def clear(self, queue: str, partition: str | None = None) -> int:
        self.capabilities.require("cleanup")
        m.check_name(queue, "queue")
        query = None
        if partition is not None:
            m.check_name(partition, "partition")
            query = {"partition": partition}
        response = self._calls.send("DELETE", *API, "queues", queue, "clear", query=query)
        return self._calls.read(response, wire_client.decode_count)

    def delete_partition(self, queue: str, partition: str) -> bool:
        self.capabilities.require("cleanup")
        m.check_name(queue, "queue")
        m.check_name(partition, "partition")
        segments = (*API, "resources", "queues", queue, "partitions", partition)
        response = self._calls.send("DELETE", *segments)
        return self._calls.read(response, wire_client.decode_deleted)

    # --------------------------------------------------------------------- traces

    def add_trace(self, trace: i.Trace) -> str:
        """File a note about a stored message; return the note's id. Raises MessageNotFound.

        One without a group arrives as that of consumers without one.
        """
        self.capabilities.require("traces")
        if not _is_place(trace.partition_id, trace.transaction_id):
            raise errors.MessageNotFound("Message not found")
        body = wire_client.encode_trace(trace)
        response = self._calls.send("POST", *API, "traces", body=body)
        return self._calls.read(response, wire_client.decode_trace_filed)

    def traces(self, partition_id: str, transaction_id: str) -> Sequence[i.TraceRecord]:
        self.capabilities.require("traces")
        if not _is_place(partition_id, transaction_id):
            return []
        response = self._calls.send("GET", *API, "traces", partition_id, transaction_id, reads=True)
        return self._calls.read(response, wire_client.decode_traces, reads=True).items

    def traces_named(self, wanted: i.TraceFilter) -> i.TracePage:
        self.capabilities.require("traces")
        m.check_name(wanted.name, "traceName")
        segments = (*API, "traces", "by-name", wanted.name)
        query = wire_client.trace_query(wanted)
        response = self._calls.send("GET", *segments, query=query, reads=True)
        return self._calls.read(response, wire_client.decode_traces, reads=True)

    def trace_names(self, limit: int = 100, offset: int = 0) -> Sequence[i.TraceName]:
        return self._trace_names(limit, offset)[0]

    def count_trace_names(self) -> int:
        return self._trace_names(1, 0)[1]

    def _trace_names(self, limit: int, offset: int) -> tuple[Sequence[i.TraceName], int]:
        self.capabilities.require("traces")
        i.check_page(limit, offset)
        query = wire_client.page_query(limit, offset)
        response = self._calls.send("GET", *API, "traces", "names", query=query, reads=True)
        return self._calls.read(response, wire_client.decode_trace_names, reads=True)


def _is_name(text: str) -> bool:
    """Return whether a message could have the name: what no path can say names none."""
    try:
        m.check_name(text, "transactionId")
    except errors.InvalidRequest:
        return False
    return True


def _is_place(partition_id: str, transaction_id: str) -> bool:
    """Return whether a message could be there; a server refuses what is no partition's id."""
    return ids.number(partition_id) is not None and _is_name(transaction_id)
