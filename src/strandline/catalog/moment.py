"""One moment: a step, and tables with their descriptions and chains as they were at that step.

``Moments.read`` is the one way in which a statement gets at any of it: one read transaction for all tables
that the statement names. It writes nothing. What it gives is there for the grace period at least, because
whatever leaves a table's present state after it is left alone for so long; and for as long as the moment
exists, if this process's session can say so in time.
"""

from __future__ import annotations

import threading
import weakref
from collections.abc import Iterable
from dataclasses import dataclass

from sqlalchemy import Connection

from strandline import names
from strandline.catalog import chains, paths, tables
from strandline.catalog.cache import Loader, Look
from strandline.catalog.connection import Catalog
from strandline.catalog.paths import CLOSED_STATES, IMPL_TABLE
from strandline.catalog.sessions import Reading, Session
from strandline.catalog.stale import Stale
from strandline.catalog.tables import IndexRef, TableBody, TableInfo
from strandline.errors import PathNotFound, StrandlineError
from strandline.model import Chain


@dataclass(frozen=True)
class Named:
    """A table that a statement names. ``index``: one that it reads as well; ``writes``: it may change the
    table, and so its synchronous indexes."""

    path: str
    index: str | None = None
    writes: bool = False


@dataclass(frozen=True)
class TableAt:
    """A table at a step. ``increment``: it is an incremental backup."""

    info: TableInfo
    chain: Chain
    increment: bool = False


@dataclass(frozen=True)
class Mark:
    """The last moment of a process so far, by its number, and the session in whose name it writes."""

    number: int
    session_id: str


class Moment:
    """What was read at one step. ``since``: the time when it was the last one; 0, and ``is_past``, if it was
    asked for. ``number`` counts the moments of a process. Not for use by two threads at once."""

    def __init__(self, step: int, since: float, is_past: bool, number: int) -> None:
        self.step = step
        self.since = since
        self.is_past = is_past
        self.number = number
        self.tables: dict[str, TableAt] = {}
        self.refused: dict[str, StrandlineError] = {}
        """Why a table that it was to be read with is not there, for the one who asks for it."""
        self.known: dict[int, TableInfo] = {}
        """Descriptions at the step, by id, of what has not been asked for."""
        self.segments: set[int] = set()
        """All that was ever in a plan made of it."""


class Moments:
    """The moments of one process. Shared by all of its threads."""

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
        """Return the last step (or a given one), with the tables that are wanted at it, from one snapshot of
        the catalog."""
        named = list(wanted)
        since = self._catalog.clock.now()  # Before the snapshot: whatever is removed from it comes later.

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
            self._session.watch(at_once=True)  # No grace period covers it.
        return moment

    def _readers(self) -> list[Reading]:
        with self._lock:
            return [Reading(moment.step, moment.since) for moment in self._live]

    def table(self, moment: Moment, path: str) -> TableAt:
        """Return a table of a moment: one of those that it was read with, or another one at the same step."""
        if path in moment.refused:
            raise moment.refused[path]
        if path not in moment.tables:
            self._loader.read(lambda look: self._see(look, moment, Named(path)))
        return moment.tables[path]

    def index(self, moment: Moment, table: TableInfo, ref: IndexRef) -> TableAt:
        """Return the implementation table of an index that a table of the moment lists: found by its id,
        whatever is at its path now."""
        path = impl_path(table, ref)
        if path not in moment.tables:
            with self._catalog.read() as conn:
                self._see_index(conn, moment, table, ref)
        return moment.tables[path]

    def mark(self) -> Mark:
        """Return a mark between the moments so far and those to come."""
        return Mark(self._last, self._session.id)

    def lost_since(self, mark: Mark) -> bool:
        """Return whether something has been collected that a moment after the mark has in its plan, or that
        may have been written since. The catalog forgets a segment before its file is removed: a file that is
        missing although the catalog has the segment is damage, and one that it does not have was removed by
        right. So was one that has no segment yet, if its writer's session has ended."""
        with self._lock:
            seen = {i for moment in self._live if moment.number > mark.number for i in moment.segments}
        with self._catalog.read() as conn:
            return self._session.has_ended(conn, mark.session_id) or chains.known(conn, seen) < seen

    def _number(self) -> int:
        with self._lock:
            self._last += 1
            return self._last

    def _see(self, look: Look, moment: Moment, wanted: Named) -> None:
        found = self._found(look, moment, wanted.path)
        self._note(moment, wanted.path, found)
        for ref in found.info.indexes:
            if ref.definition.name == wanted.index or (wanted.writes and ref.definition.is_sync):
                self._see_index(look.conn, moment, found.info, ref)

    def _see_index(self, conn: Connection, moment: Moment, table: TableInfo, ref: IndexRef) -> None:
        info = moment.known.get(ref.impl_id) or self._listed(conn, moment, ref)
        self._note(moment, impl_path(table, ref), self._loaded(conn, moment, info))

    def _note(self, moment: Moment, path: str, found: TableAt) -> None:
        moment.tables[path] = found
        moment.segments.update(s.id for s in found.chain.segments)

    def _found(self, look: Look, moment: Moment, path: str) -> TableAt:
        if not moment.is_past and not names.is_backup(path):
            planned = self._planned(look, moment, path)
            if planned is not None:
                return self._loaded(look.conn, moment, planned)
        row = paths.require(look.conn, path, "table")
        if row.state in CLOSED_STATES:
            paths.check_ready(row)
        if moment.is_past:
            chains.check_readable(look.conn, row.id, row.path, moment.step)
        elif row.created_step > moment.step:
            raise Stale(row.id, f"{path} was created, restored or renamed after step {moment.step}")
        found = self._loaded(look.conn, moment, tables.at_step(look.conn, row, moment.step))
        return TableAt(found.info, found.chain, row.record(TableBody).increment)

    def _planned(self, look: Look, moment: Moment, path: str) -> TableInfo | None:
        """Return the description of a live table, or of one of its implementation tables, as the cache knows
        it; None if it is a later one than that of the step. The cache has seen every publication up to the
        step, so it knows nothing older, and ``since`` tells the rest."""
        above, _, name = path.rpartition("/")
        plan = self._loader.planned(look, above.rpartition("/")[0] if name == IMPL_TABLE else path)
        infos = [info for info in (plan.table, *plan.impls) if info.since <= moment.step]
        moment.known |= {info.id: info for info in infos}
        return next((info for info in infos if info.path == path), None)

    def _listed(self, conn: Connection, moment: Moment, ref: IndexRef) -> TableInfo:
        row = paths.by_id(conn, ref.impl_id)
        gone = f"the index {ref.definition.name} was dropped"
        if row is None and moment.is_past:
            raise PathNotFound(f"{gone} after step {moment.step}", "Read the table itself, without VIEW.")
        if row is None:
            raise Stale(ref.impl_id, gone)
        if moment.is_past:
            chains.check_readable(conn, row.id, row.path, moment.step)
        return tables.at_step(conn, row, moment.step)

    def _loaded(self, conn: Connection, moment: Moment, info: TableInfo) -> TableAt:
        return TableAt(info, chains.load_kept(conn, info.id, moment.step))


def impl_path(table: TableInfo, ref: IndexRef) -> str:
    """Return where the entries of a table's index are."""
    return f"{table.path}/{ref.name}/{IMPL_TABLE}"
