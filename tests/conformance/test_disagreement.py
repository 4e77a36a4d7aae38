"""What the comparison with the memory backend says where a backend is wrong."""

import msgspec
import pytest

from queen_sync.backends.base import Backend
from queen_sync.backends.memory import MemoryBackend
from queen_sync.backends.sqlite import SqliteBackend
from queen_sync.backends.sqlite_lanes import Lane
from queen_sync.conformance.agreement import (
    SharedClock,
    assert_agreement,
    regression_test,
    sharing,
)

# The same programs each time: whether a difference is found must not be a matter of luck. They
# are shown as they were found, since making them shorter takes long.
MANY = 500


def memory(clock) -> Backend:
    return MemoryBackend(clock=clock)


class SeeksTooFar(MemoryBackend):
    def seek(self, target):
        if target.from_us is not None:
            target = msgspec.structs.replace(target, from_us=target.from_us + 6_000_000)
        return super().seek(target)


class RedrivesNothing(MemoryBackend):
    def redrive(self, wanted):
        return super().purge(wanted)


class ForgetsAttempts(MemoryBackend):
    def pop(self, request):
        return super().pop(msgspec.structs.replace(request, attempt_id=None))


class NeverEvicts(MemoryBackend):
    def configure(self, queue, options=None, **names):
        ages = {"ttl_seconds", "max_wait_seconds"}
        kept = {name: value for name, value in (options or {}).items() if name not in ages}
        return super().configure(queue, kept, **names)


class IgnoresPriority(MemoryBackend):
    def configure(self, queue, options=None, **names):
        kept = {name: value for name, value in (options or {}).items() if name != "priority"}
        return super().configure(queue, kept, **names)


class SpreadsNothing(MemoryBackend):
    def configure(self, queue, options=None, **names):
        return super().configure(queue, {**(options or {}), "spread_partitions": 0}, **names)


@pytest.mark.parametrize(
    "broken",
    [
        SeeksTooFar,
        RedrivesNothing,
        ForgetsAttempts,
        NeverEvicts,
        IgnoresPriority,
        SpreadsNothing,
    ],
)
def test_a_backend_that_differs_is_found_out(broken):
    with pytest.raises(AssertionError, match="the oracle says"):
        assert_agreement(memory, lambda clock: broken(clock=clock), programs=MANY, shrink=False)


def keeps_redriven_behind(monkeypatch):
    """Give what is stored before what was redriven."""
    monkeypatch.setattr(Lane, "batch", Lane._stored_batch)


def buries_what_is_settled(monkeypatch):
    """Dead-letter by hand whatever is stored."""
    monkeypatch.setattr(Lane, "owes", lambda self, seq: True)


@pytest.mark.parametrize("broken", [keeps_redriven_behind, buries_what_is_settled])
def test_an_engine_that_is_wrong_inside_is_found_out(tmp_path, monkeypatch, broken):
    broken(monkeypatch)
    clock = SharedClock()
    with (
        SqliteBackend(tmp_path / "queues.db", clock=clock, synchronous="normal") as backend,
        pytest.raises(AssertionError),
    ):
        assert_agreement(memory, sharing(clock, backend), programs=MANY, steps=40, shrink=False)


# ------------------------------------------------------------------- what a failure says


def forgetful(clock) -> Backend:
    return ForgetsAttempts(clock=clock)


@pytest.fixture(scope="module")
def disagreement() -> AssertionError:
    with pytest.raises(AssertionError) as caught:
        assert_agreement(memory, forgetful, programs=400, steps=15)
    return caught.value


def test_a_disagreement_tells_both_answers(disagreement):
    assert "the oracle says ('ok', " in str(disagreement)
    assert ", the subject ('ok', " in str(disagreement)


def test_a_disagreement_leaves_a_test_that_can_be_kept(disagreement):
    """The printed program fails on the backend that is wrong, and passes on one that is right."""
    (text,) = [note for note in disagreement.__notes__ if "as a test to keep" in note]
    program = text.partition("keep:\n")[2]
    assert program.strip() == regression_test(disagreement).strip()
    names = {}
    exec(compile(program, "the printed test", "exec"), names)
    test = names["test_a_program_on_which_two_backends_disagreed"]
    test(memory, memory)
    with pytest.raises(AssertionError, match="the oracle says"):
        test(memory, forgetful)


def test_a_shared_backend_follows_the_clock_of_the_present_program():
    clock = SharedClock()
    make = sharing(clock, MemoryBackend(clock=clock))
    moments = []

    def subject(present):
        backend = make(present)
        moments.append((clock.now_us(), present.now_us()))
        return backend

    assert_agreement(memory, subject, programs=5, steps=5)
    assert len(moments) >= 5
    assert all(shared == own for shared, own in moments)
