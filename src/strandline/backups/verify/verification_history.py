"""Results of earlier verifications, stored in the catalog.

For each backup, the last report of each level is kept. Objects that were verified together are stored as a
lot: one row with the keys of up to a thousand objects. When all objects of a lot were verified again, its row
is deleted. Damaged objects are also stored as lots; each verification checks them again until the same or a
higher level finds them intact. Objects that a run has listed but not checked are stored as "seen" lots, so
that a sample can first take the objects that have waited longest.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Literal, TypeAlias, get_args

from sqlalchemy import Connection

from strandline.catalog import verifications
from strandline.catalog.transactions import Writer
from strandline.model import Segment
from strandline.records import Record, later
from strandline.storage.file_router import object_key

Level: TypeAlias = Literal["chain", "files", "checksums", "restore"]
LEVELS: tuple[Level, ...] = get_args(Level)
"""Verification levels. Each one includes the checks of those before it."""
_DAMAGED = "damaged "
"""Prefix of the level of a lot with damaged objects. The level that found the damage follows."""
_DAMAGED_LEVELS = tuple(_DAMAGED + level for level in LEVELS)
_SEEN = "seen"
"""Stored in place of a level for objects that a run has listed and no run has checked yet."""


@dataclass(frozen=True, kw_only=True)
class Lot(Record):
    """Keys of objects that have the same result and are stored together."""

    objects: tuple[str, ...]


@dataclass(frozen=True, kw_only=True)
class BackupReport(Record):
    """The result of a verification for one backup.

    Attributes:
        objects: Number of objects of this backup that were checked in this run. An object that several
            backups share counts for the first of them.
        bytes: Size of these objects.
        problems: Number of problems found in this backup.
        restorable: False if this level knows a problem that prevents a restore, in this backup or in a backup
            that it builds on.
        because: Why the backup is not restorable. None: it is restorable.
        verified_at: All objects that a restore needs were verified at this level at this time or later
            (seconds since the epoch). None: some objects were never verified at this level, or the backup is
            not restorable.
    """

    backup: str
    level: Level
    objects: int
    bytes: int
    problems: int
    restorable: bool
    because: str | None = later()
    verified_at: float | None = later()


def key_of(segment: Segment) -> str:
    """Return the key of a segment's object. All segments that share the object have the same key."""
    return object_key(f"inline {segment.id}" if segment.file is None else segment.file)


@dataclass
class Looked:
    """Verification results of the objects of a collection.

    Attributes:
        times: Time when an object was last found intact, by level and key. For ``_SEEN`` the time when it was
            first listed.
        damaged: Keys of damaged objects, by the level that found the damage.
    """

    times: dict[str, dict[str, float]] = field(default_factory=dict)
    damaged: dict[Level, set[str]] = field(default_factory=dict)

    def at(self, key: str, level: Level) -> float | None:
        """Return when an object was last found intact at ``level`` or a higher one.

        If a level has found the object damaged, the results of this level and of higher levels are ignored.
        None: there is no other result.
        """
        end = next((n for n, of in enumerate(LEVELS) if key in self.damaged.get(of, ())), len(LEVELS))
        levels = LEVELS[LEVELS.index(level) : end]
        found = [self.times[of].get(key) for of in levels if of in self.times]
        return max((time for time in found if time is not None), default=None)

    def since(self, key: str, level: Level) -> float:
        """Return when an object was last found intact, or if it never was, when it was first listed.

        Infinity: the object is not recorded yet.
        """
        time = self.at(key, level)
        return self.times.get(_SEEN, {}).get(key, float("inf")) if time is None else time

    def oldest(self, keys: Iterable[str], level: Level) -> float | None:
        """Return the earliest of the times when the objects were last found intact.

        None: one of them was never checked or is damaged. Infinity: there are no objects.
        """
        oldest = float("inf")
        for key in keys:
            time = self.at(key, level)
            if time is None:
                return None
            oldest = min(oldest, time)
        return oldest


def object_results(conn: Connection, collection_id: int) -> Looked:
    """Return the recorded verification results of the objects of a collection."""
    found = Looked()
    for row in verifications.of_paths(conn, [collection_id]):
        objects = row.record(Lot).objects
        found.times.setdefault(row.level, {}).update(dict.fromkeys(objects, row.time))
    for level in LEVELS:
        found.damaged[level] = set(found.times.pop(_DAMAGED + level, {}))
    return found


