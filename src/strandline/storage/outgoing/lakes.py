"""Write Delta Lake and Apache Iceberg tables without a JVM.

Delta's log and Iceberg's metadata are written last, so that a table appears as a whole or not at all.
"""

from __future__ import annotations

from collections.abc import Iterator

import pyarrow as pa

from strandline.errors import StrandlineError, Unavailable
from strandline.settings import Settings
from strandline.storage.external.lakes import check_iceberg, delta_options, iceberg_properties, locate, needs
from strandline.storage.location import is_url

__all__ = ["to_delta", "to_iceberg"]

_SIGNED = {
    pa.uint8(): pa.int16(),
    pa.uint16(): pa.int32(),
    pa.uint32(): pa.int64(),
    pa.uint64(): pa.decimal128(20, 0),
}
"""Types for unsigned integers, which Delta and Iceberg do not have."""
_WIDE = {**_SIGNED, pa.uint8(): pa.int32(), pa.int8(): pa.int32(), pa.int16(): pa.int32()}
"""Iceberg's integers have 32 or 64 bits."""


class _Rows:
    """Converts rows to a lake's types and counts them. ``failed``: the error that ended the input early."""

    def __init__(self, reader: pa.RecordBatchReader, types: dict[pa.DataType, pa.DataType]) -> None:
        self.schema = pa.schema([pa.field(f.name, types.get(f.type, f.type)) for f in reader.schema])
        self.count = 0
        self.failed: BaseException | None = None
        self._reader = reader

    def _batches(self) -> Iterator[pa.RecordBatch]:
        try:
            for batch in self._reader:
                self.count += batch.num_rows
                yield batch.cast(self.schema)
        except BaseException as error:
            self.failed = error
            raise

    def reader(self) -> pa.RecordBatchReader:
        return pa.RecordBatchReader.from_batches(self.schema, self._batches())

    def unwritten(self, what: str, place: str, error: BaseException) -> BaseException:
        """Return the error to raise when a library failed, perhaps only because the input failed."""
        if isinstance(self.failed, StrandlineError) or not isinstance(error, Exception):
            return self.failed or error
        said = (str(error).strip() or type(error).__name__).splitlines()[0]
        return Unavailable(
            f"the {what} table {place} cannot be written: {said[:200]}", "Check the place and the rights."
        )


def to_delta(
    place: str, reader: pa.RecordBatchReader, settings: Settings, *, overwrite: bool
) -> tuple[int, int]:
    """Write a new table or a new version of one; return the numbers of its files and rows."""
    try:
        from deltalake import DeltaTable, write_deltalake
    except ImportError:
        raise needs("deltalake", "delta") from None
    where, options, rows = locate(place), delta_options(settings), _Rows(reader, _SIGNED)
    try:
        write_deltalake(
            where,
            rows.reader(),
            mode="overwrite" if overwrite else "error",
            schema_mode="overwrite" if overwrite else None,
            storage_options=options,
        )
        return len(DeltaTable(where, storage_options=options).file_uris()), rows.count
    except BaseException as error:
        raise rows.unwritten("Delta", place, error) from None


def to_iceberg(place: str, reader: pa.RecordBatchReader, settings: Settings) -> tuple[int, int]:
    """Write a new table that is not in any catalog; return the numbers of its files and rows."""
    try:
        from pyiceberg.catalog.sql import SqlCatalog
    except ImportError:
        raise needs("pyiceberg", "iceberg") from None
    check_iceberg(place)
    where, rows = locate(place), _Rows(reader, _WIDE)
    url = where if is_url(where) else f"file://{where}"
    try:
        catalog = SqlCatalog(
            "export", uri="sqlite:///:memory:", warehouse=url, **iceberg_properties(settings)
        )
        try:
            catalog.create_namespace("export")
            with catalog.create_table_transaction("export.t", rows.schema, location=url) as transaction:
                transaction.append(rows.reader())
            return len(list(catalog.load_table("export.t").scan().plan_files())), rows.count
        finally:
            catalog.close()
    except BaseException as error:
        raise rows.unwritten("Iceberg", place, error) from None
