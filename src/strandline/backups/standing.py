"""How the backups of a collection stand: the last ones, up to when they can be restored, and what
verifications have found. For those who watch."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass

from sqlalchemy import Connection

from strandline.backups import verified
from strandline.backups.collection import CLUSTER, Collection
from strandline.backups.record import BackupHead, backup_heads, collections
from strandline.backups.verified import LEVELS, BackupReport, Level
from strandline.catalog.paths import READY, Path


@dataclass(frozen=True, kw_only=True)
class VerifiedLevel:
    """When backups were last verified at a level, and how many of them were found not to be restorable."""

    time: float
    broken: int


@dataclass(frozen=True, kw_only=True)
class Standing:
    """A collection at one moment. ``backups``: the finished ones, oldest first. ``chain_length``: how many a
    restore of the last one needs, it included. ``restorable``: the last one that no verification has found
    not to be restorable."""

    collection: Path
    backups: tuple[tuple[Path, BackupHead], ...]
    chain_length: int
    restorable: BackupHead | None
    verified: Mapping[Level, VerifiedLevel]

    @property
    def last(self) -> tuple[Path, BackupHead] | None:
        return self.backups[-1] if self.backups else None

    @property
    def waiting(self) -> list[BackupHead]:
        """Those that are not in the repository where they should be, and nobody is sending them."""
        storage = self.collection.record(Collection).settings.storage
        if storage == CLUSTER:
            return []
        return [head for path, head in self.backups if path.state == READY and head.stored != storage]

    def last_of(self, kind: str) -> BackupHead | None:
        """Return the last full or incremental one."""
        return next((head for _, head in reversed(self.backups) if head.kind == kind), None)


def standings(conn: Connection) -> Iterator[Standing]:
    """Yield how each collection stands, by name."""
    for collection in collections(conn):
        yield _standing(conn, collection)


def _standing(conn: Connection, collection: Path) -> Standing:
    heads = tuple(backup_heads(conn, collection))
    reports = verified.reports(conn, [path.id for path, _ in heads]) if heads else {}
    well = [head for path, head in heads if _is_restorable(reports.get(path.id, ()))]
    at_levels = {}
    for level in LEVELS:
        found = [(time, r) for listed in reports.values() for time, r in listed if r.level == level]
        if found:
            broken = sum(not report.restorable for _, report in found)
            at_levels[level] = VerifiedLevel(time=max(time for time, _ in found), broken=broken)
    return Standing(
        collection=collection,
        backups=heads,
        chain_length=_chain_length([head for _, head in heads]),
        # By their order and not by their times: a clock may have been set back in between.
        restorable=well[-1] if well else None,
        verified=at_levels,
    )


def _chain_length(heads: list[BackupHead]) -> int:
    by_name = {head.name: head for head in heads}
    length, at = 0, heads[-1] if heads else None
    while at is not None:
        length, at = length + 1, by_name.get(at.parent or "")
    return length


def _is_restorable(reports: Iterable[tuple[float, BackupReport]]) -> bool:
    """Return whether no level has found that it is not, but for what the same level or a higher one has found
    well since."""
    broken: set[Level] = set()
    for _, report in sorted(reports, key=lambda pair: pair[0]):
        if report.restorable:
            broken -= set(LEVELS[: LEVELS.index(report.level) + 1])
        else:
            broken.add(report.level)
    return not broken
