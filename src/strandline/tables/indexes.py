"""Build indexes, and update asynchronous indexes.

A build has two stages. An update usually needs only the second one:

1. Derive index entries from the table at one step.
2. Apply the table's changes since that step.

A new index is attached to the table in one transaction, when its entries have reached the table's last step.
Readers do not see its files before.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace

from strandline.cancellation import Interrupted, phase
from strandline.catalog import chains, commits, definitions, paths, tables
from strandline.catalog.commits import Basis
from strandline.catalog.conflicts import Stale
from strandline.catalog.tables import IndexRef, TableInfo
from strandline.catalog.transactions import Writer
from strandline.errors import StrandlineError
from strandline.model import Chain, IndexDef, State, TableSchema
from strandline.runtime import Runtime
from strandline.storage.rows import Written
from strandline.tables.publish import publishing
from strandline.tables.snapshot import Snapshot, TableView
from strandline.tables.unique import UniqueIndex


@contextmanager
def _while_it_exists(runtime: Runtime, table_id: int) -> Iterator[None]:
    """Turn an error in the block into Stale if the table was dropped meanwhile.

    The files of a dropped table may be missing without being damaged.
    """
    try:
        yield
    except StrandlineError:
        with runtime.catalog.read() as conn:
            if paths.by_id(conn, table_id) is not None:
                raise
        raise Stale(table_id, "it was dropped") from None


@dataclass(frozen=True)
class _Built:
    """Entries of an index, derived from the table at ``step``."""

    entries: Written
    step: int


def build_index(runtime: Runtime, snapshot: Snapshot, table: TableView, index: IndexDef) -> int:
    """Build an index on a table of a snapshot, and attach it to the table; return the step of that commit.

    Raises Stale if the table was dropped or its description changed.
    """
    impl = index.impl_schema(table.info.schema)
    name = runtime.session.file_name(table.info.id)
    with (
        phase(f"building the index {index.name} of {table.info.path}"),
        _while_it_exists(runtime, table.info.id),
    ):
        built = _Built(runtime.store.entries(table.state, impl, name), snapshot.step)
    seen = 0
    while True:
        try:
            now = Snapshot(runtime)
            current = now.table(table.info.path)
            built = _caught_up(runtime, table, current, impl, built)
            snapshot, table = now, current  # Refer to the snapshot, so that its files stay readable.
            if index.unique and (not seen or len(built.entries.segments) > seen):
                _check_unique(runtime, table, index, built, seen)
                seen = len(built.entries.segments)
        except (Exception, Interrupted):
            runtime.store.discard(built.entries.segments)
            raise
        with publishing(runtime, built.entries.segments) as tx:
            head = commits.prove(tx, Basis(table.info.id, table.info.version, None))
            if head.step <= built.step:
                return _attach(tx, table.info.id, index, built)
        # Rows were committed meanwhile: apply these changes, too. Each round has fewer changes to apply.


def _caught_up(
    runtime: Runtime, table: TableView, current: TableView, impl: TableSchema, built: _Built
) -> _Built:
    """Return the entries of an index with its changes up to the step of ``current`` added.

    Args:
        table: the table at ``built.step``.
        current: the table at a later step.
    """
    if (current.info.id, current.info.version) != (table.info.id, table.info.version):
        raise Stale(table.info.id, "its description changed")
    step = current.chain.step
    before = State(current.info.schema, replace(table.chain, step=built.step))
    more = _pending_changes(runtime, current, before, impl, table.info.id, at_any_size=True)
    if more is None or not more.segments:
        return replace(built, step=step)
    later = (replace(s, after=built.step, upto=step) for s in more.segments)
    entries = Written((*built.entries.segments, *later), built.entries.delta + more.delta)
    return _Built(entries, step)


def _check_unique(runtime: Runtime, table: TableView, index: IndexDef, built: _Built, seen: int) -> None:
    """Raise an error if several rows have the same key of the index.

    Args:
        seen: number of leading segments that were checked before.
    """
    segments, impl = built.entries.segments, index.impl_schema(table.info.schema)
    entries = State(impl, Chain(segments[:seen] if seen else segments, built.step))
    UniqueIndex(table.info, index, entries).check(runtime.store, segments[seen:] if seen else None)


def _pending_changes(
    runtime: Runtime, table: TableView, before: State, impl: TableSchema, owner: int, *, at_any_size: bool
) -> Written | None:
    """Write the index changes that follow from the changes of a table since the state ``before``.

    Return None if there are too many changes and ``at_any_size`` is False.

    Args:
        table: the table at a later step.
        before: the state of the table which the entries of the index were derived from.
        impl: schema of the index's implementation table.
        owner: id of the path after which new files are named.
        at_any_size: whether to write any number of changes.
    """
    with runtime.catalog.read() as conn:
        logs = chains.log_kept(conn, table.info.id, before.chain.step, table.chain.step)
    return runtime.store.follow(
        before,
        table.state,
        logs,
        impl,
        name=lambda: f"{runtime.session.file_name(owner)}.parquet",
        at_any_size=at_any_size,
    )


def _attach(tx: Writer, table_id: int, index: IndexDef, built: _Built) -> int:
    row = paths.require_id(tx.conn, table_id)
    paths.check_ready(row)
    info = TableInfo.of(row)
    ref = definitions.add_index_paths(tx, row, index, table=info.schema, digest=built.entries.delta)
    chains.attach(tx, ref.impl_id, chains.insert_segments(tx, built.entries.segments, tx.step), tx.step)
    paths.set_body(tx, row.id, replace(info, indexes=(*info.indexes, ref)).body())
    paths.set_version(tx, row.id, info.version + 1)
    tables.publish(tx, [row.id, ref.index_id, ref.impl_id])
    return tx.step


def follow(runtime: Runtime, path: str, ref: IndexRef) -> bool:
    """Update an asynchronous index to the table's last step. Return False if it was up to date."""
    snapshot = Snapshot(runtime)
    table = snapshot.table(path)
    with runtime.catalog.read() as conn:
        followed = chains.state(conn, ref.impl_id).followed_step
        head = chains.state(conn, table.info.id).step
        if followed is None or head <= followed:
            return False
        before = chains.load_kept(conn, table.info.id, followed)
        is_streamed = tables.is_held(conn, ref.impl_id)
    impl = snapshot.index(table, ref)
    earlier = State(table.info.schema, before)
    with _while_it_exists(runtime, table.info.id):
        made = _pending_changes(
            runtime, table, earlier, impl.info.schema, ref.impl_id, at_any_size=is_streamed
        )
    if made is None:
        _rebuild(runtime, snapshot, table, ref, impl, followed=followed)
        return True
    with publishing(runtime, made.segments) as tx:
        tables.move_followed(tx, ref.impl_id, followed, snapshot.step)
        if made.segments:
            part = commits.TableChange(ref.impl_id, impl.info.version, None, made.segments, made.delta)
            commits.commit(tx, [part])
    return True


def _rebuild(
    runtime: Runtime, snapshot: Snapshot, table: TableView, ref: IndexRef, impl: TableView, *, followed: int
) -> None:
    """Replace all entries of an asynchronous index by entries that are derived from the whole table.

    After a bulk change this is cheaper than to look up the old row of each changed key. A rebuild records no
    changes, so it is not possible while a stream needs the changes of the index.

    Args:
        followed: step of the table up to which the index was updated before.
    """
    name = runtime.session.file_name(ref.impl_id)
    with _while_it_exists(runtime, table.info.id):
        new = runtime.store.entries(table.state, impl.info.schema, name)
    with publishing(runtime, new.segments) as tx:
        if tables.is_held(tx.conn, ref.impl_id):
            raise Stale(ref.impl_id, "a stream was created on it")
        tables.move_followed(tx, ref.impl_id, followed, snapshot.step)
        commits.replace_segments(
            tx, ref.impl_id, impl.chain.segments, new.segments, "rebuild", digest=new.delta
        )
