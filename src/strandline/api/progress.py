"""The state and progress of operations, as returned by the public API."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from datetime import datetime, timezone
from functools import cached_property, partial
from typing import TYPE_CHECKING, Any, Generic, TypeVar

from sqlalchemy import Connection

from strandline import records
from strandline.catalog import operations
from strandline.catalog.operations import OperationRow
from strandline.catalog.owners import Owner, owners
from strandline.catalog.part_progress import ShardInfo, StageInfo, list_parts, slowest, stages
from strandline.errors import InvalidArgument
from strandline.names import did_you_mean
from strandline.runtime import Runtime

if TYPE_CHECKING:
    from strandline.api.database import Database

T = TypeVar("T")


@dataclass(frozen=True, kw_only=True)
class OperationInfo:
    """The state of an operation.

    Attributes:
        percent: Percentage of the expected parts that are done. It never decreases.
        progress: Further values that depend on the kind, such as the current increment and bytes.
        seconds_left: Remaining time, estimated from the speed so far. None: there is no estimate.
        owner: The process that carries out the operation. Only ``db.operation`` sets it. None: the
            operation has ended, or its process is not known.
        slowest: The shard in progress for the longest time. Only ``db.operation`` sets it.
    """

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
        """All parts, in the order of their execution; read at the first access."""
        return self._look(list_parts)

    @cached_property
    def stages(self) -> list[StageInfo]:
        """Duration, bytes and retries of each stage; read at the first access."""
        return self._look(stages)

    def first_shards(self, most: int) -> list[ShardInfo]:
        """Return at most ``most`` parts: first those in progress, then failed ones, then waiting ones."""
        return self._look(partial(list_parts, most=most))

    def _look(self, at: Callable[[Connection, OperationRow], list[T]]) -> list[T]:
        runtime, operation = self.__dict__["_source"]
        with runtime.catalog.read() as conn:
            return at(conn, operation)

    def _from(self, runtime: Runtime, operation: OperationRow) -> OperationInfo:
        """Store the source of ``shards`` and ``stages``; return self."""
        self.__dict__["_source"] = runtime, operation
        return self

    @property
    def is_over(self) -> bool:
        """Whether the operation is done, failed or cancelled."""
        return self.ended is not None


def build_info(operation: OperationRow, now: float) -> OperationInfo:
    """Build the public description of an operation from its row in the catalog."""
    what = f"what is recorded of operation {operation.id}"
    progress = records.to_plain(operation.progress, what)
    # Some parts are added later. Use the expected number, so that the percentage does not fall.
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
        request=records.to_plain(operation.request, what),
        result=None if operation.result is None else records.to_plain(operation.result, what),
        error=None if operation.error is None else records.to_plain(operation.error, what),
        created=operation.created,
        ended=operation.ended,
        seconds_left=None if operation.ended is not None else _seconds_left(operation, progress, now),
    )


def _seconds_left(operation: OperationRow, progress: dict[str, Any], now: float) -> float | None:
    """Estimate the remaining time, from bytes if they are counted, because parts differ in size."""
    done, of = operation.parts_done, operation.parts
    if progress.get("bytes_total"):
        if progress.get("ends") is not None:
            return max(0.0, float(progress["ends"]) - now)
        done, of = progress["bytes"], progress["bytes_total"]
    return (now - operation.created) * (of - done) / done if done else None


class Operation(Generic[T]):
    """An operation that was started with ``wait=False``.

    Its result is what the call returns with ``wait=True``.
    """

    def __init__(self, database: Database, operation_id: str, read: Callable[[], T]) -> None:
        self._database = database
        self._read = read
        self.id = operation_id

    def __repr__(self) -> str:
        return f"<Operation {self.id}>"

    def info(self) -> OperationInfo:
        """Return the present state and progress of the operation."""
        return self._database.operation(self.id)

    def wait(
        self, timeout: float | None = None, on_progress: Callable[[OperationInfo], None] | None = None
    ) -> T:
        """Wait until the operation has ended, and return its result.

        Raises TIMEOUT after ``timeout`` seconds; the operation continues. Raises the error of a failed
        operation.
        """
        self._database.wait(self.id, timeout, on_progress)
        return self._read()

    def cancel(self) -> OperationInfo:
        """Cancel the operation if it still runs, and undo its changes."""
        return self._database.cancel(self.id)


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
    "verify backups",
)
"""The kinds of operations. Listed here because their classes in ``api/operations.py`` load slowly."""


def select_operations(
    runtime: Runtime,
    *,
    state: str | None,
    kind: str | None,
    since: datetime | float | None,
    limit: int | None,
) -> list[OperationInfo]:
    """List the operations that match these filters, oldest first."""
    _check("state", state, operations.STATES)
    _check("kind", kind, KINDS)
    if isinstance(since, datetime):
        since = (since if since.tzinfo else since.replace(tzinfo=timezone.utc)).timestamp()
    if since is not None and (isinstance(since, bool) or not isinstance(since, int | float)):
        raise InvalidArgument(
            f"since cannot be {since!r}", "Give a datetime, or a number of seconds since the epoch."
        )
    if limit is not None and (isinstance(limit, bool) or not isinstance(limit, int) or limit < 1):
        raise InvalidArgument(f"limit cannot be {limit!r}", "Give a number of at least 1.")
    wanted = operations.OperationFilter(state=state, kind=kind, since=since, limit=limit)
    with runtime.catalog.read() as conn:
        found = operations.list_operations(conn, wanted)
    return [info_of(runtime, operation) for operation in found]


def _check(what: str, given: str | None, known: Sequence[str]) -> None:
    if given is not None and given not in known:
        hint = did_you_mean(given, known) if isinstance(given, str) else ""
        raise InvalidArgument(
            f"operations have no {what} {given!r}", hint or f"Known values: {', '.join(known)}."
        )


def one_operation(runtime: Runtime, operation_id: str) -> OperationInfo:
    now = runtime.clock.now()
    with runtime.catalog.read() as conn:
        found = operations.get(conn, operation_id, counted=True)
        slow = slowest(conn, found)
        owner = None if found.is_over else owners(conn, [found.id], now).get(found.id)
    info = replace(build_info(found, now), owner=owner, slowest=slow)
    return info._from(runtime, found)


def info_of(runtime: Runtime, operation: OperationRow) -> OperationInfo:
    """Return the state of an operation. Its ``shards`` and ``stages`` are read on access."""
    return build_info(operation, runtime.clock.now())._from(runtime, operation)
