"""The one door to rows: whatever reads or writes them goes through a ``Store``.

It alone chooses between Arrow in this process, for few rows, and Spark, for many; it alone knows from how
many rows on, and loads PySpark. Behind it ``storage/arrow`` and ``storage/spark`` do the same work in modules
of the same names, with the same result.

PySpark takes long to load and most processes never need it: so Spark's side is imported where it is chosen.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from strandline.model import Chain, Digest, Key, Segment, TableSchema
from strandline.settings import Settings
from strandline.storage import arrow, damage, upkeep
from strandline.storage.chain import State, visible
from strandline.storage.compacted import Compacted
from strandline.storage.external import External
from strandline.storage.feed import Feed
from strandline.storage.files import Files
from strandline.storage.order import Finding, meeting
from strandline.storage.rows import Mode, Outcome, Row, Target, Written
from strandline.storage.segment import Inline
from strandline.storage.shelf import Shelf
from strandline.storage.slices import Slice, Window
from strandline.types import Type

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

__all__ = ["Store"]

FEW_BYTES = 64 << 20
"""Rows with more text than this are not brought into the process, however few they are."""


class Store:
    """The rows of a warehouse. Owned by the runtime; may be used from any thread. What it remembers of
    segments ends with it. Files that a call writes are durable when it returns, and gone when it raises."""

    def __init__(self, files: Files, settings: Settings, spark: SparkSession | None = None) -> None:
        self.shelf = Shelf(files)
        self._settings = settings
        self._inline = Inline(settings.inline_rows, settings.inline_bytes)
        self._spark = spark
        self._starting = threading.Lock()  # Spark takes seconds to start.

    @property
    def spark(self) -> SparkSession:
        """The Spark session: the caller's own, or one that is started."""
        with self._starting:
            if self._spark is None:
                from strandline.storage import spark

                options = {**self.shelf.files.spark_options(), **self._settings.spark}
                self._spark = spark.session.get_session(None, options)
            return self._spark

    def _is_bulk(self, rows: int) -> bool:
        return rows > self._settings.bulk_rows

    # --- reading -------------------------------------------------------------------------------------------

    def lookup(
        self, state: State, keys: Collection[Key], columns: Sequence[str] | None = None
    ) -> dict[Key, Row]:
        """Return the rows of those keys that are in the state, as canonical values of ``columns`` (None: all,
        in the order of the schema)."""
        return arrow.lookup.lookup(self.shelf, state, keys, columns)

    def rows_behind(self, state: State, keys: Collection[Key]) -> dict[Key, Row] | None:
        """Return the rows that entries of an index lead to; None if they are so many that ``through_index``
        is the better way."""
        return None if self._is_bulk(len(keys)) else self.lookup(state, keys)

    def scan(
        self,
        state: State,
        columns: Sequence[str] | None = None,
        lower: Key | None = None,
        upper: Key | None = None,
    ) -> pa.Table | None:
        """Return ``columns`` of the rows whose key begins with something from ``lower`` to ``upper``
        (prefixes of keys, both included); None if too many would have to be read here: ``frame`` has them."""
        if arrow.parts.rows_between(self.shelf, state, lower, upper) > self._settings.scan_rows:
            return None
        return arrow.scan.scan(self.shelf, state, columns, lower, upper)

    def touched(self, schema: TableSchema, logs: Sequence[Segment], after: int) -> set[Key]:
        """Return the keys that logs change at steps greater than ``after``."""
        return arrow.lookup.touched(self.shelf, schema, logs, after)

    def overlaps(self, schema: TableSchema, segments: Sequence[Segment], keys: Collection[Key]) -> bool:
        """Return whether a row of one of the keys is in one of the segments."""
        return arrow.lookup.overlaps(self.shelf, schema, segments, keys)

    # --- frames for queries --------------------------------------------------------------------------------

    def frame(self, state: State) -> DataFrame:
        """Return all rows of a table."""
        from strandline.storage import spark

        return spark.scan.scan(self.spark, self.shelf, state)

    def increment(self, state: State) -> DataFrame:
        """Return the changes of an incremental backup with the column that marks tombstones."""
        from strandline.storage import spark

        return spark.query.increment(self.spark, self.shelf, state)

    def through_index(self, table: State, entries: State, *, whole: bool) -> DataFrame:
        """Return the entries of an index as rows of its table; ``whole``: with the columns that the index
        does not have."""
        from strandline.storage import spark

        return spark.query.through_index(self.spark, self.shelf, table, entries, whole=whole)

    def sql(self, text: str, frames: Mapping[str, DataFrame]) -> DataFrame:
        """Return a query over frames, which its text names as ``{name}``."""
        from strandline.storage import spark

        return spark.query.sql(self.spark, text, frames)

    def values(self, frame: DataFrame) -> pa.Table:
        """Return the few rows of a frame."""
        from strandline.storage import spark

        return spark.query.to_arrow(frame)

    def external_columns(self, source: External) -> dict[str, str]:
        """Return the names of the columns that files of others have, each with the name of a type that can
        hold it."""
        from strandline.storage import spark

        return spark.external.columns_of(self.spark, source)

    def external_rows(self, source: External, types: Mapping[str, Type]) -> DataFrame:
        """Return the rows of files of others, for a table with columns of these types."""
        from strandline.storage import spark

        return spark.external.rows_of(self.spark, source, types)

    # --- streams -------------------------------------------------------------------------------------------

    def feed(self, window: Feed) -> DataFrame:
        """Return the records of a stream."""
        from strandline.storage import spark

        if self._is_bulk(window.rows_at_most):
            return spark.feed.feed(self.spark, self.shelf, window)
        return self.spark.createDataFrame(arrow.feed.feed(self.shelf, window))

    def records(self, window: Feed) -> Iterator[dict[str, Any]]:
        """Yield the records of a stream in the order of step, then key, as canonical values. Needs no Spark,
        however many there are."""
        return arrow.records.records(self.shelf, window)

    # --- writing -------------------------------------------------------------------------------------------

    def write(self, target: Target, mode: Mode, rows: pa.Table | DataFrame) -> Outcome:
        """Do to a table and its indexes what ``mode`` says with rows that have columns of the table, by name:
        an Arrow table in their types, or a DataFrame of the caller's."""
        if isinstance(rows, pa.Table):
            if not self._is_bulk(rows.num_rows):
                return arrow.write.write(self.shelf, target, mode, rows, self._inline)
            rows = self.spark.createDataFrame(rows)
        from strandline.storage import spark

        few = spark.write.Few(self._settings.bulk_rows, FEW_BYTES)
        made = spark.write.write(self.shelf, target, mode, rows, few)
        if isinstance(made, Outcome):
            return made
        return replace(arrow.write.write(self.shelf, target, mode, made, self._inline), given=made)

    def given(self, schema: TableSchema, columns: Sequence[str], made: Outcome) -> pa.Table | DataFrame:
        """Return the rows that a write was given as a DataFrame, one for each key; they are there when its
        files are gone."""
        if made.given is not None:
            return made.given
        from strandline.storage import spark

        return spark.query.written(self.spark, self.shelf, schema, made.table.segments, columns)

    def collapse(
        self, schema: TableSchema, segments: Sequence[Segment], name: Callable[[], str]
    ) -> tuple[Segment, ...]:
        """Return the pending segments of several statements as those of one, with one change per key."""
        if self._is_bulk(sum(s.rows for s in segments)):
            from strandline.storage import spark

            return spark.write.collapse(self.spark, self.shelf, schema, segments, name())
        return arrow.write.collapse(self.shelf, schema, segments, name, self._inline)

    def entries(self, state: State, impl: TableSchema, name: str) -> Written:
        """Return base segments with all entries of an index for the state of its table, and their digest."""
        if self._is_bulk(state.chain.rows_at_most):
            from strandline.storage import spark

            return spark.entries.entries(self.spark, self.shelf, state, impl, name)
        return arrow.entries.entries(self.shelf, state, impl, name)

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
        """Return what an index has to do to get from one state of its table to a later one, between which are
        the ``logs``; None if to derive all ``entries`` anew costs less, unless it must be ``at_any_size``."""
        if not at_any_size and self._is_bulk(sum(s.rows for s in logs)):
            return None
        return arrow.follow.follow(self.shelf, before, after, logs, impl, name=name, inline=self._inline)

    def slice(self, schema: TableSchema, window: Window, name: str) -> Slice:
        """Return a window of a table, folded, as segments under a fresh name."""
        if self._is_bulk(window.rows_at_most):
            from strandline.storage import spark

            return spark.slices.write_slice(self.spark, self.shelf, schema, window, name)
        return arrow.slices.write_slice(self.shelf, schema, window, name, self._inline)

    def copy(self, segment: Segment, name: str) -> Segment:
        """Return a segment with its file under another name; its bytes are checked on the way."""
        if segment.file is None:
            return replace(segment, id=0)
        self.shelf.files.copy(self.shelf.files, segment.file, name, segment.checksum)
        return replace(segment, id=0, file=name)

    def discard(self, segments: Iterable[Segment]) -> None:
        """Remove the files of segments that nothing refers to, and nothing will."""
        self.shelf.discard(segments)

    # --- upkeep --------------------------------------------------------------------------------------------

    def small_logs(self, chain: Chain, after: int = 0, *, coming: int = 0) -> list[Segment]:
        """Return the trailing small logs of steps later than ``after``, if these are enough to be merged,
        with so many still ``coming``."""
        found = upkeep.trailing_logs(chain.segments, self._settings.inline_rows, after)
        return found if len(found) + coming >= self._settings.merge_segments else []

    def medium_logs(self, chain: Chain, after: int = 0) -> list[Segment]:
        """Return the trailing merged logs of steps later than ``after``, if these are enough to be merged
        again."""
        found = upkeep.trailing_logs(chain.segments, upkeep.MEDIUM_ROWS, after)
        return found if len(found) >= upkeep.MEDIUM_SEGMENTS else []

    def merge(self, schema: TableSchema, logs: Sequence[Segment], name: str) -> Segment:
        """Return one log segment with every change of some consecutive ones."""
        return arrow.merge.merge_logs(self.shelf, schema, logs, f"{name}.parquet")

    def wants_compaction(self, chain: Chain) -> bool:
        """Return whether too many rows have to be folded, or too many segments looked at."""
        return upkeep.wants_compaction(chain, self._settings)

    def compact(self, state: State, name: str) -> Compacted:
        """Return a chain folded into base segments under a fresh name."""
        if self._is_bulk(state.chain.rows_at_most):
            from strandline.storage import spark

            target = self._settings.target_file_bytes
            return spark.compact.compact(self.spark, self.shelf, state, name, target)
        return arrow.compact.compact(self.shelf, state, name)

    # --- checking ------------------------------------------------------------------------------------------

    def digest(self, state: State, schema: TableSchema | None = None) -> Digest:
        """Return row count and digest of a state, computed from its rows: of all columns, or of those that
        ``schema``, an index's, has."""
        of = schema or state.schema
        if self._is_bulk(state.chain.rows_at_most):
            from strandline.storage import spark

            return spark.digest.digest(self.spark, self.shelf, state, of)
        return arrow.digest.digest(self.shelf, state, of)

    def damaged(self, segments: Iterable[Segment]) -> Iterator[Finding]:
        """Yield which segments are missing or do not match their checksums."""
        return damage.damaged(self.shelf.files, segments)

    def examine(self, schema: TableSchema, segments: Sequence[Segment]) -> list[Finding]:
        """Return what is wrong inside segments, in their order."""
        if self._is_bulk(sum(s.rows for s in segments)) and any(s.file is not None for s in segments):
            from strandline.storage import spark

            return spark.check.examine(self.spark, self.shelf, schema, segments)
        return arrow.check.examine(self.shelf, schema, segments)

    def doubled_keys(self, state: State, *, ordered: bool = False) -> list[Finding]:
        """Return a finding if a key is in a state more than once. ``ordered``: nothing is wrong inside the
        segments, so that their ends tell which of them can have a key in common."""
        if ordered:
            state = replace(state, chain=replace(state.chain, segments=meeting(visible(state.chain))))
        if self._is_bulk(state.chain.rows_at_most):
            from strandline.storage import spark

            return spark.check.doubled_keys(self.spark, self.shelf, state)
        return arrow.check.doubled_keys(self.shelf, state)

    def compare_index(self, table: State, entries: State, index: str) -> list[Finding]:
        """Return what is wrong with an index at a step, given its table and its entries at it."""
        if self._is_bulk(max(table.chain.rows_at_most, entries.chain.rows_at_most)):
            from strandline.storage import spark

            return spark.check.compare_index(self.spark, self.shelf, table, entries, index)
        return arrow.check.compare_index(self.shelf, table, entries, index)
