"""Payloads at rest: AES-256-GCM envelopes, and the ring of keys that opens them.

An envelope is JSON text, ``{"encrypted", "iv", "authTag", "keyId"}``, the first three in base64.
It is bound to where it was put: queue, partition and transaction id are authenticated with it,
so that a row that was moved or renamed opens no more than one that was changed. Its nonce is
random, 16 bytes, and never used twice in practice (2**48 envelopes of one key: one chance in
2**33).
"""

from __future__ import annotations

import hashlib
import os
import re
from base64 import b64decode, b64encode
from collections.abc import Mapping
from typing import Self

import msgspec
from cryptography.exceptions import InvalidTag
from cryptography.hazmat.primitives.ciphers.aead import AESGCM

from queen_sync.errors import InvalidRequest, NotSupported, Undecryptable

KEY = "QUEEN_ENCRYPTION_KEY"
KEYS = "QUEEN_ENCRYPTION_KEYS"
PAUSE_SECONDS = 5
"""How long a lane is left alone whose next message cannot be opened."""
NULL = b"null"
"""What is shown in place of a payload that cannot be opened."""
_NONCE_BYTES = 16
_TAG_BYTES = 16
_VERSION = b"queen-sync envelope 1"
_HEX = re.compile(r"[0-9a-fA-F]{64}")
_ID = re.compile(r"[A-Za-z0-9._-]{1,32}")  # too short for a key in the place of its id
_MISSING = "key '{}' is not configured here"
_WRONG = "key '{}' does not open it, so it was changed or moved"


class _Envelope(msgspec.Struct, forbid_unknown_fields=True, rename="camel"):
    encrypted: str
    iv: str
    auth_tag: str
    key_id: str


_ENVELOPE = msgspec.json.Decoder(_Envelope)


class KeyRing:
    """Keys by id: the first seals, all of them open. It never shows a key."""

    def __init__(self, keys: Mapping[str, bytes]) -> None:
        self._ciphers = {key_id: AESGCM(key) for key_id, key in keys.items()}
        self.sealing_id = next(iter(self._ciphers))

    def __repr__(self) -> str:
        return f"KeyRing({', '.join(self._ciphers)})"

    @classmethod
    def parse(cls, key: str, keys: str) -> Self | None:
        """Return the ring that the two settings spell, None where both are empty.

        ``key`` is 64 hexadecimal digits; its id is made from it (`id_of`). ``keys`` is
        ``id:digits,id:digits``. With both, ``key`` comes last: it opens what it sealed.
        InvalidRequest names the setting, and never repeats what it holds.
        """
        found: dict[str, bytes] = {}
        for place, part in enumerate(keys.split(",") if keys else (), 1):
            key_id, colon, digits = part.strip().partition(":")
            if not colon or not _ID.fullmatch(key_id) or not _HEX.fullmatch(digits):
                raise InvalidRequest(
                    f"{KEYS} must be id:key,id:key with keys of 64 hexadecimal digits and ids of "
                    f"up to 32 letters, digits, '.', '_' and '-'; its part {place} is not",
                    KEYS,
                )
            if key_id in found:
                raise InvalidRequest(f"{KEYS} has two keys of the id '{key_id}'", KEYS)
            found[key_id] = bytes.fromhex(digits)
        if key:
            if not _HEX.fullmatch(key):
                raise InvalidRequest(f"{KEY} must be 64 hexadecimal digits", KEY)
            value = bytes.fromhex(key)
            if found.setdefault(id_of(value), value) != value:
                raise InvalidRequest(
                    f"{KEYS} has another key of the id '{id_of(value)}', which is that of {KEY}",
                    KEYS,
                )
        return cls(found) if found else None

    def seal(self, queue: str, partition: str, transaction_id: str, payload: bytes) -> bytes:
        """Return the envelope of a payload for that place and no other."""
        nonce = os.urandom(_NONCE_BYTES)
        key_id = self.sealing_id
        bound = _bound(key_id, queue, partition, transaction_id)
        sealed = self._ciphers[key_id].encrypt(nonce, payload, bound)
        return _text(sealed, nonce, key_id)

    def open(self, queue: str, partition: str, transaction_id: str, envelope: bytes) -> bytes:
        """Return the payload of an envelope; Undecryptable names the key that is wanted.

        The text is compared as well: of the ways to write the same bytes in base64 and JSON only
        that of `seal` opens.
        """
        try:
            read = _ENVELOPE.decode(envelope)
            key_id = read.key_id
            nonce = b64decode(read.iv, validate=True)
            sealed = b64decode(read.encrypted, validate=True)
            sealed += b64decode(read.auth_tag, validate=True)
        except (msgspec.DecodeError, ValueError):
            raise _refused(queue, partition, "it is no envelope") from None
        cipher = self._ciphers.get(key_id)
        if cipher is None:
            raise _refused(queue, partition, _MISSING.format(key_id))
        if _text(sealed, nonce, key_id) != envelope or len(nonce) != _NONCE_BYTES:
            raise _refused(queue, partition, _WRONG.format(key_id))
        try:
            return cipher.decrypt(nonce, sealed, _bound(key_id, queue, partition, transaction_id))
        except InvalidTag:
            raise _refused(queue, partition, _WRONG.format(key_id)) from None


def id_of(key: bytes) -> str:
    """Return the id of a key that was given none: the first 8 digits of its SHA-256."""
    return hashlib.sha256(key).hexdigest()[:8]


def open_envelope(
    keys: KeyRing | None, queue: str, partition: str, transaction_id: str, envelope: bytes
) -> bytes:
    """Return the payload of an envelope; without any key the answer still names the one wanted."""
    if keys is not None:
        return keys.open(queue, partition, transaction_id, envelope)
    try:
        key_id = _ENVELOPE.decode(envelope).key_id
    except (msgspec.DecodeError, ValueError):
        raise _refused(queue, partition, "it is no envelope") from None
    raise _refused(queue, partition, _MISSING.format(key_id))


def shown(
    keys: KeyRing | None, queue: str, partition: str, transaction_id: str, envelope: bytes
) -> tuple[bytes, str | None]:
    """Return the payload as a page shows it, and why it does not where it cannot."""
    try:
        return open_envelope(keys, queue, partition, transaction_id, envelope), None
    except Undecryptable as error:
        return NULL, error.message


def no_key(queue: str) -> NotSupported:
    """Return the refusal of a push that would have to be stored in clear."""
    return NotSupported(
        f"queue '{queue}' is encrypted and no key is configured here (encryption_enabled)", "enc"
    )


def _refused(queue: str, partition: str, why: str) -> Undecryptable:
    return Undecryptable(
        f"a payload in partition '{partition}' of queue '{queue}' cannot be decrypted: {why}"
    )


def _bound(*parts: str) -> bytes:
    """Return what an envelope is bound to: each part with its length, so that none runs over."""
    texts = [part.encode() for part in parts]
    return _VERSION + b"".join(len(text).to_bytes(4, "big") + text for text in texts)


def _text(sealed: bytes, nonce: bytes, key_id: str) -> bytes:
    return msgspec.json.encode(
        _Envelope(
            encrypted=b64encode(sealed[:-_TAG_BYTES]).decode(),
            iv=b64encode(nonce).decode(),
            auth_tag=b64encode(sealed[-_TAG_BYTES:]).decode(),
            key_id=key_id,
        )
    )
