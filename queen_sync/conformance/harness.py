"""The suite without pytest's runner: for mutants, and for whoever wants the results as values."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping

import pytest

from queen_sync.backends.base import Backend
from queen_sync.clock import ManualClock
from queen_sync.conformance.base import Cases, case_names


def failures(
    suite: type[Cases],
    make_backend: Callable[[ManualClock], Backend],
    cases: Iterable[str] | None = None,
) -> Mapping[str, BaseException]:
    """Run cases against fresh backends, one each; return those that fail, with their errors.

    ``cases`` None means all of the suite. A case that is not offered is no failure. Cases that
    ask for fixtures cannot be run here.
    """
    found: dict[str, BaseException] = {}
    for name in case_names(suite) if cases is None else cases:
        clock = ManualClock()
        with make_backend(clock) as backend:
            case = suite()
            case.bind(backend, clock)
            if case.missing(name):
                continue
            try:
                case.telling(getattr(case, name))()
            except pytest.skip.Exception:
                continue
            except Exception as error:  # noqa: BLE001 - a failure of any kind is what is asked for
                found[name] = error
    return found
