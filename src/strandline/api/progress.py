"""Operations as users see them: what the catalog says about each of them at one moment."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from datetime import datetime, timezone
from functools import cached_property, partial
from typing import Any, TypeVar

from sqlalchemy import Connection

from strandline import records
from strandline.catalog import operations
from strandline.catalog.operations import Operation
from strandline.catalog.owners import Owner, owners
from strandline.catalog.shards import ShardInfo, StageInfo, shown_parts, slowest, stages
from strandline.errors import InvalidArgument
from strandline.names import did_you_mean
from strandline.runtime import Runtime

T = TypeVar("T")


@dataclass(frozen=True, kw_only=True)
class OperationInfo:
    """An operation at one moment. ``percent`` counts parts done of all that are expected and only grows;
    ``progress`` has what its kind tells beyond that (current increment, bytes). ``seconds_left`` is a guess
    from the pace so far, None when there is none. ``owner``: who carries it out, and ``slowest``: the shard
    that is in progress for the longest time; None if it has ended, or was not asked for by itself."""

    id: str
    kind: str
    state: str
    percent: float
    parts_done: int
    parts: int
    progress: dict[str, Any]
    request: dict[str, Any]
    result: dict[str, Any] | None
    error: dict[str, str] | None
    created: float
    ended: float | None
    seconds_left: float | None = None
    owner: Owner | None = None
    slowest: ShardInfo | None = None

    @cached_property
    def shards(self) -> list[ShardInfo]:
        """All of its parts, in the order in which they are carried out; read when they are first asked
        for."""
        return self._look(shown_parts)

    @cached_property
    def stages(self) -> list[StageInfo]:
        """How long each of its stages took, with bytes and retries; read when they are first asked for."""
        return self._look(stages)

    def first_shards(self, most: int) -> list[ShardInfo]:
        """Return no more than so many of its parts, those first that matter most to whoever waits: what is in
        progress, what has failed, what is waiting."""
        return self._look(partial(shown_parts, most=most))

    def _look(self, at: Callable[[Connection, Operation], list[T]]) -> list[T]:
        runtime, operation = self.__dict__["_source"]
        with runtime.catalog.read() as conn:
            return at(conn, operation)

    def _from(self, runtime: Runtime, operation: Operation) -> OperationInfo:
        """Return it, with where its shards are read."""
        self.__dict__["_source"] = runtime, operation
        return self

    @property
    def is_over(self) -> bool:
        """Whether it has ended: well, with an error, or cancelled."""
        return self.ended is not None

    @staticmethod
    def of(operation: Operation, now: float) -> OperationInfo:
        what = f"what is recorded of operation {operation.id}"
        progress = records.shown(operation.progress, what)
        # Some are decided on the way, and the share that is done must not fall then.
        coming = max(operation.parts, progress.pop("parts", None) or 0, 1)
        is_done = operation.state == "done"
        percent = 100.0 if is_done else min(99.0, 100.0 * operation.parts_done / coming)
        return OperationInfo(
            id=operation.id,
            kind=operation.kind,
            state=operation.state,
            percent=round(percent, 1),
            parts_done=operation.parts_done,
            parts=operation.parts,
            progress=progress,
            request=records.shown(operation.request, what),
            result=None if operation.result is None else records.shown(operation.result, what),
            error=None if operation.error is None else records.shown(operation.error, what),
            created=operation.created,
            ended=operation.ended,
            seconds_left=None if operation.ended is not None else _seconds_left(operation, progress, now),
        )


def _seconds_left(operation: Operation, progress: dict[str, Any], now: float) -> float | None:
    """Bytes tell it where they are counted: parts may be of any size."""
    done, of = operation.parts_done, operation.parts
    if progress.get("bytes_total"):
        if progress.get("ends") is not None:
            return max(0.0, float(progress["ends"]) - now)
        done, of = progress["bytes"], progress["bytes_total"]
    return (now - operation.created) * (of - done) / done if done else None


KINDS = (
    "backup",
    "compact backups",
    "create stream",
    "drop backups",
    "drop collection",
    "drop streams",
    "incremental backup",
    "merge increments",
    "repair backups",
    "restore",
    "send backup",
    "sweep repository",
    "try restore",
)
"""The kinds of operations; ``api/operations.py`` has what carries them out, which takes longer to load."""


def wanted_operations(
    runtime: Runtime,
    *,
    state: str | None,
    kind: str | None,
    since: datetime | float | None,
    limit: int | None,
) -> list[OperationInfo]:
    """Return those that are wanted and not forgotten, oldest first."""
    _check("state", state, operations.STATES)
    _check("kind", kind, KINDS)
    if isinstance(since, datetime):
        since = (since if since.tzinfo else since.replace(tzinfo=timezone.utc)).timestamp()
    if since is not None and (isinstance(since, bool) or not isinstance(since, int | float)):
        raise InvalidArgument(
            f"since cannot be {since!r}", "Give a datetime, or a number of seconds since the epoch."
        )
    if limit is not None and (isinstance(limit, bool) or not isinstance(limit, int) or limit < 1):
        raise InvalidArgument(f"limit cannot be {limit!r}", "Give a number of operations from 1 on.")
    wanted = operations.OperationFilter(state=state, kind=kind, since=since, limit=limit)
    with runtime.catalog.read() as conn:
        found = operations.listed(conn, wanted)
    return [info_of(runtime, operation) for operation in found]


def _check(what: str, given: str | None, known: Sequence[str]) -> None:
    if given is not None and given not in known:
        hint = did_you_mean(given, known) if isinstance(given, str) else ""
        raise InvalidArgument(
            f"operations have no {what} {given!r}", hint or f"Those that they have: {', '.join(known)}."
        )


def one_operation(runtime: Runtime, operation_id: str) -> OperationInfo:
    now = runtime.clock.now()
    with runtime.catalog.read() as conn:
        found = operations.get(conn, operation_id, counted=True)
        slow = slowest(conn, found)
        owner = None if found.is_over else owners(conn, [found.id], now).get(found.id)
    info = replace(OperationInfo.of(found, now), owner=owner, slowest=slow)
    return info._from(runtime, found)


def info_of(runtime: Runtime, operation: Operation) -> OperationInfo:
    """Return an operation as users see it, who may ask for its shards."""
    return OperationInfo.of(operation, runtime.clock.now())._from(runtime, operation)
