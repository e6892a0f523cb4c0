"""The orders in which the parts of an operation on real tables can come: states of one small warehouse that are
kept, gone back to and compared."""

from __future__ import annotations

import contextlib
import json
import random
import sqlite3
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from sqlalchemy import select, update

from strandline import Database
from strandline.api.operations import Operations
from strandline.catalog import operations, sqltables
from strandline.catalog.connection import sqlite_url
from strandline.catalog.operations import DONE, Part
from strandline.catalog.sessions import Session
from strandline.operations.engine import Engine
from strandline.records import Record
from strandline.runtime import Runtime
from tests import world
from tests.backups.reading import HERE, open_at
from tests.memory import forget_rows
from tests.tables.examples import NoSpark, QuickFiles
from tests.world import ManualClock

BEGUN = 1_750_000_000.0


class Unattended(Session):
    """A session that no thread renews."""

    def _renew(self) -> None:
        return


class Branches:
    """A warehouse whose catalog can be set back to where it was. Its rows must all be in the catalog. Time
    stands still in it, so that two histories can be compared."""

    def __init__(self, folder: Path, make: Callable[[Database], None]) -> None:
        self._folder = folder
        with open_at(folder, clock=ManualClock(BEGUN)) as db:
            make(db)
        self.catalog = world.open_catalog(
            folder, sqlite_url(folder / "catalog.sqlite"), ManualClock(BEGUN + 1)
        )

    def close(self) -> None:
        self.catalog.close()

    @contextlib.contextmanager
    def _raw(self) -> Iterator[sqlite3.Connection]:
        with contextlib.closing(self.catalog.engine.raw_connection()) as raw:
            yield raw.driver_connection

    def keep(self) -> sqlite3.Connection:
        kept = sqlite3.connect(":memory:")
        with self._raw() as raw:
            raw.backup(kept)
        return kept

    def go_back(self, kept: sqlite3.Connection) -> None:
        with self._raw() as raw:
            kept.backup(raw)
        forget_rows(self.catalog)  # The same ids may stand for others.

    def process(self) -> Engine:
        """Another process, which has read nothing yet."""
        nothing: Any = NoSpark()
        runtime = Runtime(self.catalog, QuickFiles(self._folder), HERE, self.catalog.clock, nothing)
        runtime.session = Unattended(self.catalog, HERE.session_seconds, HERE.grace_seconds)
        engine = Operations(runtime).engine
        engine.together, engine._new_id = 1, lambda: "op"
        return engine

    def bury(self) -> None:
        """The leases of all who live run out."""
        with self.catalog.write() as tx:
            tx.conn.execute(update(sqltables.sessions).values(expires=0.0))

    def canonical(self) -> str:
        """All that matters of the catalog, whatever the order in which ids were given out."""
        with self.catalog.read() as conn:
            found = world.dump(conn)
            assert found["disagreements"] == []
            found["leaks"] = len(found["leaks"])  # They name paths by ids.
            named = {p.id: p.path for p in world.all_paths(conn)}
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


class Orders:
    """One operation that has begun, and all ways to its end."""

    def __init__(self, branches: Branches, kind: str, request: Record) -> None:
        self.branches = branches
        self.engine = branches.process()
        self.engine.start(kind, request)
        self.start = branches.keep()
        self.nodes: dict[frozenset[str], str] = {}
        self.edges = self.deaths = 0

    def plain(self) -> str:
        """How it ends if its parts come as they were planned."""
        self._again(self.start)
        assert self.engine.run("op").state == DONE
        return self.branches.canonical()

    def shuffled(self, random_: random.Random, *, whole: bool, dies: float) -> str:
        """How it ends in an order that the random numbers say: one part after the other, or with their phases
        mixed. ``dies``: how often its process dies after a transition."""
        self._again(self.start)
        while runnable := self.engine.runnable("op")[1]:
            part = random_.choice(runnable)
            while True:
                part = self._transition(part)
                if random_.random() < dies:
                    self._die()
                if not whole or part.state == DONE:
                    break
        self.engine.step("op")
        return self.branches.canonical()

    def explore(self, *, deaths: bool) -> set[str]:
        """All ends. A node is a set of parts that are done; all ways to it lead to the same catalog, so one of
        them is followed further: then all orders lead to the same end. ``deaths``: after each transition the
        process dies, and another one takes over."""
        level = {frozenset[str](): self.start}
        ends = set()
        while level:
            following: dict[frozenset[str], sqlite3.Connection] = {}
            for done, here in level.items():
                self._again(here)
                runnable = self.engine.runnable("op")[1]
                for part in runnable:
                    self._again(here)
                    self._carry_out(part, deaths=deaths)
                    node, state = done | {f"{part.kind} {part.stage} {part.body}"}, self.branches.canonical()
                    assert state == self.nodes.setdefault(node, state), sorted(node)
                    if node not in following:
                        following[node] = self.branches.keep()
                if not runnable:
                    self.engine.step("op")
                    ends.add(self.branches.canonical())
                if here is not self.start:
                    here.close()
            level = following
        return ends

    def _again(self, kept: sqlite3.Connection) -> None:
        """Go on from what was kept, as the process that the operation belongs to."""
        self.branches.go_back(kept)
        self.engine = self.branches.process()
        session = self.engine.get("op").session_id
        self.engine.lease = world.Process(self.branches.catalog, session)

    def _carry_out(self, part: Part, *, deaths: bool) -> None:
        self.edges += 1
        while part.state != DONE:
            part = self._transition(part)
            if deaths:
                self._die()

    def _transition(self, part: Part) -> Part:
        assert self.engine.advance(self.engine.get("op"), part)
        with self.branches.catalog.read() as conn:
            return operations.present_parts(conn, "op", [part.id])[part.id]

    def _die(self) -> None:
        self.deaths += 1
        self.branches.bury()
        self.engine = self.branches.process()
        assert self.engine.take_over() == ["op"]
