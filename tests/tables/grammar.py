"""Generate SQL constants: literals at the limits of every type, and casts."""

from __future__ import annotations

NUMBERS = [
    *(f"{sign}{number}" for number in (0, 1, 128, 255, 256, 32768, 65536, 2**24 + 1, 2**31, 2**32, 2**53 + 1, 2**63 - 1) for sign in ("", "-")),
    *("-9223372036854775808", "9223372036854775808", "9223372036854775809", "18446744073709551615", "18446744073709551616", "9" * 38),
    *("1.5", "-0.001", "1.00", "0.1", "16777217.0", "1e3", "1e39", "-1e300", "1.5F", "2D", "1.5BD", "5L", "7S", "1ul", "200ut"),
]  # fmt: skip
DAYS = ["2024-01-31", "2024-02-30", "0000-12-31", "9999-12-31", "2024-1-31", " 2024-01-31", "2024-01-31\\n"]
TIMES = [
    *(
        "2026-01-01T00:00:00+02:00",
        "2026-01-01 12:00:00-05:30",
        "2026-01-01T12:00:00Z",
        "2026-01-01 12:00",
        "2026-01-01T12:00:00.5",
    ),
    *(
        "2026-01-01 12:00:00.123456+14:00",
        "2026-01-01T12:00:00.1234567",
        "2026-01-01T00:00:00+18:00",
        "2026-01-01T00:00:00-18:01",
    ),
    *(
        "2026-01-01T00:00:00+02:60",
        "2026-01-01T24:00:00",
        "2026-01-01T12:00:00 Europe/Berlin",
        "2026-01-01T12:00:00+2",
        "T12:00",
    ),
    *("0001-01-01T00:00:00+01:00", "9999-12-31T23:59:59.999999", "9999-12-31T23:59:59-00:01"),
]
TEXTS = ["", "a", "1", "-5", "1.5", "true", "[1]", "ä"]
STRINGS = [f"'{text}'" for text in (*TEXTS, *DAYS, *TIMES)]
TYPED = [
    *(f"DATE '{day}'" for day in DAYS[:4]),
    *(f"TIMESTAMP '{time}'" for time in (DAYS[0], *TIMES[:5])),
    *(
        "TIMESTAMP_NTZ '2026-01-01 12:00:00'",
        "Datetime('2026-01-01T12:00:00Z')",
        "X'00ff'",
        "X''",
        "'a'u",
        "true",
        "false",
        "NULL",
    ),
]
PLAIN = [*NUMBERS, *STRINGS, *TYPED]
CASTS = [
    *(
        "BOOLEAN",
        "TINYINT",
        "SMALLINT",
        "INT",
        "BIGINT",
        "FLOAT",
        "DOUBLE",
        "DECIMAL(5,2)",
        "DECIMAL(20,0)",
        "STRING",
        "BINARY",
        "DATE",
    ),
    *("TIMESTAMP", "TIMESTAMP_NTZ", "Uint64", "Utf8"),
]

CONSTANTS = [*PLAIN, *(f"CAST({text} AS {type_})" for text in PLAIN for type_ in CASTS)]
