"""Texts of a column mean the same at once and one by one, and what was written as text is read back."""

from __future__ import annotations

from decimal import Decimal
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as some

from strandline.errors import InvalidArgument
from strandline.types import Type, parse_type
from strandline.types.arrays import column_to_python
from strandline.types.texts import (
    GUESSES,
    array_from_text,
    bytes_as_text,
    from_text,
    guess,
    still_fit,
    texts_of_bytes,
)

TYPES = [
    *(
        "Bool",
        "Int8",
        "Int64",
        "Uint8",
        "Uint64",
        "Float",
        "Double",
        "Decimal(5,2)",
        "String",
        "Utf8",
        "Json",
    ),
    *("Date", "Datetime", "Timestamp"),
]
TEXTS = some.one_of(
    some.text(max_size=6),
    some.text("0123456789+-.eEx_ ", max_size=8),
    some.integers(-(2**65), 2**65).map(str),
    some.floats().map(str),
    some.dates().map(str),
    some.datetimes().map(str),
    some.datetimes().map(lambda moment: f"{moment.isoformat()}Z"),
    some.binary(max_size=3).map(bytes_as_text),
    some.sampled_from(
        ["true", "False", "t", "NO", "1", "0", " 7 ", "+5", "0x1A", "007", "1_000", "nan", "-inf", "1e400"]
    ),
)


def one_by_one(type_: Type, texts: list[str | None]) -> list[Any] | None:
    try:
        return [None if text is None else from_text(type_, text, "c") for text in texts]
    except InvalidArgument:
        return None


@given(some.sampled_from(TYPES), some.lists(some.none() | TEXTS, max_size=4))
@example("Int64", ["0x1A"])
@example("Uint64", ["+5", " 7 "])
@example("Double", ["1e400"])
@example("Datetime", ["2026-01-31T12:00:00.500000Z"])
@example("Date", ["2026-02-30"])
@example("String", ["\\x00\\xff", "\\x0"])
@settings(max_examples=150)
def test_a_column_and_its_texts_mean_the_same(name: str, texts: list[str | None]) -> None:
    type_ = parse_type(name)
    found = array_from_text(type_, pa.array(texts, pa.string()))
    if found is not None:
        assert repr(column_to_python(type_, found)) == repr(one_by_one(type_, texts))


@pytest.mark.parametrize(
    ("texts", "name"),
    [
        (["1", None, "-5"], "Int64"),
        (["18446744073709551615"], "Uint64"),
        (["18446744073709551616"], "Utf8"),
        (["1.5", "12345678901234567"], "Utf8"),
        (["1", "2.5"], "Double"),
        (["nan", "1"], "Double"),
        (["007"], "Utf8"),
        (["0", "0.5"], "Double"),
        (["true", "FALSE"], "Bool"),
        (["1", "0"], "Int64"),
        (["2026-01-31"], "Date"),
        (["2026-01-31", "2026-01-31T12:00:00"], "Timestamp"),
        (["2026-02-30"], "Utf8"),
        (["x"], "Utf8"),
        ([None], "Utf8"),
        ([""], "Utf8"),
    ],
)
def test_the_type_of_a_column_is_told_from_its_texts(texts: list[str | None], name: str) -> None:
    fitting = GUESSES
    for text in texts:  # As if they came in several batches.
        fitting = still_fit(fitting, pa.array([text], pa.string()))
    assert guess(fitting, is_empty=not any(text is not None for text in texts)).name == name


def test_bytes_and_numbers_are_read_as_they_are_written() -> None:
    assert from_text(parse_type("String"), bytes_as_text(b"\x00\xffa"), "c") == b"\x00\xffa"
    assert from_text(parse_type("Decimal(5,2)"), "1.5", "c") == Decimal("1.50")
    with pytest.raises(InvalidArgument, match="cannot hold"):
        from_text(parse_type("Decimal(5,2)"), "1.555", "c")


@given(some.lists(some.none() | some.binary(max_size=5), max_size=6), some.integers(0, 6), some.booleans())
def test_a_column_of_bytes_becomes_the_texts_of_its_values(
    values: list[bytes | None], first: int, escaped: bool
) -> None:
    found = texts_of_bytes(pa.array(values, pa.binary()).slice(first), escaped=escaped)
    texts = [None if value is None else bytes_as_text(value) for value in values[first:]]
    if escaped:
        texts = [None if text is None else text.replace("\\", "\\\\") for text in texts]
    assert found.to_pylist() == texts
