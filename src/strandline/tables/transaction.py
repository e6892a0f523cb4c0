"""Transactions: changes to tables and their synchronous indexes, committed at one step or not at all.

Statements see the snapshot of the transaction plus the changes of its earlier statements. At its commit, the
transaction is checked against the commits of others since the snapshot. It becomes stale if one of these
commits

- changed a key that the transaction read or wrote, or
- added a key to a unique index to which the transaction adds the same key.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from itertools import takewhile
from typing import TYPE_CHECKING

import pyarrow as pa

from strandline import names
from strandline.cancellation import phase, shield
from strandline.catalog import chains, commits, definitions, paths, tables, write_dedup
from strandline.catalog.commits import Basis, CommitNote, TableChange
from strandline.catalog.conflicts import RowsChanged
from strandline.catalog.definitions import TableDefinition
from strandline.catalog.snapshots import Named
from strandline.catalog.tables import IndexRef, TableInfo
from strandline.catalog.transactions import Writer
from strandline.catalog.write_dedup import AlreadyApplied
from strandline.errors import InvalidArgument, StrandlineError, Unavailable
from strandline.model import PENDING, Digest, Segment, TableSchema
from strandline.runtime import Runtime
from strandline.storage.keys import keys_of
from strandline.storage.rows import Mode, Outcome, RowCounts, Target, Written
from strandline.storage.staged_files import Staged
from strandline.tables import housekeeping
from strandline.tables.snapshot import Keys, Reader, Snapshot, TableView
from strandline.tables.unique import UniqueIndex

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

_MOST = 64
"""Number of small pending segments of a table that are merged into one."""


@dataclass(kw_only=True)
class _Pending:
    """What the transaction has read and changed in one table."""

    info: TableInfo
    read_step: int
    follows: bool = False
    """Whether the table stores a synchronous index: conflicts are then checked for the table of the index."""
    unique: UniqueIndex | None = None
    """The unique index that this table stores; conflicts of its keys are checked here."""
    segments: list[Segment] = field(default_factory=list)
    delta: Digest = field(default_factory=Digest)
    note: CommitNote | None = None
    """Description of the changes for the table's history. None: an index, or no changes yet."""
    keys: list[Keys] = field(default_factory=list)
    whole: bool = False
    """Whether the whole table was read, so that any commit of others to it is a conflict."""

    @property
    def is_new(self) -> bool:
        """Whether the commit creates the table. Others cannot have changed a new table."""
        return self.info.id < 0

    @property
    def depends_on(self) -> int | None:
        """Step of the rows on which the changes depend.

        None: the table is new, or it stores a synchronous index that is not unique.
        """
        return None if self.is_new or (self.follows and self.unique is None) else self.read_step

    @property
    def is_proved(self) -> bool:
        """Whether the commit checks this table for changes by others."""
        return not self.is_new and (self.depends_on is not None or self.whole or bool(self.keys))


def check_writable(path: str, view: TableView) -> None:
    """Raise an error for a table that users cannot change: a backup, a replaced table, an index's table."""
    if names.is_backup(path) or view.increment:
        raise InvalidArgument(
            f"{path} is a backup and cannot be changed", "Restore it, and change the restored table."
        )
    if names.is_replaced(path):
        raise InvalidArgument(
            f"{path} was replaced by a restore and is read-only",
            "Change the table that replaced it. Its statements can read from this one.",
        )
    if path.endswith(f"/{paths.IMPL_TABLE}"):
        raise InvalidArgument(
            f"{path} belongs to an index and follows its table", "Change the rows of the table."
        )


