"""Several processes on one catalog, in one thread: a seed decides what each of them does next, when it dies, and when it hears of what.

    python -m tests.simulation --seeds 1000        # the first 1000 seeds
    python -m tests.simulation --seed 17           # one of them again, with a line for everything that happens
    python -m tests.simulation --seeds 1000 --eager   # parts publish what they did at once: readers must get mismatched plans

Processes start copies, create and drop streams, tables and indexes, write and read, step the operations they own, cancel others, die
after a transaction and are replaced; those thought dead come back; publications reach each process late and in any order. After every
action all visible versions must agree. In the end everything is brought to rest: nothing may be left over, and every copy holds what
its source held at the step of the cut.
"""

from __future__ import annotations

import argparse
import contextlib
import itertools
import os
import random
import sqlite3
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Callable, Iterable
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass, field, replace
from multiprocessing import get_context
from pathlib import Path as File

from sqlalchemy import Connection, select, update

from strandline.catalog import board, chains, collect, operations, paths, schema, tables
from strandline.catalog.board import Publication
from strandline.catalog.cache import SchemeCache
from strandline.catalog.chains import Stale
from strandline.catalog.engine import Catalog
from strandline.catalog.loader import Loader, TablePlan
from strandline.catalog.operations import DONE, Operation, Part
from strandline.catalog.paths import Path
from strandline.catalog.registry import Claim, Claimed, Held, VersionRegistry
from strandline.catalog.tables import TableInfo
from strandline.errors import AlreadyExists, Internal, PathNotFound, SchemaMismatch, StrandlineError, UnderOperation
from strandline.metrics import Metrics
from strandline.model import Digest
from strandline.operations.engine import Engine
from strandline.operations.scheduler import Shuffled
from strandline.operations.streams import StreamSpec
from strandline.types import parse_type
from tests import world
from tests.world import BY_N, BY_V, Death, ManualClock, Process, copy_request

ACTIONS = 40
REFUSALS = (UnderOperation, AlreadyExists, PathNotFound)
"""What a process may be told when others were faster. Anything else is a defect."""


class EagerRegistry(VersionRegistry):
    """The original mistake: whoever claims a version publishes it at once, before its siblings are done."""

    def claim(self, conn: Connection, operation_id: str, part_id: int, path: Path, target: int | None = None) -> Claim:
        is_new = self.held(conn, path.id) is None
        claim = super().claim(conn, operation_id, part_id, path, target)
        if is_new and isinstance(claim, Claimed):
            paths.set_version(conn, path.id, claim.version)
            board.publish(conn, board.next_step(conn), 0.0, [replace(path, version=claim.version)])
        return claim

    def _write(self, conn: Connection, claim: Held, path: Path | None) -> Path:
        assert path is not None
        return path


class Violation(AssertionError):
    """Something that must never be was seen."""


class SimClock(ManualClock):
    """While somebody sleeps, others act."""

    meanwhile: Callable[[], None] = staticmethod(lambda: None)

    def sleep(self, seconds: float) -> None:
        super().sleep(seconds)
        self.meanwhile()


@dataclass
class Post:
    """Publications on their way to one process: each arrives at some poll, in any order, some of them twice."""

    random: random.Random
    waiting: list[Publication] = field(default_factory=list)

    def __call__(self, new: list[Publication]) -> list[Publication]:
        self.waiting += new
        arriving = [p for p in self.waiting if self.random.random() < 0.4]
        self.waiting = [p for p in self.waiting if p not in arriving or self.random.random() < 0.1]
        self.random.shuffle(arriving)
        return arriving


class Actor:
    """One process: its session, its engine, its cache."""

    def __init__(self, sim: Simulation, name: str) -> None:
        catalog = sim.catalog
        self.name = name
        registry = EagerRegistry() if sim.eager else VersionRegistry()
        self.engine = Engine(
            catalog, Process(catalog, name), world.kinds(), metrics=sim.metrics, scheduler=Shuffled(sim.random), registry=registry,
            new_id=lambda: f"op{next(sim.ids)}",
        )  # fmt: skip
        self.cache = SchemeCache(catalog, poll_seconds=0, delivery=Post(sim.random), metrics=sim.metrics)
        self.loader = Loader(self.cache, catalog.clock, metrics=sim.metrics)
        self.memory: tuple[Operation, Part] | None = None
        """What it was about to do when it was last seen."""


