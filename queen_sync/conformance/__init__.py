"""The conformance suite: what every backend owes, behind three doors.

::

    class TestMyBackend(BackendConformance):
        known_failures = {"test_e08_a_lease_ends_on_its_instant": "mybackend#12"}

        @pytest.fixture
        def backend(self, clock):
            with MyBackend(clock=clock) as backend:
                yield backend

CONTRACT.md beside this file numbers the rules. A backend that cannot take a clock overrides
the fixture ``clock`` with a `SystemClock`, and the cases about time wait instead.
`ConcurrencyConformance` holds the cases that run many threads in real time.

A server in any language needs no Python: ``queen-sync conformance http://host:6632``. And
pytest's command line takes a backend by its name::

    pytest -p queen_sync.conformance.plugin --pyargs queen_sync.conformance.bound
        --queen-backend pkg.module:factory

The plugin also prints a table of all cases and targets at the end. Importing this package
imports neither pytest nor the cases: they come with the first name that is asked for.
"""

import importlib
import sys
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from queen_sync.conformance.base import Cases, needs
    from queen_sync.conformance.suite import (
        BackendConformance,
        ConcurrencyConformance,
        ServerConformance,
    )

__all__ = [
    "BackendConformance",
    "Cases",
    "ConcurrencyConformance",
    "ServerConformance",
    "needs",
]

# The assertions of the cases explain themselves only if pytest reads them first. Where no
# pytest is running there is nobody to explain them to.
if "pytest" in sys.modules:
    sys.modules["pytest"].register_assert_rewrite(
        "queen_sync.conformance.base",
        "queen_sync.conformance.cases",
        "queen_sync.conformance.workloads",
    )


def __getattr__(name: str) -> Any:
    if name not in __all__:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    home = "base" if name in {"Cases", "needs"} else "suite"
    return getattr(importlib.import_module(f"{__name__}.{home}"), name)
