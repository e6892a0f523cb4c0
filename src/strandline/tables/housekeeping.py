"""Housekeeping: merging small logs, compaction, following asynchronous indexes, collection. None of it
changes any state.

Small commits stay in the catalog. The writer that adds the last of ``merge_segments`` of them merges them
into one log segment, so that neither the catalog nor the folder fills with crumbs, and no server has to run.
Compaction folds logs into base segments, by policy in ``maintain()`` or on demand.
"""

from __future__ import annotations

import contextlib
import logging
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from functools import partial

from strandline.catalog import (
    collect,
    commits,
    expiry,
    history,
    maintenance,
    paths,
    recycle_bin,
    sessions,
    tables,
)
from strandline.catalog.moment import impl_path
from strandline.catalog.stale import Stale
from strandline.catalog.tables import TableInfo
from strandline.catalog.versions import unit_above
from strandline.catalog.warehouse_settings import settings_at
from strandline.errors import Corrupted, PathNotFound, StrandlineError, UnderOperation
from strandline.model import Segment
from strandline.runtime import Runtime
from strandline.storage import staging
from strandline.tables import indexes
from strandline.tables.publish import publishing
from strandline.tables.snapshot import Snapshot, once, repeat
from strandline.work import phase

log = logging.getLogger("strandline")

FORGOTTEN = 500
"""Operations, or paths with old descriptions, that are dealt with in one transaction."""


@dataclass
class Report:
    """What ``maintain()`` did: paths by kind of work, and files removed."""

    followed: list[str] = field(default_factory=list)
    merged: list[str] = field(default_factory=list)
    compacted: list[str] = field(default_factory=list)
    removed_files: int = 0
    removed_orphans: int = 0


def after_commit(runtime: Runtime, path: str) -> None:
    """Merge the small logs of a table of which a commit was the last that was missing. Never fails that
    commit, which is done already."""
    try:
        merge(runtime, path)
    except Exception as error:
        # The commit is durable: whatever goes wrong with housekeeping must not look like its failure.
        log.warning("merge of %s failed: %s", path, error)


def merge(runtime: Runtime, path: str) -> bool:
    """Merge the last small logs of a table into one, and return whether there were enough of them and nobody
    else was at it."""
    snapshot = Snapshot(runtime)
    view = snapshot.table(path)
    if not runtime.store.small_logs(view.chain):
        return False
    with runtime.catalog.read() as conn:
        # A merged segment has the columns of today; older states must find the columns that were dropped
        # since.
        after = tables.last_drop(conn, view.info.id)
    small = runtime.store.small_logs(view.chain, after)
    if not small:
        return False
    with _maintaining(runtime, view.info.id) as is_ours:
        if not is_ours:
            return False
        _merge(runtime, view.info, small)
        snapshot = Snapshot(runtime)
        view = snapshot.table(path)
        medium = runtime.store.medium_logs(view.chain, after)
        if medium:
            _merge(runtime, view.info, medium)
    return True


def _merge(runtime: Runtime, info: TableInfo, segments: Sequence[Segment]) -> None:
    merged = runtime.store.merge(info.schema, segments, runtime.session.file_name(info.id))
    with contextlib.suppress(Stale), publishing(runtime, [merged]) as tx:
        commits.replace_segments(tx, info.id, segments, [merged], "merge")
        collect.drop_superseded(tx, info.id, grace_seconds=settings_at(tx.conn, tx.now).grace_seconds)


def compact_all(runtime: Runtime, path: str) -> bool:
    """Compact a table and its indexes, each of them again when it is stale, and return whether there was
    anything to fold."""
    with runtime.catalog.read() as conn:
        info = TableInfo.of(paths.require(conn, path, "table"))
    done = False
    for part in (path, *(impl_path(info, ref) for ref in info.indexes)):
        try:
            done = repeat(runtime, partial(compact, runtime, part)) or done
        except StrandlineError:
            with runtime.catalog.read() as conn:
                paths.require(conn, path, "table")
                if paths.find(conn, part) is not None:
                    raise
            # An index that was dropped meanwhile has nothing left to compact.
    return done


def compact(runtime: Runtime, path: str) -> bool:
    """Fold a table's logs into base segments, and return whether it was done. Files are checked against the
    recorded digest before anything refers to them."""
    with runtime.catalog.read() as conn:
        found = paths.require(conn, path, "table")
        table_id = found.id
        # An index has as many shards as its table.
        above = [TableInfo.of(p) for p in unit_above(conn, found) if p.type == "table"]
        least = 1 + sum(len(info.schema.bounds) for info in above)
    with _maintaining(runtime, table_id) as is_ours:
        if not is_ours:
            raise UnderOperation(
                f"{path} is being maintained by another process", "Try again when it is done."
            )
        snapshot = Snapshot(runtime)
        view = snapshot.table(path)
        if view.info.id != table_id or not any(s.role == "log" for s in view.chain.segments):
            return False  # Another table has taken the name, or there is nothing to fold.
        with runtime.catalog.read() as conn:
            recorded = tables.digest_at(conn, view.info.id, snapshot.step)
        with phase(f"compacting {path}"):
            made = runtime.store.compact(view.state, runtime.session.file_name(view.info.id), least=least)
        if made.digest != recorded:
            runtime.store.discard(made.new)
            raise Corrupted(
                f"compaction of {path} would turn {recorded.rows} rows ({recorded.hex}) into "
                f"{made.digest.rows} rows ({made.digest.hex})",
                f"Nothing was changed. Run db.check({path!r}) to see what is wrong.",
            )
        if not made.new and not made.old:
            return False  # All of it is as compaction would make it.
        try:
            with publishing(runtime, made.new) as tx:
                commits.replace_segments(tx, view.info.id, made.old, made.new, "compact")
        except Stale:
            return False
        return True


