"""The payload gate: what it lets pass, what it refuses, and that it agrees with another reader."""

import json
import time

import pytest
from hypothesis import example, given, strategies as st

from queen_sync.errors import InvalidRequest
from queen_sync.payloads import MAX_DEPTH, JsonText, depth, to_value

VALUES = st.recursive(
    st.none()
    | st.booleans()
    | st.integers(-(10**30), 10**30)
    | st.floats(allow_nan=False, allow_infinity=False)
    | st.text(),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(), inner, max_size=4),
    max_leaves=20,
)

SCRAPS = (
    *'[]{},:".-+eE01/',
    *(" ", "\t", "\n", "\r", "\x0b", "\x00", "\x1f", "\x7f", "\u00a0", "\u00e9", "\U0001f600"),
    *('"a"', '"b":', "\\", "\\u", "\\u0041", "\\u0000", "\\ud83d", "\\ude00", "\\n", "\\x"),
    *("true", "false", "null", "NaN", "Infinity", "12", "1e999", "\ufeff"),
)
"""Pieces from which almost-JSON is put together: near enough to the border to cross it often."""


def accepts(text: bytes) -> bool:
    try:
        JsonText.check(text)
    except InvalidRequest:
        return False
    return True


def python_accepts(text: bytes) -> bool:
    """Whether Python's reader takes the text too, its three leniencies taken away."""

    def refuse(constant):
        raise ValueError(constant)

    try:
        value = json.loads(text.decode(), parse_constant=refuse)
        json.dumps(value, ensure_ascii=False).encode()  # a lone surrogate cannot be encoded
    except ValueError:
        return False
    return not text.startswith("\ufeff".encode())


@given(st.lists(st.sampled_from(SCRAPS), max_size=8).map("".join))
@example('"\\ud83d\\ude00"')
@example('"\\ude00\\ud83d"')
@example('{"a":1,}')
@example("1 ")
def test_the_gate_agrees_with_python_on_almost_json(text):
    """C-10."""
    assert accepts(text.encode()) == python_accepts(text.encode())


@given(VALUES, st.sampled_from([None, 1]), st.booleans())
def test_every_json_text_passes_unchanged(value, indent, ascii_only):
    """C-10: key order, spelling of numbers and inner white space are the caller's."""
    text = json.dumps(value, indent=indent, ensure_ascii=ascii_only).encode()
    assert JsonText.check(b" \t\r\n" + text + b"\n ") == text


@given(VALUES)
def test_a_python_value_comes_back_equal(value):
    assert to_value(JsonText.of(value)) == value


@pytest.mark.parametrize(
    "text",
    [
        b"null",
        b"false",
        b"0",
        b'""',
        b"[]",
        b"{}",
        b"-0",
        b"1.10",
        b"1e999",
        b"9007199254740993",
        b"7" * 400,
        b"7" * 5000,
        b'{"b":1,"a":2}',
        b'{"a":1,"a":2}',
        b'"\\u0000"',
        b'"\\ud83d\\ude00"',
        b'"\\/"',
        b'"\x7f"',
        '"e\u0301\u00e9 \u202e \U0001f600"'.encode(),
    ],
)
def test_what_json_allows_is_kept_byte_for_byte(text):
    """C-10, B01, B02, B03, B04, B07."""
    assert JsonText.check(text) == text
    assert type(JsonText.check(text)) is JsonText


