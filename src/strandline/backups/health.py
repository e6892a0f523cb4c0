"""State of a collection's backups for monitoring.

The state has the finished backups, the last backup that can be restored here and elsewhere, the times and
results of verifications, and the tables without a backup.

*Elsewhere* means: on another machine, after this one is lost. A backup can be restored elsewhere only if the
collection's repository has this backup and all backups that it builds on.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from fnmatch import fnmatchcase
from itertools import chain
from typing import Literal, TypeAlias

from sqlalchemy import Connection

from strandline import names
from strandline.backups.collection import CLUSTER, CollectionRecord
from strandline.backups.record import BackupHead, backup_heads_of, collections
from strandline.backups.verify import verification_history
from strandline.backups.verify.damage import find_damaged_of
from strandline.backups.verify.verification_history import LEVELS, BackupReport, Level
from strandline.catalog import paths
from strandline.catalog.operations import CREATED_STATES
from strandline.catalog.paths import READY, Path
from strandline.sql.durations import hours

Reports: TypeAlias = Mapping[int, Sequence[tuple[float, BackupReport]]]
"""Times and reports of verifications, by the id of the backup's path."""


@dataclass(frozen=True, kw_only=True)
class Standing:
    """State of a collection's backups in one snapshot of the catalog.

    Attributes:
        backups: The finished backups, oldest first.
        chain_length: Number of backups that a restore of the last one needs, including the last one.
        here: Names of the backups that can be restored as far as is known: ``is_restorable`` is True for
            their verification reports, and no object that they need is known to be damaged.
        elsewhere: Names of the backups in ``here`` that can also be restored after this machine is lost.
        verified: Time of the last verification at each level.
        broken: Number of backups that are known to be damaged, by the level of the verification that found
            the damage. Damage that a restore or a copy found counts at the level "checksums".
        reports: The verification reports of the backups, and perhaps of backups of other collections.
    """

    collection: Path
    backups: tuple[tuple[Path, BackupHead], ...]
    chain_length: int
    here: frozenset[str]
    elsewhere: frozenset[str]
    verified: Mapping[Level, float]
    broken: Mapping[Level, int]
    reports: Reports

    @property
    def last(self) -> tuple[Path, BackupHead] | None:
        return self.backups[-1] if self.backups else None

    @property
    def restorable(self) -> BackupHead | None:
        """The last backup that can be restored here."""
        return self._last_among(self.here)

    @property
    def restorable_elsewhere(self) -> BackupHead | None:
        """The last backup that can be restored after this machine is lost."""
        return self._last_among(self.elsewhere)

    @property
    def storage(self) -> str:
        return self.collection.record(CollectionRecord).settings.storage

    @property
    def kept(self) -> BackupHead | None:
        """The last backup that can be restored from the storage of the collection."""
        return self.restorable if self.storage == CLUSTER else self.restorable_elsewhere

    @property
    def proofs(self) -> dict[Level, float]:
        """The time of the newest successful verification of a backup in the chain of ``kept``, by level.

        A verification counts if it was complete: all objects that a restore needs were verified at its level
        at that time or earlier, and none is known to be damaged. At the level "restore", it is the time of
        the trial restore.
        """
        found: dict[Level, float] = {}
        for path, _ in _find_chain(self.backups, None if self.kept is None else self.kept.name):
            for time, report in self.reports.get(path.id, ()):
                if report.restorable and report.verified_at is not None:
                    proved = report.verified_at if report.level == "restore" else time
                    found[report.level] = max(proved, found.get(report.level, proved))
        return found

    @property
    def unsent(self) -> list[BackupHead]:
        """The backups that are not in the collection's repository yet, oldest first.

        Empty if the collection keeps its backups in the warehouse.
        """
        storage = self.storage
        return [head for _, head in self.backups if storage != CLUSTER and head.stored != storage]

    @property
    def waiting(self) -> list[BackupHead]:
        """The unsent backups that no operation is uploading."""
        ready = {path.name for path, _ in self.backups if path.state == READY}
        return [head for head in self.unsent if head.name in ready]

    def broken_before(self, backup: BackupHead) -> list[BackupHead]:
        """Return the backups before this one that cannot be restored, oldest first."""
        heads = [head for _, head in self.backups]
        return [head for head in heads[: heads.index(backup)] if head.name not in self.here]

    def _last_among(self, among: frozenset[str]) -> BackupHead | None:
        # Use the order of the backups, not their times: the clock may have been set back.
        return next((head for _, head in reversed(self.backups) if head.name in among), None)

    def last_of(self, kind: str) -> BackupHead | None:
        """Return the last full or last incremental backup."""
        return next((head for _, head in reversed(self.backups) if head.kind == kind), None)


