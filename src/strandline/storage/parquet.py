"""Write Parquet files in memory, with encodings chosen from the first rows."""

from __future__ import annotations

from collections.abc import Sequence

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from strandline.model import STEP

__all__ = ["ParquetFile"]

GROUP_BYTES = 2 << 20
"""Target size of a row group: wide rows make groups with fewer rows."""
SOME_ROWS = 8192
"""Number of rows that are sampled to choose a column's encoding."""


class ParquetFile:
    """A Parquet file in memory that rows are appended to.

    Args:
        first: sample of the rows, under physical names.
        values: names of the columns that are not part of the key.
        most: maximum number of rows per group.
    """

    def __init__(self, first: pa.Table, values: Sequence[str], most: int) -> None:
        fitting = GROUP_BYTES * first.num_rows // max(first.nbytes, 1)
        self.group_rows: int = min(max(fitting, 256), most)
        self._sink = pa.BufferOutputStream()
        self._writer = pq.ParquetWriter(
            self._sink,
            first.schema,
            compression="zstd",
            # Not for keys: they are distinct or sorted, so a dictionary saves nothing and costs decoding.
            use_dictionary=[name for name in (*values, STEP) if _repeats(first, name)] or False,
            write_page_checksum=True,
        )

    @property
    def size(self) -> int:
        """Approximate size so far, in bytes."""
        return int(self._sink.tell())

    def write(self, rows: pa.Table) -> None:
        """Append rows. The last row group may be smaller than the others."""
        self._writer.write_table(rows, row_group_size=self.group_rows)

    def closed(self, rows: pa.Table) -> bytes:
        """Append the last rows and return the bytes of the file."""
        self.write(rows)
        self._writer.close()
        return bytes(self._sink.getvalue())


def _repeats(rows: pa.Table, name: str) -> bool:
    """Return True if a dictionary pays for a column. For few rows it is always used."""
    if name not in rows.column_names or rows.num_rows < SOME_ROWS:
        return name in rows.column_names
    some = rows.column(name).slice(0, SOME_ROWS)
    return bool(pc.count_distinct(some, mode="all").as_py() <= SOME_ROWS // 2)
