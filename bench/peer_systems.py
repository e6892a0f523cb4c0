"""The systems of bench/peers.py behind one interface: Strandline, Delta and Iceberg.

``Strandline`` keeps indexes by itself. A ``Peer`` keeps a table for each index, sorted by the indexed column
and the primary key, as its users do: a MERGE into the table is followed by a MERGE into each index table, and
a restore writes the index tables again.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import reduce
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar, Protocol

from bench.peer_data import INDEXES, Changes, Orders, digest
from strandline import Database

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

Rows = list[tuple[Any, ...]]
GONE, TURN = "__gone", "__turn"
"""Columns of increments: true for deleted keys; the increment's number."""


class System(Protocol):
    """A system under test. Its methods work on the table that was loaded last."""

    name: ClassVar[str]

    def load(self, table: str, rows: DataFrame) -> None: ...
    def drop(self, table: str) -> None: ...
    def rows(self) -> DataFrame: ...
    def index(self, name: str) -> DataFrame: ...
    def agrees(self) -> bool: ...
    def upsert(self, changes: Changes) -> None: ...
    def covered(self, customer: int) -> Rows: ...
    def whole(self, customer: int) -> Rows: ...
    def keep(self) -> None: ...
    def back_up(self) -> None: ...
    def increment(self) -> None: ...
    def restore(self) -> None: ...
    def restored(self) -> DataFrame: ...


def sql_literal(value: Any) -> str:
    return f"'{value}'" if isinstance(value, str) else str(value)


def matching(orders: Orders, keys: Sequence[Sequence[Any]]) -> str:
    """Return a condition on the primary key that a planner can use to skip files."""
    if len(orders.key) == 1:
        return f"{orders.key[0]} IN ({', '.join(sql_literal(key[0]) for key in keys)})"
    return " OR ".join(
        f"({' AND '.join(f'{n} = {sql_literal(v)}' for n, v in zip(orders.key, key, strict=True))})"
        for key in keys
    )


class Strandline:
    name: ClassVar[str] = "Strandline"

    def __init__(self, db: Database, orders: Orders, folder: Path) -> None:
        self.db, self.orders, self.folder = db, orders, folder
        self.table = ""

    def load(self, table: str, rows: DataFrame) -> None:
        columns = [f"{name} {type}" for name, type in self.orders.types(self.orders.columns).items()]
        columns = [f"{c} NOT NULL" if c.split()[0] in self.orders.key else c for c in columns]
        indexes = [
            f"INDEX {name} GLOBAL SYNC ON ({column})" + (f" COVER ({', '.join(cover)})" if cover else "")
            for name, (column, cover) in INDEXES.items()
        ]
        key = f"PRIMARY KEY ({', '.join(self.orders.key)})"
        self.db.sql(f"CREATE TABLE {table} ({', '.join([*columns, key, *indexes])})")
        self.table = table
        self.db.table(table).upsert(rows)

    def drop(self, table: str) -> None:
        self.db.sql(f"DROP TABLE {table} PURGE")

    def rows(self) -> DataFrame:
        return self.db.table(self.table).df()

    def index(self, name: str) -> DataFrame:
        return self.db.table(f"{self.table}/{name}/indexImplTable").df()

    def agrees(self) -> bool:
        columns = list(self.orders.index_columns("by_customer"))
        order = [(column, "ascending") for column in columns]
        with self.db.transaction():
            rows = self.db.table(self.table).scan(columns).to_arrow()
            entries = self.db.table(self.table).scan(columns, view="by_customer").to_arrow()
        return bool(rows.sort_by(order).equals(entries.sort_by(order)))

    def upsert(self, changes: Changes) -> None:
        self.db.table(self.table).upsert(changes.frame if changes.rows is None else changes.rows)

    def covered(self, customer: int) -> Rows:
        return self._look_up(self.orders.index_columns("by_customer"), customer)

    def whole(self, customer: int) -> Rows:
        return self._look_up(self.orders.columns, customer)

    def _look_up(self, columns: Sequence[str], customer: int) -> Rows:
        where = f"FROM {self.table} VIEW by_customer WHERE customer = {customer}"
        return self.db.sql(f"SELECT {', '.join(columns)} {where}").rows()

    def keep(self) -> None:
        self._back_up("here", "cluster")

    def back_up(self) -> None:
        self._back_up("elsewhere", str(self.folder / "elsewhere"))

    def _back_up(self, name: str, storage: str) -> None:
        self.db.sql(
            f"""CREATE BACKUP COLLECTION {name}_{self.table} (TABLE {self.table})
                WITH (STORAGE = '{storage}', INCREMENTAL_BACKUP_ENABLED = 'true')"""
        )
        self.db.sql(f"BACKUP {name}_{self.table}")

    def increment(self) -> None:
        self.db.sql(f"BACKUP elsewhere_{self.table} INCREMENTAL")

    def restore(self) -> None:
        options = "WITH (MODE = 'copy', VERIFY = 'data')"
        self.db.sql(f"RESTORE elsewhere_{self.table} INTO `restored` {options}")

    def restored(self) -> DataFrame:
        return self.db.table(f"restored/{self.table}").df()


