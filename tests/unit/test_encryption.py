"""Envelopes and the ring of keys: what opens, what does not, and what is never shown."""

from base64 import b64decode

import msgspec
import pytest
from hypothesis import given, strategies as st

from queen_sync.config import Settings
from queen_sync.encryption import NULL, KeyRing, id_of, no_key, open_envelope, shown
from queen_sync.errors import InvalidRequest, Undecryptable

FIRST, SECOND = "0f" * 32, "Ab" * 32
RING = KeyRing.parse("", f"one:{FIRST},two:{SECOND}")
PLACE = ("orders", "Default", "x")
NAMES = st.text(min_size=1, max_size=20)


@given(NAMES, NAMES, NAMES, st.binary(max_size=200))
def test_what_was_sealed_opens_as_it_was(queue, partition, name, payload):
    """INV-ENCRYPT."""
    envelope = RING.seal(queue, partition, name, payload)
    assert RING.open(queue, partition, name, envelope) == payload


def test_an_envelope_has_the_four_parts_of_the_wire():
    """wire.md a.2: base64, a nonce of 16 bytes, the id of the key beside it."""
    envelope = msgspec.json.decode(RING.seal(*PLACE, b"12345"))
    assert list(envelope) == ["encrypted", "iv", "authTag", "keyId"]
    sizes = [len(b64decode(envelope[part])) for part in ("encrypted", "iv", "authTag")]
    assert (sizes, envelope["keyId"]) == ([5, 16, 16], "one")


def test_no_nonce_comes_twice():
    """INV-ENCRYPT: the same payload in the same place looks different each time."""
    nonces = {msgspec.json.decode(RING.seal(*PLACE, b"1"))["iv"] for _ in range(1000)}
    assert len(nonces) == 1000


