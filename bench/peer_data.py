"""The rows that bench/peers.py gives to each system, their changes, and how results are compared."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

KEYS: dict[str, dict[str, tuple[str, str]]] = {
    "number": {"id": ("BIGINT", "n")},
    "text": {"id": ("STRING", "concat(lower(lpad(hex(pmod(xxhash64(n), 4294967296)), 8, '0')), '-', n)")},
    "composite": {"shop": ("STRING", "concat('shop ', pmod(n, 1000))"), "number": ("BIGINT", "n div 1000")},
}
"""Primary keys by kind: the type of each column, and its expression of the row's number."""

VALUES: dict[str, tuple[str, str]] = {
    "customer": ("BIGINT", "pmod(xxhash64(n, {salt} + 1), {customers})"),
    "day": ("INT", "CAST(n div 20000 AS INT)"),
    "amount": ("DOUBLE", "CAST(pmod(xxhash64(n, {salt}), 1000000) / 100 AS DOUBLE)"),
    "note": (
        "STRING",
        "concat('order ', hex(xxhash64(n, {salt})), ' ', substr(sha2(CAST(n AS STRING), 256), 1, 32))",
    ),
}
INDEXES: dict[str, tuple[str, tuple[str, ...]]] = {
    "by_customer": ("customer", ("amount",)),
    "by_day": ("day", ()),
}
"""Indexes by name: the indexed column, and the covered columns."""

PER_CUSTOMER = 10
SPREAD = 7919
"""Changed keys are this far apart, and wrap around."""

Digest = tuple[int, int, int]


@dataclass(frozen=True)
class Orders:
    """A table of orders with a key of one kind and two indexes."""

    kind: str
    rows: int

    @property
    def key(self) -> tuple[str, ...]:
        return tuple(KEYS[self.kind])

    @property
    def columns(self) -> tuple[str, ...]:
        return (*self.key, *VALUES)

    @property
    def customers(self) -> int:
        return max(1, self.rows // PER_CUSTOMER)

    def types(self, columns: Sequence[str]) -> dict[str, str]:
        known = {name: type for name, (type, _) in (KEYS[self.kind] | VALUES).items()}
        return {name: known[name] for name in columns}

    def index_key(self, index: str) -> tuple[str, ...]:
        return (INDEXES[index][0], *self.key)

    def index_columns(self, index: str) -> tuple[str, ...]:
        return (*self.index_key(index), *INDEXES[index][1])

    def values_of(self, spark: SparkSession, numbers: str, salt: int) -> DataFrame:
        """Return rows for the column ``n`` of a query; ``salt`` makes values differ from those of others."""
        columns = [
            f"{text.format(salt=salt, customers=self.customers)} AS {name}"
            for name, (_, text) in (KEYS[self.kind] | VALUES).items()
        ]
        return spark.sql(f"SELECT {', '.join(columns)} FROM ({numbers})")


@dataclass(frozen=True)
class Changes:
    """Rows to upsert: as a DataFrame, and as rows of Python if they are few."""

    frame: DataFrame
    rows: list[dict[str, Any]] | None = None

    def values(self, column: str) -> list[Any]:
        """Return the values of a column, or nothing if there are many rows."""
        return sorted({row[column] for row in self.rows or []})


class Source:
    """The files of one table's first rows and of its changes, and what the table must hold after each."""

    def __init__(self, spark: SparkSession, orders: Orders, folder: Path) -> None:
        self.spark, self.orders, self.folder = spark, orders, folder
        numbers = f"SELECT id AS n FROM range(0, {orders.rows}, 1, 8)"
        shuffled = orders.values_of(spark, numbers, 0).repartition(8)
        shuffled.write.parquet(str(folder / "first"))
        self.first = spark.read.parquet(str(folder / "first"))
        self.now = self.first
        self._taken = 0

    def changes(self, count: int, name: str) -> Changes:
        """Return changes of ``count`` rows, spread over the table; a tenth of them are new rows."""
        rows, taken, new = self.orders.rows, self._taken, count // 10
        self._taken += count
        numbers = f"""SELECT (id * {SPREAD}) % {rows} AS n FROM range({taken}, {taken + count - new})
                      UNION ALL SELECT id AS n FROM range({rows + taken}, {rows + taken + new})"""
        path = str(self.folder / name)
        self.orders.values_of(self.spark, numbers, taken + 1).coalesce(1).write.parquet(path)
        frame = self.spark.read.parquet(path)
        few = [row.asDict() for row in frame.collect()] if count <= 100 else None
        return Changes(self.spark.createDataFrame(few, frame.schema) if few else frame, few)

    def apply(self, changes: Changes, name: str) -> None:
        """Make the changed rows what the table must hold now."""
        path = str(self.folder / f"after {name}")
        kept = self.now.join(changes.frame, list(self.orders.key), "left_anti")
        kept.select(*self.orders.columns).unionByName(changes.frame).write.parquet(path)
        self.now = self.spark.read.parquet(path)


def digest(frame: DataFrame, columns: Sequence[str]) -> Digest:
    """Return the number of rows and two sums of their hashes, which do not depend on their order."""
    from pyspark.sql import functions as F

    hashes = frame.select(F.xxhash64(*columns).alias("h"))
    row = hashes.agg(
        F.count("h"), F.expr("coalesce(bit_xor(h), 0)"), F.expr("coalesce(sum(h % 1000000007), 0)")
    ).first()
    assert row is not None
    return row[0], row[1], row[2]


def expected(source: Source) -> Iterator[tuple[str, Digest]]:
    """Yield the digest of what the table and each index must hold, with the index's name."""
    yield "", digest(source.now, source.orders.columns)
    for index in INDEXES:
        yield index, digest(source.now, source.orders.index_columns(index))
