"""Comparison of a repository with the catalog: marker, owners, manifests."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field, replace
from functools import partial

from strandline.backups.record import BackupRecord, SliceRecord, TableRecord
from strandline.backups.repository.manifest import Manifest, file_of
from strandline.backups.repository.repository import Repository
from strandline.errors import Corrupted, PathNotFound, PreconditionFailed, StrandlineError
from strandline.model import Segment, object_of
from strandline.records import Newer
from strandline.storage.object_names import OBJECTS, is_object_or_part
from strandline.tables.check import Problem

READERS = 8
"""Maximum number of manifests that are read at the same time."""


@dataclass
class Inspected:
    """Findings about a repository.

    Attributes:
        spoiled: Backups that cannot be restored from this repository, each with the reason.
        named: Objects that manifests name. None: a manifest was not read, so the list would be incomplete.
        is_owned: True if the expected warehouse still owns the repository.
        others: Manifests of backups that the catalog does not have. Empty unless ``is_owned``.
    """

    problems: list[Problem] = field(default_factory=list)
    spoiled: dict[str, str] = field(default_factory=dict)
    named: set[str] | None = field(default_factory=set)
    others: list[str] = field(default_factory=list)
    is_owned: bool = False

    def name(self, manifest: Manifest) -> None:
        if self.named is not None:
            self.named.update(manifest.objects())

    def forget(self, collection: str, backups: Iterable[str]) -> None:
        """Remove the findings about some backups of a collection."""
        for name in backups:
            self.spoiled.pop(name, None)
            self.problems = [p for p in self.problems if p.path != f"{collection}/{name}"]

    @staticmethod
    def of_closed(root: str, backups: Sequence[str], message: str) -> Inspected:
        """Return the findings about a repository that cannot be opened."""
        problem = Problem("damaged_repository", root, message)
        return Inspected([problem], dict.fromkeys(backups, message), None)


def inspect(
    repository: Repository,
    records: Sequence[BackupRecord],
    held: Mapping[int, Sequence[Segment]],
    *,
    collection: str,
    owner: str | None,
    whole: bool,
) -> Inspected:
    """Compare a repository with the catalog and return the findings.

    CORRUPTED if its marker is missing or damaged, because then nothing in the repository can be trusted.

    Args:
        records: The backups that the repository should have.
        held: The catalog's segments for the objects of these backups, by path id.
        collection: Path of the collection.
        owner: Id of the warehouse that should own the repository. None: any warehouse may own it.
        whole: True: ``records`` are all backups of the collection, so the repository's other manifests are
            read as well.
    """
    found = Inspected()
    by_name = {record.name: record for record in records}
    _check_marker(repository)
    _inspect_owners(repository, owner, found, list(by_name))
    listed = repository.list_manifests()
    # Compare the manifest of the same form: a compaction that was rolled back may have left another manifest,
    # with the same rows in other files.
    counting = {name: _choose_manifest(listed.get(name, []), record) for name, record in by_name.items()}
    there = {file for files in listed.values() for file in files}
    wanted = sorted(there if whole else {name for name in counting.values() if name is not None})
    with ThreadPoolExecutor(READERS) as pool:
        read = dict(zip(wanted, pool.map(partial(_read, repository), wanted), strict=True))
    for name, record in by_name.items():
        file = counting[name]
        manifest = read.pop(file) if file is not None else _no(repository, name)
        if isinstance(manifest, Manifest):
            found.name(manifest)
            if _is_same(manifest, record, held, repository.root):
                continue
            kind, message = "different_manifest", f"the manifest of {name} does not say what the catalog says"
        else:
            kind = "missing_manifest" if file is None else "damaged_manifest"
            message = manifest.message
            found.named = None if file is not None else found.named
        found.problems.append(Problem(kind, f"{collection}/{name}", message))
        found.spoiled.setdefault(name, message)
    # The other manifests are superseded by a compaction or merge, or belong to backups that the catalog does
    # not have.
    for file, manifest in read.items():
        if isinstance(manifest, Manifest):
            found.name(manifest)
            if manifest.backup.name not in by_name and found.is_owned:
                found.others.append(file)
        elif repository.plain.exists(file):  # Otherwise it was deleted meanwhile.
            found.named = None
            found.problems.append(Problem("damaged_manifest", f"{repository.root}/{file}", manifest.message))
    if not whole:
        found.named = None
    return found


def _choose_manifest(files: Sequence[str], record: BackupRecord) -> str | None:
    """Return the manifest file to compare with a record: the one of the same form, or the one in effect.

    None: the repository has no manifest of this backup.

    Args:
        files: Manifest files of the backup. The first one is in effect.
    """
    known = file_of(record)
    return known if known in files else next(iter(files), None)


def _no(repository: Repository, backup: str) -> StrandlineError:
    return PathNotFound(f"{repository.root} has no backup {backup!r}")


def _check_marker(repository: Repository) -> None:
    """Check the marker. Without it, manifests of another repository could not be detected."""
    try:
        repository.marker  # noqa: B018 (the property reads and checks it)
    except Newer:
        raise
    except PreconditionFailed as error:
        raise Corrupted(error.message) from error


def _inspect_owners(
    repository: Repository, owner: str | None, found: Inspected, names: Sequence[str]
) -> None:
    try:
        there = repository.check_owners()
    except Corrupted as error:
        found.problems.append(Problem("damaged_repository", repository.root, error.message))
        try:
            repository.owner()
        except Corrupted:  # Without a readable owner the repository cannot be attached.
            found.spoiled.update(dict.fromkeys(names, error.message))
        return
    found.is_owned = there.warehouse == owner
    if owner is not None and not found.is_owned:
        message = f"the repository belongs to the warehouse {there.warehouse} now, and not to {owner}"
        found.problems.append(Problem("other_owner", repository.root, message))


def count_unnamed(repository: Repository, named: set[str]) -> int:
    """Count the objects that no manifest names. They belong to deleted or unfinished backups."""
    there = (name for name in repository.files.names(OBJECTS) if is_object_or_part(name))
    return sum(1 for name in there if name not in named)


def _read(repository: Repository, file: str) -> Manifest | StrandlineError:
    try:
        return repository.manifest_at(file)
    except (Corrupted, PreconditionFailed) as error:
        return error


def _is_same(
    manifest: Manifest, record: BackupRecord, held: Mapping[int, Sequence[Segment]], root: str
) -> bool:
    if _timeless(manifest.backup) != _timeless(record):
        return False
    places = {id(theirs): ours for theirs, ours in zip(manifest.backup.slices, record.slices, strict=True)}
    for slice_, objects in manifest.slices():
        there = sorted(_plain(o.segment(root, "")) for o in objects)
        here = sorted(_plain(s) for s in held.get(places[id(slice_)].target_id, ()))
        if there != here:
            return False
    return True


def _plain(segment: Segment) -> tuple[str, ...]:
    """Return the fields of a segment for a comparison, without names that are local to one catalog."""
    return tuple(map(repr, _values(replace(segment, id=0, file=object_of(segment.file or "")))))


def _values(segment: Segment) -> list[object]:
    return [
        segment.file,
        segment.checksum,
        segment.bytes,
        segment.rows,
        segment.role,
        segment.fresh,
        segment.stepped,
        segment.after,
        segment.upto,
        segment.min_key,
        segment.max_key,
    ]


def _timeless(record: BackupRecord) -> BackupRecord:
    """Return a record without the ids that are local to one catalog."""

    def slice_(of: SliceRecord) -> SliceRecord:
        return replace(of, target_id=0)

    def table(of: TableRecord) -> TableRecord:
        indexes = tuple(i if i.slice is None else replace(i, slice=slice_(i.slice)) for i in of.indexes)
        return replace(of, slice=slice_(of.slice), indexes=indexes)

    tables = {path: table(of) for path, of in record.tables.items()}
    return replace(record.for_a_repository(), tables=tables)
