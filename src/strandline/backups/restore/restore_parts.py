"""Parts of a restore: one kind restores a shard of one backup, another rebuilds an index.

A part reads and writes files outside a transaction. Its transaction then attaches the new segments to the
target tables. Files of a failed try are removed at once. Files of a crashed process are orphans, which the
collector deletes.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import accumulate, groupby, takewhile
from typing import Any, Literal, TypeAlias

from sqlalchemy import Connection

from strandline.backups.record import require_collection
from strandline.backups.repository.repository import check_there
from strandline.backups.restore.restore_plan import RestoreRequest
from strandline.backups.verify.verify_objects import note_damage
from strandline.catalog import chains, part_progress, paths, tables
from strandline.catalog.paths import require_id
from strandline.catalog.tables import TableBody, TableInfo
from strandline.catalog.transactions import Writer, current_step
from strandline.errors import Corrupted, StrandlineError, TimedOut
from strandline.model import Chain, Segment, State
from strandline.operations.byte_progress import Transfer
from strandline.operations.kind import Body, Handler, P, Part, Run, pause_after
from strandline.records import Record, later
from strandline.runtime import Runtime
from strandline.storage.rows import Written
from strandline.storage.segment_files import Copies

Checks: TypeAlias = Literal["files", "data"]
NOTHING_PUBLISHED = (
    "Nothing was published. VERIFY the collection to see which backups can still be restored, and whether "
    "their repository is there. REPAIR writes damaged objects anew."
)

_LOOKED_AT = 64
"""Maximum number of files whose existence and size one call checks.

