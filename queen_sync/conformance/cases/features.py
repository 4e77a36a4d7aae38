"""A, last part: a feature is on, or refuses by its name."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

import pytest

from queen_sync import inspection as i, model as m, stats as s
from queen_sync.backends.base import FEATURES, OPTION_FEATURE
from queen_sync.conformance.base import Cases
from queen_sync.errors import NotSupported


class FeatureCases(Cases):
    def test_a13_what_is_declared_works_and_what_is_not_refuses(self) -> None:
        """Every feature is either on, or refused by its name. INV-OFF-REFUSES, O-14."""
        uses = self.uses()
        assert {feature for feature, _ in uses} == set(FEATURES) - {"clock"}
        for feature, use in uses:
            if feature in self.target.capabilities.features:
                use()
                continue
            with pytest.raises(NotSupported) as caught:
                use()
            assert caught.value.feature == feature

    def uses(self) -> Sequence[tuple[str, Callable[[], Any]]]:
        """Return harmless uses of every feature that a call can reach."""
        queue = self.name()
        self.target.configure(queue)
        dead = m.DeadLetterFilter(queue=queue)

        def lease() -> str:
            fresh = self.name()
            self.push(fresh, 1)
            return str(self.take(fresh).lease_id)

        def place() -> tuple[str, str]:
            stored = self.push(self.name(), 1)[0]
            return stored.partition_id, stored.transaction_id

        def trace(partition_id: str, transaction_id: str) -> i.Trace:
            return i.Trace(partition_id=partition_id, transaction_id=transaction_id)

        def begin(subscription: m.Subscription) -> bool:
            return self.target.subscribe(queue, self.name("group"), subscription)

        def transact() -> m.Transacted:
            push = m.NewMessage.of(self.name(), 1)
            return self.target.transact(m.Transaction(operations=[push]))

        uses: list[tuple[str, Callable[[], Any]]] = [
            ("extend", lambda: self.target.extend(lease(), 60)),
            ("release", lambda: self.target.release(lease())),
            ("sub_new", lambda: begin(m.Subscription(mode="new"))),
            ("sub_from", lambda: begin(m.Subscription(mode="from", from_us=0))),
            ("delete", lambda: self.target.delete_queue(self.name())),
            ("dlq", lambda: self.target.dead_letters(dead)),
            ("browse", lambda: self.target.queue(queue)),
            ("txn", transact),
            ("prio", lambda: self.target.pop(m.PopRequest(namespace=self.name("namespace")))),
            ("popretry", lambda: self.pop(queue, attempt_id="attempt")),
            ("seek", lambda: self.target.seek(m.Seek(queue=queue))),
            ("redrive", lambda: self.target.redrive(dead)),
            ("redrive", lambda: self.target.purge(dead)),
            ("stats", lambda: self.target.partitions(queue)),
            ("stats", lambda: self.target.queue_stats(queue)),
            ("stats", lambda: self.target.group_stats(queue=queue)),
            ("stats", lambda: self.target.lanes(s.LaneFilter(queue=queue))),
            ("counters", lambda: self.target.add_counts([])),
            ("counters", lambda: self.target.counts(s.CountFilter(from_us=0, to_us=0))),
            ("counters", lambda: self.target.forget_counts(0)),
            ("messages", lambda: self.target.message("", "")),
            ("messages", lambda: self.target.message_named(self.name())),
            ("messages", lambda: self.target.messages(i.MessageFilter(queue=queue))),
            ("cleanup", lambda: self.target.delete_message("", "")),
            ("cleanup", lambda: self.target.bury(*place(), error="by hand")),
            ("cleanup", lambda: self.target.retry_now(*place())),
            ("cleanup", lambda: self.target.clear(queue)),
            ("cleanup", lambda: self.target.delete_partition(queue, "nowhere")),
            ("traces", lambda: self.target.add_trace(trace(*place()))),
            ("traces", lambda: self.target.traces("", "")),
            ("traces", lambda: self.target.traces_named(i.TraceFilter(name=self.name()))),
            ("traces", lambda: self.target.trace_names(1)),
            ("traces", self.target.count_trace_names),
        ]
        for option, feature in OPTION_FEATURE.items():
            value = True if isinstance(m.OPTION_DEFAULTS[option], bool) else 1
            uses.append((feature, partial(self.target.configure, self.name(), {option: value})))
        return uses
