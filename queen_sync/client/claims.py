"""The claims that a client handed out, remembered so that it can give them back."""

from __future__ import annotations

import threading
from collections import OrderedDict
from collections.abc import Iterable
from typing import NamedTuple

from queen_sync import model as m


class _Covered(NamedTuple):
    group: str
    lanes: dict[str, list[str]]
    """By partition id: the transaction ids of its messages."""

    @property
    def message_count(self) -> int:
        return sum(map(len, self.lanes.values()))


class HandedOut:
    """What each lease covers, the newest longest; safe to share between threads.

    The wire has no call that gives a claim back: it takes an ack ``retry`` for each message,
    so they have to be known. At most ``max_messages`` are, the newest claim always.
    """

    def __init__(self, max_messages: int) -> None:
        self._max_messages = max_messages
        self._claims: OrderedDict[str, _Covered] = OrderedDict()
        self._count = 0
        self._lock = threading.Lock()

    def __len__(self) -> int:
        """Return how many messages are remembered."""
        return self._count

    def remember(self, claim: m.Claim) -> None:
        """Keep what the claim covers; one without a lease has nothing to give back."""
        if claim.lease_id is None:
            return
        lanes: dict[str, list[str]] = {}
        for message in claim.messages:
            lanes.setdefault(message.partition_id, []).append(message.transaction_id)
        with self._lock:
            self._drop(claim.lease_id)
            self._claims[claim.lease_id] = _Covered(claim.group, lanes)
            self._count += len(claim.messages)
            while self._count > self._max_messages and len(self._claims) > 1:
                self._drop(next(iter(self._claims)))

    def give_back(self, lease_id: str) -> list[m.Ack]:
        """Return the acks that give a claim back; none where it is not known."""
        with self._lock:
            covered = self._claims.get(lease_id)
            if covered is None:
                return []
            return [
                m.Ack(
                    transaction_id=transaction_id,
                    outcome="retry",
                    partition_id=partition_id,
                    group=covered.group,
                    lease_id=lease_id,
                )
                for partition_id, transaction_ids in covered.lanes.items()
                for transaction_id in transaction_ids
            ]

    def ended(self, leases: Iterable[tuple[str, str]]) -> None:
        """Forget what needs no giving back any more: pairs of lease id and partition id."""
        with self._lock:
            for lease_id, partition_id in leases:
                covered = self._claims.get(lease_id)
                if covered is not None:
                    self._count -= len(covered.lanes.pop(partition_id, ()))
                    if not covered.lanes:
                        del self._claims[lease_id]

    def forget(self, lease_id: str) -> None:
        """Forget a whole claim that is over."""
        with self._lock:
            self._drop(lease_id)

    def _drop(self, lease_id: str) -> None:
        covered = self._claims.pop(lease_id, None)
        if covered is not None:
            self._count -= covered.message_count
