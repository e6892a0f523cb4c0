"""Tables for queries that run on both engines: mild values, and values at the ends of their types."""

from __future__ import annotations

import math
import random
from datetime import date, datetime, timezone
from decimal import Decimal
from typing import Any

COLUMNS = {
    "k": "Int64",
    "i8": "Int8",
    "i16": "Int16",
    "i32": "Int32",
    "i64": "Int64",
    "u8": "Uint8",
    "u16": "Uint16",
    "u32": "Uint32",
    "u64": "Uint64",
    "f": "Float",
    "d": "Double",
    "b": "Bool",
    "s": "Utf8",
    "s2": "Utf8",
    "j": "Json",
    "raw": "String",
    "day": "Date",
    "at": "Timestamp",
    "sec": "Datetime",
    "m": "Decimal(9,2)",
    "wide": "Decimal(20,4)",
}
KINDS = {
    "int": ("k", "i8", "i16", "i32", "i64", "u8", "u16", "u32"),
    "double": ("d",),
    "float": ("f",),
    "bool": ("b",),
    "text": ("s", "s2", "j"),
    "bytes": ("raw",),
    "date": ("day",),
    "time": ("at", "sec"),
    "decimal": ("m", "wide", "u64"),
}
_SMALL = [0, 1, 2, 3, 7, 100]
_SIGNED = [*_SMALL, -1, -3, -100]
VALUES: dict[str, list[Any]] = {
    "i8": _SIGNED,
    "i16": _SIGNED,
    "i32": _SIGNED,
    "i64": _SIGNED,
    "u8": [*_SMALL, 255],
    "u16": [*_SMALL, 65535],
    "u32": [*_SMALL, 2**32 - 1],
    "u64": [*_SMALL, 2**64 - 1],
    # Multiples of powers of two: their sums are exact in any order.
    "f": [0.0, -0.0, 0.5, -1.5, 2.0, 1024.25, math.nan, math.inf],
    "d": [0.0, -0.0, 0.5, -1.5, 2.0, 1024.25, math.nan, math.inf, -math.inf],
    "b": [True, False],
    "s": ["a", "", "A", "ab", "b%", "a_b", "ab ", "Zebra", "10", "\u00e4", "\U0001f600x", "a\\b"],
    "s2": ["a", "ab", "", "B", " b", "\u00e9"],
    "j": ['{"a": 1}', "[]", "1"],
    "raw": [b"", b"a", b"\xff", b"ab", b"\x00"],
    "day": [date(2024, 2, 29), date(1999, 12, 31), date(2024, 3, 1), date(1, 1, 1), date(9999, 12, 31)],
    "at": [
        datetime(2024, 2, 29, 23, 59, 59, 999999, tzinfo=timezone.utc),
        datetime(1969, 12, 31, 23, 0, 0, 1, tzinfo=timezone.utc),
        datetime(2024, 3, 1, tzinfo=timezone.utc),
        datetime(1850, 6, 1, 5, 6, 7, tzinfo=timezone.utc),
    ],
    "sec": [
        datetime(2024, 3, 1, tzinfo=timezone.utc),
        datetime(2024, 2, 29, 12, 30, 15, tzinfo=timezone.utc),
    ],
    "m": [Decimal("0.00"), Decimal("2.25"), Decimal("-1.50"), Decimal("10.00"), Decimal("9999999.99")],
    "wide": [Decimal("0.0000"), Decimal("2.2500"), Decimal("-1.5000"), Decimal("1234567890123456.7891")],
}


def make_rows(choose: random.Random, count: int) -> list[dict[str, Any]]:
    """Return rows with keys from 1 on; a fifth of the other values are NULL."""
    return [
        {
            "k": k,
            **{
                name: None if choose.random() < 0.2 else choose.choice(values)
                for name, values in VALUES.items()
            },
        }
        for k in range(1, count + 1)
    ]


