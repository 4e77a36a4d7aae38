"""Message, partition and lease ids: UUIDs (version 8) that carry their own address.

A message id holds 36 bits of partition number, 44 bits of seq and the low 42 bits of the
message's ``created_us``. It therefore needs neither a column nor an index, sorts by
(partition, seq), and can be told from a forged or foreign one by looking at the row: the
stamp must agree. A partition id is the same with seq and stamp 0. A lease id holds the
partition of its (first) claim in the same place; the other 86 bits are random.
"""

from __future__ import annotations

import re
import secrets
import struct
from collections.abc import Sequence
from functools import lru_cache
from typing import NamedTuple

PARTITION_BITS = 36
SEQ_BITS = 44
STAMP_BITS = 42
STAMP_MASK = (1 << STAMP_BITS) - 1
_VERSION = 8 << 76
_VARIANT = 2 << 62
_HIGH_VERSION = _VERSION >> 64

_CANONICAL = re.compile("[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}").fullmatch
_OURS = re.compile(
    "(?:[0-9a-f]{8}-[0-9a-f]{4}-8[0-9a-f]{3}-[89ab][0-9a-f]{3}-[0-9a-f]{12}\n)+"
).fullmatch
_LINE_LENGTH = 37


class Address(NamedTuple):
    """What a message id says: partition number, seq, low bits of ``created_us``."""

    partition: int
    seq: int
    stamp: int


def _text(number: int) -> str:
    h = f"{number:032x}"
    return f"{h[:8]}-{h[8:12]}-{h[12:16]}-{h[16:20]}-{h[20:]}"


def message_id(partition: int, seq: int, created_us: int) -> str:
    """Return the id of the message at ``seq`` of a partition."""
    low = _VARIANT | (seq & 0xFFFFF) << 42 | (created_us & STAMP_MASK)
    return _form(partition, seq >> 20) % (low >> 48, low & 0xFFFF_FFFF_FFFF)


@lru_cache(maxsize=1024)  # a million messages of a partition in a row share it
def _form(partition: int, high_seq: int) -> str:
    high = partition << 28 | (high_seq >> 12) << 16 | _HIGH_VERSION | (high_seq & 0xFFF)
    h = f"{high:016x}"
    return f"{h[:8]}-{h[8:12]}-{h[12:]}-%04x-%012x"


def partition_id(partition: int) -> str:
    """Return the id of a partition."""
    return message_id(partition, 0, 0)


def queue_id(queue: int) -> str:
    """Return the id of a queue: that of partition 0, with the queue's number as its stamp."""
    return message_id(0, 0, queue)


def lease_id(partition: int) -> str:
    """Return a fresh lease id for a claim that begins with this partition."""
    random = secrets.randbits(86)
    return _text(
        partition << 92
        | (random >> 74) << 80
        | _VERSION
        | (random >> 62 & 0xFFF) << 64
        | _VARIANT
        | (random & ((1 << 62) - 1))
    )


def number(text: str) -> int | None:
    """Return a UUID in its canonical spelling as a number, or None for any other text.

    Only the canonical spelling is read (36 characters, lower case, four hyphens): ids are
    compared as text everywhere else, so another spelling must not become a second name.
    """
    if _CANONICAL(text) is None:
        return None
    return int(text.replace("-", ""), 16)


def address(text: str) -> Address | None:
    """Return what an id of ours says, or None where the text is no such id."""
    n = number(text)
    if n is None or (n >> 76 & 0xF) != 8 or (n >> 62 & 3) != 2:
        return None
    seq = (n >> 80 & 0xFFF) << 32 | (n >> 64 & 0xFFF) << 20 | (n >> 42 & 0xFFFFF)
    return Address(n >> 92, seq, n & STAMP_MASK)


def addresses(texts: Sequence[str]) -> Sequence[Address | None]:
    """Return what each of several ids says; where all are ours, in a third of the time."""
    lines = "\n".join((*texts, ""))
    # Of that length, every line is one of the texts, whatever the texts hold.
    if len(lines) != _LINE_LENGTH * len(texts) or not _OURS(lines):
        return [address(text) for text in texts]
    halves = struct.unpack(
        f">{2 * len(texts)}Q", bytes.fromhex(lines.replace("-", "").replace("\n", ""))
    )
    return [
        Address(
            high >> 28,
            (high >> 16 & 0xFFF) << 32 | (high & 0xFFF) << 20 | (low >> 42 & 0xFFFFF),
            low & STAMP_MASK,
        )
        for high, low in zip(halves[::2], halves[1::2], strict=True)
    ]


@lru_cache(maxsize=4096)  # a batch of acks names the same few over and over
def partition_number(text: str) -> int | None:
    """Return the number in a partition id, or None where the text is none of ours."""
    found = address(text)
    if found is None or found.seq or found.stamp or not found.partition:
        return None
    return found.partition
