"""A part of a table's rows that any process can read by itself."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Protocol

import pyarrow as pa

from strandline.storage.files import Files

__all__ = ["Portion"]


class Portion(Protocol):
    """Can be pickled, and holds no connection."""

    @property
    def files(self) -> Files:
        """What the rows are read from."""
        ...

    def tables(self) -> Iterator[pa.Table]:
        """Yield the rows, some at a time, in no particular order."""
        ...
