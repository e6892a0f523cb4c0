"""The metrics of a warehouse in the Prometheus text format.

Counters of all processes are stored in the catalog, and gauges are computed from the catalog. So every
process returns the same metrics. Counts that this process has not stored yet are added.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass

from prometheus_client import CollectorRegistry, generate_latest
from prometheus_client.core import GaugeMetricFamily, Metric
from prometheus_client.registry import Collector
from sqlalchemy import Connection

from strandline.backups.collection import CLUSTER
from strandline.backups.health import Standing, find_unprotected, protection_of, standings
from strandline.catalog import alarms, metrics_buffer, monitoring
from strandline.catalog.metrics_buffer import Count
from strandline.runtime import Runtime


@dataclass(frozen=True)
class Gauge:
    """The definition of a gauge metric."""

    name: str
    meaning: str
    labels: tuple[str, ...]


OPERATIONS = Gauge(
    "strandline_operations_listed", "Operations that are not forgotten, by kind and state.", ("kind", "state")
)
UNFINISHED = Gauge(
    "strandline_operations_unfinished_since_timestamp_seconds",
    "Start time of the oldest unfinished operation of a kind.",
    ("kind",),
)
BACKUPS = Gauge("strandline_backups", "Finished backups of a collection.", ("collection",))
LAST = Gauge("strandline_backup_timestamp_seconds", "Time of the last backup.", ("collection",))
BYTES = Gauge("strandline_backup_bytes", "Size of the last backup in bytes.", ("collection",))
CHAIN = Gauge(
    "strandline_backup_chain_length",
    "Number of backups that a restore of the last backup needs, including itself and the full backup.",
    ("collection",),
)
RESTORABLE_UNTIL = Gauge(
    "strandline_restorable_until_timestamp_seconds",
    "Up to when the collection can be restored from its storage: the time of the newest backup whose chain "
    "is complete there and not known to be damaged.",
    ("collection",),
)
PROVED = Gauge(
    "strandline_proved_timestamp_seconds",
    "Time of the newest successful verification of a backup in the chain of the newest backup that can be "
    "restored, by level.",
    ("collection", "level"),
)
OBJECTIVE = Gauge(
    "strandline_objective_seconds",
    "Objective of the collection: rpo or proved_within.",
    ("collection", "objective"),
)
OBJECTIVE_MISSED = Gauge(
    "strandline_objective_missed",
    "1 if the collection misses its objective, else 0.",
    ("collection", "objective"),
)
RESTORABLE = Gauge(
    "strandline_backup_restorable_until_timestamp_seconds",
    "Up to when the collection can be restored after the loss of this machine: the time of the last backup "
    "that is in the repository with its whole chain, and that no verification has found unrestorable.",
    ("collection",),
)
RESTORABLE_HERE = Gauge(
    "strandline_backup_restorable_here_until_timestamp_seconds",
    "Up to when the collection can be restored on this machine: the time of the last backup, at any "
    "location, that no verification has found unrestorable.",
    ("collection",),
)
UNSENT = Gauge(
    "strandline_backups_unsent",
    "Backups that are not uploaded to the repository of their collection, if it has one.",
    ("collection",),
)
UNSENT_SINCE = Gauge(
    "strandline_backup_unsent_since_timestamp_seconds",
    "Time of the oldest backup that is not uploaded to the repository of its collection.",
    ("collection",),
)
UNPROTECTED = Gauge(
    "strandline_tables_unprotected",
    "Tables in no backup collection, except those in the setting scratch_tables.",
    (),
)
VERIFIED = Gauge(
    "strandline_backup_verified_timestamp_seconds",
    "Time of the last verification of the collection at a level.",
    ("collection", "level"),
)
BROKEN = Gauge(
    "strandline_backups_not_restorable",
    "Number of backups that are known to be unrestorable, by the level that found it. Damage that a "
    "restore or a copy found counts at the level checksums.",
    ("collection", "level"),
)
HELD = Gauge(
    "strandline_backup_held_bytes",
    "Bytes that tables no longer need, kept by the streams of the collection for its next increment.",
    ("collection",),
)
STREAM_HELD = Gauge(
    "strandline_stream_held_bytes",
    "Bytes that the table no longer needs, kept by a changefeed.",
    ("stream",),
)
ALARMS = Gauge("strandline_alarms", "Open alarms, by kind and level.", ("kind", "level"))
LAG_STEPS = Gauge(
    "strandline_stream_lag_steps", "Number of steps that a changefeed is behind its table.", ("stream",)
)
LAG_SECONDS = Gauge(
    "strandline_stream_lag_seconds",
    "Age of the oldest change that the reader of a changefeed has not committed; 0 without one.",
    ("stream",),
)
COMMITTED = Gauge(
    "strandline_table_committed_bytes",
    "Bytes that commits have written to a table and its indexes.",
    ("table",),
)
MERGED = Gauge(
    "strandline_table_merged_bytes",
    "Bytes that merges, compactions and rebuilds of indexes have written for a table and its indexes.",
    ("table",),
)
GAUGES = (
    OPERATIONS,
    UNFINISHED,
    BACKUPS,
    LAST,
    BYTES,
    CHAIN,
    RESTORABLE_UNTIL,
    PROVED,
    OBJECTIVE,
    OBJECTIVE_MISSED,
    RESTORABLE,
    RESTORABLE_HERE,
    UNSENT,
    UNSENT_SINCE,
    UNPROTECTED,
    VERIFIED,
    BROKEN,
    HELD,
    STREAM_HELD,
    ALARMS,
    LAG_STEPS,
    LAG_SECONDS,
    COMMITTED,
    MERGED,
)


Sample = tuple[Gauge, tuple[str, ...], float]


def render(runtime: Runtime) -> str:
    """Return all metrics as text, from one snapshot of the catalog."""
    untold, now = runtime.catalog.ledger, runtime.clock.now()
    with untold.lock, runtime.catalog.read() as conn:
        counts = metrics_buffer.counts(conn)
        for count, more in untold.untold().items():
            counts[count] = counts.get(count, 0.0) + more
        held = monitoring.count_held_bytes(conn)
        found = list(standings(conn))
        left_out = find_unprotected(
            conn, [each.collection for each in found], runtime.settings.scratch_tables
        )
        samples = [
            *_operations(conn),
            *_backups(conn, found, held),
            *(s for standing in found for s in _protection(standing, now)),
            (UNPROTECTED, (), len(left_out.tables)),
            *((ALARMS, key, float(number)) for key, number in alarms.count_open(conn).items()),
            *_streams(conn, held, now),
            *_writes(conn),
        ]
    registry = CollectorRegistry()
    registry.register(_Collected([*_yield_counters(runtime, counts), *_families(samples)]))
    return generate_latest(registry).decode()


class _Collected(Collector):
    """A Prometheus collector that returns the given metric families."""

    def __init__(self, families: list[Metric]) -> None:
        self._families = families

    def collect(self) -> Iterable[Metric]:
        return self._families


def _yield_counters(runtime: Runtime, counts: Mapping[Count, float]) -> Iterator[Metric]:
    """Yield the counters and histograms, with the counts of all processes."""
    of: dict[str, list[Count]] = {}
    for count in counts:
        of.setdefault(count.name, []).append(count)
    for known in runtime.metrics.registry.collect():
        family = Metric(known.name, known.documentation, known.type)
        own = [s for s in known.samples if not s.name.endswith("_created")]
        names = {s.name for s in own} | {f"{known.name}_total"}
        there = dict.fromkeys(Count.of(s.name, s.labels) for s in own)
        there |= dict.fromkeys(count for name in names for count in of.get(name, ()))
        for count in there:
            labels: dict[str, str] = json.loads(count.labels)
            family.add_sample(count.name, labels, counts.get(count, 0.0))
        yield family


def _families(samples: Iterable[Sample]) -> Iterator[Metric]:
    families = {g.name: GaugeMetricFamily(g.name, g.meaning, labels=g.labels) for g in GAUGES}
    for gauge, labels, value in samples:
        families[gauge.name].add_metric(labels, value)
    yield from families.values()


def _operations(conn: Connection) -> Iterator[Sample]:
    for (kind, state), count in sorted(monitoring.operations_by_state(conn).items()):
        yield OPERATIONS, (kind, state), count
    for kind, since in sorted(monitoring.oldest_unfinished(conn).items()):
        yield UNFINISHED, (kind,), since


def _backups(conn: Connection, found: Iterable[Standing], held: Mapping[int, int]) -> Iterator[Sample]:
    for standing in found:
        yield HELD, (standing.collection.name,), held.get(standing.collection.id, 0)
        yield from _collection(conn, standing)


def _collection(conn: Connection, standing: Standing) -> Iterator[Sample]:
    of = (standing.collection.name,)
    yield BACKUPS, of, len(standing.backups)
    if standing.storage != CLUSTER:
        yield UNSENT, of, len(standing.unsent)
    if standing.last is None:
        return
    path, last = standing.last
    yield LAST, of, last.time
    yield BYTES, of, monitoring.bytes_within(conn, path.id)
    yield CHAIN, of, standing.chain_length
    if standing.restorable_elsewhere is not None:
        yield RESTORABLE, of, standing.restorable_elsewhere.time
    if standing.restorable is not None:
        yield RESTORABLE_HERE, of, standing.restorable.time
    if standing.unsent:
        yield UNSENT_SINCE, of, standing.unsent[0].time
    for level, time in standing.verified.items():
        yield VERIFIED, (*of, level), time
    for level, count in standing.broken.items():
        yield BROKEN, (*of, level), count


def _protection(standing: Standing, now: float) -> Iterator[Sample]:
    name, found = standing.collection.name, protection_of(standing, now)
    if found.restorable_until is not None:
        yield RESTORABLE_UNTIL, (name,), found.restorable_until
    for level, time in found.proofs.items():
        yield PROVED, (name, level), time
    for objective, seconds in (("rpo", found.rpo), ("proved_within", found.proved_within)):
        if seconds is not None:
            yield OBJECTIVE, (name, objective), seconds
            yield OBJECTIVE_MISSED, (name, objective), float(objective in found.missed)


def _streams(conn: Connection, held: Mapping[int, int], now: float) -> Iterator[Sample]:
    for path_id, lag in sorted(monitoring.lags(conn).items(), key=lambda pair: pair[1].stream):
        yield STREAM_HELD, (lag.stream,), held.get(path_id, 0)
        yield LAG_STEPS, (lag.stream,), lag.steps
        yield LAG_SECONDS, (lag.stream,), lag.age(now)


def _writes(conn: Connection) -> Iterator[Sample]:
    for path, written in sorted(monitoring.written_bytes(conn).items()):
        yield COMMITTED, (path,), written.committed
        yield MERGED, (path,), written.merged
