"""The law: each backup brings back exactly what existed when it was taken.

A script of random changes runs against a collection: rows are written, replaced, deleted and written again;
columns and indexes are added, dropped and added again under the same name; compaction, collection, full and
incremental backups, also empty ones. A plain dictionary knows what the tables must hold.
"""

from __future__ import annotations

import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeAlias

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from strandline.api.database import Database
from tests.backups.restore.story import open_at
from tests.effort import FACTOR

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

EXAMPLES = 12 * max(1, FACTOR)
MAX_BACKUPS = 9
TYPES = {"Int64": lambda n: n, "Utf8": lambda n: None if n is None else f"s{n}"}

Step: TypeAlias = tuple[Any, ...]
Key: TypeAlias = tuple[Any, Any]


@dataclass
class Model:
    """Expected content of ``t``, with its present columns and indexes. The columns of ``u`` never change."""

    columns: dict[str, str] = field(default_factory=lambda: {"v": "Int64", "w": "Utf8"})
    indexes: dict[str, tuple[tuple[str, ...], tuple[str, ...]]] = field(
        default_factory=lambda: {"i": (("v",), ("w",))}
    )
    rows: dict[Key, dict[str, Any]] = field(default_factory=dict)
    others: dict[int, int] = field(default_factory=dict)

    def used(self, column: str) -> bool:
        return any(column in (*on, *cover) for on, cover in self.indexes.values())

    def images(self, columns: list[str], numbers: dict[Key, int | None]) -> dict[Key, dict[str, Any]]:
        """Return values for the present columns, of their present types."""
        there = [name for name in columns if name in self.columns]
        return {
            key: {name: TYPES[self.columns[name]](number) for name in there}
            for key, number in numbers.items()
        }


KEYS = st.tuples(st.sampled_from([None, "a", "m", "z"]), st.sampled_from([None, 0, 1, 2]))
NUMBERS = st.dictionaries(KEYS, st.none() | st.integers(0, 3), max_size=6)
COLUMNS = st.lists(st.sampled_from(["v", "w", "x", "y"]), unique=True)
INDEXES = [
    (("v",), ()),
    (("v",), ("w",)),
    (("w", "v"), ()),
    (("b", "w"), ("v",)),
    (("x",), ("v",)),
    (("v",), ("x", "y")),
]
CHANGES = st.one_of(
    st.tuples(st.just("upsert"), COLUMNS, NUMBERS),
    st.tuples(st.just("upsert"), COLUMNS, NUMBERS),
    st.tuples(st.just("replace"), COLUMNS, NUMBERS),
    st.tuples(st.just("delete"), st.lists(KEYS, max_size=5, unique=True)),
    st.tuples(st.just("delete where"), st.integers(0, 3)),
    st.tuples(st.just("delete and insert"), KEYS, st.integers(0, 3)),
    st.tuples(st.just("other"), st.dictionaries(st.integers(0, 5), st.integers(0, 5), max_size=4)),
)
SHAPES = st.one_of(
    st.tuples(st.just("add column"), st.sampled_from(["w", "x", "y"]), st.sampled_from(sorted(TYPES))),
    st.tuples(st.just("drop column"), st.sampled_from(["w", "x", "y"])),
    st.tuples(st.just("add index"), st.sampled_from("ij"), st.sampled_from(INDEXES)),
    st.tuples(st.just("drop index"), st.sampled_from("ij")),
)
CARE = st.sampled_from([("compact", "/t"), ("compact", "/dir/u"), ("collect",), ("maintain",)])
BACKUPS = st.sampled_from([("incremental",)] * 5 + [("full",)])
SCRIPTS = st.lists(st.one_of(CHANGES, CHANGES, SHAPES, CARE, BACKUPS), min_size=4, max_size=45)


