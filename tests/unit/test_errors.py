"""The error tree: every class says by a code of its own what happened and what may be done."""

import inspect
import re

import pytest

from queen_sync import errors

CLASSES = [
    value
    for value in vars(errors).values()
    if isinstance(value, type) and issubclass(value, errors.QueenError)
]

CODES = {
    "QueenError": "ERROR",
    "InvalidRequest": "INVALID_REQUEST",
    "PayloadTooLarge": "PAYLOAD_TOO_LARGE",
    "NotFound": "NOT_FOUND",
    "QueueNotFound": "QUEUE_NOT_FOUND",
    "PartitionNotFound": "PARTITION_NOT_FOUND",
    "GroupNotFound": "GROUP_NOT_FOUND",
    "MessageNotFound": "MESSAGE_NOT_FOUND",
    "Conflict": "CONFLICT",
    "LeaseLost": "LEASE_LOST",
    "LeaseRequired": "LEASE_REQUIRED",
    "AlreadySettled": "ALREADY_SETTLED",
    "NotSupported": "NOT_SUPPORTED",
    "Overloaded": "OVERLOADED",
    "QueueFull": "QUEUE_FULL",
    "BackendError": "BACKEND_ERROR",
    "BackendUnavailable": "BACKEND_UNAVAILABLE",
    "Undecryptable": "UNDECRYPTABLE",
    "OutcomeUnknown": "OUTCOME_UNKNOWN",
}
"""Codes are seen by clients: they are written out here so that none changes by accident."""

RETRYABLE = {"Overloaded", "QueueFull", "BackendUnavailable", "Undecryptable", "OutcomeUnknown"}


def test_every_class_has_a_stable_code_of_its_own():
    assert {kind.__name__: kind.code for kind in CLASSES} == CODES
    assert len(set(CODES.values())) == len(CLASSES)


@pytest.mark.parametrize("kind", CLASSES, ids=lambda kind: kind.__name__)
def test_only_an_unknown_outcome_is_indefinite(kind):
    assert kind.definite == (kind is not errors.OutcomeUnknown)


@pytest.mark.parametrize("kind", CLASSES, ids=lambda kind: kind.__name__)
def test_only_what_may_pass_by_itself_is_retryable(kind):
    assert kind.retryable == (kind.__name__ in RETRYABLE)


@pytest.mark.parametrize("kind", CLASSES, ids=lambda kind: kind.__name__)
def test_the_page_draws_every_class_under_its_parent(kind):
    page = inspect.getdoc(errors) or ""
    above: dict[int, str] = {}
    drawn: dict[str, str | None] = {}
    for line in page.splitlines():
        entry = re.match(r"([ │├└─]*)([A-Z]\w+)(?: |$)", line)
        if entry and entry[2] in CODES:
            above[len(entry[1])] = entry[2]
            parents = [name for depth, name in sorted(above.items()) if depth < len(entry[1])]
            drawn[entry[2]] = parents[-1] if parents else None
    parent = kind.__mro__[1].__name__
    assert drawn[kind.__name__] == (parent if parent in CODES else None)


def test_a_message_is_also_the_text_of_the_exception():
    error = errors.LeaseLost("Invalid or expired lease")
    assert (str(error), error.message, error.index) == (error.message, str(error), None)


def test_an_invalid_request_is_a_value_error_that_names_the_field():
    error = errors.InvalidRequest("bad", "queue")
    assert isinstance(error, ValueError)
    assert error.field == "queue"
    assert errors.PayloadTooLarge("too large", "payload").field == "payload"


def test_what_is_not_supported_is_named():
    assert errors.NotSupported("no", "window").feature == "window"


def test_a_full_queue_says_how_full():
    """C-06."""
    error = errors.QueueFull("orders", 10, 8, 3)
    assert (error.queue, error.max_queue_size, error.depth, error.pushed) == ("orders", 10, 8, 3)
    assert error.remaining == 2
    assert error.message == "Queue 'orders' would exceed max capacity (10). Current: 8, Batch: 3"


def test_a_queue_over_its_limit_has_no_room():
    """C-06, H05."""
    assert errors.QueueFull("orders", 10, 12, 1).remaining == 0