class Simulation:
    """One history. ``trace`` gets a line for everything that happens."""

    def __init__(self, catalog: Catalog, seed: int, *, eager: bool, metrics: Metrics, trace: Callable[[str], None]) -> None:
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
        self.actors = [Actor(self, f"p{next(self.ids)}") for _ in range(3)]
        self.ghosts: list[Actor] = []
        self.cuts: dict[str, dict[str, Digest]] = {}
        self.actions: list[tuple[int, Callable[[Actor], object]]] = [
            (36, self.step), (14, self.read), (8, self.write), (7, self.copy), (4, self.create_stream), (3, self.drop_stream),
            (2, self.create_table), (2, self.drop_table), (3, self.alter_table), (1, self.drop_index), (3, self.cancel),
            (5, self.crash), (4, self.bury), (5, self.take_over), (3, self.haunt), (2, self.sweep),
        ]  # fmt: skip

    def run(self) -> None:
        for _ in range(ACTIONS):
            self.act()
        self.come_to_rest()

    def act(self) -> None:
        weights = [weight for weight, _ in self.actions]
        action = self.random.choices([a for _, a in self.actions], weights)[0]
        actor = self.random.choice(self.actors)
        self.counts["actions"] += 1
        dies = action not in (self.read, self.crash, self.bury) and self.random.random() < 0.06
        told = "done"
        if dies:
            world.die_after(self.catalog, self.random.randint(1, 2))
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

    def check(self) -> None:
        if not self.eager:
            with self.catalog.read() as conn:
                if wrong := world.disagreements(conn):
                    raise Violation(f"a reader can see {wrong}")

    # -- what a process may do ------------------------------------------------------------------------------------------------------

    def step(self, actor: Actor) -> None:
        mine = [o for o in self.unfinished() if o.session_id == actor.name]
        if mine:
            operation = self.random.choice(mine)
            _, runnable = actor.engine.runnable(operation.id)
            actor.memory = (operation, self.random.choice(runnable)) if runnable else None
            actor.engine.step(operation.id)
            self.counts["steps"] += 1

    def read(self, actor: Actor) -> TablePlan | None:
        path = self.pick("table")
        if path is None:
            return None
        try:
            (plan,) = actor.loader.plan([path.path], authoritative=self.random.random() < 0.1)
        except SchemaMismatch as mismatch:
            raise Violation(mismatch.message) from mismatch
        self.counts["plans"] += 1
        if [r.version for r in plan.table.indexes] != [i.version for i in plan.impls]:
            raise Violation(f"a reader was given {plan}")
        return plan

    def write(self, actor: Actor) -> None:
        plan = self.read(actor)
        if plan is None or "indexImplTable" in plan.table.path:
            return
        for _ in range(2):
            refs = [(r.impl_id, r.version) for r in plan.table.indexes if r.definition.is_sync and not r.omitted]
            try:
                world.commit(self.catalog, plan.table, refs, next(self.ids))
                self.counts["commits"] += 1
                return
            except Stale:
                (plan,) = actor.loader.plan([plan.table.path], authoritative=True)
        raise Violation("a commit was stale although it was planned with what the catalog says")

    def copy(self, actor: Actor) -> None:
        with self.catalog.read() as conn:
            found = [p for p in world.all_paths(conn) if p.type == "table" and p.path.count("/") == 1]
            sources = self.random.sample(found, min(len(found), self.random.randint(1, 2)))
            old = [p.path for p in world.all_paths(conn) if p.type == "stream" and p.path.split("/")[1] in {s.name for s in sources}]
        number = next(self.ids)
        request = copy_request(
            *((s.path, f"/c{number}/{s.name}") for s in sources),
            stream=StreamSpec(f"s{number}") if self.random.random() < 0.8 else None,
            omit_indexes=self.random.random() < 0.15,
            drop_streams=tuple(old) if self.random.random() < 0.3 else (),
        )
        if sources:
            operation_id = actor.engine.start("copy", request)
            self.counts["copies"] += 1
            self.cuts[operation_id] = self.states(request["tables"])

    def states(self, pairs: Iterable[tuple[str, str]]) -> dict[str, Digest]:
        """What each target must hold: nothing was committed since the cut, for this runs right after it."""
        with self.catalog.read() as conn:
            return {target: chains.state(conn, paths.require(conn, source).id).digest for source, target in pairs}

    def create_stream(self, actor: Actor) -> None:
        table = self.pick("table")
        if table is not None:
            spec = StreamSpec(f"s{next(self.ids)}")
            actor.engine.start("create stream", {"table": table.path, "stream": spec.to_json()})

    def drop_stream(self, actor: Actor) -> None:
        stream = self.pick("stream")
        if stream is not None:
            actor.engine.start("drop streams", {"streams": [stream.path]})

    def create_table(self, actor: Actor) -> None:
        world.create(self.catalog, f"/t{next(self.ids)}", self.random.choice([(), (BY_V,), (BY_V, BY_N)]))

    def drop_table(self, actor: Actor) -> None:
        table = self.pick("table")
        if table is not None and "indexImplTable" not in table.path:
            world.drop(self.catalog, table.path)

    def alter_table(self, actor: Actor) -> None:
        self.alter(lambda info: replace(info, schema=info.schema.with_column(f"c{info.schema.next_id}", parse_type("Int64"))))

    def drop_index(self, actor: Actor) -> None:
        self.alter(lambda info: replace(info, indexes=info.indexes[1:]))

    def alter(self, change: Callable[[TableInfo], TableInfo]) -> None:
        """DDL of one transaction, which publishes by itself."""
        with self.catalog.write() as conn:
            found = [p for p in world.all_paths(conn) if p.type == "table" and p.name != paths.IMPL_TABLE]
            if not found:
                return
            row = self.random.choice(found)
            paths.check_ready(row)
            info = TableInfo.of(row)
            changed = change(info)
            step = board.next_step(conn)
            for ref in info.indexes:
                if ref not in changed.indexes:
                    index = paths.by_id(conn, ref.index_id)
                    assert index is not None
                    tables.drop(conn, step, 0.0, index)
            tables.alter(conn, step, 0.0, changed)

    def cancel(self, actor: Actor) -> None:
        unfinished = self.unfinished()
        if unfinished:
            with contextlib.suppress(StrandlineError):
                actor.engine.cancel(self.random.choice(unfinished).id)

    def crash(self, actor: Actor) -> None:
        self.counts["deaths"] += 1
        self.replace(actor)

    def replace(self, actor: Actor) -> None:
        """Another process comes in its place; its lease still has to run out, and it may not be dead after all."""
        if actor in self.actors:
            self.ghosts.append(actor)
            self.actors[self.actors.index(actor)] = Actor(self, f"p{next(self.ids)}")

    def bury(self, actor: Actor) -> None:
        """The leases of those thought dead run out."""
        with self.catalog.write() as conn:
            names = [ghost.name for ghost in self.ghosts]
            conn.execute(update(schema.sessions).where(schema.sessions.c.id.in_(names)).values(expires=0.0))

    def take_over(self, actor: Actor) -> None:
        self.counts["taken over"] += len(actor.engine.take_over())

    def haunt(self, actor: Actor) -> None:
        """A process that was thought dead goes on with what it was about to do."""
        if not self.ghosts:
            return
        ghost = self.random.choice(self.ghosts)
        if ghost.memory is not None:
            ghost.engine.advance(*ghost.memory)
            if self.random.random() < 0.5:
                ghost.engine.finish(ghost.memory[0])
        self.counts["haunted"] += 1

    def sweep(self, actor: Actor) -> None:
        with self.catalog.write() as conn:
            collect.sweep(conn, self.clock.now(), 0.0)

    # -- looking --------------------------------------------------------------------------------------------------------------------

    def unfinished(self) -> list[Operation]:
        with self.catalog.read() as conn:
            return operations.unfinished(conn)

    def pick(self, type_: str) -> Path | None:
        with self.catalog.read() as conn:
            found = [p for p in world.all_paths(conn) if p.type == type_ and p.state not in ("creating", "dropping")]
        return self.random.choice(found) if found else None

    def come_to_rest(self) -> None:
        actor = self.actors[0]
        self.depth = 1
        for other in (*self.actors[1:], *self.ghosts):
            if other not in self.ghosts:
                self.ghosts.append(other)
        self.bury(actor)
        actor.engine.resume()
        if self.eager:
            return
        with self.catalog.read() as conn:
            wrong = [f"{o.id} is {o.state}" for o in operations.unfinished(conn)]
            wrong += [f"{o.id}: {o.error}" for o in operations.listed(conn) if o.error and o.error["code"] == Internal.code]
            wrong += world.leaks(conn) + world.disagreements(conn) + self.wrong_copies(conn) + wrong_histories(conn)
        if wrong:
            raise Violation(f"at rest: {wrong}")

    def wrong_copies(self, conn: Connection) -> list[str]:
        wrong = []
        for operation in operations.listed(conn):
            if operation.kind != "copy" or operation.state != DONE or operation.id not in self.cuts:
                continue
            self.counts["copies done"] += 1
            for target, digest in self.cuts[operation.id].items():
                row = paths.find(conn, target)
                created = None if row is None else conn.execute(
                    select(schema.commits).where(schema.commits.c.table_id == row.id).order_by(schema.commits.c.step)
                ).first()  # fmt: skip
                if created is not None and created.kind == "create" and Digest.parse(created.rows, created.digest) != digest:
                    wrong.append(f"{target} does not hold what its source held at the cut")
        return wrong


