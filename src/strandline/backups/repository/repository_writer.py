"""Writes to a repository, under its lease.

An operation that adds or deletes files of a repository holds the repository's lease. The owner of the lease
is the collection, not the process. So another process that resumes an operation gets the lease at once. Two
operations of one warehouse cannot write at the same time, because the first one locks the collection in the
catalog.

Unreferenced files are deleted in two steps. First their names are listed in ``trash/``; a later run deletes
them when the grace period is over. A listed name is not used again while the list exists. So a process that
was suspended during a garbage collection and continues much later cannot delete a new file.
"""

from __future__ import annotations

import re
import threading
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass
from functools import partial

from strandline.backups.collection import CollectionRecord
from strandline.backups.repository.lease import Fenced, RepositoryLease, take
from strandline.backups.repository.manifest import MANIFESTS, Manifest, is_part
from strandline.backups.repository.repository import OWNERS, TRASH, Repository
from strandline.backups.restore.restorable import READERS, check_restorable, open_as_restorer
from strandline.backups.verify.verification_history import keep_healed, list_damaged_objects
from strandline.catalog import paths, warehouse
from strandline.chunks import chunks
from strandline.errors import Conflict, Corrupted, PreconditionFailed, StrandlineError
from strandline.metrics import event
from strandline.model import object_of
from strandline.operations.kind import B, G, Handler, Kind, P, Part, Q, RunT, pause_after
from strandline.records import Record
from strandline.runtime import Runtime
from strandline.storage.encrypted_files import EncryptedFiles
from strandline.storage.file_router import Destination, FileRouter, absolute, object_key
from strandline.storage.object_names import OBJECTS, ObjectName, is_object_or_part
from strandline.storage.repository_marker import Expected, from_bytes, to_bytes
from strandline.threads import in_parallel

LEASE_SECONDS = 600.0
_LIST = re.compile(rf"{TRASH}/([0-9]{{8,18}})\.json", re.ASCII)
_PART = re.compile(rf"(?:{OWNERS}|{TRASH})/[0-9]+\.json\.[0-9a-f]{{32}}", re.ASCII)
TOGETHER = 100
"""Maximum number of files that are deleted between two checks of the lease."""
KEPT_SECONDS = 30 * 86400.0
"""Time for which a list is kept after its grace period: longer than a process may be suspended."""


class Leases:
    """The leases of this process, by operation."""

    def __init__(self, runtime: Runtime) -> None:
        self._runtime = runtime
        self._held: dict[str, RepositoryLease] = {}
        self._lock = threading.Lock()

    def here(self) -> str:
        """Return the id of this warehouse."""
        with self._runtime.catalog.read() as conn:
            return warehouse.require(conn).id

    def check_owner(self, repository: Repository, collection_id: int) -> str:
        """Refuse a repository of another warehouse; return the id of this warehouse."""
        with self._runtime.catalog.read() as conn:
            here = warehouse.require(conn).id
            found = paths.by_ids(conn, [collection_id])
        kept = [p.name for p in found if p.record(CollectionRecord).settings.storage == repository.root]
        repository.check_owner(here, kept[0] if kept else None)
        return here

    @contextmanager
    def writing(
        self, root: str, operation_id: str, collection_id: int, purpose: str, expected: Expected | None = None
    ) -> Iterator[tuple[Repository, RepositoryLease]]:
        """Hold the lease on a repository during the block.

        This process keeps the lease after the block, for the next part of the operation. UNDER_OPERATION if
        another owner has the lease; PRECONDITION_FAILED if the repository belongs to another warehouse now.

        Args:
            expected: Expected encryption and id of the repository. None: those that the catalog has recorded.
        """
        repository = Repository(self._runtime.files.at(root, expected), root)
        # Check before any file is written, including the file of the lease.
        here = self.check_owner(repository, collection_id)
        owner = f"{here}/{collection_id}"
        with self._lock:
            lease = self._held.get(operation_id)
            try:
                if lease is not None:
                    lease.keep()
            except Fenced:
                lease = None  # Another process had resumed the operation; now this process resumes it.
            if lease is None:
                lease = take(repository.plain, self._runtime.clock, owner, purpose, LEASE_SECONDS)
                self._held[operation_id] = lease
                # The master key changes only under the lease, so it stays valid while this process has the
                # lease.
                if isinstance(repository.files, EncryptedFiles):
                    repository.files.renew()
        with lease.renew_in_background():
            yield repository, lease

    def release(self, operation_id: str) -> None:
        """Release the lease of an operation. If the release fails, the lease expires by itself."""
        with self._lock:
            lease = self._held.pop(operation_id, None)
        if lease is not None:
            lease.release()