@dataclass(frozen=True, kw_only=True)
class Protection:
    """Up to when a collection can be restored, how that was proved, and whether its objectives are met.

    Times are in seconds since the epoch, periods in seconds.

    Attributes:
        restorable_until: Time of the newest backup that can be restored from the storage of the collection:
            its chain is complete there and not known to be damaged. None: no backup can be restored.
        age: Age of that backup. None: no backup can be restored.
        proved_level: Level of the newest successful verification of a backup in its chain. None: its chain
            was never verified.
        proved_at: Time of that verification.
        proofs: Time of the newest successful verification of a backup in its chain, by level.
        rpo: The objective for ``age``. None: no objective.
        proved_within: The objective for the time since ``proved_at``. None: no objective.
        missed: For each missed objective, ``rpo`` or ``proved_within``, the reason. Empty: none is missed.
        away: Why the repository cannot be reached at the moment; the other values are the last known ones.
            None: it can be reached, or the backups are in the warehouse.
    """

    restorable_until: float | None
    age: float | None
    proved_level: Level | None
    proved_at: float | None
    proofs: Mapping[Level, float]
    rpo: float | None
    proved_within: float | None
    missed: Mapping[Literal["rpo", "proved_within"], str]
    away: str | None

    @property
    def is_met(self) -> bool | None:
        """Whether all objectives of the collection are met. None: it has none."""
        return None if self.rpo is None and self.proved_within is None else not self.missed


def protection_of(standing: Standing, now: float, away: str | None = None) -> Protection:
    """Compute how well a collection is protected.

    The objectives of an attached collection are left out, because another warehouse takes its backups.

    Args:
        away: Why its repository cannot be reached. None: it can be reached, or it was not tried.
    """
    record = standing.collection.record(CollectionRecord)
    kept, proofs = standing.kept, standing.proofs
    level = max(proofs, key=lambda each: (proofs[each], LEVELS.index(each)), default=None)
    age = None if kept is None else max(0.0, now - kept.time)
    rpo, within = record.settings.rpo_seconds, record.settings.proved_within_seconds
    if record.attached:
        rpo = within = None
    missed: dict[Literal["rpo", "proved_within"], str] = {}
    if rpo is not None and (age is None or age > rpo):
        missed["rpo"] = (
            f"no backup can be restored, and RPO is {record.settings.rpo}"
            if age is None
            else f"the newest backup that can be restored is {hours(age)} old, and RPO is "
            f"{record.settings.rpo}"
        )
    if within is not None and (level is None or now - proofs[level] > within):
        missed["proved_within"] = (
            "the newest backup that can be restored was never verified successfully"
            if level is None
            else f"the last successful verification, at level {level}, was {hours(now - proofs[level])} ago"
        ) + f", and PROVED_WITHIN is {record.settings.proved_within}"
    return Protection(
        restorable_until=None if kept is None else kept.time,
        age=age,
        proved_level=level,
        proved_at=None if level is None else proofs[level],
        proofs=proofs,
        rpo=rpo,
        proved_within=within,
        missed=missed,
        away=away,
    )


def standings(conn: Connection, of: Sequence[Path] | None = None) -> Iterator[Standing]:
    """Yield the state of each collection, sorted by name.

    The number of queries does not depend on the number of collections and backups, unless damage is known.

    Args:
        of: The collections. None: all collections.
    """
    found = collections(conn) if of is None else of
    heads = backup_heads_of(conn, found)
    reports = verification_history.reports(conn, [path.id for listed in heads.values() for path, _ in listed])
    damaged = find_damaged_of(conn, found)
    for collection in found:
        yield _standing(conn, collection, heads[collection.id], reports, damaged[collection.id])


def _standing(
    conn: Connection,
    collection: Path,
    backups: Sequence[tuple[Path, BackupHead]],
    reports: Reports,
    damaged: Mapping[str, str],
) -> Standing:
    complete = _find_complete((head.name, head.parent) for _, head in backups)
    here = {
        head.name
        for path, head in backups
        if head.name in complete and head.name not in damaged and _is_restorable(reports.get(path.id, ()))
    }
    storage = collection.record(CollectionRecord).settings.storage
    sent = find_sent_chains(((head.name, head.parent, head.stored) for _, head in backups), storage)
    times: dict[Level, float] = {}
    broken: dict[Level, set[str]] = {}
    for time, report in chain.from_iterable(reports.get(path.id, ()) for path, _ in backups):
        times[report.level] = max(time, times.get(report.level, time))
        broken.setdefault(report.level, set()).update(() if report.restorable else (report.backup,))
    if damaged:
        broken.setdefault(verification_history.last_damage(conn, collection.id)[1], set()).update(damaged)
    return Standing(
        collection=collection,
        backups=tuple(backups),
        chain_length=len(_find_chain(backups, backups[-1][1].name if backups else None)),
        here=frozenset(here),
        elsewhere=frozenset(here & sent),
        verified=times,
        broken={level: len(found) for level, found in broken.items()},
        reports=reports,
    )


