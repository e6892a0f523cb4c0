"""The data of the pages of operations."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any

from strandline import OperationInfo, ShardInfo, StageInfo, names
from strandline.errors import PathNotFound, PermissionDenied
from strandline.server.console.client import PageClient
from strandline.server.console.formats import duration, iso, size
from strandline.server.console.views import PAGE, BackupPart, Page, list_parts

CELLS = 1000
"""Maximum number of parts of an operation that are drawn one by one."""
_TITLES = {
    "rebuild": "Indexes built anew",
    "verify": "Plan of the verification",
    "verify shard": "Verification",
}
"""Titles of the stages of a restore, by the kind of their parts."""


def list_operations(
    client: PageClient, page: int, *, state: str | None, kind: str | None
) -> Page[OperationInfo]:
    """Return a page of the operations, newest first."""
    number = max(1, page)
    most = number * PAGE + 1
    found: list[OperationInfo] = client.call("Database.operations", state=state, kind=kind, limit=most)
    newest = found[::-1]
    first = (number - 1) * PAGE
    items = newest[first : first + PAGE]
    return Page(items=items, number=number, has_more=len(newest) > number * PAGE, first=first)


@dataclass(frozen=True, kw_only=True)
class Stage:
    """A stage of an operation with its parts. ``shards`` is empty if there are too many to draw."""

    info: StageInfo
    title: str
    shards: Sequence[ShardInfo]

    @property
    def counts(self) -> str:
        """The states of the parts in words."""
        states = [shard.state for shard in self.shards]
        return ", ".join(f"{states.count(state)} {state}" for state in dict.fromkeys(states))


@dataclass(frozen=True, kw_only=True)
class ProofLine:
    """The comparison of a restored table or index with what the backup recorded.

    Attributes:
        recorded: digest in the backup. None: the backup has only the definition of the index.
        found: digest of the table now.
        outcome: ``same``, ``built anew``, ``changed since`` (it was written after the restore),
            ``different``, ``gone`` or ``hidden`` (the client may not read the table).
    """

    source: str
    path: str
    type: str
    rows: int | None
    recorded: str | None
    found: str | None
    outcome: str


@dataclass(frozen=True, kw_only=True)
class OperationPage:
    """Data of the page of an operation.

    Attributes:
        rate: bytes per second since the start. None: bytes are not counted.
        troubled: parts in progress, and parts with failed attempts.
        proof: digests of what a restore has made. Empty: it is no restore, or the backup is gone.
        result: the result by name, as text.
    """

    info: OperationInfo
    seconds: float
    rate: float | None
    retries: int
    stages: Sequence[Stage]
    troubled: Sequence[ShardInfo]
    proof: Sequence[ProofLine]
    result: Sequence[tuple[str, str]]

    @property
    def is_proved(self) -> bool:
        """Whether every digest is the recorded one."""
        return all(line.outcome in ("same", "built anew") for line in self.proof)


def read_operation(client: PageClient, operation_id: str, now: float) -> OperationPage:
    info: OperationInfo = client.call("Database.operation", operation_id=operation_id)
    stages: list[StageInfo] = client.call("Database.stages", operation_id=operation_id)
    are_few = info.parts <= CELLS
    limit = CELLS if are_few else PAGE
    shards: list[ShardInfo] = client.call("Database.shards", operation_id=operation_id, limit=limit)
    in_order = sorted(shards, key=lambda shard: (shard.stage, shard.id))
    seconds = max(0.0, (info.ended or now) - info.created)
    done = info.progress.get("bytes") or 0
    is_restored = info.kind == "restore" and info.state == "done"
    return OperationPage(
        info=info,
        seconds=seconds,
        rate=done / seconds if done and seconds > 0 else None,
        retries=sum(stage.retries for stage in stages),
        stages=[
            Stage(
                info=stage,
                title=_title(info, stage, shards),
                shards=[shard for shard in in_order if are_few and shard.stage == stage.stage],
            )
            for stage in stages
        ],
        troubled=[shard for shard in shards if shard.errors or shard.state == "in progress"][:PAGE],
        proof=list(prove(client, info)) if is_restored else (),
        result=[(name.replace("_", " "), _text(name, value)) for name, value in (info.result or {}).items()],
    )


def _title(info: OperationInfo, stage: StageInfo, shards: Sequence[ShardInfo]) -> str:
    kinds = " and ".join(dict.fromkeys(shard.kind for shard in shards if shard.stage == stage.stage))
    if info.kind != "restore" or stage.increment is None:
        return _TITLES.get(kinds) or kinds[:1].upper() + kinds[1:] or f"Stage {stage.stage + 1}"
    if stage.increment == 0:
        return "Full backup"
    return f"Increment {stage.increment} of {info.progress.get('increments', stage.increment)}"


def _text(name: str, value: Any) -> str:
    """Return a value of an operation's result as text."""
    if value in (None, [], {}, ()):
        return "–"
    if name == "bytes_verified":
        return iso(value)
    if name == "bytes":
        return size(value)
    if isinstance(value, dict):
        return ", ".join(f"{key}: {each}" for key, each in value.items())
    if isinstance(value, list | tuple):
        return ", ".join(map(str, value))
    return f"{value:,}" if isinstance(value, int) and not isinstance(value, bool) else str(value)


