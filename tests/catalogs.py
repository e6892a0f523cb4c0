"""Catalogs and clocks for tests: open or copy catalogs, create and write tables in them, compare them.

Also what a process remembers of a catalog: plans of tables, and segments that a test wants to be forgotten.
"""

from __future__ import annotations

import contextlib
import functools
import json
import shutil
import sqlite3
import tempfile
import threading
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path as File
from typing import Any

from sqlalchemy import URL, Connection, event, select

from strandline import names, records
from strandline.catalog import cache, commits, definitions, paths, sqltables
from strandline.catalog.cache import Loader, Look, SchemeCache, TablePlan, present
from strandline.catalog.chain_cache import ChainCache
from strandline.catalog.commits import TableChange
from strandline.catalog.connection import Catalog
from strandline.catalog.definitions import TableDefinition
from strandline.catalog.engines import sqlite_url
from strandline.catalog.streams import StreamBody
from strandline.catalog.tables import TableBody, TableInfo
from strandline.catalog.transactions import current_step
from strandline.clock import Clock
from strandline.metrics import Metrics
from strandline.model import PENDING, Digest, IndexDef, Segment, TableSchema
from strandline.runtime import Runtime
from strandline.storage.segment_cache import SegmentCache
from strandline.types import parse_type

LEASE_SECONDS = 60.0
GRACE_SECONDS = 60.0
SCHEMA = TableSchema.of(
    [("k", parse_type("Int64"), True), ("v", parse_type("Utf8"), False), ("n", parse_type("Int64"), False)],
    ("k",),
)
BY_V = IndexDef(name="by_v", kind="GLOBAL SYNC", columns=("v",))
BY_N = IndexDef(name="by_n", kind="GLOBAL SYNC", columns=("n",), cover=("v",))
LATER = IndexDef(name="later", kind="GLOBAL ASYNC", columns=("n",))
_ALL = select(sqltables.paths).order_by(sqltables.paths.c.id)


class Death(BaseException):
    """The process is gone: nothing after this point of it happens."""


class ManualClock:
    """Time that passes only when somebody sleeps, or a test says so."""

    def __init__(self, now: float = 1_000_000.0) -> None:
        self._now = now

    def now(self) -> float:
        return self._now

    def sleep(self, seconds: float) -> None:
        self._now += seconds


def is_session() -> bool:
    """Whether this is the thread that renews a session: it writes when time passes, and nothing depends on
    when."""
    return threading.current_thread().name == "strandline-session"


def die_after(catalog: Catalog, transactions: int) -> None:
    """Let the process die right after its n-th write transaction from now on is durable."""
    left = transactions

    def hook() -> None:
        nonlocal left
        left -= 1
        if left == 0:
            raise Death

    catalog.after_commit = hook


@functools.cache
def _migrated() -> bytes:
    from strandline.catalog import migrate  # It takes long to import, and few of those who come here need it.

    with tempfile.TemporaryDirectory() as folder:
        file = File(folder) / "catalog.db"
        catalog = Catalog(sqlite_url(file))
        migrate.upgrade(catalog.database.engine)
        catalog.close()
        return file.read_bytes()


def place_catalog(file: File) -> None:
    """Make a catalog on SQLite, unless there is one, as a process leaves it that has run the migrations and
    came no further. To run them takes most of the time of opening a new warehouse, so it is done once."""
    if not file.exists():
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_bytes(_migrated())


def open_catalog(folder: File, url: str | URL | None = None, clock: Clock | None = None) -> Catalog:
    if url is None:
        place_catalog(folder / "catalog.db")
    catalog = Catalog(url or sqlite_url(folder / "catalog.db"), clock)
    if catalog.database.is_sqlite:
        # Nothing here has to survive a power cut; a process that is killed loses nothing either way.
        event.listen(
            catalog.database.engine,
            "connect",
            lambda connection, _: connection.execute("PRAGMA synchronous=OFF"),
        )
    catalog.open()
    return catalog


