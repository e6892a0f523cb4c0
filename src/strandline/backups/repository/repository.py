"""A repository: a folder or URL with the backups of one collection and all that a restore needs.

The format is described in ``docs/repository.md``:

- ``repository.json`` is the marker. It says what the repository is.
- ``owners/`` lists the owners. The last one is the warehouse that may add backups.
- ``objects/`` holds the rows, in files that are named by content.
- ``backups/`` holds one manifest for each backup. A backup exists as soon as its manifest does; the manifest
  is written last. No file is ever overwritten.

An increment that was compacted into a full backup (``compact.py``) has a second manifest, ``NAME.full.json``
beside ``NAME.json``. An increment into which earlier ones were merged (``merge.py``) has
``NAME.after-STEP.json``. If a backup has several manifests, the one that reaches back farthest is in effect
as soon as it is written. The other manifests are superseded, but stay valid while the backups that they build
on exist. ``forget_outdated`` deletes the superseded manifests before these backups are deleted. Then the
objects that only superseded manifests name can be deleted.
"""

from __future__ import annotations

import re
import uuid
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import cached_property

from strandline.backups.record import BackupHead
from strandline.backups.repository.lease import FOLDER as LEASES
from strandline.backups.repository.manifest import MANIFESTS, Manifest, after_in, backup_of, file_of
from strandline.backups.repository.manifest_rules import check_manifest
from strandline.errors import (
    AlreadyExists,
    Corrupted,
    PathNotFound,
    PreconditionFailed,
    StrandlineError,
    Unavailable,
)
from strandline.model import Segment
from strandline.names import did_you_mean
from strandline.records import Record
from strandline.settings import Settings
from strandline.sql.constants import constant
from strandline.sql.tokens import word
from strandline.storage.file_router import OBJECTS, FileRouter, roots
from strandline.storage.files import Files
from strandline.storage.location import files_at
from strandline.storage.repository_marker import (
    MARKER,
    Marker,
    from_bytes,
    plain,
    read_marker,
    text_of,
    to_bytes,
)
from strandline.version import VERSION

OWNERS, TRASH, KEYS = "owners", "trash", "keys"
_OWNER = re.compile(rf"{OWNERS}/[0-9]{{8}}\.json", re.ASCII)
FOLDERS = (OBJECTS, MANIFESTS, OWNERS, TRASH, LEASES)
"""Folders in which every file belongs to the repository. They are created after its marker."""
TRIES = 3
"""Maximum number of attempts to read a manifest: another process may replace it after the listing."""

_TWO_OF_A_KIND = (
    "Perhaps a copy of this warehouse writes to the same repository: choose another place for the copy. To "
    "continue with the repository as it is, drop the collection, which leaves the repository alone, and "
    "attach it WITH (TAKE_OVER = 'true')."
)


@dataclass(frozen=True, kw_only=True)
class RepositoryOwner(Record):
    """The warehouse that may add backups to a repository.

    Attributes:
        warehouse: Id of the warehouse.
        since: Time when it became the owner.
    """

    warehouse: str
    since: float