class WritingKind(Kind[Q, B, G]):
    """An operation whose parts write to a repository, under a lease that is released at its end."""

    def __init__(self, leases: Leases) -> None:
        self._leases = leases

    def let_go(self, operation_id: str) -> None:
        self._leases.release(operation_id)


class WritingPart(Handler[RunT, P]):
    """A part that writes to the repository of its operation, under the lease.

    It is retried when storage fails.
    """

    def __init__(self, runtime: Runtime, leases: Leases) -> None:
        self.runtime = runtime
        self.leases = leases

    def writing(self, run: RunT) -> AbstractContextManager[tuple[Repository, RepositoryLease]]:
        """Return the repository and its lease, as a context manager."""
        body, operation = run.body, run.operation
        return self.leases.writing(
            body.root, operation.id, body.collection_id, operation.kind, self.find_expected(run)
        )

    def find_expected(self, run: RunT) -> Expected | None:
        """Return the expected encryption and id of the repository. None: those in the catalog are used."""
        return None

    def destination(self, there: Repository) -> Destination:
        """Return the target of uploads, with the names listed as trash and the keys of damaged objects.

        An upload does not use the names listed as trash, and rewrites damaged objects.
        """
        with self.runtime.catalog.read() as conn:
            return Destination(there.root, names_in_deletion(there), list_damaged_objects(conn))

    def note_sent(self, target: Destination, names: Iterable[str | None]) -> None:
        """Record which damaged objects this upload has healed, that is, rewritten and read again.

        Args:
            names: Names of all uploaded objects.
        """
        bad = [ObjectName(name) for name in names if name and target.is_damaged(name)]
        healed = [absolute(target.root, name, "") for name in bad]
        if healed:
            with self.runtime.catalog.write() as tx:
                keep_healed(tx, [object_key(name) for name in healed])
            for name in healed:
                event("object healed", object=object_of(name))

    def retry_after(self, error: Exception, attempt: int) -> float | None:
        return pause_after(error, attempt, self.runtime.settings.pauses)

    def time_limit(self, run: RunT, part: Part[P]) -> float | None:
        return self.runtime.settings.shard_seconds


def publish(
    files: FileRouter,
    there: Repository,
    lease: RepositoryLease,
    manifest: Manifest,
    ancestors: Sequence[str] = (),
) -> None:
    """Write the manifest of a backup whose objects are all uploaded, and check that it is restorable.

    CONFLICT if a garbage collection has deleted one of its objects meanwhile.

    Args:
        ancestors: Names of the backups that this backup builds on, its parent first.
    """
    there.check_owner(manifest.warehouse)
    restorer = open_as_restorer(files, there)
    lease.check()
    # The objects may have been uploaded under an earlier lease. An object is listed as trash before it is
    # deleted.
    for name in names_in_deletion(there) & manifest.objects().keys():
        raise _swept_error(there, manifest, name)
    is_ours = there.add(manifest)
    try:
        lease.check()
    except Fenced:
        is_ours = False
    if not is_ours:
        _confirm(there, manifest)
    check_restorable(restorer, manifest, ancestors)


def _confirm(there: Repository, manifest: Manifest) -> None:
    """Check the objects of a backup whose manifest was written without a valid lease.

    The writer may have been suspended, and another process may have collected garbage since the upload.
    """
    gone, named = names_in_deletion(there), manifest.objects()
    for name, size in zip(named, there.files.sizes(list(named)), strict=True):
        if isinstance(size, StrandlineError) and not isinstance(size, Corrupted):
            raise size
        if name in gone or size != named[name].bytes:
            there.withdraw(manifest)
            raise _swept_error(there, manifest, name)