While the request for one file is retried, the results of all other files in the call are delayed.
"""


@dataclass(frozen=True, kw_only=True)
class RestoreBody(Body):
    """State of the operation.

    Attributes:
        backup: Name of the backup that is restored.
        tables: Ids of the target tables, by the path that they have at the end.
        increments: Number of increments, without the full backup.
        step: The step at which segments are attached to the target tables.
        kept_in: Directory for the replaced tables. Until the end it holds the restored tables that will
            replace them. None: no table is replaced.
        verified: See ``RestoreResult``.
        bytes_verified: See ``RestoreResult``.
    """

    backup: str
    tables: dict[str, int]
    increments: int
    step: int
    verified: Checks | None = later()
    bytes_verified: float | None = later()
    kept_in: str | None = later()


@dataclass(frozen=True, kw_only=True)
class RestoreProgress(Transfer):
    """Progress of the operation. Bytes are counted when their shard is restored.

    Attributes:
        increments: Number of increments, without the full backup.
        increment: Number of the increment that is being restored. 0: the full backup.
        parts: Upper bound of the number of parts, including the parts of the verification.
    """

    increments: int
    increment: int
    parts: int | None = later()


RestoreRun: TypeAlias = Run[RestoreRequest, RestoreBody, RestoreProgress]


@dataclass(frozen=True, kw_only=True)
class Shard(Record):
    """A shard of one table or index in one backup of the chain.

    Attributes:
        table_id: Id of the target table.
        increment: Number of the increment. 0: the full backup.
        shard: Number of the shard.
        segments: Ids of the segments that begin in the shard.
        copy: Copy the segments. False: share them.
        until: Deadline of the whole restore. None: no deadline.
        slowed: Seconds added to the time limit of the part because of the rate limit.
    """

    table_id: int
    increment: int
    shard: int
    segments: tuple[int, ...]
    bytes: int
    copy: bool
    until: float | None
    slowed: float = later(0.0)


@dataclass(frozen=True, kw_only=True)
class Rebuilt(Record):
    """An index that is built from its restored table.

    Attributes:
        index: Path of the index.
        bytes: Always 0, because no bytes of the backup are read for it.
    """

    table_id: int
    impl_id: int
    index: str
    bytes: int = 0


class OutOfTime(TimedOut):
    """The deadline of the whole restore has passed."""


class QuickPart(Handler[RestoreRun, P]):
    """Base class of all parts of a restore. It has their retry policy."""

    def __init__(self, runtime: Runtime) -> None:
        self.runtime = runtime

    def retry_after(self, error: Exception, attempt: int) -> float | None:
        if isinstance(error, OutOfTime):
            return None
        return pause_after(error, attempt, self.runtime.settings.pauses)


class RestorePart(QuickPart[P], ABC):
    """Base class of parts that read or write files. They stop at the deadline of the restore."""

    def work(self, run: RestoreRun, part: Part[P]) -> Any:
        self.check_time(run)
        return self._make(run, part.body)

    @abstractmethod
    def _make(self, run: RestoreRun, body: P) -> Any:
        """Read and write the files of the part, outside a transaction. Return the result."""

    def check_time(self, run: RestoreRun) -> None:
        if is_late(run, self.runtime.clock.now()):
            with self.runtime.catalog.read() as conn:
                raise out_of_time(conn, run)

    def time_limit(self, run: RestoreRun, part: Part[P]) -> float | None:
        """Return the time limit of the part in seconds. A part ends at the deadline at the latest."""
        limit = self.runtime.settings.shard_seconds + self.delay_of(part.body)
        until = deadline_of(run)
        return limit if until is None else min(limit, max(0.0, until - self.runtime.clock.now()))

    def delay_of(self, body: P) -> float:
        """Return the seconds that the rate limit adds to the time limit of the part."""
        return 0.0


def deadline_of(run: RestoreRun) -> float | None:
    """Return the deadline of the restore (seconds since the epoch). None: it has no deadline.

    The allowed time counts from the first start of the operation, even if the operation was resumed.
    """
    seconds = run.request.deadline_seconds
    return None if seconds is None else run.operation.created + seconds


def is_late(run: RestoreRun, now: float) -> bool:
    """Return True if the deadline of the restore has passed."""
    until = deadline_of(run)
    return until is not None and now > until


def check_time(tx: Writer, run: RestoreRun) -> None:
    """Raise OutOfTime if the deadline of the restore has passed."""
    if is_late(run, tx.now):
        raise out_of_time(tx.conn, run)


def out_of_time(conn: Connection, run: RestoreRun) -> OutOfTime:
    """Build the error for a restore that has passed its deadline. It says what is already restored."""
    stages = part_progress.stages(conn, run.operation)
    last = run.body.increments
    there = [stage for stage in stages if stage.stage <= last and stage.parts_done == stage.parts]
    words = [f"{len(there)} of {last + 1} backups were restored"]
    if (now := next((stage for stage in stages if stage.parts_done < stage.parts), None)) is not None:
        if now.stage > last:
            what = "later parts"
        else:
            what = f"shards of increment {now.stage}" if now.stage else "shards of the full backup"
        words.append(f"and {now.parts_done} of {now.parts} {what}")
    return OutOfTime(
        f"the restore did not finish within {run.request.deadline_seconds:g} seconds: {', '.join(words)}",
        "Nothing was published. Allow more time, or restore fewer tables.",
    )


class ShardPart(RestorePart[Shard]):
    """Part that restores one shard of a table or index of one backup.

    It attaches the segments by reference, or copies them and verifies their checksums.
    """

    record = Shard

    def _make(self, run: RestoreRun, body: Shard) -> list[Segment] | StrandlineError:
        return self._make_shards(run, [body])[0]

    def share(self, run: RestoreRun, parts: Iterator[Part[Shard]]) -> int:
        """Return how many of the parts, counted from the first, run together: at least one.

        Parts that run together either all copy their segments, or all share them. If several parts run
        together, they copy at most ``bytes_per_copy`` bytes, or share at most ``_LOOKED_AT`` segments.
        """
        are_copied, alike = next(groupby((part.body for part in parts), lambda body: body.copy))
        if are_copied:
            room = self.runtime.store.bytes_per_copy(run.progress.bytes_total)
            sizes = (body.bytes for body in alike)
        else:
            room, sizes = _LOOKED_AT, (len(body.segments) for body in alike)
        return max(1, sum(1 for _ in takewhile(room.__ge__, accumulate(sizes))))

    def work_all(self, run: RestoreRun, parts: Sequence[Part[Shard]]) -> Sequence[Any]:
        self.check_time(run)
        return self._make_shards(run, [part.body for part in parts])

    def _make_shards(self, run: RestoreRun, shards: Sequence[Shard]) -> list[list[Segment] | StrandlineError]:
        """Return for each shard its new segments (none if they are shared), or its error.

        Args:
            shards: Shards whose segments are all copied, or all shared.
        """
        if shards[0].copy:
            return self._copy_shards(run, shards)
        with self.runtime.catalog.read() as conn:
            found = [chains.segments(conn, shard.segments) for shard in shards]
        return self._check_files(found)

    def _copy_shards(self, run: RestoreRun, shards: Sequence[Shard]) -> list[list[Segment] | StrandlineError]:
        with self.runtime.catalog.read() as conn:
            found = [chains.segments(conn, shard.segments) for shard in shards]
            targets = {path.id: path for path in paths.by_ids(conn, {shard.table_id for shard in shards})}
            schemas = [targets[shard.table_id].record(TableBody).schema for shard in shards]
        names = [self.runtime.session.file_name(shard.table_id) for shard in shards]
        throttle = self.runtime.throttles.of(run.operation.id, run.request.limits)
        wanted = list(map(Copies, found, names, schemas))
        made = self.runtime.store.copy(wanted, throttle, among=run.progress.bytes_total)
        return [
            self._damage(run, each, segments) if isinstance(each, Corrupted) else each
            for each, segments in zip(made, found, strict=True)
        ]

    def _damage(self, run: RestoreRun, error: Corrupted, segments: Sequence[Segment]) -> StrandlineError:
        try:
            check_there(self.runtime.files, segments)
            with self.runtime.catalog.read() as conn:
                collection_id = require_collection(conn, run.request.collection).id
            note_damage(self.runtime, collection_id, segments)
        except StrandlineError as other:
            return other
        return Corrupted(error.message, NOTHING_PUBLISHED)

    def _check_files(self, shards: Sequence[Sequence[Segment]]) -> list[list[Segment] | StrandlineError]:
        """Check that the files of shards exist with the right size.

        Return for each shard an empty list, or the error of its first bad file. The check needs one request
        per file.
        """
        names = [s.file for segments in shards for s in segments if s.file is not None]
        sizes = dict(zip(names, self.runtime.files.sizes(names), strict=True))

        def find_error(segments: Sequence[Segment]) -> list[Segment] | StrandlineError:
            for each in segments:
                size = None if each.file is None else sizes[each.file]
                if isinstance(size, StrandlineError):
                    return size
                if size not in (None, each.bytes):
                    return Corrupted(
                        f"the file {each.file} has {size} bytes instead of {each.bytes}", NOTHING_PUBLISHED
                    )
            return []

        return list(map(find_error, shards))

    def store_all(
        self, tx: Writer, run: RestoreRun, parts: Sequence[Part[Shard]], made: Sequence[list[Segment]]
    ) -> list[Shard]:
        step, bodies = run.body.step, [part.body for part in parts]
        copied = {part.id: new for part, new in zip(parts, made, strict=True) if part.body.copy}
        ids = chains.insert_all(tx, copied, step)
        attached = [ids[part.id] if part.body.copy else part.body.segments for part in parts]
        _attach(tx, run, bodies, attached, workers=self.runtime.settings.workers)
        return bodies

    def discard(self, made: list[Segment]) -> None:
        self.runtime.store.discard(made)

    def delay_of(self, body: Shard) -> float:
        return body.slowed


def _attach(
    tx: Writer, run: RestoreRun, bodies: Sequence[Shard], segments: Sequence[Sequence[int]], *, workers: int
) -> None:
    """Attach segments to the targets, and report the progress."""
    attached: dict[int, list[int]] = {}
    for body, ids in zip(bodies, segments, strict=True):
        attached.setdefault(body.table_id, []).extend(ids)
    chains.attach_all(tx, attached, run.body.step)
    size = sum(body.bytes for body in bodies)
    moved = run.progress.report(size, began=run.operation.created, now=tx.now, workers=workers)
    run.report(tx, moved)


class InlineShardPart(QuickPart[Shard]):
    """Part that restores a shard whose rows are inline in the catalog. Many such parts run together."""

    record = Shard

    def store_all(
        self, tx: Writer, run: RestoreRun, parts: Sequence[Part[Shard]], made: Sequence[Any]
    ) -> list[Shard]:
        check_time(tx, run)
        bodies = [part.body for part in parts]
        _attach(tx, run, bodies, [body.segments for body in bodies], workers=1)
        return bodies


class RebuildPart(RestorePart[Rebuilt]):
    """Part that builds an index from the restored table, because the backup holds only its definition."""

    record = Rebuilt

    def _make(self, run: RestoreRun, body: Rebuilt) -> Written:
        with self.runtime.catalog.read() as conn:
            table = TableInfo.of(require_id(conn, body.table_id))
            chain = incoming_chain(conn, table.id)
        ref = next(r for r in table.indexes if r.impl_id == body.impl_id)
        name = self.runtime.session.file_name(ref.impl_id)
        impl = ref.definition.impl_schema(table.schema)
        return self.runtime.store.entries(State(table.schema, chain), impl, name)

    def store(self, tx: Writer, run: RestoreRun, part: Part[Rebuilt], made: Written) -> Rebuilt:
        step, impl_id = run.body.step, part.body.impl_id
        chains.attach(tx, impl_id, chains.insert_segments(tx, made.segments, step), step)
        tables.set_first_digest(tx, impl_id, made.delta)
        return part.body

    def discard(self, made: Written) -> None:
        self.runtime.store.discard(made.segments)


def incoming_chain(conn: Connection, table_id: int) -> Chain:
    """Return the chain of a table that is not published yet."""
    return chains.load(conn, table_id, current_step(conn))