class Template:
    """A catalog on SQLite that is made once and copied for each history that starts from it."""

    def __init__(self, folder: File, make: Callable[[Catalog], None]) -> None:
        self._file = folder / "template.db"
        self._copies = 0
        catalog = open_catalog(folder, sqlite_url(self._file), ManualClock())
        make(catalog)
        catalog.close()

    def fresh(self, clock: Clock | None = None) -> Catalog:
        copy = self._next()
        shutil.copyfile(self._file, copy)
        return open_catalog(copy.parent, sqlite_url(copy), clock or ManualClock())

    def branch(self, catalog: Catalog) -> Catalog:
        """A catalog that goes on from where another one is now."""
        copy = self._next()
        with (
            contextlib.closing(sqlite3.connect(copy)) as target,
            contextlib.closing(catalog.database.engine.raw_connection()) as source,
        ):
            source.driver_connection.backup(target)  # type: ignore[union-attr]
        return open_catalog(copy.parent, sqlite_url(copy), ManualClock(catalog.clock.now()))

    def _next(self) -> File:
        self._copies += 1
        return self._file.with_name(f"copy{self._copies}.db")


def kept(text: str | None) -> dict[str, Any]:
    """What a record in the catalog holds."""
    assert text is not None
    return records.to_plain(text, "a record")


def counted(metrics: Metrics, name: str, **labels: str) -> float:
    """The present value of one sample, 0 if it has not been counted yet."""
    return metrics.registry.get_sample_value(f"strandline_{name}", labels) or 0.0


def create(catalog: Catalog, path: str, indexes: Sequence[IndexDef] = (BY_V,)) -> TableInfo:
    with catalog.write() as tx:
        return definitions.create(tx, TableDefinition(path, SCHEMA, tuple(indexes)))


def drop(catalog: Catalog, path: str) -> None:
    with catalog.write() as tx:
        row = paths.require(tx.conn, path, "table")
        for below in paths.subtree(tx.conn, row):
            paths.check_ready(below)
        definitions.drop(tx, row)


def commit(catalog: Catalog, info: TableInfo, impls: Iterable[tuple[int, int]], number: int) -> int:
    """One row more, in the table and in each of its (id, version) implementation tables; the rows themselves
    do not matter here."""
    parts = [TableChange(info.id, info.version, None, (segment(),), Digest(1, number))]
    parts += [TableChange(i, version, None, (segment(),), Digest(1, number + i)) for i, version in impls]
    with catalog.write() as tx:
        return commits.commit(tx, parts)


def write(catalog: Catalog, path: str, number: int) -> int:
    """A commit that is planned with what the catalog says now."""
    with catalog.read() as conn:
        info = TableInfo.of(paths.require(conn, path, "table"))
    refs = [(ref.impl_id, ref.version) for ref in info.indexes if ref.definition.is_sync and not ref.omitted]
    return commit(catalog, info, refs, number)


def segment() -> Segment:
    return Segment(
        id=0,
        role="log",
        fresh=True,
        stepped=False,
        after=0,
        upto=PENDING,
        rows=1,
        bytes=1,
        file=None,
        checksum="",
        min_key=(1,),
        max_key=(1,),
        data=b"rows",
    )


def version(conn: Connection, path: str) -> int:
    return paths.require(conn, path).version


def disagreements(seen: Connection | list[paths.Path]) -> list[str]:
    """Tables that a reader can see and whose indexes do not have the version that the table lists."""
    rows = {row.id: row for row in (seen if isinstance(seen, list) else all_paths(seen))}
    wrong = []
    for row in rows.values():
        if row.type != "table" or row.state in paths.CLOSED_STATES:
            continue
        for ref in row.record(TableBody).indexes:
            index, impl = rows.get(ref.index_id), rows.get(ref.impl_id)
            versions = (ref.version, index and index.version, impl and impl.version)
            if len(set(versions)) != 1:
                wrong.append(f"{row.path}/{ref.name}: listed, index, implementation table: {versions}")
    return wrong