def progress_text(operation: OperationInfo) -> str:
    """Return the progress of an operation in increments, parts and bytes."""
    progress, said = operation.progress, []
    if progress.get("increments"):
        said.append(f"increment {progress.get('increment', 0)} of {progress['increments']}")
    if operation.parts:
        unit = "shards" if operation.kind == "restore" else "parts"
        said.append(f"{operation.parts_done:,} of {operation.parts:,} {unit}")
    if progress.get("bytes_total"):
        said.append(f"{size(progress.get('bytes', 0))} of {size(progress['bytes_total'])}")
    return ", ".join(said)


def shard_name(shard: ShardInfo) -> str:
    """Return the kind of a part, its number and its path."""
    number = "" if shard.shard is None else f" {shard.shard}"
    return f"{shard.kind}{number}" + ("" if shard.path is None else f" of {shard.path}")


def shard_text(shard: ShardInfo) -> str:
    """Return what is known of a part on one line."""
    said = [f"{shard_name(shard)}: {shard.state}"]
    if shard.bytes is not None:
        said.append(size(shard.bytes))
    if shard.seconds is not None:
        said.append(duration(shard.seconds))
    if shard.attempt > 1:
        said.append(f"try {shard.attempt}")
    return ", ".join(said)


def prove(client: PageClient, restore: OperationInfo) -> Iterator[ProofLine]:
    """Compare each restored table and index with the digest that the backup recorded."""
    request, backup = restore.request, str((restore.result or {}).get("backup"))
    try:
        parts = {part.path: part for part in list_parts(client, str(request["collection"]), backup)}
    except PathNotFound:
        return  # The backup was removed since.
    tables = [path for path, part in parts.items() if part.type == "table"]
    into = "" if request.get("into") is None else names.normalize(request["into"]).rstrip("/")
    for source, to in request.get("tables") or [(path, None) for path in tables]:
        table = into + names.normalize(to or source)
        for place, part in parts.items():
            if place == source or (part.type == "index" and place.rpartition("/")[0] == source):
                yield _compare(client, part, table + place[len(source) :], table, restore.id)


def _compare(client: PageClient, part: BackupPart, path: str, table: str, operation_id: str) -> ProofLine:
    line = ProofLine(
        source=part.path,
        path=path,
        type=part.type,
        rows=part.rows_after,
        recorded=part.digest,
        found=None,
        outcome="gone",
    )
    try:
        described = client.call("Database.describe", path=path)
        line = replace(line, found=described["digest"], rows=described["rows"])
        if part.digest is None:
            return replace(line, outcome="built anew")
        if line.found == part.digest:
            return replace(line, outcome="same")
        last = client.call("Table.history", path=table, limit=1)
        is_own = bool(last) and last[0].operation_id == operation_id
        return replace(line, outcome="different" if is_own else "changed since")
    except PathNotFound:
        return line
    except PermissionDenied:
        return replace(line, outcome="hidden")
