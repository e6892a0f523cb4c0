"""A constant has the same value in VALUES in the process and in a SELECT on Spark.

``STRANDLINE_EXAMPLES=10`` tries ten times as many.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Mapping
from datetime import datetime, timezone
from random import Random
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pytest

from strandline import Database
from strandline.errors import StrandlineError
from tests.effort import FACTOR
from tests.tables.examples import ARROW, SPARK
from tests.tables.grammar import CONSTANTS

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

TYPES = [
    *(
        "Bool",
        "Int8",
        "Int32",
        "Int64",
        "Uint8",
        "Uint32",
        "Uint64",
        "Float",
        "Double",
        "Decimal(5,2)",
        "Decimal(38,0)",
        "String",
        "Utf8",
    ),
    *("Json", "Date", "Datetime", "Timestamp"),
]
KNOWN = [
    *((name, text) for name in ("Timestamp", "Datetime", "Date") for text in ("'2026-01-01T00:00:00+02:00'", "'2026-01-01'")),
    *((name, f"CAST(NULL AS {other})") for name, other in (("Bool", "INT"), ("Bool", "BOOLEAN"), ("Utf8", "BINARY"), ("Int8", "DECIMAL(5,2)"))),
    *((name, text) for name in ("Float", "Double") for text in ("9223372036854775809", "9007199254740993")),
    *(("Timestamp", "'2026-01-01T00:00:00+18:01'"), ("Timestamp", "concat('2026-01-01', 'T00:00:00+02:00')")),
]  # fmt: skip
"""Constants for which the two ways differed before."""
REFUSED = object()


def try_to(db: Database, statement: str, read: Callable[[], Mapping[str, Any] | None]) -> Any:
    try:
        db.sql(statement)
    except StrandlineError as error:
        assert error.code in ("INVALID_ARGUMENT", "SYNTAX_ERROR", "UNSUPPORTED"), error
        return REFUSED
    found = read()
    assert found is not None
    return found["v"]


def test_the_same_text_gives_the_same_value_or_is_refused_both_ways(
    connect: Callable[..., Database], spark: SparkSession
) -> None:
    here, there = connect(spark=spark, settings=ARROW), connect(spark=spark, settings=SPARK)
    for db in (here, there):
        for number, name in enumerate(TYPES):
            db.sql(f"CREATE TABLE t{number} (k Int32, v {name}, PRIMARY KEY (k))")

    for seed in range(max(1, FACTOR)):
        pairs = list(
            dict.fromkeys([*KNOWN, *Random(seed).sample(list(itertools.product(TYPES, CONSTANTS)), 60)])
        )
        accepted: list[tuple[str, str, Any]] = []
        for name, text in pairs:
            table = f"t{TYPES.index(name)}"
            value = try_to(
                here,
                f"UPSERT INTO {table} (k, v) VALUES (1, {text})",
                lambda table=table: here.table(table).get(1),
            )
            if value is not REFUSED:
                accepted.append((name, text, value))
            else:
                with pytest.raises(StrandlineError):
                    there.sql(f"UPSERT INTO {table} (k, v) SELECT 1, {text}")
                    pytest.fail(f"Spark takes {text} for {name}, and the process does not")
        assert len(KNOWN) < len(accepted) < len(pairs) - len(KNOWN)
        # All accepted constants go to Spark in one statement, because each statement is a job.
        there.sql(
            f"CREATE TABLE wide (k Int32, {', '.join(f'v{i} {name}' for i, (name, _, _) in enumerate(accepted))}, PRIMARY KEY (k))"
        )
        texts = ", ".join(text for _, text, _ in accepted)
        there.sql(f"UPSERT INTO wide SELECT 1, {texts}")
        there.sql(f"UPSERT INTO wide VALUES (2, {texts})")
        for key in (1, 2):
            row = there.table("wide").get(key)
            assert row is not None
            for i, (name, text, value) in enumerate(accepted):
                assert repr(row[f"v{i}"]) == repr(value), (name, text)
        there.sql("DROP TABLE wide")


MOMENT = datetime(2025, 12, 31, 22, tzinfo=timezone.utc)
TEXT = "2026-01-01T00:00:00+02:00"
TIMES = {"t": TEXT, "s": TEXT, "d": "2026-01-01"}
GIVEN = f"'{TEXT}', '{TEXT}', '2026-01-01'"


def test_a_time_as_text_with_an_offset_is_that_instant_every_way_in(
    connect: Callable[..., Database], spark: SparkSession
) -> None:
    for way in (ARROW, SPARK):
        db = connect(spark=spark, settings=way)
        db.sql("CREATE TABLE t (k Int32, t Timestamp, s Datetime, d Date, PRIMARY KEY (k))")
        ways_in: list[Callable[[int], Any]] = [
            lambda k, db=db: db.sql(f"UPSERT INTO t VALUES ({k}, {GIVEN})"),
            lambda k, db=db: db.sql(f"UPSERT INTO t SELECT {k}, {GIVEN}"),
            lambda k, db=db: db.sql(
                f"UPSERT INTO t (k) VALUES ({k}); "
                f"UPDATE t SET t = '{TEXT}', s = concat('{TEXT}', ''), d = '2026-01-01' WHERE k = {k}"
            ),
            lambda k, db=db: db.table("t").upsert([{"k": k, **TIMES}]),
            lambda k, db=db: db.table("t").upsert(pa.Table.from_pylist([{"k": k, **TIMES}])),
            lambda k, db=db: db.table("t").upsert(spark.createDataFrame([{"k": k, **TIMES}])),
        ]
        for k, write in enumerate(ways_in):
            write(k)
            assert repr(db.table("t").get(k)) == repr(
                {"k": k, "t": MOMENT, "s": MOMENT, "d": MOMENT.date().replace(2026, 1, 1)}
            )
        assert sorted(
            db.sql(f"SELECT k FROM t WHERE t = '{TEXT}' AND s <= '{TEXT}' AND d = '2026-01-01'").rows()
        ) == [(k,) for k in range(len(ways_in))]
