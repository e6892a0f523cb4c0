"""The parts of a restore: a shard of one increment, an index to rebuild, a table to check.

A part reads and writes files outside any transaction, and its transaction takes what it made into the
targets' chains. Storage that fails may come back, so a part is tried again with growing pauses; what is
damaged or refused stays so. Files of a try that came to nothing are removed at once; those of a process that
died are orphans, which the collector finds.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any, ClassVar, TypeAlias

from sqlalchemy import Connection

from strandline.backups.restore_plan import RestoreRequest
from strandline.catalog import board, chains, tables
from strandline.catalog.paths import require_id
from strandline.catalog.tables import TableInfo
from strandline.catalog.writer import Writer
from strandline.errors import Corrupted, StrandlineError, TimedOut, Unavailable
from strandline.model import Chain, Digest, Segment, State, TableSchema
from strandline.operations.kind import Body, Handler, P, Part, Run
from strandline.records import Record
from strandline.runtime import Runtime
from strandline.storage.rows import Written

RETRY_SECONDS = (0.1, 0.4, 1.6, 6.4)
"""Pauses after the first, the second ... failure of a part; after one more the restore fails."""
_NOTHING_PUBLISHED = "Nothing was published. Restore an earlier backup."


@dataclass(frozen=True, kw_only=True)
class RestoreBody(Body):
    """``tables``: the ids of the targets by path. ``increments``: how many there are beside the full backup.
    ``step``: the targets are filled as if it were at this step."""

    backup: str
    tables: dict[str, int]
    increments: int
    step: int


@dataclass(frozen=True, kw_only=True)
class RestoreProgress(Record):
    """The present ``increment`` (0: the full backup) of all, and the bytes of the shards that are there."""

    increments: int
    increment: int
    bytes: int
    bytes_total: int


RestoreRun: TypeAlias = Run[RestoreRequest, RestoreBody, RestoreProgress]


@dataclass(frozen=True, kw_only=True)
class Shard(Record):
    """A shard of one table or index in one increment. ``until``: when the time for the whole restore is
    over."""

    table_id: int
    increment: int
    shard: int
    segments: tuple[int, ...]
    bytes: int
    copy: bool
    until: float | None


@dataclass(frozen=True, kw_only=True)
class Rebuilt(Record):
    """An index to be built from its table. ``index``: its path. It takes no ``bytes`` from a backup."""

    table_id: int
    impl_id: int
    index: str
    bytes: int = 0


@dataclass(frozen=True, kw_only=True)
class Checked(Record):
    """A table to be compared, with its indexes, with what was recorded."""

    table_id: int


class OutOfTime(TimedOut):
    """The time that was set for the whole restore is over."""


class _Part(Handler[RestoreRun, P], ABC):
    """What all parts share: one phase, the deadline, and when to try again."""

    phases: ClassVar[tuple[str, ...]] = ("configure",)

    def __init__(self, runtime: Runtime) -> None:
        self._runtime = runtime

    def work(self, run: RestoreRun, part: Part[P]) -> Any:
        check_time(run, self._runtime.clock.now())
        return self._make(run, part.body)

    @abstractmethod
    def _make(self, run: RestoreRun, body: P) -> Any:
        """The slow work of this kind of part."""

    def retry_after(self, error: Exception, attempt: int) -> float | None:
        return pause_after(error, attempt)


def check_time(run: RestoreRun, now: float) -> None:
    """The time that a restore may take counts from its first start, however often it is resumed."""
    seconds = run.request.deadline_seconds
    if seconds is not None and now > run.operation.created + seconds:
        raise OutOfTime(
            f"the restore did not finish within {seconds:g} seconds",
            "Nothing was published. Allow more time, or restore fewer tables.",
        )


def pause_after(error: Exception, attempt: int) -> float | None:
    """How long to wait after the ``attempt``-th failure of a part; None if it will not help."""
    answers_later = isinstance(error, Unavailable | TimedOut) and not isinstance(error, OutOfTime)
    transient = answers_later or not isinstance(error, StrandlineError)
    return RETRY_SECONDS[attempt - 1] if transient and attempt <= len(RETRY_SECONDS) else None


class ShardPart(_Part[Shard]):
    """Brings one shard of one table or index of one increment: by reference, or as copies that are checked on
    the way."""

    record = Shard

    def _make(self, run: RestoreRun, body: Shard) -> list[Segment]:
        with self._runtime.catalog.read() as conn:
            found = chains.segments(conn, body.segments)
        if not body.copy:
            for segment in found:
                self._look_at(segment)
            return []
        try:
            name = self._runtime.session.file_name(body.table_id)
            return self._runtime.store.copy(found, name, among=run.progress.bytes_total)
        except Corrupted as error:
            raise Corrupted(error.message, _NOTHING_PUBLISHED) from error

    def _look_at(self, segment: Segment) -> None:
        """A file that is gone or cut is found here already, for the price of one look at the folder."""
        if segment.file is not None and (size := self._runtime.files.size(segment.file)) != segment.bytes:
            raise Corrupted(
                f"the file {segment.file} has {size} bytes instead of {segment.bytes}", _NOTHING_PUBLISHED
            )

    def configure(self, tx: Writer, run: RestoreRun, part: Part[Shard], made: list[Segment]) -> Shard:
        body, step = part.body, run.body.step
        ids = chains.insert_segments(tx, made, step) if body.copy else body.segments
        chains.attach(tx, body.table_id, ids, step)
        done = run.progress.bytes + body.bytes
        run.report(tx, replace(run.progress, increment=body.increment, bytes=done))
        return body

    def discard(self, made: list[Segment]) -> None:
        self._runtime.store.discard(made)

    def time_limit(self, part: Part[Shard]) -> float | None:
        """A shard that hangs is found out in time to say that the whole restore has run out of it."""
        limit = self._runtime.settings.shard_seconds
        until = part.body.until
        return limit if until is None else min(limit, max(0.0, until - self._runtime.clock.now()))


class InlineShardPart(Handler[RestoreRun, Shard]):
    """Brings shards whose rows are in the catalog itself, many at a time."""

    record = Shard
    phases: ClassVar[tuple[str, ...]] = ("configure",)

    def configure_all(
        self, tx: Writer, run: RestoreRun, parts: Sequence[Part[Shard]], made: Any
    ) -> list[Shard]:
        check_time(run, tx.now)
        bodies = [part.body for part in parts]
        attached: dict[int, list[int]] = {}
        for body in bodies:
            attached.setdefault(body.table_id, []).extend(body.segments)
        chains.attach_all(tx, attached, run.body.step)
        done = run.progress.bytes + sum(body.bytes for body in bodies)
        run.report(tx, replace(run.progress, increment=bodies[0].increment, bytes=done))
        return bodies

    def retry_after(self, error: Exception, attempt: int) -> float | None:
        return pause_after(error, attempt)


class RebuildPart(_Part[Rebuilt]):
    """Builds an index that no backup holds, from the restored table."""

    record = Rebuilt

    def _make(self, run: RestoreRun, body: Rebuilt) -> Written:
        with self._runtime.catalog.read() as conn:
            table = TableInfo.of(require_id(conn, body.table_id))
            chain = _incoming_chain(conn, table.id)
        ref = next(r for r in table.indexes if r.impl_id == body.impl_id)
        name = self._runtime.session.file_name(ref.impl_id)
        impl = ref.definition.impl_schema(table.schema)
        return self._runtime.store.entries(State(table.schema, chain), impl, name)

    def configure(self, tx: Writer, run: RestoreRun, part: Part[Rebuilt], made: Written) -> Rebuilt:
        step, impl_id = run.body.step, part.body.impl_id
        chains.attach(tx, impl_id, chains.insert_segments(tx, made.segments, step), step)
        tables.set_first_digest(tx, impl_id, made.delta)
        return part.body

    def discard(self, made: Written) -> None:
        self._runtime.store.discard(made.segments)


class VerifyPart(_Part[Checked]):
    """Reads a restored table and its indexes again and compares them with what was recorded when they were
    backed up."""

    record = Checked

    def _make(self, run: RestoreRun, body: Checked) -> None:
        runtime = self._runtime
        with runtime.catalog.read() as conn:
            table = TableInfo.of(require_id(conn, body.table_id))
            chain = _incoming_chain(conn, table.id)
            recorded = chains.state(conn, table.id).digest
            impls = [
                (r, _incoming_chain(conn, r.impl_id), chains.state(conn, r.impl_id).digest)
                for r in table.indexes
            ]
        _verify(runtime, table.path, table.schema, chain, recorded)
        for ref, impl_chain, impl_recorded in impls:
            impl = ref.definition.impl_schema(table.schema)
            _verify(runtime, f"{table.path}/{ref.definition.name}", impl, impl_chain, impl_recorded)
            if runtime.store.digest(State(table.schema, chain), impl) != impl_recorded:
                raise Corrupted(
                    f"the restored index {table.path}/{ref.definition.name} does not match its table",
                    _NOTHING_PUBLISHED,
                )


def _verify(runtime: Runtime, path: str, table: TableSchema, chain: Chain, recorded: Digest) -> None:
    _check_bytes(runtime, chain.segments)
    found = runtime.store.digest(State(table, chain))
    if found != recorded:
        raise Corrupted(
            f"{path} was backed up with {recorded.rows} rows ({recorded.hex}), but {found.rows} rows "
            f"({found.hex}) came back",
            _NOTHING_PUBLISHED,
        )


def _check_bytes(runtime: Runtime, segments: Sequence[Segment]) -> None:
    """Whatever this process remembers of the segments, what counts is what is stored now."""
    inline = {s.id: s for s in segments if s.file is None}
    with runtime.catalog.read() as conn:
        for id_, data, checksum in chains.inline_rows(conn, inline):
            inline[id_] = replace(inline[id_], data=data, checksum=checksum)
    for finding in runtime.store.damaged([inline.get(s.id, s) for s in segments]):
        raise Corrupted(finding.message, _NOTHING_PUBLISHED)


def _incoming_chain(conn: Connection, table_id: int) -> Chain:
    return chains.load(conn, table_id, board.current_step(conn))
