"""The table of statuses."""

import inspect

import pytest

from queen_sync import errors
from queen_sync.web.errors import STATUS, status_of

KINDS = [
    kind
    for _, kind in inspect.getmembers(errors, inspect.isclass)
    if issubclass(kind, errors.QueenError)
]


def test_every_error_has_a_row():
    assert set(STATUS) == set(KINDS)


@pytest.mark.parametrize("kind", KINDS)
def test_what_may_have_happened_is_the_only_504(kind):
    assert (STATUS[kind] == 504) == (not kind.definite)


@pytest.mark.parametrize("kind", KINDS)
def test_only_what_may_be_tried_again_has_a_status_that_says_so(kind):
    assert (STATUS[kind] in (429, 503, 504)) == kind.retryable


def test_an_error_of_somebody_else_has_the_status_of_its_parent():
    class Special(errors.QueueNotFound):
        pass

    assert status_of(Special("x")) == 404
