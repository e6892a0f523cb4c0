"""A cache of table descriptions, kept fresh by the board, and plans made from it.

The cache drops an entry when a publication announces a newer version; the next request loads the entry again.
Publications may arrive late, twice or in any order: a publication that is older than the entry changes
nothing. So an entry may be stale for a short time, and the versions of two entries may not fit each other.
The states of paths are not published, so entries do not contain them. A path's state is checked in the
transaction that changes the path.

The ``Loader`` makes sure that the versions in a plan fit each other: a table's description lists each index
with the version of the index's implementation table. If the versions do not fit, the loader drops the entries
and loads them again, a few times with a pause. If this does not help, the request fails, with both versions
in the error. A plan whose versions fit may still be outdated. Therefore a commit checks the versions and
steps that it was planned with, and is refused as a whole if the catalog has changed (``conflicts.Stale``).
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TypeVar

from sqlalchemy import Connection, select

from strandline.catalog import paths, publication_log, sqltables, tables
from strandline.catalog.connection import Catalog
from strandline.catalog.metrics_buffer import Notice
from strandline.catalog.paths import CLOSED_STATES, READY, Path
from strandline.catalog.publication_log import Publication
from strandline.catalog.tables import TableInfo
from strandline.clock import Clock
from strandline.errors import SchemaMismatch
from strandline.metrics import Metrics, event
from strandline.model import PENDING
from strandline.retry import tries

T = TypeVar("T")

_MAX_TABLES = 50_000
_GONE = 2**62

# Built once: SQLAlchemy takes longer to build a statement than SQLite takes to answer it.
_PRESENT = select(sqltables.clock.c.step, sqltables.clock.c.generation).where(sqltables.clock.c.id == 1)

Delivery = Callable[[list[Publication]], list[Publication]]


@dataclass(frozen=True)
class Unit:
    """A table with the implementation tables of its indexes.

    Attributes:
        impls: the implementation tables, in the order of ``table.indexes``. An entry is None if its table is
            missing.
    """

    table: TableInfo
    impls: tuple[TableInfo | None, ...]


@dataclass(frozen=True)
class Present:
    """The last step and the last generation of the catalog, from one read transaction.

    Every publication up to this step has this generation or an earlier one.
    """

    step: int
    generation: int


def present(conn: Connection) -> Present:
    return Present(*conn.execute(_PRESENT).one())


@dataclass(frozen=True)
class Look:
    """A read transaction, with the last step and generation that it sees."""

    conn: Connection
    present: Present


class SchemeCache:
    """Cache of table descriptions by path, shared by all threads of a process.

    Args:
        delivery: called with new publications; returns the publications that reach the cache now. Tests use
            it to delay or reorder publications.
    """

    def __init__(
        self,
        catalog: Catalog,
        *,
        delivery: Delivery = lambda new: new,
        metrics: Metrics | None = None,
    ) -> None:
        self.catalog = catalog
        self._delivery = delivery
        self._metrics = metrics or Metrics()
        self._tables: dict[int, TableInfo] = {}
        self._ids: dict[str, int] = {}
        self._lock = threading.Lock()
        self._delivering = threading.Lock()
        self._generation: int | None = None

    @contextmanager
    def looking(self) -> Iterator[Look]:
        """Open a snapshot of the catalog whose publications have all been applied to the cache."""
        with self.catalog.read() as conn:
            look = Look(conn, present(conn))
            if not self._has_seen(look):
                self._catch_up(look)
            yield look

    def _has_seen(self, look: Look) -> bool:
        return self._generation is not None and self._generation >= look.present.generation

    def _catch_up(self, look: Look) -> None:
        with self._delivering:
            is_news = not self._has_seen(look)
            new: list[Publication] = []
            missed = False
            # The cache is still empty the first time, so no publication concerns it.
            if is_news and self._generation is not None:
                new = publication_log.since(look.conn, self._generation)
                # The process may have slept for longer than the board keeps publications.
                missed = not new or new[0].generation != self._generation + 1
            upto = look.present.generation if is_news else self._generation
            self._apply(self._delivery(new), upto, missed=missed)

    def unit(self, look: Look, path: str) -> Unit:
        """Return a table and the implementation tables of its indexes.

        All of them come from the cache if it has all of them, else from the snapshot.
        """
        with self._lock:
            if path in self._ids:
                table = self._tables[self._ids[path]]
                impls = tuple(self._tables.get(ref.impl_id) for ref in table.indexes)
                if None not in impls:
                    return Unit(table, impls)
        return self._read(look, path)

    def _read(self, look: Look, path: str) -> Unit:
        row = paths.require(look.conn, path, "table")
        if row.state in CLOSED_STATES:
            paths.check_ready(row)
        refs = TableInfo.of(row).indexes
        rows = {p.id: p for p in paths.by_ids(look.conn, [ref.impl_id for ref in refs])}
        since = tables.since(look.conn, [row.id, *rows])
        table = _info(row, since)
        impls = tuple(_info(rows[ref.impl_id], since) if ref.impl_id in rows else None for ref in refs)
        self._learn(look.present, [table, *(impl for impl in impls if impl is not None)])
        return Unit(table, impls)

    def forget(self, unit: Unit) -> None:
        """Drop a table and its implementation tables, so that the next request reads the catalog."""
        with self._lock:
            for info in (unit.table, *unit.impls):
                if info is not None:
                    self._drop(info.id)

    def _forget_all(self) -> None:
        self._tables.clear()
        self._ids.clear()

    def _apply(self, publications: Iterable[Publication], upto: int | None, *, missed: bool) -> None:
        now = self.catalog.clock.now()
        arrived: dict[int, float] = {}
        with self._lock:
            if missed:
                self._forget_all()
            for news in publications:
                self._take_in(news)
                arrived[news.generation] = max(0.0, now - news.time)
            self._generation = upto  # Set last: _has_seen() reads it without the lock.
        for generation, delay in arrived.items():
            self._metrics.delivery_delay.observe(delay)
            notice = Notice(event="arrived", time=now, generation=generation, seconds=delay)
            self.catalog.ledger.note(notice)

    def _take_in(self, news: Publication) -> None:
        version = _GONE if news.dropped else news.version
        known = self._tables.get(news.path_id)
        if known is not None and known.version < version:
            self._drop(news.path_id)
        at_path = self._ids.get(news.path)
        if at_path is not None and at_path < news.path_id:
            self._drop(at_path)  # Another table has this path now.

    def _learn(self, present: Present, infos: Iterable[TableInfo]) -> None:
        """Cache descriptions from a snapshot, unless later publications were delivered in the meantime."""
        with self._lock:
            if self._generation != present.generation:
                return
            if len(self._tables) > _MAX_TABLES:
                self._forget_all()
            for info in infos:
                self._drop(info.id)
                self._tables[info.id] = info
                self._ids[info.path] = info.id

    def _drop(self, table_id: int) -> None:
        """Remove a table and its path from the cache."""
        info = self._tables.pop(table_id, None)
        if info is not None:
            self._ids.pop(info.path, None)


def _info(row: Path, since: dict[int, int]) -> TableInfo:
    # A description that was never published is not valid at any step.
    return TableInfo.of(row._replace(state=READY, operation_id=None), since.get(row.id, PENDING))


@dataclass(frozen=True)
class TablePlan:
    """A table and its implementation tables, with versions that fit each other.

    Attributes:
        impls: the implementation tables in the order of ``table.indexes``, with the versions listed there.
    """

    table: TableInfo
    impls: tuple[TableInfo, ...]


class _Mismatch(Exception):
    """The versions in a plan do not fit each other."""

    def __init__(self, unit: Unit, path: str, expected: int, actual: int | None) -> None:
        self.unit = unit
        self.path = path
        self.expected = expected
        self.actual = actual


class Loader:
    """Loads tables whose versions fit each other. Shared by all threads of a process."""

    def __init__(
        self,
        cache: SchemeCache,
        clock: Clock,
        *,
        retries: int = 3,
        retry_seconds: float = 0.1,
        metrics: Metrics | None = None,
    ) -> None:
        self.cache = cache
        self._clock = clock
        self._retries = retries
        self._retry_seconds = retry_seconds
        self._metrics = metrics or Metrics()

    def read(self, use: Callable[[Look], T]) -> T:
        """Call ``use`` with a snapshot of the catalog and return its result.

        Args:
            use: may plan any tables in the snapshot (``plan_table``). If the versions in a plan do not fit
                each other, ``use`` is called again with a new snapshot.
        """
        wrong: _Mismatch | None = None
        for _ in tries(self._clock, lambda _: self._retry_seconds, count=self._retries + 1):
            try:
                with self.cache.looking() as look:
                    made = use(look)
            except _Mismatch as seen:
                wrong = seen
                self._note("seen", seen)
                self.cache.forget(seen.unit)
                continue
            if wrong is not None:
                self._note("cured", wrong)
            return made
        assert wrong is not None  # The loop has run at least once without returning.
        self._note("failed", wrong)
        raise SchemaMismatch(
            f"schema version mismatch for {wrong.path}: {wrong.unit.table.path} expects version "
            f"{wrong.expected}, "
            f"{'but it is not there' if wrong.actual is None else f'got {wrong.actual}'}"
        )

    def plan_table(self, look: Look, path: str) -> TablePlan:
        """Return the table at a path. Only the ``use`` function of ``read`` may call this method."""
        unit = self.cache.unit(look, path)
        impls: list[TableInfo] = []
        for ref, impl in zip(unit.table.indexes, unit.impls, strict=True):
            if impl is None:
                raise _Mismatch(unit, f"{unit.table.path}/{ref.definition.name}", ref.version, None)
            if impl.version != ref.version:
                raise _Mismatch(unit, impl.path, ref.version, impl.version)
            impls.append(impl)
        return TablePlan(unit.table, tuple(impls))

    def _note(self, result: str, wrong: _Mismatch) -> None:
        """Count a version mismatch and report it to the catalog.

        Args:
            result: ``seen``, ``cured`` (a retry succeeded) or ``failed``.
        """
        table, expected, actual = wrong.unit.table, wrong.expected, wrong.actual
        self._metrics.mismatches.labels(result).inc()
        event("mismatch", result=result, table=table.path, path=wrong.path, expected=expected, actual=actual)
        self.cache.catalog.ledger.note(
            Notice(
                event="mismatch" if result == "seen" else result,
                time=self._clock.now(),
                path_id=table.id,
                other=wrong.path,
                expected=expected,
                actual=actual,
            )
        )