def _swept_error(there: Repository, manifest: Manifest, name: str) -> Conflict:
    return Conflict(
        f"the object {name} was deleted from {there.root} while {manifest.backup.name} was uploaded",
        "The backup is as it was before. Try again: BACKUP, COMPACT or COPY BACKUP.",
    )


@dataclass(frozen=True, kw_only=True)
class Trash(Record):
    """Names of files that nothing refers to, and the time when they were listed."""

    time: float
    names: tuple[str, ...]


@dataclass(frozen=True)
class Swept:
    """Result of a garbage collection.

    Attributes:
        removed: Names of deleted files.
        waiting: Names of files that will be deleted after the grace period.
    """

    removed: tuple[str, ...] = ()
    waiting: tuple[str, ...] = ()


def names_in_deletion(repository: Repository) -> frozenset[str]:
    """Return the object names that are listed as trash. New objects must not use these names."""
    return frozenset(name for _, trash in _lists(repository) for name in trash.names)


def sweep(repository: Repository, now: float, grace: float, check: Callable[[], None]) -> Swept:
    """Delete temporary files, and files that no manifest names, after their grace period.

    A file is first listed as trash; the grace period begins then. If a manifest cannot be read, nothing is
    deleted, because this manifest may name any object.

    Args:
        now: The present time.
        grace: The grace period in seconds.
        check: Raises an error if this process may not write any more.
    """
    unneeded = set(_unneeded_names(repository))
    lists = list(_lists(repository))
    listed = {name for _, trash in lists for name in trash.names}
    due = {name for _, trash in lists if trash.time <= now - grace for name in trash.names} & unneeded
    fresh = sorted(unneeded - listed)
    if fresh:
        check()
        _list(repository, Trash(time=now, names=tuple(fresh)))
        if grace <= 0:
            due |= set(fresh)
    removed = sorted(due)
    for some in chunks(removed, TOGETHER):
        check()
        repository.plain.remove_all(some)
    for name, trash in lists:
        if trash.time <= now - grace - KEPT_SECONDS and not unneeded & set(trash.names) - due:
            repository.plain.remove(name)
    return Swept(tuple(removed), tuple(sorted(unneeded - due)))


def _unneeded_names(repository: Repository) -> Iterator[str]:
    # List the folder before reading the manifests, so that objects of newer manifests are not in the list.
    # Only files with names that a writer of Strandline could have used are deleted.
    there = [name for name in repository.plain.names(OBJECTS) if is_object_or_part(name)]
    there += [name for name in repository.plain.names(MANIFESTS) if is_part(name)]
    for folder in (OWNERS, TRASH):
        # A crashed writer leaves a temporary file.
        there += filter(_PART.fullmatch, repository.plain.names(folder))
    needed: set[str] = set()
    for some in chunks(repository.manifests(), READERS):
        read = partial(_objects_of, repository)
        needed.update(some, *in_parallel(read, some, threads=READERS))
    yield from (name for name in there if name not in needed)


def _objects_of(repository: Repository, manifest: str) -> Collection[str]:
    """Return the names of the objects that a manifest refers to."""
    try:
        return repository.manifest_at(manifest).objects().keys()
    except Corrupted as error:
        raise PreconditionFailed(
            f"nothing can be removed from {repository.root}: {error.message}",
            f"Bring the file {manifest} back from a copy of the repository, or drop its backup.",
        ) from error


def _lists(repository: Repository) -> Iterable[tuple[str, Trash]]:
    for name in sorted(filter(_LIST.fullmatch, repository.plain.names(TRASH))):
        data = repository.plain.find(name)
        if data is None:
            continue
        try:
            yield name, from_bytes(Trash, data, f"the file {name} of {repository.root}")
        except StrandlineError:
            # Skip an unreadable list. The next run lists its files again, if nothing refers to them.
            continue


def _list(repository: Repository, trash: Trash) -> None:
    """Write the next trash list. The number of an unreadable list is not used again."""
    found = map(_LIST.match, repository.plain.names(TRASH))
    number = max((int(match[1]) for match in found if match), default=0) + 1
    name, made = f"{TRASH}/{number:08}.json", to_bytes(trash)
    if not repository.plain.write_if_absent(name, made) and repository.plain.find(name) != made:
        raise Conflict(
            f"another process also deletes files of {repository.root}: it has written {name}",
            "Try again when it is done.",
        )