def run(db: Database, model: Model, step: Step) -> None:
    """Apply a step to the database and to the model. Skip it if it is not possible now."""
    table = db.table("t")
    match step:
        case ("upsert" | "replace" as how, columns, numbers):
            images = model.images(columns, numbers)
            if images:
                rows = [{"a": a, "b": b, **image} for (a, b), image in images.items()]
                table.upsert(rows) if how == "upsert" else table.replace(rows)
            for key, image in images.items():
                old = model.rows.get(key, {}) if how == "upsert" else {}
                model.rows[key] = {**dict.fromkeys(model.columns), **old, **image}
        case ("delete", keys):
            if keys:
                table.delete(keys)
            for key in keys:
                model.rows.pop(key, None)
        case ("delete where", number):
            db.sql(f"DELETE FROM t WHERE v = {number}")
            model.rows = {key: row for key, row in model.rows.items() if row["v"] != number}
        case ("delete and insert", key, number):
            with db.transaction():
                table.delete([key])
                table.upsert([{"a": key[0], "b": key[1], "v": number}])
            model.rows[key] = {**dict.fromkeys(model.columns), "v": number}
        case ("other", pairs):
            if pairs:
                db.table("dir/u").upsert([{"k": k, "n": n} for k, n in pairs.items()])
            model.others.update(pairs)
        case ("add column", name, type_) if name not in model.columns:
            db.sql(f"ALTER TABLE t ADD COLUMN {name} {type_}")
            model.columns[name] = type_
            for row in model.rows.values():
                row[name] = None
        case ("drop column", name) if name in model.columns and not model.used(name):
            db.sql(f"ALTER TABLE t DROP COLUMN {name}")
            del model.columns[name]
            for row in model.rows.values():
                del row[name]
        case ("add index", name, (on, cover)) if name not in model.indexes and {*on, *cover} <= {
            *model.columns,
            "b",
        }:
            covered = f" COVER ({', '.join(cover)})" if cover else ""
            db.sql(f"ALTER TABLE t ADD INDEX {name} GLOBAL ON ({', '.join(on)}){covered}")
            model.indexes[name] = on, cover
        case ("drop index", name) if name in model.indexes:
            db.sql(f"ALTER TABLE t DROP INDEX {name}")
            del model.indexes[name]
        case ("compact", path):
            db.compact(path)
        case ("collect",):
            db.collect()
        case ("maintain",):
            db.maintain()


def rows_of(db: Database, what: str) -> list[tuple[tuple[str, Any], ...]]:
    result = db.sql(f"SELECT * FROM {what}")
    return sorted((tuple(sorted(zip(result.columns, row, strict=True))) for row in result.rows()), key=repr)


def recorded(db: Database, prefix: str = "") -> dict[str, Any]:
    """Return rows, digests and description of both tables and of every index."""
    found: dict[str, Any] = {}
    for table in ("/t", "/dir/u"):
        described = db.describe(prefix + table)
        found[table] = (
            described["rows"],
            described["digest"],
            described["columns"],
            rows_of(db, f"`{prefix}{table}`"),
        )
        for index in described["indexes"]:
            at = f"{table}/{index['name']}"
            impl = db.describe(f"{prefix}{at}/indexImplTable")
            assert index["version"] == impl["version"] == db.describe(prefix + at)["version"]
            definition = index["kind"], index["columns"], index["cover"]
            found[at] = (
                impl["rows"],
                impl["digest"],
                definition,
                rows_of(db, f"`{prefix}{at}/indexImplTable`"),
            )
    return found


def agrees(model: Model, found: dict[str, Any]) -> None:
    """Assert that the tables hold what the model holds, and that each index fits its table."""
    wanted = [tuple(sorted({"a": a, "b": b, **row}.items())) for (a, b), row in model.rows.items()]
    assert found["/t"][3] == sorted(wanted, key=repr)
    assert found["/dir/u"][3] == sorted(
        (tuple(sorted({"k": k, "n": n}.items())) for k, n in model.others.items()), key=repr
    )
    assert {f"/t/{name}" for name in model.indexes} == {path for path in found if path.startswith("/t/")}
    for name, (on, cover) in model.indexes.items():
        there = {*on, *cover, "a", "b"}
        entries = [tuple((n, v) for n, v in row if n in there) for row in found["/t"][3]]
        assert found[f"/t/{name}"][3] == sorted(entries, key=repr)


@contextmanager
def a_collection() -> Iterator[tuple[Path, Database]]:
    with (
        tempfile.TemporaryDirectory() as folder,
        open_at(Path(folder), merge_segments=5, compaction_share=1.0) as db,
    ):
        db.sql(
            """CREATE TABLE t (a Utf8, b Int32, v Int64, w Utf8, PRIMARY KEY (a, b), INDEX i GLOBAL SYNC ON (v) COVER (w))
                   WITH (PARTITION_AT_KEYS = ('b', 'n'));
               CREATE TABLE `dir/u` (k Int32 NOT NULL, n Int32, PRIMARY KEY (k));
               CREATE BACKUP COLLECTION c (TABLE t, TABLE `dir/u`) WITH (STORAGE = 'cluster', INCREMENTAL_BACKUP_ENABLED = 'true')"""
        )
        yield Path(folder), db


