"""A partition of a table's rows that any process can read independently."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Protocol

import pyarrow as pa

from strandline.storage.files import Files
from strandline.storage.task_reports import Sizes

__all__ = ["RowPartition"]


class RowPartition(Protocol):
    """A partition of a table's rows. Can be pickled; holds no connection."""

    @property
    def files(self) -> Files:
        """Where the rows are read from."""
        ...

    @property
    def sizes(self) -> Sizes:
        """The files that the rows are read from, with their sizes."""
        ...

    def tables(self) -> Iterator[pa.Table]:
        """Yield the rows in blocks, in no particular order."""
        ...