class Transaction(Reader):
    """A transaction of one thread.

    Its changes are neither durable nor visible to others before ``commit``. ``abort`` removes its files.
    """

    is_fixed = False

    def __init__(self, runtime: Runtime, named: Iterable[Named] = ()) -> None:
        super().__init__(runtime, Snapshot(runtime, named=named))
        self._pending: dict[int, _Pending] = {}
        self._new: list[tuple[TableInfo, TableDefinition]] = []
        self._statement = 0
        self._application: tuple[str, int, int] | None = None
        self.changed = RowCounts()
        self.statement: str | None = None
        """Name of the running statement for the table's history. None: use the mode of each write."""

    def lend(self) -> None:
        """Do nothing: only statements of the transaction read its data frames."""

    def view(self, path: str) -> TableView:
        """Return a table with the changes of this transaction."""
        return self._with_changes(self.snapshot.table(path))

    def index(self, table: TableView, ref: IndexRef) -> TableView:
        return self._with_changes(self.snapshot.index(table, ref))

    def _with_changes(self, view: TableView) -> TableView:
        pending = self._pending.get(view.info.id)
        return view.plus(tuple(pending.segments)) if pending else view

    def writable(self, path: str) -> TableView:
        view = self.view(path)
        check_writable(path, view)
        return view

    def create(self, table: TableDefinition) -> TableView:
        """Plan a new, empty table and return it. The commit creates it, with the rows written by then."""
        with self.runtime.catalog.read() as conn:
            definitions.check_free(conn, table.path)
        view = self.snapshot.plan(table)
        self._new.append((view.info, table))
        return view

    def read_keys(self, view: TableView, keys: Keys) -> None:
        self._of(view.info).keys.append(keys)

    def read_whole(self, view: TableView) -> None:
        self._of(view.info).whole = True

    def write(self, view: TableView, mode: Mode, rows: pa.Table | DataFrame) -> Outcome:
        """Write rows to a table with ``mode``, and update its indexes.

        Args:
            rows: the rows. Their columns have names of the table's columns.
        """
        return self._write(view, mode, lambda target: self.runtime.store.write(target, mode, rows))

    def write_staged(
        self, view: TableView, mode: Mode, schema: TableSchema, staged: Sequence[Staged]
    ) -> Outcome:
        """Write rows that Spark tasks have staged, with the columns of ``schema``."""

        def make(target: Target) -> Outcome:
            # The commit checks all written keys, so they need not be recorded as read. UPDATE also
            # depends on keys that it does not write: those without a row.
            told = target if mode == "UPDATE" else replace(target, reads=lambda keys: None)
            return self.runtime.store.write_staged(told, mode, schema, staged)

        return self._write(view, mode, make)

    def digest(self, view: TableView) -> Digest:
        """Return the digest of a table with the changes of this transaction."""
        with self.runtime.catalog.read() as conn:
            before = tables.digest_at(conn, view.info.id, self.snapshot.step)
        pending = self._pending.get(view.info.id)
        return before if pending is None else before + pending.delta

    def once(self, writer: str, view: TableView, version: int) -> None:
        """Make the commit idempotent: raise AlreadyApplied if the table already has this or a later write.

        Args:
            writer: name of the application that writes.
            version: number of this write of the writer to the table.
        """
        self._application = (writer, view.info.id, version)
        with self.runtime.catalog.read() as conn:
            before = write_dedup.last(conn, writer, view.info.id)
        if before is not None and before >= version:
            raise AlreadyApplied

    def _write(self, view: TableView, mode: Mode, make: Callable[[Target], Outcome]) -> Outcome:
        impls: dict[str, TableView] = {}

        def indexes() -> dict[str, TableSchema]:
            for ref in view.info.indexes:
                # A new table also gets entries of asynchronous indexes: later updates of such an index start
                # at the step of its creation.
                if ref.definition.is_sync or view.info.id < 0:
                    impls[ref.definition.name] = self.snapshot.index(view, ref)
            return {name: impl.info.schema for name, impl in impls.items()}

        target = Target(
            state=view.state,
            indexes=indexes,
            name=lambda index: self._file_name((impls[index] if index else view).info),
            reads=lambda keys: self.read_keys(view, keys),
        )
        with phase(f"writing {view.info.path}"):
            made = make(target)
        self._statement += 1
        # A provisional step, which is later than all committed steps and those of earlier statements.
        at = PENDING + self._statement
        self._add(view.info, made.table, at, follows=False)
        self._note(view.info, mode, made.table)
        for ref in view.info.indexes:
            if ref.name in made.indexes:
                impl = impls[ref.name]
                self._add(impl.info, made.indexes[ref.name], at, follows=True)
                if ref.unique:
                    self._of(impl.info).unique = UniqueIndex(view.info, ref.definition, impl.state)
        self.changed += RowCounts.of(made.table, deletes=mode.startswith("DELETE"))
        return made

    def _note(self, info: TableInfo, mode: Mode, written: Written) -> None:
        if written.segments:
            pending = self._of(info)
            changed = sum(segment.rows for segment in written.segments)
            name = self.statement or mode.split()[0]
            note, deletes = pending.note or CommitNote(), mode.startswith("DELETE")
            pending.note = note.plus(name, changed, written.delta, deletes=deletes)

    def _add(self, info: TableInfo, written: Written, at: int, *, follows: bool) -> None:
        if not written.segments:
            return
        pending = self._of(info)
        pending.follows = follows
        pending.segments.extend(replace(s, upto=at) for s in written.segments)
        pending.delta += written.delta
        # Each later statement reads all pending segments, so merge small ones. Merge only segments without a
        # file: data frames may still read files.
        small = list(takewhile(lambda segment: segment.file is None, reversed(pending.segments)))[::-1]
        if len(small) >= _MOST:
            folded = self._merge_small(info, small)
            pending.segments[-len(small) :] = [replace(s, upto=at) for s in folded]

    @contextlib.contextmanager
    def savepoint(self) -> Iterator[None]:
        """Undo the changes of the block if it raises; keep earlier changes."""
        before = {id_: (list(p.segments), p.delta, p.note) for id_, p in self._pending.items()}
        changed = self.changed
        try:
            yield
        except BaseException:
            for table_id, pending in self._pending.items():
                kept, delta, note = before.get(table_id, ([], Digest(), None))
                files = {segment.file for segment in kept}
                self.runtime.store.discard(s for s in pending.segments if s.file not in files)
                pending.segments, pending.delta, pending.note = kept, delta, note
            self.changed = changed
            raise

    def commit(self) -> int | None:
        """Publish all changes at one step. Return the step, or None if nothing was changed.

        Raises Stale if the transaction must be retried.
        """
        self.is_over = True
        changed = [p for p in self._pending.values() if p.segments]
        if not changed and not self._new:
            return None
        for pending in changed:
            if len({s.upto for s in pending.segments}) > 1:
                self._collapse(pending)
            if pending.unique is not None:
                pending.unique.check(self.runtime.store, pending.segments)
        while True:
            parts = [
                TableChange(p.info.id, p.info.version, p.depends_on, tuple(p.segments), p.delta, note=p.note)
                for p in changed
            ]
            # Tables that were only read are checked, too: the written rows may depend on them.
            only_read = [
                p
                for p in self._pending.values()
                if not p.is_new and (p.follows or not p.segments) and (p.whole or p.keys)
            ]
            reads = [Basis(p.info.id, p.info.version, p.read_step) for p in only_read]
            try:
                step = self._publish(parts, reads)
            except RowsChanged:
                self._let_pass()
                continue
            self._pending.clear()  # The files now belong to the tables. abort() must not remove them.
            with shield():
                self._keep_up(changed)
            return step

    def _keep_up(self, changed: Iterable[_Pending]) -> None:
        """Start the upkeep of tables for which this commit has made it due."""
        if not self.runtime.upkeep.is_enabled:
            return
        for pending in changed:
            chain = self.snapshot.table(pending.info.path).chain
            if self.runtime.store.adds_upkeep(chain, pending.segments):
                housekeeping.after_commit(self.runtime, pending.info.path)

    def _publish(self, parts: list[TableChange], reads: list[Basis]) -> int:
        decided = False
        try:
            with self.runtime.catalog.write() as tx:
                self._create_tables(tx, parts)
                if self._application is not None:
                    write_dedup.note(tx, *self._application)
                step = commits.commit(tx, [part for part in parts if part.table_id > 0], reads)
                decided = True
        except StrandlineError as error:
            if not decided:
                raise
            self._pending.clear()  # The files may belong to the tables.
            raise Unavailable(
                f"the catalog did not say whether the commit took place: {error.message}",
                "Check whether the rows are there before you repeat the statement.",
            ) from error
        return step

    def _create_tables(self, tx: Writer, parts: Iterable[TableChange]) -> None:
        """Create the new tables with their rows."""
        rows = {part.table_id: part for part in parts}
        for info, table in self._new:
            planned: dict[str | None, int] = {
                None: info.id,
                **{ref.name: ref.impl_id for ref in info.indexes},
            }
            found = {name: rows[id_] for name, id_ in planned.items() if id_ in rows}
            made = definitions.create(tx, table, {name: part.delta for name, part in found.items()})
            ids: dict[str | None, int] = {None: made.id, **{ref.name: ref.impl_id for ref in made.indexes}}
            new = {ids[name]: part.segments for name, part in found.items()}
            chains.attach_all(tx, chains.insert_all(tx, new, tx.step), tx.step)
            commits.count_committed(tx, new)

    def abort(self) -> None:
        """Discard the changes and delete their files. The garbage collector deletes files that remain."""
        self.is_over = True
        for pending in self._pending.values():
            self.runtime.store.discard(pending.segments)
        self._pending.clear()

    def _of(self, info: TableInfo) -> _Pending:
        return self._pending.setdefault(info.id, _Pending(info=info, read_step=self.snapshot.step))

    def _collapse(self, pending: _Pending) -> None:
        """Merge the changes of several statements to a table, because a commit has one change per key."""
        replaced = pending.segments
        pending.segments = self._merge_small(pending.info, replaced)
        self.runtime.store.discard(replaced)

    def _merge_small(self, info: TableInfo, segments: Sequence[Segment]) -> list[Segment]:
        return list(self.runtime.store.collapse(info.schema, segments, lambda: self._file_name(info)))

    def _file_name(self, info: TableInfo) -> str:
        return self.runtime.session.file_name(max(info.id, 0))  # A new table has no id before its commit.

    def _let_pass(self) -> None:
        """Advance ``read_step`` of all tables to their last steps.

        Raises RowsChanged if a commit after ``read_step`` changed a key that was read or written. All tables
        advance at once: with many writers, advancing one table at a time might never end.
        """
        proved = [p for p in self._pending.values() if p.is_proved]
        with self.runtime.catalog.read() as conn:
            heads = chains.states(conn, [p.info.id for p in proved])
            moved = [
                (p, head.step, chains.log_kept(conn, p.info.id, p.read_step, head.step))
                for p in proved
                if (head := heads.get(p.info.id)) is not None and head.step > p.read_step
            ]
        for pending, step, logs in moved:
            if pending.whole or self._meets(pending, logs):
                raise RowsChanged(pending.info.id, "rows were committed since it was read")
            pending.read_step = step

    def _meets(self, pending: _Pending, logs: Sequence[Segment]) -> bool:
        """Return True if logs of other commits change keys of a table that this transaction read or wrote."""
        store, schema, mine = self.runtime.store, pending.info.schema, pending.segments
        touched = store.touched_keys(schema, logs, pending.read_step)
        read = (keys_of(schema, keys) if isinstance(keys, pa.Table) else keys for keys in pending.keys)
        return (
            any(not touched.isdisjoint(keys) for keys in read)
            or store.overlaps(schema, mine, touched)
            or (pending.unique is not None and pending.unique.meets(store, mine, touched))
        )
