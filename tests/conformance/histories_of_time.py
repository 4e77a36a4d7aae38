"""More histories written by hand: beginnings, delays and windows, and what is fenced."""

import msgspec

from queen_sync import model as m
from queen_sync.conformance import checkers
from tests.conformance import histories as h
from tests.conformance.histories import acked, message, popped, pushed


def option(**options):
    return h.operation("configure", -1, 0, "q", options)


def stored_at(seconds, told):
    """A message with the instant at which the server says that it stored it."""
    return msgspec.structs.replace(told, created_us=seconds * 1_000_000)


def from_second(seconds, call):
    """A pop of a group that begins at that instant."""
    begins = m.Subscription(mode="from", from_us=seconds * 1_000_000)
    request = msgspec.structs.replace(call.arguments[0], subscription=begins)
    return msgspec.structs.replace(call, arguments=(request,))


def ignored(call):
    """The same pop, told that its group had begun otherwise."""
    answer = msgspec.structs.replace(call.answer, subscription_ignored=True)
    return msgspec.structs.replace(call, answer=answer)


def committed(start, end, source, lease, *outputs):
    """A transaction whose answer, where `end` is None, never came."""
    ack = acked(0, 1, lease, source).arguments[0][0]
    transaction = m.Transaction(operations=[ack, *map(h.item, outputs)])
    return h.operation("transact", start, float("inf") if end is None else end, transaction)


GOOD = {
    "a new group gets all that came after its first pop": (
        pushed(0, 1, a=1),
        popped(2, 3, None, mode="new"),
        pushed(4, 5, b=2, c=3),
        popped(6, 7, "L", message("b", 2), message("c", 3), mode="new"),
        acked(8, 9, "L", "b"),
        acked(8, 9, "L", "c"),
    ),
    "a push beside a first pop may fall on either side": (
        pushed(0, 9, a=1),
        popped(2, 3, None, mode="new"),
        pushed(10, 11, b=2),
        popped(12, 13, "L", message("b", 2), mode="new"),
        acked(14, 15, "L", "b"),
    ),
    "of two first pops one wins": (
        pushed(0, 1, a=1),
        popped(2, 3, "L", message("a", 1), mode="all"),
        ignored(popped(2, 3, None, mode="new")),
        acked(4, 5, "L", "a"),
    ),
    "a group begins at a time, that instant included": (
        pushed(0, 1, a=1, b=2),
        from_second(5, popped(2, 3, "L", stored_at(5, message("b", 2)))),
        acked(4, 5, "L", "b"),
    ),
    "a delayed message comes when its delay is over": (
        option(delayed_processing_seconds=10),
        pushed(1, 2, a=1),
        popped(3, 4, None),
        popped(11, 12, "L", message("a", 1)),
        acked(13, 14, "L", "a"),
    ),
    "a delay that was changed meanwhile says nothing": (
        option(delayed_processing_seconds=10),
        pushed(1, 2, a=1),
        h.operation("configure", 3, 4, "q", {"delayed_processing_seconds": 0}),
        popped(4, 5, "L", message("a", 1)),
        acked(6, 7, "L", "a"),
    ),
    "a window opens when it has been quiet": (
        option(window_buffer_seconds=5),
        pushed(1, 2, a=1),
        pushed(4, 5, b=2),
        popped(6, 7, None),
        popped(9, 10, "L", message("a", 1), message("b", 2)),
        acked(11, 12, "L", "a"),
        acked(11, 12, "L", "b"),
    ),
    "a window opens when its oldest message has waited ten of them": (
        option(window_buffer_seconds=5),
        pushed(1, 2, a=1),
        pushed(50, 50.1, b=2),
        popped(51, 52, "L", message("a", 1), message("b", 2)),
        acked(53, 54, "L", "a"),
        acked(53, 54, "L", "b"),
    ),
    "a failed message rests for its delay": (
        option(retry_delay_milliseconds=3_000),
        pushed(0, 1, a=1),
        popped(1, 2, "L", message("a", 1)),
        acked(3, 4, "L", "a", "failed"),
        popped(5.5, 6.5, "M", message("a", 1, 2)),
        acked(7, 8, "M", "a"),
    ),
    "what is given back rests for no delay": (
        option(retry_delay_milliseconds=3_000),
        pushed(0, 1, a=1),
        popped(1, 2, "L", message("a", 1)),
        acked(3, 4, "L", "a", "pending"),
        popped(4.5, 5, "M", message("a", 1, 2)),
        acked(7, 8, "M", "a"),
    ),
    "an extension and a release that come late are refused": (
        pushed(0, 1, a=1),
        popped(1, 2, "L", message("a", 1)),
        popped(12, 13, "M", message("a", 1, 2)),
        h.operation("extend", 14, 15, "L", 60, error=h.lost()),
        h.operation("release", 14, 15, "L", error=h.lost()),
        acked(16, 17, "M", "a"),
    ),
    "a transaction without an answer whose source comes again before its output": (
        pushed(0, 1, a=1),
        popped(1, 2, "L", message("a", 1)),
        committed(3, None, "a", "L", "out"),
        popped(13, 14, "M", message("a", 1, 2)),
        acked(15, 16, "M", "a"),
    ),
    "a transaction that is repeated until it is answered": (
        pushed(0, 1, a=1),
        popped(1, 2, "L", message("a", 1)),
        committed(3, None, "a", "L", "out"),
        h.repeated(4, 5, "out", 2),
        popped(6, 7, "M", message("out", 2)),
        acked(8, 9, "M", "out"),
    ),
}