def collect_garbage(runtime: Runtime, report: Report | None = None) -> Report:
    """Remove what nothing refers to: first from the catalog, then from the folder; then files that never got
    a commit."""
    report = report or Report()
    runtime.session.refresh()  # What this process has read and left again keeps nothing.
    with runtime.catalog.write() as tx:
        kept = settings_at(tx.conn, tx.now)
        recycle_bin.empty(tx, bin_seconds=kept.bin_seconds)
        collect.sweep(tx, history_seconds=kept.history_seconds, grace_seconds=kept.grace_seconds)
        history.forget(tx, history_seconds=kept.version_history_seconds)
    _forget_old(runtime)
    with runtime.catalog.read() as conn:
        garbage = collect.garbage(conn)
    for file in garbage:
        runtime.files.remove(file)
    if garbage:
        with runtime.catalog.write() as tx:
            collect.forget_garbage(tx, garbage)
    report.removed_files += len(garbage)
    report.removed_orphans += _remove_orphans(runtime, garbage)
    report.removed_orphans += _remove_staged(runtime)
    return report


def _forget_old(runtime: Runtime) -> None:
    """Delete old operations and descriptions, a batch in each transaction."""
    for forget in (expiry.forget_operations, expiry.forget_descriptions):
        is_more = True
        while is_more:
            with runtime.catalog.write() as tx:
                is_more = forget(tx, settings_at(tx.conn, tx.now), FORGOTTEN) == FORGOTTEN


def _remove_orphans(runtime: Runtime, garbage: Sequence[str]) -> int:
    """Files that no commit refers to and whose writer's session has ended, so that none ever will. The folder
    is listed before the catalog is read: a file that was committed in between is then known. With the last
    file of a bulk write goes its folder."""
    found = list(runtime.files.names("data"))
    with runtime.catalog.read() as conn:
        known = collect.known_files(conn)
        writers = sessions.all_sessions(conn)
    orphans = [file for file in found if file not in known and sessions.writer_of(file) not in writers]
    for file in orphans:
        runtime.files.remove(file)
    left = {_bulk_folder(file) for file in known}
    for folder in {_bulk_folder(file) for file in (*garbage, *orphans)} - left:
        if folder is not None:
            runtime.files.remove_tree(folder)
    return len(orphans)


def _remove_staged(runtime: Runtime) -> int:
    """Rows that tasks have staged for a commit that never came."""
    now = runtime.clock.now()
    old = [file for file in runtime.files.names(staging.FOLDER) if staging.is_old(file, now)]
    for folder in {file.rpartition("/")[0] for file in old}:
        runtime.files.remove_tree(folder)
    return len(old)


def _bulk_folder(file: str) -> str | None:
    """Return the folder that one job on Spark wrote, ``data/<table>/<session>-<number>``, if the file is in
    one."""
    parts = file.split("/")
    return "/".join(parts[:3]) if len(parts) > 3 else None


def maintain(runtime: Runtime, path: str | None = None) -> Report:
    """Do one round of housekeeping over all tables (or those at and below ``path``). Safe to run beside
    anything, also beside itself."""
    report = Report()
    failed: StrandlineError | None = None
    for table in _looked_on(_tables(runtime, path or "/")):
        try:
            with once(runtime, runtime.moments.mark()):
                _maintain_table(runtime, table, report)
        except (Stale, UnderOperation, PathNotFound):
            continue  # somebody else is at work on it, or has dropped it
        except StrandlineError as error:
            log.warning("maintenance of %s failed: %s", table, error.message)
            failed = failed or error  # One damaged table is no reason to neglect the others.
    with phase("removing what nobody needs"):
        collect_garbage(runtime, report)
    if failed is not None:
        raise failed
    return report


def _looked_on(tables_: Sequence[str]) -> Iterator[str]:
    with phase("maintaining", len(tables_), "tables") as maintaining:
        for table in tables_:
            yield table
            maintaining.advance()


def _maintain_table(runtime: Runtime, path: str, report: Report) -> None:
    view = Snapshot(runtime).table(path)
    for ref in view.info.indexes:
        if not ref.definition.is_sync and indexes.follow(runtime, path, ref):
            report.followed.append(f"{path}/{ref.definition.name}")
    snapshot = Snapshot(runtime)
    view = snapshot.table(path)
    for target in (view, *(snapshot.index(view, ref) for ref in view.info.indexes)):
        if merge(runtime, target.info.path):
            report.merged.append(target.info.path)
        if runtime.store.wants_compaction(target.chain) and compact(runtime, target.info.path):
            report.compacted.append(target.info.path)


def _tables(runtime: Runtime, path: str) -> list[str]:
    with runtime.catalog.read() as conn:
        root = paths.require(conn, path)
        return [table.path for table in paths.user_tables(conn, root) if table.state == paths.READY]


@contextlib.contextmanager
def _maintaining(runtime: Runtime, table_id: int) -> Iterator[bool]:
    """Whether this thread may maintain the table, and no other thread or process is at it. What others do to
    it all the same, because this process has slept, makes what it was about to do Stale."""
    with runtime.alone_with(table_id) as alone:
        if not alone:
            yield False
            return
        session_id = runtime.session.ensure()
        with runtime.catalog.write() as tx:
            taken = maintenance.take(tx, table_id, session_id)
        try:
            yield taken
        finally:
            if taken:
                with runtime.catalog.write() as tx:
                    maintenance.release(tx, table_id, session_id)
