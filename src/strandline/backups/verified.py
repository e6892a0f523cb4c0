"""What is known of backups from earlier verifications.

Of each backup the last report of each level is kept. Which objects were looked at is kept in lots: those that
were looked at together, by a hash of their names. So there is a row for a thousand objects, and to look at
the oldest of them again leaves whole lots without a use, which are removed then. What was found damaged is a
lot as well, whose objects are looked at each time until the same level finds them well. What a run has seen
and left out is another one: its turn comes after that of what has waited for longer.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Literal, TypeAlias, get_args

from sqlalchemy import Connection

from strandline.catalog import verified
from strandline.catalog.writer import Writer
from strandline.model import Segment
from strandline.records import Record, later
from strandline.storage.elsewhere import object_key

Level: TypeAlias = Literal["chain", "files", "checksums", "restore"]
LEVELS: tuple[Level, ...] = get_args(Level)
"""Each promises what those before it do, and more."""
_DAMAGED = "damaged "
"""Before the level that found the objects of a lot so."""
_DAMAGED_LEVELS = tuple(_DAMAGED + level for level in LEVELS)
_SEEN = "seen"
"""In the place of a level: objects that were there when samples were taken, and not looked at yet."""


@dataclass(frozen=True, kw_only=True)
class Lot(Record):
    """Objects that were looked at together, by their keys."""

    objects: tuple[str, ...]


@dataclass(frozen=True, kw_only=True)
class BackupReport(Record):
    """How a backup was found. ``objects`` and ``bytes``: how much of what it brought was looked at this time;
    an object that several backups hold counts for the first of them. ``problems``: how many of those that
    were found are in it. ``restorable``: whether nothing is known, at this level, that would keep it from
    being restored, neither in it nor in the backups that it builds on; ``because`` says what does.
    ``verified_at``: all that it takes to restore it has been verified at this level since then (seconds since
    the epoch); None: some of it never was."""

    backup: str
    level: Level
    objects: int
    bytes: int
    problems: int
    restorable: bool
    because: str | None = later()
    verified_at: float | None = later()


def key_of(segment: Segment) -> str:
    """Return the key of an object, however many segments share it."""
    return object_key(f"inline {segment.id}" if segment.file is None else segment.file)


@dataclass
class Looked:
    """When the objects of a collection were last looked at and well, by level and key; and which were not, by
    the level that has found it."""

    times: dict[str, dict[str, float]] = field(default_factory=dict)
    damaged: dict[Level, set[str]] = field(default_factory=dict)

    def at(self, key: str, level: Level) -> float | None:
        """Return when it was last found well at a level, or at a higher one; None if never, or not since it
        was damaged."""
        end = next((n for n, of in enumerate(LEVELS) if key in self.damaged.get(of, ())), len(LEVELS))
        levels = LEVELS[LEVELS.index(level) : end]
        found = [self.times[of].get(key) for of in levels if of in self.times]
        return max((time for time in found if time is not None), default=None)

    def since(self, key: str, level: Level) -> float:
        """Return since when an object waits to be looked at (again); from now on, if nobody has seen it
        yet."""
        time = self.at(key, level)
        return self.times.get(_SEEN, {}).get(key, float("inf")) if time is None else time

    def oldest(self, keys: Iterable[str], level: Level) -> float | None:
        """Return since when all of them are known to be well; None if one is not. Infinity if there are
        none."""
        oldest = float("inf")
        for key in keys:
            time = self.at(key, level)
            if time is None:
                return None
            oldest = min(oldest, time)
        return oldest


def looked(conn: Connection, collection_id: int) -> Looked:
    """Return all that is kept of the objects of a collection."""
    found = Looked()
    for row in verified.of_paths(conn, [collection_id]):
        objects = row.record(Lot).objects
        found.times.setdefault(row.level, {}).update(dict.fromkeys(objects, row.time))
    for level in LEVELS:
        found.damaged[level] = set(found.times.pop(_DAMAGED + level, {}))
    return found


def damaged_objects(conn: Connection) -> frozenset[str]:
    """Return the keys of all objects that are known to be damaged, of whatever collection. None of them may
    become part of another backup."""
    rows = verified.of_levels(conn, _DAMAGED_LEVELS)
    return frozenset(key for row in rows for key in row.record(Lot).objects)


def last_damage(conn: Connection, collection_id: int) -> tuple[float, Level]:
    """Return when an object of a collection was last found damaged, and at which level; of another one, if
    none of its own was."""
    rows = verified.of_levels(conn, _DAMAGED_LEVELS)
    last = max(rows, key=lambda row: (row.path_id == collection_id, row.time))
    return last.time, LEVELS[_DAMAGED_LEVELS.index(last.level)]


def keep_healed(tx: Writer, keys: Collection[str]) -> None:
    """Objects that were known to be damaged were written anew. The next verification looks at them, whatever
    it was that earlier ones have found."""
    healed = set(keys)
    damaged = verified.of_levels(tx.conn, _DAMAGED_LEVELS)
    ids = {row.path_id for row in damaged if healed.intersection(row.record(Lot).objects)}
    for row in (row for row in verified.of_paths(tx.conn, ids) if row.level != _SEEN):
        objects = row.record(Lot).objects
        if healed.intersection(objects):
            left = tuple(key for key in objects if key not in healed)
            verified.remove(tx, [row.id])
            verified.add(tx, row.level, [(row.path_id, Lot(objects=left))] if left else [], row.time)


def keep_lot(tx: Writer, collection_id: int, level: Level, well: Sequence[str], bad: Sequence[str]) -> None:
    """Objects were found well, or not, at a level."""
    for kind, objects in ((level, well), (_DAMAGED + level, bad)):
        if objects:
            verified.add(tx, kind, [(collection_id, Lot(objects=tuple(objects)))])


def keep_seen(tx: Writer, collection_id: int, keys: Iterable[str], together: int) -> None:
    """Objects are there, in lots of so many, and wait to be looked at from now on unless they do already."""
    known = looked(tx.conn, collection_id)
    new = sorted(key for key in keys if not any(key in of for of in known.times.values()))
    lots = [Lot(objects=tuple(new[at : at + together])) for at in range(0, len(new), together)]
    verified.add(tx, _SEEN, [(collection_id, lot) for lot in lots])


def tidy(
    tx: Writer, collection_id: int, live: Collection[str], damaged: Mapping[Level, Collection[str]]
) -> None:
    """Keep which objects are ``damaged``, and no lot without an object that is ``live`` and was not looked at
    since."""
    rows = verified.of_paths(tx.conn, [collection_id])
    last = {(row.level, key): row.id for row in rows for key in row.record(Lot).objects if key in live}
    used = {id_ for (level, _), id_ in last.items() if not level.startswith(_DAMAGED)}
    verified.remove(tx, [row.id for row in rows if row.id not in used])
    for level, bad in damaged.items():
        keep_lot(tx, collection_id, level, (), sorted(bad))


def keep_reports(tx: Writer, level: Level, found: Mapping[int, BackupReport]) -> None:
    """Keep how backups were found, by the ids of their paths, in the place of what was kept of this level."""
    old = [row.id for row in verified.of_paths(tx.conn, found) if row.level == level]
    verified.remove(tx, old)
    verified.add(tx, level, list(found.items()))


def reports(conn: Connection, backup_ids: Iterable[int]) -> dict[int, list[tuple[float, BackupReport]]]:
    """Return how backups were found, by the ids of their paths: for each level the time and the report,
    lowest first."""
    found: dict[int, list[tuple[float, BackupReport]]] = {}
    for row in verified.of_paths(conn, backup_ids):
        found.setdefault(row.path_id, []).append((row.time, row.record(BackupReport)))
    for listed in found.values():
        listed.sort(key=lambda pair: LEVELS.index(pair[1].level))
    return found
