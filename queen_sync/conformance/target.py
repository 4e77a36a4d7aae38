"""What a run is pointed at: a server by its address, or a backend by the name of its factory."""

from __future__ import annotations

import importlib
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import msgspec
import pytest

from queen_sync.backends.base import Backend
from queen_sync.client import RemoteBackend
from queen_sync.client.remote_base import ASSUMED
from queen_sync.clock import Clock, SystemClock
from queen_sync.conformance.base import case_id
from queen_sync.conformance.cases.features import FeatureCases
from queen_sync.conformance.levels import LEVELS
from queen_sync.errors import OutcomeUnknown, QueenError

NOT_IMPLEMENTED = "HTTP 501"


class Target(NamedTuple):
    """Where the backend of each case comes from, and which cases it is known to fail."""

    name: str
    make: Callable[[Clock], Backend]
    address: str | None = None
    known_failures: Mapping[str, str] = {}


TARGET = pytest.StashKey[Target]()


def backend_of(name: str) -> Target:
    """Return the target of a factory, named ``package.module:factory``, that takes a clock."""
    module, colon, attribute = name.partition(":")
    if not colon:
        raise pytest.UsageError(f"--queen-backend {name}: wanted is package.module:factory")
    try:
        factory = getattr(importlib.import_module(module), attribute)
    except (ImportError, AttributeError) as error:
        raise pytest.UsageError(f"--queen-backend {name}: {error}") from error
    return Target(name, factory)


def server_at(address: str) -> Target:
    """Return the target of a running server; the features that it offers are looked up once.

    A server that does not list them is tried: what answers that there is no such thing is not
    offered.
    """
    with RemoteBackend(address) as backend:
        try:
            offered = backend.capabilities
        except QueenError as error:
            raise pytest.UsageError(error.message) from error
        if offered is ASSUMED:
            offered = msgspec.structs.replace(offered, features=_found_at(backend))

    def make(_: Clock) -> Backend:
        remote = RemoteBackend(address)
        remote.__dict__["capabilities"] = offered  # where the cached property looks first
        return remote

    return Target(address, make, address=address)


def _found_at(backend: RemoteBackend) -> frozenset[str]:
    """Return the features of those that every server is taken to offer that this one has."""
    case = FeatureCases()
    case.bind(backend, SystemClock())
    missing = set()
    for feature, use in case.uses():
        if feature in ASSUMED.features:
            try:
                use()
            except OutcomeUnknown as error:
                # Something is there and fails: the cases shall say so.
                if NOT_IMPLEMENTED in error.message:
                    missing.add(feature)
            except QueenError:
                missing.add(feature)
    return ASSUMED.features - missing


def known_failures(path: Path, cases: Sequence[str]) -> Mapping[str, str]:
    """Return the names of cases in a JSON file, each with the reason why it is known to fail.

    The file maps cases, as the table of the report names them or as their functions are
    called, to reasons. A name that is no case is an error: it has been renamed, or was never right.
    """
    try:
        listed: dict[str, str] = msgspec.json.decode(path.read_bytes(), type=dict[str, str])
    except (OSError, msgspec.DecodeError) as error:
        raise pytest.UsageError(f"{path}: {error}") from error
    found = {_case_name(name): reason for name, reason in listed.items()}
    unknown = sorted(name for name in found if name not in cases)
    if unknown:
        raise pytest.UsageError(f"{path}: no such case: {', '.join(unknown)}")
    return found


def _case_name(name: str) -> str:
    return name if case_id(name) else f"test_{name.lower().replace(' ', '_')}"


def check_levels(levels: Sequence[str]) -> None:
    """Refuse a level that does not exist."""
    unknown = [level for level in levels if level not in LEVELS]
    if unknown:
        raise pytest.UsageError(f"no such level: {', '.join(unknown)}; one of {', '.join(LEVELS)}")


def chosen(config: Any) -> Target | None:
    """Return the target that pytest's command line names, or None."""
    address, backend = config.getoption("--queen-url"), config.getoption("--queen-backend")
    if address and backend:
        raise pytest.UsageError("--queen-url and --queen-backend exclude each other")
    if address:
        return server_at(address)
    return backend_of(backend) if backend else None
