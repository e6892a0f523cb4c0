"""Plan of a restore: the chain, the target tables, and existing paths that block the restore.

EXPLAIN RESTORE shows this plan.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field

from sqlalchemy import Connection

from strandline import names
from strandline.backups.chain import backup_at, find_chain
from strandline.backups.record import BackupRecord, TableRecord, require_collection, slices_of
from strandline.catalog import bulk_paths, paths
from strandline.catalog.paths import Path
from strandline.errors import AlreadyExists, InvalidArgument, PathNotFound
from strandline.records import Record, later
from strandline.settings import Limits
from strandline.storage.shards import MOST


@dataclass(frozen=True, kw_only=True)
class RestoreRequest(Record):
    """Request of a restore. At most one of ``at``, ``not_after`` and ``not_after_step`` is given.

    If none of these is given, the last backup is restored.

    Attributes:
        at: Name of the backup to restore.
        not_after: Restore the last backup taken by this time (seconds since the epoch).
        not_after_step: Restore the last backup taken by this step.
        tables: Pairs of a table's path and its path after the restore (None: the same). Empty: all tables of
            the backup.
        into: Directory to restore into. None: the tables are restored at their own paths.
        verify: Read and verify all restored data before publication.
        copy: Copy all segments instead of sharing them.
        deadline_seconds: Maximum duration of the restore. None: no limit.
        replace: Replace existing tables. The replaced tables are kept below ``/.replaced``.
        trial: Roll back at the end: only check that a restore is possible (``dry_run.py``).
        changefeeds: Create the users' changefeeds on the restored tables.
    """

    collection: str
    at: str | None = None
    not_after: float | None = None
    tables: tuple[tuple[str, str | None], ...] = ()
    into: str | None = None
    verify: bool = False
    copy: bool = False
    deadline_seconds: float | None = None
    trial: bool = later(False)
    replace: bool = later(False)
    changefeeds: bool = later(False)
    limits: Limits = later(Limits())
    not_after_step: int | None = later()


@dataclass(frozen=True)
class RestoreTarget:
    """A table to restore.

    Attributes:
        source: Path of the table in the backup.
        path: Path to restore it to.
        in_the_way: Existing path that blocks the restore. None: nothing blocks it. See ``_in_the_way``.
        replaced: Existing table that the restored one replaces. None: it replaces no table.
    """

    source: str
    path: str
    record: TableRecord
    in_the_way: Path | None
    replaced: Path | None


@dataclass(frozen=True)
class Old:
    """The existing tables that a restore will replace.

    Attributes:
        kept_in: Directory where the replaced tables will be kept. None: no table is replaced.
        versions: Versions of these tables and of all paths below them, by path.
    """

    kept_in: str | None = None
    versions: Mapping[str, int] = field(default_factory=dict)

    def place(self, path: str) -> str:
        """Return the path that a restored table has until the end of the restore.

        Args:
            path: Path that the table has afterwards.
        """
        return f"{self.kept_in}{path}" if path in self.versions else path

    def version(self, path: str, recorded: int) -> int:
        """Return the version for a restored path: the recorded one, or a higher one if necessary.

        The new version must be higher than the version of the replaced path. Otherwise a reader that knows
        the replaced table would not notice the change.
        """
        return max(recorded, self.versions.get(path, 0) + 1)


@dataclass(frozen=True)
class ResolvedRestore:
    """Plan of a restore.

    Attributes:
        chain: The full backup and the increments, in order.
        targets: The tables to restore.
        replace: Existing tables may be replaced.
    """

    collection: Path
    chain: Sequence[BackupRecord]
    targets: Sequence[RestoreTarget]
    replace: bool

    def refuse_if_blocked(self) -> None:
        for target in self.targets:
            if target.in_the_way is not None:
                paths.check_ready(target.in_the_way)
                raise self._refusal(target.path, target.in_the_way)

    def _refusal(self, path: str, there: Path) -> AlreadyExists:
        beside = "RESTORE c INTO 'dir', or RESTORE c TABLE t AS t2"
        if there.path != path:
            return AlreadyExists(
                f"{there.path} is {names.with_article(there.type)}, so nothing can be restored below it",
                "Restore into a directory, or under a name that no table has.",
            )
        if self.replace:
            return AlreadyExists(
                f"{path} is {names.with_article(there.type)}, and a restore can replace only tables",
                f"Restore under a name that is free: {beside}.",
            )
        return AlreadyExists(
            f"{path} already exists, and a restore changes no existing table",
            f"Restore next to it: {beside}. Or let the restored table take its place, and keep the old one "
            "elsewhere: RESTORE c WITH (REPLACE = 'true').",
        )

    def bytes_copied(self, *, copy: bool) -> int:
        """Return the size of the segments that are copied and not shared.

        Args:
            copy: The request asks to copy all segments.
        """
        copied = self._find_copied(copy)
        return sum(
            slice_.bytes
            for target in self.targets
            for index in (None, *(i.definition.name for i in target.record.indexes if i.slice is not None))
            for place, slice_ in slices_of(self.chain, target.source, index)
            if copied[place]
        )

    def _find_copied(self, copy: bool) -> list[bool]:
        """Return for each backup of the chain whether its segments are copied.

        Segments in a repository are always copied.
        """
        return [copy or record.stored is not None for record in self.chain]

    def explain(self, *, copy: bool, shard_bytes: int) -> Iterator[tuple[str, str, str]]:
        """Yield the lines of EXPLAIN RESTORE as (what, name, details).

        The number of shards is estimated from the size.
        """
        for place, record in enumerate(self.chain):
            kind = "full backup" if place == 0 else f"increment {place} of {len(self.chain) - 1}"
            yield "apply", record.name, f"{kind}, up to step {record.step}"
        for target in self.targets:
            found = slices_of(self.chain, target.source)
            size = sum(s.bytes for _, s in found)
            bounds = len(target.record.schema.bounds)
            shards = max(bounds + 1, min(MOST, -(-size // shard_bytes)))
            rows = target.record.slice.after.rows
            yield "table", target.path, f"{rows} rows, {shards} shards, {len(found)} slices, {size} bytes"
            for index in target.record.indexes:
                path = f"{target.path}/{index.definition.name}"
                if index.slice is None:
                    yield "rebuild index", path, f"{index.definition.kind}, not in the backup"
                else:
                    found = slices_of(self.chain, target.source, index.definition.name)
                    size = sum(s.bytes for _, s in found)
                    yield "index", path, f"{index.slice.after.rows} entries, {size} bytes"
        yield (
            "move",
            f"{self.bytes_copied(copy=copy)} bytes",
            "copied and checked" if any(self._find_copied(copy)) else "segments are shared, no data moves",
        )
        for target in self.targets:
            if target.replaced is not None:
                state = target.replaced.state
                busy = "" if state == paths.READY else f"in state {state} now, so it would be refused; "
                yield (
                    "replace",
                    target.path,
                    f"{busy}the old one is kept as {names.REPLACED}/TIME{target.path}",
                )
            if target.in_the_way is not None:
                there = target.in_the_way
                below = "" if there.path == target.path else f", so that {target.path} cannot be below it"
                yield "in the way", there.path, f"a {there.type} in state {there.state}{below}"


def plan_restore(conn: Connection, request: RestoreRequest) -> ResolvedRestore:
    """Check that the backup and its chain exist, and find the target tables.

    The slices of the chain are not checked here. The operation checks them with ``slices_of`` when it plans
    its parts, before anything is changed.
    """
    collection = require_collection(conn, request.collection)
    at = request.at
    if at is None and (request.not_after is not None or request.not_after_step is not None):
        at = backup_at(conn, collection, time=request.not_after, step=request.not_after_step)
    chain = find_chain(conn, collection, at)
    wanted = places(request, chain[-1])
    there = bulk_paths.find(conn, [found for path in wanted for found in (path, *names.above(path))])
    targets = [
        _target(source, path, record, _in_the_way(there, path), replace=request.replace)
        for path, (source, record) in wanted.items()
    ]
    return ResolvedRestore(collection, chain, targets, request.replace)


def places(request: RestoreRequest, last: BackupRecord) -> dict[str, tuple[str, TableRecord]]:
    """Return the tables to restore: for each new path, the path in the backup and the table's record.

    Args:
        last: The backup to restore.
    """
    wanted: dict[str, tuple[str, TableRecord]] = {}
    for source, as_path in request.tables or tuple((path, None) for path in last.tables):
        record = last.tables.get(source)
        if record is None:
            hint = names.did_you_mean(source, last.tables) or f"It holds {', '.join(sorted(last.tables))}."
            raise PathNotFound(f"{source} is not in the backup {last.name}", hint)
        path = names.normalize(as_path or source)
        if request.into is not None:
            path = names.normalize(request.into).rstrip("/") + path
        if not request.trial:
            names.check_place(path)
        for component in names.split(path):
            paths.check_own_name(component, "table")
        if path in wanted:
            raise InvalidArgument(f"two tables would be restored as {path}", "Give each its own name.")
        wanted[path] = (source, record)
    for path in wanted:
        above = next((directory for directory in names.above(path) if directory in wanted), None)
        if above is not None:
            raise InvalidArgument(
                f"{path} would be restored below the table {above}",
                "Choose a place for it that is not a table's.",
            )
    return wanted


def _target(
    source: str, path: str, record: TableRecord, there: Path | None, *, replace: bool
) -> RestoreTarget:
    if replace and there is not None and there.path == path and there.type == "table":
        return RestoreTarget(source, path, record, in_the_way=None, replaced=there)
    return RestoreTarget(source, path, record, in_the_way=there, replaced=None)


def _in_the_way(there: Mapping[str, Path], path: str) -> Path | None:
    """Return the existing path that prevents the creation of a table. None: there is no such path.

    This is the path itself, or a path above it that is not a directory.

    Args:
        there: The existing paths, by their names.
        path: Path of the table to create.
    """
    for directory in names.above(path):
        above = there.get(directory)
        if above is not None and above.type != "directory":
            return above
    return there.get(path)
