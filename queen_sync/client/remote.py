"""A queen-sync server somewhere else, as a backend."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any
from uuid import uuid4

import httpx

from queen_sync import errors, model as m, wire_client
from queen_sync.backends.base import Hint
from queen_sync.client.calls import Calls
from queen_sync.client.claims import HandedOut
from queen_sync.client.failures import of_body
from queen_sync.client.remote_base import API
from queen_sync.client.remote_messages import RemoteMessages
from queen_sync.client.remote_resources import RemoteResources

POLL_MARGIN_SECONDS = 5.0
"""How much longer than the server a waiting pop waits: an answer just in time must arrive."""


class RemoteBackend(RemoteMessages, RemoteResources):
    """The `Backend` contract over HTTP, as far as the wire carries it.

    Safe to share between threads; connections are pooled. Nothing is tried twice: an error
    says whether the call may have happened, and the caller decides. The features are those
    that the server offers and the wire can carry: no browsing, no handing over of a clock.
    """

    def __init__(
        self,
        base_url: str,
        *,
        transport: httpx.BaseTransport | None = None,
        timeout_seconds: float = 30.0,
        connect_timeout_seconds: float = 5.0,
        max_connections: int = 100,
        max_remembered: int = 100_000,
    ) -> None:
        """Point to the server at ``base_url``; no call is made yet.

        ``max_connections`` bounds the calls in flight, waiting pops included; a call that
        finds none free within ``timeout_seconds`` is BackendUnavailable.
        ``max_remembered`` bounds the messages of handed-out claims that are kept so that
        `release` can give them back.
        """
        self._calls = Calls(
            base_url,
            transport=transport,
            timeout_seconds=timeout_seconds,
            connect_timeout_seconds=connect_timeout_seconds,
            max_connections=max_connections,
        )
        self._handed_out = HandedOut(max_remembered)

    def close(self) -> None:
        self._calls.close()

    def check(self) -> Mapping[str, Any]:
        response = self._calls.send("GET", "health", reads=True)
        return self._calls.read(response, wire_client.decode_health, reads=True)

    # ------------------------------------------------------------------ catalogue

    def configure(
        self,
        queue: str,
        options: Mapping[str, int | bool] | None = None,
        *,
        namespace: str | None = None,
        task: str | None = None,
    ) -> m.Configured:
        wanted = self.capabilities.check_configure(queue, options, namespace, task)
        body = wire_client.encode_configure(queue, wanted, namespace, task)
        response = self._calls.send("POST", *API, "configure", body=body)
        return self._calls.read(response, wire_client.decode_configured)

    def delete_queue(self, name: str) -> bool:
        m.check_name(name, "queue")
        self.capabilities.require("delete")
        response = self._calls.send("DELETE", *API, "resources", "queues", name)
        return self._calls.read(response, wire_client.decode_deleted)

    # ----------------------------------------------------------------------- flow

    def push(self, items: Sequence[m.NewMessage], *, create: bool = True) -> list[m.Receipt]:
        if not items:
            return []
        body = wire_client.encode_push(items, create=create)
        response = self._calls.send("POST", *API, "push", body=body)
        return self._calls.read(response, lambda text: wire_client.decode_receipts(text, items))

    def pop(self, request: m.PopRequest) -> m.Claim:
        return self.pop_waiting(request, 0.0)

    def pop_waiting(self, request: m.PopRequest, wait_seconds: float) -> m.Claim:
        """Pop, and let the server wait up to ``wait_seconds`` for something to give.

        The server caps the wait at its own limit. An empty claim means that it ran out.
        """
        segments = [*API, "pop"]
        if request.namespace is not None or request.task is not None:
            self.capabilities.require("prio")
        else:
            segments += ["queue", request.queue]
        if request.partition is not None:
            segments += ["partition", request.partition]
        if request.attempt_id is not None:
            self.capabilities.require("popretry")
        response = self._calls.send(
            "GET",
            *segments,
            query=wire_client.pop_query(request, wait_seconds),
            read_timeout_seconds=(wait_seconds + POLL_MARGIN_SECONDS if wait_seconds > 0 else None),
        )
        ignored = response.headers.get("X-Queen-Subscription") == "ignored"
        claim = self._calls.read(
            response, lambda text: wire_client.decode_claim(text, request, ignored=ignored)
        )
        self._handed_out.remember(claim)
        return claim

    def ack(self, acks: Sequence[m.Ack]) -> list[m.Acked]:
        if not acks:
            return []
        body = wire_client.encode_acks(acks)
        response = self._calls.send("POST", *API, "ack", "batch", body=body)
        answers = self._calls.read(response, lambda text: wire_client.decode_acked(text, acks))
        self._note_ended(acks, answers)
        return answers

    def extend(self, lease_id: str, seconds: int | None = None) -> int:
        self.capabilities.require("extend")
        body = wire_client.encode_extend(seconds)
        try:
            response = self._calls.send("POST", *API, "lease", lease_id, "extend", body=body)
        except errors.NotFound as error:
            raise errors.LeaseLost(str(error)) from error
        expires = self._calls.read(response, wire_client.decode_extended)
        if isinstance(expires, str):
            raise errors.LeaseLost(expires)
        return expires

    def release(self, lease_id: str) -> None:
        """Give the unsettled messages of a live lease back, uncharged, and end it.

        The wire has no call for it, so each message that this client received under the
        lease is acked with ``retry``. A lease that it does not remember is LeaseLost.
        """
        self.capabilities.require("release")
        acks = self._handed_out.give_back(lease_id)
        if not acks:
            raise errors.LeaseLost("Invalid or expired lease: this client holds no such claim")
        answers = self.ack(acks)
        self._handed_out.forget(lease_id)
        if not any(answer.ok and not answer.already for answer in answers):
            raise errors.LeaseLost("Invalid or expired lease")

    def transact(self, transaction: m.Transaction) -> m.Transacted:
        self.capabilities.require("txn")
        body = wire_client.encode_transaction(transaction)
        response = self._calls.send("POST", *API, "transaction", body=body)
        done = self._calls.read(
            response, lambda text: wire_client.decode_transacted(text, transaction)
        )
        if done is None:
            raise of_body(response.content)
        self._note_ended(transaction.operations, done.results)
        return done

    # --------------------------------------------------------------------- groups

    def subscribe(self, queue: str, group: str, subscription: m.Subscription) -> bool:
        """Register the group as its first pop would; False where it existed and began otherwise.

        It is such a pop: of a partition that nobody has, so that it can take nothing.
        """
        nowhere = f"__nowhere-{uuid4()}"
        claim = self.pop(
            m.PopRequest(queue=queue, group=group, partition=nowhere, subscription=subscription)
        )
        return not claim.subscription_ignored

    def delete_group(
        self, group: str, *, queue: str | None = None, keep_subscription: bool = False
    ) -> int:
        m.check_name(group, "consumerGroup")
        self.capabilities.require("delete")
        segments = [*API, "consumer-groups", group]
        if queue is not None:
            m.check_name(queue, "queue")
            segments += ["queues", queue]
        query = {"deleteMetadata": "false" if keep_subscription else "true"}
        response = self._calls.send("DELETE", *segments, query=query)
        return self._calls.read(response, wire_client.decode_group_deleted)

    def restart_subscription(self, group: str, from_us: int) -> int:
        m.check_name(group, "consumerGroup")
        body = wire_client.encode_restart(from_us)
        response = self._calls.send(
            "POST", *API, "consumer-groups", group, "subscription", body=body
        )
        return self._calls.read(response, wire_client.decode_restarted)

    def seek(self, target: m.Seek) -> int:
        self.capabilities.require("seek")
        segments = [*API, "consumer-groups", target.group, "queues", target.queue]
        if target.partition is not None:
            segments += ["partitions", target.partition]
        body = wire_client.encode_seek(target)
        response = self._calls.send("POST", *segments, "seek", body=body)
        return self._calls.read(response, wire_client.decode_sought)

    # --------------------------------------------------------- upkeep and wake-ups

    def sweep(self) -> m.SweepReport:
        self._refuse("sweep")

    def next_ready_in(self, request: m.PopRequest) -> float | None:  # noqa: ARG002  # the contract's
        self._refuse("next_ready_in")

    def listen(self, callback: Callable[[Hint], None]) -> Callable[[], None]:  # noqa: ARG002  # the contract's
        self._refuse("listen")

    def _note_ended(
        self,
        operations: Sequence[m.Ack | m.NewMessage],
        answers: Sequence[m.Acked | m.Receipt],
    ) -> None:
        """Forget the leases that acks have ended: nothing of them can be given back."""
        self._handed_out.ended(
            {
                (ack.lease_id, ack.partition_id)
                for ack, answer in zip(operations, answers, strict=True)
                if isinstance(ack, m.Ack) and isinstance(answer, m.Acked)
                if answer.lease_released and ack.lease_id and ack.partition_id
            }
        )
