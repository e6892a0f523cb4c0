"""Reading and writing rows: every access goes through a ``Store``.

Only the store chooses between Arrow in this process, for few rows and bytes, and Spark, for many. Only the
store knows these limits and loads PySpark. ``storage/arrow`` and ``storage/spark`` do the same work in
modules of the same names, with the same result.

PySpark takes long to load and most processes never need it, so Spark modules are imported where they are
used.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import Future, wait
from contextlib import contextmanager
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from strandline.cancellation import check, phase
from strandline.errors import StrandlineError
from strandline.model import Chain, Key, Segment, State, TableSchema, visible
from strandline.settings import Settings
from strandline.storage import arrow, compaction_policy, memory
from strandline.storage.budget import Budget
from strandline.storage.chain_slices import Slice, Window
from strandline.storage.checks import Checks
from strandline.storage.compaction_result import Compacted
from strandline.storage.feed import Feed
from strandline.storage.file_plan import FilePlan, plan_files
from strandline.storage.file_router import Destination, FileRouter
from strandline.storage.files import Files
from strandline.storage.memory import Estimate
from strandline.storage.outgoing.parts import ExportedPart, PartFolder
from strandline.storage.partition import RowPartition
from strandline.storage.queries import Queries
from strandline.storage.rows import Mode, Outcome, Row, Target, Written
from strandline.storage.segment import Inline
from strandline.storage.segment_cache import SegmentCache
from strandline.storage.segment_files import Copies
from strandline.storage.staged_files import Staged
from strandline.storage.throttle import Throttle
from strandline.types import Type

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

    from strandline.storage.external import Incoming

__all__ = ["Store"]

SHARED = 4 << 30
"""Maximum number of bytes that one job copies. A job of this size takes seconds, and so does its retry."""


class Store:
    """The rows of a warehouse. Owned by the runtime; thread-safe.

    The store owns the segment cache. Files that a call writes are durable when it returns, and are deleted
    when it raises.
    """

    def __init__(self, files: Files, settings: Settings, spark: SparkSession | None = None) -> None:
        self.files = files if isinstance(files, FileRouter) else FileRouter(files, settings)
        self.settings = settings
        self.cache = SegmentCache(self.files, settings.target_file_bytes)
        self._inline = Inline(settings.inline_rows, settings.inline_bytes)
        self._spark = spark
        self.checks = Checks(self)
        self.queries = Queries(self)
        self._lock = threading.Lock()
        self._start: Future[SparkSession] | None = None

    @property
    def spark(self) -> SparkSession:
        """The Spark session for a job, after a check that its executors share the warehouse's folder."""
        return self._probe(self.session)

    def _probe(self, session: SparkSession) -> SparkSession:
        from strandline.storage import spark

        spark.probe.probe_executors(session, self.files)
        return session

    @property
    def session(self) -> SparkSession:
        """The Spark session: the caller's own, or a new one."""
        return self._spark if self._spark is not None else self._start_spark()

    @property
    def present_session(self) -> SparkSession | None:
        """The caller's session, or the one that was started; None if no session was started yet."""
        return self._spark

    def _start_spark(self) -> SparkSession:
        """Start Spark on its own thread and wait for it.

        Interrupting the caller does not stop the start-up; the next caller reuses it.
        """
        with self._lock:
            if self._start is None or (self._start.done() and self._start.exception() is not None):
                self._start = Future()
                threading.Thread(
                    target=self._begin, args=(self._start,), name="strandline-spark", daemon=True
                ).start()
            start = self._start
        with phase("starting Spark"):
            while not start.done():
                wait([start], timeout=0.05)
                check()
        self._spark = start.result()
        return self._spark

    def _begin(self, start: Future[SparkSession]) -> None:
        try:
            from strandline.storage import spark

            options = {**self.cache.files.spark_options(), **self.settings.spark}
            start.set_result(spark.session.get_session(None, options))
        except BaseException as error:
            start.set_exception(error)

    # --- choice of engine ----------------------------------------------------------------------------------

    @property
    def budget(self) -> Budget:
        """The budget of a statement."""
        return Budget.for_statements(self.settings)

    def fits_memory(self, segments: Sequence[Segment], budget: Budget | None = None) -> bool:
        """Return True if the rows of these segments may all be in this process's memory at once.

        Args:
            budget: limits of rows and bytes. None: the budget of a statement.
        """
        return memory.fits_memory(self.cache, segments, budget or self.budget)

    def passes(self, segments: Iterable[Segment], among: int | None = None) -> bool:
        """Return True if the files of these segments may be read once in this process, piece by piece.

        Args:
            among: total number of bytes that the caller reads in all its calls. If this process can stream
                all these bytes, the result is True. None: only the size of these files counts,
                against the limit of a statement.
        """
        if among is not None and self.budget.streamed.fits(bytes=among):
            return True
        return self.budget.fits(bytes=memory.stored_bytes(segments))

    def streams(self, state: State, among: int | None = None, *, ordered: bool = False) -> bool:
        """Return True if the rows of a state may be streamed through this process.

        Segments that cannot be streamed are kept in memory: their rows in the state's range of keys must fit.

        Args:
            among: as in ``passes``.
            ordered: stream the rows in key order. Then segments that overlap are kept in memory, too.
        """
        segments = visible(state.chain)
        limit, size = (
            (self.budget, memory.stored_bytes(segments)) if among is None else (self.budget.streamed, among)
        )
        if not limit.fits(bytes=size) or not self.budget.streamed.fits(rows=sum(s.rows for s in segments)):
            return False
        held = tuple(arrow.stream.held_in_memory(state, ordered=ordered))
        changes = replace(state, chain=replace(state.chain, segments=held))
        return memory.estimate(self.cache, changes, self.budget.folded).fits

    def writes_here(self, state: State, rows: int, size: int = 0) -> bool:
        """Return True if this process, and not Spark, looks up keys in a state and writes their rows.

        Assumes that the old rows of the keys have the average size of the state's rows.

        Args:
            rows: number of rows to write.
            size: size of these rows in bytes.
        """
        segments = arrow.directory.with_few_segments(self.cache, state).chain.segments
        average = sum(s.bytes for s in segments) / max(1, sum(s.rows for s in segments))
        return self.budget.fits(rows=rows, bytes=max(size, int(rows * average)))

    def slices_here(self, segments: Sequence[Segment]) -> bool:
        """Return True if ``slice`` folds a window with these segments in this process."""
        return self.fits_memory(segments, self.budget.folded)

    # --- reading -------------------------------------------------------------------------------------------

    def lookup(
        self, state: State, keys: Collection[Key], columns: Sequence[str] | None = None
    ) -> dict[Key, Row]:
        """Look up keys in a state; return a row of canonical values for each key that exists.

        Args:
            columns: the columns of the rows. None: all columns, in the schema's order.
        """
        return arrow.lookup.lookup(self.cache, state, keys, columns)

    def rows_behind(self, state: State, keys: Collection[Key]) -> dict[Key, Row] | None:
        """Look up the rows of a table that belong to index entries; return them by primary key.

        Returns None if there are too many keys for this process: then use ``Queries.through_index``.

        Args:
            state: the state of the table.
            keys: the primary keys in the index entries.
        """
        return self.lookup(state, keys) if self.writes_here(state, len(keys)) else None

    def scan(self, state: State, columns: Sequence[str] | None = None) -> pa.Table | None:
        """Return ``columns`` of all rows; None if there are too many for this process: then use ``frame``."""
        few = arrow.directory.with_few_segments(self.cache, state)
        if not self.estimate(few).fits:
            return None
        return arrow.scan.scan(self.cache, few, columns)

    def estimate(self, state: State) -> Estimate:
        """Estimate how many rows ``scan`` would read at most, and whether it would run in this process."""
        return memory.estimate(self.cache, state, Budget.for_queries(self.settings))

    def touched_keys(self, schema: TableSchema, logs: Sequence[Segment], after: int) -> set[Key]:
        """Return the keys that ``logs`` change at steps later than ``after``."""
        return arrow.lookup.touched_keys(self.cache, schema, logs, after)

    def rows_before(
        self, old: State, logs: Sequence[Segment]
    ) -> tuple[pa.Table | DataFrame, pa.Table | DataFrame]:
        """Return the old rows of the keys that later logs change, and the keys that had no old row.

        Args:
            old: the state before the changes.
            logs: the segments with the changes.
        """
        if self.fits_memory(logs):
            return arrow.changes.rows_before(self.cache, old, logs)
        from strandline.storage import spark

        return spark.changes.rows_before(self.spark, self.cache, old, logs)

    def overlaps(self, schema: TableSchema, segments: Sequence[Segment], keys: Collection[Key]) -> bool:
        """Return True if a segment has a row with one of the keys."""
        return arrow.lookup.overlaps(self.cache, schema, segments, keys)

    def begins_like(
        self, schema: TableSchema, segments: Sequence[Segment], keys: Collection[Key], width: int
    ) -> bool:
        """Return True if a key in the segments shares its first ``width`` values with one of ``keys``.

        NULL equals no value, not even NULL.
        """
        return arrow.lookup.begins_like(self.cache, schema, segments, keys, width)

    # --- frames for queries --------------------------------------------------------------------------------

    def partitions(
        self, state: State, columns: Sequence[str], behind: State | None = None
    ) -> Sequence[RowPartition]:
        """Return ``columns`` of a state in partitions that other processes can read independently.

        Args:
            state: the state of a table, or of an index implementation table.
            columns: the names of the columns.
            behind: the state of the table, if ``state`` is an index that does not have all the columns.
        """
        self.files.reach(s.file for part in (state, behind) if part for s in part.chain.segments)
        return arrow.partitions.partition_state(
            self.cache, state, columns, most=self.settings.shard_bytes, behind=behind
        )

    def file_plan(self, path: str, state: State) -> FilePlan:
        """Return the files of a state, with the information that a reader needs to fold them."""
        return plan_files(self.cache, self.files, path, state)

    def stream(self, state: State, columns: Sequence[str], behind: State | None = None) -> Iterator[pa.Table]:
        """Yield the rows in small tables. Needs little memory and no Spark for any number of rows."""
        for partition in self.partitions(state, columns, behind):
            yield from partition.tables()

    def passes_through(self, state: State) -> bool:
        """Return True if this process may stream all rows of a state to find the few rows of a query."""
        budget, segments = Budget.for_queries(self.settings).streamed, state.chain.segments
        if state.within.is_limited:
            return memory.estimate(self.cache, state, budget).fits
        return budget.fits(rows=sum(s.rows for s in segments), bytes=sum(s.bytes for s in segments))

    def spread(self, incoming: Incoming) -> bool:
        """Let executors read external files if these are too large for this process.

        Returns True if executors read the files.
        """
        if self.budget.streamed.fits(bytes=incoming.size):
            return False
        from strandline.storage import spark

        return spark.external.spread(self.spark, incoming, self.settings.shard_bytes)

    def external_frame(
        self, incoming: Incoming, types: Mapping[str, Type], not_null: frozenset[str]
    ) -> DataFrame:
        """Return the rows of external files that executors read, with columns of these types."""
        from strandline.storage import spark

        return spark.external.rows_of(self.spark, incoming, types, not_null)

    def exports_here(self, state: State) -> bool:
        """Return True if this process exports all rows of a state, without Spark."""
        segments = state.chain.segments
        return self.budget.streamed.fits(
            rows=sum(s.rows for s in segments), bytes=sum(s.bytes for s in segments)
        )

    def export_partitions(self, partitions: Sequence[RowPartition], folder: PartFolder) -> list[ExportedPart]:
        """Let executors write the rows of partitions to files, in their order."""
        from strandline.storage import spark

        return spark.export.export_partitions(self.spark, self.files, partitions, folder)

    # --- streams -------------------------------------------------------------------------------------------

    def feed(self, window: Feed) -> DataFrame:
        """Return the records of a stream as a DataFrame."""
        from strandline.storage import spark

        if self.fits_memory(window.logs):
            return self.spark.createDataFrame(arrow.feed.feed(self.cache, window))
        return spark.feed.feed(self.spark, self.cache, window)

    def feed_partitions(self, window: Feed) -> Sequence[RowPartition]:
        """Return the records of a stream in partitions that other processes can read independently.

        All records of a key are in one partition.
        """
        return arrow.partitions.partition_feed(self.cache, window, most=self.settings.shard_bytes)

    def feed_columns(self, window: Feed) -> pa.Schema:
        """Return the columns of a stream's records."""
        return arrow.feed.feed(self.cache, replace(window, logs=(), before=None)).schema

    def records(self, window: Feed) -> Iterator[dict[str, Any]]:
        """Yield the records of a stream ordered by step and key, as canonical values. Needs no Spark."""
        return arrow.records.records(self.cache, window)

    # --- writing -------------------------------------------------------------------------------------------

    def write(self, target: Target, mode: Mode, rows: pa.Table | DataFrame) -> Outcome:
        """Apply rows to a table and its indexes according to ``mode``.

        Args:
            rows: an Arrow table in the table's types, or a DataFrame. Columns are matched by name.
        """
        size = None
        if isinstance(rows, pa.Table):
            if self.writes_here(target.state, rows.num_rows, rows.nbytes):
                return arrow.write.write(self.cache, target, mode, rows, self._inline)
            size = rows.nbytes
            rows = self.spark.createDataFrame(rows)
        from strandline.storage import spark

        self._probe(rows.sparkSession)
        if not visible(target.state.chain):
            return spark.load.load(self.cache, target, mode, rows, size)
        with spark.given.measured(self.cache, target, mode, rows) as given:
            if not given.rows:
                return Outcome()
            if not self.budget.fits(rows=given.rows, bytes=given.bytes):
                return spark.write.write(given)
            few = given.to_arrow()  # The old rows of few keys are found here without a scan of the table.
        return replace(arrow.write.write(self.cache, target, mode, few, self._inline), given=few)

    def write_staged(
        self, target: Target, mode: Mode, schema: TableSchema, staged: Sequence[Staged]
    ) -> Outcome:
        """Write rows that tasks have staged. Streams the rows through this process, without Spark.

        Args:
            schema: the columns of the staged rows.
        """
        given = arrow.write_staged.Given(schema, staged)
        return arrow.write_staged.write_staged(self.cache, target, mode, given, self._inline)

    def read_given(self, schema: TableSchema, columns: Sequence[str], made: Outcome) -> pa.Table | DataFrame:
        """Return the rows that a write received, one row per key: in memory or as a DataFrame.

        Reads the rows back from the files of the write, unless they are in memory. The result stays valid
        after these files are deleted.

        Args:
            schema: the schema of the table.
            columns: the columns that the write received.
            made: the outcome of the write.
        """
        if made.given is not None:
            return made.given
        from strandline.storage import spark

        return spark.query.read_written(self.spark, self.cache, schema, made.table.segments, columns)

    def collapse(
        self, schema: TableSchema, segments: Sequence[Segment], name: Callable[[], str]
    ) -> tuple[Segment, ...]:
        """Merge the pending segments of several statements into one change per key."""
        if self.fits_memory(segments):
            return arrow.write.collapse(self.cache, schema, segments, name, self._inline)
        from strandline.storage import spark

        return spark.write.collapse(self.spark, self.cache, schema, segments, name())

    def entries(self, state: State, impl: TableSchema, name: str) -> Written:
        """Write all entries of an index for a state of its table; return base segments and their digest."""
        if self.fits_memory(state.chain.segments):
            return arrow.entries.entries(self.cache, state, impl, name)
        from strandline.storage import spark

        return spark.entries.entries(self.spark, self.cache, state, impl, name)

    def follow(
        self,
        before: State,
        after: State,
        logs: Sequence[Segment],
        impl: TableSchema,
        *,
        name: Callable[[], str],
        at_any_size: bool = False,
    ) -> Written | None:
        """Return the changes that bring an index from one state of its table to a later one.

        Returns None if writing all entries again with ``entries`` is cheaper.

        Args:
            before: the state of the table that the index has.
            after: the later state of the table.
            logs: the table's changes between the two states.
            impl: the schema of the index implementation table.
            name: returns a fresh file name.
            at_any_size: never return None.
        """
        if self.fits_memory(logs):
            return arrow.index_changes.follow(
                self.cache, before, after, logs, impl, name=name, inline=self._inline
            )
        if not at_any_size:
            return None
        from strandline.storage import spark

        prefix = name().removesuffix(".parquet")
        return spark.index_changes.follow(self.spark, self.cache, before, after, logs, impl=impl, name=prefix)

    def slice(
        self, schema: TableSchema, window: Window, name: str, throttle: Throttle | None = None
    ) -> Slice:
        """Fold a window of a table, and write the result as segments under a fresh name.

        Args:
            throttle: throttle for reading encrypted files. None: the window has no encrypted files.
        """
        segments = window.logs if window.chain is None else window.chain.segments
        if self.slices_here(segments):
            return arrow.changes.write_slice(self.cache, schema, window, name, self._inline)
        from strandline.storage import spark

        with self.decrypt_for_spark(segments, name, throttle) as found:
            if window.chain is None:
                window = replace(window, logs=found)
            else:
                window = replace(window, chain=replace(window.chain, segments=found))
            return spark.changes.write_slice(self.spark, self.cache, schema, window, name)

    @contextmanager
    def decrypt_for_spark(
        self, segments: Sequence[Segment], name: str, throttle: Throttle | None
    ) -> Iterator[tuple[Segment, ...]]:
        """Yield segments that Spark can read: encrypted ones are replaced by decrypted copies.

        The copies are in the warehouse under names that begin with ``name``; they are deleted at the end of
        the block.
        """
        sealed = [s for s in segments if s.file is not None and self.files.is_encrypted(s.file)]
        if not sealed or throttle is None:
            yield tuple(segments)
            return
        (made,) = self.copy([Copies(sealed, f"{name}-open")], throttle, among=sum(s.bytes for s in sealed))
        if isinstance(made, StrandlineError):
            raise made
        try:
            opened = dict(zip((s.file for s in sealed), made, strict=True))
            yield tuple(opened.get(s.file, s) if s.file is not None else s for s in segments)
        finally:
            self.discard(made)

    def bytes_per_copy(self, among: int) -> int:
        """Return the maximum number of bytes that one call of ``copy`` should copy. 0: one copy per call.

        Args:
            among: total number of bytes of all copies.
        """
        return 0 if self.budget.streamed.fits(bytes=among) else SHARED

    def copy(
        self, wanted: Sequence[Copies], throttle: Throttle, *, among: int
    ) -> list[list[Segment] | StrandlineError]:
        """Copy segment files within the warehouse and verify their bytes.

        Returns the new segments or the error for each element of ``wanted``. An element that failed leaves no
        files.

        Args:
            among: total number of bytes that the caller copies in all its calls: a large copy uses Spark even
                if each call is small.
        """
        if self.passes((s for w in wanted for s in w.segments), among):
            return arrow.segment_files.copy(self.cache, wanted, throttle)
        from strandline.storage import spark

        self.files.reach(s.file for each in wanted for s in each.segments)
        return spark.segment_files.copy(self.spark, self.cache, wanted, throttle)

    def send(
        self, segments: Sequence[Segment], target: Destination, throttle: Throttle, *, among: int
    ) -> list[Segment]:
        """Upload segment files to a repository and verify their bytes; return the uploaded segments.

        Args:
            among: total number of bytes that the caller uploads in all its calls.
        """
        if self.passes(segments, among):
            return arrow.segment_files.send(self.files, segments, target, throttle)
        from strandline.storage import spark

        return spark.segment_files.send(self.spark, self.files, segments, target, throttle)

    def pack(
        self, schema: TableSchema, segments: Sequence[Segment], target: Destination, throttle: Throttle
    ) -> Segment:
        """Merge consecutive inline segments into one object of a repository."""
        there = arrow.merge_logs.ObjectSink(self.files.at(target.root), target, throttle)
        return arrow.merge_logs.pack(self.cache, schema, segments, there)

    def pack_bytes(self, schema: TableSchema, segments: Sequence[Segment], checksum: str) -> bytes | None:
        """Return the object that ``pack`` would make of inline segments; None if its checksum differs."""
        return arrow.merge_logs.pack_bytes(self.cache, schema, segments, checksum)

    def discard(self, segments: Iterable[Segment]) -> None:
        """Delete the files of segments that nothing refers to."""
        self.cache.discard(segments)

    # --- upkeep --------------------------------------------------------------------------------------------

    def adds_upkeep(self, before: Chain, added: Sequence[Segment]) -> bool:
        """Return True if a commit has made a merge or a compaction of its table due.

        Args:
            before: the chain before the commit.
            added: the segments of the commit.
        """
        return compaction_policy.adds_upkeep(before, added, self.settings)

    def due_logs(self, chain: Chain, after: int = 0) -> list[Segment]:
        """Return the consecutive logs of a chain to merge next; an empty list if no merge is due.

        Args:
            after: merge only logs whose changes are all later than this step.
        """
        return compaction_policy.find_due_logs(chain.segments, self.settings, after)

    def merge(self, schema: TableSchema, logs: Sequence[Segment], name: str) -> Segment:
        """Merge consecutive logs into one log segment that has every change."""
        return arrow.merge_logs.merge_logs(self.cache, schema, logs, f"{name}.parquet")

    def wants_compaction(self, chain: Chain) -> bool:
        """Return True if compaction is due.

        It is due if readers must fold too many rows or open too many segments, or a file is too large.
        """
        return compaction_policy.wants_compaction(chain, self.settings)

    def pays_off(self, chain: Chain) -> bool:
        """Return True if readers fold too many rows, and a process that writes compacts the table itself."""
        return compaction_policy.pays_off(chain, self.settings)

    def keeps_base(self, base: Sequence[Segment], changes: Sequence[Segment]) -> bool:
        """Return True if the changes should become one log, instead of rewriting the base with them."""
        return compaction_policy.keeps_base(base, changes, self.settings)

    def compact(self, state: State, name: str, *, least: int = 1) -> Compacted:
        """Fold a chain into at least ``least`` base segments under a fresh name."""
        if self.fits_memory(state.chain.segments):
            return arrow.compact.compact(self.cache, state, name, least=least)
        from strandline.storage import spark

        return spark.compact.compact(self.spark, self.cache, state, name, least=least)

    def compact_in_process(self, state: State, name: str, *, least: int = 1) -> Compacted | None:
        """Compact a chain without Spark, as ``compact`` does; None if it is too large for this process."""
        segments = state.chain.segments
        if self.fits_memory(segments):
            return arrow.compact.compact(self.cache, state, name, least=least)
        if not self.streams(state, ordered=True):
            return None
        return arrow.streamed_compaction.compact(self.cache, state, name, most=self._file_bytes)

    def fold(self, state: State, name: str, *, among: int) -> Written:
        """Write all rows of a state under a fresh name; return the base segments and their digest.

        Args:
            state: the state of a table, or of a range of its keys.
            among: total number of bytes that the caller folds in all its calls.
        """
        if self.streams(state, among, ordered=True):
            return arrow.compact.fold(self.cache, state, name, most=self._file_bytes)
        from strandline.storage import spark

        return spark.compact.fold(self.spark, self.cache, state, name)

    @property
    def _file_bytes(self) -> int:
        """Target size of a file that is kept in memory until it is complete."""
        return min(self.settings.bulk_bytes, self.settings.target_file_bytes)

    def fold_into(
        self, target: Destination, state: State, name: str, throttle: Throttle, *, among: int
    ) -> Written:
        """Write all rows of a state like ``fold``, but as objects of a repository."""
        if self.streams(state, among, ordered=True):
            there = arrow.merge_logs.ObjectSink(self.files.at(target.root), target, throttle)
            return arrow.compact.fold(self.cache, state, name, most=self._file_bytes, into=there)
        with self.decrypt_for_spark(state.chain.segments, name, throttle) as found:
            opened = replace(state, chain=replace(state.chain, segments=found))
            made = self.fold(opened, name, among=among)
        try:
            return replace(made, segments=tuple(self.send(made.segments, target, throttle, among=among)))
        finally:
            self.discard(made.segments)