def leaks(conn: Connection) -> list[str]:
    """What a finished operation must not leave behind: states, claims, pins, holds without a stream, rows of
    tables without a path."""
    rows = all_paths(conn)
    ids = {row.id for row in rows}
    wrong = [
        f"{row.path} is {row.state}" for row in rows if row.state != "ready" or row.operation_id is not None
    ]
    wrong += [f"claim on path {c.path_id}" for c in conn.execute(select(sqltables.claims))]
    wrong += [f"pin {p.name}" for p in conn.execute(select(sqltables.pins))]
    wrong += [
        f"hold of {h.owner_id} on {h.table_id}"
        for h in conn.execute(select(sqltables.holds))
        if not {h.owner_id, h.table_id} <= ids
    ]
    wrong += [
        f"state of table {t}"
        for t in conn.execute(select(sqltables.tables.c.path_id)).scalars()
        if t not in ids
    ]
    live = conn.execute(
        select(sqltables.chains.c.table_id).where(sqltables.chains.c.removed.is_(None))
    ).scalars()
    wrong += [f"chain of table {t}" for t in set(live) - ids]
    held = {h.owner_id: h for h in conn.execute(select(sqltables.holds))}
    wrong += [
        f"{row.path} has no hold at its cursor"
        for row in rows
        if row.type == "stream" and (row.id not in held or held[row.id].step != row.record(StreamBody).cursor)
    ]
    return wrong


def dump(conn: Connection) -> dict[str, Any]:
    """Everything that matters in the catalog, with paths in place of ids, so that two histories can be
    compared."""
    rows = all_paths(conn)
    named = {row.id: row.path for row in rows}
    return {
        "step": current_step(conn),
        "generation": cache.present(conn).generation,
        "paths": {
            row.path: (
                row.type,
                row.version,
                row.state,
                row.operation_id,
                row.created_step,
                _named(kept(row.body), named),
            )
            for row in rows
        },
        "descriptions": sorted(
            (
                named.get(d.path_id, "?"),
                d.version,
                d.step,
                json.dumps(_named(json.loads(d.body), named), sort_keys=True),
            )
            for d in conn.execute(select(sqltables.descriptions))
        ),
        "board": sorted(
            (p.generation, p.path, p.version, p.dropped) for p in conn.execute(select(sqltables.board))
        ),
        "tables": sorted(
            (named.get(t.path_id, "?"), t.step, t.rows, t.digest, t.followed_step)
            for t in conn.execute(select(sqltables.tables))
        ),
        "chains": sorted(
            (named.get(c.table_id, "?"), c.segment_id, c.added, c.removed or 0)
            for c in conn.execute(select(sqltables.chains))
        ),
        "holds": sorted(
            (named[h.owner_id], named[h.table_id], h.step, h.keeps_state)
            for h in conn.execute(select(sqltables.holds))
        ),
        "leaks": leaks(conn),
        "disagreements": disagreements(conn),
    }


def all_paths(conn: Connection) -> list[paths.Path]:
    """Every path, with one query. A table that has taken another's place may be older or younger than the
    directory it is in."""
    rows = {row.id: row for row in conn.execute(_ALL)}
    names: dict[int | None, str] = {}

    def name(id_: int) -> str:
        row = rows[id_]
        if id_ not in names:
            names[id_] = "" if row.parent_id is None else f"{name(row.parent_id)}/{row.name}"
        return names[id_]

    return [paths.of_row(row, name(row.id) or "/") for row in rows.values()]


_IDS = ("table_id", "index_id", "impl_id", "owner", "source_id", "target_id")
"""The fields of records that are ids of paths."""


def _named(body: Any, named: dict[int, str]) -> Any:
    if isinstance(body, dict):
        return {k: named.get(v, "?") if k in _IDS else _named(v, named) for k, v in body.items()}
    return [_named(v, named) for v in body] if isinstance(body, list) else body


def planned(loader: Loader, paths: Sequence[str]) -> list[TablePlan]:
    """The tables at some paths, from one snapshot of the catalog."""
    return loader.read(lambda look: [loader.plan_table(look, names.normalize(path)) for path in paths])


def poll(cache: SchemeCache) -> None:
    """Let a cache look at the board now, and deliver what was held back."""
    with cache.catalog.read() as conn:
        cache._catch_up(Look(conn, present(conn)))


def forget(*runtimes: Runtime) -> None:
    """What was read of segments' files is not known any more, as if the process had just started."""
    for runtime in runtimes:
        runtime.store.cache = SegmentCache(runtime.files)


def forget_rows(catalog: Catalog) -> None:
    """Nor are the rows of segments that were read from the catalog."""
    catalog._chains = ChainCache()
