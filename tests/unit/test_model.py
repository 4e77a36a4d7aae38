"""The values: what cannot be stored cannot be made, and the refusal names the field."""

from datetime import UTC, datetime

import msgspec
import pytest
from hypothesis import given, strategies as st

from queen_sync import ids, model as m
from queen_sync.clock import to_us
from queen_sync.errors import InvalidRequest
from queen_sync.payloads import JsonText

NAMES = st.text(st.characters(exclude_characters="\0", exclude_categories=["Cs"]), max_size=255)
GOOD_NAMES = NAMES.filter(lambda name: name not in ("", ".", ".."))

BAD_NAMES = [
    pytest.param("", id="empty"),
    pytest.param("x" * 256, id="256 characters"),
    pytest.param("\U0001f600" * 256, id="256 characters of four bytes"),
    pytest.param(".", id="dot"),
    pytest.param("..", id="two dots"),
    pytest.param("a\0b", id="NUL"),
    pytest.param("a\ud800", id="lone surrogate"),
]

NAMED = [
    pytest.param(lambda name: m.NewMessage(queue=name), "queue", id="push to queue"),
    pytest.param(
        lambda name: m.NewMessage(queue="q", partition=name), "partition", id="push to partition"
    ),
    pytest.param(
        lambda name: m.NewMessage(queue="q", transaction_id=name),
        "transactionId",
        id="push a transaction id",
    ),
    pytest.param(lambda name: m.PopRequest(queue=name), "queue", id="pop from queue"),
    pytest.param(lambda name: m.PopRequest(queue="q", group=name), "consumerGroup", id="pop as"),
    pytest.param(
        lambda name: m.PopRequest(queue="q", partition=name), "partition", id="pop from partition"
    ),
    pytest.param(lambda name: m.Ack(transaction_id=name), "transactionId", id="ack a message"),
    pytest.param(
        lambda name: m.Ack(transaction_id="t", group=name), "consumerGroup", id="ack for a group"
    ),
]


def refused(make, *args, **kwargs) -> InvalidRequest:
    with pytest.raises(InvalidRequest) as caught:
        make(*args, **kwargs)
    return caught.value


@pytest.mark.parametrize("name", BAD_NAMES)
@pytest.mark.parametrize(("make", "field"), NAMED)
def test_a_bad_name_is_refused_wherever_it_stands(make, field, name):
    """C-18, B08."""
    assert refused(make, name).field == field


@pytest.mark.parametrize(("make", "field"), NAMED)
@pytest.mark.parametrize(
    "name",
    [
        "x" * 255,
        "\U0001f600" * 255,
        "a/b%2F?#+ ';--",
        " trailing ",
        "...",
        m.DEFAULT_PARTITION,
        m.QUEUE_MODE,
    ],
)
def test_any_other_name_is_taken_wherever_it_stands(make, field, name):
    """C-18, B08, B10."""
    assert name in msgspec.structs.astuple(make(name)), field


@given(GOOD_NAMES)
def test_a_name_of_any_characters_is_kept_as_it_is(name):
    """C-18, B09."""
    assert m.PopRequest(queue=name).queue == name


@pytest.mark.parametrize("name", ["__system_", "__system_events__"])
def test_nobody_pushes_to_the_servers_own_queues(name):
    """C-18."""
    error = refused(m.NewMessage, queue=name)
    assert error.field == "queue"
    assert "reserved" in error.message


def test_a_payload_given_as_bytes_passes_the_gate():
    """C-10."""
    message = m.NewMessage(queue="q", payload=b' {"a": 1.10}\n')
    assert message.payload == b'{"a": 1.10}'
    assert type(message.payload) is JsonText
    assert refused(m.NewMessage, queue="q", payload=b"NaN").field == "payload"


def test_a_message_without_a_payload_says_null():
    assert m.NewMessage(queue="q").payload == b"null"


def test_a_message_made_of_a_value_carries_all_that_it_was_given():
    trace_id = ids.lease_id(1)
    message = m.NewMessage.of("q", {"n": 1}, partition="p", transaction_id="t", trace_id=trace_id)
    assert message == m.NewMessage(
        queue="q",
        payload=JsonText(b'{"n":1}'),
        partition="p",
        transaction_id="t",
        trace_id=trace_id,
    )


@pytest.mark.parametrize("trace_id", ["", "x", "00000001-0000-8000-8000-00000000000G", "A" * 36])
def test_a_trace_id_that_is_no_canonical_uuid_is_refused(trace_id):
    assert refused(m.NewMessage, queue="q", trace_id=trace_id).field == "traceId"


@pytest.mark.parametrize("option", sorted(m.OPTION_DEFAULTS))
def test_every_option_refuses_values_of_another_type(option):
    """C-11."""
    others = ["x", None, 1.0, []]
    others += [1, 0] if isinstance(m.OPTION_DEFAULTS[option], bool) else [True, False, -1, 2**31]
    for value in others:
        error = refused(m.check_option, option, value)
        assert error.field == option
        assert option in error.message


@pytest.mark.parametrize("option", sorted(m.OPTION_DEFAULTS))
def test_every_option_takes_its_default_and_its_bounds(option):
    """C-11."""
    default = m.OPTION_DEFAULTS[option]
    top = m.MAX_LEASE_SECONDS if option == "lease_seconds" else m.MAX_OPTION
    for value in (True, False) if isinstance(default, bool) else (default, 0, 1, top):
        assert getattr(m.QueueOptions(**{option: value}), option) is value