BAD = {
    "beginnings: what was pushed before": (
        checkers.beginnings,
        (pushed(0, 1, a=1), popped(2, 3, "L", message("a", 1), mode="new")),
    ),
    "beginnings: what is older than the instant asked for": (
        checkers.beginnings,
        (pushed(0, 1, a=1), from_second(5, popped(2, 3, "L", stored_at(4, message("a", 1))))),
    ),
    "beginnings: two of them": (
        checkers.beginnings,
        (popped(0, 1, None, mode="new"), popped(2, 3, None, mode="all")),
    ),
    "loss: the first message after a new group's beginning": (
        checkers.loss,
        (
            popped(0, 1, None, mode="new"),
            pushed(2, 3, a=1),
            pushed(4, 5, b=2),
            popped(6, 7, "L", message("b", 2), mode="new"),
            acked(8, 9, "L", "b"),
        ),
    ),
    "fifo: over the first message after a new group's beginning": (
        checkers.first_in_first_out,
        (
            popped(0, 1, None, mode="new"),
            pushed(2, 3, a=1),
            pushed(4, 5, b=2),
            popped(6, 7, "L", message("b", 2), mode="new"),
        ),
    ),
    "delays: too early": (
        checkers.delays,
        (
            option(delayed_processing_seconds=10),
            pushed(1, 2, a=1),
            popped(9, 10, "L", message("a", 1)),
        ),
    ),
    "windows: inside": (
        checkers.windows,
        (
            option(window_buffer_seconds=5),
            pushed(1, 2, a=1),
            pushed(4, 5, b=2),
            popped(7, 8, "L", message("a", 1)),
        ),
    ),
    "windows: an older push answered late hides no newer one": (
        checkers.windows,
        (
            option(window_buffer_seconds=5),
            pushed(4, 4.5, b=1),
            pushed(1, 5, a=2),
            popped(7, 8, "L", message("b", 1)),
        ),
    ),
    "retry delays: again too early": (
        checkers.retry_delays,
        (
            option(retry_delay_milliseconds=3_000),
            pushed(0, 1, a=1),
            popped(1, 2, "L", message("a", 1)),
            acked(3, 4, "L", "a", "failed"),
            popped(4.5, 5.5, "M", message("a", 1, 2)),
        ),
    ),
    "fences: a superseded lease is extended": (
        checkers.fences,
        (
            pushed(0, 1, a=1),
            popped(1, 2, "L", message("a", 1)),
            popped(12, 13, "M", message("a", 1, 2)),
            h.extended(14, 15, "L", 60),
        ),
    ),
    "fences: a superseded lease is released": (
        checkers.fences,
        (
            pushed(0, 1, a=1),
            popped(1, 2, "L", message("a", 1)),
            popped(12, 13, "M", message("a", 1, 2)),
            h.released(14, 15, "L"),
        ),
    ),
    "dedup: a duplicate before there is a first": (
        checkers.dedup,
        (h.repeated(0, 1, "a", 1), pushed(2, 3, a=1)),
    ),
    "transactions: the source again beside the output": (
        checkers.all_or_nothing,
        (
            pushed(0, 1, a=1),
            popped(1, 2, "L", message("a", 1)),
            committed(3, None, "a", "L", "out"),
            popped(4, 5, "M", message("out", 2)),
            popped(13, 14, "N", message("a", 1, 2)),
        ),
    ),
}
