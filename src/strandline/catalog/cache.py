"""The descriptions that this process knows, kept fresh by the board.

An entry is dropped when a publication says that there is a newer version, and loaded again by the next one
who asks. Publications may come late, twice or in any order: an older one than what is known changes nothing.
So an entry may be stale for a moment, and entries may not fit each other; the loader deals with that. States
of paths are not published, so no entry has one: what a path's state forbids is checked in the transaction
that would violate it.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace

from sqlalchemy import Connection

from strandline.catalog import board, paths, tables
from strandline.catalog.board import Publication
from strandline.catalog.connection import Catalog
from strandline.catalog.paths import CLOSED_STATES, READY, Path
from strandline.catalog.tables import TableInfo
from strandline.metrics import Metrics
from strandline.model import PENDING

POLL_SECONDS = 0.02
"""How old the knowledge about the board may get before the next request looks at it again."""

_MAX_TABLES = 50_000
_GONE = 2**62

Delivery = Callable[[list[Publication]], list[Publication]]


@dataclass(frozen=True)
class Unit:
    """A table with the implementation tables of its indexes, in the order of ``table.indexes``; None for one
    that is not there."""

    table: TableInfo
    impls: tuple[TableInfo | None, ...]


class SchemeCache:
    """Shared by all threads of a process. ``delivery`` stands between the board and the cache: a test can
    hold publications back there, or give them out in another order. It is called at each poll with the new
    ones and return those that arrive now."""

    def __init__(
        self,
        catalog: Catalog,
        *,
        poll_seconds: float = POLL_SECONDS,
        delivery: Delivery = lambda new: new,
        metrics: Metrics | None = None,
    ) -> None:
        self.catalog = catalog
        self._poll_seconds = poll_seconds
        self._delivery = delivery
        self._metrics = metrics or Metrics()
        self._tables: dict[int, TableInfo] = {}
        self._ids: dict[str, int] = {}
        self._lock = threading.Lock()
        self._poll_lock = threading.Lock()
        self._generation: int | None = None
        self._polled = float("-inf")
        self._loads = 0
        self._news: dict[int, int] = {}
        """Versions published while somebody loads: what he read before may be older."""

    def unit(self, path: str) -> Unit:
        """A table and its implementation tables, from memory if all of them are there."""
        self._poll_if_due()
        with self._lock:
            table = self._tables.get(self._ids.get(path, -1))
            if table is not None:
                impls = tuple(self._tables.get(ref.impl_id) for ref in table.indexes)
                if None not in impls:
                    return Unit(table, impls)
        return self._read(path)

    def _read(self, path: str) -> Unit:
        """The same from one snapshot of the catalog; the cache learns it on the way."""
        with self._loading() as conn:
            row = paths.require(conn, path, "table")
            if row.state in CLOSED_STATES:
                paths.check_ready(row)
            refs = TableInfo.of(row).indexes
            rows = {p.id: p for p in paths.by_ids(conn, [ref.impl_id for ref in refs])}
            since = tables.since(conn, [row.id, *rows])
            table = _info(row, since)
            impls = tuple(_info(rows[ref.impl_id], since) if ref.impl_id in rows else None for ref in refs)
            self._learn([table, *(impl for impl in impls if impl is not None)])
        return Unit(table, impls)

    def forget(self, unit: Unit) -> None:
        """Drop a table and its implementation tables: the next request reads the catalog."""
        with self._lock:
            for info in (unit.table, *unit.impls):
                if info is not None:
                    self._drop(info.id)

    def poll(self) -> None:
        """Look at the board now and take in what is new. Return when all that was published before the call
        has been delivered."""
        with self._poll_lock, self.catalog.read() as conn:
            generation = board.generation(conn)
            new = (
                board.since(conn, self._generation)
                if self._generation is not None and self._generation < generation
                else []
            )
            self._apply(self._delivery(new))
            self._generation = generation  # last: who reads it may rely on everything before it
            self._polled = self.catalog.clock.now()

    def catch_up(self, generation: int) -> None:
        """Make sure that everything published up to ``generation`` has been delivered."""
        if self._generation is None or self._generation < generation:
            self.poll()

    def _poll_if_due(self) -> None:
        if self.catalog.clock.now() - self._polled < self._poll_seconds:
            return
        if self._generation is not None and self._poll_lock.locked():
            return  # another thread is at it; only the very first look must be over before anything is loaded
        self.poll()

    def _apply(self, publications: Iterable[Publication]) -> None:
        now = self.catalog.clock.now()
        with self._lock:
            for news in publications:
                self._take_in(news)
                self._metrics.delivery_delay.observe(max(0.0, now - news.time))

    def _take_in(self, news: Publication) -> None:
        version = _GONE if news.dropped else news.version
        if self._loads:
            self._news[news.path_id] = max(version, self._news.get(news.path_id, 0))
        known = self._tables.get(news.path_id)
        if known is not None and known.version < version:
            self._drop(news.path_id)
        at_path = self._ids.get(news.path)
        if at_path is not None and at_path < news.path_id:
            self._drop(at_path)  # another path has taken the name

    @contextmanager
    def _loading(self) -> Iterator[Connection]:
        """A snapshot to load from. What is published meanwhile is remembered, so that an older description is
        not kept."""
        with self._lock:
            self._loads += 1
        try:
            with self.catalog.read() as conn:
                yield conn
        finally:
            with self._lock:
                self._loads -= 1
                if not self._loads:
                    self._news.clear()

    def _learn(self, infos: Iterable[TableInfo]) -> None:
        with self._lock:
            if len(self._tables) > _MAX_TABLES:
                self._tables.clear()
                self._ids.clear()
            for info in infos:
                known = self._tables.get(info.id)
                if info.version >= max(self._news.get(info.id, 0), 0 if known is None else known.version):
                    self._tables[info.id] = info
                    self._ids[info.path] = info.id

    def _drop(self, table_id: int) -> None:
        info = self._tables.pop(table_id, None)
        if info is not None and self._ids.get(info.path) == table_id:
            del self._ids[info.path]


def _info(row: Path, since: dict[int, int]) -> TableInfo:
    # What was never published holds from no step on.
    return TableInfo.of(replace(row, state=READY, operation_id=None), since.get(row.id, PENDING))
