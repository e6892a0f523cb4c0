from __future__ import annotations

import json
import math
import pickle
import struct
from datetime import date, datetime, timedelta, timezone
from decimal import Decimal
from fractions import Fraction
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from strandline.errors import InvalidArgument
from strandline.model import decode_key, encode_key
from strandline.types import coerce, parse_type, row_value
from strandline.types.arrays import array_from_user, column_to_python, python_to_array
from tests.values import TYPE_NAMES, values_of

UTC = timezone.utc
BERLIN_SUMMER = timezone(timedelta(hours=2))
MIN_TIME, MAX_TIME = datetime(1, 1, 1, tzinfo=UTC), datetime(9999, 12, 31, 23, 59, 59, 999999, UTC)


@pytest.mark.parametrize(
    ("text", "name"),
    [
        ("String", "String"),
        ("string", "Utf8"),
        ("STRING", "Utf8"),
        ("Text", "Utf8"),
        ("binary", "String"),
        ("Bytes", "String"),
        ("uint64", "Uint64"),
        ("UINT8", "Uint8"),
        ("tinyint", "Int8"),
        ("smallint", "Int16"),
        ("INTEGER", "Int32"),
        ("int", "Int32"),
        ("long", "Int64"),
        ("bigint", "Int64"),
        ("boolean", "Bool"),
        ("real", "Float"),
        (" double ", "Double"),
        ("decimal(5)", "Decimal(5,0)"),
        ("NUMERIC( 38 , 38 )", "Decimal(38,38)"),
        ("Decimal(22,9)", "Decimal(22,9)"),
        ("timestamp", "Timestamp"),
        ("timestamp_ltz", "Timestamp"),
        ("json", "Json"),
        ("DATETIME", "Datetime"),
    ],
)
def test_names_and_synonyms(text: str, name: str) -> None:
    assert parse_type(text).name == name
    assert parse_type(parse_type(text).name) == parse_type(text)


@pytest.mark.parametrize(
    ("text", "hint"),
    [
        ("Uint65", "Uint64"),
        ("varchar(10)", "Utf8"),
        ("Decimal", "Decimal(22,9)"),
        ("Decimal(0,0)", "1 <= p <= 38"),
        ("Decimal(39,1)", "1 <= p <= 38"),
        ("Decimal(5,6)", "0 <= s <= p"),
        ("Decimal(-1,0)", "The types are"),
        ("", "The types are"),
        ("array<int>", "The types are"),
    ],
)
def test_unknown_types_are_refused_with_a_hint(text: str, hint: str) -> None:
    with pytest.raises(InvalidArgument) as caught:
        parse_type(text)
    assert hint in caught.value.hint


def test_types_are_values() -> None:
    type_ = parse_type("Decimal(10,2)")
    assert type_ == parse_type("numeric(10, 2)")
    assert hash(type_) == hash(parse_type("numeric(10, 2)"))
    assert pickle.loads(pickle.dumps(type_)) == type_
    assert str(type_) == "Decimal(10,2)"
    assert parse_type("Datetime") != parse_type("Timestamp")


def test_floats_and_json_cannot_be_keys() -> None:
    assert {name for name in TYPE_NAMES if not parse_type(name).orderable} == {"Float", "Double", "Json"}


class Wrapped(str):
    """Prints as something else than it holds, as members of string enumerations do."""

    def __str__(self) -> str:
        return "other"