def wrong_histories(conn: Connection) -> list[str]:
    """Versions of a path are published one after the other, each one greater than the one before, none left out and none twice."""
    seen: dict[int, list[int]] = {}
    for news in board.since(conn, 0):
        if not news.dropped:
            seen.setdefault(news.path_id, []).append(news.version)
    return [f"path {i} was published as {v}" for i, v in seen.items() if v != list(range(1, len(v) + 1))]


class Runner:
    """Runs seeds one after the other on one catalog that is set back to its beginning for each."""

    def __init__(self, *, eager: bool = False, trace: Callable[[str], None] = lambda line: None) -> None:
        folder = File(tempfile.mkdtemp(prefix="strandline-simulation-", dir="/dev/shm" if os.access("/dev/shm", os.W_OK) else None))
        self.template = File(folder / "template.db")
        made = world.open_catalog(folder, f"sqlite:///{self.template}", ManualClock())
        for name, indexes in (("a", [BY_V]), ("b", [BY_V, BY_N])):
            world.create(made, f"/{name}", indexes)
            world.write(made, f"/{name}", 1)
        made.close()
        self.catalog = world.open_catalog(folder, f"sqlite:///{folder / 'catalog.db'}", SimClock())
        self.eager = eager
        self.trace = trace
        self.metrics = Metrics()
        self.counts: Counter[str] = Counter()

    def run(self, seed: int) -> str | None:
        """What was seen that must never be, None if nothing was."""
        self.catalog.clock = SimClock()
        with contextlib.closing(sqlite3.connect(self.template)) as source, contextlib.closing(self.catalog.engine.raw_connection()) as target:
            source.backup(target.driver_connection)  # type: ignore[arg-type]
        simulation = Simulation(self.catalog, seed, eager=self.eager, metrics=self.metrics, trace=self.trace)
        try:
            simulation.run()
        except Violation as violation:
            return str(violation)
        finally:
            self.counts += simulation.counts
        return None


