"""Snapshots: a step, and tables with their descriptions and chains as of that step.

Statements read the catalog through ``Moments.read`` only: one read transaction, which writes nothing, covers
all tables that a statement names. The segments of a snapshot stay readable for at least the grace period,
because segments that leave a table's state are not collected earlier. They stay readable for as long as the
snapshot exists if the session's thread can record the snapshot's step in the catalog.
"""

from __future__ import annotations

import threading
import weakref
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace

from sqlalchemy import Connection

from strandline import names
from strandline.catalog import chains, live_chains, paths, tables
from strandline.catalog.cache import Loader, Look
from strandline.catalog.conflicts import Stale
from strandline.catalog.connection import Catalog
from strandline.catalog.paths import CLOSED_STATES, IMPL_TABLE
from strandline.catalog.sessions import Reading, Session
from strandline.catalog.tables import IndexRef, TableBody, TableInfo
from strandline.errors import PathNotFound, StrandlineError
from strandline.model import Chain


@dataclass(frozen=True)
class Named:
    """A table that a statement names.

    Attributes:
        index: the name of an index that the statement also reads. None: it reads no index.
        writes: whether the statement may change the table, and with it its synchronous indexes.
    """

    path: str
    index: str | None = None
    writes: bool = False


@dataclass(frozen=True)
class TableAt:
    """A table at a step.

    Attributes:
        increment: whether the table is part of an incremental backup, so that it has a tombstone column.
    """

    info: TableInfo
    chain: Chain
    increment: bool = False


@dataclass(frozen=True)
class Mark:
    """The number of a process's latest snapshot, and the session's id, at some point in time."""

    number: int
    session_id: str


class Moment:
    """A snapshot of tables at one step. Not for use by two threads at once.

    Attributes:
        since: the time at which ``step`` was the last step; 0 if ``is_past``.
        is_past: whether the caller requested this step, instead of the last one.
        number: the number of this snapshot in its process.
    """

    def __init__(self, step: int, since: float, is_past: bool, number: int) -> None:
        self.step = step
        self.since = since
        self.is_past = is_past
        self.number = number
        self.tables: dict[str, TableAt] = {}
        self.refused: dict[str, StrandlineError] = {}
        """Errors of the tables that could not be read, by path; raised when the table is used."""
        self.known: dict[int, TableInfo] = {}
        """Prefetched table descriptions at this step, by id."""
        self.noted: set[int] = set()
        """Ids of further segments in use, which are in no chain of ``tables``."""

    @property
    def segments(self) -> set[int]:
        """Ids of all segments that readers of this snapshot use."""
        read = [*self.tables.values()]  # a copy, because another thread may add a table
        return self.noted.union(s.id for table in read for s in table.chain.segments)