GOOD: list[tuple[str, Any, Any]] = [
    ("Bool", True, True),
    ("Bool", np.bool_(False), False),
    ("Int8", -128, -128),
    ("Int8", 127, 127),
    ("Int64", Decimal("5.00"), 5),
    ("Int64", Decimal("1E+3"), 1000),
    ("Int64", Decimal("0E+999"), 0),
    ("Int32", np.int64(7), 7),
    ("Uint64", 2**64 - 1, 2**64 - 1),
    ("Uint64", Decimal(2**64 - 1), 2**64 - 1),
    ("Float", 0.1, struct.unpack("f", struct.pack("f", 0.1))[0]),
    ("Float", 2**60, float(2**60)),
    ("Float", math.inf, math.inf),
    ("Double", 1, 1.0),
    ("Double", 2**60, float(2**60)),
    ("Double", Decimal("0.1"), 0.1),
    ("Double", Decimal("1E-400"), 0.0),
    ("Double", np.float32(0.5), 0.5),
    ("Decimal(5,2)", 1, Decimal("1.00")),
    ("Decimal(5,2)", Decimal("-999.99"), Decimal("-999.99")),
    ("Decimal(5,2)", Decimal("1.5000"), Decimal("1.50")),
    ("Decimal(5,2)", Decimal("-0"), Decimal("0.00")),
    ("Decimal(38,0)", 10**38 - 1, Decimal(10**38 - 1)),
    ("Decimal(38,38)", Decimal(f"0.{'9' * 38}"), Decimal(f"0.{'9' * 38}")),
    ("String", b"\xff\x00", b"\xff\x00"),
    ("String", bytearray(b"a"), b"a"),
    ("String", memoryview(b"a"), b"a"),
    ("String", "ü", b"\xc3\xbc"),
    ("Utf8", "", ""),
    ("Utf8", "a\0\U0001f600", "a\0\U0001f600"),
    ("Utf8", Wrapped("held"), "held"),
    ("Utf8", np.str_("n"), "n"),
    (
        "Json",
        ' {"a": [1, 2.5e300, null], "a": "\\ud83d\\ude00"} ',
        ' {"a": [1, 2.5e300, null], "a": "\\ud83d\\ude00"} ',
    ),
    ("Json", "1" * 5000, "1" * 5000),
    ("Date", date(1, 1, 1), date(1, 1, 1)),
    ("Date", np.datetime64("2024-01-31"), date(2024, 1, 31)),
    ("Datetime", datetime(2024, 1, 31, 12), datetime(2024, 1, 31, 12, tzinfo=UTC)),
    (
        "Timestamp",
        datetime(2024, 7, 1, 0, 30, tzinfo=BERLIN_SUMMER),
        datetime(2024, 6, 30, 22, 30, tzinfo=UTC),
    ),
    ("Timestamp", MAX_TIME, MAX_TIME),
    ("Timestamp", MIN_TIME, MIN_TIME),
    (
        "Timestamp",
        np.datetime64("2024-01-31T00:00:00.000001000", "ns"),
        datetime(2024, 1, 31, 0, 0, 0, 1, UTC),
    ),
]
GOOD += [(name, None, None) for name in TYPE_NAMES]


@pytest.mark.parametrize(("name", "value", "expected"), GOOD)
def test_what_a_column_takes(name: str, value: Any, expected: Any) -> None:
    found = coerce(parse_type(name), value, "c")
    assert found == expected
    assert type(found) is type(expected)
    assert str(found) == str(expected)


BAD: list[tuple[str, Any]] = [
    ("Bool", 1),
    ("Bool", "true"),
    ("Int8", 128),
    ("Int8", -129),
    ("Int32", True),
    ("Int32", np.bool_(True)),
    ("Int32", 1.0),
    ("Int32", "1"),
    ("Int64", 2**63),
    ("Int64", 10**10000),
    ("Int64", Decimal("1.5")),
    ("Int64", Decimal("1E+999999")),
    ("Int64", Decimal("NaN")),
    ("Int64", Decimal("sNaN")),
    ("Int64", np.timedelta64(1, "s")),
    ("Int64", np.datetime64(1, "ns")),
    ("Uint8", -1),
    ("Uint8", 256),
    ("Uint64", 2**64),
    ("Uint64", -1),
    ("Float", 2**24 + 1),
    ("Float", 1e39),
    ("Float", Decimal("1e39")),
    ("Float", 10**400),
    ("Double", 2**53 + 1),
    ("Double", 10**400),
    ("Double", Decimal("1e400")),
    ("Double", Decimal("Infinity")),
    ("Double", Decimal("sNaN")),
    ("Double", True),
    ("Double", "1"),
    ("Decimal(5,2)", 1.5),
    ("Decimal(5,2)", True),
    ("Decimal(5,2)", "1.5"),
    ("Decimal(5,2)", 1000),
    ("Decimal(5,2)", Decimal("1.005")),
    ("Decimal(5,2)", Decimal("NaN")),
    ("Decimal(5,2)", Decimal("Infinity")),
    ("Decimal(5,2)", Decimal("1E+999999")),
    ("Decimal(5,2)", 10**10000),
    ("String", 1),
    ("String", "\ud800"),
    ("Utf8", b"a"),
    ("Utf8", 1),
    ("Utf8", "\ud800"),
    ("Json", "NaN"),
    ("Json", "[Infinity]"),
    ("Json", "{'a': 1}"),
    ("Json", ""),
    ("Json", "1 2"),
    ("Json", '"\\ud800"'),
    ("Json", '{"\\udc00": 1, "\\udc00": 2}'),
    ("Json", "[" * 100_000),
    ("Json", {"a": 1}),
    ("Date", datetime(2024, 1, 31)),
    ("Date", "today"),
    ("Date", np.datetime64("2024-01-31T00:00", "s")),
    ("Date", np.datetime64(10**9, "D")),
    ("Datetime", datetime(2024, 1, 31, 0, 0, 0, 1)),
    ("Datetime", date(2024, 1, 31)),
    ("Datetime", datetime(2024, 1, 31, tzinfo=timezone(timedelta(microseconds=1)))),
    ("Timestamp", "2024"),
    ("Timestamp", 0),
    ("Timestamp", datetime(1, 1, 1, tzinfo=BERLIN_SUMMER)),
    ("Timestamp", datetime(9999, 12, 31, 23, tzinfo=timezone(-timedelta(hours=2)))),
    ("Timestamp", np.datetime64(1, "ns")),
    ("Timestamp", np.datetime64("NaT")),
    ("Timestamp", np.datetime64("NaT", "us")),
]


