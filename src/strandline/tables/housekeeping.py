"""Housekeeping: merge small logs, compact, update asynchronous indexes, collect garbage.

Housekeeping never changes the rows of a table.

- Merge: small commits are stored in the catalog as small logs. When a table has ``merge_segments`` of them,
  the process that adds the last one merges them into one log segment, and merges such logs in tiers. So the
  catalog and the folder do not fill with small segments, and no server is needed.
- Compaction: fold logs into base segments. The process that writes does this, too, if it needs no Spark;
  ``maintain()`` does it for tables of any size.

After a commit, this work runs on a background thread (``after_commit``). The policy is in
``storage/compaction_policy.py``.
"""

from __future__ import annotations

import contextlib
import logging
from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass, field
from functools import partial

from strandline.cancellation import phase
from strandline.catalog import (
    commits,
    expiry,
    garbage_collection,
    history,
    maintenance,
    paths,
    recycle_bin,
    sessions,
    tables,
)
from strandline.catalog.conflicts import Stale
from strandline.catalog.snapshots import impl_path
from strandline.catalog.tables import TableInfo
from strandline.catalog.versions import unit_above
from strandline.catalog.warehouse_settings import settings_at
from strandline.errors import Corrupted, PathNotFound, StrandlineError, UnderOperation
from strandline.model import Segment
from strandline.runtime import Runtime
from strandline.storage import staged_files
from strandline.tables import indexes
from strandline.tables.attempts import StatementAttempts
from strandline.tables.publish import publishing
from strandline.tables.snapshot import Snapshot
from strandline.threads import in_parallel

log = logging.getLogger("strandline")

FORGOTTEN = 500
"""Maximum number of operations, runs, or paths with old descriptions that one transaction cleans up."""
FOLDERS_AT_ONCE = 8
"""Maximum number of folders of bulk writes that are deleted at the same time."""


@dataclass
class Report:
    """The result of ``maintain()``.

    Attributes:
        followed: paths of the asynchronous indexes that were updated.
        merged: paths of the tables whose small logs were merged.
        compacted: paths of the tables that were compacted.
        removed_files: number of deleted files of segments that are not referenced any more.
        removed_orphans: number of deleted orphan files and old staged files, which no commit refers to.
    """

    followed: list[str] = field(default_factory=list)
    merged: list[str] = field(default_factory=list)
    compacted: list[str] = field(default_factory=list)
    removed_files: int = 0
    removed_orphans: int = 0


def after_commit(runtime: Runtime, path: str) -> None:
    """Merge and compact a table in the background, as far as the policy asks for it."""
    runtime.upkeep.submit(path, partial(_keep_up, runtime, path))


def _keep_up(runtime: Runtime, path: str) -> None:
    """Merge and compact a table without Spark, and delete the files that this frees. Logs errors."""
    try:
        with StatementAttempts(runtime).once(runtime.moments.mark()):
            is_merged = merge(runtime, path)
            is_compacted = runtime.store.pays_off(Snapshot(runtime).table(path).chain) and compact(
                runtime, path, in_process=True
            )
        if is_merged or is_compacted:
            _delete_garbage(runtime)
    except (Stale, UnderOperation, PathNotFound):
        pass  # Another process maintains the table, or has dropped it.
    except Exception as error:
        # The commit is durable: a failure of housekeeping must not look like its failure.
        log.warning("merge of %s failed: %s", path, error)


def merge(runtime: Runtime, path: str) -> bool:
    """Merge the logs of a table as the policy asks for it; return True if this was done.

    Return False if there are too few logs, or if another thread or process maintains the table.
    """
    info, logs = _find_due_logs(runtime, path)
    if not logs:
        return False
    with _maintaining(runtime, info.id) as is_ours:
        if not is_ours:
            return False
        is_done = False
        while logs and _merge(runtime, info, logs):
            is_done = True
            info, logs = _find_due_logs(runtime, path)
        return is_done


def _find_due_logs(runtime: Runtime, path: str) -> tuple[TableInfo, Sequence[Segment]]:
    """Return a table, and its consecutive logs to merge next."""
    view = Snapshot(runtime).table(path)
    if not runtime.store.due_logs(view.chain):
        return view.info, ()
    with runtime.catalog.read() as conn:
        # A merged segment has only the present columns. Do not merge logs from before the last DROP COLUMN:
        # reads of earlier steps need the dropped column.
        after = tables.last_drop(conn, view.info.id)
    return view.info, runtime.store.due_logs(view.chain, after)


