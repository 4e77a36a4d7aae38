"""What happened in this process: totals since it started, and counts by minute and queue.

Counting is a few additions under one lock, about a microsecond a call; the counts of minutes
are taken from here every few seconds and written to the store, never on the way of a request.
"""

from __future__ import annotations

import threading
from collections.abc import Mapping, Sequence

from queen_sync import model as m, stats as s
from queen_sync.clock import MILLISECOND, Clock

TOTALS = (
    "push_requests",
    "pushed",
    "duplicates",
    "pop_requests",
    "popped",
    "pops_empty",
    "ack_requests",
    "acked",
    "acks_refused",
    "transactions",
    "claims_given_back",
)
MAX_ROWS = 10_000
"""So many minutes and queues are told apart until they are written; what comes on top of them is
counted without its queue: names that anybody may make up must not fill the memory."""
NOWHERE = ""
"""The queue of what belongs to none: a pop over a namespace that found nothing, a refused ack."""

(
    _PUSH_REQUESTS, _PUSHED, _DUPLICATES, _POP_REQUESTS, _POPS_EMPTY, _POPPED, _ACK_REQUESTS,
    _COMPLETED, _FAILED, _GIVEN_BACK, _DEAD_LETTERED, _REFUSED, _TRANSACTIONS, _DELAY, _MAX_DELAY,
) = range(len(s.COUNT_NAMES))  # fmt: skip
_OF_STATUS: Mapping[m.Status | None, int] = {
    "completed": _COMPLETED,
    "failed": _FAILED,
    "pending": _GIVEN_BACK,
    "dead_letter": _DEAD_LETTERED,
}


class Meter:
    """The counts of one process; safe to share between threads."""

    def __init__(self, clock: Clock, *, by_minute: bool) -> None:
        """Count; ``by_minute``: also for somebody who takes the counts and writes them."""
        self._clock = clock
        self._by_minute = by_minute
        self._lock = threading.Lock()
        self._totals = dict.fromkeys(TOTALS, 0)
        self._rows: dict[tuple[int, str], list[int]] = {}

    def totals(self) -> dict[str, int]:
        """Return what happened since the start."""
        with self._lock:
            return dict(self._totals)

    def pushed(self, receipts: Sequence[m.Receipt]) -> None:
        """Count a push that was answered."""
        duplicates = sum(receipt.status == "duplicate" for receipt in receipts)
        with self._lock:
            self._add(push_requests=1, pushed=len(receipts) - duplicates, duplicates=duplicates)
            if self._by_minute:
                minute_us = s.minute_of(self._clock.now_us())
                self._note_receipts(minute_us, receipts, _PUSH_REQUESTS)

    def popped(self, request: m.PopRequest, claim: m.Claim) -> None:
        """Count a pop that was answered."""
        messages = claim.messages
        count = len(messages)
        with self._lock:
            self._add(pop_requests=1, popped=count, pops_empty=not count)
            if not self._by_minute:
                return
            now_us = self._clock.now_us()
            queue = messages[0].queue if messages else request.queue
            row = self._row(s.minute_of(now_us), queue)
            row[_POP_REQUESTS] += 1
            if not messages:
                row[_POPS_EMPTY] += 1
                return
            row[_POPPED] += count
            oldest_us = messages[0].created_us
            if claim.partition_count > 1:
                oldest_us = min(message.created_us for message in messages)
            delay = max(0, now_us - oldest_us) // MILLISECOND
            row[_DELAY] += delay
            row[_MAX_DELAY] = max(row[_MAX_DELAY], delay)

    def acked(self, answers: Sequence[m.Acked]) -> None:
        """Count acks that were answered together."""
        refused = sum(answer.code is not None for answer in answers)
        with self._lock:
            self._add(ack_requests=1, acked=len(answers) - refused, acks_refused=refused)
            if self._by_minute:
                self._note_acks(s.minute_of(self._clock.now_us()), answers, _ACK_REQUESTS)

    def transacted(self, done: m.Transacted) -> None:
        """Count a transaction that was applied; one that repeats another changed nothing."""
        with self._lock:
            self._add(transactions=1)
            if self._by_minute and not done.repeated:
                minute_us = s.minute_of(self._clock.now_us())
                receipts = [each for each in done.results if isinstance(each, m.Receipt)]
                answers = [each for each in done.results if isinstance(each, m.Acked)]
                self._note_receipts(minute_us, receipts, _TRANSACTIONS)
                self._note_acks(minute_us, answers, _TRANSACTIONS)

    def gave_back(self) -> None:
        """Count a claim whose answer reached nobody."""
        with self._lock:
            self._add(claims_given_back=1)

    def take(self) -> list[s.QueueCounts]:
        """Return the counts of minutes and begin anew; whoever takes them has to keep them."""
        with self._lock:
            rows, self._rows = self._rows, {}
        return [
            s.QueueCounts(
                start_us=minute_us,
                queue=queue,
                counts=s.Counts(**dict(zip(s.COUNT_NAMES, row, strict=True))),
            )
            for (minute_us, queue), row in rows.items()
        ]

    def put_back(self, counts: Sequence[s.QueueCounts]) -> None:
        """Count again what was taken and could not be kept."""
        with self._lock:
            for each in counts:
                row = self._row(each.start_us, each.queue)
                for place, name in enumerate(s.COUNT_NAMES[:_MAX_DELAY]):
                    row[place] += getattr(each.counts, name)
                row[_MAX_DELAY] = max(row[_MAX_DELAY], each.counts.max_delay_milliseconds)

    # -------------------------------------------------------------- under the lock

    def _add(self, **amounts: int) -> None:
        for name, amount in amounts.items():
            self._totals[name] += amount

    def _row(self, minute_us: int, queue: str) -> list[int]:
        key = (minute_us, queue)
        row = self._rows.get(key)
        if row is None:
            if len(self._rows) >= MAX_ROWS and queue != NOWHERE:
                return self._row(minute_us, NOWHERE)
            row = self._rows[key] = [0] * len(s.COUNT_NAMES)
        return row

    def _note_receipts(self, minute_us: int, receipts: Sequence[m.Receipt], request: int) -> None:
        """Count messages in their queues, and the request once in each of these."""
        row: list[int] = []
        queue: str | None = None
        for receipt in receipts:
            if receipt.queue != queue:
                queue = receipt.queue
                row = self._row(minute_us, queue)
                row[request] += 1
            row[_DUPLICATES if receipt.status == "duplicate" else _PUSHED] += 1

    def _note_acks(self, minute_us: int, answers: Sequence[m.Acked], request: int) -> None:
        row: list[int] = []
        queue: str | None = None
        for answer in answers:
            name = answer.queue or NOWHERE
            if name != queue:
                queue = name
                row = self._row(minute_us, queue)
                row[request] += 1
            if answer.code is not None:
                row[_REFUSED] += 1
            elif not answer.already:
                row[_OF_STATUS[answer.status]] += 1
