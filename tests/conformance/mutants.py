"""Backends that are broken on purpose: pushes, pops, leases, retries and transactions."""

import contextlib

import msgspec

from queen_sync import model as m
from queen_sync.backends.memory import MemoryBackend
from queen_sync.backends.memory_state import GroupState
from queen_sync.errors import QueenError

MUTANTS = {}


def mutant(*killers):
    """Name the cases that must find a mutant out."""

    def register(break_it):
        MUTANTS[break_it.__name__] = break_it, killers
        return break_it

    return register


def wrapped(patch, owner, name, wrapper):
    original = getattr(owner, name)
    patch.setattr(
        owner, name, lambda self, *args, **kwargs: wrapper(original, self, *args, **kwargs)
    )


@mutant("test_d01_a_leased_partition_is_passed_over_and_another_found")
def doublelease(patch):
    """A pop does not look whether the lane is held."""

    def since(original, state, now_us):
        state.hold = None
        return original(state, now_us)

    wrapped(patch, GroupState, "waiting_since_us", since)


@mutant("test_e03_a_late_ack_after_another_took_over_is_refused")
def nofence(patch):
    """Any lease id will do."""
    patch.setattr(GroupState, "held", lambda state, lease_id, now_us: state.hold or state.closed)


@mutant("test_e05_a_late_ack_is_refused_though_nobody_else_came")
def lateack(patch):
    """An expired lease counts until somebody else has taken the lane."""

    def held(original, state, lease_id, now_us):
        hold = state.hold
        if hold is not None and hold.lease.id == lease_id:
            return hold
        return original(state, lease_id, now_us)

    wrapped(patch, GroupState, "held", held)


@mutant(
    "test_c01_a_repeated_push_stores_nothing",
    "test_c04_an_id_is_taken_as_long_as_its_message_is_stored",
)
def nodedup(patch):
    """An id that is stored already is stored again, under another name."""
    seen = set()

    def push(original, backend, items, **options):
        fresh = []
        for item in items:
            place = item.queue, item.partition, item.transaction_id
            again = item.transaction_id is not None and place in seen
            fresh.append(msgspec.structs.replace(item, transaction_id=None) if again else item)
            seen.add(place)
        return original(backend, fresh, **options)

    wrapped(patch, MemoryBackend, "push", push)


@mutant("test_d05_acking_the_last_does_not_ack_the_others")
def settleall(patch):
    """Acking one acks everything before it."""

    def give(original, state, seq, outcome, error, now_us):
        hold = state.hold
        for earlier in sorted(hold.open):
            if earlier < seq and outcome == "completed":
                original(state, earlier, outcome, error, now_us)
        return original(state, seq, outcome, error, now_us)

    wrapped(patch, GroupState, "give", give)


@mutant("test_d03_acking_a_part_frees_nothing")
def partialrelease(patch):
    """The first outcome ends the lease."""

    def give(original, state, seq, outcome, error, now_us):
        status = original(state, seq, outcome, error, now_us)
        state.hold = None
        return status

    wrapped(patch, GroupState, "give", give)


@mutant(
    "test_e01_an_expired_batch_comes_again_whole_and_in_order",
    "test_e09_a_message_that_kills_its_consumers_ends_among_the_dead_letters",
)
def expirynocount(patch):
    """A lease that runs out is no failure of anybody."""

    def expire(original, state, now_us):
        state.hold, hold = None, state.hold
        state.ended_us = hold.lease.expires_us

    wrapped(patch, GroupState, "expire", expire)


@mutant("test_e11_a_claim_over_partitions_finds_its_killer")
def blameall(patch):
    """An expiry takes a whole batch past its limit."""

    def expire(original, state, now_us):
        state.hold.lease.alone = True
        original(state, now_us)

    wrapped(patch, GroupState, "expire", expire)


@mutant("test_e09_its_neighbours_are_not_dead_lettered_for_its_sake")
def nevercut(patch):
    """A message on its last attempt goes on being delivered among others."""
    patch.setattr(GroupState, "goes_alone", lambda state, seq: False)


@mutant("test_e01_an_expired_batch_comes_again_whole_and_in_order")
def expiryack(patch):
    """A lease that runs out settles what it held."""

    def expire(original, state, now_us):
        hold = state.hold
        for seq in sorted(hold.open):
            state.give(seq, "completed", None, now_us)

    wrapped(patch, GroupState, "expire", expire)


@mutant("test_f01_a_failed_message_comes_again_before_unseen_ones")
def skiphead(patch):
    """A failed message is stepped over while there are others."""

    def batch(original, state, room, now_us):
        messages = state.partition.messages[state.position :]
        others = [
            x for x in messages if x.seq not in state.settled and x.seq not in state.histories
        ]
        return others[:room] or original(state, room, now_us)

    wrapped(patch, GroupState, "batch", batch)


@mutant("test_f01_a_failed_message_comes_again_before_unseen_ones")
def nackack(patch):
    """A failure settles the message."""

    def give(original, state, seq, outcome, error, now_us):
        return original(state, seq, "completed" if outcome == "failed" else outcome, error, now_us)

    wrapped(patch, GroupState, "give", give)


@mutant("test_f05_a_failing_message_is_delivered_once_more_than_it_is_retried")
def retryoff1(patch):
    """One failure too few."""

    def outcome(original, state, seq, given, error, now_us):
        history = state.histories.get(seq)
        last = (
            history is not None
            and history.failures == state.partition.queue.options.retry_limit - 1
        )
        return original(state, seq, "dlq" if given == "failed" and last else given, error, now_us)

    wrapped(patch, GroupState, "_outcome", outcome)


@mutant("test_f04_a_batch_that_always_fails_is_dead_lettered_whole")
def dlqlost(patch):
    """A dead letter is not written down."""

    def bury(original, state, seq, history, now_us):
        state._settle(seq)

    wrapped(patch, GroupState, "_bury", bury)


@mutant("test_a04_a_batch_comes_out_in_request_order")
def revbatch(patch):
    """A batch is delivered backwards."""

    def deliver(original, state, batch):
        return original(state, batch)[::-1]

    wrapped(patch, GroupState, "deliver", deliver)


@mutant("test_d11_an_auto_ack_pop_settles_what_it_delivers")
def acklost(patch):
    """What an autoAck pop delivered stays unsettled."""
    patch.setattr(GroupState, "complete_now", lambda state, batch, now_us: None)


@mutant(
    "test_i03_a_zombies_transaction_pushes_nothing", "test_i02_one_bad_element_undoes_all_others"
)
def txnsplit(patch):
    """A transaction pushes first and looks at its acks afterwards."""

    def transact(original, backend, transaction):
        try:
            return original(backend, transaction)
        except QueenError:
            items = [x for x in transaction.operations if isinstance(x, m.NewMessage)]
            with contextlib.suppress(QueenError):
                backend.push(items)
            raise

    wrapped(patch, MemoryBackend, "transact", transact)
