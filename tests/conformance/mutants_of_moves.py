"""Backends that are broken on purpose: redrives, seeks, age, attempts, scopes and spreading."""

import itertools

import msgspec

from queen_sync import model as m
from queen_sync.backends.memory import MemoryBackend
from queen_sync.backends.memory_partition import Partition
from queen_sync.backends.memory_state import GroupState
from queen_sync.backends.memory_store import Store
from tests.conformance.mutants import MUTANTS, mutant, wrapped

__all__ = ["MUTANTS"]


@mutant(
    "test_f13_a_redriven_message_comes_again_before_unread_ones",
    "test_f13_a_failing_redriven_message_holds_its_lane",
)
def redrivelast(patch):
    """What was given back waits behind what is unread."""

    def waiting(original, state):
        again, state.redriven = state.redriven, {}
        unread = list(original(state))
        state.redriven = again
        return iter(unread or list(original(state)))

    wrapped(patch, GroupState, "waiting", waiting)


@mutant(
    "test_f13_a_message_that_is_stored_no_more_comes_from_its_copy",
    "test_f13_a_seek_cannot_reach_what_is_stored_no_more",
)
def redrivestored(patch):
    """Only what is still stored can be given back."""

    def redrive(original, state, seq, now_us):
        if seq > state.partition.removed:
            original(state, seq, now_us)

    wrapped(patch, GroupState, "redrive", redrive)


@mutant(
    "test_g10_leases_end_where_a_group_is_moved",
    "test_g10_the_last_closed_lease_is_forgotten",
)
def seekkeeps(patch):
    """A seek leaves the leases as they are."""

    def seek(original, state, position, now_us):
        kept = state.hold, state.closed
        original(state, position, now_us)
        state.hold, state.closed = kept

    wrapped(patch, GroupState, "seek", seek)


@mutant("test_g10_attempts_begin_afresh_behind_a_seek")
def seekcounts(patch):
    """A seek moves the position and forgets nothing."""

    def seek(original, state, position, now_us):
        kept = dict(state.histories)
        original(state, position, now_us)
        state.histories = kept

    wrapped(patch, GroupState, "seek", seek)


@mutant("test_h09_nothing_is_evicted_from_under_a_live_lease")
def evictleased(patch):
    """Age asks no lease."""

    def evict(original, state, now_us):
        held, state.hold = state.hold, None
        evicted = original(state, now_us)
        state.hold = held
        return evicted

    wrapped(patch, GroupState, "evict", evict)


@mutant(
    "test_h09_a_message_that_waited_too_long_is_evicted",
    "test_h09_what_an_expired_lease_held_may_be_too_old",
)
def evictlazy(patch):
    """Only upkeep evicts: a pop still delivers what is too old."""

    sweeping = []

    def sweep(original, backend):
        sweeping.append(True)
        report = original(backend)
        sweeping.clear()
        return report

    wrapped(patch, MemoryBackend, "sweep", sweep)
    wrapped(
        patch,
        GroupState,
        "evict",
        lambda original, state, now_us: original(state, now_us) if sweeping else 0,
    )


@mutant("test_h10_a_group_that_never_came_back_keeps_its_messages")
def retainforone(patch):
    """What one group has settled is taken from all."""

    def long_settled(original, partition, now_us):
        groups = partition.groups
        done = {name: state for name, state in groups.items() if state.position}
        partition.groups = done
        seq = original(partition, now_us)
        partition.groups = groups
        return seq

    wrapped(patch, Partition, "_long_settled", long_settled)


@mutant(
    "test_h10_a_seek_back_begins_the_time_anew",
    "test_h10_a_group_that_comes_late_holds_what_is_left",
)
def retainearly(patch):
    """Once settled is settled long ago, whoever needs it again."""
    patch.setattr(Partition, "unsettle", lambda partition, position: None)


@mutant("test_h10_nothing_is_removed_from_under_a_live_lease")
def retainleased(patch):
    """Retention asks no lease."""
    patch.setattr(GroupState, "first_leased", lambda state: None)


@mutant("test_c08_an_id_is_free_again_once_its_message_is_gone")
def retainnames(patch):
    """The names of removed messages are never free again."""

    def remove(original, partition, seq):
        names = dict(partition.by_name)
        count = original(partition, seq)
        partition.by_name = names
        return count

    wrapped(patch, Partition, "_remove_up_to", remove)


@mutant(
    "test_j12_a_repeated_pop_gives_the_same_claim",
    "test_j12_a_repeat_takes_no_other_partition",
)
def nopopretry(patch):
    """An attempt id is a word without a meaning."""

    def pop(original, backend, request):
        return original(backend, msgspec.structs.replace(request, attempt_id=None))

    wrapped(patch, MemoryBackend, "pop", pop)


@mutant("test_j12_an_attempt_id_belongs_to_one_queue_and_group")
def popretryglobal(patch):
    """The same attempt id means the same attempt everywhere."""
    known = {}

    def pop(original, backend, request):
        if request.attempt_id not in known:
            known[request.attempt_id] = original(backend, request)
        return known[request.attempt_id]

    wrapped(patch, MemoryBackend, "pop", pop)


@mutant("test_h12_the_higher_priority_is_served_first")
def noprio(patch):
    """All queues of a scope are equal."""

    def configure(original, backend, queue, options=None, **names):
        kept = {name: value for name, value in (options or {}).items() if name != "priority"}
        return original(backend, queue, kept, **names)

    wrapped(patch, MemoryBackend, "configure", configure)


@mutant("test_g13_a_group_of_a_scope_counts_in_a_queue_that_is_made_later")
def scopeforgets(patch):
    """A group of a scope begins in a queue when it first pops there."""
    patch.setattr(Store, "_groups_over", lambda store, queue: [])


@mutant("test_a14_a_repeat_meets_the_first_in_its_partition")
def spreadnamed(patch):
    """Messages with an id are spread by turn as the others are."""
    turns = itertools.count()
    patch.setattr(m, "spread_index", lambda name, count: next(turns) % count)
