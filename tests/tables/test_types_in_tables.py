"""Extreme values of every type, written from Python, Arrow, SQL and Spark, are read back unchanged."""

from __future__ import annotations

import math
from collections.abc import Callable
from datetime import date, datetime, timezone
from decimal import Decimal
from typing import Any

import pyarrow as pa
import pytest

from strandline import Database
from strandline.types import parse_type
from strandline.types.arrays import array_from_user
from tests.effort import EVERY
from tests.tables.examples import ARROW, SPARK, assert_sound, content, refused, rows

UTC = timezone.utc
EXTREMES: dict[str, list[Any]] = {
    "Bool": [True, False],
    "Int8": [-128, 127, 0],
    "Int16": [-32768, 32767],
    "Int32": [-(2**31), 2**31 - 1],
    "Int64": [-(2**63), 2**63 - 1],
    "Uint8": [0, 255],
    "Uint16": [0, 65535],
    "Uint32": [0, 2**32 - 1],
    "Uint64": [0, 2**63, 2**64 - 1],
    "Float": [0.0, 1.5, -3.4028234663852886e38, 1.401298464324817e-45, math.inf, -math.inf, math.nan],
    "Double": [0.0, 0.1, 1.7976931348623157e308, 5e-324, math.inf, -math.inf, math.nan],
    "Decimal(38,10)": [
        Decimal("9999999999999999999999999999.9999999999"),
        Decimal("-9999999999999999999999999999.9999999999"),
        Decimal("0E-10"),
    ],
    "Decimal(5,0)": [Decimal("99999"), Decimal("-99999")],
    "Decimal(18,18)": [Decimal("0.999999999999999999"), Decimal("-1E-18")],
    "String": [b"", b"\0", bytes(range(256)), b"\xff\xfe" * 500],
    "Utf8": ["", " ", "a'b\"c`d\\e", "\0", "日本語 😀 é é", "\n\t", "x" * 10_000],
    "Json": ["null", '""', '{"a": [1, 2.50, 1e400], "a": null}', " [ ] ", '"\\u0000"'],
    "Date": [date(1, 1, 1), date(1582, 10, 4), date(1582, 10, 15), date(1970, 1, 1), date(9999, 12, 31)],
    "Datetime": [
        datetime(1, 1, 2, tzinfo=UTC),
        datetime(1900, 1, 1, 0, 0, 1, tzinfo=UTC),
        datetime(9999, 12, 30, 23, 59, 59, tzinfo=UTC),
    ],
    "Timestamp": [
        datetime(1, 1, 2, 0, 0, 0, 1, tzinfo=UTC),
        datetime(1883, 11, 18, 12, 3, 58, 999999, tzinfo=UTC),
        datetime(2024, 2, 29, 23, 59, 59, 123456, tzinfo=UTC),
        datetime(9999, 12, 30, 23, 59, 59, 999999, tzinfo=UTC),
    ],
}

KEYS = [name for name in EXTREMES if parse_type(name).orderable]


def create(db: Database) -> None:
    """Create a table with all types, and one per orderable type with it as the key and in an index."""
    columns = ", ".join(f"c{i} {name}" for i, name in enumerate(EXTREMES))
    db.sql(f"CREATE TABLE wide (k Int32, {columns}, PRIMARY KEY (k))")
    for number, name in enumerate(KEYS):
        db.sql(f"CREATE TABLE key{number} (k {name}, v {name}, PRIMARY KEY (k), INDEX i GLOBAL ON (v))")


def wide_rows() -> list[dict[str, Any]]:
    longest = max(map(len, EXTREMES.values()))
    made = []
    for number in range(longest + 1):
        row: dict[str, Any] = {"k": number}
        for i, values in enumerate(EXTREMES.values()):
            row[f"c{i}"] = values[number] if number < len(values) else None
        made.append(row)
    return made


def fill_with_dicts(db: Database) -> None:
    db.table("wide").upsert(wide_rows())
    for number, name in enumerate(KEYS):
        db.table(f"key{number}").upsert([{"k": value, "v": value} for value in [None, *EXTREMES[name]]])


def fill_with_arrow(db: Database) -> None:
    def column(name: str, values: list[Any]) -> pa.Array:
        return array_from_user(
            parse_type(name),
            pa.array(values, parse_type(name).arrow) if name != "Uint64" else pa.array(values, pa.uint64()),
            "c",
        )

    made = wide_rows()
    names = {"k": "Int32", **{f"c{i}": name for i, name in enumerate(EXTREMES)}}
    db.table("wide").upsert(
        pa.table({c: column(name, [row[c] for row in made]) for c, name in names.items()})
    )
    for number, name in enumerate(KEYS):
        values = column(name, [None, *EXTREMES[name]])
        db.table(f"key{number}").upsert(pa.table({"k": values, "v": values}))


