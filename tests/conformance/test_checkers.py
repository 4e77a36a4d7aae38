"""Each rule passes the histories that are right and finds what is wrong with the others."""

import time

import pytest

from queen_sync.conformance import checkers, contract
from queen_sync.conformance.facts import Facts
from tests.conformance import histories as h, histories_of_time
from tests.conformance.histories import acked, facts, message, popped, pushed

GOOD = {
    "a plain life": (
        pushed(0, 1, a=1, b=2),
        popped(2, 3, "L", message("a", 1), message("b", 2)),
        acked(4, 5, "L", "a"),
        acked(4, 5, "L", "b"),
    ),
    "a push without an answer that happened": (
        h.unanswered_push(0, "a"),
        popped(2, 3, "L", message("a", 1)),
        acked(4, 5, "L", "a"),
    ),
    "a delivery that is answered before its push": (
        pushed(0, 9, a=1),
        popped(2, 3, "L", message("a", 1)),
        acked(4, 5, "L", "a"),
    ),
    "concurrent pushes in either order": (
        pushed(0, 5, a=2),
        pushed(1, 4, b=1),
        popped(6, 7, "L", message("b", 1), message("a", 2)),
        acked(8, 8.1, "L", "b"),
        acked(8, 8.1, "L", "a"),
    ),
    "a duplicate of a push whose answer was lost": (
        h.unanswered_push(0, "a"),
        h.repeated(1, 2, "a", 1),
        popped(3, 4, "L", message("a", 1)),
        acked(5, 6, "L", "a"),
    ),
    "an expiry that comes exactly in time": (
        pushed(0, 1, a=1),
        popped(1, 2, "L", message("a", 1)),
        popped(11, 12, "M", message("a", 1, 2)),
        acked(13, 14, "L", "a", refused=True),
        acked(13, 14, "M", "a"),
    ),
    "a nack, then the same message": (
        pushed(0, 1, a=1, b=2),
        popped(2, 3, "L", message("a", 1)),
        acked(3, 4, "L", "a", "failed"),
        popped(4, 5, "M", message("a", 1, 2), message("b", 2)),
        acked(5, 6, "M", "a"),
        acked(5, 6, "M", "b"),
    ),
    "a released claim": (
        pushed(0, 1, a=1),
        popped(2, 3, "L", message("a", 1)),
        h.released(3, 4, "L"),
        popped(4, 5, "M", message("a", 1, 2)),
        acked(5, 6, "M", "a"),
    ),
    "an extended lease that lasted": (
        pushed(0, 1, a=1),
        popped(1, 2, "L", message("a", 1)),
        h.extended(9, 9.1, "L", 20),
        acked(20, 21, "L", "a"),
    ),
    "a repeat that is answered already under a newer lease": (
        pushed(0, 1, a=1, b=2),
        popped(1, 2, "L", message("a", 1)),
        acked(2, 3, "L", "a"),
        popped(3, 4, "M", message("b", 2)),
        acked(4, 5, "L", "a", already=True),
        acked(5, 6, "M", "b"),
    ),
    "a hole that was settled before": (
        pushed(0, 1, a=1, b=2, c=3),
        popped(1, 2, "L", message("a", 1), message("b", 2)),
        acked(2, 3, "L", "b"),
        popped(12.5, 13, "M", message("a", 1, 2), message("c", 3)),
        acked(14, 15, "M", "a"),
        acked(14, 15, "M", "c"),
    ),
    "a dead letter, and the next one flows": (
        pushed(0, 1, a=1, b=2),
        popped(1, 2, "L", message("a", 1)),
        acked(2, 3, "L", "a", "dead_letter"),
        popped(3, 4, "M", message("b", 2)),
        acked(4, 5, "M", "b"),
        h.listed(6, 7, ("a", 1)),
    ),
    "a dead letter that nobody saw die": (
        pushed(0, 1, a=1, b=2),
        popped(1, 2, "L", message("a", 1)),
        popped(13, 14, "M", message("b", 2)),
        acked(14, 15, "M", "b"),
        h.listed(16, 17, ("a", 1)),
    ),
    "an ack without an answer, and the message does not come": (
        pushed(0, 1, a=1, b=2),
        popped(1, 2, "L", message("a", 1)),
        acked(2, float("inf"), "L", "a"),
        popped(3, 4, "M", message("b", 2)),
        acked(4, 5, "M", "b"),
    ),
    "a group that begins with new": (
        pushed(0, 1, a=1),
        popped(1.5, 1.6, None, mode="new"),
        pushed(2, 3, b=2),
        popped(4, 5, "L", message("b", 2), mode="new"),
        acked(6, 7, "L", "b"),
    ),
    "two groups at once": (
        pushed(0, 1, a=1),
        popped(1, 2, "L", message("a", 1)),
        popped(1, 2, "M", message("a", 1), group="other"),
        acked(2, 3, "L", "a"),
        acked(2, 3, "M", "a", group="other"),
    ),
    "a transaction without an answer that happened whole": (
        h.unanswered_transaction(0, h.item("a"), h.item("b")),
        popped(1, 2, "L", message("a", 1), message("b", 2)),
        acked(2, 3, "L", "a"),
        acked(2, 3, "L", "b"),
    ),
    "an autoAck pop": (
        pushed(0, 1, a=1, b=2),
        popped(1, 2, None, message("a", 1), auto_ack=True),
        popped(1.5, 2.5, None, message("b", 2), auto_ack=True),
    ),
    "a limited queue that is full and then is not": (
        h.operation("configure", -1, 0, "q", {"max_queue_size": 1}),
        pushed(0, 1, a=1),
        h.refused_push(1, 2, "b", error=h.full(1)),
        popped(2, 3, "L", message("a", 1)),
        acked(3, 4, "L", "a"),
        pushed(3.5, 4.5, c=2),
        popped(5, 6, "M", message("c", 2)),
        acked(6, 7, "M", "c"),
    ),
}