def _merge(runtime: Runtime, info: TableInfo, segments: Sequence[Segment]) -> bool:
    """Replace logs by one log. Return False if another process has replaced them."""
    merged = runtime.store.merge(info.schema, segments, runtime.session.file_name(info.id))
    try:
        with publishing(runtime, [merged]) as tx:
            commits.replace_segments(tx, info.id, segments, [merged], "merge")
            grace = settings_at(tx.conn, tx.now).grace_seconds
            garbage_collection.drop_superseded(tx, info.id, grace_seconds=grace)
    except Stale:
        return False
    return True


def compact_all(runtime: Runtime, path: str) -> bool:
    """Compact a table and its indexes, with retries; return True if anything was compacted."""
    with runtime.catalog.read() as conn:
        info = TableInfo.of(paths.require(conn, path, "table"))
    done = False
    with runtime.upkeep.paused():
        for part in (path, *(impl_path(info, ref) for ref in info.indexes)):
            try:
                done = StatementAttempts(runtime).repeat(partial(compact, runtime, part)) or done
            except StrandlineError:
                with runtime.catalog.read() as conn:
                    paths.require(conn, path, "table")
                    if paths.find(conn, part) is not None:
                        raise
                # The index was dropped meanwhile.
    return done


def compact(runtime: Runtime, path: str, *, in_process: bool = False) -> bool:
    """Fold a table's logs into base segments; return True if anything changed.

    The new files are checked against the recorded digest before they are published.

    Args:
        in_process: do not use Spark; return False if the table is too large for this process.
    """
    with runtime.catalog.read() as conn:
        found = paths.require(conn, path, "table")
        table_id = found.id
        # The table above an index: the index needs as many segments as its table has shards.
        above = [TableInfo.of(p) for p in unit_above(conn, found) if p.type == "table"]
        least = 1 + sum(len(info.schema.bounds) for info in above)
    with _maintaining(runtime, table_id) as is_ours:
        if not is_ours:
            raise UnderOperation(
                f"{path} is being maintained by another process", "Retry when it has finished."
            )
        snapshot = Snapshot(runtime)
        view = snapshot.table(path)
        if view.info.id != table_id or not any(s.role == "log" for s in view.chain.segments):
            return False  # Another table has the name now, or there are no logs to fold.
        with runtime.catalog.read() as conn:
            recorded = tables.digest_at(conn, view.info.id, snapshot.step)
        with phase(f"compacting {path}"):
            fold = runtime.store.compact_in_process if in_process else runtime.store.compact
            made = fold(view.state, runtime.session.file_name(view.info.id), least=least)
        if made is None:
            return False
        if made.digest is not None and made.digest != recorded:
            runtime.store.discard(made.new)
            raise Corrupted(
                f"compaction of {path} would turn {recorded.rows} rows ({recorded.hex}) into "
                f"{made.digest.rows} rows ({made.digest.hex})",
                f"Nothing was changed. Run db.check({path!r}) to see what is wrong.",
            )
        if not made.new and not made.old:
            return False  # The table is compact already.
        try:
            with publishing(runtime, made.new) as tx:
                commits.replace_segments(tx, view.info.id, made.old, made.new, "compact")
                kept = settings_at(tx.conn, tx.now)
                garbage_collection.sweep_table(
                    tx,
                    view.info.id,
                    history_seconds=kept.history_seconds,
                    grace_seconds=kept.grace_seconds,
                )
        except Stale:
            return False
        return True


def collect_garbage(runtime: Runtime, report: Report | None = None) -> Report:
    """Delete unreferenced data.

    1. Delete expired records, and records of unreferenced segments, from the catalog.
    2. Delete the files of these segments.
    3. Delete orphan files and old staged files, which no commit refers to.

    Args:
        report: the report to add to. None: a new one.
    """
    report = report or Report()
    runtime.session.refresh()  # Release steps that this process no longer reads.
    with runtime.catalog.write() as tx:
        kept = settings_at(tx.conn, tx.now)
        recycle_bin.empty(tx, bin_seconds=kept.bin_seconds)
        garbage_collection.sweep(tx, history_seconds=kept.history_seconds, grace_seconds=kept.grace_seconds)
        history.forget(tx, history_seconds=kept.version_history_seconds)
    _forget_old(runtime)
    garbage = _delete_garbage(runtime)
    report.removed_files += len(garbage)
    report.removed_orphans += _remove_orphans(runtime, garbage)
    report.removed_orphans += _remove_staged(runtime)
    return report


