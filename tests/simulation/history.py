"""A history of the simulation of versions: random actions, and the checks after each and at the end."""

from __future__ import annotations

import contextlib
import itertools
import random
from collections import Counter
from collections.abc import Callable, Iterable
from dataclasses import replace

from sqlalchemy import Connection, event, select, update

from strandline.catalog import (
    chains,
    definitions,
    garbage_collection,
    operations,
    paths,
    publication_log,
    sqltables,
)
from strandline.catalog.cache import TablePlan, Unit
from strandline.catalog.conflicts import Stale
from strandline.catalog.connection import Catalog
from strandline.catalog.operations import DONE, OperationRow
from strandline.catalog.paths import Path
from strandline.catalog.tables import TableInfo
from strandline.errors import (
    AlreadyExists,
    Internal,
    PathNotFound,
    SchemaMismatch,
    StrandlineError,
    UnderOperation,
)
from strandline.metrics import Metrics
from strandline.model import Digest
from strandline.operations.streams import StreamSpec
from strandline.types import parse_type
from tests import catalogs
from tests.catalogs import BY_N, BY_V, GRACE_SECONDS, Death, kept, planned, poll
from tests.engines import copy_request, drop_of, resume, stream_on
from tests.simulation.actors import Actor, SimClock

ACTIONS = 16
REFUSALS = (UnderOperation, AlreadyExists, PathNotFound)
"""Errors that a process may get because others were faster. Any other error is a defect."""


class Violation(AssertionError):
    """A state that must never occur."""


