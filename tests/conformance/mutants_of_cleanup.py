"""Backends that are broken on purpose: what they show of themselves, and what is taken out."""

import msgspec

from queen_sync import inspection as i
from queen_sync.backends.memory import MemoryBackend
from queen_sync.backends.memory_partition import Partition
from queen_sync.backends.memory_progress import Progress
from queen_sync.backends.memory_state import GroupState
from queen_sync.backends.memory_store import Store
from tests.conformance.mutants import MUTANTS, mutant, wrapped

__all__ = ["MUTANTS"]


@mutant(
    "test_h18_a_hole_counts_nowhere",
    "test_h18_a_seek_passes_a_hole_over",
)
def ghosts(patch):
    """A group that begins later, or is moved back, still waits for what was deleted."""

    def begin(original, state, position):
        holes, state.partition.holes = state.partition.holes, set()
        original(state, position)
        state.partition.holes = holes

    wrapped(patch, Progress, "begin", begin)


@mutant(
    "test_h18_a_hole_counts_nowhere",
    "test_h04_deleting_and_clearing_make_room",
)
def unsettled(patch):
    """A deleted message is not settled for anybody."""
    patch.setattr(GroupState, "drop", lambda state, seq, now_us: None)


@mutant("test_h18_a_lease_ends_with_its_last_open_message")
def emptylease(patch):
    """A lease over nothing but deleted messages goes on."""

    def drop(original, state, seq, now_us):
        hold = state.hold
        original(state, seq, now_us)
        state.hold = hold

    wrapped(patch, GroupState, "drop", drop)


@mutant("test_h18_the_name_of_a_deleted_message_is_free")
def takenname(patch):
    """The name of a deleted message stays taken."""

    def delete(original, partition, message, now_us):
        original(partition, message, now_us)
        partition.by_name[message.transaction_id] = message

    wrapped(patch, Partition, "delete", delete)


@mutant("test_h18_what_a_live_lease_covers_is_left_to_its_holder")
def burygreedy(patch):
    """Burying takes a message from under a live lease."""

    def bury(original, state, seq, error, now_us):
        hold, state.hold = state.hold, None
        done = original(state, seq, error, now_us)
        state.hold = hold
        return done

    wrapped(patch, GroupState, "bury", bury)


@mutant("test_h18_a_cleared_queue_holds_nothing_but_dead_letters")
def clearleases(patch):
    """Clearing leaves leases and retries as they are."""

    def clear(original, state, now_us):
        hold, histories = state.hold, state.histories
        original(state, now_us)
        state.hold, state.histories = hold, histories

    wrapped(patch, GroupState, "clear", clear)


@mutant(
    "test_h18_a_deleted_partition_is_gone_with_all_it_held",
    "test_h18_a_partition_of_the_same_name_begins_anew",
)
def emptiesonly(patch):
    """Deleting a partition empties it instead."""

    def drop(original, store, queue_name, name, now_us):
        store.clear(queue_name, name, now_us)
        return True

    wrapped(patch, Store, "drop_partition", drop)


@mutant("test_h17_a_listing_meets_every_message_once")
def instantkey(patch):
    """A page begins behind an instant, wherever in it the last one ended."""

    def messages(original, backend, wanted):
        if wanted.before is not None:
            wanted = msgspec.structs.replace(wanted, before=None, to_us=wanted.before[0] - 1)
        return original(backend, wanted)

    wrapped(patch, MemoryBackend, "messages", messages)


@mutant("test_h17_a_trace_is_listed_over_all_queues_in_order")
def tracefalls(patch):
    """A trace is listed like everything else, newest first."""

    def messages(original, backend, wanted):
        page = original(backend, wanted)
        if wanted.trace_id is None:
            return page
        return i.MessagePage(items=page.items[::-1], next_before=page.next_before)

    wrapped(patch, MemoryBackend, "messages", messages)


@mutant(
    "test_h15_a_lease_is_shown_while_it_lives",
    "test_h16_a_message_that_was_given_back_is_pending",
)
def deadlease(patch):
    """A lease is shown until somebody takes it back."""
    patch.setattr(Progress, "live", lambda state, now_us: state.hold)


@mutant("test_h15_what_some_group_still_needs_waits")
def sumofgroups(patch):
    """What waits is added up over the groups."""

    def depth(original, partition):
        if not partition.groups:
            return original(partition)
        return sum(state.left() for state in partition.groups.values())

    wrapped(patch, Partition, "depth", depth)


@mutant("test_h19_notes_go_with_their_message")
def keptnotes(patch):
    """Notes outlive their messages."""

    def delete(original, partition, message, now_us):
        notes = dict(partition.traces)
        original(partition, message, now_us)
        partition.traces = notes

    wrapped(patch, Partition, "delete", delete)
