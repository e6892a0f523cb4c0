"""Tables for tests: random rows of all types, chains written in process, and DataFrames as values."""

from __future__ import annotations

import random
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from datetime import date, datetime, timedelta, timezone
from decimal import Decimal
from pathlib import Path
from typing import Any

from pyspark.sql import DataFrame, SparkSession

from strandline.model import (
    OP,
    STEP,
    WAS_HI,
    WAS_LO,
    Chain,
    Digest,
    IndexDef,
    Key,
    Segment,
    State,
    TableSchema,
    visible,
)
from strandline.storage.files import LocalFiles
from strandline.storage.rows import Mode, Outcome, Target
from strandline.storage.segment import Inline, write_segment
from strandline.storage.segment_cache import SegmentCache
from strandline.storage.spark.columns import spark_type
from strandline.storage.spark.given import measured
from strandline.storage.spark.load import load
from strandline.storage.spark.write import write
from strandline.types import parse_type
from strandline.types.arrays import column_to_python
from tests.storage.rowwise import Change, apply_write, index_changes, is_fresh, log_table

Row = tuple[Any, ...]

VALUES: dict[str, list[Any]] = {
    "Bool": [True, False],
    "Int8": [-128, 127, 0],
    "Int16": [-32768, 32767, 5],
    "Int32": [-(2**31), 2**31 - 1, 7],
    "Int64": [-(2**63), 2**63 - 1, 0, 9],
    "Uint8": [0, 255],
    "Uint16": [0, 65535],
    "Uint32": [0, 2**32 - 1],
    "Uint64": [0, 2**64 - 1, 2**63],
    "Float": [0.5, -1.5, float("nan"), float("inf")],
    "Double": [0.1, -0.0, 1e300, float("nan")],
    "Decimal(22,9)": [Decimal("0.000000001"), Decimal("-1234567890123.123456789")],
    "Decimal(9,2)": [Decimal("1.25"), Decimal("-9999999.99")],
    "String": [b"", b"\xff\x00", b"abc"],
    "Utf8": ["", "ä", "z\U0001f600", "b"],
    "Json": ["{}", '{"a": [1, null]}'],
    "Date": [date(1, 1, 1), date(9999, 12, 31), date(1970, 1, 1)],
    "Datetime": [datetime(1, 1, 1, tzinfo=timezone.utc), datetime(2024, 3, 31, 1, 30, tzinfo=timezone.utc)],
    "Timestamp": [
        datetime(1, 1, 1, tzinfo=timezone.utc) + timedelta(microseconds=1),
        datetime(9999, 12, 31, 23, 59, 59, 999999, timezone.utc),
    ],
}

ALL_TYPES = TableSchema.of(
    [("id", parse_type("Int32"), False), ("part", parse_type("Utf8"), True)]
    + [(f"c {name}", parse_type(name), False) for name in VALUES],
    ("part", "id"),
)
"""All types, a composite key with a nullable part, and key columns in another order than in the table."""

SMALL = TableSchema.of(
    [
        ("k", parse_type("Int64"), False),
        ("v", parse_type("Utf8"), False),
        ("n", parse_type("Int32"), False),
        ("x", parse_type("Double"), False),
    ],
    ("k",),
)
BY_V = IndexDef(name="by_v", kind="GLOBAL SYNC", columns=("v",), cover=("n",))
BY_NK = IndexDef(name="by_nk", kind="GLOBAL SYNC", columns=("n", "k"))


def random_row(rng: random.Random, schema: TableSchema, keys: int) -> Row:
    return tuple(
        _random_value(rng, c.name, c.type.name, c.name in schema.key, c.not_null, keys)
        for c in schema.columns
    )


def _random_value(rng: random.Random, name: str, kind: str, in_key: bool, not_null: bool, keys: int) -> Any:
    if not not_null and rng.random() < (0.05 if in_key else 0.2):
        return None
    if in_key and name in ("k", "id"):
        return rng.randrange(keys)
    if in_key and name == "part":
        return rng.choice(["a", "b", "é"])
    return rng.choice(VALUES[kind])


