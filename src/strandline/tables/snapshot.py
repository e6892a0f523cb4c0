"""Read tables with their descriptions and indexes from a snapshot: the state of all tables at one step."""

from __future__ import annotations

import itertools
from collections.abc import Collection, Iterable
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, ClassVar, TypeAlias

from strandline.catalog import commits
from strandline.catalog.definitions import TableDefinition
from strandline.catalog.paths import READY
from strandline.catalog.snapshots import Moment, Named, TableAt, impl_path
from strandline.catalog.tables import IndexRef, TableInfo
from strandline.errors import InvalidArgument
from strandline.model import BEGINNING, Chain, Key, Segment, State, TableSchema, cover, visible
from strandline.runtime import Runtime

if TYPE_CHECKING:
    import pyarrow as pa

    from strandline.sql.references import TableRef

Keys: TypeAlias = "Collection[Key] | pa.Table"
"""Keys as tuples, or as an Arrow table with the key columns."""


@dataclass(frozen=True)
class TableView:
    """A table at a step: its description, and the chain that folds to its rows.

    Attributes:
        info: the description.
        chain: the chain.
        increment: whether the table is an incremental backup. It has changes and tombstones instead of rows.
    """

    info: TableInfo
    chain: Chain
    increment: bool = False

    @property
    def state(self) -> State:
        """The rows of the table as a state for the store."""
        return State(self.info.schema, self.chain)

    def plus(self, pending: tuple[Segment, ...]) -> TableView:
        return replace(self, chain=self.chain.plus(pending)) if pending else self


def count_known(chain: Chain) -> int | None:
    """Return the number of rows of a table; None if logs change or erase rows, so that rows must be read."""
    found = visible(chain)
    if all(s.fresh and cover(s, BEGINNING, chain.step) == "all" for s in found):
        return sum(s.rows for s in found)
    return None


class Snapshot:
    """All paths at one step.

    Descriptions, indexes and chains are as of the step. Paths that were created, restored or built later are
    not in the snapshot. Reading a state that is no longer kept raises Stale; the statement is then retried
    with a newer snapshot.

    The step is fixed at the first access, which reads all ``named`` tables at once. The rows stay readable
    while this object exists. ``lend`` keeps them readable for data frames that exist longer. Not thread-safe.

    Args:
        step: the step. None: the last step at the first access.
        named: tables to read at the first access.
    """

    def __init__(self, runtime: Runtime, step: int | None = None, named: Iterable[Named] = ()) -> None:
        _check_step(step)
        self.mark = runtime.moments.mark()
        """A mark from before the snapshot: see ``Moments.is_lost_since``."""
        self._runtime = runtime
        self._at = step
        self._named = tuple(named)
        self._taken: Moment | None = None
        self._planned_ids = itertools.count(-1, -1)

    def take(self) -> Moment:
        """Fix the step and read the named tables at the first call; return the same moment at later calls."""
        if self._taken is None:
            self._taken = self._runtime.moments.read(self._named, self._at)
        return self._taken

    @property
    def step(self) -> int:
        return self.take().step

    def table(self, path: str) -> TableView:
        if self._taken is None and all(path != table.path for table in self._named):
            self._named = (*self._named, Named(path))
        return _view(self._runtime.moments.table(self.take(), path))

    def index(self, table: TableView, ref: IndexRef) -> TableView:
        """Return the implementation table of an index, found by its id instead of its path."""
        return _view(self._runtime.moments.index(self.take(), table.info, ref))

    def plan(self, new: TableDefinition) -> TableView:
        """Add an empty table that the commit will create. The table and its indexes get negative ids."""
        moment, ids = self.take(), self._planned_ids
        refs = tuple(
            IndexRef.of(index, index_id=next(ids), impl_id=next(ids), version=1) for index in new.indexes
        )

        def add(id_: int, path: str, schema: TableSchema, indexes: tuple[IndexRef, ...] = ()) -> TableAt:
            info = TableInfo(
                id=id_,
                path=path,
                version=1,
                state=READY,
                operation_id=None,
                created_step=moment.step,
                schema=schema,
                indexes=indexes,
            )
            moment.refused.pop(path, None)
            moment.tables[path] = TableAt(info, Chain((), moment.step))
            return moment.tables[path]

        table = add(next(ids), new.path, new.schema, refs)
        for ref in refs:
            add(ref.impl_id, impl_path(table.info, ref), ref.definition.impl_schema(new.schema))
        return _view(table)

    def note(self, segments: Iterable[Segment]) -> None:
        """Protect further segments from garbage collection while this snapshot exists."""
        self.take().noted.update(s.id for s in segments)

    def lend(self) -> None:
        """Keep the rows readable for data frames that exist longer than the snapshot."""
        taken = self.take()
        self._runtime.session.lend(taken.step, taken.since, self._runtime.settings.read_seconds)


def _view(table: TableAt) -> TableView:
    return TableView(table.info, table.chain, table.increment)


def _check_step(step: int | None) -> None:
    if step is not None and (not isinstance(step, int) or isinstance(step, bool)):
        raise InvalidArgument(
            f"a step is a whole number, not {step!r}", "Use a step that describe() or a commit reported."
        )


class Reader:
    """Reads tables from a snapshot; the subclass ``Transaction`` adds its own changes."""

    is_fixed: ClassVar[bool] = True
    """Whether repeated reads return the same rows. A transaction's own writes change its reads."""
    is_over = False
    """Whether the rows may be gone, because the transaction has ended."""

    def __init__(self, runtime: Runtime, snapshot: Snapshot | None = None) -> None:
        self.runtime = runtime
        self.snapshot = snapshot or Snapshot(runtime)

    def lend(self) -> None:
        """Keep the rows readable for a data frame that exists longer than the reader."""
        self.snapshot.lend()

    def view(self, path: str) -> TableView:
        return self.snapshot.table(path)

    def index(self, table: TableView, ref: IndexRef) -> TableView:
        return self.snapshot.index(table, ref)

    def read_keys(self, view: TableView, keys: Keys) -> None:
        """Record that the transaction depends on the rows of these keys. A plain reader records nothing."""

    def read_whole(self, view: TableView) -> None:
        """Record that the transaction may depend on any row of the table. A plain reader records nothing."""


def resolve(reader: Reader, ref: TableRef) -> tuple[Reader, TableView]:
    """Return the table that ``ref`` names, and the reader that must read its rows."""
    if ref.backup is not None:
        stored = reader.runtime.open_backup(reader.runtime, *ref.backup)
        return stored, stored.view(ref.path)
    if ref.is_now:
        return reader, reader.view(ref.path)
    step = ref.version
    if ref.timestamp is not None:
        with reader.runtime.catalog.read() as conn:
            step = commits.step_at(conn, ref.timestamp.timestamp())
    if step is None:
        raise InvalidArgument(f"there is no commit at or before {ref.timestamp}", "Use a later time.")
    past = Reader(reader.runtime, Snapshot(reader.runtime, step, [Named(ref.path, ref.index)]))
    view = past.view(ref.path)
    past.lend()  # Keep the step readable: users often read it again.
    return past, view
