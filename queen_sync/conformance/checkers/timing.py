"""Rules about time: what must not be delivered yet.

A server's clock is not the recorder's, but both run alike: what was stored after a call began
cannot be older than the call. So each rule asks only whether too little time can have passed.
"""

from __future__ import annotations

import bisect
from collections import defaultdict

from queen_sync.conformance.checkers.leases import SLACK_SECONDS
from queen_sync.conformance.checkers.violation import Violation
from queen_sync.conformance.facts import Facts, Key, Lane, Push

WINDOW_CAP = 10
"""After so many windows a partition is delivered all the same (C-08)."""


def delays(facts: Facts) -> list[Violation]:
    """Find messages that came before their queue's delay was over."""
    found = []
    stored = facts.stored()
    for lane, grants in facts.grants.items():
        queue = facts.queue_of.get(lane.partition, "")
        since, seconds = facts.option(queue, "delayed_processing_seconds")
        if not seconds:
            continue
        for grant in grants:
            for message in grant.messages:
                push = stored.get(Key(lane.partition, message.seq))
                if push is None or grant.operation.invoked < since:
                    continue
                if grant.operation.returned < push.operation.invoked + seconds - SLACK_SECONDS:
                    text = f"#{message.seq} came to {lane.group} before its {seconds} s were over"
                    calls = push.operation, grant.operation
                    found.append(Violation("INV-DELAY", text, calls))
    return found


def windows(facts: Facts) -> list[Violation]:
    """Find partitions that were delivered though a message had come just before."""
    found = []
    stored = facts.stored()
    of_partition: dict[str, list[Push]] = defaultdict(list)
    for key, push in stored.items():
        of_partition[key.partition].append(push)
    lanes: dict[str, list[Lane]] = defaultdict(list)
    for lane in facts.grants:
        lanes[lane.partition].append(lane)
    for partition, pushes in of_partition.items():
        pushes.sort(key=lambda push: push.operation.returned)
        latest: list[Push] = []  # of the pushes up to here, the one that began last
        for push in pushes:
            is_later = not latest or push.operation.invoked > latest[-1].operation.invoked
            latest.append(push if is_later else latest[-1])
        ends = [push.operation.returned for push in pushes]
        since, seconds = facts.option(facts.queue_of[partition], "window_buffer_seconds")
        if not seconds:
            continue
        for lane in lanes[partition]:
            for grant in facts.grants[lane]:
                before = bisect.bisect_left(ends, grant.operation.invoked)
                if not before or grant.operation.invoked < since:
                    continue
                newest = latest[before - 1]
                oldest = stored.get(Key(partition, grant.messages[0].seq))
                came = grant.operation.returned
                if oldest is None or _age(oldest, came) >= WINDOW_CAP * seconds - SLACK_SECONDS:
                    continue
                if _age(newest, came) < seconds - SLACK_SECONDS:
                    text = f"a partition was delivered to {lane.group} inside its {seconds} s"
                    calls = newest.operation, grant.operation
                    found.append(Violation("INV-WINDOW", text, calls))
    return found


def _age(push: Push, instant: float) -> float:
    """Return how old a message is at most."""
    return instant - push.operation.invoked


def retry_delays(facts: Facts) -> list[Violation]:
    """Find failed messages that came again before their retry delay was over."""
    found = []
    for (key, group), outcomes in facts.outcomes.items():
        queue = facts.queue_of.get(key.partition, "")
        since, milliseconds = facts.option(queue, "retry_delay_milliseconds")
        if not milliseconds:
            continue
        seconds = milliseconds / 1000
        grants = [
            grant
            for grant in facts.grants.get(Lane(key.partition, group), ())
            if any(message.seq == key.seq for message in grant.messages)
        ]
        for outcome in outcomes:
            answer, said = outcome.answer, outcome.operation.invoked
            failed = answer is not None and answer.ok and answer.status == "failed"
            if not failed or (answer is not None and answer.already) or said < since:
                continue
            for grant in grants:
                again = grant.operation
                if said < again.invoked and again.returned < said + seconds - SLACK_SECONDS:
                    text = f"#{key.seq} came to {group} again before its {seconds} s were over"
                    calls = outcome.operation, again
                    found.append(Violation("INV-RETRY", text, calls))
    return found
