"""Ids that carry their address: round trips, order, and text that is none of ours."""

import uuid

import pytest
from hypothesis import given, strategies as st

from queen_sync import ids

PARTITIONS = st.integers(1, 2**ids.PARTITION_BITS - 1)
SEQS = st.integers(0, 2**ids.SEQ_BITS - 1)
INSTANTS = st.integers(0, 2**53)


@given(PARTITIONS, SEQS, INSTANTS)
def test_a_message_id_says_its_address(partition, seq, created_us):
    found = ids.address(ids.message_id(partition, seq, created_us))
    assert found == (partition, seq, created_us & ids.STAMP_MASK)


@given(PARTITIONS, SEQS, INSTANTS)
def test_a_message_id_is_a_canonical_uuid_of_version_8(partition, seq, created_us):
    text = ids.message_id(partition, seq, created_us)
    parsed = uuid.UUID(text)
    assert (str(parsed), parsed.version, parsed.variant) == (text, 8, uuid.RFC_4122)


@given(st.tuples(PARTITIONS, SEQS), st.tuples(PARTITIONS, SEQS), INSTANTS, INSTANTS)
def test_message_ids_sort_by_partition_and_seq(first, second, first_us, second_us):
    if first == second:
        return
    one, other = ids.message_id(*first, first_us), ids.message_id(*second, second_us)
    assert (one < other) == (first < second)


@given(PARTITIONS)
def test_a_partition_id_says_its_number(number):
    assert ids.partition_number(ids.partition_id(number)) == number


@given(PARTITIONS, st.integers(1, 2**ids.SEQ_BITS - 1), INSTANTS)
def test_a_message_id_is_no_partition_id(partition, seq, created_us):
    assert ids.partition_number(ids.message_id(partition, seq, created_us)) is None


@given(st.integers(1, 2**30))
def test_a_queue_id_is_no_partition_id(number):
    assert ids.partition_number(ids.queue_id(number)) is None


def test_queue_ids_are_distinct_and_none_is_a_partition_id():
    texts = {ids.queue_id(n) for n in range(1, 100)} | {ids.partition_id(n) for n in range(1, 100)}
    assert len(texts) == 198


@given(PARTITIONS)
def test_a_lease_id_names_its_partition_and_is_a_canonical_uuid(partition):
    text = ids.lease_id(partition)
    found = ids.address(text)
    assert found is not None
    assert found.partition == partition
    assert str(uuid.UUID(text)) == text


def test_lease_ids_never_repeat():
    """INV-CLAIM (c)."""
    assert len({ids.lease_id(1) for _ in range(10_000)}) == 10_000


@given(st.uuids())
def test_any_uuid_in_canonical_spelling_is_a_number(given_uuid):
    assert ids.number(str(given_uuid)) == given_uuid.int


@given(st.uuids().filter(lambda u: str(u) != str(u).upper()))
def test_another_spelling_of_a_uuid_is_no_second_name(given_uuid):
    """C-18."""
    canonical = str(given_uuid)
    for text in (canonical.upper(), canonical.replace("-", ""), f"{{{canonical}}}", given_uuid.urn):
        assert ids.number(text) is None
        assert ids.address(text) is None


@given(st.uuids(version=4))
def test_a_random_uuid_is_no_id_of_ours(given_uuid):
    assert ids.address(str(given_uuid)) is None


@given(st.text(max_size=40))
def test_foreign_text_is_no_id(text):
    assert ids.address(text) is None
    assert ids.partition_number(text) is None


@pytest.mark.parametrize(
    "text",
    [
        "",
        "00000000-0000-0000-0000-000000000000",
        "0000000000010-000-8000-8000-00000000",
        "00000001-0000-8000-8000-0000000000_0",
        "00000001-0000-8000-8000-00000000000\u0660",
        "+0000001-0000-8000-8000-000000000000",
        " 0000001-0000-8000-8000-000000000000",
        "00000001-0000-7000-8000-000000000000",
        "00000001-0000-8000-c000-000000000000",
        "00000001-0000-8000-8000-00000000000-",
    ],
)
def test_text_that_is_nearly_an_id_is_none(text):
    assert ids.address(text) is None


OURS = st.builds(ids.message_id, PARTITIONS, SEQS, INSTANTS)


@given(st.lists(st.one_of(OURS, OURS, st.uuids().map(str), st.text("0a-\n", max_size=80))))
def test_several_ids_say_what_each_says_alone(texts):
    assert list(ids.addresses(texts)) == [ids.address(text) for text in texts]


@given(st.lists(OURS, min_size=1))
def test_several_ids_of_ours_say_what_each_says_alone(texts):
    assert list(ids.addresses(texts)) == [ids.address(text) for text in texts]


@given(OURS, OURS)
def test_two_ids_in_one_text_are_none(first, second):
    assert list(ids.addresses([f"{first}\n{second}"])) == [None]
    assert list(ids.addresses([f"{first}\n{second}", ""])) == [None, None]
