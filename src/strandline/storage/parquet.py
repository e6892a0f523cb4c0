"""A Parquet file in memory, to which rows are added in their order."""

from __future__ import annotations

from collections.abc import Sequence

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from strandline.model import STEP

__all__ = ["ParquetFile"]

GROUP_BYTES = 2 << 20
"""Wide rows make smaller groups."""
SOME_ROWS = 8192
"""So many rows tell what suits a column."""


class ParquetFile:
    """``first``: some of its rows, under physical names, which tell what suits them. ``values``: the names of
    the columns that are no keys. ``most``: how many rows a group has, unless they are wide."""

    def __init__(self, first: pa.Table, values: Sequence[str], most: int) -> None:
        fitting = GROUP_BYTES * first.num_rows // max(first.nbytes, 1)
        self.group_rows: int = min(max(fitting, 256), most)
        self._sink = pa.BufferOutputStream()
        self._writer = pq.ParquetWriter(
            self._sink,
            first.schema,
            compression="zstd",
            # Not for keys: they are distinct or sorted, and the dictionary would only be decoded in vain.
            use_dictionary=[name for name in (*values, STEP) if _repeats(first, name)] or False,
            write_page_checksum=True,
        )

    @property
    def size(self) -> int:
        """About how many bytes it has so far."""
        return int(self._sink.tell())

    def write(self, rows: pa.Table) -> None:
        """Add rows. The last group of them may be smaller than others."""
        self._writer.write_table(rows, row_group_size=self.group_rows)

    def closed(self, rows: pa.Table) -> bytes:
        """Return the bytes of the file, of which these are the last rows."""
        self.write(rows)
        self._writer.close()
        return bytes(self._sink.getvalue())


def _repeats(rows: pa.Table, name: str) -> bool:
    """Return whether a dictionary pays for a column. Of few rows nobody asks."""
    if name not in rows.column_names or rows.num_rows < SOME_ROWS:
        return name in rows.column_names
    some = rows.column(name).slice(0, SOME_ROWS)
    return bool(pc.count_distinct(some, mode="all").as_py() <= SOME_ROWS // 2)
