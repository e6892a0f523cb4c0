"""EXPLAIN of BACKUP, COMPACT and COPY BACKUP: describe the plan of the operation."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple

from sqlalchemy import Connection

from strandline.backups.backup.full import BackupBody
from strandline.backups.backup.increment_plan import CutShard, Unchanged
from strandline.backups.backup.incremental import IncrementBody
from strandline.backups.collection import CLUSTER, CollectionRecord
from strandline.backups.fold.fold_parts import CompactBody, MergeBody
from strandline.backups.fold.fold_plan import FoldedShard, MergedShard
from strandline.backups.record import require_collection
from strandline.backups.repository.upload import SendBody
from strandline.catalog import chains, sizes
from strandline.catalog.paths import require_id
from strandline.catalog.tables import TableBody
from strandline.model import Chain, Segment, State, may_hold
from strandline.names import count
from strandline.operations.copy import CopiedTable
from strandline.operations.dry_run import rehearse
from strandline.operations.kind import Kind, PartPlan, Plan
from strandline.records import Record
from strandline.runtime import Runtime
from strandline.storage.store import Store

__all__ = ["PlanLine", "explain"]


class PlanLine(NamedTuple):
    """A line of a plan."""

    what: str
    name: str
    details: str


Here = Callable[[Store], bool]
"""Function that returns True if the store would run a certain part in this process, not on Spark."""


class _Told(NamedTuple):
    """A line of a plan, and the parts of the operation that the line describes.

    Attributes:
        parts: For each part, a function that finds where the part would run. These functions may read files,
            so they are called only after the transaction.
    """

    what: str
    name: str
    details: str
    parts: Sequence[Here] = ()


def explain(runtime: Runtime, kind: Kind[Any, Any, Any], request: Any) -> list[PlanLine]:
    """Return the lines of an operation's plan. The last line says where its parts would run."""

    def look(conn: Connection, plan: Plan[Any, Any]) -> list[_Told]:
        collection = require_collection(conn, request.collection).record(CollectionRecord)
        return list(_LOOKS[type(plan.body)](conn, plan, request, collection))

    found = rehearse(runtime.catalog, kind, request, look)
    lines, number, on_spark = [], 0, 0
    for told in found:
        away = sum(not here(runtime.store) for here in told.parts)
        number, on_spark = number + len(told.parts), on_spark + away
        lines.append(PlanLine(*told[:3]))
    if on_spark:
        shards = count(on_spark, "shard")
        lines.append(PlanLine("run", "on Spark", f"{shards} of {number}: too much for the process"))
    else:
        lines.append(
            PlanLine("run", "in the process", "no JVM" if number else "in the catalog alone, no JVM")
        )
    return lines


def _full(
    conn: Connection, plan: Plan[BackupBody, Any], request: Any, collection: CollectionRecord
) -> Iterator[_Told]:
    because = "" if request.because is None else f", because {request.because}"
    tables = count(len(plan.body.members), "table")
    yield _Told("backup", request.collection, f"full, of {tables}, at step {plan.body.step}{because}")
    copied = [(p.path or "", p.body) for p in plan.parts if isinstance(p.body, CopiedTable)]
    ids = [body.table_id for _, body in copied]
    heads, size = chains.states(conn, ids), sizes.bytes_of(conn, ids)
    shards = _by_path(p for p in plan.parts if p.kind == "table shard")
    for path, body in copied:
        is_table = path in plan.body.members
        if body.omitted:
            yield _Told("left out", path, "an index that a restore builds again")
            continue
        number = heads[body.table_id].digest.rows
        rows = count(number, "row") if is_table else count(number, "entry", "entries")
        parts = count(len(shards.get(path, "-")), "shard")
        bytes_ = count(size.get(body.table_id, 0), "byte")
        yield _Told("table" if is_table else "index", path, f"{rows}, {parts}, {bytes_}")
    yield _Told("move", "0 bytes", "segments are shared, no data moves")
    yield from _afterwards(collection, plan.body)


