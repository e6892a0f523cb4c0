"""The files of a warehouse, and what this process has read of their segments and keeps for a while."""

from __future__ import annotations

import os
from collections.abc import Hashable, Iterable
from contextlib import suppress
from dataclasses import dataclass, field
from operator import attrgetter

import pyarrow as pa

from strandline.errors import StrandlineError
from strandline.lru import Cache
from strandline.model import Key, Segment
from strandline.storage.files import Files
from strandline.storage.footer import Footer

__all__ = ["Shelf", "Whole"]


@dataclass(frozen=True)
class Whole:
    """A small segment in memory, all of it, under physical names. ``cost``: about how many bytes it takes."""

    table: pa.Table
    cost: int
    indexes: dict[tuple[str, ...], dict[Key, int]] = field(default_factory=dict)


class Shelf:
    """What is kept ends with it. May be used from any thread. What a segment holds never changes, so nothing
    in here can be out of date."""

    def __init__(self, files: Files) -> None:
        self.files = files
        self.footers: Cache[str, Footer] = Cache(256 << 20, attrgetter("cost"))
        self.whole: Cache[str, Whole] = Cache(256 << 20, attrgetter("cost"))
        self.folds: Cache[Hashable, tuple[pa.Table, pa.Table]] = Cache(
            128 << 20, lambda folded: sum(table.nbytes for table in folded)
        )
        """What logs fold to: a table is read more often than it changes."""
        self._process = os.getpid()

    def discard(self, segments: Iterable[Segment]) -> None:
        """Remove the files of segments that nothing refers to, and nothing will. What cannot be removed now
        is an orphan, which the collector finds."""
        if os.getpid() != self._process:
            return  # This is a fork, and the files are those of the process that it was forked from.
        for segment in segments:
            if segment.file is not None:
                with suppress(StrandlineError):
                    self.files.remove(segment.file)