def test_an_unknown_option_is_refused_by_name():
    """C-11, O-14."""
    error = refused(m.check_option, "leaseSecond", 1)
    assert (error.field, error.message) == ("leaseSecond", "unknown option 'leaseSecond'")


def test_options_cannot_be_made_or_changed_past_their_bounds():
    """C-11, E10."""
    assert refused(m.QueueOptions, lease_seconds=m.MAX_LEASE_SECONDS + 1).field == "lease_seconds"
    assert refused(msgspec.structs.replace, m.QueueOptions(), retry_limit=-1).field == "retry_limit"


@pytest.mark.parametrize(("given_seconds", "effective"), [(0, 60), (1, 1), (86_400, 86_400)])
def test_a_lease_time_of_0_means_60_seconds(given_seconds, effective):
    """E10."""
    assert m.QueueOptions(lease_seconds=given_seconds).effective_lease_seconds == effective


@pytest.mark.parametrize("count", [0, -1])
def test_a_pop_asks_for_something(count):
    assert refused(m.PopRequest, queue="q", max_messages=count).field == "batch"
    assert refused(m.PopRequest, queue="q", max_partitions=count).field == "partitions"


@pytest.mark.parametrize(
    ("mode", "from_us", "field"),
    [
        ("from", None, "subscriptionFrom"),
        ("all", 1, "subscriptionFrom"),
        ("new", 1, "subscriptionFrom"),
        ("latest", None, "subscriptionMode"),
    ],
)
def test_a_subscription_that_says_nothing_clear_is_refused(mode, from_us, field):
    """C-07."""
    assert refused(m.Subscription, mode=mode, from_us=from_us).field == field


@pytest.mark.parametrize("outcome", ["", "done", "Completed", "dead_letter"])
def test_an_outcome_that_does_not_exist_is_refused(outcome):
    """C-04."""
    assert refused(m.Ack, transaction_id="t", outcome=outcome).field == "status"


@pytest.mark.parametrize(
    ("given_text", "kept"),
    [("a\0b", "a\ufffdb"), ("a\ud800b", "a\ufffdb"), ("\u00e9\U0001f600", "\u00e9\U0001f600")],
)
def test_an_error_text_is_made_storable_and_never_refused(given_text, kept):
    """C-04."""
    assert m.Ack(transaction_id="t", outcome="failed", error=given_text).error == kept


def test_a_transaction_does_something():
    """C-15."""
    assert refused(m.Transaction, operations=[]).field == "operations"


@pytest.mark.parametrize("field", ["limit", "offset"])
def test_a_page_of_dead_letters_is_not_negative(field):
    assert refused(m.DeadLetterFilter, **{field: -1}).field == field


def test_values_do_not_change():
    for value in (m.PopRequest(queue="q"), m.Ack(transaction_id="t"), m.QueueOptions(), m.Claim()):
        with pytest.raises(AttributeError, match="immutable"):
            setattr(value, value.__struct_fields__[0], "other")


def message(payload: bytes, created_us: int = 0) -> m.Message:
    return m.Message(
        id="i",
        transaction_id="t",
        queue="q",
        partition="p",
        partition_id="pi",
        seq=1,
        payload=payload,
        created_us=created_us,
    )


def test_a_claim_is_true_when_it_holds_messages():
    assert not m.Claim()
    assert not m.Claim(subscription_ignored=True)
    assert m.Claim(messages=[message(b"1")])


def test_a_message_gives_its_payload_as_a_value():
    """C-10."""
    assert message(b'{"a":[1,null]}').value == {"a": [1, None]}
    assert message(b"1e999").value == float("inf")


def test_instants_are_also_datetimes():
    at = datetime(2026, 3, 1, 10, 0, 0, 123456, tzinfo=UTC)
    assert message(b"1", to_us(at)).created_at == at
    assert m.Claim(expires_us=to_us(at)).expires_at == at
    assert m.Claim().expires_at is None


def test_answers_say_what_they_mean():
    receipt = m.Receipt(
        status="duplicate",
        id="i",
        transaction_id="t",
        queue="q",
        partition="p",
        partition_id="pi",
        seq=1,
    )
    assert receipt.duplicate
    assert not msgspec.structs.replace(receipt, status="queued").duplicate
    assert m.Acked(transaction_id="t", status="dead_letter").dead_lettered
    assert not m.Acked(transaction_id="t", status="failed").dead_lettered
    assert m.Acked(transaction_id="t", status="failed").ok
    assert not m.Acked(transaction_id="t", code="LEASE_LOST").ok


def test_spread_partitions_are_named_after_the_default_one():
    """PLD-12."""
    assert [m.spread_name(index) for index in range(3)] == ["Default", "Default-2", "Default-3"]


@pytest.mark.parametrize(
    ("transaction_id", "expected"),
    # The first eight bytes of the SHA-256: a rule that other implementations share.
    [("a", 0xCA978112CA1BBDCA), ("ü", 0x607474CA475A9724)],
)
def test_a_transaction_id_says_by_itself_where_it_is_spread_to(transaction_id, expected):
    """PLD-12, C-16: the same for every process, version and backend."""
    for count in (1, 2, 3, 1000, 2**31 - 1):
        assert m.spread_index(transaction_id, count) == expected % count


def test_transaction_ids_are_spread_over_all_partitions():
    """PLD-12."""
    places = [m.spread_index(f"order {n}", 4) for n in range(400)]
    assert all(places.count(index) > 50 for index in range(4))
