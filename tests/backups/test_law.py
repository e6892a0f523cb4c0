"""The law of backups: a full backup and its increments, folded, are the state at the last one's step.

The test folds them with a plain dictionary, after random changes of the tables, for tables and indexes, and
again later.
"""

from __future__ import annotations

import shutil
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import (
    RuleBasedStateMachine,
    initialize,
    precondition,
    rule,
    run_state_machine_as_test,
)

from strandline import Database
from strandline.backups.record import BackupRecord, chain_to
from strandline.catalog.tables import TableInfo
from strandline.errors import PreconditionFailed
from strandline.model import OP, STEP, IndexDef, Key
from tests.backups import reading
from tests.backups.reading import (
    CLUSTER,
    State,
    backups,
    contents,
    leaks,
    open_at,
    projected,
    records,
    streams,
)
from tests.catalogs import ManualClock
from tests.effort import FACTOR
from tests.tables.examples import assert_sound, content

SMALL = {
    "merge_segments": 4,
    "compaction_share": 1.0,
    "inline_rows": 3,
    "compact_log_segments": 6,
    "shard_bytes": 1,
}
"""A few commits are enough for merges, files, compactions and several shards."""


@dataclass
class Shape:
    """A table of the test: its columns, its key, and the indexes it may get."""

    columns: tuple[tuple[str, str], ...]
    key: tuple[str, ...]
    indexes: tuple[IndexDef, ...]

    def create(self, path: str, indexes: set[str]) -> str:
        parts = [f"{name} {type_}" for name, type_ in self.columns]
        parts.append(f"PRIMARY KEY ({', '.join(self.key)})")
        parts += [f"INDEX {clause(i)}" for i in self.indexes if i.name in indexes]
        return f"CREATE TABLE `{path}` ({', '.join(parts)})"


def clause(index: IndexDef) -> str:
    cover = f" COVER ({', '.join(index.cover)})" if index.cover else ""
    return f"{index.name} {index.kind} ON ({', '.join(index.columns)}){cover}"


def sync(name: str, columns: str, cover: str = "") -> IndexDef:
    return IndexDef(name=name, kind="GLOBAL SYNC", columns=tuple(columns.split()), cover=tuple(cover.split()))


SHAPES = {
    "/a": Shape(
        (("k", "Int32"), ("v", "Utf8"), ("n", "Int32")),
        ("k",),
        (sync("i", "v", "n"), sync("j", "n"), sync("l", "n v")),
    ),
    "/dir/a": Shape(
        (("a", "Utf8"), ("b", "Int32"), ("n", "Int64")),
        ("a", "b"),
        (sync("i", "n"), sync("j", "b", "n"), sync("l", "b a")),
    ),
    "/b": Shape((("k", "Utf8"),), ("k",), (sync("i", "k"),)),
}
VALUES = {
    "Int32": st.integers(0, 4),
    "Int64": st.sampled_from([0, 1, 2**60]),
    "Utf8": st.sampled_from(["", "p", "q", "ü"]),
}
EXTRA = ("extra", "Int32")


@dataclass
class Table:
    """The expected content of a table: rows by key, as dictionaries."""

    columns: dict[str, str]
    indexes: set[str]
    rows: dict[Key, dict[str, Any]] = field(default_factory=dict)
    followed: bool = False
    """Whether the last backup's streams have recorded all its changes."""
    member: bool = True
    renamed: dict[str, str] = field(default_factory=dict)
    """Present names of the columns of its shape."""

    def name(self, column: str) -> str:
        return self.renamed.get(column, column)

    def index(self, index: IndexDef) -> IndexDef:
        """Return an index of its shape, with the present column names."""
        columns, cover = (tuple(map(self.name, group)) for group in (index.columns, index.cover))
        return replace(index, columns=columns, cover=cover)


