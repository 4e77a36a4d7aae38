"""Backends that are broken on purpose: the figures that they tell of themselves."""

import msgspec

from queen_sync import stats as s
from queen_sync.backends import memory_stats
from queen_sync.backends.memory_state import GroupState
from queen_sync.backends.memory_stats import MemoryStatistics
from tests.conformance.mutants import MUTANTS, mutant, wrapped

__all__ = ["MUTANTS"]


@mutant("test_h21_a_message_counts_once_however_many_groups_wait_for_it")
def everygroup(patch):
    """What several groups hold is counted once for each of them."""

    def count(state):
        stats = of_partition(state)
        held = sum(group.in_flight_count for group in state.groups)
        return msgspec.structs.replace(stats, in_flight_count=held)

    of_partition = s.of_partition
    patch.setattr(s, "of_partition", count)


@mutant("test_h21_live_leases_are_listed_by_their_end")
def deadleases(patch):
    """Lanes without a live lease are listed among those with one."""

    def lanes(original, backend, wanted):
        return original(backend, msgspec.structs.replace(wanted, leased=False))

    wrapped(patch, MemoryStatistics, "lanes", lanes)


@mutant("test_h21_lanes_are_listed_by_lag_and_by_age")
def oneorder(patch):
    """Whatever order was asked for, lanes come by name."""
    patch.setattr(memory_stats, "_rank", lambda lane, order: 0)


@mutant(
    "test_h21_a_group_is_the_sum_of_its_lanes",
    "test_h21_an_extended_lease_is_held_since_it_was_taken",
)
def lasttouched(patch):
    """When a lane was looked at counts as when it was taken."""

    def live(original, state, now_us):
        state.taken_us = now_us
        return original(state, now_us)

    wrapped(patch, GroupState, "live", live)


@mutant("test_h22_counts_are_read_in_buckets_of_a_span")
def openend(patch):
    """The last minute of a span does not belong to it."""

    def counts(original, backend, wanted):
        return original(backend, msgspec.structs.replace(wanted, to_us=wanted.to_us - 1))

    wrapped(patch, MemoryStatistics, "counts", counts)


@mutant("test_h22_counts_add_up_by_minute_and_queue")
def addeddelays(patch):
    """The largest delays of two reports are added up."""
    patch.setattr(s, "LARGEST", "none of them")


@mutant("test_h22_old_counts_are_forgotten")
def oneminutemore(patch):
    """The minute at which forgetting ends is forgotten too."""

    def forget(original, backend, before_us):
        return original(backend, before_us + 1)

    wrapped(patch, MemoryStatistics, "forget_counts", forget)