def test_every_bit_of_an_envelope_counts():
    """INV-ENCRYPT: whatever bit of it is turned, it does not open."""
    envelope = RING.seal(*PLACE, b'{"amount":7}')
    for place in range(len(envelope) * 8):
        changed = bytearray(envelope)
        changed[place // 8] ^= 1 << place % 8
        with pytest.raises(Undecryptable):
            RING.open(*PLACE, bytes(changed))


@pytest.mark.parametrize("add", [b" ", b"\n", b"x"])
def test_an_envelope_that_was_written_otherwise_does_not_open(add):
    envelope = RING.seal(*PLACE, b"1")
    for changed in (envelope + add, add + envelope, envelope[:-1], b"", NULL, b'"\xff"'):
        with pytest.raises(Undecryptable):
            RING.open(*PLACE, changed)


@given(st.tuples(NAMES, NAMES, NAMES), st.tuples(NAMES, NAMES, NAMES))
def test_an_envelope_opens_in_its_place_only(place, other):
    """INV-ENCRYPT: a row that was moved or renamed opens no more than one that was changed."""
    envelope = RING.seal(*place, b"1")
    if place == other:
        assert RING.open(*other, envelope) == b"1"
    else:
        with pytest.raises(Undecryptable):
            RING.open(*other, envelope)


def test_parts_of_a_place_do_not_run_into_each_other():
    """INV-ENCRYPT: each is bound with its length."""
    envelope = RING.seal("ab", "c", "d", b"1")
    for other in (("a", "bc", "d"), ("ab", "cd", ""), ("abc", "", "d"), ("", "abc", "d")):
        with pytest.raises(Undecryptable):
            RING.open(*other, envelope)


def test_an_envelope_cannot_be_given_to_another_key():
    """INV-ENCRYPT: the id of the key is bound too, also between two names of one key."""
    twins = KeyRing.parse("", f"a:{FIRST},b:{FIRST}")
    envelope = twins.seal(*PLACE, b"1")
    with pytest.raises(Undecryptable):
        twins.open(*PLACE, envelope.replace(b'"keyId":"a"', b'"keyId":"b"'))


def test_the_first_key_seals_and_all_of_them_open():
    """O-52: a rotation puts the new key first and keeps the old one."""
    rotated = KeyRing.parse("", f"two:{SECOND},one:{FIRST}")
    assert (RING.sealing_id, rotated.sealing_id) == ("one", "two")
    assert rotated.open(*PLACE, RING.seal(*PLACE, b"1")) == b"1"
    assert RING.open(*PLACE, rotated.seal(*PLACE, b"2")) == b"2"


def test_a_single_key_has_an_id_that_is_made_from_it():
    """And it opens what it sealed after a ring was put in its place."""
    alone = KeyRing.parse(FIRST, "")
    assert alone.sealing_id == id_of(bytes.fromhex(FIRST))
    both = KeyRing.parse(FIRST, f"two:{SECOND}")
    assert both.sealing_id == "two"
    assert both.open(*PLACE, alone.seal(*PLACE, b"1")) == b"1"
    named = KeyRing.parse("", f"two:{SECOND},{alone.sealing_id}:{FIRST}")
    assert named.open(*PLACE, alone.seal(*PLACE, b"1")) == b"1"


def test_a_missing_key_is_named_and_one_that_does_not_fit_too():
    """O-52: never other bytes."""
    envelope = RING.seal(*PLACE, b"1")
    for ring in (None, KeyRing.parse("", f"two:{SECOND}")):
        with pytest.raises(Undecryptable, match="key 'one' is not configured here"):
            open_envelope(ring, *PLACE, envelope)
    wrong = KeyRing.parse("", f"one:{SECOND}")
    with pytest.raises(Undecryptable, match="key 'one' does not open it"):
        open_envelope(wrong, *PLACE, envelope)
    payload, why = shown(wrong, *PLACE, envelope)
    assert payload == NULL
    assert "key 'one' does not open it" in why
    with pytest.raises(Undecryptable, match="no envelope"):
        open_envelope(None, *PLACE, b"1")


def test_a_key_is_never_shown():
    """Neither by what holds it, nor by an error about it."""
    secret = "c0ffee" * 10 + "0123"
    settings = Settings(encryption_key=secret, encryption_keys=f"one:{secret}")
    ring = KeyRing.parse(settings.encryption_key, settings.encryption_keys)
    told = [repr(settings), repr(ring), str(vars(ring)), no_key("orders").message]
    for wrong in ("1:" + secret + "0", "/:" + secret, f"a:{secret},a:{secret}", secret):
        with pytest.raises(InvalidRequest) as caught:
            Settings(encryption_keys=wrong)
        told += [caught.value.message, repr(caught.value)]
    with pytest.raises(InvalidRequest) as caught:
        Settings(encryption_key=secret + "0")
    told.append(caught.value.message)
    assert not [text for text in told if "c0ffee" in text.lower()]


@pytest.mark.parametrize(
    "keys",
    [
        "one",
        f"one:{FIRST},",
        f"one:{FIRST[1:]}",
        f":{FIRST}",
        f"a b:{FIRST}",
        f"{FIRST}:{FIRST}",
        ",",
    ],
)
def test_keys_that_cannot_be_read_are_refused_by_the_name_of_the_setting(keys):
    """PL-13: the server does not start."""
    with pytest.raises(InvalidRequest, match="64 hexadecimal digits") as caught:
        Settings.from_environment({"QUEEN_ENCRYPTION_KEYS": keys})
    assert caught.value.field == "QUEEN_ENCRYPTION_KEYS"


@pytest.mark.parametrize("key", ["1", FIRST[1:], "g" * 64, f"one:{FIRST}"])
def test_a_key_that_cannot_be_read_is_refused_by_the_name_of_the_setting(key):
    with pytest.raises(InvalidRequest, match="64 hexadecimal digits") as caught:
        Settings.from_environment({"QUEEN_ENCRYPTION_KEY": key})
    assert caught.value.field == "QUEEN_ENCRYPTION_KEY"


def test_an_id_stands_for_one_key():
    with pytest.raises(InvalidRequest, match="two keys of the id 'one'"):
        KeyRing.parse("", f"one:{FIRST},one:{SECOND}")
    with pytest.raises(InvalidRequest, match="another key of the id"):
        KeyRing.parse(FIRST, f"{id_of(bytes.fromhex(FIRST))}:{SECOND}")


def test_without_keys_there_is_no_ring():
    assert KeyRing.parse("", "") is None
    assert Settings().encryption_key == Settings().encryption_keys == ""