class Peer:
    """A table format without indexes, used through Spark SQL."""

    name: ClassVar[str]
    prefix: ClassVar[str] = ""

    def __init__(self, spark: SparkSession, orders: Orders, folder: Path) -> None:
        self.spark, self.orders, self.folder = spark, orders, folder
        self.table = ""
        self.increments = 0

    def load(self, table: str, rows: DataFrame) -> None:
        self.table = f"{self.prefix}{table}"
        self._create(self.table, self.orders.columns, self.orders.key, table=True)
        self._fill(self.table, rows.select(*self.orders.columns), self.orders.key)
        for index in INDEXES:
            name, columns = f"{self.table}_{index}", self.orders.index_columns(index)
            self._create(name, columns, self.orders.index_key(index), table=False)
            self._fill(name, rows.select(*columns), self.orders.index_key(index))

    def drop(self, table: str) -> None:
        for name in (table, *(f"{table}_{index}" for index in INDEXES)):
            self.spark.sql(f"DROP TABLE {self.prefix}{name}")

    def rows(self) -> DataFrame:
        return self.spark.table(self.table)

    def index(self, name: str) -> DataFrame:
        return self.spark.table(f"{self.table}_{name}")

    def agrees(self) -> bool:
        columns = self.orders.index_columns("by_customer")
        return digest(self.rows(), columns) == digest(self.index("by_customer"), columns)

    def upsert(self, changes: Changes) -> None:
        before, after = self._merge_table(changes)
        for index in INDEXES:
            self._merge_index(index, before, after)

    def _merge_table(self, changes: Changes) -> tuple[DataFrame, DataFrame]:
        """Merge changes into the table; return the changed rows as they were and as they are."""
        raise NotImplementedError

    def _merge(self, changes: Changes) -> None:
        changes.frame.createOrReplaceTempView("changes")
        same = [f"t.{name} = c.{name}" for name in self.orders.key]
        if changes.rows:  # Files without these keys need not be read.
            first = self.orders.key[0]
            same.append(f"t.{first} IN ({', '.join(sql_literal(v) for v in changes.values(first))})")
        self.spark.sql(
            f"""MERGE INTO {self.table} t USING changes c ON {" AND ".join(same)}
                WHEN MATCHED THEN UPDATE SET * WHEN NOT MATCHED THEN INSERT *"""
        )

    def _merge_index(self, index: str, before: DataFrame, after: DataFrame) -> None:
        """Erase entries whose key is gone, and write those that are new or have other covered values."""
        from pyspark.sql import functions as F

        key, columns = list(self.orders.index_key(index)), list(self.orders.index_columns(index))
        gone = before.select(*columns).join(after.select(*key), key, "left_anti")
        new = after.select(*columns).join(before.select(*columns), columns, "left_anti")
        entries = gone.withColumn(GONE, F.lit(True)).unionByName(new.withColumn(GONE, F.lit(False)))
        entries.createOrReplaceTempView("entries")
        covered = INDEXES[index][1]
        update = "WHEN MATCHED THEN UPDATE SET " + ", ".join(f"t.{n} = c.{n}" for n in covered)
        same = " AND ".join(f"t.{name} = c.{name}" for name in key)
        values = ", ".join(f"c.{name}" for name in columns)
        self.spark.sql(
            f"""MERGE INTO {self.table}_{index} t USING entries c ON {same}
                WHEN MATCHED AND c.{GONE} THEN DELETE {update if covered else ""}
                WHEN NOT MATCHED THEN INSERT ({", ".join(columns)}) VALUES ({values})"""
        )

    def covered(self, customer: int) -> Rows:
        columns = self.orders.index_columns("by_customer")
        found = self.index("by_customer").where(f"customer = {customer}").select(*columns)
        return [tuple(row) for row in found.collect()]

    def whole(self, customer: int) -> Rows:
        found = self.index("by_customer").where(f"customer = {customer}").select(*self.orders.key)
        keys = [tuple(row) for row in found.collect()]
        if not keys:
            return []
        rows = self.rows().where(matching(self.orders, keys)).select(*self.orders.columns)
        return [tuple(row) for row in rows.collect()]

    def keep(self) -> None:
        """Keep the present state of the table by reference."""
        raise NotImplementedError

    def back_up(self) -> None:
        self.rows().write.parquet(str(self.folder / "full"))
        self._note_position()

    def increment(self) -> None:
        self._changed().write.parquet(str(self.folder / f"increment {self.increments}"))
        self.increments += 1
        self._note_position()

    def restore(self) -> None:
        """Write the state of the last increment to new tables and compare them with the live ones."""
        live = {"": self.rows(), **{index: self.index(index) for index in INDEXES}}
        self.load(f"restored_{self.table.removeprefix(self.prefix)}", self._backed_up())
        copies = {"": self.rows(), **{index: self.index(index) for index in INDEXES}}
        for name, rows in live.items():
            if digest(rows, rows.columns) != digest(copies[name], rows.columns):
                raise SystemExit(f"{self.name}: the restored table differs from the table")

    def _backed_up(self) -> DataFrame:
        """Return the rows of the full backup and of all increments after it."""
        from pyspark.sql import functions as F

        read = self.spark.read.parquet
        taken = [
            read(str(self.folder / f"increment {number}")).withColumn(TURN, F.lit(number))
            for number in range(self.increments)
        ]
        last = latest(reduce(lambda a, b: a.unionByName(b), taken), self.orders.key, TURN)
        full = read(str(self.folder / "full"))
        kept = full.join(F.broadcast(last.select(*self.orders.key)), list(self.orders.key), "left_anti")
        columns = self.orders.columns
        return kept.select(*columns).unionByName(last.where(f"NOT {GONE}").select(*columns))

    def restored(self) -> DataFrame:
        return self.rows()

    def _create(self, name: str, columns: Sequence[str], key: Sequence[str], *, table: bool) -> None:
        raise NotImplementedError

    def _fill(self, name: str, rows: DataFrame, key: Sequence[str]) -> None:
        raise NotImplementedError

    def _changed(self) -> DataFrame:
        """Return the last state of each key that changed since the position; deleted ones with ``GONE``."""
        raise NotImplementedError

    def _note_position(self) -> None:
        raise NotImplementedError

    def _columns(self, columns: Sequence[str], key: Sequence[str]) -> str:
        types = self.orders.types(columns)
        return ", ".join(f"{n} {t}{' NOT NULL' if n in key else ''}" for n, t in types.items())


