"""Check of backup chains: whether each backup continues its parent, and whether it can be restored.

The check makes one pass over the records of all backups, parents first. It reads no object.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from math import inf
from typing import TypeAlias

from strandline.backups.record import BackupRecord, SliceRecord, check_link, check_slice
from strandline.errors import Corrupted

Of: TypeAlias = tuple[str, str | None]
"""A table path, and the name of one of the table's indexes. None: the table itself."""


@dataclass(frozen=True)
class SliceHealth:
    """Verification state of the objects of one slice.

    Attributes:
        since: All objects were verified at this time or later. None: some were never checked. Infinity: there
            are no objects.
        damage: Description of the damage of one object. None: no object is known to be damaged.
    """

    since: float | None = inf
    damage: str | None = None


@dataclass(frozen=True)
class _Reached:
    """A table or an index as of a backup.

    Attributes:
        slice: The last slice of the table or index.
        held: State of the objects in all slices that a restore of the table or index needs.
    """

    slice: SliceRecord
    held: SliceHealth


@dataclass(frozen=True, kw_only=True)
class Verdict:
    """The state of a backup.

    Attributes:
        broken: Why its chain is incomplete or inconsistent. None: the chain is valid.
        spoiled: A problem that makes this backup, or a backup that it builds on, unusable as a whole. None:
            there is no such problem.
        because: Why it cannot be restored: ``broken``, ``spoiled``, or a damaged object that it needs. None:
            it can be restored.
        since: All objects that it needs were verified at this time or later. Infinity: it needs no object.
            None: some objects were never checked, or the chain is broken.
        reached: The tables and indexes that a restore needs. Empty if the chain is broken.
    """

    record: BackupRecord
    broken: str | None
    spoiled: str | None
    because: str | None
    since: float | None
    reached: Mapping[Of, _Reached] = field(repr=False)


def judge(
    records: Iterable[BackupRecord], held: Mapping[int, SliceHealth], spoiled: Mapping[str, str]
) -> dict[str, Verdict]:
    """Return the verdict on each backup, by name.

    Args:
        records: The backups, oldest first.
        held: State of the objects of each slice, by the id of the path that holds it.
        spoiled: Problems that affect a whole backup, by backup name.
    """
    found: dict[str, Verdict] = {}
    for record in records:
        parent = None if record.parent is None else found.get(record.parent)
        broken = None if parent is None else parent.broken
        reached: dict[Of, _Reached] = {}
        if broken is None:
            try:
                reached = _reach(record, parent, held)
            except Corrupted as error:
                broken = error.message
        as_a_whole = spoiled.get(record.name) or (None if parent is None else parent.spoiled)
        needed = [reached[of].held for of, _ in _slices(record) if of in reached]
        damage = next((h.damage for h in needed if h.damage is not None), None)
        found[record.name] = Verdict(
            record=record,
            broken=broken,
            spoiled=as_a_whole,
            because=broken or as_a_whole or damage,
            since=None if broken else _oldest(h.since for h in needed),
            reached=reached,
        )
    return found


def _reach(
    record: BackupRecord, parent: Verdict | None, held: Mapping[int, SliceHealth]
) -> dict[Of, _Reached]:
    """Return the tables and indexes as of this backup, with the state of all slices that they need.

    CORRUPTED if the backup does not continue its parent.
    """
    before: dict[Of, _Reached] = {}
    if parent is not None:
        check_link(parent.record, record)
        # A table that left the collection and joined it again starts with a whole slice. A renamed table is
        # looked up by the path that it had in the parent.
        now: dict[str, list[str]] = {}
        for path, table in record.tables.items():
            if not table.slice.whole:
                now.setdefault(table.was or path, []).append(path)
        before = {
            (path, of[1]): reached for of, reached in parent.reached.items() for path in now.get(of[0], ())
        }
    elif record.parent is not None:
        raise Corrupted(f"the backup {record.parent}, on which {record.name} builds, is missing")
    elif record.kind != "full":
        raise Corrupted(f"the chain of {record.name} begins with an increment")
    made = dict(before)
    for of, slice_ in _slices(record):
        last = before.get(of)
        check_slice(of[0], record, slice_, None if last is None else last.slice)
        own = held.get(slice_.target_id, SliceHealth())
        if not slice_.whole and last is not None:
            own = SliceHealth(_oldest((own.since, last.held.since)), last.held.damage or own.damage)
        made[of] = _Reached(slice_, own)
    return made


def _slices(record: BackupRecord) -> Iterator[tuple[Of, SliceRecord]]:
    for path, table in record.tables.items():
        yield (path, None), table.slice
        for index in table.indexes:
            if index.slice is not None:
                yield (path, index.definition.name), index.slice


def _oldest(times: Iterable[float | None]) -> float | None:
    oldest = inf
    for time in times:
        if time is None:
            return None
        oldest = min(oldest, time)
    return oldest
