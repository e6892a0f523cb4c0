"""State of a collection's backups for monitoring.

The state has the finished backups, the last backup that can be restored here and elsewhere, the times and
results of verifications, and the tables without a backup.

*Elsewhere* means: on another machine, after this one is lost. A backup can be restored elsewhere only if the
collection's repository has this backup and all backups that it builds on.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from fnmatch import fnmatchcase
from itertools import chain

from sqlalchemy import Connection

from strandline import names
from strandline.backups.collection import CLUSTER, CollectionRecord
from strandline.backups.record import BackupHead, backup_heads, collections
from strandline.backups.verify import verification_history
from strandline.backups.verify.damage import find_damaged
from strandline.backups.verify.verification_history import LEVELS, BackupReport, Level
from strandline.catalog import paths
from strandline.catalog.operations import CREATED_STATES
from strandline.catalog.paths import READY, Path


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
    """

    collection: Path
    backups: tuple[tuple[Path, BackupHead], ...]
    chain_length: int
    here: frozenset[str]
    elsewhere: frozenset[str]
    verified: Mapping[Level, float]
    broken: Mapping[Level, int]

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


def standings(conn: Connection) -> Iterator[Standing]:
    """Yield the state of each collection, sorted by name."""
    for collection in collections(conn):
        yield _read_standing(conn, collection)


def _read_standing(conn: Connection, collection: Path) -> Standing:
    heads = tuple(backup_heads(conn, collection))
    reports = verification_history.reports(conn, [path.id for path, _ in heads]) if heads else {}
    damaged = find_damaged(conn, collection) if heads else {}
    here = {
        head.name
        for path, head in heads
        if head.name not in damaged and _is_restorable(reports.get(path.id, ()))
    }
    storage = collection.record(CollectionRecord).settings.storage
    sent = find_sent_chains(((head.name, head.parent, head.stored) for _, head in heads), storage)
    times: dict[Level, float] = {}
    broken: dict[Level, set[str]] = {}
    for time, report in chain.from_iterable(reports.values()):
        times[report.level] = max(time, times.get(report.level, time))
        broken.setdefault(report.level, set()).update(() if report.restorable else (report.backup,))
    if damaged:
        broken.setdefault(verification_history.last_damage(conn, collection.id)[1], set()).update(damaged)
    return Standing(
        collection=collection,
        backups=heads,
        chain_length=_chain_length([head for _, head in heads]),
        here=frozenset(here),
        elsewhere=frozenset(here & sent),
        verified=times,
        broken={level: len(found) for level, found in broken.items()},
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


def _chain_length(heads: list[BackupHead]) -> int:
    by_name = {head.name: head for head in heads}
    length, at = 0, heads[-1] if heads else None
    while at is not None:
        # In a damaged chain, count only up to the break.
        earlier = at.parent if at.parent is not None and at.parent < at.name else ""
        length, at = length + 1, by_name.get(earlier)
    return length


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
    sent: set[str] = set()
    for name, parent, stored in backups:
        if storage != CLUSTER and stored == storage and (parent is None or parent in sent):
            sent.add(name)
    return sent