def _delete_garbage(runtime: Runtime) -> Sequence[str]:
    """Delete the files that are out of the catalog, and return their names."""
    with runtime.catalog.read() as conn:
        garbage = garbage_collection.garbage(conn)
    if garbage:
        runtime.files.remove_all(garbage)
        with runtime.catalog.write() as tx:
            garbage_collection.forget_garbage(tx, garbage)
    return garbage


def _forget_old(runtime: Runtime) -> None:
    """Delete old operations, runs and descriptions, one batch per transaction."""
    for forget in (
        expiry.forget_operations,
        expiry.forget_runs,
        expiry.forget_audit,
        expiry.forget_alarms,
        expiry.forget_descriptions,
    ):
        is_more = True
        while is_more:
            with runtime.catalog.write() as tx:
                is_more = forget(tx, settings_at(tx.conn, tx.now), FORGOTTEN) == FORGOTTEN


def _remove_orphans(runtime: Runtime, garbage: Sequence[str]) -> int:
    """Delete files that no commit refers to and whose writer's session has ended; return their number.

    The folder is listed before the catalog is read, so the catalog knows a file that is committed in between.
    If a folder of a bulk write has no more files, it is deleted, too.

    Args:
        garbage: files that were just deleted.
    """
    found = list(runtime.files.names("data"))
    with runtime.catalog.read() as conn:
        known = garbage_collection.list_known_files(conn)
        writers = sessions.all_sessions(conn)
    orphans = [file for file in found if file not in known and sessions.writer_of(file) not in writers]
    runtime.files.remove_all(orphans)
    left = {_bulk_folder(file) for file in known}
    gone = {_bulk_folder(file) for file in (*garbage, *orphans)} - left
    _remove_folders(runtime, {folder for folder in gone if folder is not None})
    return len(orphans)


def _remove_staged(runtime: Runtime) -> int:
    """Delete old files of rows that were staged but never committed; return the number of files."""
    now = runtime.clock.now()
    old = [file for file in runtime.files.names(staged_files.FOLDER) if staged_files.is_old(file, now)]
    _remove_folders(runtime, {file.rpartition("/")[0] for file in old})
    return len(old)


def _remove_folders(runtime: Runtime, folders: Collection[str]) -> None:
    in_parallel(runtime.files.remove_tree, sorted(folders), threads=FOLDERS_AT_ONCE)


def _bulk_folder(file: str) -> str | None:
    """Return the folder ``data/<table>/<session>-<number>`` of a Spark job's file; None for other files."""
    parts = file.split("/")
    return "/".join(parts[:3]) if len(parts) > 3 else None


def maintain(runtime: Runtime, path: str | None = None) -> Report:
    """Run housekeeping once over the tables at and below ``path``. None: over all tables.

    It may run at the same time as any other work, including other calls of ``maintain``.
    """
    report = Report()
    failed = maintain_tables(runtime, list_tables(runtime, path or "/"), report)
    with phase("collecting garbage"):
        collect_garbage(runtime, report)
    if failed is not None:
        raise failed
    return report


def maintain_tables(runtime: Runtime, tables_: Sequence[str], report: Report) -> StrandlineError | None:
    """Merge and compact tables, and update their asynchronous indexes; add the work to ``report``.

    Return the first error, if any. It does not keep the other tables from being maintained.
    """
    failed: StrandlineError | None = None
    with runtime.upkeep.paused():
        for table in _watch(tables_):
            try:
                with StatementAttempts(runtime).once(runtime.moments.mark()):
                    _maintain_table(runtime, table, report)
            except (Stale, UnderOperation, PathNotFound):
                continue  # Another process works on it, or has dropped it.
            except StrandlineError as error:
                log.warning("maintenance of %s failed: %s", table, error.message)
                failed = failed or error
    return failed


def _watch(tables_: Sequence[str]) -> Iterator[str]:
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


def list_tables(runtime: Runtime, path: str = "/") -> list[str]:
    """Return the tables at and below a path that can be maintained now."""
    with runtime.catalog.read() as conn:
        root = paths.require(conn, path)
        return [table.path for table in paths.user_tables(conn, root) if table.state == paths.READY]


@contextlib.contextmanager
def _maintaining(runtime: Runtime, table_id: int) -> Iterator[bool]:
    """Try to lock the maintenance of a table against other threads and processes; yield True if locked.

    If this process is suspended and loses the lock, its work becomes Stale when another process changes the
    table.
    """
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
