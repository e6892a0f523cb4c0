"""A part of a table's rows that any process can read by itself."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Protocol

import pyarrow as pa

__all__ = ["Portion"]


class Portion(Protocol):
    """Can be pickled, and holds no connection."""

    def tables(self) -> Iterator[pa.Table]:
        """Yield the rows, some at a time, in no particular order."""
        ...
