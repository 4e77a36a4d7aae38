"""The conformance suite: what every backend owes, as pytest classes that anyone can subclass.

::

    class TestMyBackend(BackendConformance):
        known_failures = {"test_e08_a_lease_ends_on_its_instant": "mybackend#12"}

        @pytest.fixture
        def backend(self, clock):
            with MyBackend(clock=clock) as backend:
                yield backend

CONTRACT.md beside this file numbers the rules. A backend that cannot take a clock overrides
the fixture ``clock`` with a `SystemClock`, and the cases about time wait instead.
`ConcurrencyConformance` holds the cases that run many threads in real time. The plugin
``-p queen_sync.conformance.plugin`` prints a table of all cases and targets at the end.
"""

import pytest

# The assertions of the cases explain themselves only if pytest reads them first.
pytest.register_assert_rewrite(
    "queen_sync.conformance.base",
    "queen_sync.conformance.cases",
    "queen_sync.conformance.workloads",
)

from queen_sync.conformance.base import Cases, needs  # noqa: E402 - after the registration above
from queen_sync.conformance.suite import (  # noqa: E402 - the same
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
