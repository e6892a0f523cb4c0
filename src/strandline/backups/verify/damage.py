"""Backups that are not restorable because they need a damaged object.

The catalog lists the objects that verifications found damaged (``verification_history.py``). This list is
checked when reports on backups are read. So the damage counts at once, and also for later backups that were
never verified.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, replace
from math import inf
from typing import Any

from sqlalchemy import Connection

from strandline.backups.record import BackupRecord, require_collection
from strandline.backups.verify.verification_history import (
    BackupReport,
    key_of,
    last_damage,
    list_damaged_objects,
    reports,
)
from strandline.backups.verify.verify_chain import SliceHealth, judge
from strandline.catalog import chains, paths
from strandline.catalog.paths import Path
from strandline.model import object_of


def list_reports(conn: Connection, collection: str) -> dict[str, list[dict[str, Any]]]:
    """Return the last verification reports of a collection's backups, as plain values by backup name.

    A backup that needs an object which was found damaged later is reported as not restorable at every level.
    """
    path = require_collection(conn, collection)
    damaged = find_damaged(conn, path)
    rows = paths.backups(conn, path)
    found = reports(conn, [row.id for row in rows])
    listed = {}
    for row in rows:
        known = found.get(row.id, [])
        if (because := damaged.get(row.name)) is not None:
            known = [(time, _spoil(report, because)) for time, report in known]
            known = known or [_never_verified(conn, path, row.name, because)]
        listed[row.name] = [{"time": time, **asdict(report)} for time, report in known]
    return listed


def _spoil(report: BackupReport, because: str) -> BackupReport:
    if not report.restorable:
        return report
    return replace(report, restorable=False, because=because, verified_at=None)


def _never_verified(
    conn: Connection, collection: Path, backup: str, because: str
) -> tuple[float, BackupReport]:
    """Build a report for a backup that was taken after the damage was found."""
    time, level = last_damage(conn, collection.id)
    report = BackupReport(
        backup=backup, level=level, objects=0, bytes=0, problems=0, restorable=False, because=because
    )
    return time, report


def find_damaged(conn: Connection, collection: Path) -> dict[str, str]:
    """Return the backups of a collection that need a damaged object, with the reason."""
    return find_damaged_of(conn, [collection])[collection.id]


def find_damaged_of(conn: Connection, collections: Sequence[Path]) -> dict[int, dict[str, str]]:
    """Return what ``find_damaged`` returns for each of several collections, by id of the collection.

    If no object is known to be damaged, the records of the backups are not read.
    """
    damaged = list_damaged_objects(conn)
    if not damaged:
        return {collection.id: {} for collection in collections}
    found = paths.backups_of(conn, collections)
    records = {id_: [path.record(BackupRecord) for path in listed] for id_, listed in found.items()}
    owners = {s.target_id: record for listed in records.values() for record in listed for s in record.slices}
    health: dict[int, SliceHealth] = {}
    held = chains.segments_at(conn, {target_id: record.step for target_id, record in owners.items()})
    for target_id, segments in held.items():
        bad = next((s for s in segments if key_of(s) in damaged), None)
        if bad is not None:
            name = f"segment {bad.id}" if bad.file is None else f"file {object_of(bad.file)}"
            health[target_id] = SliceHealth(inf, f"the {name} is damaged (of {owners[target_id].name})")
    return {id_: _damaged_among(listed, health) for id_, listed in records.items()}


def _damaged_among(records: Sequence[BackupRecord], health: Mapping[int, SliceHealth]) -> dict[str, str]:
    if not any(slice_.target_id in health for record in records for slice_ in record.slices):
        return {}
    verdicts = judge(records, health, {})
    return {name: v.because for name, v in verdicts.items() if v.because is not None}
