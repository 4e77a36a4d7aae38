"""What the machine's parts do alone."""

from __future__ import annotations

from dataclasses import replace

import pytest

from queen_sync.bench.calibrate import _PLAN, calibrate, ceiling
from queen_sync.bench.machine import describe
from queen_sync.bench.tables import about_machine


def test_the_machine_is_calibrated(tmp_path):
    found = calibrate(1, seconds=0.3)
    assert found.python_loops_per_second > 0
    assert found.flask_requests_per_second > 0
    assert found.generator_calls_per_second > 0
    assert found.generator_pushed_per_second > 0
    assert found.generator_popped_per_second > 0
    text = "\n".join(about_machine(describe(tmp_path), found))
    assert "bare Flask" in text
    assert "generator ceiling" in text


@pytest.mark.parametrize(
    ("operation", "batch", "calls"),
    [("push", 1, {"push"}), ("push", 100, {"push"}), ("drain", 100, {"pop", "ack"})],
)
def test_a_server_that_does_nothing_keeps_the_generator_going(operation, batch, calls):
    tally = ceiling(replace(_PLAN, operation=operation, batch=batch, seconds=0.3))
    assert set(tally.calls) == calls
    assert not tally.errors
    for call in calls:
        assert tally.messages[call] == len(tally.calls[call]) * batch
        assert len(tally.calls[call]) > 8