@dataclass
class Table:
    """A table whose chain grows commit by commit, with a model of its rows."""

    files: LocalFiles
    schema: TableSchema
    indexes: tuple[IndexDef, ...] = ()
    segments: tuple[Segment, ...] = ()
    step: int = 0
    rows: dict[Key, Row] = field(default_factory=dict)
    digest: Digest = field(default_factory=Digest)
    impls: dict[str, Table] = field(default_factory=dict)
    names: int = 0
    cache: SegmentCache = field(init=False)

    def __post_init__(self) -> None:
        self.cache = SegmentCache(self.files)

    @staticmethod
    def new(folder: Path, schema: TableSchema, *indexes: IndexDef) -> Table:
        files = LocalFiles(folder)
        table = Table(files, schema, indexes)
        table.impls = {i.name: Table(files, i.impl_schema(schema)) for i in indexes}
        return table

    @property
    def chain(self) -> Chain:
        return Chain(self.segments, self.step)

    @property
    def state(self) -> State:
        return State(self.schema, self.chain)

    def target(self, *pending: Segment, name: str | None = None) -> Target:
        """Return the table with these pending changes as the target of a write."""
        return Target(
            state=State(self.schema, self.chain.plus(pending)),
            indexes=lambda: {index.name: impl for index, impl in self.index_schemas},
            name=lambda index: self.fresh_name() if name is None else name,
            reads=lambda keys: None,
        )

    @property
    def index_schemas(self) -> list[tuple[IndexDef, TableSchema]]:
        return [(i, self.impls[i.name].schema) for i in self.indexes]

    def fresh_name(self) -> str:
        self.names += 1
        return f"data/{id(self) % 10**6}/{self.names:04d}"

    def changes(self, mode: Mode, columns: Sequence[str], rows: Sequence[Row]) -> list[Change]:
        return apply_write(self.schema, mode, columns, rows, self.rows)

    def write(
        self, mode: Mode, rows: Sequence[Row], columns: Sequence[str] | None = None, *, inline: bool = True
    ) -> list[Change]:
        """Commit a write in process."""
        changes = self.changes(mode, columns or self.schema.names, rows)
        self.commit(changes, inline=inline)
        for index, impl in self.index_schemas:
            self.impls[index.name].commit(
                index_changes(self.schema, index, impl, changes), self.step, inline=inline
            )
        return changes

    def commit(self, changes: list[Change], step: int | None = None, *, inline: bool = True) -> None:
        self.step = self.step + 1 if step is None else step
        self.apply(changes)
        if changes:
            rows, delta = log_table(self.schema, changes)
            segment = write_segment(
                self.files,
                self.schema,
                rows,
                name=self.fresh_name() + ".parquet",
                role="log",
                fresh=is_fresh(changes),
                stepped=False,
                after=self.step - 1,
                upto=self.step,
                inline=Inline(2000 if inline else -1, 1 << 18),
            )
            self.segments = (*self.segments, segment)
            self.digest += delta

    def apply(self, changes: list[Change]) -> None:
        for change in changes:
            if change.new is None:
                self.rows.pop(change.key, None)
            else:
                self.rows[change.key] = change.new

    def add(self, segments: Sequence[Segment], delta: Digest, step: int) -> None:
        """Commit segments that Spark wrote."""
        self.step = step
        self.segments = (*self.segments, *(replace(s, after=step - 1, upto=step) for s in segments))
        self.digest += delta


def random_table(
    folder: Path, schema: TableSchema, seed: int, *indexes: IndexDef, commits: int = 8, inline: bool = True
) -> Table:
    """Return a table with a load, changes of all kinds, re-inserted keys, and perhaps new keys at the end."""
    rng = random.Random(seed)
    table = Table.new(folder, schema, *indexes)
    table.write("UPSERT", [random_row(rng, schema, 60) for _ in range(50)], inline=False)
    modes: list[Mode] = ["UPSERT", "REPLACE", "DELETE ON", "DELETE", "UPSERT", "UPDATE"]
    for _ in range(commits):
        mode = rng.choice(modes)
        rows = [random_row(rng, schema, 60) for _ in range(rng.randrange(1, 12))]
        table.write(mode, rows, inline=inline and rng.random() < 0.7)
    if rng.random() < 0.5:
        table.write("UPSERT", [_beyond(schema, random_row(rng, schema, 60), i) for i in range(5)])
    return table


def _beyond(schema: TableSchema, row: Row, number: int) -> Row:
    """Return the row with a key that no other test row has."""
    return tuple(
        1000 + number if c.name in ("k", "id") else v for c, v in zip(schema.columns, row, strict=True)
    )


def plain(df: DataFrame, schema: TableSchema, columns: Sequence[str] | None = None) -> list[Row]:
    """Return the rows as canonical values in a fixed order. Uses Arrow, which has no local time zone."""
    names = list(columns or df.columns)
    table = df.toArrow()
    values = [
        column_to_python(schema[name].type, table.column(name).cast(schema[name].type.arrow))
        if name in schema
        else table.column(name).to_pylist()
        for name in names
    ]
    return in_order(zip(*values, strict=True))


def in_order(rows: Any) -> list[Row]:
    return sorted((tuple(comparable(v) for v in row) for row in rows), key=repr)


def comparable(value: Any) -> Any:
    return "NaN" if isinstance(value, float) and value != value else value


def log_of(df: DataFrame, schema: TableSchema) -> list[Row]:
    return plain(df, schema, [*schema.names, OP, WAS_HI, WAS_LO, *([STEP] if STEP in df.columns else [])])


def write_on_spark(target: Target, cache: SegmentCache, mode: Mode, rows: DataFrame) -> Outcome:
    """Write on Spark without bringing rows into this process, even if there are few."""
    if not visible(target.state.chain):
        return load(cache, target, mode, rows)
    with measured(cache, target, mode, rows) as given:
        return write(given) if given.rows else Outcome()


def frame(spark: SparkSession, schema: TableSchema, columns: Sequence[str], rows: Sequence[Row]) -> DataFrame:
    """Return rows as a DataFrame in the given order, in the physical types."""
    import pyarrow as pa
    from pyspark.sql import types as T

    from strandline.types.arrays import python_to_array

    arrays = [python_to_array(schema[name].type, [row[i] for row in rows]) for i, name in enumerate(columns)]
    fields = [T.StructField(name, spark_type(schema[name].type)) for name in columns]
    return spark.createDataFrame(pa.table(arrays, names=list(columns)), T.StructType(fields)).coalesce(1)
