"""What one process of a measurement is to do, and what it brings back."""

from __future__ import annotations

import json
import time
from collections import Counter
from dataclasses import dataclass, field
from typing import Literal

from queen_sync.errors import QueenError

Operation = Literal["push", "pop", "drain", "empty", "wake", "mixed", "make", "clear"]
"""``pop`` settles on delivery, ``drain`` pops and acks, half of ``mixed`` pushes, half drains;
``make`` and ``clear`` come before a measurement: they make partitions, and empty them."""
EMPTY_LIMIT = 40
"""After so many empty pops in a row a consumer takes the queue for drained."""
EMPTY_PAUSE_SECONDS = 0.005


class LoadError(QueenError):
    """The target cannot be measured: there are no figures."""

    code = "LOAD_ERROR"


@dataclass(frozen=True, kw_only=True)
class Case:
    """One thing that is measured: a kind of work with all that makes it dearer or cheaper."""

    mode: str
    operation: Operation
    batch: int = 1
    connections: int = 1
    partitions: int = 1
    payload_bytes: int = 130
    groups: int = 0
    """Consumer groups that each take everything; 0: queue mode, where consumers compete."""
    named: bool = False
    """Whether the caller names its messages, which the server then holds against repeats."""
    prepared: bool = False
    """Whether all partitions are there, and empty, before the clock runs."""


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
    groups: int = 0
    named: bool = False
    first_caller: int = 0
    """The number of this process's first caller among those of all processes."""
    lanes: range = range(0)
    """The partitions that this process is to make, with a message in each."""
    limit: int | None = None
    """How many messages this process pushes at most."""

    def partition(self, number: int) -> str:
        """Return a partition's name; all of them are equally long."""
        return f"lane-{number % self.partitions:06}"

    @property
    def payload(self) -> bytes:
        """A JSON object of about ``payload_bytes``."""
        frame = len(json.dumps({"text": ""}))
        return json.dumps({"text": "x" * max(0, self.payload_bytes - frame)}).encode()

    def group(self, caller: int) -> str | None:
        """Return the group of a caller, or None in queue mode."""
        return f"group-{caller % self.groups}" if self.groups else None


@dataclass
class Tally:
    """What was counted: messages, how long each call took in seconds, and what went wrong."""

    messages: Counter[str] = field(default_factory=Counter)
    began: float = 0.0
    ended: float = 0.0
    calls: dict[str, list[float]] = field(default_factory=dict)
    errors: Counter[str] = field(default_factory=Counter)
    cpu_seconds: float = 0.0
    """What the load itself cost."""

    def begin(self) -> None:
        self.began = self.ended = time.monotonic()

    def count(self, call: str, began: float, messages: int = 0) -> float:
        """Note a call that has just been answered; return the present instant."""
        now = time.monotonic()
        self.calls.setdefault(call, []).append(now - began)
        self.messages[call] += messages
        self.ended = now
        return now

    @staticmethod
    def merged(tallies: list[Tally]) -> Tally:
        """Return the tallies of several processes as one, over the time that any was busy."""
        whole = Tally(
            began=min(each.began for each in tallies), ended=max(each.ended for each in tallies)
        )
        for each in tallies:
            whole.messages.update(each.messages)
            whole.errors.update(each.errors)
            whole.cpu_seconds += each.cpu_seconds
            for call, seconds in each.calls.items():
                whole.calls.setdefault(call, []).extend(seconds)
        return whole