class Repository:
    """A backup repository.

    Attributes:
        files: Access to its files. In an encrypted repository, writes encrypt and reads decrypt.
        root: Its folder or URL.
        plain: Access to the bytes of its files as they are stored, even if the repository is encrypted.
    """

    def __init__(self, files: Files, root: str) -> None:
        self.files = files
        self.root = root
        self.plain = plain(files)

    @cached_property
    def marker(self) -> Marker:
        """The marker of the repository. PRECONDITION_FAILED if it has none."""
        found = read_marker(self.plain)
        if found is None:
            raise PreconditionFailed(
                f"{self.root} is not a backup repository: it has no {MARKER}",
                "Check the folder or the URL, and that its storage is mounted.",
            )
        return found

    @property
    def key(self) -> str | None:
        """The fingerprint of the user's key that opened the repository. None: it is not encrypted."""
        from strandline.storage.encrypted_files import EncryptedFiles

        return self.files.ring.opens_with if isinstance(self.files, EncryptedFiles) else None

    @staticmethod
    def make(
        files: Files, root: str, settings: Settings, *, now: float, encrypted: bool, known: bool = False
    ) -> None:
        """Create a repository unless it exists.

        Args:
            encrypted: Encrypt the new repository. An existing one is refused if its encryption differs.
            known: The repository already has backups of the collection. If the marker is missing in this
                case, the location is refused, and no new repository is created.
        """
        marker = read_marker(files)
        if marker is None and known:
            raise away(root)
        if marker is None:
            check_free(files, root, settings)
            make_root(files, root)
            if encrypted:
                # Write the keys first: a marker without keys would be an unreadable repository.
                from strandline.storage import keyring, user_key

                keyring.create(files, user_key.user_key(settings))
            made = Marker(id=uuid.uuid4().hex, created=now, engine=VERSION, encrypted=encrypted)
            files.write_if_absent(MARKER, to_bytes(made))
            marker = read_marker(files)
        check_kind(marker, root, encrypted=encrypted)

    # --- owner ---------------------------------------------------------------------------------------------

    def owner(self) -> RepositoryOwner | None:
        """Return the current owner: the last warehouse that took the repository."""
        names = self._owners()
        if not names:
            return None
        return self._owner_at(names[-1])

    def _owner_at(self, file: str) -> RepositoryOwner:
        what = f"the file {file} of {self.root}"
        found = from_bytes(RepositoryOwner, self.plain.read(file), what)
        if not found.warehouse.isprintable():
            raise Corrupted(f"{what} names no warehouse", "Bring it back from a copy of the repository.")
        return found

    def check_owners(self) -> RepositoryOwner:
        """Return the current owner. CORRUPTED if the list of owners is incomplete."""
        names = self._owners()
        for number, name in enumerate(names or [""], start=1):
            if name != _owner_name(number):
                raise Corrupted(
                    f"{self.root} has no file {_owner_name(number)}, which says who may add backups",
                    "Bring it back from a copy of the repository.",
                )
        return [self._owner_at(name) for name in names][-1]

    def _owners(self) -> list[str]:
        return sorted(filter(_OWNER.fullmatch, self.plain.names(OWNERS)))

    def check_owner(self, warehouse: str, collection: str | None = None) -> None:
        """Refuse a warehouse that does not own the repository, and a location that is not a repository.

        Args:
            collection: Name of the collection that stores its backups here, for the hint of the error.
        """
        owner = self.owner()
        if owner is None:
            self.marker  # noqa: B018  (without an owner: refuse a location without a marker)
        elif owner.warehouse != warehouse:
            hint = "Choose another place for the backups of this warehouse."
            if collection is not None:
                hint += (
                    " If that one is lost, take the repository over: ATTACH BACKUP COLLECTION "
                    f"{word(collection)} FROM {constant(self.root)} WITH (TAKE_OVER = 'true')."
                )
            raise PreconditionFailed(
                f"the repository {self.root} belongs to the warehouse {owner.warehouse}, and this is "
                f"{warehouse}",
                hint,
            )

    def own(self, warehouse: str, now: float, *, take_over: bool = False) -> None:
        """Make a warehouse the owner of the repository.

        Args:
            take_over: Replace another owner. Without this, a repository that has another owner is refused.
        """
        if not take_over:
            self.check_owner(warehouse)
        owner = self.owner()
        if owner is not None and owner.warehouse == warehouse:
            return
        last = self._owners()[-1:]
        number = int(last[0].rpartition("/")[2].removesuffix(".json")) + 1 if last else 1
        made = RepositoryOwner(warehouse=warehouse, since=now)
        self.plain.write_if_absent(_owner_name(number), to_bytes(made))
        self.check_owner(warehouse)  # Another process may have been faster.

    # --- backups -------------------------------------------------------------------------------------------

    def backups(self) -> list[str]:
        """Return the names of the backups in the repository, oldest first."""
        return sorted(self.list_manifests())

    def list_manifests(self) -> dict[str, list[str]]:
        """Return the manifests of each backup: first the one in effect, then the superseded ones."""
        found: dict[str, list[str]] = {}
        for file in sorted(self.plain.names(MANIFESTS), key=after_in):
            backup = backup_of(file)
            if backup is not None:
                found.setdefault(backup, []).append(file)
        return found

    def check_collection(self, name: str) -> None:
        """Refuse the repository if its last readable backup belongs to another collection."""
        for backup in reversed(self.backups()):
            try:
                found = self.manifest(backup).collection
            except (Corrupted, PathNotFound, PreconditionFailed):
                continue
            if found != name:
                raise of_another(self.root, found)
            return

    def check_line(self, collection: Iterable[str], sent: Iterable[str], warehouse: str) -> None:
        """Refuse the repository if a copy of this warehouse also writes to it.

        A copy has written a backup if the backup has the id of this warehouse, is newer than each backup in
        ``sent``, and is missing in ``collection``.

        Args:
            collection: Names of the collection's backups in the catalog.
            sent: Names of backups that this warehouse has uploaded or dropped.
            warehouse: Id of this warehouse.
        """
        last, known = max(sent), set(collection)
        for backup in (name for name in self.backups() if name > last and name not in known):
            try:
                found = self.manifest(backup)
            except (Corrupted, PathNotFound, PreconditionFailed):
                continue
            if found.warehouse == warehouse:
                raise PreconditionFailed(
                    f"{self.root} has a backup {backup} that this warehouse does not know, and it came after "
                    f"{last}",
                    _TWO_OF_A_KIND,
                )

    def manifests(self) -> list[str]:
        """Return all manifest files. A compacted or merged backup may have several."""
        return [file for files in self.list_manifests().values() for file in files]

    def manifest(self, backup: str) -> Manifest:
        """Return the manifest that is in effect for a backup. CORRUPTED if this manifest is damaged."""
        for tried in range(TRIES):
            listed = self.list_manifests()
            if backup not in listed:
                break
            file = listed[backup][0]
            try:
                return self.manifest_at(file)
            except Corrupted:
                if tried + 1 == TRIES or self.plain.exists(file):
                    raise
        raise PathNotFound(f"{self.root} has no backup {backup!r}", did_you_mean(backup, list(listed)))

    def find(self, backup: BackupHead) -> Manifest | None:
        """Return the manifest of a backup in its present form: as taken, compacted or merged.

        None: the repository does not have this manifest.
        """
        file = file_of(backup)
        return None if not self.plain.exists(file) else self.manifest_at(file)

    def manifest_at(self, file: str) -> Manifest:
        """Read a manifest file and check its content."""
        backup = backup_of(file)
        data = self.files.read(file)
        found = from_bytes(Manifest, data, f"the manifest of {backup} in {self.root}")
        if file_of(found.backup) != file or found.repository != self.marker.id:
            raise Corrupted(
                f"the manifest of {backup} in {self.root} is that of {found.backup.name} in the repository "
                f"{found.repository}",
                "Bring the right one back from a copy of the repository.",
            )
        check_manifest(found, self.files, f"the manifest of {backup} in {self.root}")
        return found

    def check_bytes(self, file: str) -> None:
        """Raise CORRUPTED if a manifest cannot be decrypted or its checksum does not match.

        The content is not checked.
        """
        text_of(self.files.read(file), f"the manifest of {backup_of(file)} in {self.root}")

    def add(self, manifest: Manifest) -> bool:
        """Write the manifest of a backup whose objects are all uploaded. Return False if it existed."""
        is_new = self.files.write_if_absent(file_of(manifest.backup), to_bytes(manifest))
        if not is_new:
            there = self.find(manifest.backup)
            if there is None or there.backup != manifest.backup or there.contents != manifest.contents:
                raise AlreadyExists(
                    f"{self.root} has another backup {manifest.backup.name} already",
                    "Two warehouses must not share a repository. Choose another place.",
                )
        return is_new

    def require(self, backup: BackupHead, child: str, collection: str) -> None:
        """Refuse to add the backup ``child`` if the repository does not have its parent ``backup``.

        Without its parent the child could not be restored.
        """
        if not self.plain.exists(file_of(backup)):
            raise PreconditionFailed(
                f"{self.root} does not have the backup {backup.name}, on which {child} builds",
                "Bring it back from a copy of the repository; or drop it with what builds on it, and take a "
                f"full backup: DROP BACKUP {word(collection)} '{backup.name}' CONFIRM, then "
                f"BACKUP {word(collection)}.",
            )

    def remove(self, backup: str) -> None:
        """Delete the manifests of a backup. Its objects stay for the garbage collection."""
        # Delete the manifest in effect last: the superseded ones may build on backups that are already
        # deleted.
        for file in reversed(self.list_manifests().get(backup, [])):
            self.files.remove(file)

    def withdraw(self, manifest: Manifest) -> None:
        """Delete the manifest of a backup that turned out not to be restorable."""
        self.files.remove(file_of(manifest.backup))

    def check_free(self, going: Collection[str], staying: Collection[str]) -> None:
        """Refuse to drop backups if an increment that the catalog does not know builds on one of them.

        Such an increment shows that the warehouse or its catalog was copied, or restored to an earlier state,
        and that both copies write to the repository.

        Args:
            going: Names of the backups to drop.
            staying: Names of the collection's other backups.
        """
        for name, files in self.list_manifests().items():
            if name in going or name in staying:
                continue
            try:
                parent = self.manifest_at(files[0]).backup.parent
            except Corrupted:
                continue  # It cannot be restored anyway.
            if parent in going:
                raise PreconditionFailed(
                    f"{self.root} has a backup {name} that this warehouse does not know, and it builds on "
                    f"{parent}",
                    _TWO_OF_A_KIND,
                )

    def forget_outdated(self, backups: Sequence[BackupHead], check: Callable[[], None]) -> None:
        """Delete manifests superseded by compaction or merge.

        A merge that was rolled back may have left a manifest that reaches back farther than the one of the
        backup's present form. This manifest is also deleted if it builds on a backup that is not in
        ``backups``.

        Args:
            backups: All backups that remain in the collection.
            check: Raises an error if this process may not write any more.
        """
        listed, steps = self.list_manifests(), {backup.step for backup in backups}
        for backup in backups:
            files, present = listed.get(backup.name, []), file_of(backup)
            if present not in files:
                continue
            for file in files:
                after = after_in(file)
                if after > after_in(present) or (0 <= after < after_in(present) and after not in steps):
                    check()
                    self.files.remove(file)