def list_damaged_objects(conn: Connection) -> frozenset[str]:
    """Return the keys of all damaged objects, of any collection.

    New backups must not share these objects.
    """
    rows = verifications.of_levels(conn, _DAMAGED_LEVELS)
    return frozenset(key for row in rows for key in row.record(Lot).objects)


def last_damage(conn: Connection, collection_id: int) -> tuple[float, Level]:
    """Return when and at which level an object of the collection was last found damaged.

    If the collection has no damaged object, return the last damage of any collection.
    """
    rows = verifications.of_levels(conn, _DAMAGED_LEVELS)
    last = max(rows, key=lambda row: (row.path_id == collection_id, row.time))
    return last.time, LEVELS[_DAMAGED_LEVELS.index(last.level)]


def keep_healed(tx: Writer, keys: Collection[str]) -> None:
    """Delete the results of damaged objects that were rewritten, so that the next run checks them."""
    healed = set(keys)
    damaged = verifications.of_levels(tx.conn, _DAMAGED_LEVELS)
    ids = {row.path_id for row in damaged if healed.intersection(row.record(Lot).objects)}
    for row in (row for row in verifications.of_paths(tx.conn, ids) if row.level != _SEEN):
        objects = row.record(Lot).objects
        if healed.intersection(objects):
            left = tuple(key for key in objects if key not in healed)
            verifications.remove(tx, [row.id])
            verifications.add(tx, row.level, [(row.path_id, Lot(objects=left))] if left else [], row.time)


def keep_lot(tx: Writer, collection_id: int, level: Level, well: Sequence[str], bad: Sequence[str]) -> None:
    """Record the objects that a level has found intact (``well``) or damaged (``bad``)."""
    for kind, objects in ((level, well), (_DAMAGED + level, bad)):
        if objects:
            verifications.add(tx, kind, [(collection_id, Lot(objects=tuple(objects)))])


def keep_seen(tx: Writer, collection_id: int, keys: Iterable[str], together: int) -> None:
    """Record the objects without a result as waiting for their first check.

    Args:
        together: Maximum number of objects in one lot.
    """
    known = object_results(tx.conn, collection_id)
    new = sorted(key for key in keys if not any(key in of for of in known.times.values()))
    lots = [Lot(objects=tuple(new[at : at + together])) for at in range(0, len(new), together)]
    verifications.add(tx, _SEEN, [(collection_id, lot) for lot in lots])


def tidy(
    tx: Writer, collection_id: int, live: Collection[str], damaged: Mapping[Level, Collection[str]]
) -> None:
    """Replace the list of damaged objects, and delete lots that are not needed any more.

    Args:
        live: Keys of objects that still exist. A lot is needed if it has the last result of one of them.
        damaged: Keys of the damaged objects, by the level that found the damage.
    """
    rows = verifications.of_paths(tx.conn, [collection_id])
    last = {(row.level, key): row.id for row in rows for key in row.record(Lot).objects if key in live}
    used = {id_ for (level, _), id_ in last.items() if not level.startswith(_DAMAGED)}
    verifications.remove(tx, [row.id for row in rows if row.id not in used])
    for level, bad in damaged.items():
        keep_lot(tx, collection_id, level, (), sorted(bad))


def keep_reports(tx: Writer, level: Level, found: Mapping[int, BackupReport]) -> None:
    """Replace the reports of one level of some backups.

    Args:
        found: The new reports, by the ids of the backups' paths.
    """
    old = [row.id for row in verifications.of_paths(tx.conn, found) if row.level == level]
    verifications.remove(tx, old)
    verifications.add(tx, level, list(found.items()))


def reports(conn: Connection, backup_ids: Iterable[int]) -> dict[int, list[tuple[float, BackupReport]]]:
    """Return the reports of backups by the ids of their paths.

    Each backup has a list of pairs of time and report, one pair for each level, lowest level first.
    """
    found: dict[int, list[tuple[float, BackupReport]]] = {}
    for row in verifications.of_paths(conn, backup_ids):
        found.setdefault(row.path_id, []).append((row.time, row.record(BackupReport)))
    for listed in found.values():
        listed.sort(key=lambda pair: LEVELS.index(pair[1].level))
    return found