def latest(changes: DataFrame, key: Sequence[str], order: str) -> DataFrame:
    """Return the change of each key that is last by ``order``."""
    from pyspark.sql import functions as F

    others = [name for name in changes.columns if name not in (*key, order)]
    last = changes.groupBy(*key).agg(F.max_by(F.struct(*others), order).alias("last"))
    return last.select(*key, "last.*")


class Delta(Peer):
    """Delta with deletion vectors and the change data feed; index entries follow from the feed."""

    name = "Delta"

    def _create(self, name: str, columns: Sequence[str], key: Sequence[str], *, table: bool) -> None:
        feed = ", 'delta.enableChangeDataFeed' = 'true'" if table else ""
        self.spark.sql(
            f"""CREATE TABLE {name} ({self._columns(columns, key)}) USING delta
                TBLPROPERTIES ('delta.enableDeletionVectors' = 'true'{feed})"""
        )

    def _fill(self, name: str, rows: DataFrame, key: Sequence[str]) -> None:
        rows.orderBy(*key).write.format("delta").mode("append").saveAsTable(name)

    def _version(self) -> int:
        row = self.spark.sql(f"DESCRIBE HISTORY {self.table} LIMIT 1").first()
        assert row is not None
        return int(row["version"])

    def _feed(self, after: int) -> DataFrame:
        reader = self.spark.read.option("readChangeFeed", "true").option("startingVersion", after + 1)
        return reader.table(self.table)

    def _merge_table(self, changes: Changes) -> tuple[DataFrame, DataFrame]:
        before = self._version()
        self._merge(changes)
        feed = self._feed(before)  # MERGE refuses a cached source.
        return (
            feed.where("_change_type IN ('update_preimage', 'delete')").select(*self.orders.columns),
            feed.where("_change_type IN ('update_postimage', 'insert')").select(*self.orders.columns),
        )

    def keep(self) -> None:
        self.spark.sql(f"CREATE OR REPLACE TABLE {self.table}_kept SHALLOW CLONE {self.table}")

    def _changed(self) -> DataFrame:
        from pyspark.sql import functions as F

        feed = self._feed(self.position).where("_change_type != 'update_preimage'")
        marked = feed.withColumn(GONE, F.col("_change_type") == "delete")
        return latest(
            marked.select(*self.orders.columns, GONE, "_commit_version"), self.orders.key, "_commit_version"
        )

    def _note_position(self) -> None:
        self.position = self._version()


