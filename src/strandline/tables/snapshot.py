"""One moment: all tables, with their descriptions and indexes, as they were at one step."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, TypeAlias

from sqlalchemy import Connection

from strandline.catalog import chains, paths, tables
from strandline.catalog.paths import CLOSED_STATES
from strandline.catalog.sessions import SHORT_READ, Pin
from strandline.catalog.stale import Stale
from strandline.catalog.tables import IndexRef, TableBody, TableInfo
from strandline.errors import Internal, InvalidArgument, PathNotFound
from strandline.model import Chain, Key, Segment
from strandline.runtime import Runtime

if TYPE_CHECKING:
    import pyarrow as pa

Keys: TypeAlias = "Collection[Key] | pa.Table"
"""Keys one by one, or the key columns of a table."""


@dataclass(frozen=True)
class TableView:
    """A table at a step: its description then, and the chain that folds to its rows.

    ``increment``: the table is an incremental backup, which shows its changes, tombstones included, rather
    than a state."""

    info: TableInfo
    chain: Chain
    increment: bool = False

    def plus(self, pending: tuple[Segment, ...]) -> TableView:
        return replace(self, chain=self.chain.plus(pending)) if pending else self


class Snapshot:
    """One moment: a step (default: the last one) and the tree as it was at that step. Descriptions, indexes
    and chains that are read through it are all as of the step; a path that was created, restored or built
    after it is not in it, and what can no longer be told is Stale: the statement then starts again with a
    newer one.

    What it shows stays readable while the object exists and, for data frames that outlive it, for as long as
    ``for_seconds`` says; both only while this process's session lives. Tables are loaded when they are first
    asked for; not for use by two threads at once."""

    def __init__(self, runtime: Runtime, step: int | None = None, for_seconds: float = SHORT_READ) -> None:
        self._runtime = runtime
        self._views: dict[str, TableView] = {}
        self._known: dict[int, TableInfo] = {}
        self._seconds = for_seconds
        self._historic = step is not None
        self._pin: Pin | None = None
        if step is None:
            self._pin = runtime.session.pin(for_seconds)
            self.step = self._pin.step
            runtime.session.keep(self, self.step)
        else:
            _check_step(step)
            self.step = step

    @property
    def session_id(self) -> str:
        """The session in whose name it reads; what was planned with the snapshot is void when that has
        ended."""
        if self._pin is None:
            raise Internal(
                "a snapshot of the past has no table yet, so nothing can have been planned with it"
            )
        return self._pin.session_id

    def table(self, path: str) -> TableView:
        if self._pin is None:
            self._pin = self._pinned(path)
        if path not in self._views:
            planned = (
                None if self._historic or path.startswith("/.backups/") else self._planned(path, self._pin)
            )
            with self._runtime.catalog.read() as conn:
                self._views[path] = (
                    self._found(conn, path) if planned is None else self._loaded(conn, planned)
                )
        return self._views[path]

    def index(self, table: TableView, ref: IndexRef) -> TableView:
        """The implementation table of an index that a table of this snapshot lists: found by its id, whatever
        is at its path now."""
        path = f"{table.info.path}/{ref.definition.name}/{paths.IMPL_TABLE}"
        if path not in self._views:
            with self._runtime.catalog.read() as conn:
                self._views[path] = self._loaded(
                    conn, self._known.get(ref.impl_id) or self._listed(conn, ref)
                )
        return self._views[path]

    def _pinned(self, path: str) -> Pin:
        """A step of the past is pinned in the transaction that finds it readable; one that is refused leaves
        no pin."""

        def check(conn: Connection) -> None:
            row = paths.require(conn, path, "table")
            chains.check_readable(conn, row.id, row.path, self.step)

        pin = self._runtime.session.pin(self._seconds, self.step, check)
        self._runtime.session.keep(self, self.step)
        return pin

    def _planned(self, path: str, pin: Pin) -> TableInfo | None:
        """The description of a live table, or of one of its implementation tables, as the cache knows it;
        None if it is a later one than that of the step. The cache has seen every publication up to the step,
        so it knows nothing older, and ``since`` tells the rest."""
        table = (
            path.removesuffix(f"/{paths.IMPL_TABLE}").rsplit("/", 1)[0]
            if path.endswith(f"/{paths.IMPL_TABLE}")
            else path
        )
        loader = self._runtime.loader
        loader.cache.catch_up(pin.generation)
        (plan,) = loader.plan([table])
        infos = [info for info in (plan.table, *plan.impls) if info.since <= self.step]
        self._known |= {info.id: info for info in infos}
        return next((info for info in infos if info.path == path), None)

    def _listed(self, conn: Connection, ref: IndexRef) -> TableInfo:
        row = paths.by_id(conn, ref.impl_id)
        gone = f"the index {ref.definition.name} was dropped"
        if row is None and self._historic:
            raise PathNotFound(f"{gone} after step {self.step}", "Read the table itself, without VIEW.")
        if row is None:
            raise Stale(ref.impl_id, gone)
        if self._historic:
            chains.check_readable(conn, row.id, row.path, self.step)
        return tables.at_step(conn, row, self.step)

    def _loaded(self, conn: Connection, info: TableInfo) -> TableView:
        return TableView(info, chains.load_kept(conn, info.id, self.step))

    def _found(self, conn: Connection, path: str) -> TableView:
        """What the catalog has at a path, if it was there at the step."""
        row = paths.require(conn, path, "table")
        if row.state in CLOSED_STATES:
            paths.check_ready(row)
        if self._historic:
            chains.check_readable(conn, row.id, row.path, self.step)
        elif row.created_step > self.step:
            raise Stale(row.id, f"{path} was created or restored after step {self.step}")
        view = self._loaded(conn, tables.at_step(conn, row, self.step))
        return replace(view, increment=row.record(TableBody).increment)


def _check_step(step: int | None) -> None:
    if step is not None and (not isinstance(step, int) or isinstance(step, bool)):
        raise InvalidArgument(
            f"a step is a whole number, not {step!r}", "Use a step that describe() or a commit reported."
        )


class Reader:
    """Where a query reads from: a snapshot, or (a subclass) a transaction with its own changes on top."""

    def __init__(self, runtime: Runtime, snapshot: Snapshot | None = None) -> None:
        self.runtime = runtime
        self.snapshot = snapshot or Snapshot(runtime)

    def view(self, path: str) -> TableView:
        return self.snapshot.table(path)

    def index(self, table: TableView, ref: IndexRef) -> TableView:
        return self.snapshot.index(table, ref)

    def read_keys(self, view: TableView, keys: Keys) -> None:
        """Note that the outcome depends on the rows of these keys."""

    def read_whole(self, view: TableView) -> None:
        """Note that the outcome may depend on any row of the table."""