BAD = {
    "integrity: a message that nobody pushed": (
        checkers.integrity,
        (pushed(0, 1, a=1), popped(2, 3, "L", message("x", 2))),
    ),
    "integrity: other bytes": (
        checkers.integrity,
        (pushed(0, 1, a=1), popped(2, 3, "L", message("a", 1, text="b"))),
    ),
    "integrity: a refused push": (
        checkers.integrity,
        (h.refused_push(0, 1, "a", error=h.full(1)), popped(2, 3, "L", message("a", 1))),
    ),
    "integrity: delivered before it was pushed": (
        checkers.integrity,
        (popped(0, 1, "L", message("a", 1)), pushed(2, 3, a=1)),
    ),
    "order: a later push stands before an earlier one": (
        checkers.order,
        (pushed(0, 1, a=2), pushed(2, 3, b=1)),
    ),
    "order: a far later push overtakes": (
        checkers.order,
        (pushed(0, 1, a=3), pushed(0, 9, b=2), pushed(2, 3, c=1)),
    ),
    "order: two at one place": (checkers.order, (pushed(0, 1, a=1), pushed(0, 1, b=1))),
    "order: a request turned round": (checkers.order, (pushed(0, 1, a=2, b=1),)),
    "dedup: two messages of one id": (
        checkers.dedup,
        (pushed(0, 1, a=1), h.repeated(2, 3, "a", 1, identity="other")),
    ),
    "dedup: queued twice": (checkers.dedup, (pushed(0, 1, a=1), pushed(2, 3, a=1))),
    "dedup: a duplicate of nothing": (checkers.dedup, (h.repeated(0, 1, "a", 1),)),
    "fan out: another message at the same place": (
        checkers.fan_out,
        (
            popped(0, 1, "L", message("a", 1)),
            popped(0, 1, "M", message("b", 1, identity="other"), group="other"),
        ),
    ),
    "loss: never delivered": (
        checkers.loss,
        (pushed(0, 1, a=1, b=2), popped(1, 2, "L", message("a", 1)), acked(2, 3, "L", "a")),
    ),
    "loss: delivered, never settled": (
        checkers.loss,
        (
            pushed(0, 1, a=1),
            popped(1, 2, "L", message("a", 1)),
            acked(20, 21, "L", "a", refused=True),
        ),
    ),
    "loss: to one of two groups": (
        checkers.loss,
        (
            pushed(0, 1, a=1),
            popped(1, 2, "L", message("a", 1)),
            acked(2, 3, "L", "a"),
            popped(1, 2, None, group="other"),
        ),
    ),
    "dead letters: one that is not listed": (
        checkers.dead_letters,
        (
            pushed(0, 1, a=1),
            popped(1, 2, "L", message("a", 1)),
            acked(2, 3, "L", "a", "dead_letter"),
            h.listed(4, 5),
        ),
    ),
    "dead letters: one that is listed twice": (
        checkers.dead_letters,
        (h.listed(4, 5, ("a", 1), ("a", 1)),),
    ),
    "fifo: a batch out of order": (
        checkers.first_in_first_out,
        (pushed(0, 1, a=1, b=2), popped(1, 2, "L", message("b", 2), message("a", 1))),
    ),
    "fifo: the head is skipped": (
        checkers.first_in_first_out,
        (pushed(0, 1, a=1, b=2), popped(1, 2, "L", message("b", 2))),
    ),
    "fifo: a failed head is stepped over": (
        checkers.first_in_first_out,
        (
            pushed(0, 1, a=1, b=2),
            popped(1, 2, "L", message("a", 1)),
            acked(2, 3, "L", "a", "failed"),
            popped(4, 5, "M", message("b", 2)),
        ),
    ),
    "fifo: a hole inside the batch": (
        checkers.first_in_first_out,
        (pushed(0, 1, a=1, b=2, c=3), popped(1, 2, "L", message("a", 1), message("c", 3))),
    ),
    "fifo: a late commit is passed over": (
        checkers.first_in_first_out,
        (
            pushed(0, 1, b=2),
            popped(2, 3, "L", message("b", 2)),
            acked(3, 4, "L", "b"),
            pushed(0, 5, a=1),
            popped(6, 7, "M", message("a", 1)),
        ),
    ),
    "claims: two live leases": (
        checkers.exclusive_claims,
        (
            pushed(0, 1, a=1, b=2),
            popped(1, 2, "L", message("a", 1)),
            popped(3, 4, "M", message("b", 2)),
        ),
    ),
    "claims: a long lease and a short one inside it": (
        checkers.exclusive_claims,
        (
            pushed(0, 1, a=1, b=2, c=3),
            popped(1, 2, "L", message("a", 1)),
            popped(3, 4, "M", message("b", 2)),
            acked(4.5, 4.6, "M", "b"),
            popped(5, 6, "N", message("c", 3)),
        ),
    ),
    "claims: given away though it was extended": (
        checkers.exclusive_claims,
        (
            pushed(0, 1, a=1),
            popped(1, 2, "L", message("a", 1)),
            h.extended(9, 9.1, "L", 60),
            popped(15, 16, "M", message("a", 1, 2)),
        ),
    ),
    "repetitions: again without a reason": (
        checkers.repetitions,
        (
            pushed(0, 1, a=1, b=2),
            popped(1, 2, "L", message("a", 1), message("b", 2)),
            acked(2, 3, "L", "b"),
            popped(3, 4, "M", message("a", 1, 2)),
        ),
    ),
    "claims: a lease id used twice": (
        checkers.exclusive_claims,
        (
            pushed(0, 1, a=1, b=2),
            popped(1, 2, "L", message("a", 1)),
            acked(2, 3, "L", "a"),
            popped(3, 4, "L", message("b", 2)),
        ),
    ),
    "fences: a superseded ack is accepted": (
        checkers.fences,
        (
            pushed(0, 1, a=1),
            popped(1, 2, "L", message("a", 1)),
            popped(12, 13, "M", message("a", 1, 2)),
            acked(14, 15, "L", "a"),
        ),
    ),
    "first words: a repeat of nothing": (
        checkers.first_words,
        (
            pushed(0, 1, a=1),
            popped(1, 2, "L", message("a", 1)),
            acked(3, 4, "L", "a", already=True),
        ),
    ),
    "durable acks: settled, and again": (
        checkers.durable_acks,
        (
            pushed(0, 1, a=1),
            popped(1, 2, "L", message("a", 1)),
            acked(2, 3, "L", "a"),
            popped(20, 21, "M", message("a", 1, 2)),
        ),
    ),
    "durable acks: after an autoAck pop": (
        checkers.durable_acks,
        (
            pushed(0, 1, a=1),
            popped(1, 2, None, message("a", 1), auto_ack=True),
            popped(20, 21, "M", message("a", 1, 2)),
        ),
    ),
    "retries: a number is left out": (
        checkers.retry_bounds,
        (
            popped(1, 2, "L", message("a", 1)),
            acked(2, 3, "L", "a", "failed"),
            popped(3, 4, "M", message("a", 1, 3)),
        ),
    ),
    "retries: the second delivery comes first": (
        checkers.retry_bounds,
        (popped(1, 2, "L", message("a", 1, 2)), popped(30, 40, "M", message("a", 1, 1))),
    ),
    "retries: more failures than allowed": (
        checkers.retry_bounds,
        tuple(
            step
            for n in range(3)
            for step in (
                popped(4 * n, 4 * n + 1, f"L{n}", message("a", 1, n + 1)),
                acked(4 * n + 2, 4 * n + 3, f"L{n}", "a", "failed"),
            )
        ),
    ),
    "retries: a crash loop without end": (
        checkers.retry_bounds,
        tuple(popped(20 * n, 20 * n + 1, f"L{n}", message("a", 1, n + 1)) for n in range(5)),
    ),
    "transactions: half of one without an answer": (
        checkers.all_or_nothing,
        (
            h.unanswered_transaction(0, h.item("a"), h.item("b")),
            popped(1, 2, "L", message("a", 1)),
        ),
    ),
    "transactions: part of a refused one": (
        checkers.all_or_nothing,
        (h.refused_transaction(0, 1, h.item("a")), popped(1, 2, "L", message("a", 1))),
    ),
    "capacity: one more than the limit": (
        checkers.capacity,
        (h.operation("configure", -1, 0, "q", {"max_queue_size": 1}), pushed(0, 1, a=1, b=2)),
    ),
    "capacity: full without need": (
        checkers.capacity,
        (
            h.operation("configure", -1, 0, "q", {"max_queue_size": 2}),
            pushed(0, 1, a=1),
            h.refused_push(2, 3, "b", error=h.full(2)),
        ),
    ),
}


