"""B: payloads come back byte for byte, and names are taken as they are."""

from __future__ import annotations

import time
from typing import Any

import pytest

from queen_sync import model as m
from queen_sync.conformance.base import Cases, values_of
from queen_sync.errors import InvalidRequest
from queen_sync.payloads import MAX_DEPTH, JsonText

STRANGE_NAMES = (
    "a/b",
    "100%",
    "what?",
    "#1",
    "a+b",
    "a b",
    " lead and trail ",
    "it's; drop table messages --",
    'say "x"',
    "%2F",
    "back\\slash",
    "naïve",
    "日本語",
    "🐝",
    "a&b=c",
    "..a",
    "tab\there",
    "x" * 255,
    "😀" * 255,
)
QUICK_SECONDS = 2.0


class PayloadCases(Cases):
    def _round_trip(self, *texts: bytes) -> None:
        queue = self.name()
        for text in texts:
            self.push_text(queue, text)
        claim = self.take(queue, len(texts))
        assert [message.payload for message in claim.messages] == list(texts)

    def _refused(self, text: bytes) -> None:
        with pytest.raises(InvalidRequest) as caught:
            m.NewMessage(queue="q", payload=text)  # type: ignore[arg-type]  # unchecked text is the point
        assert caught.value.field == "payload"

    def test_b01_empty_and_false_values_are_told_apart(self) -> None:
        """null, false, 0, "", [] and {} come back as themselves. C-10, INV-PAYLOAD."""
        self._round_trip(b"null", b"false", b"true", b"0", b'""', b"[]", b"{}", b'[null,{"a":{}}]')

    def test_b02_text_is_kept_character_by_character(self) -> None:
        """Four-byte, combining, right-to-left and unnormalized text stays. C-10, INV-PAYLOAD."""
        composed, decomposed = '"\u00e9"'.encode(), '"e\u0301"'.encode()
        rest = ('"\U0001f41d\U00010348"', '"\u05e9\u05dc\u05d5\u05dd\u200f"', '"a\u2028b\u00a0"')
        self._round_trip(composed, decomposed, *(text.encode() for text in rest))

    def test_b03_an_escaped_nul_is_kept_and_a_lone_surrogate_refused(self) -> None:
        r"""``\u0000`` is JSON; half a surrogate pair is not text. C-10, INV-PAYLOAD."""
        self._round_trip(rb'"\u0000"', rb'{"\u0000":"a\u0000b"}', rb'"\ud83d\ude00"')
        for text in (rb'"\ud800"', rb'"\udc00\ud800"', rb'{"\ud800":1}', rb'"\ud83dx"'):
            self._refused(text)

    def test_b04_numbers_of_any_size_are_kept_and_what_is_no_number_refused(self) -> None:
        """No number is rounded, rewritten or overflows. C-10, INV-PAYLOAD."""
        self._round_trip(
            b"1e999",
            b"-0",
            b"1.10",
            b"9007199254740993",
            b"9" * 400,
            b"-1E-400",
            b"1" + b"0" * 5000,
        )
        for text in (b"NaN", b"Infinity", b"-Infinity", b"[NaN]", b"01", b"1.", b"+1", b".5"):
            self._refused(text)

    def test_b05_nesting_is_kept_to_its_limit_and_refused_quickly_beyond(self) -> None:
        """512 levels are kept; 513 and 100,000 are refused at once. C-10, INV-NO-500."""
        self._round_trip(
            b"[" * MAX_DEPTH + b"]" * MAX_DEPTH, b'{"a":' * MAX_DEPTH + b"1" + b"}" * MAX_DEPTH
        )
        started = time.monotonic()
        for depth in (MAX_DEPTH + 1, 100_000):
            self._refused(b"[" * depth + b"]" * depth)
        assert time.monotonic() - started < QUICK_SECONDS

    def test_b05_what_is_not_json_is_refused(self) -> None:
        """Bad UTF-8, a byte order mark, control characters, rubbish. C-10, INV-PAYLOAD."""
        for text in (
            b"",
            b'"\xff"',
            b"\xef\xbb\xbf1",
            b'"\x01"',
            b'"a\nb"',
            b"{",
            b"1 2",
            b"{'a':1}",
        ):
            self._refused(text)

    def test_b07_key_order_and_repeated_keys_are_kept(self) -> None:
        """A payload is text, not a mapping. C-10, INV-PAYLOAD."""
        self._round_trip(b'{"b":1,"a":2,"b":3}', b'{"a":1,"a":1}')

    def test_b07_white_space_outside_strings_may_go_and_inside_stays(self) -> None:
        """Space between values has no meaning; inside a string it has. C-10, INV-PAYLOAD."""
        queue = self.name()
        self.push_text(queue, b' { "a" : " b  c " } ')
        (message,) = self.take(queue, 1).messages
        assert b'" b  c "' in message.payload
        assert message.value == {"a": " b  c "}

    def test_b08_strange_names_work_everywhere(self) -> None:
        """Queues, partitions, groups and ids take any character. C-18, QB-4, PLD-7, QA-1."""
        base = self.name("")[-8:]
        for name in STRANGE_NAMES:
            queue = (name[:240] + base) if len(name) > 240 else name + base
            self.push(queue, name, partition=name, ids=[name])
            claim = self.take(queue, 1, partition=name, group=name)
            (message,) = claim.messages
            assert (message.queue, message.partition) == (queue, name)
            assert (message.transaction_id, claim.group) == (name, name)
            (answer,) = self.ack(claim)
            assert (answer.status, answer.queue, answer.partition) == ("completed", queue, name)

    def test_b08_names_out_of_bounds_are_refused(self) -> None:
        """Empty, dots, NUL, half a character and 256 characters. C-18, INV-NO-500, QB-4."""
        for name in ("", ".", "..", "a\0b", "\ud800", "x" * 256, "😀" * 256):
            for field in ("queue", "partition", "transaction_id"):
                parts: dict[str, Any] = {"queue": "q"} | {field: name}
                with pytest.raises(InvalidRequest):
                    m.NewMessage(**parts)
            with pytest.raises(InvalidRequest):
                m.PopRequest(queue="q", group=name)
            with pytest.raises(InvalidRequest):
                self.target.configure(name)

    def test_b09_names_that_look_alike_stay_apart(self) -> None:
        """Case, a trailing space, form and the 64th character count. C-18, INV-INTEGRITY."""
        base = self.name()
        long = base + "x" * 60
        alike = (
            base,
            base.upper(),
            base + " ",
            base + "e\u0301",
            base + "\u00e9",
            long + "1",
            long + "2",
        )
        for name in alike:
            self.push(name, name)
        assert [self.drain(name) for name in alike] == [[name] for name in alike]
        queue = self.name()
        for name in alike:
            self.push(queue, name, partition=name)
        assert [self.drain(queue, partition=name) for name in alike] == [[name] for name in alike]

    def test_b10_the_reserved_group_name_is_queue_mode(self) -> None:
        """Consumers that name no group are one group, by any name.

        C-18, INV-FANOUT, QB-1, PLD-6.
        """
        queue = self.name()
        self.push(queue, 1, 2)
        claim = self.take(queue, 1)
        assert not self.pop(queue, group="__QUEUE_MODE__")
        self.settle(claim)
        assert values_of(self.pop(queue, group="__QUEUE_MODE__")) == [2]

    def test_b06_a_payload_of_a_mebibyte_comes_back(self) -> None:
        """Size alone changes nothing. INV-PAYLOAD."""
        text = JsonText(b'"' + b"x" * 2**20 + b'"')
        self._round_trip(text)