@pytest.mark.parametrize(("name", "value"), BAD, ids=[f"{name}-{i}" for i, (name, _) in enumerate(BAD)])
def test_what_a_column_refuses(name: str, value: Any) -> None:
    with pytest.raises(InvalidArgument) as caught:
        coerce(parse_type(name), value, "price")
    message = caught.value.message
    assert message.startswith(f"column price of type {name} cannot hold the ")
    assert len(message) < 200


def test_a_message_shows_the_value() -> None:
    with pytest.raises(InvalidArgument, match=r"column n of type Uint8 cannot hold the int 300"):
        coerce(parse_type("Uint8"), 300, "n")


@given(st.decimals(allow_nan=False, allow_infinity=False, min_value=-(10**38), max_value=10**38))
def test_a_decimal_becomes_the_nearest_single(value: Decimal) -> None:
    found = Fraction(coerce(parse_type("Float"), value, "c"))  # type: ignore[call-overload]
    bits = struct.unpack("<i", struct.pack("<f", found))[0]
    exact = Fraction(value)
    for neighbour in (bits - 1, bits + 1):
        other = struct.unpack("<f", struct.pack("<i", neighbour & 0x7FFFFFFF if bits == 0 else neighbour))[0]
        if math.isfinite(other):
            assert abs(found - exact) <= abs(Fraction(other) - exact)


def test_a_decimal_is_rounded_to_single_once() -> None:
    # Just above the middle of two singles, by less than a double can tell: rounding twice would go down.
    middle = Decimal(1) + Decimal(2) ** -24
    assert coerce(parse_type("Float"), middle + Decimal("1e-26"), "c") == 1 + 2**-23
    assert coerce(parse_type("Float"), middle, "c") == 1.0


@pytest.mark.parametrize(
    ("name", "text", "expected"),
    [
        ("Date", "2024-01-31", date(2024, 1, 31)),
        ("Timestamp", "2024-01-31", datetime(2024, 1, 31, tzinfo=UTC)),
        ("Timestamp", "2024-01-31T12:00:00Z", datetime(2024, 1, 31, 12, tzinfo=UTC)),
        ("Timestamp", "2024-01-31 12:00:00.123456", datetime(2024, 1, 31, 12, 0, 0, 123456, UTC)),
        ("Timestamp", "2024-01-31 12:00:00.5", datetime(2024, 1, 31, 12, 0, 0, 500000, UTC)),
        ("Timestamp", "2024-01-31T12:00", datetime(2024, 1, 31, 12, tzinfo=UTC)),
        ("Datetime", "2024-07-01T00:30:00+02:00", datetime(2024, 6, 30, 22, 30, tzinfo=UTC)),
        ("Datetime", "2024-07-01T00:30:00-00:30", datetime(2024, 7, 1, 1, 0, tzinfo=UTC)),
        ("Utf8", "2024-01-31", "2024-01-31"),
        ("String", "a", b"a"),
    ],
)
def test_text_for_dates_and_times(name: str, text: str, expected: Any) -> None:
    assert coerce(parse_type(name), text, "c") == expected


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("Date", "2024-02-30"),
        ("Date", "2024-1-31"),
        ("Date", "20240131"),
        ("Date", "2024-01-31T00:00:00"),
        ("Date", "２０２４-01-31"),
        ("Date", "0000-01-01"),
        ("Timestamp", "2024-01-31T24:00:00"),
        ("Timestamp", "2024-01-31T12:00:00.1234567"),
        ("Timestamp", "2024-01-31T12:00:00+02:99"),
        ("Timestamp", "2024-01-31T12:00:00+18:01"),
        ("Timestamp", "0001-01-01T00:00:00+01:00"),
        ("Timestamp", "now"),
        ("Datetime", "2024-01-31T12:00:00.5"),
        ("Decimal(5,2)", "1.5"),
        ("Int32", "1"),
    ],
)
def test_text_that_is_refused(name: str, text: str) -> None:
    with pytest.raises(InvalidArgument, match=f"column c of type {name.split('(')[0]}"):
        coerce(parse_type(name), text, "c")


