"""Segment cache: the files of a warehouse, with caches of their footers and of rows."""

from __future__ import annotations

import os
from collections.abc import Hashable, Iterable, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from operator import attrgetter
from typing import Any

import pyarrow as pa

from strandline.errors import StrandlineError
from strandline.lru import Cache
from strandline.model import BEGINNING, Key, Segment, cover
from strandline.settings import Settings
from strandline.storage.files import Files
from strandline.storage.footer import Footer

__all__ = ["SegmentCache", "Whole", "identify"]


@dataclass(frozen=True)
class Whole:
    """A small segment in memory.

    Attributes:
        table: the rows, under physical names.
        cost: approximate size in memory, in bytes.
        indexes: maps the physical names of some key columns to a dictionary with the row number of each key
            of these columns.
        orders: maps the physical names of some key columns to the sort keys of the rows.
    """

    table: pa.Table
    cost: int
    indexes: dict[tuple[str, ...], dict[Key, int]] = field(default_factory=dict)
    orders: dict[tuple[str, ...], list[tuple[Any, ...]]] = field(default_factory=dict)


class SegmentCache:
    """Files with a cache of their segments. Thread-safe.

    The cache never becomes stale, because segments are immutable.
    """

    def __init__(self, files: Files, target_bytes: int = Settings().target_file_bytes) -> None:
        self.files = files
        self.target_bytes = target_bytes
        self.footers: Cache[str, Footer] = Cache(256 << 20, attrgetter("cost"))
        self.whole: Cache[str, Whole] = Cache(256 << 20, attrgetter("cost"))
        self.groups: Cache[tuple[str, int, str], pa.ChunkedArray] = Cache(64 << 20, attrgetter("nbytes"))
        """Columns of row groups, by file, number of the row group, and physical name of the column."""
        self.folds: Cache[Hashable, tuple[pa.Table, pa.Table]] = Cache(
            128 << 20, lambda folded: sum(table.nbytes for table in folded)
        )
        """Folded logs. They are cached because a table is read more often than it changes."""
        self.replaced: Cache[Hashable, Any] = Cache(64 << 20, attrgetter("cost"))
        """``ReplacedRows`` of the latest scan of some files."""
        self.frames: Cache[Hashable, tuple[Any, int]] = Cache(16 << 20, lambda found: found[1])
        """Spark DataFrames of all rows of a state, with the approximate size of the rows in their plans."""
        self.verified: Cache[str, str] = Cache(1 << 20, len)
        """Checksums of the whole content of files that are too large to be verified with their footer."""
        self.directories: Cache[Hashable, Any] = Cache(64 << 20, attrgetter("cost"))
        """A ``Directory`` of each long chain."""
        self._process = os.getpid()

    def discard(self, segments: Iterable[Segment]) -> None:
        """Delete the files of segments that nothing refers to.

        A file that cannot be deleted now becomes an orphan, which the collector deletes later.
        """
        if os.getpid() != self._process:
            return  # This is a forked process: the files belong to its parent.
        with suppress(StrandlineError):
            self.files.remove_all([s.file for s in segments if s.file is not None])


def identify(segments: Sequence[Segment], step: int) -> Hashable:
    """Return a key that is the same for segments with the same rows at the step.

    Segments are immutable. If all their rows are visible at the step, they are at any later step.
    """
    whole = all(cover(s, BEGINNING, step) == "all" for s in segments)
    return tuple((s.file or s.checksum, s.upto) for s in segments), 0 if whole else step