class Moments:
    """The snapshots of one process. Shared by all of its threads."""

    def __init__(self, catalog: Catalog, loader: Loader, session: Session) -> None:
        self._catalog = catalog
        self._loader = loader
        self._session = session
        self._last = 0
        self._live: weakref.WeakSet[Moment] = weakref.WeakSet()
        self._lock = threading.Lock()
        session.readers = self._readers
        session.watch()

    def read(self, wanted: Iterable[Named] = (), step: int | None = None) -> Moment:
        """Open a snapshot with the wanted tables.

        Args:
            step: the step of the snapshot. None: the last step.
        """
        named = list(wanted)
        since = self._catalog.clock.now()  # first, so that segments removed later have later times

        def look_at(look: Look) -> Moment:
            if step is None:
                moment = Moment(look.present.step, since, False, self._number())
            else:
                moment = Moment(step, 0.0, True, self._number())
            for table in named:
                try:
                    self._see(look, moment, table)
                except StrandlineError as error:
                    moment.refused[table.path] = error
            return moment

        moment = self._loader.read(look_at)
        with self._lock:
            self._live.add(moment)
        if moment.is_past or not self._session.grace:
            self._session.watch(at_once=True)  # No grace period protects this snapshot.
        return moment

    def _readers(self) -> list[Reading]:
        with self._lock:
            return [Reading(moment.step, moment.since) for moment in self._live]

    def table(self, moment: Moment, path: str) -> TableAt:
        """Return a table of a snapshot. A table that is not in the snapshot yet is added at the same step."""
        if path in moment.refused:
            raise moment.refused[path]
        if path not in moment.tables:
            self._loader.read(lambda look: self._see(look, moment, Named(path)))
        return moment.tables[path]

    def index(self, moment: Moment, table: TableInfo, ref: IndexRef) -> TableAt:
        """Return the implementation table of an index that a table of the snapshot lists.

        The implementation table is found by its id, because another table may have its path now.
        """
        path = impl_path(table, ref)
        if path not in moment.tables:
            with self._catalog.read() as conn:
                moment.tables |= self._load(conn, moment, {path: self._find_index(conn, moment, ref)})
        return moment.tables[path]

    def mark(self) -> Mark:
        """Return a mark that separates the snapshots taken so far from later ones."""
        return Mark(self._last, self._session.id)

    def is_lost_since(self, mark: Mark) -> bool:
        """Return whether the collector may have removed files that were read or written since the mark.

        The collector deletes a segment from the catalog before it removes the segment's file. So a missing
        file is damage if its segment is still in the catalog; otherwise it was collected. A written file that
        has no segment yet may have been collected if the session that wrote it has ended.
        """
        with self._lock:
            seen = {i for moment in self._live if moment.number > mark.number for i in moment.segments}
        with self._catalog.read() as conn:
            return self._session.has_ended(conn, mark.session_id) or chains.select_existing(conn, seen) < seen

    def _number(self) -> int:
        with self._lock:
            self._last += 1
            return self._last

    def _see(self, look: Look, moment: Moment, wanted: Named) -> None:
        table, increment = self._find(look, moment, wanted.path)
        found = {wanted.path: table}
        for ref in table.indexes:
            if ref.definition.name == wanted.index or (wanted.writes and ref.definition.is_sync):
                found[impl_path(table, ref)] = self._find_index(look.conn, moment, ref)
        loaded = self._load(look.conn, moment, found)
        loaded[wanted.path] = replace(loaded[wanted.path], increment=increment)
        moment.tables |= loaded

    def _find_index(self, conn: Connection, moment: Moment, ref: IndexRef) -> TableInfo:
        """Return the description of an index's implementation table."""
        return moment.known.get(ref.impl_id) or self._find_index_table(conn, moment, ref)

    def _find(self, look: Look, moment: Moment, path: str) -> tuple[TableInfo, bool]:
        """Return the description of a table, and whether it is part of an incremental backup."""
        if not moment.is_past and not names.is_backup(path):
            planned = self._plan_table(look, moment, path)
            if planned is not None:
                return planned, False
        row = paths.require(look.conn, path, "table")
        if row.state in CLOSED_STATES:
            paths.check_ready(row)
        if moment.is_past:
            chains.check_readable(look.conn, row.id, row.path, moment.step)
        elif row.created_step > moment.step:
            raise Stale(row.id, f"{path} was created, restored or renamed after step {moment.step}")
        return tables.at_step(look.conn, row, moment.step), row.record(TableBody).increment

    def _plan_table(self, look: Look, moment: Moment, path: str) -> TableInfo | None:
        """Return the cached description of a live table, or of one of its implementation tables.

        Returns None if the cached description is newer than the snapshot's step. It is never older, because
        the cache has received every publication up to the step.
        """
        above, _, name = path.rpartition("/")
        plan = self._loader.plan_table(look, above.rpartition("/")[0] if name == IMPL_TABLE else path)
        infos = [info for info in (plan.table, *plan.impls) if info.since <= moment.step]
        moment.known |= {info.id: info for info in infos}
        return next((info for info in infos if info.path == path), None)

    def _find_index_table(self, conn: Connection, moment: Moment, ref: IndexRef) -> TableInfo:
        row = paths.by_id(conn, ref.impl_id)
        gone = f"the index {ref.definition.name} was dropped"
        if row is None and moment.is_past:
            raise PathNotFound(f"{gone} after step {moment.step}", "Read the table itself, without VIEW.")
        if row is None:
            raise Stale(ref.impl_id, gone)
        if moment.is_past:
            chains.check_readable(conn, row.id, row.path, moment.step)
        return tables.at_step(conn, row, moment.step)

    def _load(self, conn: Connection, moment: Moment, infos: Mapping[str, TableInfo]) -> dict[str, TableAt]:
        """Return tables with their chains, by path. All are below the same path."""
        ids = [info.id for info in infos.values()]
        if any(names.is_backup(info.path) for info in infos.values()):
            found = {i: chains.load_kept(conn, i, moment.step) for i in ids}
        else:
            found = live_chains.load_live(conn, ids, moment.step)
        return {path: TableAt(info, found[info.id]) for path, info in infos.items()}


def impl_path(table: TableInfo, ref: IndexRef) -> str:
    """Return the path of an index's implementation table."""
    return f"{table.path}/{ref.name}/{IMPL_TABLE}"
