"""Whether rows and files are what was written: digests, damage, order, keys that are there twice, indexes.

A part of the store, by whose rules little is looked at here and much on Spark.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

from strandline.model import Digest, Segment, State, TableSchema, visible
from strandline.storage import arrow
from strandline.storage.order import Finding, meeting
from strandline.storage.pace import Pace
from strandline.storage.unique import Repeats

if TYPE_CHECKING:
    from strandline.storage.store import Store

LOOKED_AT = 20_000
"""So many files are looked at here, and more on executors: each costs a question to its storage."""


class Checks:
    """Those of one store. May be used from any thread. No file is changed."""

    def __init__(self, store: Store) -> None:
        self._store = store

    def digest(self, state: State) -> Digest:
        """Return row count and digest of a state, computed from its rows."""
        return self.digests(state, [state.schema])[0]

    def digests(
        self,
        state: State,
        schemas: Sequence[TableSchema],
        *,
        among: int | None = None,
        name: str = "",
        pace: Pace | None = None,
    ) -> list[Digest]:
        """Return row count and digest of a state in the columns of each schema: its own, or those of an
        index. ``among``: how many bytes the caller will have read altogether (None: no others), so that many
        do not pass through this process piece by piece. ``name`` and ``pace``: a fresh name for what is
        sealed, if anything may be, and the pace of reading it."""
        if self._store.is_read_here(state, among):
            return arrow.digest.digests(self._store.shelf, state, schemas)
        from strandline.storage import spark

        with self._store.unsealed(state.chain.segments, name, pace) as found:
            opened = replace(state, chain=replace(state.chain, segments=found))
            return spark.digest.digests(self._store.spark, self._store.shelf, opened, schemas)

    def damaged(self, segments: Sequence[Segment]) -> list[Finding]:
        """Return which segments are missing or do not match their checksums, in their order. Unavailable if
        storage does not answer, which is no damage."""
        return [finding for finding in self.damages(segments) if finding is not None]

    def damages(
        self, segments: Sequence[Segment], schemas: Sequence[TableSchema] | None = None
    ) -> list[Finding | None]:
        """Return the same for each segment; None: nothing is wrong with it. ``schemas``: those of their
        tables; the bounds of files in a repository are then compared with what it says of them."""
        if self._store.passes(segments):
            return arrow.stored.damages(self._store.shelf, segments, schemas)
        from strandline.storage import spark

        self._store.files.reach(s.file for s in segments)
        return spark.stored.damages(self._store.spark, self._store.shelf, segments, schemas)

    def losses(self, segments: Sequence[Segment]) -> list[Finding | None]:
        """Return for each segment whether its file is missing, or not as long as it should be; no file is
        read."""
        if len(segments) <= LOOKED_AT:
            return arrow.stored.losses(self._store.files, segments)
        from strandline.storage import spark

        self._store.files.reach(s.file for s in segments)
        return spark.stored.losses(self._store.spark, self._store.files, segments)

    def examine(self, schema: TableSchema, segments: Sequence[Segment]) -> list[Finding]:
        """Return what is wrong inside segments, in their order."""
        stored = [s for s in segments if s.file is not None]
        # A piece at a time is in memory, so that the bytes of files count, which executors would read.
        if not stored or (
            sum(s.rows for s in stored) <= self._store.settings.bulk_rows and self._store.passes(stored)
        ):
            return arrow.check.examine(self._store.shelf, schema, segments)
        from strandline.storage import spark

        return spark.check.examine(self._store.spark, self._store.shelf, schema, segments)

    def doubled_keys(self, state: State, *, ordered: bool = False) -> list[Finding]:
        """Return a finding if a key is in a state more than once. ``ordered``: nothing is wrong inside the
        segments, so that their ends tell which of them can have a key in common."""
        if ordered:
            state = replace(state, chain=replace(state.chain, segments=meeting(visible(state.chain))))
        if self._store.is_little(state.chain.segments):
            return arrow.check.doubled_keys(self._store.shelf, state)
        from strandline.storage import spark

        return spark.check.doubled_keys(self._store.spark, self._store.shelf, state)

    def repeated(self, state: State, width: int, brought: Sequence[Segment] | None = None) -> Repeats | None:
        """Return which keys of an index, the first ``width`` columns of the key of its state, several of its
        entries have; None if there is no such key. One with a NULL in it equals no other. ``brought``: look
        only for keys that these segments, the last of the state, have added."""
        if width == len(state.schema.key):
            return None  # The primary key is part of it.
        if brought is not None and len(brought) == len(state.chain.segments):
            brought = None
        few = (
            self._store.is_little(state.chain.segments)
            if brought is None
            else self._store.are_few(sum(s.rows for s in brought), state)
        )
        if few:
            return arrow.unique.repeated(self._store.shelf, state, width, brought)
        from strandline.storage import spark

        return spark.unique.repeated(self._store.spark, self._store.shelf, state, width, brought)

    def compare_index(self, table: State, entries: State, index: str) -> list[Finding]:
        """Return what is wrong with an index at a step, given its table and its entries at it."""
        if all(self._store.is_little(state.chain.segments) for state in (table, entries)):
            return arrow.check.compare_index(self._store.shelf, table, entries, index)
        from strandline.storage import spark

        return spark.check.compare_index(self._store.spark, self._store.shelf, table, entries, index)
