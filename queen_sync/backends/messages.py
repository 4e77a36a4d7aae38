"""The contract, its part about single messages: looked up, cleaned up by hand, noted about.

It is part of `queen_sync.backends.base.Backend`.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence

from queen_sync import inspection as i


class SingleMessages(ABC):
    """What a backend tells about stored messages, and does to them by hand; all optional."""

    def message(self, partition_id: str, transaction_id: str) -> i.StoredMessage | None:
        """Return a stored message with its states, or None.

        ``transaction_id`` as in an ack: the caller's name for it, or its id. Needs
        ``messages``.
        """
        raise self._lacks("messages", (partition_id, transaction_id))

    def message_named(self, transaction_id: str) -> i.StoredMessage | None:
        """Return the stored message of a name, wherever it is, with its states; or None.

        Of several partitions that store one of that name, the oldest partition's. As in
        `message` the name is the caller's or the message's id. Needs ``messages``.
        """
        raise self._lacks("messages", transaction_id)

    def messages(self, wanted: i.MessageFilter) -> i.MessagePage:
        """Return a page of stored messages, newest first; of a trace, oldest first (QA-6, PLD-8).

        All that the filter names is judged in the store: a page is full wherever there is more
        to come. ``status`` and ``group`` are told from positions, failures and dead letters,
        never by reading the messages that are passed over. Needs ``messages``.
        """
        raise self._lacks("messages", wanted)

    # -------------------------------------------------------------------- cleanup

    def delete_message(self, partition_id: str, transaction_id: str) -> bool:
        """Remove a stored message for all groups; False where there is none.

        Its dead letters, what was redriven of it and its traces go too. To every group it
        counts as settled from then on: it leaves lag and depth, and an ack of it is
        MessageNotFound. Was it the last open one under a live lease, the lease closes. Its
        transaction id is free again, its seq is never used again (C-16). Needs ``cleanup``.
        """
        raise self._lacks("cleanup", (partition_id, transaction_id))

    def bury(
        self,
        partition_id: str,
        transaction_id: str,
        group: str | None = None,
        error: str | None = None,
    ) -> int:
        """Dead-letter a stored message now; return for how many groups.

        For the group, or for every registered one, that has not settled it; a group whose live
        lease covers it keeps it. Counts stay what they were; without ``error`` the last one is
        kept. Raises MessageNotFound. Needs ``cleanup``.
        """
        raise self._lacks("cleanup", (partition_id, transaction_id, group, error))

    def retry_now(self, partition_id: str, transaction_id: str, group: str | None = None) -> int:
        """End the retry delay of a message that failed; return for how many groups it has failed.

        For the group, or for every registered one, for which its state is ``failed``, also where
        no delay is running. Nothing else changes: its counts, and its place at the head of what
        the group has still to settle (C-01, C-02). A lease that has run out is taken back first.
        Raises MessageNotFound. Needs ``cleanup``.
        """
        raise self._lacks("cleanup", (partition_id, transaction_id, group))

    def clear(self, queue: str, partition: str | None = None) -> int:
        """Remove all stored messages of a queue or partition; return how many.

        Leases there end, and acks of what was removed are MessageNotFound. What was redriven
        and not yet settled goes too; dead letters stay. Traces go with their messages. In a
        queue of many partitions each is cleared in a step of its own.
        Raises QueueNotFound, PartitionNotFound. Needs ``cleanup``.
        """
        raise self._lacks("cleanup", (queue, partition))

    def delete_partition(self, queue: str, partition: str) -> bool:
        """Delete a partition with all it holds, dead letters included; False where there is none.

        A later push makes a new one, with a new id, of which every group is owed everything.
        Of ``Default`` a new one is made at once. Needs ``cleanup``.
        """
        raise self._lacks("cleanup", (queue, partition))

    # --------------------------------------------------------------------- traces

    def add_trace(self, trace: i.Trace) -> str:
        """File a note about a stored message; return the note's id. Raises MessageNotFound.

        It goes when its message leaves the store. Needs ``traces``.
        """
        raise self._lacks("traces", trace)

    def traces(self, partition_id: str, transaction_id: str) -> Sequence[i.TraceRecord]:
        """Return the notes about a message, oldest first. Needs ``traces``."""
        raise self._lacks("traces", (partition_id, transaction_id))

    def traces_named(self, wanted: i.TraceFilter) -> i.TracePage:
        """Return a page of the notes of one name, over all queues, oldest first.

        Needs ``traces``.
        """
        raise self._lacks("traces", wanted)

    def trace_names(self, limit: int = 100, offset: int = 0) -> Sequence[i.TraceName]:
        """Return the names that notes are filed under, the last used first. Needs ``traces``."""
        raise self._lacks("traces", (limit, offset))

    def count_trace_names(self) -> int:
        """Return under how many names notes are filed. Needs ``traces``."""
        raise self._lacks("traces", "all names")

    @abstractmethod
    def _lacks(self, feature: str, asked: object) -> NotImplementedError:
        """Refuse an operation that the backend does not offer."""