def check_kind(marker: Marker | None, root: str, *, encrypted: bool) -> None:
    """Refuse a repository whose encryption is not the expected one. A missing marker is accepted."""
    if marker is not None and marker.encrypted != encrypted:
        how = "is encrypted" if marker.encrypted else "is not encrypted"
        raise PreconditionFailed(
            f"the repository {root} {how}, but the ENCRYPTION of the collection says otherwise",
            "Find out whether another repository was put in its place. If it is the right one, change "
            "ENCRYPTION to match it, or choose another place.",
        )


def make_root(files: Files, root: str) -> None:
    """Create the folder of a repository if it is missing."""
    try:
        files.make_root()
    except OSError as error:
        raise Unavailable(
            f"the folder {root} cannot be created: {error.strerror}",
            "Check that its storage is mounted, and that this process may write there.",
        ) from error


def check_free(files: Files, root: str, settings: Settings) -> None:
    """Refuse a location with leftover repository files, or inside another repository's folders.

    Otherwise the garbage collection of one repository would delete files of the other.
    """
    for name in (name for folder in FOLDERS for name in files.names(folder)):
        if read_marker(files) is not None:
            return  # Another process has just created it.
        raise PreconditionFailed(
            f"{root} cannot become a new repository: it has the file {name}, but no {MARKER}",
            f"Choose an empty folder. If it is a repository that has lost its {MARKER}, copy that file back.",
        )
    for above in _around(files.location):
        found = None
        with suppress(StrandlineError):  # A repository that this process may not read cannot be checked.
            found = read_marker(files_at(above, settings))
        if found is not None:
            raise PreconditionFailed(
                f"{root} cannot become a new repository: it is among the files of the one at {above}",
                "Choose a folder outside of it.",
            )


