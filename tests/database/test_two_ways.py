"""Two ways, one result: the same random schemas, DDL and DML in the process, on Spark and on a plain dict; tables, indexes and digests are
compared after every step.

STRANDLINE_EXAMPLES=n makes it look n times as long."""

from __future__ import annotations

import contextlib
import os
import shutil
import tempfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, ClassVar

import pyarrow as pa
import pytest
from hypothesis import HealthCheck, Phase, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule, run_state_machine_as_test

import strandline
from strandline import Database, Settings
from strandline.database.snapshot import Snapshot
from strandline.errors import StrandlineError
from strandline.model import IndexDef, Key, TableSchema
from strandline.storage import chain as fold
from strandline.types import Type, column_to_python, parse_type, python_to_array
from tests.database.examples import ARROW, SPARK, QuickFiles
from tests.values import values_of

LONGER = int(os.environ.get("STRANDLINE_EXAMPLES", "1"))
KEY_TYPES = ("Int64", "Uint64", "Utf8", "String", "Decimal(22,9)", "Date", "Timestamp", "Bool", "Uint8")
VALUE_TYPES = ("Int32", "Uint64", "Utf8", "Double", "Decimal(38,38)", "Json", "Datetime", "String", "Bool")
NAMES = ("v", "`odd` name", "ünï", "SELECT", "n'")


def cells(type_: Type) -> st.SearchStrategy[Any]:
    """Few different values, so that keys meet, among them NULL, the empty and the extreme."""
    return st.none() | values_of(type_)


@dataclass
class Model:
    """A table as a dict from keys to rows, and what its indexes must then hold."""

    table: TableSchema
    indexes: dict[str, IndexDef] = field(default_factory=dict)
    rows: dict[Key, dict[str, Any]] = field(default_factory=dict)

    def key_of(self, row: Mapping[str, Any]) -> Key:
        return tuple(row[name] for name in self.table.key)

    def write(self, mode: str, rows: Sequence[Mapping[str, Any]]) -> None:
        after = dict(self.rows)
        for row in rows:
            key = self.key_of(row)
            if mode == "INSERT" and key in after:
                raise _Refused
            kept = after.get(key) if mode == "UPSERT" else None
            after[key] = {name: row.get(name, (kept or {}).get(name)) for name in self.table.names}
        self.rows = after

    def entries(self, index: IndexDef) -> set[tuple[Any, ...]]:
        names = index.impl_schema(self.table).names
        return {tuple(_plain(row[name]) for name in names) for row in self.rows.values()}


class _Refused(Exception):
    """What the model would not do."""


def _plain(value: Any) -> Any:
    """NaN equals NaN, and both zeros are one."""
    if isinstance(value, float):
        return "NaN" if value != value else value + 0.0
    return value


def quoted(name: str) -> str:
    return "`" + name.replace("`", "``") + "`"