def same(one: Any, two: Any) -> bool:
    return repr(one) == repr(two)


def check(db: Database) -> None:
    for row in wide_rows():
        assert same(db.table("wide").get(row["k"]), row)
    for number, name in enumerate(KEYS):
        for value in [None, *EXTREMES[name]]:
            assert db.table(f"key{number}").get(value) == {"k": value, "v": value}, name
        assert db.describe(f"/key{number}")["rows"] == len(EXTREMES[name]) + 1
        assert_sound(db, f"/key{number}")
    assert db.check("/wide").ok


def digests(db: Database) -> list[str]:
    return [db.describe(e.path)["digest"] for e in db.ls("/")] + [
        db.describe(f"/key{n}/i")["digest"] for n in range(len(KEYS))
    ]


@pytest.mark.slow
def test_values_survive_every_way_in(connect: Callable[..., Database]) -> None:
    found = []
    for fill in (fill_with_dicts, fill_with_arrow):
        db = connect(settings=ARROW)
        create(db)
        fill(db)
        check(db)
        found.append(digests(db))
        for entry in db.ls("/"):
            assert db.compact(entry.path)
        check(db)
        assert digests(db) == found[0], "compaction changes no digest"
    assert found[0] == found[1]


def test_values_survive_the_way_through_spark(connect: Callable[..., Database], spark: Any) -> None:
    """Values written by Spark are read in the process, and the reverse."""
    here = connect("here", settings=ARROW)
    create(here)
    fill_with_dicts(here)
    there = connect("there", settings=SPARK, spark=spark)
    reader = connect("there", settings=ARROW)
    columns = ", ".join(f"c{i} {name}" for i, name in enumerate(EXTREMES))
    there.sql(f"CREATE TABLE wide (k Int32, {columns}, PRIMARY KEY (k))")
    there.table("wide").upsert(wide_rows())
    for row in wide_rows():
        assert same(reader.table("wide").get(row["k"]), row)
    assert reader.describe("/wide")["digest"] == here.describe("/wide")["digest"]
    assert there.check("/wide").ok
    assert same(rows(there, "SELECT * FROM wide ORDER BY k"), rows(reader, "SELECT * FROM wide ORDER BY k"))
    # From Spark's values to a table again.
    there.sql("CREATE TABLE again (k Int32, " + columns + ", PRIMARY KEY (k))")
    there.sql("UPSERT INTO again SELECT * FROM wide")
    assert reader.describe("/again")["digest"] == here.describe("/wide")["digest"]
    for row in wide_rows():
        assert same(reader.table("again").get(row["k"]), row)


KINDS = ["Decimal(38,10)", "Timestamp", "String", "Uint64", "Utf8", "Date", "Bool"]


@pytest.mark.parametrize("name", KINDS if EVERY else KINDS[:3])
def test_keys_of_every_kind_on_spark(connect: Callable[..., Database], spark: Any, name: str) -> None:
    """Types for which Spark's order or hash might differ."""
    there = connect("there", settings=SPARK, spark=spark)
    reader = connect("there", settings=ARROW)
    here = connect("here", settings=ARROW)
    for db in (here, there):
        db.sql(f"CREATE TABLE t (k {name}, v {name}, PRIMARY KEY (k), INDEX i GLOBAL ON (v))")
        db.table("t").upsert([{"k": value, "v": value} for value in [None, *EXTREMES[name]]])
        db.table("t").upsert([{"k": value, "v": EXTREMES[name][0]} for value in EXTREMES[name][1:]])
    assert content(reader, "/t") == content(here, "/t")
    assert content(reader, "/t/i/indexImplTable") == content(here, "/t/i/indexImplTable")
    for path in ("/t", "/t/i"):
        assert reader.describe(path)["digest"] == here.describe(path)["digest"]
    assert_sound(reader, "/t")


