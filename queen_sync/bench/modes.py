"""What can be measured: each mode is a few cases that are to be held against each other."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

from queen_sync.bench.plan import Case

FEW_PARTITIONS, MANY_PARTITIONS = 10, 100_000
MANY_GROUPS = 10
PAYLOAD_SIZES = (100, 1_000, 10_000)


@dataclass(frozen=True)
class Load:
    """The load that the command line asks for, before a mode makes cases of it."""

    batches: Sequence[int]
    connections: int
    partitions: int
    payload_bytes: int
    many_partitions: int = MANY_PARTITIONS

    def case(self, mode: str, batch: int) -> Case:
        """Return the plain case: pushes of one size."""
        return Case(
            mode=mode,
            operation="push",
            batch=batch,
            connections=self.connections,
            partitions=self.partitions,
            payload_bytes=self.payload_bytes,
        )


@dataclass(frozen=True)
class Mode:
    """A named measurement."""

    name: str
    says: str
    cases: Callable[[Load], list[Case]]


def _push(load: Load) -> list[Case]:
    return [load.case("push", batch) for batch in load.batches]


def _pop(load: Load) -> list[Case]:
    return [replace(load.case("pop", batch), operation="pop") for batch in load.batches]


def _pop_ack(load: Load) -> list[Case]:
    return [replace(load.case("pop-ack", batch), operation="drain") for batch in load.batches]


def _latency(load: Load) -> list[Case]:
    return [replace(load.case("latency", 1), operation="drain", connections=1)]


def _empty(load: Load) -> list[Case]:
    return [replace(load.case("empty", 1), operation="empty", connections=1)]


def _wake(load: Load) -> list[Case]:
    return [replace(load.case("wake", 1), operation="wake")]


def _mixed(load: Load) -> list[Case]:
    # An odd number of callers would push more than they pop, and one alone would only push.
    connections = max(2, load.connections - load.connections % 2)
    return [
        replace(load.case("mixed", batch), operation="mixed", connections=connections)
        for batch in load.batches
    ]


def _groups(load: Load) -> list[Case]:
    connections = max(load.connections, MANY_GROUPS)
    return [
        replace(
            load.case("groups", batch), operation="drain", groups=groups, connections=connections
        )
        for batch in load.batches
        for groups in (1, MANY_GROUPS)
    ]


def _partitions(load: Load) -> list[Case]:
    return [
        replace(
            load.case("partitions", batch),
            operation=operation,
            partitions=partitions,
            prepared=True,
        )
        for batch in load.batches
        for operation in ("push", "drain")
        for partitions in (FEW_PARTITIONS, load.many_partitions)
    ]


def _payload(load: Load) -> list[Case]:
    return [
        replace(load.case("payload", batch), operation=operation, payload_bytes=size)
        for batch in load.batches
        for operation in ("push", "drain")
        for size in PAYLOAD_SIZES
    ]


def _ids(load: Load) -> list[Case]:
    return [
        replace(load.case("ids", batch), named=named)
        for batch in load.batches
        for named in (False, True)
    ]


MODES = {
    mode.name: mode
    for mode in (
        Mode("push", "pushes", _push),
        Mode("pop", "pops that settle on delivery (autoAck)", _pop),
        Mode("pop-ack", "pops, each followed by the ack of its batch", _pop_ack),
        Mode("latency", "a pop of one message and its ack, on one connection", _latency),
        Mode("empty", "a pop that finds nothing, on one connection", _empty),
        Mode("wake", "from a push to the answer of the pop that waits for it", _wake),
        Mode("mixed", "half of the connections push, half pop and ack", _mixed),
        Mode("groups", "1 against 10 consumer groups: deliveries to all of them", _groups),
        Mode("partitions", "10 against 100,000 partitions", _partitions),
        Mode("payload", "payloads of 100, 1,000 and 10,000 bytes", _payload),
        Mode("ids", "ids given by the server against ids named by the caller", _ids),
    )
}
DEFAULT_MODES = ("push", "pop-ack")
OVER_HTTP_ONLY = frozenset({"wake"})
"""A store alone wakes nobody: waiting is the server's work."""


def label(case: Case) -> str:
    """Return what sets a case apart from the others of its mode."""
    match case.mode:
        case "groups":
            return f"{case.groups} group{'s' * (case.groups != 1)}"
        case "partitions":
            return f"{case.partitions:,} partitions"
        case "payload":
            return f"{case.payload_bytes:,} bytes"
        case "ids":
            return "named by the caller" if case.named else "named by the server"
    return ""