class Backups(RuleBasedStateMachine):
    """Random changes of rows and descriptions, maintenance and backups of three tables."""

    template: Path
    in_repository = False

    def __init__(self) -> None:
        super().__init__()
        self.folder = Path(tempfile.mkdtemp(prefix="strandline-law-"))
        self.repository = self.folder / "repository"
        shutil.copytree(self.template, self.folder / "warehouse")
        self.clock = ManualClock()
        self.db: Database = open_at(self.folder / "warehouse", clock=self.clock, settings=SMALL)
        self.tables: dict[str, Table] = {}
        self.expected: dict[str, dict[str, State]] = {}
        self.names = {path: path for path in SHAPES}
        """Present names of the tables."""
        self.backed_up: dict[str, str] = {}
        """The reverse: shape names by the names in the last backup."""
        self.omit = False
        self.cut_off = False
        """Whether the last backup was dropped, so that the changes since the one before are not known."""

    @initialize(data=st.data())
    def create_tables(self, data: st.DataObject) -> None:
        for path, shape in SHAPES.items():
            names = [i.name for i in shape.indexes]
            self._create(path, data.draw(st.sets(st.sampled_from(names)), label=f"indexes of {path}"))
        members = ", ".join(f"TABLE `{path}`" for path in SHAPES)
        storage = CLUSTER.replace("cluster", str(self.repository)) if self.in_repository else CLUSTER
        self.db.sql(f"CREATE BACKUP COLLECTION c ({members}) {storage}")

    # -- rows
    # --------------------------------------------------------------------------------------------------------

    @rule(
        data=st.data(),
        path=st.sampled_from(list(SHAPES)),
        mode=st.sampled_from(["upsert", "upsert", "replace", "delete"]),
    )
    def write(self, data: st.DataObject, path: str, mode: str) -> None:
        self._write(data, path, mode)

    @rule(data=st.data(), paths=st.lists(st.sampled_from(list(SHAPES)), min_size=2, max_size=4))
    def write_in_a_transaction(self, data: st.DataObject, paths: list[str]) -> None:
        with self.db.transaction():
            for path in paths:
                self._write(data, path, data.draw(st.sampled_from(["upsert", "delete"])))

    @rule(path=st.sampled_from(list(SHAPES)))
    def delete_all(self, path: str) -> None:
        self.db.sql(f"DELETE FROM `{self.names[path]}`")
        self.tables[path].rows.clear()

    # -- descriptions
    # --------------------------------------------------------------------------------------------------------

    @rule(path=st.sampled_from(list(SHAPES)))
    def add_or_drop_a_column(self, path: str) -> None:
        table, (name, type_) = self.tables[path], EXTRA
        if name in table.columns:
            self.db.sql(f"ALTER TABLE `{self.names[path]}` DROP COLUMN {name}")
            del table.columns[name]
            for row in table.rows.values():
                del row[name]
        else:
            self.db.sql(f"ALTER TABLE `{self.names[path]}` ADD COLUMN {name} {type_}")
            table.columns[name] = type_
            for row in table.rows.values():
                row[name] = None

    @rule(data=st.data(), path=st.sampled_from(list(SHAPES)))
    def rename_a_column(self, data: st.DataObject, path: str) -> None:
        """Rename any column, also one of the key, also to a former name of another column."""
        table = self.tables[path]
        column = data.draw(st.sampled_from([name for name, _ in SHAPES[path].columns]), label="column")
        old, new = table.name(column), data.draw(st.sampled_from(["x", "y", column]), label="name")
        if new in table.columns:
            return
        self.db.sql(f"ALTER TABLE `{self.names[path]}` RENAME COLUMN {old} TO {new}")
        table.renamed[column] = new
        table.columns = {new if name == old else name: type_ for name, type_ in table.columns.items()}
        for key, row in table.rows.items():
            table.rows[key] = {new if name == old else name: value for name, value in row.items()}

    @rule(path=st.sampled_from(list(SHAPES)), number=st.integers(0, 2))
    def add_or_drop_an_index(self, path: str, number: int) -> None:
        indexes, there = SHAPES[path].indexes, self.tables[path].indexes
        index = indexes[number % len(indexes)]
        if index.name in there:
            self.db.sql(f"ALTER TABLE `{self.names[path]}` DROP INDEX {index.name}")
            there.remove(index.name)
        else:
            self.db.sql(
                f"ALTER TABLE `{self.names[path]}` ADD INDEX {clause(self.tables[path].index(index))}"
            )
            there.add(index.name)

    @rule(path=st.sampled_from(list(SHAPES)))
    def drop_and_create_again(self, path: str) -> None:
        self.db.sql(f"DROP TABLE `{self.names[path]}`")
        self._create(path, self.tables[path].indexes)

    @rule(path=st.sampled_from(list(SHAPES)), name=st.sampled_from(["/moved", "/dir/moved", None]))
    def rename(self, path: str, name: str | None) -> None:
        """Rename a table, also to a former name of another table."""
        new = name or path
        if new not in self.names.values():
            self.db.sql(f"ALTER TABLE `{self.names[path]}` RENAME TO `{new}`")
            self.names[path] = new

    @rule()
    def omit_indexes_or_not(self) -> None:
        self.omit = not self.omit
        self.db.sql(f"ALTER BACKUP COLLECTION c SET (OMIT_INDEXES = '{str(self.omit).lower()}')")

    @rule()
    def leave_or_join_the_collection(self) -> None:
        table = self.tables["/b"]
        self.db.sql(
            f"ALTER BACKUP COLLECTION c {'DROP' if table.member else 'ADD'} TABLE `{self.names['/b']}`"
        )
        table.member = not table.member

    # -- care
    # --------------------------------------------------------------------------------------------------------

    @rule(path=st.sampled_from(list(SHAPES)))
    def compact(self, path: str) -> None:
        self.db.compact(self.names[path])

    @rule()
    def maintain(self) -> None:
        self.db.maintain()

    @rule()
    def collect(self) -> None:
        self.clock.sleep(10_000)  # no reader is left
        self.db.collect()

    # -- backups
    # --------------------------------------------------------------------------------------------------------

    @rule()
    def full(self) -> None:
        self.db.sql("BACKUP c")
        self._note()

    @precondition(lambda self: self.expected)
    @rule()
    def incremental(self) -> None:
        self._incremental()

    @precondition(lambda self: self.expected)
    @rule(data=st.data(), path=st.sampled_from(list(SHAPES)))
    def incremental_after_a_change(self, data: st.DataObject, path: str) -> None:
        self._write(data, path, "upsert")
        self._incremental()

    @precondition(lambda self: self.expected)
    @rule(place=st.integers(0, 9))
    def drop_a_backup(self, place: int) -> None:
        """Drop a backup with all that build on it."""
        name = list(self.expected)[place % len(self.expected)]
        chains = {record.name: chain_to(records(self.db), record.name) for record in records(self.db)}
        gone = [n for n, chain in chains.items() if any(record.name == name for record in chain)]
        self.db.sql(f"DROP BACKUP c '{name}' CONFIRM")
        self._forget(gone)

    @precondition(lambda self: self.expected)
    @rule(number=st.integers(1, 2))
    def prune(self, number: int) -> None:
        full = [record.name for record in records(self.db) if record.kind == "full"]
        self.db.sql(f"PRUNE c KEEP LAST {number} FULL CONFIRM")
        self._forget([name for name in self.expected if full and name < full[-number:][0]])

    def _forget(self, gone: list[str]) -> None:
        self.cut_off = self.cut_off or list(self.expected)[-1] in gone
        for name in gone:
            del self.expected[name]
        assert backups(self.db) == list(self.expected)

    @precondition(lambda self: self.expected)
    @rule(data=st.data())
    def compact_backups(self, data: st.DataObject) -> None:
        name = data.draw(st.sampled_from(sorted(self.expected)), label="backup")
        self.db.sql(f"COMPACT c TO '{name}'")
        assert [record.kind for record in records(self.db) if record.name == name] == ["full"]
        assert {each: contents(self.db, each) for each in self.expected} == self.expected
        assert_links_fit(self.db)

    @precondition(lambda self: self.expected)
    @rule(data=st.data())
    def merge_increments(self, data: st.DataObject) -> None:
        name = data.draw(st.sampled_from(sorted(self.expected)), label="backup")
        pinned = data.draw(st.sampled_from(sorted(self.expected)), label="pinned")
        self.db.sql(f"PIN BACKUP c '{pinned}'; COMPACT c INCREMENTS TO '{name}'; UNPIN BACKUP c '{pinned}'")
        left = backups(self.db)
        assert {name, pinned, *(r.name for r in records(self.db) if r.kind == "full")} <= set(left)
        assert set(left) <= set(self.expected)
        chain = chain_to(records(self.db), name)[1:]
        for one, next_ in pairwise(chain):
            dropped = any(s.delta is None for record in (one, next_) for s in record.slices)
            assert one.name == pinned or dropped, "no neighbours are left that could be one"
        self.expected = {each: self.expected[each] for each in left}
        assert {each: contents(self.db, each) for each in left} == self.expected
        assert_links_fit(self.db)

    def _incremental(self) -> None:
        # A table that the last backup does not hold is taken whole.
        followed = all(t.followed or self._is_new(path) for path, t in self.tables.items() if t.member)
        if followed and not self.cut_off:
            self.db.sql("BACKUP c INCREMENTAL")
            self._note()
            return
        before = (backups(self.db), streams(self.db, self.names["/a"]), self.db.step)
        with pytest.raises(PreconditionFailed, match="full backup"):
            self.db.sql("BACKUP c INCREMENTAL")
        assert (backups(self.db), streams(self.db, self.names["/a"]), self.db.step) == before

    def _is_new(self, path: str) -> bool:
        """Return True if the last backup does not have this table, under any name."""
        then = self.backed_up.get(self.names[path])
        return then is None or (self.tables[then].followed and self.tables[then].member)

    # -- what is true
    # --------------------------------------------------------------------------------------------------------

    def _note(self) -> None:
        name = backups(self.db)[-1]
        assert name not in self.expected
        self.cut_off = False
        for table in self.tables.values():
            table.followed = table.member
        self.backed_up = {self.names[path]: path for path, table in self.tables.items() if table.member}
        self.expected[name] = self._states()
        assert contents(self.db, name) == self.expected[name]
        assert_links_fit(self.db)
        for logical, table in self.tables.items():
            path = self.names[logical]
            assert len(streams(self.db, path)) == table.member
            for index in table.indexes:
                followed = table.member and not self.omit
                assert len(streams(self.db, f"{path}/{index}/indexImplTable")) == followed

    def _states(self) -> dict[str, State]:
        found: dict[str, State] = {}
        for logical, table in self.tables.items():
            if not table.member:
                continue
            shape, path = SHAPES[logical], self.names[logical]
            state = {key: tuple(row[n] for n in table.columns) for key, row in table.rows.items()}
            found[path] = state
            if not self.omit:
                schema = schema_of(self.db, path)
                found |= {
                    f"{path}/{i.name}": projected(schema, state, table.index(i))
                    for i in shape.indexes
                    if i.name in table.indexes
                }
        return found

    def teardown(self) -> None:
        try:
            self.collect()
            for name, states in self.expected.items():
                assert contents(self.db, name) == states, name
            assert self.db.verify("c") == []
            for path in self.names.values():
                assert_sound(self.db, path)
            assert leaks(self.db) == []
            if self.in_repository and self.expected:
                self._attach_elsewhere()
        finally:
            self.db.close()
            shutil.rmtree(self.folder, ignore_errors=True)

    def _attach_elsewhere(self) -> None:
        """Attach the repository to an empty warehouse, and compare all backups."""
        assert not any(record.stored is None for record in records(self.db))
        with open_at(self.folder / "another", clock=ManualClock(), settings=SMALL) as other:
            other.sql(f"ATTACH BACKUP COLLECTION c FROM '{self.repository}'")
            for name, states in self.expected.items():
                assert contents(other, name) == states, name
            assert other.verify("c") == []
            other.sql("RESTORE c")
            last = self.expected[max(self.expected)]
            for path in records(other)[-1].tables:
                assert_sound(other, path)
                assert sorted(content(other, path), key=repr) == sorted(last[path].values(), key=repr)
            assert leaks(other) == []

    # -- doing it
    # --------------------------------------------------------------------------------------------------------

    def _create(self, path: str, indexes: set[str]) -> None:
        self.db.sql(SHAPES[path].create(self.names[path], indexes))
        before = self.tables.get(path)
        self.tables[path] = Table(dict(SHAPES[path].columns), set(indexes))
        if before is not None:
            self.tables[path].member = before.member

    def _write(self, data: st.DataObject, path: str, mode: str) -> None:
        table = self.tables[path]
        parts = [table.name(column) for column in SHAPES[path].key]
        key = st.tuples(*(st.none() | VALUES[table.columns[n]] for n in parts))
        keys = data.draw(st.lists(key, min_size=1, max_size=5), label="keys")
        if mode == "delete":
            self.db.table(self.names[path]).delete(keys)
            for k in keys:
                table.rows.pop(k, None)
            return
        others = [n for n in table.columns if n not in parts]
        rows = []
        for k in keys:
            named = data.draw(st.sets(st.sampled_from(others)) if others else st.just(set()), label="columns")
            values = {n: data.draw(st.none() | VALUES[table.columns[n]], label=n) for n in sorted(named)}
            rows.append({**dict(zip(parts, k, strict=True)), **values})
        getattr(self.db.table(self.names[path]), mode)(rows)
        for k, row in zip(keys, rows, strict=True):
            old = table.rows.get(k, {}) if mode == "upsert" else {}
            table.rows[k] = {**dict.fromkeys(table.columns), **old, **row}