def same(left: Any, right: Any) -> bool:
    """Equal, of one type, and NaN is NaN and zeros have their signs."""
    return type(left) is type(right) and repr(left) == repr(right)


@pytest.mark.parametrize("name", TYPE_NAMES)
@given(data=st.data())
def test_values_survive_json_and_arrays(name: str, data: st.DataObject) -> None:
    type_ = parse_type(name)
    values = data.draw(st.lists(st.none() | values_of(type_), max_size=8))
    for value in values:
        assert same(coerce(type_, value, "c"), value)
        if type_.orderable:
            assert decode_key(json.loads(json.dumps(encode_key((value,)), allow_nan=False))) == (value,)
    array = python_to_array(type_, values)
    array.validate(full=True)
    assert array.type == type_.arrow
    found = column_to_python(type_, array)
    assert all(map(same, found, values))
    assert all(map(same, column_to_python(type_, pa.chunked_array([array[:1], array[1:]])), values))
    for part in (array, array[1:]):
        assert repr(array_from_user(type_, part, "c").to_pylist()) == repr(part.to_pylist())


def arrow_cases() -> list[tuple[str, pa.Array, list[Any] | None]]:
    """Type, a user's array, and the values that it becomes; None where it is refused."""
    noon = datetime(2024, 1, 31, 12, tzinfo=UTC)
    seconds = int(noon.timestamp())
    return [
        ("Int8", pa.array([1, None, -128], pa.int64()), [1, None, -128]),
        ("Int8", pa.array([1, 128], pa.int64()), None),
        ("Int64", pa.array([2**63 - 1], pa.uint64()), [2**63 - 1]),
        ("Int64", pa.array([2**63], pa.uint64()), None),
        ("Int64", pa.array([Decimal("3.0")]), [3]),
        ("Int64", pa.array([Decimal("3.5")]), None),
        ("Int64", pa.array([1.0]), None),
        ("Int64", pa.array([None, None], pa.float64()), [None, None]),
        ("Int64", pa.array([True]), None),
        ("Int64", pa.array(["1"]), None),
        ("Int64", pa.array([None, None]), [None, None]),
        ("Uint8", pa.array([255, 0], pa.uint8()), [255, 0]),
        ("Uint8", pa.array([256], pa.int16()), None),
        ("Uint64", pa.array([2**64 - 1, None, 0], pa.uint64()), [2**64 - 1, None, 0]),
        ("Uint64", pa.array([7, -1], pa.int8()), None),
        ("Uint64", pa.array([Decimal(2**64 - 1)], pa.decimal128(20, 0)), [2**64 - 1]),
        ("Uint64", pa.array([Decimal(2**64)], pa.decimal128(20, 0)), None),
        ("Uint64", pa.array([Decimal(-1)], pa.decimal128(20, 0)), None),
        ("Uint64", pa.array([Decimal(5)], pa.decimal256(40, 0)), [5]),
        ("Double", pa.array([1, None], pa.int32()), [1.0, None]),
        ("Double", pa.array([2**60], pa.int64()), [float(2**60)]),
        ("Double", pa.array([2**53 + 1], pa.int64()), None),
        ("Double", pa.array([0.5], pa.float32()), [0.5]),
        ("Double", pa.array([np.float16(0.5)], pa.float16()), [0.5]),
        ("Double", pa.array([Decimal("0.1")]), [0.1]),
        ("Float", pa.array([1.5, math.inf, None], pa.float64()), [1.5, math.inf, None]),
        ("Float", pa.array([1e39, math.inf], pa.float64()), None),
        ("Decimal(5,2)", pa.array([1, None], pa.int64()), [Decimal("1.00"), None]),
        ("Decimal(5,2)", pa.array([1000], pa.int64()), None),
        ("Decimal(5,2)", pa.array([Decimal("1.500")]), [Decimal("1.50")]),
        ("Decimal(5,2)", pa.array([Decimal("1.501")]), None),
        ("Decimal(5,2)", pa.array([Decimal("1.5")], pa.decimal256(50, 3)), [Decimal("1.50")]),
        ("Decimal(38,37)", pa.array([Decimal(2**64)], pa.decimal128(20, 0)), None),
        (
            "Decimal(38,37)",
            pa.array([Decimal(9)], pa.decimal128(20, 0)),
            [Decimal("9.0000000000000000000000000000000000000")],
        ),
        ("Decimal(38,0)", pa.array([Decimal(10**38)], pa.decimal256(50, 0)), None),
        ("Decimal(5,2)", pa.array([1.5]), None),
        ("Utf8", pa.array(["a", None]).dictionary_encode(), ["a", None]),
        ("Utf8", pa.array(["a", "ü"], pa.large_string()), ["a", "ü"]),
        ("Utf8", pa.array(["a"], pa.string_view()), ["a"]),
        ("Utf8", pa.array([b"a"]), None),
        ("Utf8", pa.array([b"ok", b"\xff"]).view(pa.string()), None),
        ("String", pa.array(["ü"]), ["ü".encode()]),
        ("String", pa.array([b"abc"], pa.binary(3)), [b"abc"]),
        ("String", pa.array([b"abc"], pa.large_binary()), [b"abc"]),
        ("String", pa.array([1]), None),
        ("Json", pa.array(['{"a":1}', None]), ['{"a":1}', None]),
        ("Json", pa.array(["[NaN]"]), None),
        ("Json", pa.array([{"a": 1}]), None),
        ("Date", pa.array([date(2024, 1, 31)], pa.date64()), [date(2024, 1, 31)]),
        ("Date", pa.array([1], pa.int64()).view(pa.date64()), None),
        ("Date", pa.array([2932897], pa.int32()).view(pa.date32()), None),
        ("Date", pa.array([noon]), None),
        ("Timestamp", pa.array([seconds], pa.timestamp("s")), [noon]),
        ("Timestamp", pa.array([seconds * 10**9], pa.timestamp("ns", "Europe/Berlin")), [noon]),
        ("Timestamp", pa.array([seconds * 10**9 + 1], pa.timestamp("ns", "UTC")), None),
        ("Timestamp", pa.array([2**62], pa.timestamp("s")), None),
        ("Timestamp", pa.array([2**62], pa.timestamp("us")), None),
        ("Timestamp", pa.array([MIN_TIME, MAX_TIME, None]), [MIN_TIME, MAX_TIME, None]),
        ("Timestamp", pa.array([date(2024, 1, 31)]), None),
        ("Timestamp", pa.array([1], pa.duration("ns")), None),
        ("Datetime", pa.array([seconds * 1000], pa.timestamp("ms")), [noon]),
        ("Datetime", pa.array([seconds * 1000 + 1], pa.timestamp("ms")), None),
        ("Bool", pa.array([True, None]), [True, None]),
        ("Bool", pa.array([1]), None),
        ("Int32", pa.RunEndEncodedArray.from_arrays([2, 3], [7, 8]), [7, 7, 8]),
    ]