def run_seeds(seeds: range, eager: bool) -> tuple[dict[int, str], Counter[str]]:
    runner = Runner(eager=eager)
    found = {}
    for seed in seeds:
        if violation := runner.run(seed):
            found[seed] = violation
    for result in ("seen", "cured", "failed"):
        runner.counts[f"mismatches {result}"] = int(runner.metrics.value("schema_mismatches_total", result=result))
    return found, runner.counts


def run_all(seeds: range, *, eager: bool = False, workers: int = 2) -> tuple[dict[int, str], Counter[str]]:
    """Violations by seed, and what happened how often. Any division among processes gives the same."""
    found: dict[int, str] = {}
    counts: Counter[str] = Counter()
    chunks = [seeds[i : i + 50] for i in range(0, len(seeds), 50)]
    with ProcessPoolExecutor(workers, mp_context=get_context("spawn")) as pool:
        for wrong, counted in pool.map(run_seeds, chunks, itertools.repeat(eager)):
            found |= wrong
            counts += counted
    return found, counts


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.simulation", description="Random interleavings and crashes, without Spark.")
    parser.add_argument("--seeds", type=int, default=100, help="how many seeds to run, from 0 on")
    parser.add_argument("--seed", type=int, help="run this one only, and tell everything that happens")
    parser.add_argument("--eager", action="store_true", help="switch deferred publication off: mismatches must be found")
    parser.add_argument("--workers", type=int, default=os.cpu_count() or 1)
    chosen = parser.parse_args()
    say = lambda line: sys.stdout.write(f"{line}\n")  # noqa: E731
    if chosen.seed is not None:
        violation = Runner(eager=chosen.eager, trace=say).run(chosen.seed)
        say(f"seed {chosen.seed}: {violation or 'nothing wrong'}")
        return 1 if violation else 0
    started = time.monotonic()
    found, counts = run_all(range(chosen.seeds), eager=chosen.eager, workers=chosen.workers)
    for seed, violation in sorted(found.items())[:20]:
        say(f"seed {seed}: {violation}")
    say(", ".join(f"{number} {what}" for what, number in sorted(counts.items())))
    say(f"{chosen.seeds} seeds in {time.monotonic() - started:.0f} s, {len(found)} with a violation; replay one with --seed N")
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main())