GOOD |= histories_of_time.GOOD
BAD |= histories_of_time.BAD


@pytest.mark.parametrize("name", GOOD)
def test_a_right_history_breaks_no_rule(name):
    operations = [h.configured(lease_seconds=10, retry_limit=2), *GOOD[name]]
    assert [str(found) for found in checkers.violations(operations, drained=True)] == []


@pytest.mark.parametrize("name", BAD)
def test_a_wrong_history_is_found_out(name):
    rule, operations = BAD[name]
    found = rule(facts(*operations))
    assert found
    assert {violation.invariant for violation in found} <= set(contract.rules())
    assert str(found[0]).startswith(found[0].invariant)


def test_every_rule_has_a_history_that_breaks_it():
    assert {rule for rule, _ in BAD.values()} == set(checkers.rules(drained=True))


def test_what_only_a_drain_can_show_is_not_asked_before():
    operations = (*GOOD["a plain life"][:1], popped(1, 2, None))
    assert checkers.violations(operations, drained=False) == []
    assert checkers.violations(operations, drained=True) != []


def test_a_long_history_is_checked_in_seconds():
    """30,000 calls, with holes in every batch, stay far from quadratic."""
    operations = [h.configured(lease_seconds=10)]
    count = 10_000
    for n in range(1, count + 1):
        start = float(n)
        operations.append(pushed(start, start + 0.1, **{f"m{n}": n}))
        operations.append(popped(start + 0.2, start + 0.3, f"L{n}", message(f"m{n}", n)))
        operations.append(acked(start + 0.4, start + 0.5, f"L{n}", f"m{n}"))
    began = time.monotonic()
    read = Facts(operations)
    assert [found for rule in checkers.rules(drained=True) for found in rule(read)] == []
    assert time.monotonic() - began < 5
