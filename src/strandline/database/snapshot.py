"""A consistent view of all tables at one step."""

from __future__ import annotations

from collections.abc import Callable, Collection
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, TypeAlias, TypeVar

from sqlalchemy import Connection

from strandline.catalog import board, chains, paths, tables
from strandline.catalog.paths import CLOSED_STATES, Path
from strandline.catalog.sessions import SHORT_READ
from strandline.catalog.tables import IndexRef, TableInfo
from strandline.errors import InvalidArgument, UnderOperation
from strandline.model import Chain, Key, Segment
from strandline.operations.context import Context

if TYPE_CHECKING:
    import pyarrow as pa

T = TypeVar("T")
Keys: TypeAlias = "Collection[Key] | pa.Table"
"""Keys one by one, or the key columns of a table."""


@dataclass(frozen=True)
class TableView:
    """A table at a step: its description then, and the chain that folds to its rows.

    ``increment``: the table is an incremental backup, which shows its changes, tombstones included, rather than a state."""

    info: TableInfo
    chain: Chain
    increment: bool = False

    def plus(self, pending: tuple[Segment, ...]) -> TableView:
        return replace(self, chain=self.chain.plus(pending)) if pending else self


class Snapshot:
    """Tables as they were at ``step`` (default: now). What it shows stays readable while the object exists and, for data frames that
    outlive it, for as long as ``for_seconds`` says; both only while this process lives. Tables are loaded when they are first asked for;
    not for use by two threads at once."""

    def __init__(self, context: Context, step: int | None = None, for_seconds: float = SHORT_READ) -> None:
        self._context = context
        self._views: dict[str, TableView] = {}
        self._plans: dict[str, dict[str, TableInfo]] = {}
        self._seconds = for_seconds
        self._historic = step is not None
        self._pinned = not self._historic
        if step is None:
            self.step = context.session.pin(for_seconds)
            context.session.keep(self, self.step)
        else:
            _check_step(step)
            self.step = step

    def table(self, path: str) -> TableView:
        if not self._pinned:
            self._pin(path)
        if path not in self._views:
            planned = self._planned(path)
            if planned is not None:
                self._views[path] = self._read(lambda conn: TableView(planned, chains.load(conn, planned.id, self.step)))
            else:
                self._views[path] = self._read(lambda conn: self._load(conn, paths.require(conn, path, "table")))
        return self._views[path]

    def index(self, table: TableView, ref: IndexRef) -> TableView:
        """The implementation table of an index."""
        path = f"{table.info.path}/{ref.definition.name}/{paths.IMPL_TABLE}"
        return self.table(path)

    def _pin(self, path: str) -> None:
        """A step of the past is pinned in the transaction that finds it readable; one that is refused leaves no pin."""

        def check(conn: Connection) -> None:
            row = paths.require(conn, path, "table")
            chains.check_readable(conn, row.id, row.path, self.step)

        self._context.session.pin(self._seconds, self.step, check)
        self._context.session.keep(self, self.step)
        self._pinned = True

    def _read(self, load: Callable[[Connection], T]) -> T:
        with self._context.catalog.read() as conn:
            return load(conn)

    def _planned(self, path: str) -> TableInfo | None:
        """The description of a live table, or of one of its implementation tables, as the loader plans it; None for any other path, which
        is read from the catalog. The cache has seen everything that was published before, so a statement never misses a change that
        was reported to anybody before it began."""
        table = path.removesuffix(f"/{paths.IMPL_TABLE}").rsplit("/", 1)[0] if path.endswith(f"/{paths.IMPL_TABLE}") else path
        if self._historic or table.startswith("/.backups/"):
            return None
        if table not in self._plans:
            with self._context.catalog.read() as conn:
                generation = board.generation(conn)
            loader = self._context.loader
            loader.cache.catch_up(generation)
            (plan,) = loader.plan([table])
            self._plans[table] = {info.path: info for info in (plan.table, *plan.impls)}
        return self._plans[table].get(path)

    def _load(self, conn: Connection, row: Path) -> TableView:
        if row.state in CLOSED_STATES:
            raise UnderOperation(
                f"path is under operation: {row.path} is {row.state} by operation {row.operation_id}",
                f"Wait for it with db.wait({row.operation_id!r}).",
            )
        if self._historic:
            chains.check_readable(conn, row.id, row.path, self.step)
        info = tables.at_step(conn, row, self.step)
        return TableView(info, chains.load(conn, row.id, self.step), bool(row.body.get("increment")))


def _check_step(step: int | None) -> None:
    if step is not None and (not isinstance(step, int) or isinstance(step, bool)):
        raise InvalidArgument(f"a step is a whole number, not {step!r}", "Use a step that describe() or a commit reported.")


class Reader:
    """Where a query reads from: a snapshot, or (a subclass) a transaction with its own changes on top."""

    def __init__(self, context: Context, snapshot: Snapshot | None = None) -> None:
        self.context = context
        self.snapshot = snapshot or Snapshot(context)

    def view(self, path: str) -> TableView:
        return self.snapshot.table(path)

    def index(self, table: TableView, ref: IndexRef) -> TableView:
        return self.view(f"{table.info.path}/{ref.definition.name}/{paths.IMPL_TABLE}")

    def read_keys(self, view: TableView, keys: Keys) -> None:
        """Note that the outcome depends on the rows of these keys."""

    def read_whole(self, view: TableView) -> None:
        """Note that the outcome may depend on any row of the table."""