@pytest.mark.parametrize(("name", "array", "expected"), arrow_cases())
def test_arrow_columns_of_users(name: str, array: pa.Array, expected: list[Any] | None) -> None:
    type_ = parse_type(name)
    if expected is None:
        with pytest.raises(InvalidArgument, match="column price of type"):
            array_from_user(type_, array, "price")
        return
    found = array_from_user(type_, array, "price")
    assert found.type == type_.arrow
    assert column_to_python(type_, found) == expected
    assert array_from_user(type_, pa.chunked_array([array, array]), "c").to_pylist() == found.to_pylist() * 2


@pytest.mark.parametrize("name", TYPE_NAMES)
def test_empty_columns(name: str) -> None:
    type_ = parse_type(name)
    for empty in (pa.array([], pa.null()), pa.array([], type_.arrow), pa.chunked_array([], type_.arrow)):
        assert array_from_user(type_, empty, "c").type == type_.arrow
    assert column_to_python(type_, pa.chunked_array([], type_.arrow)) == []
    assert len(python_to_array(type_, [])) == 0


def test_the_error_of_an_arrow_column_names_the_first_bad_value() -> None:
    with pytest.raises(InvalidArgument, match=r"cannot hold the int 300"):
        array_from_user(parse_type("Uint8"), pa.array([1, 300, 400]), "n")


def test_row_values_are_what_spark_gives_but_for_times_which_are_in_utc() -> None:
    def row(name: str, value: Any) -> Any:
        return row_value(parse_type(name), value)

    assert same(row("Uint64", 5), Decimal(5))
    assert same(row("Timestamp", MAX_TIME), MAX_TIME)
    assert row("Datetime", None) is row("Uint64", None) is None
    assert same(row("String", b"a"), b"a")