@dataclass(frozen=True, kw_only=True)
class Unprotected:
    """Tables that are in no backup.

    Attributes:
        attached: Tables that belong only to attached collections, by the collection's name. An attached
            collection takes no backups.
        others: Tables that belong to no collection.
        missing: Tables that a collection names although they do not exist, by the collection's name. The
            collection cannot take a backup until they exist.
    """

    attached: Mapping[str, tuple[str, ...]]
    others: tuple[str, ...]
    missing: Mapping[str, tuple[str, ...]]

    @property
    def tables(self) -> tuple[str, ...]:
        return tuple(sorted({*self.others, *chain.from_iterable(self.attached.values())}))


def find_unprotected(conn: Connection, found: Iterable[Path], scratch: str | None) -> Unprotected:
    """Return the tables that none of the given collections backs up.

    Args:
        found: The collections.
        scratch: Patterns of tables that need no backup, separated by commas. None: all tables need one.
    """
    known = [(path.name, path.record(CollectionRecord)) for path in found]
    patterns = [f"/{each.strip().lstrip('/')}" for each in (scratch or "").split(",") if each.strip()]
    owned = [collection.tables for _, collection in known if not collection.attached]
    if owned and all(tables is None for tables in owned):
        # All tables are protected: skip reading their names.
        return Unprotected(attached={}, others=(), missing={})
    there = paths.user_table_states(conn)
    protected = set(there) if None in owned else set(chain.from_iterable(tables or () for tables in owned))
    missing = {
        name: tuple(path for path in collection.tables or () if path not in there)
        for name, collection in known
        if not collection.attached
    }
    left = {
        path
        for path, state in there.items()
        if path not in protected
        and state not in CREATED_STATES
        and not names.is_replaced(path)
        and not any(fnmatchcase(path, pattern) for pattern in patterns)
    }
    attached = {
        name: tuple(sorted(left if collection.tables is None else left & set(collection.tables)))
        for name, collection in known
        if collection.attached
    }
    attached = {name: tables for name, tables in attached.items() if tables}
    return Unprotected(
        attached=attached,
        others=tuple(sorted(left.difference(*attached.values()))),
        missing={name: tables for name, tables in missing.items() if tables},
    )


def _find_chain(
    backups: Sequence[tuple[Path, BackupHead]], name: str | None
) -> list[tuple[Path, BackupHead]]:
    """Return a backup and the backups that it builds on, the backup first.

    The chain of a damaged catalog ends before the first missing backup.
    """
    by_name = {head.name: (path, head) for path, head in backups}
    found: list[tuple[Path, BackupHead]] = []
    while name is not None and name in by_name:
        found.append(by_name[name])
        parent = by_name[name][1].parent
        name = parent if parent is not None and parent < name else None
    return found


def _is_restorable(reports: Iterable[tuple[float, BackupReport]]) -> bool:
    return is_restorable((time, report.level, report.restorable) for time, report in reports)


def is_restorable(found: Iterable[tuple[float, Level, bool]]) -> bool:
    """Return whether a backup is restorable according to its verification reports.

    The result is False if a report says "not restorable", and no later report at the same level or a higher
    one says "restorable".

    Args:
        found: Time, level and result of each report. The result is True for "restorable".
    """
    broken: set[Level] = set()
    for _, level, restorable in sorted(found, key=lambda report: report[0]):
        if restorable:
            broken -= set(LEVELS[: LEVELS.index(level) + 1])
        else:
            broken.add(level)
    return not broken


def find_sent_chains(backups: Iterable[tuple[str, str | None, str | None]], storage: str) -> set[str]:
    """Return the names of the backups whose whole chain is in the repository.

    Args:
        backups: Name, parent and repository of each backup, parents first.
        storage: Location of the repository. 'cluster': the result is empty.
    """
    there = ((name, parent) for name, parent, stored in backups if stored == storage)
    return set() if storage == CLUSTER else _find_complete(there)


def _find_complete(backups: Iterable[tuple[str, str | None]]) -> set[str]:
    """Return the names of the backups of which all ancestors are among the given ones.

    Args:
        backups: Name and parent of each backup, parents first.
    """
    found: set[str] = set()
    for name, parent in backups:
        if parent is None or parent in found:
            found.add(name)
    return found
