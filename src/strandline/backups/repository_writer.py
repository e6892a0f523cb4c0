"""Writing to a repository: under a lease, and beside what is on its way out.

Whatever adds to a repository or removes from it has its lease, which is taken in the name of the collection:
operations of one warehouse on one collection keep off each other in its catalog already, and whoever carries
on such an operation goes on at once. What nothing refers to is first listed in ``trash/``, and removed by a
later sweep, when the grace period is over. A name that is listed there is never used again for as long as the
list is kept: so a process that was stopped in the middle of a sweep, and goes on much later, removes nothing
that has come since.
"""

from __future__ import annotations

import re
import threading
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass
from typing import ClassVar

from strandline.backups.collection import Collection
from strandline.backups.lease import Fenced, RepositoryLease, take
from strandline.backups.manifest import MANIFESTS, Manifest, is_part
from strandline.backups.repository import OWNERS, TRASH, Repository
from strandline.backups.restorable import check_restorable, open_as_restorer
from strandline.backups.verified import damaged_objects, keep_healed
from strandline.catalog import paths, warehouse
from strandline.errors import Conflict, Corrupted, PreconditionFailed, StrandlineError
from strandline.metrics import event
from strandline.model import object_of
from strandline.operations.kind import B, G, Handler, Kind, P, Part, Q, RunT, pause_after
from strandline.records import Record
from strandline.runtime import Runtime
from strandline.storage.elsewhere import Destination, Everywhere, absolute, object_key
from strandline.storage.marker import Expected, from_bytes, to_bytes
from strandline.storage.object_names import OBJECTS, ObjectName, is_object_or_part
from strandline.storage.sealed import SealedFiles

LEASE_SECONDS = 600.0
_LIST = re.compile(rf"{TRASH}/([0-9]{{8,18}})\.json", re.ASCII)
_PART = re.compile(rf"(?:{OWNERS}|{TRASH})/[0-9]+\.json\.[0-9a-f]{{32}}", re.ASCII)
KEPT_SECONDS = 30 * 86400.0
"""So long after it was swept a list stays: longer than any process sleeps that still means what it does."""


class Leases:
    """The leases that this process has, by the operations that it has them for."""

    def __init__(self, runtime: Runtime) -> None:
        self._runtime = runtime
        self._held: dict[str, RepositoryLease] = {}
        self._lock = threading.Lock()

    def here(self) -> str:
        """Return the warehouse that writes."""
        with self._runtime.catalog.read() as conn:
            return warehouse.require(conn).id

    def check_owner(self, repository: Repository, collection_id: int) -> str:
        """Refuse a repository of another warehouse; return this one."""
        with self._runtime.catalog.read() as conn:
            here = warehouse.require(conn).id
            found = paths.by_ids(conn, [collection_id])
        kept = [p.name for p in found if p.record(Collection).settings.storage == repository.root]
        repository.check_owner(here, kept[0] if kept else None)
        return here

    @contextmanager
    def writing(
        self, root: str, operation_id: str, collection_id: int, purpose: str, expected: Expected | None = None
    ) -> Iterator[tuple[Repository, RepositoryLease]]:
        """Have the lease on a repository while the block lasts, and for a while after it: the next part of
        the operation goes on with it. UNDER_OPERATION if another owner has it; PRECONDITION_FAILED if the
        repository is another warehouse's by now. ``expected``: what is known of the repository, if the
        catalog does not know it."""
        repository = Repository(self._runtime.files.at(root, expected), root)
        # Before anything of it is taken: also the lease is for its owner.
        here = self.check_owner(repository, collection_id)
        owner = f"{here}/{collection_id}"
        with self._lock:
            lease = self._held.get(operation_id)
            try:
                if lease is not None:
                    lease.keep()
            except Fenced:
                lease = None  # Another process went on with the operation, and now this one does.
            if lease is None:
                lease = take(repository.plain, self._runtime.clock, owner, purpose, LEASE_SECONDS)
                self._held[operation_id] = lease
                # The master key changes only while nobody has the lease, so this holds for as long as we do.
                if isinstance(repository.files, SealedFiles):
                    repository.files.renew()
        with lease.kept():
            yield repository, lease

    def release(self, operation_id: str) -> None:
        """Let others have it at once. If this never comes, the lease ends by itself."""
        with self._lock:
            lease = self._held.pop(operation_id, None)
        if lease is not None:
            lease.release()


class WritingKind(Kind[Q, B, G]):
    """An operation whose parts write to a repository, under one lease that ends with it."""

    def __init__(self, leases: Leases) -> None:
        self._leases = leases

    def let_go(self, operation_id: str) -> None:
        self._leases.release(operation_id)


