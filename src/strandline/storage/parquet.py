"""Write Parquet files piece by piece, with encodings chosen from the first rows.

Every column of a segment file has a field id, so that other programs can follow a renamed column.
"""

from __future__ import annotations

from collections.abc import Mapping

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from strandline.model import OP, STEP, WAS_HI, WAS_LO, TableSchema

__all__ = ["META_IDS", "ParquetFile", "field_ids"]

META_IDS: Mapping[str, int] = {
    OP: 2_000_000_001,
    WAS_HI: 2_000_000_002,
    WAS_LO: 2_000_000_003,
    STEP: 2_000_000_004,
}
"""Field ids of the meta columns: above any column id, and below the ids that Iceberg reserves."""

GROUP_BYTES = 2 << 20
"""Target size of a row group. Groups of long rows have fewer rows."""
CHUNK_BYTES = 16 << 10
"""Target size of a column in a row group of many columns.

A smaller column takes longer to open than to decode.
"""
MANY_BYTES = 16 << 20
"""Maximum size of a row group with many columns. Such groups may be larger than GROUP_BYTES."""
SOME_ROWS = 8192
"""Number of rows that are sampled to choose a column's encoding."""


class _ParquetSink:
    """A sink in memory whose content can be taken out piece by piece."""

    closed = False

    def __init__(self) -> None:
        self.size = 0
        self.waiting: list[bytes] = []

    def write(self, data: bytes) -> int:
        self.waiting.append(bytes(data))
        self.size += len(data)
        return len(data)

    def tell(self) -> int:
        return self.size

    def flush(self) -> None: ...

    def close(self) -> None: ...


class ParquetFile:
    """A Parquet file that rows are appended to. Its content is in memory until ``take`` returns it.

    Args:
        first: sample of the rows, under physical names.
        schema: the schema of the table.
        most: maximum number of rows per group.
        group_bytes: approximate maximum size of a row group.
    """

    def __init__(
        self, first: pa.Table, schema: TableSchema, most: int, group_bytes: int = MANY_BYTES
    ) -> None:
        size = min(group_bytes, max(GROUP_BYTES, min(CHUNK_BYTES * first.num_columns, MANY_BYTES)))
        fitting = size * first.num_rows // max(first.nbytes, 1)
        self.group_rows: int = min(max(fitting, 256), most)
        self._sink = _ParquetSink()
        self._writer = pq.ParquetWriter(
            pa.PythonFile(self._sink, "w"),
            _add_field_ids(schema, first.schema),
            compression="zstd",
            # Not for keys: they are distinct or sorted, so a dictionary saves nothing and costs decoding.
            use_dictionary=[name for name in _value_names(schema, first) if _repeats(first, name)] or False,
            write_page_checksum=True,
        )

    @property
    def size(self) -> int:
        """Approximate size so far, in bytes."""
        return self._sink.size

    def write(self, rows: pa.Table) -> None:
        """Append rows. The last row group may be smaller than the others."""
        self._writer.write_table(rows, row_group_size=self.group_rows)

    def take(self) -> bytes:
        """Return the bytes that were written since the last call."""
        found, self._sink.waiting = b"".join(self._sink.waiting), []
        return found

    def finish(self, rows: pa.Table) -> bytes:
        """Append the last rows and return the bytes of the file that ``take`` has not returned yet."""
        if rows.num_rows:
            self.write(rows)
        self._writer.close()
        return self.take()


def field_ids(schema: TableSchema) -> dict[str, int]:
    """Return the field id of each column that a segment of a table may have, by physical name."""
    return {**META_IDS, **{c.physical: c.id for c in schema.columns}}


def _add_field_ids(schema: TableSchema, stored: pa.Schema) -> pa.Schema:
    ids = field_ids(schema)
    return pa.schema([f.with_metadata({"PARQUET:field_id": str(ids[f.name])}) for f in stored])


def _value_names(schema: TableSchema, rows: pa.Table) -> list[str]:
    """Return the physical names of the value columns, and STEP, without those that ``rows`` does not have."""
    there = set(rows.column_names)
    return [name for name in (*(c.physical for c in schema.value_columns), STEP) if name in there]


def _repeats(rows: pa.Table, name: str) -> bool:
    """Return True if a dictionary should encode a column: it repeats values, or has few rows."""
    if rows.num_rows < SOME_ROWS:
        return True
    some = rows.column(name).slice(0, SOME_ROWS)
    return bool(pc.count_distinct(some, mode="all").as_py() <= SOME_ROWS // 2)