_ENDS: dict[str, list[Any]] = {
    **{f"i{n}": [-(2 ** (n - 1)), 2 ** (n - 1) - 1, -1, 0, 1, 1 - 2 ** (n - 1)] for n in (8, 16, 32, 64)},
    **{f"u{n}": [0, 1, 2**n - 1, 2 ** (n - 1)] for n in (8, 16, 32, 64)},
    "f": [math.nan, math.inf, -math.inf, -0.0, 3.4028234663852886e38, 1.401298464324817e-45, 0.5, 16777216.0],
    "d": [
        *(math.nan, math.inf, -math.inf, 0.0, -0.0, 1.7976931348623157e308, 5e-324, 2.0**53, -(2.0**63)),
        *(2.0**63, 0.1, -0.5, 1.5, 2.5, 1e15, 127.5, -128.9, 1e300),
    ],
    "b": [True, False],
    # Characters beyond 16 bits, combined ones, kinds of spaces, and what LIKE and Java treat specially.
    "s": [
        *(
            "",
            " ",
            "\t a \n",
            "\u00a0a\u00a0",
            "e\u0301",
            "\u00e9",
            "\ufffd",
            "\uffff",
            "\U0001f468\u200d\U0001f469",
        ),
        *(
            "\U00010000",
            "\U0010ffff",
            "a\nb",
            "%",
            "_",
            "\\",
            "\\%",
            "a\\",
            "'",
            '"',
            "a'b",
            "${x}",
            "$1",
            "\ue000",
        ),
        *("\u0130", "\u00df", "\ufb01", "I", "a" * 300, "\x01", "\x7f", "true", "1e3", " 12 ", "NaN"),
    ],
    "s2": ["", "a", "\u0000", "a\u0000b", "\U00010000", "\uffff", "e\u0301", "A", "z", "Z"],
    "j": ["null", '{"a": "\\u00e4"}', '"x"', "-0.0"],
    "raw": [b"", b"\x00", b"\xff\xff", b"\x80", b"\x7f", b"a\x00b", bytes(range(256))],
    "day": [
        *(date(1, 1, 1), date(9999, 12, 31), date(1970, 1, 1), date(1969, 12, 31), date(1582, 10, 4)),
        *(date(1582, 10, 15), date(1900, 2, 28), date(2000, 2, 29)),
    ],
    "at": [
        datetime(1, 1, 1, tzinfo=timezone.utc),
        datetime(9999, 12, 31, 23, 59, 59, 999999, timezone.utc),
        datetime(1970, 1, 1, tzinfo=timezone.utc),
        datetime(1969, 12, 31, 23, 59, 59, 999999, timezone.utc),
        datetime(1582, 10, 14, 1, 2, 3, 4, timezone.utc),
        datetime(1899, 12, 31, 12, 0, 0, 1, timezone.utc),
        datetime(2016, 12, 31, 23, 59, 59, tzinfo=timezone.utc),
    ],
    "sec": [
        datetime(1, 1, 1, tzinfo=timezone.utc),
        datetime(9999, 12, 31, 23, 59, 59, tzinfo=timezone.utc),
        datetime(1969, 12, 31, 23, 59, 59, tzinfo=timezone.utc),
    ],
    "m": [Decimal("9999999.99"), Decimal("-9999999.99"), Decimal("0.01"), Decimal("-0.01"), Decimal("0.00")],
    "wide": [
        *(Decimal("9999999999999999.9999"), Decimal("-9999999999999999.9999"), Decimal("0.0001")),
        *(Decimal("0.0000"), Decimal("1.0000")),
    ],
}


def make_edges(choose: random.Random, count: int) -> list[dict[str, Any]]:
    """Return rows whose values are at the ends of their types."""

    def value(name: str) -> Any:
        return None if choose.random() < 0.1 else choose.choice(_ENDS[name])

    return [{"k": k, **{name: value(name) for name in COLUMNS if name != "k"}} for k in range(1, count + 1)]


PARAMS: dict[str, Any] = {
    "p_int": 3,
    "p_negative": -7,
    "p_large": 2**40,
    "p_decimal": Decimal("2.25"),
    "p_double": 0.5,
    "p_text": "it's \u00e4 %_",
    "p_bytes": b"\x00a'",
    "p_date": date(2024, 2, 29),
    "p_time": datetime(2024, 2, 29, 23, 59, 59, 999999, tzinfo=timezone.utc),
    "p_null": None,
    "p_true": True,
}
"""Values of the parameters that queries may use."""