class Ways(RuleBasedStateMachine):
    """One table, some databases that must all agree with the model."""

    spark: ClassVar[Any] = None
    ways: ClassVar[tuple[Settings, ...]] = (ARROW,)

    def __init__(self) -> None:
        super().__init__()
        self.folder = tempfile.mkdtemp(prefix="strandline-ways-")
        self.databases = [self._open(n, chosen) for n, chosen in enumerate(self.ways)]

    def _open(self, number: int, chosen: Settings) -> Database:
        path = os.path.join(self.folder, str(number))
        return strandline.connect(path, settings=chosen, files=QuickFiles(path), spark=self.spark)

    @initialize(data=st.data())
    def create(self, data: st.DataObject) -> None:
        keys = data.draw(st.lists(st.sampled_from(KEY_TYPES), min_size=1, max_size=2), label="key types")
        values = data.draw(st.lists(st.sampled_from(VALUE_TYPES), min_size=1, max_size=3), label="value types")
        columns = [(f"k{i}", parse_type(name), False) for i, name in enumerate(keys)]
        columns += [(NAMES[i], parse_type(name), False) for i, name in enumerate(values)]
        self.model = Model(TableSchema.of(columns, tuple(name for name, _, _ in columns[: len(keys)])))
        parts = [f"{quoted(name)} {type_.name}" for name, type_, _ in columns]
        for number in range(data.draw(st.integers(0, 2), label="indexes")):
            index = self._draw_index(data, f"i{number}")
            if index is not None:
                self.model.indexes[index.name] = index
                parts.append(_index_clause(index))
        key = ", ".join(quoted(name) for name in self.model.table.key)
        self._everywhere(lambda db: db.sql(f"CREATE TABLE t ({', '.join(parts)}, PRIMARY KEY ({key}))"))

    @rule(data=st.data(), mode=st.sampled_from(("UPSERT", "UPSERT", "REPLACE", "INSERT")))
    def write(self, data: st.DataObject, mode: str) -> None:
        rows = self._draw_rows(data)
        self._both(lambda db: self._write(db, mode, rows), lambda: self.model.write(mode, rows))

    @rule(data=st.data())
    def delete(self, data: st.DataObject) -> None:
        keys = [self.model.key_of(row) for row in self._draw_rows(data)]
        if self.model.rows and data.draw(st.booleans(), label="one that is there"):
            keys.append(data.draw(st.sampled_from(sorted(self.model.rows, key=repr)), label="key"))
        arrays = [python_to_array(c.type, [key[i] for key in keys]) for i, c in enumerate(self.model.table.key_columns)]
        self._everywhere(lambda db: db.table("t").delete(pa.table(arrays, list(self.model.table.key))))
        for key in keys:
            self.model.rows.pop(key, None)

    @precondition(lambda self: self.model.rows)
    @rule(data=st.data())
    def update_where_null(self, data: st.DataObject) -> None:
        column = data.draw(st.sampled_from(self.model.table.value_columns), label="column")
        self._everywhere(lambda db: db.sql(f"UPDATE t SET {quoted(column.name)} = NULL WHERE {quoted(self.model.table.key[0])} IS NULL"))
        for key, row in self.model.rows.items():
            if key[0] is None:
                row[column.name] = None

    @rule()
    def delete_where_null(self) -> None:
        self._everywhere(lambda db: db.sql(f"DELETE FROM t WHERE {quoted(self.model.table.key[-1])} IS NULL"))
        self.model.rows = {key: row for key, row in self.model.rows.items() if key[-1] is not None}

    @precondition(lambda self: len(self.model.table.value_columns) < len(NAMES))
    @rule(type_name=st.sampled_from(VALUE_TYPES))
    def add_column(self, type_name: str) -> None:
        name = next(n for n in NAMES if n not in self.model.table)
        self._everywhere(lambda db: db.sql(f"ALTER TABLE t ADD COLUMN {quoted(name)} {type_name}"))
        self.model.table = self.model.table.with_column(name, parse_type(type_name))
        for row in self.model.rows.values():
            row[name] = None

    @rule(data=st.data())
    def drop_column(self, data: st.DataObject) -> None:
        used = {name for index in self.model.indexes.values() for name in (*index.columns, *index.cover)}
        free = [c.name for c in self.model.table.value_columns if c.name not in used]
        if len(self.model.table.value_columns) < 2 or not free:
            return
        name = data.draw(st.sampled_from(free), label="column")
        self._everywhere(lambda db: db.sql(f"ALTER TABLE t DROP COLUMN {quoted(name)}"))
        self.model.table = self.model.table.without_column(name)
        for row in self.model.rows.values():
            del row[name]

    @precondition(lambda self: len(self.model.indexes) < 3)
    @rule(data=st.data())
    def add_index(self, data: st.DataObject) -> None:
        name = next(n for n in ("i0", "i1", "i2") if n not in self.model.indexes)
        index = self._draw_index(data, name)
        if index is not None:
            self._everywhere(lambda db: db.sql(f"ALTER TABLE t ADD {_index_clause(index)}"))
            self.model.indexes[name] = index

    @precondition(lambda self: self.model.indexes)
    @rule(data=st.data())
    def drop_index(self, data: st.DataObject) -> None:
        name = data.draw(st.sampled_from(sorted(self.model.indexes)), label="index")
        self._everywhere(lambda db: db.sql(f"ALTER TABLE t DROP INDEX {name}"))
        del self.model.indexes[name]

    @rule()
    def compact(self) -> None:
        self._everywhere(lambda db: db.compact("t"))

    @invariant()
    def all_agree(self) -> None:
        if not hasattr(self, "model"):
            return
        expected = {tuple(_plain(row[n]) for n in self.model.table.names) for row in self.model.rows.values()}
        digests = set()
        for db in self.databases:
            view = Snapshot(db.context).table("/t")
            assert view.info.schema.names == self.model.table.names
            assert _contents(db, "/t") == expected
            assert {ref.definition for ref in view.info.indexes} == set(self.model.indexes.values())
            for index in self.model.indexes.values():
                assert _contents(db, f"/t/{index.name}/indexImplTable") == self.model.entries(index)
            described = [db.describe("/t"), *(db.describe(f"/t/{i}/indexImplTable") for i in sorted(self.model.indexes))]
            assert described[0]["rows"] == len(expected)
            digests.add(tuple(d["digest"] for d in described))
        assert len(digests) == 1, "the ways do not agree about the digests"

    def teardown(self) -> None:
        for db in self.databases:
            if hasattr(self, "model"):
                assert db.check("/t").problems == []
            db.close()
        shutil.rmtree(self.folder)

    def _write(self, db: Database, mode: str, rows: Sequence[Mapping[str, Any]]) -> None:
        names = list(rows[0])
        arrays = [python_to_array(self.model.table[n].type, [row[n] for row in rows]) for n in names]
        getattr(db.table("t"), mode.lower())(pa.table(arrays, names))

    def _draw_rows(self, data: st.DataObject) -> list[dict[str, Any]]:
        """Rows that all name the same columns; some keys are those of rows that are there, some come twice."""
        table = self.model.table
        named = data.draw(st.lists(st.sampled_from(table.value_columns), unique=True), label="columns")
        columns = [*table.key_columns, *named]
        fresh = st.fixed_dictionaries({c.name: cells(c.type) for c in columns})
        rows = data.draw(st.lists(fresh, min_size=1, max_size=4), label="rows")
        if self.model.rows and data.draw(st.booleans(), label="again"):
            key = data.draw(st.sampled_from(sorted(self.model.rows, key=repr)), label="key")
            rows.append({**rows[0], **dict(zip(table.key, key, strict=True))})
        if data.draw(st.booleans(), label="twice"):
            rows.append({**rows[-1], **{n: rows[0][n] for n in table.key}})
        return rows

    def _draw_index(self, data: st.DataObject, name: str) -> IndexDef | None:
        table = self.model.table
        able = [c.name for c in table.columns if c.type.orderable]
        columns = data.draw(st.lists(st.sampled_from(able), min_size=1, max_size=2, unique=True), label="index columns")
        rest = [c.name for c in table.value_columns if c.name not in columns]
        cover = data.draw(st.lists(st.sampled_from(rest), max_size=2, unique=True), label="cover") if rest else []
        return IndexDef(name, "GLOBAL SYNC", tuple(columns), tuple(cover))

    def _everywhere(self, act: Callable[[Database], Any]) -> None:
        for db in self.databases:
            act(db)

    def _both(self, act: Callable[[Database], Any], model: Callable[[], None]) -> None:
        """Done everywhere, or refused everywhere."""
        try:
            model()
        except _Refused:
            for db in self.databases:
                with pytest.raises(StrandlineError) as refused:
                    act(db)
                assert refused.value.code == "PRECONDITION_FAILED"
        else:
            self._everywhere(act)


