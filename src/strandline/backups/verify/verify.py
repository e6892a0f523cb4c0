"""Verification of backups at four levels. Each level proves more and costs more than the one before.

1. ``chain`` compares records, and the manifests of a repository.
2. ``files`` checks that every object exists with the right size.
3. ``checksums`` reads every byte.
4. ``restore`` restores the last backup of each chain to a hidden path, and rolls back.

An object that was verified before is skipped unless the request says AGAIN. A sample takes the objects that
have waited longest for a verification.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import asdict
from functools import partial
from math import ceil, inf
from typing import Any

from sqlalchemy import Connection

from strandline.backups.collection import CollectionRecord
from strandline.backups.record import BackupRecord, backup_heads, require_backup, require_collection
from strandline.backups.repository.manifest import backup_of, file_of
from strandline.backups.repository.repository import Repository
from strandline.backups.verify.repair import DamagedObject
from strandline.backups.verify.verification_history import (
    BackupReport,
    Level,
    keep_reports,
    object_results,
    reports,
)
from strandline.backups.verify.verify_chain import SliceHealth, Verdict, judge
from strandline.backups.verify.verify_objects import Objects, patiently
from strandline.backups.verify.verify_repository import Inspected, count_unnamed, inspect
from strandline.backups.verify.verify_request import VerifyRequest
from strandline.cancellation import phase
from strandline.catalog import chains, paths, warehouse
from strandline.catalog.paths import Path
from strandline.errors import Corrupted, PathNotFound
from strandline.model import Segment
from strandline.runtime import Runtime
from strandline.storage.repository_marker import NotExpected, plain
from strandline.tables.check import Problem
from strandline.tables.housekeeping import collect_garbage
from strandline.tables.snapshot import Snapshot


class VerifyReport(list[Problem]):
    """The result of a verification: a list of problems, empty if everything is fine.

    Attributes:
        backups: A report for each backup, oldest first.
        unnamed_objects: Number of objects in the repository that no backup needs. None if they were not
            counted.
        repaired: Damaged objects that were passed to a repair, each with ``healed_from`` or ``problem``.
    """

    def __init__(
        self,
        problems: Iterable[Problem],
        *,
        collection: str,
        level: Level,
        backups: Sequence[BackupReport],
        unnamed_objects: int | None,
    ) -> None:
        super().__init__(problems)
        self.collection = collection
        self.level = level
        self.backups = list(backups)
        self.unnamed_objects = unnamed_objects
        self.repaired: list[DamagedObject] = []

    @property
    def not_repaired(self) -> list[DamagedObject]:
        """The damaged objects that could not be healed."""
        return [each for each in self.repaired if each.healed_from is None]

    @property
    def newest_restorable(self) -> str | None:
        """The newest restorable backup, as far as this level can tell. None: no backup is restorable."""
        return next((b.backup for b in reversed(self.backups) if b.restorable), None)

    def to_dict(self) -> dict[str, Any]:
        """Return the report as plain values, for JSON."""
        return {
            "collection": self.collection,
            "level": self.level,
            "ok": not self,
            "newest_restorable": self.newest_restorable,
            "unnamed_objects": self.unnamed_objects,
            "backups": [asdict(backup) for backup in self.backups],
            "problems": [asdict(problem) for problem in self],
            **({"repaired": [each.to_plain() for each in self.repaired]} if self.repaired else {}),
        }


def verify_backups(
    runtime: Runtime, request: VerifyRequest, try_restore: Callable[[str, str], None]
) -> VerifyReport:
    """Verify the backups of a collection.

    Args:
        try_restore: Function that runs a trial restore. It gets the names of the collection and a backup, and
            raises the error of the restore.
    """
    return _Verification(runtime, request).run(try_restore)


class _Verification:
    """One verification. It reads all records at the beginning, in one snapshot."""

    def __init__(self, runtime: Runtime, request: VerifyRequest) -> None:
        self._runtime = runtime
        self._request = request
        self._level = request.level
        self._snapshot = Snapshot(runtime)  # Keeps the segments of the snapshot readable.
        self._snapshot.take()
        self._held: dict[int, Sequence[Segment]] = {}
        with runtime.catalog.read() as conn:
            self._path = require_collection(conn, request.collection)
            self._collection = self._path.record(CollectionRecord)
            self._warehouse = warehouse.require(conn).id
            self._rows = _choose_backups(conn, self._path, request.at)
            self._records = [row.record(BackupRecord) for row in self._rows]
            for record in self._records:
                self._held |= chains.segments_of_backups(conn, _targets(record), record.step)
            known = object_results(conn, self._path.id)
        self._snapshot.note(s for segments in self._held.values() for s in segments)
        closely: Level = "files" if self._level == "files" else "checksums"
        self._objects = Objects(runtime, self._path.id, known, closely)
        self._closed: set[str] = set()
        self._problems: list[Problem] = []
        self._spoiled: dict[str, str] = {}

    def run(self, try_restore: Callable[[str, str], None]) -> VerifyReport:
        self._compare_sizes()
        with phase("reading manifests"):
            inspected = self._inspect()
        if self._level != "chain":
            self._look_at_objects()
        tried = self._try(try_restore) if self._level == "restore" else {}
        verdicts = self._judge()
        for name, verdict in verdicts.items():
            if verdict.broken is not None:
                self._problems.append(Problem("broken_chain", self._at(name), verdict.broken))
        made = self._reports(verdicts, tried)
        ids = {row.name: row.id for row in self._rows}
        with self._runtime.catalog.write() as tx:
            there = {row.id for row in paths.backups(tx.conn, self._path)}
            keep_reports(tx, self._level, {ids[r.backup]: r for r in made if ids[r.backup] in there})
        # Objects and manifests of a backup that was dropped meanwhile are allowed to be missing.
        gone = {self._at(name) for name, id_ in ids.items() if id_ not in there}
        return VerifyReport(
            [problem for problem in self._problems if problem.path not in gone],
            collection=self._path.name,
            level=self._level,
            backups=[report for report in made if self._at(report.backup) not in gone],
            unnamed_objects=self._count_unnamed(inspected),
        )

    def _at(self, backup: str) -> str:
        return f"{self._path.path}/{backup}"

    def _find(self, kind: str, backup: str, message: str) -> None:
        """Record a problem that affects a whole backup."""
        self._problems.append(Problem(kind, self._at(backup), message))
        self._spoiled.setdefault(backup, message)

    # --- checks without objects ----------------------------------------------------------------------------

    def _compare_sizes(self) -> None:
        """Check that the segments in the catalog have the sizes that the backups recorded."""
        for record in self._records:
            for slice_ in record.slices:
                if sum(s.bytes for s in self._held.get(slice_.target_id, ())) != slice_.bytes:
                    wrong = f"{record.name} does not hold the {slice_.bytes} bytes that it recorded"
                    self._find("broken_chain", record.name, wrong)

    def _inspect(self) -> dict[str, Inspected]:
        """Compare the repositories of the backups with the catalog; return the findings by repository.

        A repository that cannot be opened is added to ``_closed``, and its objects are not checked.
        """
        found = {}
        for root in dict.fromkeys(r.stored for r in self._records if r.stored is not None):
            stored = [record for record in self._records if record.stored == root]
            try:
                found[root] = patiently(self._runtime, partial(self._inspect_one, root, stored))
                if found[root].spoiled:
                    found[root].forget(self._path.path, self._find_folded_since(stored))
                if found[root].others:
                    unknown = partial(self._unknown, root, found[root].others)
                    found[root].problems += patiently(self._runtime, unknown)
            except (Corrupted, NotExpected) as error:
                self._closed.add(root)
                found[root] = Inspected.of_closed(root, [record.name for record in stored], error.message)
            self._problems += found[root].problems
            self._spoiled = {**found[root].spoiled, **self._spoiled}
        return found

    def _find_folded_since(self, known: Sequence[BackupRecord]) -> list[str]:
        """Return the backups whose manifests a compaction or merge has changed since this run began."""
        with self._runtime.catalog.read() as conn:
            now = {head.name: file_of(head) for _, head in backup_heads(conn, self._path)}
        return [record.name for record in known if now.get(record.name) != file_of(record)]

    def _unknown(self, root: str, files: Sequence[str]) -> list[Problem]:
        """Return a problem for each backup in the repository that this warehouse does not know.

        The catalog lists a backup of this warehouse before its manifest is written, and until its manifest is
        deleted. So no running upload or removal is reported.
        """
        with self._runtime.catalog.read() as conn:
            known = {path.name for path in paths.children(conn, self._path)}
            known |= {*paths.require_id(conn, self._path.id).record(CollectionRecord).leaving}
        there = plain(self._runtime.files.at(root))
        return [
            Problem(
                "unknown_backup",
                f"{root}/{file}",
                f"{root} has a backup {backup_of(file)} that this warehouse does not know",
            )
            for file in files
            if backup_of(file) not in known and there.exists(file)
        ]

    def _inspect_one(self, root: str, stored: Sequence[BackupRecord]) -> Inspected:
        is_own = root == self._collection.settings.storage and not self._collection.attached
        # Open the repository again: this process may have cached a key that is lost.
        files, _ = self._runtime.files.open_anew(root)
        return inspect(
            Repository(files, root),
            stored,
            self._held,
            collection=self._path.path,
            owner=self._warehouse if is_own else None,
            whole=self._request.at is None,
        )

    def _count_unnamed(self, inspected: Mapping[str, Inspected]) -> int | None:
        if self._level == "chain":
            return None
        count = 0
        for root, found in inspected.items():
            if found.named is None:
                return None
            repository = Repository(self._runtime.files.at(root), root)
            count += patiently(self._runtime, partial(count_unnamed, repository, found.named))
        return count

    # --- checks of objects, trial restores -----------------------------------------------------------------

    def _look_at_objects(self) -> None:
        objects, request = self._objects, self._request
        for record in self._records:
            if record.stored not in self._closed:
                for slice_, schema in record.shaped_slices:
                    objects.add(record.name, self._held.get(slice_.target_id, ()), schema)
        # If the repository was not garbage-collected yet, it may still have objects of dropped backups.
        some = request.at is not None or bool(self._closed) or bool(self._collection.leaving)
        due = objects.due(sample=request.sample, again=request.again)
        objects.look_at(due, some=some)
        for key, finding in objects.findings.items():
            at = self._at(objects.all[key].backup)
            self._problems.append(Problem(finding.kind, at, finding.message, list(finding.keys)))

    def _try(self, try_restore: Callable[[str, str], None]) -> dict[str, float]:
        """Run a trial restore of the last backup of each chain for which one is due.

        Return the time of each backup's last successful trial restore, by backup name. It may be from an
        earlier run.
        """
        with self._runtime.catalog.read() as conn:
            earlier = reports(conn, [row.id for row in self._rows])
        tried = {
            report.backup: report.verified_at
            for listed in earlier.values()
            for _, report in listed
            if report.level == "restore" and report.verified_at is not None
        }
        verdicts = self._judge()
        for backup in self._ends_due(tried):
            if verdicts[backup].because is not None:
                continue  # The trial would fail with the same error.
            try:
                with phase(f"trial restore of {backup}"):
                    try_restore(self._path.name, backup)
            except Corrupted as error:
                self._find("failed_restore", backup, f"{backup} cannot be restored: {error.message}")
            except PathNotFound:
                continue  # The backup was dropped meanwhile.
            else:
                tried[backup] = self._runtime.clock.now()
            collect_garbage(self._runtime)  # Free the trial's copies, which may be as large as the tables.
        return tried

    def _ends_due(self, tried: Mapping[str, float]) -> list[str]:
        parents = {record.parent for record in self._records}
        ends = [record.name for record in self._records if record.name not in parents]
        ordered = sorted(ends, key=lambda name: (tried.get(name, 0.0), name))
        if self._request.sample is not None:
            return ordered[: ceil(len(ordered) * self._request.sample / 100)]
        return [name for name in ordered if self._request.again or name not in tried]

    # --- reports -------------------------------------------------------------------------------------------

    def _judge(self) -> dict[str, Verdict]:
        held = {}
        for record in self._records:
            for target_id in _targets(record):
                since, damage = self._objects.known_results(self._held.get(target_id, ()))
                since = inf if self._level == "chain" else since
                held[target_id] = SliceHealth(
                    since, None if damage is None else f"{damage} (of {record.name})"
                )
        return judge(self._records, held, self._spoiled)

    def _reports(self, verdicts: Mapping[str, Verdict], tried: Mapping[str, float]) -> list[BackupReport]:
        objects, size = Counter[str](), Counter[str]()
        for each in self._objects.checked:
            objects[each.backup] += 1
            size[each.backup] += each.segment.bytes
        problems = Counter(problem.path for problem in self._problems)
        now = self._runtime.clock.now()
        made = []
        for name, verdict in verdicts.items():
            since = tried.get(name) if self._level == "restore" else verdict.since
            made.append(
                BackupReport(
                    backup=name,
                    level=self._level,
                    objects=objects[name],
                    bytes=size[name],
                    problems=problems[self._at(name)],
                    restorable=verdict.because is None,
                    because=verdict.because,
                    verified_at=None if verdict.because or since is None else min(since, now),
                )
            )
        return made


def _targets(record: BackupRecord) -> list[int]:
    return [slice_.target_id for slice_ in record.slices]


def _choose_backups(conn: Connection, collection: Path, at: str | None) -> list[Path]:
    """Return the backups to verify, oldest first: all, or ``at`` and the backups that it builds on."""
    there = paths.backups(conn, collection)
    if at is None:
        return there
    by_name = {row.name: row for row in there}
    require_backup(conn, collection, by_name, at)
    chosen: set[str] = set()
    here: str | None = at
    while here in by_name and here not in chosen:
        chosen.add(here)
        here = by_name[here].record(BackupRecord).parent
    return [row for row in there if row.name in chosen]