class Iceberg(Peer):
    """Iceberg v3, merge-on-read. Changes come from row lineage: its changelog view refuses delete files."""

    name = "Iceberg"
    prefix = "ice.db."

    def _create(self, name: str, columns: Sequence[str], key: Sequence[str], *, table: bool) -> None:
        modes = ", ".join(f"'write.{work}.mode' = 'merge-on-read'" for work in ("delete", "update", "merge"))
        self.spark.sql(
            f"""CREATE TABLE {name} ({self._columns(columns, key)}) USING iceberg
                TBLPROPERTIES ('format-version' = '3', 'write.merge.distribution-mode' = 'none', {modes})"""
        )
        self.spark.sql(f"ALTER TABLE {name} WRITE ORDERED BY {', '.join(key)}")

    def _fill(self, name: str, rows: DataFrame, key: Sequence[str]) -> None:
        rows.writeTo(name).append()

    def _merge_table(self, changes: Changes) -> tuple[DataFrame, DataFrame]:
        from pyspark.sql import functions as F

        rows = self.rows()
        if changes.rows:
            keys = [[row[name] for name in self.orders.key] for row in changes.rows]
            before = rows.where(matching(self.orders, keys))
        else:
            keys_of = F.broadcast(changes.frame.select(*self.orders.key))
            before = rows.join(keys_of, list(self.orders.key), "left_semi")
        # A cached DataFrame would be computed again after the MERGE.
        before = before.select(*self.orders.columns).localCheckpoint()
        self._merge(changes)
        return before, changes.frame.select(*self.orders.columns)

    def keep(self) -> None:
        self.spark.sql(f"ALTER TABLE {self.table} CREATE OR REPLACE TAG kept")

    def _changed(self) -> DataFrame:
        from pyspark.sql import functions as F

        key, columns = list(self.orders.key), self.orders.columns
        snapshot, number = self.position
        written = self.rows().where(f"_last_updated_sequence_number > {number}").select(*columns)
        old = self.spark.read.option("versionAsOf", snapshot).table(self.table)
        gone = old.select(*key).join(self.rows().select(*key), key, "left_anti")
        erased = gone.select(*(name if name in key else F.lit(None).alias(name) for name in columns))
        return written.withColumn(GONE, F.lit(False)).unionByName(erased.withColumn(GONE, F.lit(True)))

    def _note_position(self) -> None:
        log = self.spark.table(f"{self.table}.metadata_log_entries")
        row = log.orderBy(log.latest_sequence_number.desc()).first()
        assert row is not None
        self.position = (row["latest_snapshot_id"], row["latest_sequence_number"])
