"""Whether backups fit together, and what each of them needs: one walk over all of them, parents first, that
looks at nothing but their records."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from math import inf
from typing import TypeAlias

from strandline.backups.record import BackupRecord, SliceRecord, check_link, check_slice
from strandline.errors import Corrupted

Of: TypeAlias = tuple[str, str | None]
"""A table by its path, or with the name of an index of it."""


@dataclass(frozen=True)
class SliceHealth:
    """What is known of the objects of one slice. ``since``: they are known to be well since then; None: some
    were never looked at. ``damage``: what is wrong with one of them."""

    since: float | None = inf
    damage: str | None = None


@dataclass(frozen=True)
class _Reached:
    """A table or an index at a backup: its last slice, and what is known of all that leads there."""

    slice: SliceRecord
    held: SliceHealth


@dataclass(frozen=True, kw_only=True)
class Verdict:
    """A backup as it stands. ``broken``: why its chain leads nowhere. ``spoiled``: what is wrong with it, or
    with one that it builds on, as a whole. ``because``: why it cannot be restored: one of these, or an object
    that it needs. ``since``: all of these are known to be well since then; infinity if it needs none, None if
    some were never looked at."""

    record: BackupRecord
    broken: str | None
    spoiled: str | None
    because: str | None
    since: float | None
    reached: Mapping[Of, _Reached] = field(repr=False)


def judge(
    records: Iterable[BackupRecord], held: Mapping[int, SliceHealth], spoiled: Mapping[str, str]
) -> dict[str, Verdict]:
    """Return what is to be said of backups, oldest first, by their names. ``held``: what is known of the
    objects of slices, by the ids of the paths that have them. ``spoiled``: what is wrong with a backup as a
    whole."""
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
    """Return what a backup leads to. CORRUPTED if it does not go on where its parent ends."""
    before: dict[Of, _Reached] = {}
    if parent is not None:
        check_link(parent.record, record)
        # A table that is no member now begins anew if it is one again. One that was renamed has another name
        # from here on.
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
