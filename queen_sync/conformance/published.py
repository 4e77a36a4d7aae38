"""Histories as files: one JSON object a line, so that any program can write or read them.

docs/reference/history.md describes every field. A file holds one history after another; each
begins with a line that says so. What the rules do not cover is refused, when written and when
read: an unknown verdict is no verdict.
"""

from __future__ import annotations

import fcntl
import math
from collections.abc import Callable, Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any, Literal, NamedTuple

import msgspec

from queen_sync import errors, model as m
from queen_sync.conformance.history import History, Operation
from queen_sync.payloads import JsonText

VERSION = 1
SILENT = frozenset({"check", "queue", "queues", "groups", "removals", "sweep", "pop_waiting"})
"""Calls that are left out: they change nothing that a rule looks at."""
UNCOVERED_OPTIONS = (
    "ttl_seconds",
    "max_wait_seconds",
    "retention_seconds",
    "completed_retention_seconds",
)
"""Options under which messages leave a queue in ways that the rules do not follow."""


class Begin(msgspec.Struct, tag="history", tag_field="type", kw_only=True):
    """The first line of a history."""

    version: int = VERSION
    about: Mapping[str, str] = {}


class Line(msgspec.Struct, tag="operation", tag_field="type", kw_only=True, omit_defaults=True):
    """One call."""

    process: int
    call: str
    began: float
    ended: float | None = None
    outcome: Literal["ok", "fail", "info"]
    request: Mapping[str, Any]
    answer: Any = None
    error: Mapping[str, Any] | None = None


class Drained(msgspec.Struct, tag="drained", tag_field="type"):
    """The last line of a history that ends in a finished drain and a list of dead letters."""


class Published(NamedTuple):
    """One history of a file."""

    about: Mapping[str, str]
    operations: list[Operation]
    drained: bool


# ------------------------------------------------------------------------- writing


def append(path: Path, history: History, about: Mapping[str, str], *, drained: bool) -> None:
    """Add a history to a file that several processes may write."""
    text = b"".join(lines(history.operations, about, drained=drained))
    with path.open("ab") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        file.write(text)


def lines(
    operations: Iterable[Operation], about: Mapping[str, str], *, drained: bool
) -> Iterator[bytes]:
    """Yield the lines of a history; InvalidRequest for a call that the rules do not cover."""
    yield _line(Begin(about=about))
    for operation in operations:
        if operation.name not in SILENT:
            yield _line(_written(operation))
    if drained:
        yield _line(Drained())


def _line(value: msgspec.Struct) -> bytes:
    return msgspec.json.encode(value) + b"\n"


def _written(operation: Operation) -> Line:
    form = _form(operation.name)
    request = form.request(*operation.arguments, **operation.options)
    _check_options(operation.name, request)
    answered = operation.outcome == "ok"
    return Line(
        process=operation.process,
        call=operation.name,
        began=operation.invoked,
        ended=None if math.isinf(operation.returned) else operation.returned,
        outcome=operation.outcome,
        request=request,
        answer=form.answer(operation.answer) if answered else None,
        error=None if operation.error is None else _error(operation.error),
    )


def plain(value: msgspec.Struct) -> dict[str, Any]:
    """Return the fields of a value that differ from their defaults, as plain JSON values."""
    found = {}
    for field in msgspec.structs.fields(value):
        given = getattr(value, field.name)
        if given == field.default:
            continue
        if isinstance(given, bytes):
            given = given.decode()
        elif isinstance(given, msgspec.Struct):
            given = plain(given)
        found[field.name] = given
    return found


def _error(error: BaseException) -> dict[str, Any]:
    if not isinstance(error, errors.QueenError):
        text = f"{type(error).__name__}: {error}"
        return {"code": errors.OutcomeUnknown.code, "message": text}
    told = {"code": error.code, "message": error.message}
    names = ("queue", "max_queue_size", "depth", "pushed", "feature", "field")
    return told | {
        name: value for name in names if (value := getattr(error, name, None)) is not None
    }


# ------------------------------------------------------------------------- reading


