"""A backend that offers nothing optional: what is left to write is push, pop, ack and configure.

docs/tutorial/third-party-backend.md writes one. A feature is added by overriding its
operation and naming it in ``capabilities``.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from queen_sync import model as m
from queen_sync.backends.base import Backend, Capabilities, Hint


class CoreBackend(Backend):
    """Refuses by name what a queue can do without (INV-OFF-REFUSES)."""

    capabilities = Capabilities(features=frozenset())

    def close(self) -> None:
        """Do nothing: there is nothing to let go of."""

    def check(self) -> Mapping[str, Any]:
        return {}

    def queue(self, name: str) -> m.Queue | None:
        raise self._lacks("browse", name)

    def queues(self) -> Sequence[m.Queue]:
        raise self._lacks("browse", "all queues")

    def delete_queue(self, name: str) -> bool:
        raise self._lacks("delete", name)

    def extend(self, lease_id: str, seconds: int | None = None) -> int:
        raise self._lacks("extend", (lease_id, seconds))

    def release(self, lease_id: str) -> None:
        raise self._lacks("release", lease_id)

    def transact(self, transaction: m.Transaction) -> m.Transacted:
        raise self._lacks("txn", transaction)

    def subscribe(self, queue: str, group: str, subscription: m.Subscription) -> bool:
        """Refuse all beginnings but that with everything, which needs no registration."""
        if subscription.mode != "all":
            raise self._lacks(f"sub_{subscription.mode}", (queue, group))
        return True

    def groups(self, queue: str) -> Sequence[m.Group]:
        raise self._lacks("browse", queue)

    def delete_group(
        self,
        group: str,
        *,
        queue: str | None = None,
        keep_subscription: bool = False,
    ) -> int:
        raise self._lacks("delete", (group, queue, keep_subscription))

    def restart_subscription(self, group: str, from_us: int) -> int:
        raise self._lacks("sub_from", (group, from_us))

    def dead_letters(self, wanted: m.DeadLetterFilter) -> m.DeadLetters:
        raise self._lacks("dlq", wanted)

    def sweep(self) -> m.SweepReport:
        """Do nothing: leases that have run out are taken back by pops."""
        return m.SweepReport()

    def next_ready_in(self, request: m.PopRequest) -> float | None:  # noqa: ARG002  # any pop
        """Name a second for every pop, so that whoever waits looks again."""
        return 1.0

    def listen(self, callback: Callable[[Hint], None]) -> Callable[[], None]:  # noqa: ARG002  # never called
        """Tell nobody: `next_ready_in` lets them look by themselves."""
        return lambda: None
