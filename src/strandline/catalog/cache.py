"""The descriptions that this process knows, kept fresh by the board, and plans made of them.

An entry is dropped when a publication says that there is a newer version, and loaded again by the next one
who asks. Publications may come late, twice or in any order: an older one than what is known changes nothing.
So an entry may be stale for a moment, and entries may not fit each other. States of paths are not published,
so no entry has one: what a path's state forbids is checked in the transaction that would violate it.

The ``Loader`` makes sure that the versions in a plan fit: a table's description lists each index with the
version that the index's implementation table has. A mismatch is no error yet: the entries are dropped and
loaded again, a few times with a pause; only then does the request fail, with both versions in the error. A
plan that fits may still be an old one: a commit proves what it was planned with, and is refused as a whole if
the catalog has moved on (``stale.Stale``).
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TypeVar

from sqlalchemy import Connection, select

from strandline.catalog import board, paths, sqltables, tables
from strandline.catalog.board import Publication
from strandline.catalog.connection import Catalog
from strandline.catalog.ledger import Notice
from strandline.catalog.paths import CLOSED_STATES, READY, Path
from strandline.catalog.tables import TableInfo
from strandline.clock import Clock
from strandline.errors import SchemaMismatch
from strandline.metrics import Metrics, event
from strandline.model import PENDING
from strandline.retry import tries

T = TypeVar("T")

_MAX_TABLES = 50_000
_GONE = 2**62

# Built once: SQLAlchemy takes longer to build a statement than SQLite to answer it.
_PRESENT = select(sqltables.clock.c.step, sqltables.clock.c.generation).where(sqltables.clock.c.id == 1)

Delivery = Callable[[list[Publication]], list[Publication]]


@dataclass(frozen=True)
class Unit:
    """A table with the implementation tables of its indexes, in the order of ``table.indexes``; None for one
    that is not there."""

    table: TableInfo
    impls: tuple[TableInfo | None, ...]


@dataclass(frozen=True)
class Present:
    """The last step, and the last generation: everything that was published up to this step is in it, and
    nothing else."""

    step: int
    generation: int


def present(conn: Connection) -> Present:
    return Present(*conn.execute(_PRESENT).one())


@dataclass(frozen=True)
class Look:
    """One snapshot of the catalog, and what is the last of everything in it."""

    conn: Connection
    present: Present


class SchemeCache:
    """Shared by all threads of a process. ``delivery`` stands between the board and the cache: a test can
    hold publications back there, or give them out in another order. It is called with the new ones and
    returns those that arrive now."""

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
        """A snapshot of the catalog; everything that was published up to it has been delivered."""
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
            # To the first one all is news, but nothing of it is about something that is known.
            if is_news and self._generation is not None:
                new = board.since(look.conn, self._generation)
                # It may have slept for longer than the board remembers.
                missed = not new or new[0].generation != self._generation + 1
            upto = look.present.generation if is_news else self._generation
            self._apply(self._delivery(new), upto, missed=missed)

    def unit(self, look: Look, path: str) -> Unit:
        """Return a table and its implementation tables: from memory if all of them are there, else from the
        snapshot."""
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
        """Drop a table and its implementation tables: the next request reads the catalog."""
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
            self._generation = upto  # last: who reads it relies on all before it
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
            self._drop(at_path)  # another path has taken the name

    def _learn(self, present: Present, infos: Iterable[TableInfo]) -> None:
        """Keep what a snapshot says, unless publications that it has not seen have been delivered
        meanwhile."""
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
        """A table and its name are known together, or neither is."""
        info = self._tables.pop(table_id, None)
        if info is not None:
            self._ids.pop(info.path, None)


def _info(row: Path, since: dict[int, int]) -> TableInfo:
    # What was never published holds from no step on.
    return TableInfo.of(row._replace(state=READY, operation_id=None), since.get(row.id, PENDING))


@dataclass(frozen=True)
class TablePlan:
    """A table as a planner may use it: ``impls`` are the implementation tables of ``table.indexes``, in the
    same order, at the very versions that the table lists."""

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
    """Shared by all threads of a process."""

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
        """Return what ``use`` makes of one snapshot of the catalog, in which it may plan any tables. If a
        plan does not fit, it is called again with another snapshot."""
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
        assert wrong is not None  # There was a first try, and it did not return.
        self._note("failed", wrong)
        raise SchemaMismatch(
            f"schema version mismatch for {wrong.path}: {wrong.unit.table.path} expects version "
            f"{wrong.expected}, "
            f"{'but it is not there' if wrong.actual is None else f'got {wrong.actual}'}"
        )

    def planned(self, look: Look, path: str) -> TablePlan:
        """Return the table at a path, for ``read``."""
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
        """Count a mismatch that was seen, cured or the end of a request, and let the catalog know of it."""
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