def read(path: Path) -> Iterator[Published]:
    """Yield the histories of a file; InvalidRequest names the line that cannot be read."""
    history: Published | None = None
    with path.open("rb") as file:
        for number, text in enumerate(file, 1):
            if not text.strip():
                continue
            try:
                line = msgspec.json.decode(text, type=Begin | Line | Drained)
                if isinstance(line, Begin):
                    if history is not None:
                        yield history
                    history = _begun(line)
                    continue
                history = _continued(history, line)
            except (msgspec.DecodeError, errors.InvalidRequest, TypeError, KeyError) as error:
                raise errors.InvalidRequest(f"{path}:{number}: {error}", "history") from error
    if history is None:
        raise errors.InvalidRequest(f"{path} holds no history", "history")
    yield history


def _begun(line: Begin) -> Published:
    if line.version != VERSION:
        raise errors.InvalidRequest(f"version {line.version} is not known", "version")
    return Published(line.about, [], drained=False)


def _continued(history: Published | None, line: Line | Drained) -> Published:
    if history is None:
        raise errors.InvalidRequest('the first line must have the type "history"', "type")
    if history.drained:
        raise errors.InvalidRequest("a drained history goes on", "type")
    if isinstance(line, Drained):
        return history._replace(drained=True)
    if line.call not in SILENT:
        history.operations.append(_read(line))
    return history


def _read(line: Line) -> Operation:
    form = _form(line.call)
    _check_options(line.call, line.request)
    if (line.ended is None) != (line.outcome == "info"):
        raise errors.InvalidRequest("exactly the outcome info has no end", "ended")
    if line.outcome == "ok" and line.answer is None:
        raise errors.InvalidRequest("an operation that is ok has its answer", "answer")
    arguments, options = form.arguments(line.request)
    return Operation(
        process=line.process,
        name=line.call,
        arguments=arguments,
        options=options,
        invoked=line.began,
        returned=math.inf if line.ended is None else line.ended,
        outcome=line.outcome,
        answer=None if line.answer is None else form.answered(line.answer),
        error=None if line.error is None else _raised(line.error),
    )


_KINDS: Mapping[str, type[errors.QueenError]] = {
    kind.code: kind
    for kind in vars(errors).values()
    if isinstance(kind, type) and issubclass(kind, errors.QueenError)
}


def _raised(told: Mapping[str, Any]) -> errors.QueenError:
    kind = _KINDS.get(told.get("code", ""), errors.QueenError)
    message = str(told.get("message", ""))
    if kind is errors.QueueFull:
        return errors.QueueFull(
            str(told["queue"]),
            int(told.get("max_queue_size", 0)),
            int(told.get("depth", 0)),
            int(told.get("pushed", 0)),
        )
    if issubclass(kind, errors.NotSupported):
        return kind(message, str(told.get("feature", "")))
    if issubclass(kind, errors.InvalidRequest):
        return kind(message, told.get("field"))
    return kind(message)


def _check_options(call: str, request: Mapping[str, Any]) -> None:
    if call == "configure":
        options = request.get("options") or {}
        for name in UNCOVERED_OPTIONS:
            if options.get(name):
                raise errors.InvalidRequest(f"histories with {name} cannot be checked", name)


def _of(kind: type[Any], told: Any) -> Any:
    """Return a value of the model from its plain form."""
    return msgspec.convert(told, kind, builtin_types=(bytes,), dec_hook=_payload)


def _payload(kind: type[Any], told: Any) -> Any:
    if kind is JsonText and isinstance(told, str):
        return JsonText.check(told.encode())
    raise errors.InvalidRequest("a payload is JSON text in a string", "payload")


def _delivered(kind: type[Any], told: Mapping[str, Any]) -> Any:
    """Return a message or dead letter; ids and times that no rule needs may be missing."""
    payload = told["payload"]
    if not isinstance(payload, str):
        raise errors.InvalidRequest("a payload is JSON text in a string", "payload")
    unknown = {"seq": 0, "created_us": 0, "failed_us": 0}
    return _of(kind, unknown | dict(told) | {"payload": payload.encode()})


def _receipt(told: Mapping[str, Any]) -> Any:
    """Return a receipt; one without a place belongs to a server that gives none."""
    return _of(m.Receipt, {"seq": 0, "partition_id": ""} | dict(told))


# --------------------------------------------------------------------------- forms


class _Form(NamedTuple):
    """How the request and the answer of one call are written, and read again."""

    request: Callable[..., dict[str, Any]]
    answer: Callable[[Any], Any]
    arguments: Callable[[Mapping[str, Any]], tuple[tuple[Any, ...], dict[str, Any]]]
    answered: Callable[[Any], Any]