LITERALS = [
    ("Bool", "true", True),
    ("Uint64", "18446744073709551615", 2**64 - 1),
    ("Int64", "-9223372036854775808", -(2**63)),
    (
        "Decimal(38,10)",
        "9999999999999999999999999999.9999999999",
        Decimal("9999999999999999999999999999.9999999999"),
    ),
    ("Decimal(5,2)", "7", Decimal("7.00")),
    ("Float", "0.1", 0.10000000149011612),
    ("Double", "0.1", 0.1),
    ("Double", "3", 3.0),
    ("String", "X'00ff'", b"\0\xff"),
    ("String", "'é'", "é".encode()),
    ("Utf8", "'it''s \\u00e9 \\n'", "it's é \n"),
    ("Utf8", "''", ""),
    ("Json", "'{\"a\": [1, null]}'", '{"a": [1, null]}'),
    ("Date", "'2024-02-29'", date(2024, 2, 29)),
    ("Date", "DATE '0001-01-01'", date(1, 1, 1)),
    ("Datetime", "'2024-02-29T12:00:00Z'", datetime(2024, 2, 29, 12, tzinfo=UTC)),
    ("Timestamp", "'2024-02-29 12:00:00.000001+01:00'", datetime(2024, 2, 29, 11, 0, 0, 1, tzinfo=UTC)),
    (
        "Timestamp",
        "TIMESTAMP '2024-02-29 12:00:00.123456'",
        datetime(2024, 2, 29, 12, 0, 0, 123456, tzinfo=UTC),
    ),
    ("Timestamp", "'2024-02-29'", datetime(2024, 2, 29, tzinfo=UTC)),
    ("Int32", "NULL", None),
    ("Uint8", "CAST(7 AS Int32)", 7),
]


def test_literals_mean_the_same_in_the_process_and_on_spark(
    connect: Callable[..., Database], spark: Any
) -> None:
    db = connect(settings=ARROW, spark=spark)
    columns = ", ".join(f"c{i} {name}" for i, (name, _, _) in enumerate(LITERALS))
    db.sql(f"CREATE TABLE t (k Int32, {columns}, PRIMARY KEY (k))")
    texts = ", ".join(text for _, text, _ in LITERALS)
    db.sql(f"UPSERT INTO t VALUES (1, {texts})")
    expected = {f"c{i}": value for i, (_, _, value) in enumerate(LITERALS)}
    assert db.table("t").get(1) == {"k": 1, **expected}
    for i, (name, text, value) in enumerate(LITERALS):
        if value is not None and name != "Float":  # Spark compares a Float with 0.1 as doubles, which differ.
            assert db.sql(f"SELECT k FROM t WHERE c{i} = {text} AND k + 0 = 1").df.count() == 1, (
                name,
                text,
                value,
            )
    # An expression that needs Spark does not change how the literals beside it are cast.
    db.sql(f"UPSERT INTO t VALUES (1 + 1, {texts})")
    assert db.table("t").get(2) == {"k": 2, **expected}
    db.sql("UPSERT INTO t (k) VALUES (3)")
    db.sql(
        f"UPDATE t SET {', '.join(f'c{i} = {text}' for i, (_, text, _) in enumerate(LITERALS))} WHERE abs(k) = 3"
    )
    assert db.table("t").get(3) == {"k": 3, **expected}


REFUSED = [
    ("Bool", 1),
    ("Bool", "true"),
    ("Int8", 128),
    ("Int8", -129),
    ("Int32", 2**31),
    ("Int64", 2**63),
    ("Int64", 1.0),
    ("Int64", True),
    ("Int64", "1"),
    ("Uint8", -1),
    ("Uint64", 2**64),
    ("Uint64", 10**400),
    ("Float", 1e39),
    ("Float", 2**24 + 1),
    ("Float", "1"),
    ("Double", 2**53 + 1),
    ("Double", True),
    ("Decimal(5,2)", Decimal("1000")),
    ("Decimal(5,2)", Decimal("0.001")),
    ("Decimal(5,2)", 0.5),
    ("Decimal(5,2)", Decimal("NaN")),
    ("Decimal(5,2)", Decimal("1E+1000000")),
    ("String", 1),
    ("Utf8", b"bytes"),
    ("Utf8", "\ud800"),
    ("Json", "{"),
    ("Json", "NaN"),
    ("Json", "[1,]"),
    ("Json", {"a": 1}),
    ("Json", "[" * 100_000),
    ("Date", "2024-02-30"),
    ("Date", datetime(2024, 1, 1)),
    ("Datetime", datetime(2024, 1, 1, 0, 0, 0, 1)),
    ("Datetime", date(2024, 1, 1)),
    ("Timestamp", 0),
    ("Timestamp", "2024-01-01 noon"),
    ("Int32", object()),
    ("Utf8", [1]),
]


@pytest.mark.slow
def test_nothing_is_rounded_wrapped_cut_or_cast(db: Database) -> None:
    for number, name in enumerate(sorted({name for name, _ in REFUSED})):
        db.sql(f"CREATE TABLE t{number} (k Int32, v {name}, PRIMARY KEY (k))")
    numbers = {name: number for number, name in enumerate(sorted({name for name, _ in REFUSED}))}
    for name, value in REFUSED:
        with refused(db, "INVALID_ARGUMENT"):
            db.table(f"t{numbers[name]}").upsert([{"k": 1, "v": value}])