def schema_of(db: Database, path: str) -> Any:
    from strandline.catalog import paths

    with db._runtime.catalog.read() as conn:
        return TableInfo.of(paths.require(conn, path, "table")).schema


def assert_links_fit(db: Database) -> None:
    """Assert that increments do not overlap and have no gap.

    Each one begins where its parent ends, and holds only later steps.
    """
    known = records(db)
    for record in known[1:]:
        if record.kind == "incremental":
            parent = next(r for r in known if r.name == record.parent)
            assert record.after_step == parent.step <= record.step
            for step in steps_in(db, record):
                assert parent.step < step <= record.step


def steps_in(db: Database, record: BackupRecord) -> Iterator[int]:
    for table in record.tables.values():
        if table.slice.whole:
            continue  # It was not followed before: its rows may be older than the parent.
        for step, op, _ in reading._rows(db, record, table.slice, table.schema):
            assert op in ("U", "R", "E"), (OP, STEP)
            yield step


@contextmanager
def template() -> Iterator[Path]:
    """Yield the folder of an empty warehouse to copy: creating one takes longer than a test run."""
    with tempfile.TemporaryDirectory() as folder:
        open_at(Path(folder), clock=ManualClock()).close()
        yield Path(folder)


class InRepository(Backups):
    """The same test with the backups in a repository."""

    in_repository = True


@pytest.mark.slow
@pytest.mark.parametrize("machine", [Backups, InRepository])
def test_every_backup_is_the_state_at_its_step(machine: type[Backups]) -> None:
    with template() as folder:
        machine.template = folder
        chosen = settings(
            max_examples=(6 if machine is Backups else 3) * max(1, FACTOR),
            derandomize=not FACTOR,
            stateful_step_count=30,
            deadline=None,
            suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large],
        )
        run_state_machine_as_test(machine, settings=chosen)
