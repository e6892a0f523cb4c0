"""Reader processes that plan as fast as they can while copies, streams and DDL change the versions of the
tables they read."""

from __future__ import annotations

import itertools
import random
import time
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass, replace
from multiprocessing import get_context
from pathlib import Path

from strandline.catalog import definitions, paths
from strandline.catalog.cache import Loader, SchemeCache
from strandline.catalog.connection import Catalog
from strandline.catalog.sessions import Session
from strandline.catalog.tables import TableInfo
from strandline.errors import StrandlineError
from strandline.metrics import Metrics
from strandline.operations.engine import Engine
from strandline.operations.streams import StreamSpec
from strandline.types import parse_type
from tests.catalogs import BY_N, BY_V, counted, create, drop, planned
from tests.engines import copy_request, drop_of, engine_of, execute, listed

TABLES = ("/a", "/b", "/c", "/d")
ROUNDS = 4
"""So many rounds of changes there are at least while all readers are at work."""
WATCHED = tuple(
    itertools.chain(TABLES, (f"{t}/{i.name}/indexImplTable" for t in TABLES for i in (BY_V, BY_N)))
)


@dataclass(frozen=True)
class Readings:
    """What one reader process saw. ``versions``: how many different versions of tables it planned with."""

    plans: int
    seconds: float
    cpu_seconds: float
    versions: int
    errors: tuple[str, ...]
    seen: int
    cured: int
    delays: tuple[float, ...]


@dataclass(frozen=True)
class Load:
    """What all of them saw, and how much was changed meanwhile."""

    readers: tuple[Readings, ...]
    operations: int
    changes: int
    publication_delay: float


def prepare(catalog: Catalog) -> None:
    for table in TABLES:
        create(catalog, table, [BY_V, BY_N])


def read(url: str, seconds: float, seed: int, stop: Path | None = None) -> Readings:
    """One process: a cache, a loader, and no pause between plans; for so many seconds, and until there is a
    file ``stop``. Each path is read before it says that it has begun, and once more in the end."""
    random_ = random.Random(seed)
    catalog = Catalog(url)
    catalog.open()
    metrics = Metrics()
    cache = SchemeCache(catalog, metrics=metrics)
    loader = Loader(cache, catalog.clock, metrics=metrics)
    order = [random_.choice(WATCHED) for _ in range(997)]
    versions: set[tuple[str, int]] = set()
    errors: list[str] = []

    def plan_of(path: str) -> None:
        try:
            (plan,) = planned(loader, [path])
        except StrandlineError as error:
            errors.append(str(error))
            return
        if [r.version for r in plan.table.indexes] != [i.version for i in plan.impls]:
            errors.append(f"mismatched plan of {path}")
        versions.add((path, plan.table.version))

    for path in WATCHED:
        plan_of(path)
    if stop is not None:
        _begun(stop, seed).touch()
    plans, start, cpu = 0, time.perf_counter(), time.process_time()
    while (spent := time.perf_counter() - start) < seconds or not (stop is None or stop.exists()):
        plan_of(order[plans % len(order)])
        plans += 1
    cpu = time.process_time() - cpu
    for path in WATCHED:
        plan_of(path)
    catalog.close()
    seen, cured = (int(counted(metrics, "schema_mismatches_total", result=r)) for r in ("seen", "cured"))
    return Readings(plans, spent, cpu, len(versions), tuple(errors), seen, cured, delays(metrics))


def _begun(stop: Path, seed: int) -> Path:
    """The file that says that a reader is at work."""
    return stop.with_name(f"{stop.name}-{seed}")


def delays(metrics: Metrics) -> tuple[float, ...]:
    """Count and sum of the delays from publication to arrival, and how many were at most 50 and 250 ms."""
    at_most = (counted(metrics, "delivery_delay_seconds_bucket", le=limit) for limit in ("0.05", "0.25"))
    return (
        counted(metrics, "delivery_delay_seconds_count"),
        counted(metrics, "delivery_delay_seconds_sum"),
        *at_most,
    )


def run_load(catalog: Catalog, url: str, stop: Path, *, readers: int, seconds: float) -> Load:
    """Readers in processes of their own, changes in this one, for so many seconds; on a busy machine for
    longer, until there were a few rounds of changes beside all of them. ``stop`` is a file that is not there
    yet."""
    session = Session(catalog, 60.0, 60.0)
    engine = engine_of(catalog, lease=session)
    changes = beside = 0
    with ProcessPoolExecutor(readers, mp_context=get_context("spawn")) as pool:
        # Processes take their time to start; what is measured begins when each of them is there.
        futures = [pool.submit(read, url, seconds, seed, stop) for seed in range(readers)]
        for number in itertools.count():
            if all(f.done() for f in futures):
                break
            if beside == ROUNDS:
                stop.touch()
            beside += all(f.done() or _begun(stop, seed).exists() for seed, f in enumerate(futures))
            change(catalog, engine, number)
            changes += 1
        seen = tuple(f.result() for f in futures)
    session.close()
    ended = [o for o in listed(engine) if o.state == "done"]
    count = counted(engine.metrics, "publication_delay_seconds_count")
    return Load(
        seen, len(ended), changes, counted(engine.metrics, "publication_delay_seconds_sum") / max(count, 1)
    )


def change(catalog: Catalog, engine: Engine, number: int) -> None:
    """One round: a copy with streams of two tables, DDL, the streams dropped again."""
    first, second = TABLES[number % 4], TABLES[(number + 1) % 4]
    stream = StreamSpec(name=f"s{number}")
    execute(
        engine, "copy", copy_request((first, f"/copies{first}"), (second, f"/copies{second}"), stream=stream)
    )
    with catalog.write() as tx:
        info = TableInfo.of(paths.require(tx.conn, TABLES[number % 3]))
        added = info.schema.with_column(f"c{number}", parse_type("Int64"))
        if len(added.columns) > 20:
            added = added.without_column(added.columns[-2].name)
        definitions.alter(tx, replace(info, schema=added))
    with catalog.read() as conn:
        found = [
            p.path
            for t in (first, second)
            for p in paths.subtree(conn, paths.require(conn, t))
            if p.type == "stream"
        ]
    execute(engine, "drop streams", drop_of(*found))
    for table in (first, second):
        drop(catalog, f"/copies{table}")
