"""A repository: a folder or a part of a bucket that holds the backups of one collection, and everything that
is needed to restore them (``docs/repository.md``).

``repository.json`` says what it is, ``owners/`` which warehouse may add to it, ``objects/`` holds the rows
under names that tell their content, ``backups/`` one manifest for each backup. A backup exists from the
moment on at which its manifest does, and that is written last. Nothing is ever overwritten.

An increment that became a full backup (``compact.py``) has a second manifest, ``NAME.full.json`` beside
``NAME.json``, and one that has swallowed those before it (``merge.py``) has ``NAME.after-STEP.json``. Of all
that are there the one counts that reaches back the farthest, from the moment on at which it is there. What
the others say stays true for as long as the backups are there that they build on, and they go before these do
(``forget_outdated``); the objects that only they need are free then.
"""

from __future__ import annotations

import re
import uuid
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import cached_property

from strandline.backups.lease import FOLDER as LEASES
from strandline.backups.manifest import MANIFESTS, Manifest, after_in, backup_of, file_of
from strandline.backups.manifest_rules import check_manifest
from strandline.backups.record import BackupHead
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
from strandline.storage.elsewhere import OBJECTS, Everywhere, roots
from strandline.storage.files import Files
from strandline.storage.location import files_at
from strandline.storage.marker import MARKER, Marker, from_bytes, plain, read_marker, text_of, to_bytes
from strandline.version import VERSION

OWNERS, TRASH, KEYS = "owners", "trash", "keys"
_OWNER = re.compile(rf"{OWNERS}/[0-9]{{8}}\.json", re.ASCII)
FOLDERS = (OBJECTS, MANIFESTS, OWNERS, TRASH, LEASES)
"""All that is in these is the repository's own, and comes after its marker."""
TRIES = 3
"""So often a manifest is looked for: another may have come to count since they were listed."""

_TWO_OF_A_KIND = (
    "Perhaps a copy of this warehouse backs up to the same place: give that one another. To go on with all "
    "that is there, drop the collection, which leaves the repository alone, and attach it WITH (TAKE_OVER = "
    "'true')."
)


@dataclass(frozen=True, kw_only=True)
class RepositoryOwner(Record):
    """The warehouse whose backups go into a repository, from ``since`` on."""

    warehouse: str
    since: float