def _incremental(
    conn: Connection, plan: Plan[IncrementBody, Any], request: Any, collection: CollectionRecord
) -> Iterator[_Told]:
    body = plan.body
    since = f"changes in ({body.after}, {body.step}], on top of {body.parent}"
    yield _Told("backup", request.collection, f"incremental: {since}")
    for path, parts in _by_path(p for p in plan.parts if isinstance(p.body, CutShard)).items():
        first = _cut(parts[0])
        if first.whole:
            found: Sequence[Segment] = chains.load(conn, first.table_id, first.step).segments
            how = "all of it, the last backup does not have it"
        else:
            found = chains.log_between(conn, first.table_id, first.after, first.step)
            how = "its changes"
        how += ", compared with all rows as a column was dropped" if first.base is not None else ""
        changes = count(sum(s.rows for s in found), "row" if first.whole else "change")
        told = f"{how}: {changes} at most, {_shards(parts)}"
        yield _Told(
            "table" if path in body.members else "index",
            path,
            told,
            [_explain_slices([s for s in found if may_hold(s, _cut(part).within)]) for part in parts],
        )
    unchanged = sum(len(p.body.slices) for p in plan.parts if isinstance(p.body, Unchanged))
    if unchanged:
        yield _Told("unchanged", count(unchanged, "table or index", "tables and indexes"), "nothing is read")
    yield from _afterwards(collection, body)


def _afterwards(collection: CollectionRecord, body: BackupBody) -> Iterator[_Told]:
    settings = collection.settings
    if settings.storage != CLUSTER:
        yield _Told("send", settings.storage, "when it is taken; what is there already is not sent again")
    if settings.retention is not None:
        yield _Told("prune", settings.retention, "afterwards")
    if body.warning is not None:
        yield _Told("warning", "", body.warning)


def _compact(
    conn: Connection, plan: Plan[CompactBody, Any], request: Any, collection: CollectionRecord
) -> Iterator[_Told]:
    body = plan.body
    if not body.increments:
        yield _Told("nothing", body.backup, "it is a full backup already")
        return
    folded = count(body.increments, "increment")
    yield _Told("compact", body.backup, f"becomes a full backup: {folded} folded into what they build on")
    yield from _explain_fold(conn, plan)


def _merge(
    conn: Connection, plan: Plan[MergeBody, Any], request: Any, collection: CollectionRecord
) -> Iterator[_Told]:
    for *swallowed, last in plan.body.runs:
        yield _Told("merge", last, f"{', '.join(swallowed)} merged into it")
    if not plan.body.runs:
        yield _Told("nothing", request.collection, "no two increments can become one")
        return
    yield from _explain_fold(conn, plan)


def _send(
    conn: Connection, plan: Plan[SendBody, Any], request: Any, collection: CollectionRecord
) -> Iterator[_Told]:
    for name in plan.body.backups:
        yield _Told("send", name, f"to {plan.body.root}")
    if not plan.body.backups:
        yield _Told("nothing", plan.body.root, "all of it is there")
    total = count(sum(part.bytes or 0 for part in plan.parts), "byte")
    yield _Told("move", f"{total} at most", "what is there already is not sent again")


_LOOKS: Mapping[type, Callable[[Connection, Plan[Any, Any], Any, CollectionRecord], Iterator[_Told]]] = {
    BackupBody: _full,
    IncrementBody: _incremental,
    CompactBody: _compact,
    MergeBody: _merge,
    SendBody: _send,
}


def _explain_fold(conn: Connection, plan: Plan[CompactBody, Any] | Plan[MergeBody, Any]) -> Iterator[_Told]:
    among = sum(part.bytes or 0 for part in plan.parts)

    def folds(body: Record) -> Here:
        assert isinstance(body, FoldedShard | MergedShard)
        shard = body.shard
        found = [s for each in shard.slices for s in chains.load(conn, *each).narrow(shard.within).segments]
        if isinstance(body, MergedShard):
            return _explain_slices(found)
        schema = require_id(conn, shard.staging_id).record(TableBody).schema
        state = State(schema, Chain(tuple(found), shard.slices[-1][1]), shard.within)
        return lambda store: store.streams(state, among, ordered=True)

    for path, parts in _by_path(p for p in plan.parts if p.shard is not None).items():
        yield _Told("fold", path, _shards(parts), [folds(part.body) for part in parts])
    if plan.body.root is not None:
        yield _Told("write", plan.body.root, "only what was folded is sent")


def _explain_slices(segments: Sequence[Segment]) -> Here:
    return lambda store: store.slices_here(segments)


def _cut(part: PartPlan) -> CutShard:
    assert isinstance(part.body, CutShard)
    return part.body


def _by_path(parts: Iterable[PartPlan]) -> dict[str, list[PartPlan]]:
    found: dict[str, list[PartPlan]] = {}
    for part in parts:
        found.setdefault(part.path or "", []).append(part)
    return found


def _shards(parts: Sequence[PartPlan]) -> str:
    return f"{count(len(parts), 'shard')}, {count(sum(p.bytes or 0 for p in parts), 'byte')}"