def _index_clause(index: IndexDef) -> str:
    cover = f" COVER ({', '.join(map(quoted, index.cover))})" if index.cover else ""
    return f"INDEX {index.name} GLOBAL SYNC ON ({', '.join(map(quoted, index.columns))}){cover}"


def _contents(db: Database, path: str) -> set[tuple[Any, ...]]:
    view = Snapshot(db.context).table(path)
    table = view.info.schema
    rows = fold.scan(db.context.files, table, view.chain)
    columns = [[_plain(v) for v in column_to_python(c.type, rows[c.name])] for c in table.columns]
    found = list(zip(*columns, strict=True))
    assert len(found) == len(set(found)), "a row is there twice"
    return set(found)


def _look(machine: type[Ways], examples: int, steps: int) -> None:
    chosen = settings(
        max_examples=examples * LONGER,
        stateful_step_count=steps,
        deadline=None,
        derandomize=LONGER == 1,
        suppress_health_check=list(HealthCheck),
        # A program is a handful of statements: short enough to read as it is found, and shrinking takes minutes.
        phases=(Phase.explicit, Phase.reuse, Phase.generate),
    )
    run_state_machine_as_test(machine, settings=chosen)  # type: ignore[no-untyped-call]


@contextlib.contextmanager
def using(session: Any) -> Iterator[None]:
    Ways.spark = session
    try:
        yield
    finally:
        Ways.spark = None


def test_in_the_process() -> None:
    _look(Ways, examples=40, steps=15)


def test_in_the_process_and_on_spark(spark: Any) -> None:
    class Both(Ways):
        ways = (ARROW, SPARK)

    with using(spark):
        _look(Both, examples=3, steps=8)


@pytest.mark.parametrize("way", [ARROW, SPARK], ids=["in the process", "on Spark"])
def test_a_select_that_changes_keys(tmp_path: Any, spark: Any, way: Settings) -> None:
    with strandline.connect(tmp_path / "w", settings=way, spark=spark) as db:
        db.sql("CREATE TABLE t (k Int64, s Utf8, n Int32, PRIMARY KEY (k), INDEX by_n GLOBAL SYNC ON (n) COVER (s))")
        db.sql("UPSERT INTO t (k, s, n) VALUES (1, 'a', 10), (2, '', 20), (NULL, 'none', NULL), (4, NULL, 10)")
        db.sql("UPSERT INTO t (k, n) SELECT k + 1, n + 1 FROM t")
        expected = {(1, "a", 10), (2, "", 11), (None, "none", None), (3, None, 21), (4, None, 10), (5, None, 11)}
        assert _contents(db, "/t") == expected
        assert _contents(db, "/t/by_n/indexImplTable") == {(n, k, s) for k, s, n in expected}
        db.sql("REPLACE INTO t (k, s) SELECT 7, s FROM t WHERE s IS NOT NULL ORDER BY s LIMIT 1")
        assert (7, "", None) in _contents(db, "/t")
        assert db.check("/t").ok
