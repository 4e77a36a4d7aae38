"""Backends that are broken on purpose: what is stored, in which order, how much, and from when."""

import contextlib
import itertools

from msgspec.structs import replace

from queen_sync import ids
from queen_sync.backends.memory import MemoryBackend
from queen_sync.backends.memory_partition import Partition
from queen_sync.backends.memory_progress import Progress
from queen_sync.backends.memory_state import GroupState
from queen_sync.backends.memory_store import QueueState
from queen_sync.backends.memory_values import FRESH
from queen_sync.errors import QueueFull
from tests.conformance.mutants import MUTANTS, mutant, wrapped

__all__ = ["MUTANTS"]
EVERY = 41


@mutant("test_a04_a_batch_comes_out_in_request_order")
def drop(patch):
    """Now and then a push is answered and not stored."""
    numbers = itertools.count(1)

    def append(original, partition, item, now_us):
        stored = original(partition, item, now_us)
        if next(numbers) % EVERY == 0:
            partition.delete(stored, now_us)
        return stored

    wrapped(patch, Partition, "append", append)


@mutant("test_a06_pushes_of_one_instant_keep_their_order")
def lateorder(patch):
    """A new message is put below the tail."""

    def append(original, partition, item, now_us):
        tail = original(partition, item, now_us)
        if len(partition.messages) < 2:
            return tail
        *others, last, new = partition.messages
        new, last = replace(new, seq=last.seq), replace(last, seq=new.seq)
        partition.messages[:] = [*others, new, last]
        return new

    wrapped(patch, Partition, "append", append)


@mutant("test_a06_pushes_of_one_instant_keep_their_order")
def revpop(patch):
    """A pop takes the newest messages."""

    def batch(original, state, room, now_us):
        return original(state, len(state.partition.messages), now_us)[-room:]

    wrapped(patch, Progress, "batch", batch)


@mutant("test_e02_a_pop_takes_back_what_expired_without_any_help")
def expiryskip(patch):
    """What expired is stepped over while there are others."""

    def batch(original, state, room, now_us):
        every = original(state, len(state.partition.messages), now_us)
        others = [x for x in every if not state.histories.get(x.seq, FRESH).expired]
        return others[:room] or original(state, room, now_us)

    wrapped(patch, Progress, "batch", batch)


@mutant("test_f10_the_partition_goes_on_behind_a_dead_letter")
def dlqstuck(patch):
    """A dead letter goes on standing at the head of its lane."""

    def bury(original, state, seq, history, now_us):
        settle = state._settle
        state._settle = lambda _: None
        try:
            original(state, seq, history, now_us)
        finally:
            state._settle = settle

    wrapped(patch, GroupState, "_bury", bury)


@mutant("test_h01_a_full_queue_refuses_until_something_is_settled")
def nocap(patch):
    """A limit is not looked at."""
    patch.setattr(QueueState, "depth", lambda _: 0)


@mutant("test_h01_a_full_queue_refuses_until_something_is_settled")
def capoff1(patch):
    """A queue takes one more than its limit."""
    wrapped(patch, QueueState, "depth", lambda original, queue: original(queue) - 1)


@mutant("test_h02_a_batch_that_does_not_fit_is_not_stored_in_part")
def cappartial(patch):
    """Of a batch that does not fit, what fits is stored."""

    def push(original, backend, items, **options):
        try:
            return original(backend, items, **options)
        except QueueFull:
            with contextlib.suppress(QueueFull):
                for item in items:
                    original(backend, [item], **options)
            raise

    wrapped(patch, MemoryBackend, "push", push)


@mutant("test_h06_a_delayed_message_comes_at_its_instant_and_not_before")
def nodelay(patch):
    """A delayed message is due at once."""

    def due(original, state, message):
        original(state, message)
        return state.histories.get(message.seq, FRESH).not_before_us

    wrapped(patch, Progress, "_due_us", due)


@mutant("test_h07_a_partition_opens_when_it_has_been_quiet_for_its_window")
def nowindow(patch):
    """A partition is open inside its window."""

    def ready(original, state):
        head = next(state.waiting(), None)
        return original(state) if head is None else state._due_us(head)

    wrapped(patch, Progress, "ready_us", ready)


@mutant("test_e03_a_late_ack_after_another_took_over_is_refused")
def reuselease(patch):
    """A partition has one lease id for ever."""
    known = {}
    original = ids.lease_id
    patch.setattr(ids, "lease_id", lambda number: known.setdefault(number, original(number)))


@mutant("test_g02_a_lease_of_one_group_blocks_no_other")
def sharelease(patch):
    """A lease of one group holds the partition against all."""

    def since(original, state, now_us):
        others = (other for other in state.partition.groups.values() if other is not state)
        if any(other.hold is not None and other.hold.live(now_us) for other in others):
            return None
        return original(state, now_us)

    wrapped(patch, Progress, "waiting_since_us", since)
