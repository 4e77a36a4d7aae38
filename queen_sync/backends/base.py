"""The contract between queen-sync and a store: what every backend owes its callers.

Numbers such as C-03 are those of `queen_sync/conformance/CONTRACT.md`; the conformance suite
proves each of them. Every operation is one atomic step: it has happened whole when it
returns, and has changed nothing when it raises (`OutcomeUnknown` aside). All methods may be
called from many threads at once. Values are checked when they are made (`queen_sync.model`),
so a backend sees none that could not be stored.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable, Mapping, Sequence
from types import TracebackType
from typing import Any, Self, TypeVar

import msgspec

from queen_sync import inspection as i, model as m
from queen_sync.backends.messages import SingleMessages
from queen_sync.backends.stats import Statistics
from queen_sync.errors import NotSupported

T = TypeVar("T")

FEATURES: Mapping[str, str] = {
    "extend": "lengthen a lease",
    "release": "give a whole claim back, uncharged",
    "sub_new": "a group that begins with what is pushed from now on",
    "sub_from": "a group that begins at a time",
    "delete": "delete queues and consumer groups",
    "dlq": "list dead letters",
    "browse": "look up queues and groups",
    "stats": "look into partitions: what they hold, and where each group stands",
    "counters": "keep counts of what happened by the minute",
    "messages": "look up stored messages, alone and in lists, with their states",
    "cleanup": "delete single messages and partitions, clear queues, dead-letter by hand",
    "traces": "file notes about messages and find them again",
    "txn": "acks and pushes that happen together",
    "retrydelay": "option retry_delay_milliseconds",
    "delay": "option delayed_processing_seconds",
    "window": "option window_buffer_seconds",
    "cap": "option max_queue_size",
    "prio": "pops over a namespace or task, and option priority",
    "popretry": "attempt ids: a repeated pop gives the same claim",
    "seek": "move a group's position",
    "redrive": "give dead letters back to their group, or purge them",
    "evict": "options ttl_seconds and max_wait_seconds",
    "retention": "options retention_enabled, retention_seconds, completed_retention_seconds",
    "spread": "option spread_partitions",
    "enc": "option encryption_enabled",
    "clock": "lets the caller hand over the clock that decides",
}
"""Everything that a backend may offer or not, by name; what is not listed is owed by all."""

OPTION_FEATURE: Mapping[str, str] = {
    "retry_delay_milliseconds": "retrydelay",
    "delayed_processing_seconds": "delay",
    "window_buffer_seconds": "window",
    "max_queue_size": "cap",
    "priority": "prio",
    "ttl_seconds": "evict",
    "max_wait_seconds": "evict",
    "retention_enabled": "retention",
    "retention_seconds": "retention",
    "completed_retention_seconds": "retention",
    "spread_partitions": "spread",
    "encryption_enabled": "enc",
}

Hint = frozenset[str] | None
"""Names of queues that may have something to pop; None: any may."""


class Capabilities(msgspec.Struct, frozen=True, kw_only=True):
    """What a backend can do. Production code, the wire and the tests read the same object."""

    features: frozenset[str]
    durable: bool = False
    """A push that was answered survives the end of the process."""
    combines: bool = False
    """Calls made together cost much less than one by one: each alone pays for a commit."""
    shared: bool = False
    """Several processes may serve from it at once."""
    max_batch: int = 10_000
    max_payload_bytes: int = 16 * 1024 * 1024
    clock_resolution_us: int = 1

    def require(self, feature: str) -> None:
        """Raise NotSupported where the feature is missing."""
        if feature not in self.features:
            what = FEATURES.get(feature, feature)
            raise NotSupported(f"this backend does not offer: {what} ({feature})", feature)

    def plus(self, feature: str) -> Capabilities:
        """Return these with one feature more."""
        return msgspec.structs.replace(self, features=self.features | {feature})

    def check_configure(
        self,
        queue: str,
        options: Mapping[str, int | bool] | None,
        namespace: str | None,
        task: str | None,
    ) -> dict[str, int | bool]:
        """Return the options of a configure, or refuse it: as no backend could take it, or this."""
        m.check_queue_name(queue)
        named = dict(options or {})
        for name, value in named.items():
            m.check_option(name, value)
        self.check_options(named)
        for label, field in ((namespace, "namespace"), (task, "task")):
            if label:
                m.check_name(label, field)
        return named

    def check_options(self, options: Mapping[str, int | bool]) -> None:
        """Raise NotSupported for an option set to something that would have no effect."""
        for name, value in options.items():
            feature = OPTION_FEATURE.get(name)
            if feature is not None and value != m.OPTION_DEFAULTS[name]:
                self.require(feature)


class Backend(SingleMessages, Statistics):
    """A store of queues. Closing it is idempotent; a closed one is not used again."""

    capabilities: Capabilities

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()

    @abstractmethod
    def close(self) -> None:
        """Let go of connections and threads."""

    @abstractmethod
    def check(self) -> Mapping[str, Any]:
        """Make one round trip to the store and return facts about it for a health page.

        Raises BackendUnavailable. The mapping holds plain JSON values; ``warnings``, where
        present, is a list of sentences for the operator.
        """

    # ------------------------------------------------------------------ catalogue

    @abstractmethod
    def configure(
        self,
        queue: str,
        options: Mapping[str, int | bool] | None = None,
        *,
        namespace: str | None = None,
        task: str | None = None,
    ) -> m.Configured:
        """Create the queue with its ``Default`` partition, or change it (C-11).

        ``options`` maps names of `QueueOptions` to values; what it does not name keeps its
        value, on a new queue its default. ``namespace`` and ``task``: None keeps, ``""``
        clears; a new queue with a dotted name takes them from its first two parts when
        both are None.
        Raises InvalidRequest (unknown option, bad value, reserved name), NotSupported (an
        option that this backend cannot honour).
        """

    @abstractmethod
    def queue(self, name: str) -> m.Queue | None:
        """Return the queue, or None. Needs ``browse``."""

    @abstractmethod
    def queues(self) -> Sequence[m.Queue]:
        """Return all queues, by name. Needs ``browse``."""

    @abstractmethod
    def delete_queue(self, name: str) -> bool:
        """Delete the queue with all it holds; the name is free at once (C-16, G11).

        Groups, leases, dead letters and subscriptions of it go too: acks of its messages are
        MessageNotFound. Returns False where there was none. Needs ``delete``.
        """

    # ----------------------------------------------------------------------- flow

    @abstractmethod
    def push(self, items: Sequence[m.NewMessage], *, create: bool = True) -> list[m.Receipt]:
        """Store the messages and return one receipt each, in their order.

        Queues and partitions are made on first use (``create`` False: QueueNotFound for a
        missing queue). All or nothing. Within a partition, seq follows the order of the
        items and the order of the calls: when one push was answered before another began,
        its seqs are lower; seqs have no gaps (INV-ORDER). A transaction id that the partition
        already stores, also one of this call, makes the item a duplicate: nothing is stored
        and the receipt is that of the first (INV-DEDUP, C-16). A server-given message id
        sent back as a transaction id to its own partition is a duplicate too.
        No items: no receipts. Payloads of an encrypted queue are sealed before they are stored,
        and a message of one that its caller did not name is given a transaction id (INV-ENCRYPT).
        Raises QueueFull (C-06), QueueNotFound, NotSupported (an encrypted queue, and no key).
        """

    @abstractmethod
    def pop(self, request: m.PopRequest) -> m.Claim:
        """Take leases on partitions of the queue and return the batch that they cover.

        Of the partitions that have something deliverable and no live lease of the group,
        those that have waited longest come first (C-05). A claim holds messages of one
        partition, in seq order; of up to ``max_partitions`` under one lease id where asked.
        The first pop of a group registers it, also when it finds nothing and when the queue
        does not exist, which the pop does not make (C-07). With ``auto_ack`` the messages
        are completed at once and there is no lease (C-19). An empty claim holds no lease.
        Leases that have run out are taken back on the way (C-03): no other job is needed.
        A batch ends before a payload that cannot be decrypted; a lane that begins with one is
        passed over for a few seconds, and nothing of it is charged. Raises Undecryptable where
        there was nothing else (INV-ENCRYPT).
        """

    @abstractmethod
    def ack(self, acks: Sequence[m.Ack]) -> list[m.Acked]:
        """Give messages their outcomes and return one answer each, in their order.

        Each item is judged by itself: one that is refused does not undo the others
        (C-04). An item counts only under the live lease that delivered its message; the
        first outcome under a lease wins and a repeat is ``already``, also under the last
        closed lease of the partition. When no message of the claim in a partition is
        open any more, the lease ends there. No items: no answers.
        """

    def push_together(self, calls: Sequence[Sequence[m.NewMessage]]) -> list[list[m.Receipt]]:
        """Make several pushes in one step, as if one after the other; the receipts of each.

        All or nothing. It may be refused (BackendUnavailable) rather than wait for a row that
        somebody else holds. Whatever is refused, the caller makes the pushes one by one.
        """
        return apart(self.push([item for call in calls for item in call]), calls)

    def ack_together(self, calls: Sequence[Sequence[m.Ack]]) -> list[list[m.Acked]]:
        """Make several acks in one step, as if one after the other; the answers of each.

        Like `push_together` it may be refused rather than wait.
        """
        return apart(self.ack([ack for call in calls for ack in call]), calls)

    @abstractmethod
    def extend(self, lease_id: str, seconds: int | None = None) -> int:
        """Move a live lease's expiry to the later of itself and now + ``seconds`` (C-20).

        All partitions of the lease that are still held are extended; returns the new expiry
        in ``_us``. None means max(60, the queue's lease time). Raises LeaseLost. Needs
        ``extend``.
        """

    @abstractmethod
    def release(self, lease_id: str) -> None:
        """Give the unsettled messages of a live lease back, uncharged, and end it.

        It is the ack ``retry`` for each of them: delivery counts rise, failures do not.
        Raises LeaseLost. Needs ``release``.
        """

    @abstractmethod
    def transact(self, transaction: m.Transaction) -> m.Transacted:
        """Apply acks and pushes together, at one instant, or nothing of it (C-15).

        Raises what the refused element would be refused with (LeaseLost, LeaseRequired,
        MessageNotFound, QueueFull, NotSupported), ``index`` set; LeaseLost for a required lease
        that is neither live nor its partition's last closed one; AlreadySettled for a repeat
        that would push something new. A repeat that changes nothing is ``repeated``. An ack
        without lease or group takes both from the required lease that covers its message.
        Needs ``txn``.
        """

    # --------------------------------------------------------------------- groups

    @abstractmethod
    def subscribe(self, queue: str, group: str, subscription: m.Subscription) -> bool:
        """Register the group as its first pop would; False where it began otherwise."""

    @abstractmethod
    def groups(self, queue: str) -> Sequence[m.Group]:
        """Return the groups of a queue, by name; none for a missing queue. Needs ``browse``."""

    @abstractmethod
    def delete_group(
        self, group: str, *, queue: str | None = None, keep_subscription: bool = False
    ) -> int:
        """Forget a group's progress, of one queue or of all; return in how many partitions.

        With ``keep_subscription`` its next pop begins where its subscription began (a group
        that began with ``new``: at the instant it did), else as that pop says. Its dead
        letters go too. Unknown groups: 0. Needs ``delete``.
        """

    @abstractmethod
    def restart_subscription(self, group: str, from_us: int) -> int:
        """Set the recorded start of a group, wherever it is registered, to a time.

        It moves no position: it is what the group begins from after its progress was
        deleted, or when a queue it waits for is made. Returns how many records changed.
        """

    def seek(self, target: m.Seek) -> int:
        """Move a group's position; return how many partitions were moved (C-20).

        The group's leases there end: acks under them are LeaseLost, and the last closed lease
        is forgotten. What lies at or after the new position comes (again), with fresh
        attempts; what lies before it is settled. Seeking back over a dead letter whose message
        is still stored takes it out of the list; one whose message is gone stays. Positions
        stay within what is stored. An unregistered group is registered first.
        Raises QueueNotFound, PartitionNotFound. Needs ``seek``.
        """
        raise self._lacks("seek", target)

    # --------------------------------------------------------------------- browse

    @abstractmethod
    def dead_letters(self, wanted: m.DeadLetterFilter) -> m.DeadLetters:
        """Return a page of dead letters, newest first. Needs ``dlq``.

        One that cannot be decrypted is ``unreadable`` and has a payload of null.
        """

    def redrive(self, wanted: m.DeadLetterFilter) -> int:
        """Give dead letters back to their groups; return how many (C-12).

        Each comes again to its group alone, ahead of what the group has not yet been given,
        in seq order among the redriven, with fresh attempts, in claims of redriven messages
        only; it comes from the dead letter's own copy, so also when the message is no longer
        stored. A live lease of the partition is not disturbed. ``limit`` and ``offset`` of the
        filter play no part. A second death makes one dead letter again. Needs ``redrive``.
        """
        raise self._lacks("redrive", wanted)

    def purge(self, wanted: m.DeadLetterFilter) -> int:
        """Delete dead letters for good; return how many. ``limit`` and ``offset`` play no part.

        Needs ``redrive``.
        """
        raise self._lacks("redrive", wanted)

    def removals(self, queue: str) -> Sequence[m.Removal]:
        """Return what eviction and retention took from a queue, newest first (QA-7).

        Needs ``evict`` or ``retention``.
        """
        raise self._lacks("evict", queue)

    def partitions(
        self, queue: str, *, limit: int | None = None, offset: int = 0
    ) -> Sequence[i.PartitionState]:
        """Return the partitions of a queue, or a page of them, by name; none for a missing queue.

        Everything is told from positions, none of it by reading messages (INV-COUNTERS).
        Needs ``stats``.
        """
        raise self._lacks("stats", (queue, limit, offset))

    def _lacks(self, feature: str, asked: object) -> NotImplementedError:
        """Refuse an operation that the backend does not offer."""
        self.capabilities.require(feature)
        return NotImplementedError(f"{type(self).__name__} offers {feature}: {asked}")

    # --------------------------------------------------------- upkeep and wake-ups

    @abstractmethod
    def sweep(self) -> m.SweepReport:
        """Make one pass of upkeep over expired leases and leftovers."""

    @abstractmethod
    def next_ready_in(self, request: m.PopRequest) -> float | None:
        """Return in how many seconds a pop that found nothing may find something by time alone.

        It counts lease expiry, retry delay, delayed processing and window ends; None where
        nothing but a push or an ack can help. A hint, never late by more than the clock's
        resolution: 0 is allowed.
        """

    def ready_now(self, requests: Sequence[m.PopRequest]) -> list[bool]:
        """Say of each request whether a pop of it may find something now.

        Asked every few seconds, in case a hint was lost, of all pops that wait in a process at
        once: it should cost little, however many they are. A hint: where in doubt, True.
        """
        return [True] * len(requests)

    @abstractmethod
    def listen(self, callback: Callable[[Hint], None]) -> Callable[[], None]:
        """Call back when a queue may have got something to pop; return how to stop that.

        Called from any thread, after the change can be seen; must not block. Hints may come
        twice or be lost: a pop is the only proof. None as hint means: look everywhere.
        """


def apart(answers: Sequence[T], calls: Sequence[Sequence[object]]) -> list[list[T]]:
    """Give each call its share of the answers, which are in the order of the calls."""
    parts = []
    start = 0
    for call in calls:
        parts.append(list(answers[start : start + len(call)]))
        start += len(call)
    return parts
