"""Verification of rows and files: digests, damage, order, duplicate keys, indexes.

``Checks`` is a part of the store. Like the store, it runs small checks in this process and large ones on
Spark.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

from strandline.model import Digest, Segment, State, TableSchema, visible
from strandline.storage import arrow
from strandline.storage.order import Finding, select_overlapping
from strandline.storage.throttle import Throttle
from strandline.storage.unique_violations import Repeats

if TYPE_CHECKING:
    from strandline.storage.store import Store

LOOKED_AT = 20_000
"""Maximum number of files whose size is checked in process. Each file costs one request to the storage."""


class Checks:
    """The checks of one store. Thread-safe. No check changes a file."""

    def __init__(self, store: Store) -> None:
        self._store = store

    def digest(self, state: State) -> Digest:
        """Compute the row count and digest of a state from its rows."""
        return self.digests(state, [state.schema])[0]

    def digests(
        self,
        state: State,
        schemas: Sequence[TableSchema],
        *,
        among: int | None = None,
        name: str = "",
        throttle: Throttle | None = None,
    ) -> list[Digest]:
        """Compute the row count and digest of a state for each of several schemas.

        Args:
            schemas: the state's own schema, and schemas of its indexes.
            among: total number of bytes that the caller reads in all its calls: a large check uses Spark even
                if each call is small. None: the size of this state.
            name: fresh name for decrypted copies of encrypted files. Needed if the state may have encrypted
                files.
            throttle: throttle for reading encrypted files. Needed if the state may have encrypted files.
        """
        if self._store.streams(state, among):
            return arrow.digest.digests(self._store.cache, state, schemas)
        from strandline.storage import spark

        with self._store.decrypt_for_spark(state.chain.segments, name, throttle) as found:
            opened = replace(state, chain=replace(state.chain, segments=found))
            return spark.digest.digests(self._store.spark, self._store.cache, opened, schemas)

    def find_damaged(self, segments: Sequence[Segment], *, among: int | None = None) -> list[Finding]:
        """Return a finding for each segment whose file is missing or does not match its checksum.

        The findings are in the order of the segments. Raises Unavailable if the storage does not answer: this
        does not count as damage.

        Args:
            among: as in ``digests``.
        """
        return [finding for finding in self.damages(segments, among=among) if finding is not None]

    def damages(
        self,
        segments: Sequence[Segment],
        schemas: Sequence[TableSchema] | None = None,
        *,
        among: int | None = None,
    ) -> list[Finding | None]:
        """Return for each segment a finding if its bytes are damaged, or None if they are intact.

        Args:
            schemas: the schema of each segment's table. With it, files in a repository are also compared
                with the bounds in the segment's record: row count, first and last key. None: the bounds are
                not compared.
            among: as in ``digests``.
        """
        if self._store.passes(segments, among):
            return arrow.segment_files.damages(self._store.cache, segments, schemas)
        from strandline.storage import spark

        self._store.files.reach(s.file for s in segments)
        return spark.segment_files.damages(self._store.spark, self._store.cache, segments, schemas)

    def losses(self, segments: Sequence[Segment]) -> list[Finding | None]:
        """Return for each segment a finding if its file is missing or has the wrong size, or None.

        Reads no file.
        """
        if len(segments) <= LOOKED_AT:
            return arrow.segment_files.losses(self._store.files, segments)
        from strandline.storage import spark

        self._store.files.reach(s.file for s in segments)
        return spark.segment_files.losses(self._store.spark, self._store.files, segments)

    def examine(
        self, schema: TableSchema, segments: Sequence[Segment], *, among: int | None = None
    ) -> list[Finding]:
        """Return findings about the rows of segments, in the order of the segments.

        Args:
            among: as in ``digests``.
        """
        stored = [s for s in segments if s.file is not None]
        # Rows are streamed, so the size of the files is limited, not the memory that the rows take.
        few = self._store.budget.streamed.fits(rows=sum(s.rows for s in stored))
        if not stored or (few and self._store.passes(stored, among)):
            return arrow.check.examine(self._store.cache, schema, segments)
        from strandline.storage import spark

        return spark.check.examine(self._store.spark, self._store.cache, schema, segments)

    def find_doubled_keys(self, state: State, *, ordered: bool = False) -> list[Finding]:
        """Return a finding if a key occurs in a state more than once.

        Args:
            ordered: the caller has checked the order inside the segments, so that only segments that overlap
                have to be compared.
        """
        if ordered:
            state = replace(
                state, chain=replace(state.chain, segments=select_overlapping(visible(state.chain)))
            )
        if self._store.fits_memory(state.chain.segments):
            return arrow.check.find_doubled_keys(self._store.cache, state)
        from strandline.storage import spark

        return spark.check.find_doubled_keys(self._store.spark, self._store.cache, state)

    def find_repeated_keys(
        self, state: State, width: int, brought: Sequence[Segment] | None = None
    ) -> Repeats | None:
        """Return the index keys that several entries share; None if there are none.

        A key with NULL equals no other key.

        Args:
            state: the entries of the index.
            width: number of columns of an index key: the first columns of the state's key.
            brought: the last segments of the state: only the keys in these segments are checked. None: all
                keys are checked.
        """
        if width == len(state.schema.key):
            return None  # The index key contains the primary key, so it is unique.
        if brought is not None and len(brought) == len(state.chain.segments):
            brought = None
        few = (
            self._store.fits_memory(state.chain.segments)
            if brought is None
            else self._store.writes_here(state, sum(s.rows for s in brought))
        )
        if few:
            return arrow.unique.find_repeated_keys(self._store.cache, state, width, brought)
        from strandline.storage import spark

        return spark.unique.find_repeated_keys(self._store.spark, self._store.cache, state, width, brought)

    def compare_index(self, table: State, entries: State, index: str) -> list[Finding]:
        """Compare the entries of an index with its table, both at the same step; return the findings."""
        if all(self._store.fits_memory(state.chain.segments) for state in (table, entries)):
            return arrow.check.compare_index(self._store.cache, table, entries, index)
        from strandline.storage import spark

        return spark.check.compare_index(self._store.spark, self._store.cache, table, entries, index)