class Repository:
    """The repository at ``root``, whose files are open with its key, if it needs one."""

    def __init__(self, files: Files, root: str) -> None:
        self.files = files
        self.root = root
        self.plain = plain(files)

    @cached_property
    def marker(self) -> Marker:
        """What it is; PRECONDITION_FAILED if there is none."""
        found = read_marker(self.plain)
        if found is None:
            raise PreconditionFailed(
                f"{self.root} is not a backup repository: it has no {MARKER}",
                "Check the folder or the URL, and that its storage is mounted.",
            )
        return found

    @property
    def key(self) -> str | None:
        """The fingerprint of the user's key that opened it; None if it is not encrypted."""
        from strandline.storage.sealed import SealedFiles

        return self.files.ring.opens_with if isinstance(self.files, SealedFiles) else None

    @staticmethod
    def make(
        files: Files, root: str, settings: Settings, *, now: float, encrypted: bool, known: bool = False
    ) -> None:
        """Make files a repository, if nobody has; one that others made must be of the same kind. ``known``:
        it has backups already, so that one without a marker is away, and no new one takes its place."""
        marker = read_marker(files)
        if marker is None and known:
            raise away(root)
        if marker is None:
            check_free(files, root, settings)
            make_root(files, root)
            if encrypted:
                # Before anything is there that would need them.
                from strandline.storage import keyring, user_key

                keyring.create(files, user_key.user_key(settings))
            made = Marker(id=uuid.uuid4().hex, created=now, engine=VERSION, encrypted=encrypted)
            files.write_if_absent(MARKER, to_bytes(made))
            marker = read_marker(files)
        check_kind(marker, root, encrypted=encrypted)

    # --- who writes ----------------------------------------------------------------------------------------

    def owner(self) -> RepositoryOwner | None:
        """Return who may add backups: the last one that took it."""
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
        """Return who may add backups, if all that is said about it is there."""
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
        """Refuse a warehouse whose backups do not belong here, and what is no repository (any more).
        ``collection``: the name of the one that keeps its backups here, for the hint."""
        owner = self.owner()
        if owner is None:
            self.marker  # noqa: B018  (one without an owner is being made, or it is none)
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
        """Make a warehouse the owner; of one that has another, only if it is to ``take_over``."""
        if not take_over:
            self.check_owner(warehouse)
        owner = self.owner()
        if owner is not None and owner.warehouse == warehouse:
            return
        last = self._owners()[-1:]
        number = int(last[0].rpartition("/")[2].removesuffix(".json")) + 1 if last else 1
        made = RepositoryOwner(warehouse=warehouse, since=now)
        self.plain.write_if_absent(_owner_name(number), to_bytes(made))
        self.check_owner(warehouse)  # Another may have been faster.

    # --- backups -------------------------------------------------------------------------------------------

    def backups(self) -> list[str]:
        """Return the names of its backups, oldest first."""
        return sorted(self.listed())

    def listed(self) -> dict[str, list[str]]:
        """Return for each backup its manifests: the one that counts, then those that it has made outdated."""
        found: dict[str, list[str]] = {}
        for file in sorted(self.plain.names(MANIFESTS), key=after_in):
            backup = backup_of(file)
            if backup is not None:
                found.setdefault(backup, []).append(file)
        return found

    def check_collection(self, name: str) -> None:
        """Refuse a collection whose backups are not those that are here, as far as they can be read."""
        for backup in reversed(self.backups()):
            try:
                found = self.manifest(backup).collection
            except (Corrupted, PathNotFound, PreconditionFailed):
                continue
            if found != name:
                raise of_another(self.root, found)
            return

    def check_line(self, collection: Iterable[str], sent: Iterable[str], warehouse: str) -> None:
        """Refuse a warehouse that is not the only one of its kind: the repository has a backup that came
        after those that it has ``sent``, or dropped, and it is none of its ``collection``."""
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
        """Return the files that are manifests: of a backup that was folded there may be several."""
        return [file for files in self.listed().values() for file in files]

    def manifest(self, backup: str) -> Manifest:
        """Return the manifest of a backup. CORRUPTED if it is not as it was written, or another one's."""
        for tried in range(TRIES):
            listed = self.listed()
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
        """Return the manifest that says of a backup what it is now."""
        file = file_of(backup)
        return None if not self.plain.exists(file) else self.manifest_at(file)

    def manifest_at(self, file: str) -> Manifest:
        """Return the manifest that a file is."""
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
        """Refuse a manifest that does not open, or a byte of which has changed. What it says is not looked
        at."""
        text_of(self.files.read(file), f"the manifest of {backup_of(file)} in {self.root}")

    def add(self, manifest: Manifest) -> bool:
        """Let a backup exist, all of whose objects are there, and return whether it did not before."""
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
        """Refuse a backup that builds on another one which is not there: nobody could restore it."""
        if not self.plain.exists(file_of(backup)):
            raise PreconditionFailed(
                f"{self.root} does not have the backup {backup.name}, on which {child} builds",
                "Bring it back from a copy of the repository; or drop it with what builds on it, and take a "
                f"full backup: DROP BACKUP {word(collection)} '{backup.name}' CONFIRM, then "
                f"BACKUP {word(collection)}.",
            )

    def remove(self, backup: str) -> None:
        """Let a backup exist no more. Its objects stay, until it is known what else needs them."""
        # The one that counts goes last: the others might build on backups that are gone.
        for file in reversed(self.listed().get(backup, [])):
            self.files.remove(file)

    def withdraw(self, manifest: Manifest) -> None:
        """Take back what was said about a backup."""
        self.files.remove(file_of(manifest.backup))

    def check_free(self, going: Collection[str], staying: Collection[str]) -> None:
        """Refuse to let backups go if one builds on them that is neither going nor staying: the warehouse, or
        its catalog, was copied or put back to an earlier state, and two take the repository for theirs."""
        for name, files in self.listed().items():
            if name in going or name in staying:
                continue
            try:
                parent = self.manifest_at(files[0]).backup.parent
            except Corrupted:
                continue  # Nobody can restore it.
            if parent in going:
                raise PreconditionFailed(
                    f"{self.root} has a backup {name} that this warehouse does not know, and it builds on "
                    f"{parent}",
                    _TWO_OF_A_KIND,
                )

    def forget_outdated(self, backups: Sequence[BackupHead], check: Callable[[], None]) -> None:
        """Let ``backups``, which are all that stay, be nothing but what they are now. A manifest that reaches
        back farther, which a merge that was undone has left, goes if it builds on one that does not stay.
        ``check``: raises if this process may not write any more."""
        listed, steps = self.listed(), {backup.step for backup in backups}
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
    """Refuse a repository that is encrypted though it should not be, or the other way round."""
    if marker is not None and marker.encrypted != encrypted:
        how = "is encrypted" if marker.encrypted else "is not encrypted"
        raise PreconditionFailed(
            f"the repository {root} {how}, and the collection wants it otherwise",
            "Find out whether another repository was put in its place. If it is the right one, set "
            "ENCRYPTION to what it is, or choose another place.",
        )


