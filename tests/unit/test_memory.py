"""What is peculiar to the memory backend; what every backend owes is in the conformance suite."""

import contextlib
import gc
import logging
import multiprocessing
import os

import pytest

from queen_sync import model as m
from queen_sync.backends.memory import MemoryBackend
from queen_sync.clock import ManualClock
from queen_sync.errors import AlreadySettled, BackendUnavailable, NotSupported, QueueFull


@pytest.fixture
def clock():
    return ManualClock()


@pytest.fixture
def backend(clock):
    with MemoryBackend(clock) as opened:
        yield opened


def push(backend, *names, queue="q"):
    return backend.push([m.NewMessage.of(queue, name, transaction_id=name) for name in names])


def pop(backend, count=1, **wanted):
    return backend.pop(m.PopRequest(queue="q", max_messages=count, **wanted))


def ack(backend, claim, outcome="completed"):
    return backend.ack(
        [
            m.Ack(
                transaction_id=message.transaction_id,
                outcome=outcome,
                partition_id=message.partition_id,
                group=claim.group,
                lease_id=claim.lease_id,
            )
            for message in claim.messages
        ]
    )


def use_in_a_child(backend, answers):
    """Report what each way in says, in the child."""
    for name, use in {
        "push": lambda: push(backend, "b"),
        "pop": lambda: pop(backend),
        "check": backend.check,
        "queues": backend.queues,
    }.items():
        try:
            answers.put((name, repr(use())))
        except BackendUnavailable as error:
            answers.put((name, error.message))


# The test process may have threads of its own; that a fork is unwise then is what is tested.
@pytest.mark.filterwarnings("ignore:.*fork.*:DeprecationWarning")
@pytest.mark.parametrize("held", [False, True], ids=["at rest", "while it is locked"])
def test_a_forked_process_is_refused_and_never_hangs(backend, held):
    """O-25, O-35: two copies of one queue would each give the same message."""
    push(backend, "a")
    context = multiprocessing.get_context("fork")
    answers = context.SimpleQueue()
    child = context.Process(target=use_in_a_child, args=(backend, answers))
    if held:
        with backend._lock:
            child.start()
    else:
        child.start()
    child.join(10)
    hung = child.is_alive()
    child.kill()
    assert not hung
    for name in ("push", "pop", "check", "queues"):
        said = answers.get()
        assert said[0] == name
        assert f"belongs to process {os.getpid()}" in said[1]
        assert f"was used in process {child.pid}" in said[1]
    assert [message.value for message in pop(backend, 9).messages] == ["a"]


def test_a_closed_backend_says_so(backend):
    backend.close()
    backend.close()
    with pytest.raises(BackendUnavailable, match="is closed"):
        push(backend, "a")


def test_it_says_that_it_keeps_nothing(backend):
    """O-35: neither durable nor shared, in its capabilities and on a health page."""
    push(backend, "a", "b")
    facts = backend.check()
    assert (facts["queues"], facts["partitions"], facts["messages"]) == (1, 1, 2)
    assert "gone when it ends" in facts["warnings"][0]
    assert not backend.capabilities.durable
    assert not backend.capabilities.shared


def test_an_option_without_effect_is_refused_and_makes_no_queue(backend):
    """O-14: of all options it is encryption that memory has no use for."""
    with pytest.raises(NotSupported) as caught:
        backend.configure("q", {"lease_seconds": 5, "encryption_enabled": True})
    assert caught.value.feature == "enc"
    assert backend.queue("q") is None
    backend.configure("q", {"encryption_enabled": False})


def test_settled_messages_leave_no_trace_of_their_way(backend, clock):
    """Progress is a position and what lies past it, however much has passed."""
    push(backend, *map(str, range(50)))
    while claim := pop(backend, 7):
        ack(backend, claim, "failed")
        ack(backend, pop(backend, 7))
    (state,) = backend._store.states()
    assert state.position == 50
    assert (state.settled, state.histories, state.dead) == (set(), {}, {})


def test_only_live_and_last_closed_leases_are_kept(backend, clock):
    """Lease ids are forgotten with the leases, not collected."""
    backend.configure("q", {"lease_seconds": 10, "retry_limit": 100})
    push(backend, *map(str, range(20)))
    gc.disable()  # the leases have to go by themselves
    try:
        for _ in range(10):
            ack(backend, pop(backend))
            pop(backend)
            clock.advance(10)
        assert len(backend._store.leases) == 2
        backend.sweep()
        assert len(backend._store.leases) == 1
        backend.delete_queue("q")
        assert len(backend._store.leases) == 0
    finally:
        gc.enable()


def test_attempts_are_forgotten_with_their_leases(backend, clock):
    """O-55, C-13: an attempt id costs nothing once its claim is settled and the next one too."""
    push(backend, "a", "b")
    for attempt in "xy":
        ack(backend, pop(backend, attempt_id=attempt))
    assert len(backend._store.attempts) == 1
    backend.delete_queue("q")
    assert len(backend._store.attempts) == 0


