"""Backends that are broken on purpose: lists by status, names alone, and retries at once."""

import msgspec

from queen_sync import inspection as i
from queen_sync.backends import memory_inspection
from queen_sync.backends.memory import MemoryBackend
from queen_sync.backends.memory_state import GroupState
from tests.conformance.mutants import MUTANTS, mutant, wrapped

__all__ = ["MUTANTS"]


@mutant(
    "test_h17_without_a_group_a_message_is_what_most_wants_to_be_looked_at",
    "test_h17_a_listing_can_be_of_one_status",
)
def statusforgot(patch):
    """A status that is asked for is not looked at."""

    def messages(original, backend, wanted):
        return original(backend, msgspec.structs.replace(wanted, status=None))

    wrapped(patch, MemoryBackend, "messages", messages)


@mutant("test_h17_without_a_group_a_message_is_what_most_wants_to_be_looked_at")
def firststatus(patch):
    """For all groups together a message is what it is for the first."""

    def status(message):
        return message.states[0].status if message.states else "pending"

    patch.setattr(i.StoredMessage, "status", property(status))


@mutant("test_h17_an_offset_counts_what_is_listed", "test_h17_a_listing_can_be_of_one_status")
def latefilter(patch):
    """A page is cut out first, and only then the status is looked at."""

    def messages(original, backend, wanted):
        page = original(backend, msgspec.structs.replace(wanted, status=None))
        items = [each for each in page.items if wanted.status in (None, each.status)]
        return i.MessagePage(items=items, next_before=page.next_before)

    wrapped(patch, MemoryBackend, "messages", messages)


@mutant("test_h17_a_group_narrows_to_its_own_queues")
def allgroups(patch):
    """A list for one group is the list for all of them."""

    def messages(original, backend, wanted):
        return original(backend, msgspec.structs.replace(wanted, group=None))

    wrapped(patch, MemoryBackend, "messages", messages)


@mutant("test_h16_a_message_is_found_by_its_name_alone")
def newestpartition(patch):
    """Of several messages of one name the newest partition's is found."""

    def find(store, name):
        places = [
            memory_inspection.Place(partition, message)
            for partition in store.partitions.values()
            if (message := partition.find(name)) is not None
        ]
        return max(places, key=lambda place: place.partition.number, default=None)

    patch.setattr(memory_inspection, "find_named", find)


@mutant("test_h18_a_retry_delay_can_be_ended_by_hand")
def keptdelay(patch):
    """A retry at once only says that it did something."""

    def retry_now(original, state, seq, now_us):
        histories = dict(state.histories)
        done = original(state, seq, now_us)
        state.histories = histories
        return done

    wrapped(patch, GroupState, "retry_now", retry_now)


@mutant("test_h18_a_retry_delay_can_be_ended_by_hand")
def freshretry(patch):
    """A retry at once forgets the failures."""

    def retry_now(original, state, seq, now_us):
        done = original(state, seq, now_us)
        if done:
            del state.histories[seq]
        return done

    wrapped(patch, GroupState, "retry_now", retry_now)


@mutant("test_h18_only_what_has_failed_can_be_retried_at_once")
def retriesall(patch):
    """What was given back counts as failed too."""

    def retry_now(original, state, seq, now_us):
        return original(state, seq, now_us) or seq in state.histories

    wrapped(patch, GroupState, "retry_now", retry_now)
