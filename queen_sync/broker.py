"""What web, command line and embedding programs call: a backend with limits, waits and counters.

The values check themselves (`queen_sync.model`) and the backend keeps its promises; the
broker adds what is a matter of this process: the limits and defaults of its settings, pops
that wait, claims that nobody received, and numbers for the health page.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Mapping, Sequence
from typing import Any

import msgspec

from queen_sync import model as m
from queen_sync.backends.base import Backend, Capabilities
from queen_sync.clock import Clock, SystemClock
from queen_sync.combining import Combiner
from queen_sync.config import Settings
from queen_sync.errors import BackendError, InvalidRequest, LeaseLost, PayloadTooLarge, QueenError
from queen_sync.metering import Meter
from queen_sync.waiting import Abandoned, Waiting

_log = logging.getLogger(__name__)
_DEFAULT_SUBSCRIPTIONS: Mapping[str, m.Subscription] = {"new": m.Subscription(mode="new")}

MAX_FOLDED_ITEMS = 16
"""A call with more messages is worth a commit of its own."""


class Health(msgspec.Struct, frozen=True, kw_only=True):
    """How the process and its store are."""

    healthy: bool
    draining: bool
    uptime_seconds: float
    waiting_count: int
    counters: Mapping[str, int]
    facts: Mapping[str, Any]
    """What the store said of itself; empty where it cannot be reached."""


class Broker:
    """A backend as one process offers it. Safe to share between threads; make it after a fork."""

    def __init__(self, backend: Backend, settings: Settings, clock: Clock | None = None) -> None:
        """Offer a backend; the clock only dates counts and answers, the backend's decides."""
        self.backend = backend
        self.settings = settings
        self._waiting = Waiting(
            backend.next_ready_in, backend.ready_now, limit=settings.max_concurrent_polls
        )
        self._stop_listening = backend.listen(self._waiting.wake)
        self._pushes: Combiner[Sequence[m.NewMessage], list[m.Receipt]] = Combiner(
            backend.push_together,
            backend.push,
            kind=lambda items: items[0].queue,
            lanes=lambda items: frozenset((item.queue, item.partition) for item in items),
        )
        self._acks: Combiner[Sequence[m.Ack], list[m.Acked]] = Combiner(
            backend.ack_together,
            backend.ack,
            kind=lambda _: None,
            lanes=lambda acks: frozenset((ack.partition_id, ack.group) for ack in acks),
        )
        self._default_subscription = _DEFAULT_SUBSCRIPTIONS.get(settings.default_subscription_mode)
        self.clock: Clock = clock or SystemClock()
        self._meter = Meter(self.clock, by_minute="counters" in backend.capabilities.features)
        self._started_at = time.monotonic()
        self._closed = False

    @property
    def capabilities(self) -> Capabilities:
        return self.backend.capabilities

    @property
    def waiting_count(self) -> int:
        """How many pops wait in this process."""
        return self._waiting.count

    def totals(self) -> Mapping[str, int]:
        """Return what happened in this process since it started, by the names of `metering`."""
        return self._meter.totals()

    def drain(self) -> None:
        """End all waits now, with empty claims; later pops take nothing (O-21).

        Everything else goes on: what was popped can still be acked.
        """
        self._waiting.drain()

    def close(self) -> None:
        """Drain, stop the threads and close the backend. Closing twice does no harm."""
        if self._closed:
            return
        self._closed = True
        self._waiting.close()
        self._stop_listening()
        self.flush_counts()
        self.backend.close()

    def flush_counts(self) -> None:
        """Write to the store what was counted since the last time; what fails is tried again.

        It never raises an error of the store: counting must not stand in anybody's way.
        """
        counts = self._meter.take()
        if not counts:
            return
        try:
            self.backend.add_counts(counts)
        except QueenError as error:
            _log.warning("counts were not written and are kept: %s", error.message)
            self._meter.put_back(counts)

    def health(self) -> Health:
        """Make one round trip to the store and say how things are, also where it fails."""
        facts: Mapping[str, Any] = {}
        healthy = True
        try:
            facts = self.backend.check()
        except BackendError as error:
            _log.warning("health: %s", error.message)
            healthy = False
        return Health(
            healthy=healthy,
            draining=self._waiting.draining,
            uptime_seconds=time.monotonic() - self._started_at,
            waiting_count=self._waiting.count,
            counters=self._meter.totals(),
            facts=facts,
        )

    # ------------------------------------------------------------------ catalogue

    def configure(
        self,
        queue: str,
        options: Mapping[str, int | bool] | None = None,
        *,
        namespace: str | None = None,
        task: str | None = None,
    ) -> m.Configured:
        """Create a queue or change it; raises NotSupported for what would have no effect."""
        return self.backend.configure(queue, options, namespace=namespace, task=task)

    def delete_queue(self, name: str) -> bool:
        """Delete a queue with all it holds; False where there was none."""
        m.check_name(name, "queue")
        return self.backend.delete_queue(name)

    # ----------------------------------------------------------------------- flow

    def push(self, items: Sequence[m.NewMessage], *, create: bool = True) -> list[m.Receipt]:
        """Store messages, all or none of them, and return one receipt each."""
        if not items:
            return []
        self._check_batch(items, "items")
        self._check_payloads(items)
        if create and self._folds(items) and len({item.queue for item in items}) == 1:
            receipts = self._pushes.do(items)
        else:
            receipts = self.backend.push(items, create=create)
        self._meter.pushed(receipts)
        return receipts

    def pop(
        self,
        request: m.PopRequest,
        wait_seconds: float | None = 0.0,
        abandoned: Abandoned | None = None,
    ) -> m.Claim:
        """Take what there is, or wait for it; an empty claim when the time is over.

        ``wait_seconds`` None waits as long as the settings say, and never longer than their
        maximum. ``abandoned`` says whether the caller is gone; it is asked right before
        anything is taken, every second of a wait, and once more when something was, which is
        then given back (O-15). Raises Overloaded where too many are waiting, NotSupported for
        a scope or an attempt id that the backend cannot honour.
        """
        if request.namespace is not None or request.task is not None:
            self.capabilities.require("prio")
        if request.attempt_id is not None:
            self.capabilities.require("popretry")
        settings = self.settings
        request, defaulted = self._with_defaults(request)
        if wait_seconds is None:
            wait_seconds = settings.default_timeout_milliseconds / 1000
        wait_seconds = min(wait_seconds, settings.max_timeout_milliseconds / 1000)

        def attempt() -> m.Claim:
            return self._attempt(request, abandoned)

        if wait_seconds > 0:
            claim = self._waiting.pop(request, wait_seconds, attempt, abandoned)
        elif self._waiting.draining or (abandoned is not None and abandoned()):
            claim = m.Claim(group=request.group)
        else:
            claim = attempt()
        self._meter.popped(request, claim)
        if defaulted and claim.subscription_ignored:
            # It asked for nothing, so nothing was ignored.
            claim = msgspec.structs.replace(claim, subscription_ignored=False)
        return claim

    def _with_defaults(self, request: m.PopRequest) -> tuple[m.PopRequest, bool]:
        """Return the request within the limits, and whether it got the default subscription."""
        limit = min(self.settings.max_batch_size, self.capabilities.max_batch)
        if request.max_messages > limit or request.max_partitions > limit:
            request = msgspec.structs.replace(
                request,
                max_messages=min(request.max_messages, limit),
                max_partitions=min(request.max_partitions, limit),
            )
        default = self._default_subscription
        if default is None or request.subscription is not None or request.group == m.QUEUE_MODE:
            return request, False
        return msgspec.structs.replace(request, subscription=default), True

    def _attempt(self, request: m.PopRequest, abandoned: Abandoned | None) -> m.Claim:
        claim = self.backend.pop(request)
        if claim.lease_id is None or request.attempt_id is not None:
            return claim
        if abandoned is not None and abandoned():
            self.give_back(claim, request)
            return m.Claim(group=request.group)
        return claim

    def give_back(self, claim: m.Claim, request: m.PopRequest) -> None:
        """Release a claim whose answer reached nobody, uncharged, as far as that is possible.

        An autoAck claim is settled and stays so, and one with an attempt id is kept: its repeat
        fetches it, and may have done so already over another connection. Without the feature
        ``release``, and when the store fails, the lease runs out as usual.
        """
        if claim.lease_id is None or request.attempt_id is not None:
            return
        if "release" not in self.capabilities.features:
            return
        try:
            self.backend.release(claim.lease_id)
        except LeaseLost:
            return
        except QueenError as error:
            _log.warning("a claim that nobody received was not given back: %s", error.message)
            return
        self._meter.gave_back()

    def ack(self, acks: Sequence[m.Ack]) -> list[m.Acked]:
        """Give messages their outcomes; each item is answered by itself."""
        if not acks:
            return []
        self._check_batch(acks, "acknowledgments")
        if self._folds(acks) and all(ack.partition_id is not None for ack in acks):
            answers = self._acks.do(acks)
        else:
            answers = self.backend.ack(acks)
        self._meter.acked(answers)
        return answers

    def extend(self, lease_id: str, seconds: int | None = None) -> int:
        """Lengthen a live lease and return its new expiry; LeaseLost where it has ended."""
        if seconds is not None and not 1 <= seconds <= m.MAX_LEASE_SECONDS:
            raise InvalidRequest(f"seconds must be 1 to {m.MAX_LEASE_SECONDS}", "seconds")
        return self.backend.extend(lease_id, seconds)

    def release(self, lease_id: str) -> None:
        """Give a whole claim back, uncharged; LeaseLost where its lease has ended."""
        self.backend.release(lease_id)

    def transact(self, transaction: m.Transaction) -> m.Transacted:
        """Apply acks and pushes together or not at all."""
        self._check_batch(transaction.operations, "operations")
        self._check_payloads(
            [each for each in transaction.operations if isinstance(each, m.NewMessage)]
        )
        done = self.backend.transact(transaction)
        self._meter.transacted(done)
        return done

    # --------------------------------------------------------------------- groups

    def subscribe(self, queue: str, group: str, subscription: m.Subscription) -> bool:
        """Register a group as its first pop would; False where it existed and began otherwise."""
        m.check_name(queue, "queue")
        m.check_name(group, "consumerGroup")
        return self.backend.subscribe(queue, group, subscription)

    def delete_group(
        self, group: str, *, queue: str | None = None, keep_subscription: bool = False
    ) -> int:
        """Forget a group's progress; return of how many partitions."""
        m.check_name(group, "consumerGroup")
        if queue is not None:
            m.check_name(queue, "queue")
        return self.backend.delete_group(group, queue=queue, keep_subscription=keep_subscription)

    def restart_subscription(self, group: str, from_us: int) -> int:
        """Set the recorded start of a group; return how many records changed."""
        m.check_name(group, "consumerGroup")
        return self.backend.restart_subscription(group, from_us)

    def seek(self, target: m.Seek) -> int:
        """Move a group's position; return how many partitions were moved."""
        self.capabilities.require("seek")
        return self.backend.seek(target)

    def redrive(self, wanted: m.DeadLetterFilter) -> int:
        """Give dead letters back to their groups; return how many."""
        self.capabilities.require("redrive")
        return self.backend.redrive(wanted)

    def purge(self, wanted: m.DeadLetterFilter) -> int:
        """Delete dead letters for good; return how many."""
        self.capabilities.require("redrive")
        return self.backend.purge(wanted)

    def dead_letters(self, wanted: m.DeadLetterFilter) -> m.DeadLetters:
        """Return a page of dead letters, newest first."""
        return self.backend.dead_letters(wanted)

    # --------------------------------------------------------------------- limits

    def _check_batch(self, batch: Sequence[object], field: str) -> None:
        limit = self.capabilities.max_batch
        if len(batch) > limit:
            raise InvalidRequest(f"{field} holds more than {limit} elements", field)

    def _folds(self, batch: Sequence[object]) -> bool:
        """Whether a call is small enough to share a commit with others that come meanwhile."""
        return self.capabilities.combines and len(batch) <= MAX_FOLDED_ITEMS

    def _check_payloads(self, items: Sequence[m.NewMessage]) -> None:
        limit = self.capabilities.max_payload_bytes
        for item in items:
            if len(item.payload) > limit:
                raise PayloadTooLarge(f"payload is larger than {limit} bytes", "payload")
