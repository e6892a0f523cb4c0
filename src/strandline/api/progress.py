"""Operations as users see them: what the catalog says about each of them at one moment."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from strandline import records
from strandline.catalog import operations
from strandline.catalog.operations import Operation
from strandline.runtime import Runtime


@dataclass(frozen=True, kw_only=True)
class OperationInfo:
    """An operation at one moment. ``percent`` counts parts done of all that are expected and only grows;
    ``progress`` has what its kind tells beyond that (current increment, bytes). ``seconds_left`` is a guess
    from the pace so far, None when there is none."""

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

    @property
    def is_over(self) -> bool:
        """Whether it has ended: well, with an error, or cancelled."""
        return self.ended is not None

    @staticmethod
    def of(operation: Operation, now: float) -> OperationInfo:
        percent = (
            100.0
            if operation.state == "done"
            else min(99.0, 100.0 * operation.parts_done / max(operation.parts, 1))
        )
        what = f"what is recorded of operation {operation.id}"
        progress = records.shown(operation.progress, what)
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


def all_operations(runtime: Runtime) -> list[OperationInfo]:
    """Those that are not forgotten, oldest first."""
    with runtime.catalog.read() as conn:
        found = operations.listed(conn)
    now = runtime.clock.now()
    return [OperationInfo.of(operation, now) for operation in found]


def one_operation(runtime: Runtime, operation_id: str) -> OperationInfo:
    with runtime.catalog.read() as conn:
        found = operations.get(conn, operation_id, counted=True)
    return OperationInfo.of(found, runtime.clock.now())