def tell(
    db: Database, backing_up: Database, script: list[Step], max_backups: int = MAX_BACKUPS
) -> dict[str, dict[str, Any]]:
    """Run a script, and return each backup with the content of the database at that time.

    A backup is added at the end.
    """
    model = Model()
    taken: dict[str, dict[str, Any]] = {}
    for step in [*script, ("incremental",)]:
        if step[0] not in ("full", "incremental"):
            run(db, model, step)
        elif len(taken) < max_backups:
            backing_up.sql("BACKUP c" if step[0] == "full" or not taken else "BACKUP c INCREMENTAL")
            name = db.ls("/.backups/collections/c")[-1].name
            taken[name] = recorded(db)
            agrees(model, taken[name])
    db.collect()
    return taken


def comes_back(db: Database, taken: dict[str, dict[str, Any]], settings_: str = "") -> None:
    for number, (backup, wanted) in enumerate(taken.items()):
        db.sql(f"RESTORE c AT '{backup}' INTO 'r{number}'{settings_}")
        assert recorded(db, f"/r{number}") == wanted
        for table in ("/t", "/dir/u"):
            assert db.check(f"/r{number}{table}").problems == []
            assert rows_of(db, f"`{table}` IN BACKUP c AT '{backup}'") == wanted[table][3]
        for index in (path for path in wanted if path.startswith("/t/")):
            first = wanted[index][2][1][0]
            for value in {dict(row)[first] for row in wanted[index][3]} - {None}:
                literal = f"'{value}'" if isinstance(value, str) else value
                seen = rows_of(db, f"t VIEW {index[3:]} IN BACKUP c AT '{backup}' WHERE {first} = {literal}")
                assert seen == [row for row in wanted["/t"][3] if dict(row)[first] == value]
    assert db.verify("c") == []


@pytest.mark.slow
@settings(
    max_examples=EXAMPLES,
    deadline=None,
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large],
)
@given(SCRIPTS)
def test_every_backup_brings_back_what_was_there(script: list[Step]) -> None:
    with a_collection() as (_, db):
        comes_back(db, tell(db, db, script))


@pytest.mark.slow
@settings(
    max_examples=max(2, EXAMPLES // 4),
    deadline=None,
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large],
)
@given(SCRIPTS)
def test_copies_bring_back_the_same(script: list[Step]) -> None:
    with a_collection() as (_, db):
        comes_back(db, tell(db, db, script, 5), " WITH (MODE = 'copy', VERIFY = 'data')")


SPARKLING: list[Step] = [
    ("upsert", ["v", "w"], {("a", 0): 1, ("m", None): 2, (None, None): None, ("z", 2): 3}),
    ("full",),
    ("replace", ["v"], {("a", 0): 2, ("a", 1): 0}),
    ("delete", [("m", None), ("m", 2)]),
    ("add column", "x", "Utf8"),
    ("upsert", ["x"], {("z", 2): 1, ("a", 1): 2}),
    ("add index", "j", (("x",), ("v",))),
    ("incremental",),
    ("drop index", "i"),
    ("delete and insert", ("a", 0), 3),
    ("drop column", "w"),
    ("add column", "w", "Int64"),
    ("upsert", ["w"], {("z", 2): 2}),
    ("add index", "i", (("w", "v"), ())),
    ("collect",),
]
"""Steps of each kind."""


def test_the_spark_way_brings_back_the_same(spark: SparkSession) -> None:
    """Restore and verify on Spark; write and compare rows in the process."""
    with a_collection() as (folder, db), open_at(folder, bulk_rows=0, scan_rows=0) as other:
        other._runtime._spark = spark
        taken = tell(db, other, SPARKLING)
        assert len(taken) == 3
        comes_back(db, taken)
        other.sql("RESTORE c INTO 'verified' WITH (VERIFY = 'data')")
        assert recorded(db, "/verified") == list(taken.values())[-1]