def test_what_retention_removed_is_gone_from_memory(backend, clock):
    """O-55, C-09: messages, names, marks and what groups knew of them."""
    backend.configure(
        "q",
        {"retention_enabled": True, "completed_retention_seconds": 10, "retention_seconds": 100},
    )
    for n in range(300):
        push(backend, f"done {n}", f"failed {n}")
        claim = pop(backend, 2)
        ack(backend, claim, "failed" if n % 2 else "completed")
        backend.sweep()
        clock.advance(1)
    clock.advance(100)
    backend.sweep()
    (state,) = backend._store.states()
    partition = state.partition
    assert (partition.messages, partition.by_name) == ([], {})
    assert (partition.removed, state.position) == (600, 600)
    assert (state.settled, state.histories) == (set(), {})
    assert len(partition._marks) <= 12


def test_a_refused_transaction_keeps_no_lease_alive(backend):
    """C-15: the error that was raised and dropped leaves nothing for the collector."""
    push(backend, "a")
    claim = pop(backend)
    ack(backend, claim)
    repeat = m.Ack(transaction_id="a", lease_id=claim.lease_id)
    gc.disable()
    try:
        with contextlib.suppress(AlreadySettled):
            backend.transact(m.Transaction(operations=[repeat, m.NewMessage.of("q", 1)]))
        assert list(backend._store.leases) == [claim.lease_id]
        backend.delete_queue("q")
        assert list(backend._store.leases) == []
    finally:
        gc.enable()


def test_a_refused_transaction_puts_every_state_back(backend, clock):
    """C-15: acks come first and make room, and are undone when there is still too little."""
    backend.configure("q", {"max_queue_size": 3, "retry_limit": 0})
    push(backend, "a", "b", "c")
    claim = pop(backend, 3)
    (state,) = backend._store.states()
    before = repr(describe(state))
    outcomes = ["completed", "failed", "retry"]
    acks = [
        m.Ack(transaction_id=name, outcome=outcome, lease_id=claim.lease_id)
        for name, outcome in zip("abc", outcomes, strict=True)
    ]
    items = [m.NewMessage.of("q", n, transaction_id=str(n)) for n in range(3)]
    with pytest.raises(QueueFull) as caught:
        backend.transact(m.Transaction(operations=[items[0], *acks, *items[1:]]))
    assert (caught.value.index, caught.value.depth) == (0, 1)
    assert repr(describe(state)) == before
    done = backend.transact(m.Transaction(operations=[items[0], *acks, items[1]]))
    assert [result.status for result in done.results] == [
        "queued",
        "completed",
        "dead_letter",
        "pending",
        "queued",
    ]


def describe(state):
    hold = state.hold
    return (
        state.position,
        state.settled,
        state.histories,
        state.dead,
        hold and (hold.lease.id, sorted(hold.open), hold.outcomes),
        state.closed,
        state.ended_us,
    )


def test_a_listener_may_use_the_backend_and_sees_the_change(backend):
    """O-17: the lock is free when it is called."""
    seen = []
    stop = backend.listen(lambda hint: seen.append((hint, len(backend.queues()))))
    push(backend, "a")
    assert seen == [(frozenset({"q"}), 1)]
    stop()
    push(backend, "b")
    assert len(seen) == 1


def test_a_listener_that_fails_does_not_fail_the_push(backend, caplog):
    def fail(hint):
        raise RuntimeError("listener")

    seen = []
    backend.listen(fail)
    backend.listen(seen.append)
    with caplog.at_level(logging.ERROR):
        assert push(backend, "a")[0].seq == 1
    assert seen == [frozenset({"q"})]
    assert "a listener failed" in caplog.text


def test_listeners_are_told_whenever_something_may_have_become_poppable(backend, clock):
    """O-17, O-40."""
    told = []
    backend.listen(told.append)

    def hints():
        heard = len(told)
        told.clear()
        return heard

    backend.configure("q", {"lease_seconds": 10})
    assert hints() == 1
    push(backend, "a", "b")
    assert hints() == 1
    push(backend, "a")
    assert hints() == 0, "a duplicate brings nothing"
    claim = pop(backend)
    assert hints() == 0
    ack(backend, claim)
    assert hints() == 1, "the closed lease leaves b"
    ack(backend, pop(backend), "failed")
    assert hints() == 1
    backend.release(pop(backend).lease_id)
    assert hints() == 1
    claim = pop(backend)
    backend.transact(
        m.Transaction(
            operations=[
                m.Ack(transaction_id="b", outcome="retry", lease_id=claim.lease_id),
            ]
        )
    )
    assert hints() == 1
    pop(backend)
    clock.advance(10)
    assert backend.sweep().expired == 1
    assert hints() == 1
    ack(backend, pop(backend))
    assert hints() == 0, "nothing is left"
    backend.delete_group(m.QUEUE_MODE)
    assert hints() == 1
    backend.delete_queue("q")
    assert hints() == 1
