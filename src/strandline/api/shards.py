"""The shards of an operation as users see them: what the catalog says at one moment."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from sqlalchemy import Connection

from strandline.catalog import shards
from strandline.catalog.operations import DONE, Operation
from strandline.catalog.shards import Attempt, ShownPart, Stage
from strandline.runtime import Runtime

__all__ = ["Attempt", "ShardInfo", "StageInfo"]


@dataclass(frozen=True, kw_only=True)
class ShardInfo:
    """A part of an operation: a shard of a table or an index, or another piece of work.

    ``state``: ``waiting``, ``in progress``, ``done``, ``failed`` (it will be tried again) or ``given up`` (it
    will not: the operation has ended without it). ``attempt``: the number of the present try, or of the last
    one. ``since``: when that began, if it works or has worked on files, in the process ``process``
    (``host:pid``); ``seconds``: how long it took. ``errors``: the tries that failed. ``increment``: 0 is the
    full backup. ``path``: the table or index that it is about."""

    id: int
    kind: str
    stage: int
    increment: int | None
    path: str | None
    shard: int | None
    bytes: int | None
    state: str
    attempt: int
    since: float | None
    seconds: float | None
    process: str | None
    errors: tuple[Attempt, ...]

    @staticmethod
    def of(part: ShownPart, operation: Operation) -> ShardInfo:
        state = _state(part, operation)
        failed_last = state in ("failed", "given up") and part.attempt > 0
        return ShardInfo(
            id=part.id,
            kind=part.kind,
            stage=part.stage,
            increment=part.increment,
            path=part.path,
            shard=part.shard,
            bytes=part.bytes,
            state=state,
            attempt=part.attempt if failed_last else part.attempt + 1,
            since=part.began,
            seconds=part.seconds,
            process=part.process,
            errors=part.failures(),
        )


@dataclass(frozen=True, kw_only=True)
class StageInfo:
    """How far one stage of an operation has come; of a restore the stages from 0 on are the full backup and
    the increments. ``seconds``: from the end of the stage before it to its last change; None if it has not
    begun. ``bytes``: those of the parts that are done."""

    stage: int
    increment: int | None
    parts: int
    parts_done: int
    bytes: int
    retries: int
    seconds: float | None


def _state(part: ShownPart, operation: Operation) -> str:
    if part.state == DONE:
        return "done"
    if operation.is_over:
        return "given up"
    if part.is_in_progress:
        return "in progress"
    return "failed" if part.attempt else "waiting"


def shards_of(runtime: Runtime, operation: Operation, most: int | None = None) -> list[ShardInfo]:
    """All parts in their order, or so many of those that matter most now."""
    with runtime.catalog.read() as conn:
        found = shards.shown_parts(conn, operation.id, most)
    return [ShardInfo.of(part, operation) for part in found]


def slowest(conn: Connection, operation: Operation) -> ShardInfo | None:
    """The part that is in progress for the longest time."""
    found = None if operation.is_over else shards.slowest(conn, operation.id)
    return None if found is None else ShardInfo.of(found, operation)


def stages_of(runtime: Runtime, operation: Operation) -> list[StageInfo]:
    with runtime.catalog.read() as conn:
        found = shards.stages(conn, operation.id)
    return list(_timed(found, operation.created))


def _timed(stages: Iterable[Stage], began: float) -> Iterable[StageInfo]:
    for stage in stages:
        seconds = max(0.0, stage.changed - began) if stage.done else None
        yield StageInfo(
            stage=stage.stage,
            increment=stage.increment,
            parts=stage.parts,
            parts_done=stage.done,
            bytes=stage.bytes,
            retries=stage.retries,
            seconds=seconds,
        )
        began = max(began, stage.changed)
