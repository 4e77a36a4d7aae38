"""What one process of a measurement is to do, and what it brings back."""

from __future__ import annotations

import json
import time
from dataclasses import dataclass, field
from typing import Literal

from queen_sync import model as m
from queen_sync.errors import QueenError
from queen_sync.payloads import JsonText

Operation = Literal["push", "drain"]
EMPTY_LIMIT = 40
"""After so many empty pops in a row a consumer takes the queue for drained."""
EMPTY_PAUSE_SECONDS = 0.005


class LoadError(QueenError):
    """What was measured refused something or went away: there are no figures."""

    code = "LOAD_ERROR"


@dataclass(frozen=True, kw_only=True)
class Plan:
    """The part of one process: ``connections`` callers that each keep one call in flight."""

    target: str
    queue: str
    operation: Operation
    batch: int
    connections: int
    partitions: int
    payload_bytes: int
    seconds: float

    def partition(self, number: int) -> str:
        return f"lane-{number % self.partitions}"

    @property
    def payload(self) -> bytes:
        """A JSON object of about ``payload_bytes``."""
        frame = len(json.dumps({"text": ""}))
        return json.dumps({"text": "x" * max(0, self.payload_bytes - frame)}).encode()


@dataclass
class Tally:
    """What was counted: messages, and how long each call took, in seconds."""

    messages: int = 0
    began: float = 0.0
    ended: float = 0.0
    calls: dict[str, list[float]] = field(default_factory=dict)

    def begin(self) -> None:
        self.began = self.ended = time.monotonic()

    def count(self, call: str, began: float, messages: int = 0) -> float:
        """Note a call that has just been answered; return the present instant."""
        now = time.monotonic()
        self.calls.setdefault(call, []).append(now - began)
        if messages:
            self.messages += messages
            self.ended = now
        return now

    @staticmethod
    def merged(tallies: list[Tally]) -> Tally:
        """Return the tallies of several processes as one, over the time that any was busy."""
        whole = Tally(
            messages=sum(each.messages for each in tallies),
            began=min(each.began for each in tallies),
            ended=max(each.ended for each in tallies),
        )
        for each in tallies:
            for call, seconds in each.calls.items():
                whole.calls.setdefault(call, []).extend(seconds)
        return whole


def new_messages(plan: Plan, partition: int) -> list[m.NewMessage]:
    """Return one push of a plan."""
    payload = JsonText.check(plan.payload)
    name = plan.partition(partition)
    return [
        m.NewMessage(queue=plan.queue, partition=name, payload=payload) for _ in range(plan.batch)
    ]