class Simulation:
    """A history. ``trace`` is called with a line for each event."""

    def __init__(
        self, catalog: Catalog, seed: int, *, eager: bool, metrics: Metrics, trace: Callable[[str], None]
    ) -> None:
        self.catalog = catalog
        self.random = random.Random(seed)
        self.eager = eager
        self.metrics = metrics
        self.trace = trace
        self.ids = itertools.count(1)
        self.counts: Counter[str] = Counter()
        self.depth = 0
        self.clock = catalog.clock
        assert isinstance(self.clock, SimClock)
        self.clock.meanwhile = self.meanwhile
        self.actors = [self.newcomer() for _ in range(3)]
        self.ghosts: list[Actor] = []
        self.cuts: dict[str, dict[str, Digest]] = {}
        self.known: list[Path] | None = None
        self.open: list[OperationRow] | None = None
        event.listen(catalog.database.engine, "commit", self.changed)
        self.actions: list[tuple[int, Callable[[Actor], object]]] = [
            (36, self.step), (18, self.read), (8, self.write), (7, self.copy), (4, self.create_stream), (3, self.drop_stream),
            (2, self.create_table), (2, self.drop_table), (3, self.alter_table), (1, self.drop_index), (3, self.cancel),
            (5, self.crash), (4, self.bury), (5, self.take_over), (3, self.haunt), (2, self.sweep),
        ]  # fmt: skip

    def newcomer(self) -> Actor:
        name = f"p{next(self.ids)}"
        return Actor(
            self.catalog, name, self.random, lambda: f"op{next(self.ids)}", self.metrics, eager=self.eager
        )

    def run(self) -> None:
        for _ in range(ACTIONS):
            self.act()
        self.come_to_rest()

    def close(self) -> None:
        event.remove(self.catalog.database.engine, "commit", self.changed)

    def act(self) -> None:
        weights = [weight for weight, _ in self.actions]
        action = self.random.choices([a for _, a in self.actions], weights)[0]
        busy = {o.session_id for o in self.unfinished()} if action == self.step else set()
        actor = self.random.choice([a for a in self.actors if a.name in busy] or self.actors)
        self.counts["actions"] += 1
        dies = action not in (self.read, self.crash, self.bury) and self.random.random() < 0.06
        told = "done"
        if dies:
            catalogs.die_after(self.catalog, self.random.randint(1, 2))
        try:
            action(actor)
        except Death:
            told = "died"
            self.counts["deaths"] += 1
            self.replace(actor)
        except REFUSALS as refusal:
            told = f"refused: {refusal.message}"
            self.counts["refusals"] += 1
        finally:
            self.catalog.after_commit = lambda: None
        self.trace(f"{'  ' * self.depth}{actor.name} {action.__name__}: {told}")
        self.check()

    def meanwhile(self) -> None:
        if self.depth < 1:
            self.depth += 1
            for _ in range(self.random.randint(0, 3)):
                self.act()
            self.depth -= 1

    def changed(self, conn: Connection) -> None:
        self.known = self.open = None

    def paths(self) -> list[Path]:
        """Return all paths as they are now."""
        if self.known is None:
            with self.catalog.read() as conn:
                self.known = catalogs.all_paths(conn)
        return self.known

    def check(self) -> None:
        if self.known is None and not self.eager and (wrong := catalogs.disagreements(self.paths())):
            raise Violation(f"a reader can see {wrong}")

    # -- what a process may do
    # ------------------------------------------------------------------------------------------------------

    def step(self, actor: Actor) -> None:
        mine = [o for o in self.unfinished() if o.session_id == actor.name]
        if mine:
            operation = self.random.choice(mine)
            if self.random.random() < 0.2:
                _, runnable = actor.engine.transitions.runnable(operation.id)
                actor.memory = (operation, self.random.choice(runnable)) if runnable else None
            for _ in range(self.random.randint(1, 6)):
                self.counts["steps"] += 1
                if not actor.engine.step(operation.id):
                    break
                self.check()

    def read(self, actor: Actor) -> None:
        """Plan a few queries on a table and on the implementation tables of its indexes."""
        table = self.random.choice(
            [p for p in self.paths() if p.path in ("/a", "/b")] or [self.pick("table")]
        )
        if table is not None:
            poll(actor.cache)
            near = [p.path for p in self.paths() if p.type == "table" and p.path.startswith(table.path)]
            for _ in range(5):
                self.plan(actor, self.random.choice([table.path, *near]))

    def plan(self, actor: Actor, path: str) -> TablePlan:
        try:
            (plan,) = planned(actor.loader, [path])
        except SchemaMismatch as mismatch:
            raise Violation(mismatch.message) from mismatch
        self.counts["plans"] += 1
        if [r.version for r in plan.table.indexes] != [i.version for i in plan.impls]:
            raise Violation(f"a reader was given {plan}")
        return plan

    def write(self, actor: Actor) -> None:
        table = self.pick("table")
        if table is None or table.name == paths.IMPL_TABLE:
            return
        plan = self.plan(actor, table.path)
        for _ in range(2):
            refs = [
                (r.impl_id, r.version) for r in plan.table.indexes if r.definition.is_sync and not r.omitted
            ]
            try:
                catalogs.commit(self.catalog, plan.table, refs, next(self.ids))
                self.counts["commits"] += 1
                return
            except Stale as stale:
                self.trace(f"{stale}")
                actor.cache.forget(Unit(plan.table, plan.impls))
                plan = self.plan(actor, plan.table.path)
        raise Violation("a commit was stale although it was planned with what the catalog says")

    def copy(self, actor: Actor) -> None:
        found = [p for p in self.paths() if p.type == "table" and p.path.count("/") == 1]
        sources = self.random.sample(found, min(len(found), self.random.randint(1, 2)))
        old = [
            p.path
            for p in self.paths()
            if p.type == "stream" and p.path.split("/")[1] in {s.name for s in sources}
        ]
        number = next(self.ids)
        request = copy_request(
            *((s.path, f"/c{number}/{s.name}") for s in sources),
            stream=StreamSpec(name=f"s{number}") if self.random.random() < 0.8 else None,
            omit_indexes=self.random.random() < 0.15,
            drop_streams=tuple(old) if self.random.random() < 0.3 else (),
        )
        if sources:
            operation_id = actor.engine.start("copy", request)
            self.counts["copies"] += 1
            self.cuts[operation_id] = self.states(request.tables)

    def states(self, pairs: Iterable[tuple[str, str]]) -> dict[str, Digest]:
        """Return what each target must hold.

        This runs right after the cut, so nothing was committed since.
        """
        with self.catalog.read() as conn:
            return {
                target: chains.state(conn, paths.require(conn, source).id).digest for source, target in pairs
            }

    def create_stream(self, actor: Actor) -> None:
        table = self.pick("table")
        if table is not None:
            spec = StreamSpec(name=f"s{next(self.ids)}")
            actor.engine.start("create stream", stream_on(table.path, spec))

    def drop_stream(self, actor: Actor) -> None:
        stream = self.pick("stream")
        if stream is not None:
            actor.engine.start("drop streams", drop_of(stream.path))

    def create_table(self, actor: Actor) -> None:
        catalogs.create(self.catalog, f"/t{next(self.ids)}", self.random.choice([(), (BY_V,), (BY_V, BY_N)]))

    def drop_table(self, actor: Actor) -> None:
        table = self.pick("table")
        if table is not None and table.name != paths.IMPL_TABLE:
            catalogs.drop(self.catalog, table.path)

    def alter_table(self, actor: Actor) -> None:
        self.alter(
            lambda info: replace(
                info, schema=info.schema.with_column(f"c{info.schema.next_id}", parse_type("Int64"))
            )
        )

    def drop_index(self, actor: Actor) -> None:
        self.alter(lambda info: replace(info, indexes=info.indexes[1:]))

    def alter(self, change: Callable[[TableInfo], TableInfo]) -> None:
        """Run DDL that is a single transaction and publishes its own change."""
        table = self.pick("table")
        if table is None or table.name == paths.IMPL_TABLE:
            return
        with self.catalog.write() as tx:
            row = paths.require(tx.conn, table.path)
            paths.check_ready(row)
            info = TableInfo.of(row)
            changed = change(info)
            for ref in info.indexes:
                if ref not in changed.indexes:
                    index = paths.by_id(tx.conn, ref.index_id)
                    assert index is not None
                    definitions.drop(tx, index)
            definitions.alter(tx, changed)

    def cancel(self, actor: Actor) -> None:
        unfinished = self.unfinished()
        if unfinished:
            with contextlib.suppress(StrandlineError):
                actor.engine.cancel(self.random.choice(unfinished).id)

    def crash(self, actor: Actor) -> None:
        self.counts["deaths"] += 1
        self.replace(actor)

    def replace(self, actor: Actor) -> None:
        """Replace a process by another one; its lease has not expired yet, and it may still be alive."""
        if actor in self.actors:
            self.ghosts.append(actor)
            self.actors[self.actors.index(actor)] = self.newcomer()

    def bury(self, actor: Actor) -> None:
        """Let the leases of processes taken for dead expire."""
        with self.catalog.write() as tx:
            names = [ghost.name for ghost in self.ghosts]
            tx.conn.execute(
                update(sqltables.sessions).where(sqltables.sessions.c.id.in_(names)).values(expires=0.0)
            )

    def take_over(self, actor: Actor) -> None:
        self.counts["taken over"] += len(actor.engine.take_over())

    def haunt(self, actor: Actor) -> None:
        """Let a process that was taken for dead continue with its next transition."""
        if not self.ghosts:
            return
        ghost = self.random.choice(self.ghosts)
        if ghost.memory is not None:
            ghost.engine.transitions.advance(*ghost.memory)
            if self.random.random() < 0.5:
                ghost.engine.finish(ghost.memory[0])
        self.counts["haunted"] += 1

    def sweep(self, actor: Actor) -> None:
        with self.catalog.write() as tx:
            garbage_collection.sweep(tx, history_seconds=0.0, grace_seconds=GRACE_SECONDS)

    # -- looking
    # --------------------------------------------------------------------------------------------------------

    def unfinished(self) -> list[OperationRow]:
        if self.open is None:
            with self.catalog.read() as conn:
                self.open = operations.unfinished_operations(conn)
        return self.open

    def pick(self, type_: str) -> Path | None:
        found = [p for p in self.paths() if p.type == type_ and p.state not in ("creating", "dropping")]
        return self.random.choice(found) if found else None

    def come_to_rest(self) -> None:
        actor = self.actors[0]
        self.depth = 1
        for other in (*self.actors[1:], *self.ghosts):
            if other not in self.ghosts:
                self.ghosts.append(other)
        self.bury(actor)
        for operation in self.unfinished():
            if self.random.random() < 0.5:
                actor.engine.cancel(operation.id)
        resume(actor.engine)
        for reader in self.actors:
            self.read(reader)
        if self.eager:
            return
        with self.catalog.read() as conn:
            wrong = [f"{o.id} is {o.state}" for o in operations.unfinished_operations(conn)]
            wrong += [
                f"{o.id}: {o.error}"
                for o in operations.list_operations(conn)
                if o.error and kept(o.error)["code"] == Internal.code
            ]
            wrong += (
                catalogs.leaks(conn)
                + catalogs.disagreements(catalogs.all_paths(conn))
                + self.wrong_copies(conn)
                + wrong_histories(conn)
            )
        if wrong:
            raise Violation(f"at rest: {wrong}")

    def wrong_copies(self, conn: Connection) -> list[str]:
        wrong = []
        for operation in operations.list_operations(conn):
            if operation.kind != "copy" or operation.state != DONE or operation.id not in self.cuts:
                continue
            self.counts["copies done"] += 1
            for target, digest in self.cuts[operation.id].items():
                row = paths.find(conn, target)
                created = None if row is None else conn.execute(
                    select(sqltables.commits).where(sqltables.commits.c.table_id == row.id).order_by(sqltables.commits.c.step)
                ).first()  # fmt: skip
                if (
                    created is not None
                    and created.kind == "create"
                    and Digest.parse(created.rows, created.digest) != digest
                ):
                    wrong.append(f"{target} does not hold what its source held at the cut")
        return wrong


def wrong_histories(conn: Connection) -> list[str]:
    """Return the paths whose published versions are not 1, 2, 3 and so on."""
    seen: dict[int, list[int]] = {}
    for news in publication_log.since(conn, 0):
        if not news.dropped:
            seen.setdefault(news.path_id, []).append(news.version)
    return [f"path {i} was published as {v}" for i, v in seen.items() if v != list(range(1, len(v) + 1))]