def make_root(files: Files, root: str) -> None:
    """Make the folder of a repository, unless it is there."""
    try:
        files.make_root()
    except OSError as error:
        raise Unavailable(
            f"the folder {root} cannot be made: {error.strerror}",
            "Check that its storage is mounted, and that this process may write there.",
        ) from error


def check_free(files: Files, root: str, settings: Settings) -> None:
    """Refuse a place for a new repository where it would take what others have for its own, and remove it, or
    where another repository would do so with what is its own."""
    for name in (name for folder in FOLDERS for name in files.names(folder)):
        if read_marker(files) is not None:
            return  # Another process has just made it.
        raise PreconditionFailed(
            f"{root} is no place for a new repository: it has no {MARKER}, but a file {name}",
            "Choose an empty folder. If it is a repository without its marker, bring that back from a copy.",
        )
    for above in _around(files.location):
        found = None
        with suppress(StrandlineError):  # What this process may not read is not its own.
            found = read_marker(files_at(above, settings))
        if found is not None:
            raise PreconditionFailed(
                f"{root} is no place for a new repository: it is among the files of the one at {above}",
                "Choose a folder outside of it.",
            )


def _around(location: str) -> Iterator[str]:
    """Yield the places to which a place would belong if there were repositories."""
    scheme, mark, path = location.rpartition("://")
    names = path.split("/")
    for number, name in enumerate(names[1:], start=1):
        if name in (*FOLDERS, KEYS):
            yield f"{scheme}{mark}{'/'.join(names[:number]) or '/'}"


def check_there(files: Everywhere, segments: Iterable[Segment]) -> None:
    """Refuse segments of a repository that is not where it was: not each of its files is missing, it is."""
    for root in roots(segment.file for segment in segments):
        if read_marker(plain(files.at(root))) is None:
            raise away(root)


def away(root: str) -> PreconditionFailed:
    """Return the error for a repository that is not where its backups are known to be."""
    return PreconditionFailed(
        f"the repository {root} has backups of the collection, and is not there: it has no {MARKER}",
        "Check that its storage is mounted. If it was moved, drop the collection and attach the "
        "repository where it is now; if it is lost, drop the collection and create it again.",
    )


def of_another(root: str, collection: str) -> PreconditionFailed:
    """Return what is said where the backups of two collections would be in one place."""
    return PreconditionFailed(
        f"the repository {root} is that of the collection {collection!r}",
        "Each collection has a repository of its own. Choose another place, or drop that collection first; "
        "if it is in the bin, bring it back with UNDROP BACKUP COLLECTION.",
    )


def _owner_name(number: int) -> str:
    return f"{OWNERS}/{number:08}.json"