class WritingPart(Handler[RunT, P]):
    """A part that works on the repository of its operation: one phase, under the lease, and tried again when
    storage fails."""

    phases: ClassVar[tuple[str, ...]] = ("configure",)

    def __init__(self, runtime: Runtime, leases: Leases) -> None:
        self.runtime = runtime
        self.leases = leases

    def writing(self, run: RunT) -> AbstractContextManager[tuple[Repository, RepositoryLease]]:
        """Return the repository, as long as it may be written to."""
        body, operation = run.body, run.operation
        return self.leases.writing(
            body.root, operation.id, body.collection_id, operation.kind, self.expected(run)
        )

    def expected(self, run: RunT) -> Expected | None:
        """Return what the operation knows of a repository that the catalog does not know."""
        return None

    def destination(self, there: Repository) -> Destination:
        """Return where objects are sent, with the names that must not be used and what must not be
        shared."""
        with self.runtime.catalog.read() as conn:
            return Destination(there.root, avoided(there), damaged_objects(conn))

    def note_sent(self, target: Destination, names: Iterable[str | None]) -> None:
        """Note that objects are in a repository. Those that were damaged were replaced and read again."""
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
    files: Everywhere,
    there: Repository,
    lease: RepositoryLease,
    manifest: Manifest,
    ancestors: Sequence[str] = (),
) -> None:
    """Let a backup exist in a repository, all of whose objects were sent there; Conflict if others have swept
    it since. Refused if nobody could restore it. ``ancestors``: the backups that it builds on, its parent
    first."""
    there.check_owner(manifest.warehouse)
    restorer = open_as_restorer(files, there)
    lease.check()
    # They may have been sent under an earlier lease. Nothing goes that was not listed first.
    for name in avoided(there) & manifest.objects().keys():
        raise _swept(there, manifest, name)
    is_ours = there.add(manifest)
    try:
        lease.check()
    except Fenced:
        is_ours = False
    if not is_ours:
        _confirm(there, manifest)
    check_restorable(restorer, manifest, ancestors)


def _confirm(there: Repository, manifest: Manifest) -> None:
    """Make sure of the objects of a backup that was listed by a process which may have slept before: others
    may have swept the repository since they were sent."""
    gone = avoided(there)
    for name, found in manifest.objects().items():
        try:
            is_there = name not in gone and there.files.size(name) == found.bytes
        except Corrupted:
            is_there = False
        if not is_there:
            there.withdraw(manifest)
            raise _swept(there, manifest, name)


def _swept(there: Repository, manifest: Manifest, name: str) -> Conflict:
    return Conflict(
        f"the object {name} was swept from {there.root} while {manifest.backup.name} was sent there",
        "The backup is as it was before. Try again: BACKUP, COMPACT or COPY BACKUP.",
    )


@dataclass(frozen=True, kw_only=True)
class Trash(Record):
    """Names that nothing refers to, since ``time``."""

    time: float
    names: tuple[str, ...]


@dataclass(frozen=True)
class Swept:
    """``removed``: names that are gone. ``waiting``: those that will go when the grace period is over."""

    removed: tuple[str, ...] = ()
    waiting: tuple[str, ...] = ()


def avoided(repository: Repository) -> frozenset[str]:
    """Return the names that are on their way out, or were, and must not be used."""
    return frozenset(name for _, trash in _lists(repository) for name in trash.names)


def sweep(repository: Repository, now: float, grace: float, check: Callable[[], None]) -> Swept:
    """Remove what no manifest names and what was left over. A manifest that cannot be read may name anything,
    so that nothing is removed then. ``check``: raises if this process may not write any more."""
    unneeded = set(_unneeded(repository))
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
    for name in removed:
        check()
        repository.plain.remove(name)
    for name, trash in lists:
        if trash.time <= now - grace - KEPT_SECONDS and not unneeded & set(trash.names) - due:
            repository.plain.remove(name)
    return Swept(tuple(removed), tuple(sorted(unneeded - due)))


def _unneeded(repository: Repository) -> Iterator[str]:
    # The folder is listed before the manifests are read: what they name that came later is not in it.
    # Nothing is removed that no writer of ours could have written.
    there = [name for name in repository.plain.names(OBJECTS) if is_object_or_part(name)]
    there += [name for name in repository.plain.names(MANIFESTS) if is_part(name)]
    for folder in (OWNERS, TRASH):
        # Whoever died while it wrote a text left a part, under a name that is not the text's.
        there += filter(_PART.fullmatch, repository.plain.names(folder))
    needed: set[str] = set()
    for name in repository.manifests():
        try:
            needed |= repository.manifest_at(name).objects().keys()
        except Corrupted as error:
            raise PreconditionFailed(
                f"nothing can be removed from {repository.root}: {error.message}",
                f"Bring the file {name} back from a copy of the repository, or drop its backup.",
            ) from error
        needed.add(name)
    yield from (name for name in there if name not in needed)


def _lists(repository: Repository) -> Iterable[tuple[str, Trash]]:
    for name in sorted(filter(_LIST.fullmatch, repository.plain.names(TRASH))):
        data = repository.plain.find(name)
        if data is None:
            continue
        try:
            yield name, from_bytes(Trash, data, f"the file {name} of {repository.root}")
        except StrandlineError:
            # What it listed is found again, if nothing refers to it.
            continue


def _list(repository: Repository, trash: Trash) -> None:
    """Write the next list. What cannot be read counts as well: its name is not free."""
    found = map(_LIST.match, repository.plain.names(TRASH))
    number = max((int(match[1]) for match in found if match), default=0) + 1
    name, made = f"{TRASH}/{number:08}.json", to_bytes(trash)
    if not repository.plain.write_if_absent(name, made) and repository.plain.find(name) != made:
        raise Conflict(
            f"another process sweeps {repository.root} as well: it has written {name}",
            "Try again when it is done.",
        )
