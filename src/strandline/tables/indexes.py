"""Building indexes and keeping asynchronous ones up to date.

Both do the same: derive index entries from the table at one step, then follow the table's changes from there.
A new index becomes part of the table in one transaction, once it has come to the table's very last step;
until then only files exist, which nobody sees.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

from sqlalchemy import Connection

from strandline.catalog import board, chains, holds, paths, tables
from strandline.catalog.chains import Basis
from strandline.catalog.stale import Stale
from strandline.catalog.tables import IndexRef, TableInfo
from strandline.model import Chain, Digest, IndexDef, Segment, TableSchema
from strandline.runtime import Runtime
from strandline.storage import chain as fold
from strandline.storage.changes import Changes, changes_between, index_changes, log_table
from strandline.storage.keys import Wanted
from strandline.storage.segment import write_segment
from strandline.tables.entries import index_entries
from strandline.tables.publish import discard, publishing
from strandline.tables.snapshot import Snapshot, TableView


@dataclass(frozen=True)
class _Built:
    """Entries of an index for the table as it was at ``step``."""

    segments: tuple[Segment, ...]
    digest: Digest
    step: int


def build_index(runtime: Runtime, snapshot: Snapshot, table: TableView, index: IndexDef) -> int:
    """Build an index on a table of a snapshot and attach it, and return the step from which it exists. Stale
    if that very table is not there any more, or has another description."""
    impl = index.impl_schema(table.info.schema)
    name = runtime.session.file_name(table.info.id)
    built = _Built(*index_entries(runtime, table.info.schema, table.chain, index, impl, name), snapshot.step)
    while True:
        try:
            now = Snapshot(runtime)
            current = now.table(table.info.path)
            built = _caught_up(runtime, table, current, index, impl, built)
            snapshot, table = now, current  # A view is good while its snapshot exists.
        except Exception:
            discard(runtime, built.segments)
            raise
        with publishing(runtime, snapshot, built.segments) as conn:
            head = chains.prove(conn, Basis(table.info.id, table.info.version, None))
            if head.step <= built.step:
                return _attach(runtime, conn, table.info.id, index, built)
        # Rows were committed meanwhile: follow them, it is less every time.


def _caught_up(
    runtime: Runtime, table: TableView, current: TableView, index: IndexDef, impl: TableSchema, built: _Built
) -> _Built:
    """Add what happened to the table between ``built.step`` and the step of ``current``."""
    if (current.info.id, current.info.version) != (table.info.id, table.info.version):
        raise Stale(table.info.id, "its description changed")
    step = current.chain.step
    changes = _changes_between(runtime, current.info, replace(table.chain, step=built.step), current.chain)
    entries = index_changes(changes, impl)
    if not len(entries):
        return replace(built, step=step)
    rows, delta = log_table(entries)
    segment = write_segment(
        runtime.files,
        impl,
        rows,
        name=f"{runtime.session.file_name(table.info.id)}.parquet",
        role="log",
        fresh=False,
        stepped=False,
        after=built.step,
        upto=step,
        inline_rows=runtime.settings.inline_rows,
        inline_bytes=runtime.settings.inline_bytes,
    )
    return _Built((*built.segments, segment), built.digest + delta, step)


def _changes_between(runtime: Runtime, info: TableInfo, before: Chain, after: Chain) -> Changes:
    """What became of every key that was touched in ``(before.step, after.step]``."""
    with runtime.catalog.read() as conn:
        logs = chains.log_kept(conn, info.id, before.step, after.step)
    files, schema = runtime.files, info.schema
    keys = fold.touched(files, schema, logs, before.step)
    old, new = (Wanted.of(schema, keys) for _ in range(2))
    return changes_between(
        schema, new.arrays, fold.rows_at(files, schema, before, old), fold.rows_at(files, schema, after, new)
    )


def _attach(runtime: Runtime, conn: Connection, table_id: int, index: IndexDef, built: _Built) -> int:
    row = paths.require_id(conn, table_id)
    paths.check_ready(row)
    step = board.next_step(conn)
    now = runtime.clock.now()
    info = TableInfo.of(row)
    ref = tables.add_index_paths(conn, step, now, row, index, table=info.schema, digest=built.digest)
    chains.attach(conn, ref.impl_id, chains.insert_segments(conn, built.segments, step), step)
    paths.set_body(conn, row.id, replace(info, indexes=(*info.indexes, ref)).body())
    paths.set_version(conn, row.id, info.version + 1)
    tables.publish(conn, step, now, [row.id, ref.index_id, ref.impl_id])
    return step


def follow(runtime: Runtime, path: str, ref: IndexRef) -> bool:
    """Bring an asynchronous index up to the table's last step, and return whether there was anything to
    do."""
    snapshot = Snapshot(runtime)
    table = snapshot.table(path)
    with runtime.catalog.read() as conn:
        followed = chains.state(conn, ref.impl_id).followed_step
        head = chains.state(conn, table.info.id).step
        if followed is None or head <= followed:
            return False
        before = chains.load_kept(conn, table.info.id, followed)
        logs = chains.log_kept(conn, table.info.id, followed, snapshot.step)
        is_streamed = holds.is_held(conn, ref.impl_id)
    impl = snapshot.index(table, ref)
    if sum(s.rows for s in logs) > runtime.settings.bulk_rows and not is_streamed:
        _rebuild(runtime, snapshot, table, ref, impl, followed)
        return True
    changes = _changes_between(runtime, table.info, before, table.chain)
    entries = index_changes(changes, impl.info.schema)
    rows, delta = log_table(entries)
    segments: tuple[Segment, ...] = ()
    if len(entries):
        segments = (
            write_segment(
                runtime.files,
                impl.info.schema,
                rows,
                name=f"{runtime.session.file_name(ref.impl_id)}.parquet",
                role="log",
                fresh=False,
                stepped=False,
                inline_rows=runtime.settings.inline_rows,
                inline_bytes=runtime.settings.inline_bytes,
            ),
        )
    with publishing(runtime, snapshot, segments) as conn:
        tables.move_followed(conn, ref.impl_id, followed, snapshot.step)
        if segments:
            part = chains.TablePart(ref.impl_id, impl.info.version, None, segments, delta)
            chains.commit(conn, runtime.clock.now(), [part])
    return True


def _rebuild(
    runtime: Runtime, snapshot: Snapshot, table: TableView, ref: IndexRef, impl: TableView, followed: int
) -> None:
    """After a bulk change it is cheaper to derive all entries anew on Spark than to look up the old row of
    every changed key. It leaves no changes behind, so it cannot be done under a stream."""
    name = runtime.session.file_name(ref.impl_id)
    new, digest = index_entries(
        runtime, table.info.schema, table.chain, ref.definition, impl.info.schema, name
    )
    with publishing(runtime, snapshot, new) as conn:
        if holds.is_held(conn, ref.impl_id):
            raise Stale(ref.impl_id, "a stream was created on it")
        tables.move_followed(conn, ref.impl_id, followed, snapshot.step)
        chains.replace_segments(
            conn, runtime.clock.now(), ref.impl_id, impl.chain.segments, new, "rebuild", digest
        )
