"""Saved catalog states of one small warehouse: go back to them and compare them."""

from __future__ import annotations

import contextlib
import json
import sqlite3
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

from sqlalchemy import select, update

from strandline import Database
from strandline.catalog import operations, sqltables
from strandline.catalog.connection import Catalog
from strandline.catalog.engines import sqlite_url
from strandline.catalog.sessions import Session
from strandline.operations.engine import Engine
from strandline.runtime import Runtime
from tests import catalogs
from tests.backups.reading import HERE, open_at
from tests.catalogs import ManualClock, forget_rows
from tests.quick_files import QuickFiles
from tests.tables.examples import NoSpark

BEGUN = 1_750_000_000.0
ALONE = replace(HERE, parts_together=1)


class Unattended(Session):
    """A session that no thread renews."""

    def _renew(self) -> None:
        return


class Branches:
    """A warehouse whose catalog can be set back to an earlier state.

    All its rows are inline in the catalog. Its clock stands still, so that two histories can be compared.
    """

    def __init__(self, folder: Path, make: Callable[[Database], None]) -> None:
        self._folder = folder
        self._catalogs: list[Catalog] = []
        with open_at(folder, clock=ManualClock(BEGUN)) as db:
            make(db)
        self.catalog = self.connect()

    def connect(self) -> Catalog:
        """Open another connection.

        Use few: the SQLAlchemy cache of compiled statements belongs to a connection.
        """
        url = sqlite_url(self._folder / "catalog.sqlite")
        self._catalogs.append(catalogs.open_catalog(self._folder, url, ManualClock(BEGUN + 1)))
        return self._catalogs[-1]

    def close(self) -> None:
        for catalog in self._catalogs:
            catalog.close()

    @contextlib.contextmanager
    def _raw(self) -> Iterator[sqlite3.Connection]:
        with contextlib.closing(self.catalog.database.engine.raw_connection()) as raw:
            yield raw.driver_connection

    def keep(self) -> sqlite3.Connection:
        kept = sqlite3.connect(":memory:")
        with self._raw() as raw:
            raw.backup(kept)
        return kept

    def go_back(self, kept: sqlite3.Connection) -> None:
        with self._raw() as raw:
            kept.backup(raw)
        for catalog in self._catalogs:
            forget_rows(catalog)  # The same ids may have other rows now.

    def database(self, catalog: Catalog) -> Database:
        """Return the database of a new process, which runs its parts one by one."""
        nothing: Any = NoSpark()
        runtime = Runtime(catalog, QuickFiles(self._folder), ALONE, catalog.clock, nothing)
        runtime.session = Unattended(catalog, ALONE.session_seconds, ALONE.grace_seconds)
        return Database(runtime)

    def process(self) -> Engine:
        """Return the engine of another process, for the only operation."""
        engine = self.database(self.catalog)._operations.engine
        engine.new_id = lambda: "op"
        return engine

    def bury(self) -> None:
        """Let the leases of all processes expire."""
        with self.catalog.write() as tx:
            tx.conn.execute(update(sqltables.sessions).values(expires=0.0))

    def canonical(self) -> str:
        """Return the content of the catalog that matters, independent of the order of ids."""
        with self.catalog.read() as conn:
            found = catalogs.dump(conn)
            assert found["disagreements"] == []
            found["leaks"] = len(found["leaks"])  # They contain path ids.
            named = {p.id: p.path for p in catalogs.all_paths(conn)}
            segments = {s.id: _content(s) for s in conn.execute(select(sqltables.segments))}
            found["chains"] = sorted((at, segments[i], *rest) for at, i, *rest in found["chains"])
            at = sqltables.claims.c
            claims = select(at.path_id, at.operation_id, at.published, at.version)
            found["claims"] = sorted((named[i], *rest) for i, *rest in conn.execute(claims))
            parts = operations.parts(conn, "op")
            found["parts"] = sorted((p.kind, p.stage, p.state, p.attempt) for p in parts)
        return json.dumps(found, sort_keys=True)


def _content(segment: Any) -> str:
    at = segment
    return repr(
        (at.role, at.fresh, at.stepped, at.after, at.upto, at.rows, at.checksum, at.min_key, at.max_key)
    )