@pytest.mark.parametrize(
    "text",
    [
        pytest.param(b"NaN", id="NaN"),
        pytest.param(b"[NaN]", id="NaN inside"),
        pytest.param(b"Infinity", id="Infinity"),
        pytest.param(b"-Infinity", id="negative Infinity"),
        pytest.param(b'"\\ud800"', id="lone high surrogate"),
        pytest.param(b'"\\udc00"', id="lone low surrogate"),
        pytest.param(b'"\\ud800\\ud800"', id="two high surrogates"),
        pytest.param(b'{"\\ud800":1}', id="lone surrogate in a key"),
        pytest.param(b'"a\x01b"', id="raw control character"),
        pytest.param(b'"a\tb"', id="raw tab"),
        pytest.param(b'"a\nb"', id="raw line end"),
        pytest.param(b'"\x00"', id="raw NUL"),
        pytest.param(b'"\xff"', id="invalid UTF-8"),
        pytest.param(b'"\xc0\x80"', id="overlong UTF-8"),
        pytest.param(b'"\xed\xa0\x80"', id="surrogate in UTF-8"),
        pytest.param(b'"\xf4\x90\x80\x80"', id="past the last character"),
        pytest.param(b"\xef\xbb\xbf1", id="byte order mark"),
        pytest.param("1".encode("utf-16"), id="UTF-16"),
        pytest.param(b"", id="nothing"),
        pytest.param(b" \n", id="white space only"),
        pytest.param(b"1 2", id="two values"),
        pytest.param(b"1\x00", id="NUL behind"),
        pytest.param(b"\x0c1", id="form feed is no white space"),
        pytest.param(b"01", id="leading zero"),
        pytest.param(b"+1", id="leading plus"),
        pytest.param(b".5", id="leading point"),
        pytest.param(b"1.", id="trailing point"),
        pytest.param(b"[1,]", id="trailing comma"),
        pytest.param(b"{'a':1}", id="single quotes"),
        pytest.param(b"{a:1}", id="bare key"),
        pytest.param(b"// c\n1", id="comment"),
        pytest.param(b'"\\x41"', id="unknown escape"),
        pytest.param(b'"abc', id="unfinished"),
    ],
)
def test_what_json_does_not_allow_is_refused(text):
    """C-10, B03, B04: the error names the field."""
    with pytest.raises(InvalidRequest) as caught:
        JsonText.check(text, "items[3].payload")
    assert caught.value.field == "items[3].payload"
    assert "items[3].payload" in caught.value.message


def nested(levels: int, opening: bytes = b"[", inner: bytes = b"", closing: bytes = b"]") -> bytes:
    return opening * levels + inner + closing * levels


@pytest.mark.parametrize(
    ("opening", "inner", "closing"), [(b"[", b"", b"]"), (b'{"a":', b"1", b"}")]
)
def test_nesting_is_accepted_to_512_and_refused_from_513(opening, inner, closing):
    """C-10, B05."""
    JsonText.check(nested(MAX_DEPTH, opening, inner, closing))
    with pytest.raises(InvalidRequest, match="nested deeper than 512"):
        JsonText.check(nested(MAX_DEPTH + 1, opening, inner, closing))


@pytest.mark.parametrize("text", [nested(100_000), b"[" * 100_000], ids=["closed", "open"])
def test_very_deep_nesting_is_refused_quickly(text):
    """C-10, B05: it costs a look at the text, no recursion."""
    began = time.perf_counter()
    with pytest.raises(InvalidRequest, match="nested deeper than 512"):
        JsonText.check(text)
    assert time.perf_counter() - began < 1


def test_many_brackets_side_by_side_or_in_strings_are_not_depth():
    """C-10."""
    assert accepts(b"[" + b",".join([b"[]"] * 5000) + b"]")
    assert accepts(json.dumps(["[{" * 2000, '"[' * 2000, "\\[" * 2000]).encode())


@pytest.mark.parametrize("escape", [b"\\n", b"\\u0041", b"\\\\", b'\\"', b'\\\\\\"', b"\\/"])
def test_no_escape_in_a_string_hides_depth(escape):
    """C-10: the end of the string is seen whatever stands before it."""
    for text in (
        b'["' + escape + b'",' + nested(MAX_DEPTH) + b"]",
        nested(513, b'["' + escape + b'",', b"1"),
    ):
        with pytest.raises(InvalidRequest, match="nested deeper than 512"):
            JsonText.check(text)


def depth_of(value: object) -> int:
    if isinstance(value, dict):
        return 1 + max(map(depth_of, value.values()), default=0)
    if isinstance(value, list):
        return 1 + max(map(depth_of, value), default=0)
    return 0


@given(VALUES)
@example(['"', "\\", '\\"[', {"[": "]"}])
def test_depth_counts_the_nesting_of_the_value(value):
    assert depth(json.dumps(value).encode()) == depth_of(value)


@pytest.mark.parametrize(
    "value",
    [float("nan"), float("inf"), [None, {"a": float("-inf")}], "\ud800", object(), {(1, 2): 3}],
    ids=["NaN", "Infinity", "inside", "surrogate", "object", "key"],
)
def test_a_python_value_that_json_cannot_say_is_refused(value):
    """C-10: above all it is not turned into another value."""
    with pytest.raises(InvalidRequest) as caught:
        JsonText.of(value)
    assert caught.value.field == "payload"


def test_a_value_that_holds_itself_is_refused():
    value: list[object] = []
    value.append(value)
    with pytest.raises(InvalidRequest):
        JsonText.of(value)


def test_a_number_past_the_range_of_floats_reads_as_infinite():
    """C-10: what may be stored may be read."""
    assert to_value(b'{"a":[1e999,-1e999]}') == {"a": [float("inf"), float("-inf")]}