def _around(location: str) -> Iterator[str]:
    """Yield each parent location that has ``location`` among its own files if it is a repository."""
    scheme, mark, path = location.rpartition("://")
    names = path.split("/")
    for number, name in enumerate(names[1:], start=1):
        if name in (*FOLDERS, KEYS):
            yield f"{scheme}{mark}{'/'.join(names[:number]) or '/'}"


def check_there(files: FileRouter, segments: Iterable[Segment]) -> None:
    """Refuse segments whose repository is missing as a whole.

    Without this check each file of the repository would be reported as missing.
    """
    for root in roots(segment.file for segment in segments):
        if read_marker(plain(files.at(root))) is None:
            raise away(root)


def away(root: str) -> PreconditionFailed:
    """Build the error for a repository that is missing at its known location."""
    return PreconditionFailed(
        f"the repository {root}, which has backups of the collection, is missing: it has no {MARKER}",
        "Check that its storage is mounted. If it was moved, drop the collection and attach the "
        "repository where it is now; if it is lost, drop the collection and create it again.",
    )


def of_another(root: str, collection: str) -> PreconditionFailed:
    """Build the error for a location that would hold the backups of two collections."""
    return PreconditionFailed(
        f"the repository {root} is that of the collection {collection!r}",
        "Each collection has a repository of its own. Choose another place, or drop that collection first; "
        "if it is in the bin, bring it back with UNDROP BACKUP COLLECTION.",
    )


def _owner_name(number: int) -> str:
    return f"{OWNERS}/{number:08}.json"
