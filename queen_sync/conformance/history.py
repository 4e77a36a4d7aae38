"""What happened: every call made to a backend, when it began and ended, and its answer.

One recorder serves two readers. A failed case prints its last calls as a story; the
checkers read the whole of a concurrent run. A completion is ``ok`` (the documented answer
came), ``fail`` (a definite refusal: nothing happened) or ``info`` (nobody knows). A call that
ended ``info`` stays open to the end of time, and its thread goes on under a new process
number, since what it did may still take effect.
"""

from __future__ import annotations

import functools
import itertools
import math
import threading
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, Literal, cast

import msgspec

from queen_sync import model as m
from queen_sync.backends.base import Backend
from queen_sync.errors import QueenError

STORY_LENGTH = 40
"""How many of a failed case's last calls are shown."""
BRIEF = 160
"""How many characters of one value are shown."""
UNRECORDED = frozenset({"check", "listen", "next_ready_in", "ready_now"})
"""Calls that neither change anything nor answer with messages."""


class Operation(msgspec.Struct, kw_only=True):
    """One call. Instants are seconds of the host's monotonic clock, the same for all threads."""

    process: int
    name: str
    arguments: Sequence[Any] = ()
    options: Mapping[str, Any] = {}
    invoked: float
    returned: float = math.inf
    outcome: Literal["ok", "fail", "info"] = "info"
    answer: Any = None
    error: BaseException | None = None

    def line(self, start: float) -> str:
        """Return the call and its answer as one line, timed from ``start``."""
        words = [brief(argument) for argument in self.arguments]
        words += [f"{name}={brief(value)}" for name, value in self.options.items()]
        call = f"{self.invoked - start:9.4f}  #{self.process}  {self.name}({', '.join(words)})"
        if self.outcome == "ok":
            return f"{call} -> {brief(self.answer)}"
        what = "no answer" if self.error is None else f"{type(self.error).__name__}: {self.error}"
        return f"{call} -> {self.outcome}: {what[:BRIEF]}"


class History:
    """The operations of one run, in the order in which they began; safe to share."""

    def __init__(self, operations: Iterable[Operation] = ()) -> None:
        self.operations: list[Operation] = list(operations)
        self._processes = itertools.count()
        self._local = threading.local()

    def call(self, name: str, function: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
        """Call the function and record how it ended."""
        operation = Operation(
            process=self._process(),
            name=name,
            arguments=args,
            options=kwargs,
            invoked=time.monotonic(),
        )
        self.operations.append(operation)
        try:
            answer = function(*args, **kwargs)
        except BaseException as error:
            operation.error = error
            if isinstance(error, QueenError) and error.definite:
                operation.outcome = "fail"
                operation.returned = time.monotonic()
            else:
                del self._local.process
            raise
        operation.answer = answer
        operation.outcome = "ok"
        operation.returned = time.monotonic()
        return answer

    def story(self, length: int = STORY_LENGTH) -> str:
        """Return the last calls and their answers, one a line."""
        operations = list(self.operations)
        if not operations:
            return "no call was made"
        start = operations[0].invoked
        lines = [operation.line(start) for operation in operations[-length:]]
        if len(operations) > length:
            lines.insert(0, f"... {len(operations) - length} earlier calls")
        return "\n".join(lines)

    def _process(self) -> int:
        try:
            return cast("int", self._local.process)
        except AttributeError:
            self._local.process = next(self._processes)
            return cast("int", self._local.process)


class _Recorded:
    """Stands before a backend and writes down what passes."""

    def __init__(self, backend: Backend, history: History) -> None:
        self._backend = backend
        self._history = history

    def close(self) -> None:
        """Do nothing: whoever made the backend closes it."""

    def __getattr__(self, name: str) -> Any:
        attribute = getattr(self._backend, name)
        if name in UNRECORDED or not callable(attribute):
            return attribute
        return functools.partial(self._history.call, name, attribute)


def recorded(backend: Backend, history: History) -> Backend:
    """Return the backend with every call to it recorded in ``history``."""
    return cast("Backend", _Recorded(backend, history))


def brief(value: Any) -> str:
    """Return a value as a few words that a reader can follow."""
    if isinstance(value, m.Claim):
        if not value:
            return "empty" + (" (subscription ignored)" if value.subscription_ignored else "")
        lease = value.lease_id and value.lease_id[-6:]
        return f"lease {lease} {brief(value.messages)}"
    if isinstance(value, m.Message):
        return f"{value.partition}#{value.seq} x{value.delivery_count} {_cut(value.payload, 40)}"
    if isinstance(value, m.NewMessage):
        name = "" if value.transaction_id is None else f" id={value.transaction_id[-36:]}"
        return f"{value.queue}/{value.partition}{name} {_cut(value.payload, 40)}"
    if isinstance(value, m.Receipt):
        return f"{value.status} {value.partition}#{value.seq}"
    if isinstance(value, m.Acked):
        word = value.code or ("already " if value.already else "") + str(value.status)
        return word + (" (lease released)" if value.lease_released else "")
    if isinstance(value, m.Ack):
        lease = value.lease_id and value.lease_id[-6:]
        return f"{value.outcome} {value.transaction_id[-36:]} lease {lease}"
    if isinstance(value, m.PopRequest):
        return " ".join(
            f"{field.name}={brief(chosen)}"
            for field in msgspec.structs.fields(value)
            if (chosen := getattr(value, field.name)) != field.default
        )
    if isinstance(value, msgspec.Struct):
        return _cut(repr(value), BRIEF)
    if isinstance(value, Sequence) and not isinstance(value, str | bytes):
        shown = [brief(item) for item in value[:5]]
        more = [f"... {len(value)} in all"] if len(value) > 5 else []
        return f"[{', '.join(shown + more)}]"
    return _cut(repr(value), BRIEF)


def _cut(value: bytes | str, length: int) -> str:
    text = value.decode("utf-8", "replace") if isinstance(value, bytes) else value
    return text if len(text) <= length else f"{text[:length]}..."