def _form(call: str) -> _Form:
    if call not in _FORMS:
        raise errors.InvalidRequest(f"histories with {call} cannot be checked", "call")
    return _FORMS[call]


def _configured(queue: str, options: Any = None, **names: Any) -> dict[str, Any]:
    given = {name: value for name, value in names.items() if value is not None}
    return {"queue": queue, "options": dict(options or {}), **given}


def _pushed(items: Iterable[m.NewMessage], *, create: bool = True) -> dict[str, Any]:
    return {"items": [plain(item) for item in items]} | ({} if create else {"create": False})


def _extended(lease_id: str, seconds: int | None = None) -> dict[str, Any]:
    return {"lease_id": lease_id, "seconds": seconds}


def _transacted(transaction: m.Transaction) -> dict[str, Any]:
    return {
        "operations": [
            {"push" if isinstance(element, m.NewMessage) else "ack": plain(element)}
            for element in transaction.operations
        ],
        "required_leases": list(transaction.required_leases),
    }


def _transaction(request: Mapping[str, Any]) -> m.Transaction:
    operations = [
        _of(m.NewMessage, element["push"]) if "push" in element else _of(m.Ack, element["ack"])
        for element in request["operations"]
    ]
    return m.Transaction(
        operations=operations, required_leases=list(request.get("required_leases", ()))
    )


def _claim(claim: m.Claim) -> dict[str, Any]:
    return {"messages": []} | plain(claim) | {"messages": [plain(each) for each in claim.messages]}


def _claimed(told: Mapping[str, Any]) -> Any:
    messages = [_delivered(m.Message, each) for each in told.get("messages", ())]
    kept = {name: value for name, value in told.items() if name != "messages"}
    return msgspec.structs.replace(_of(m.Claim, kept), messages=messages)


_FORMS: Mapping[str, _Form] = {
    "configure": _Form(
        request=_configured,
        answer=lambda _: {},
        arguments=lambda told: (
            (told["queue"], dict(told.get("options") or {})),
            {name: told[name] for name in ("namespace", "task") if name in told},
        ),
        answered=lambda _: None,
    ),
    "push": _Form(
        request=_pushed,
        answer=lambda receipts: {"receipts": [plain(receipt) for receipt in receipts]},
        arguments=lambda told: (
            ([_of(m.NewMessage, item) for item in told["items"]],),
            {"create": False} if told.get("create") is False else {},
        ),
        answered=lambda told: [_receipt(receipt) for receipt in told["receipts"]],
    ),
    "pop": _Form(
        request=plain,
        answer=_claim,
        arguments=lambda told: ((_of(m.PopRequest, told),), {}),
        answered=_claimed,
    ),
    "ack": _Form(
        request=lambda acks: {"acks": [plain(ack) for ack in acks]},
        answer=lambda results: {"results": [plain(result) for result in results]},
        arguments=lambda told: (([_of(m.Ack, ack) for ack in told["acks"]],), {}),
        answered=lambda told: [_of(m.Acked, result) for result in told["results"]],
    ),
    "extend": _Form(
        request=_extended,
        answer=lambda expires_us: {"expires_us": expires_us},
        arguments=lambda told: ((told["lease_id"], told.get("seconds")), {}),
        answered=lambda told: told.get("expires_us", 0),
    ),
    "release": _Form(
        request=lambda lease_id: {"lease_id": lease_id},
        answer=lambda _: {},
        arguments=lambda told: ((told["lease_id"],), {}),
        answered=lambda _: None,
    ),
    "transact": _Form(
        request=_transacted,
        answer=lambda done: {
            "results": [
                {"receipt" if isinstance(result, m.Receipt) else "acked": plain(result)}
                for result in done.results
            ],
            "repeated": done.repeated,
        },
        arguments=lambda told: ((_transaction(told),), {}),
        answered=lambda told: m.Transacted(
            results=[
                _receipt(each["receipt"]) if "receipt" in each else _of(m.Acked, each["acked"])
                for each in told["results"]
            ],
            repeated=told.get("repeated", False),
        ),
    ),
    "dead_letters": _Form(
        request=plain,
        answer=lambda page: {"items": [plain(item) for item in page.items], "total": page.total},
        arguments=lambda told: ((_of(m.DeadLetterFilter, told),), {}),
        answered=lambda told: m.DeadLetters(
            items=[_delivered(m.DeadLetter, item) for item in told["items"]],
            total=told.get("total", len(told["items"])),
        ),
    ),
}
