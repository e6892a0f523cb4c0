"""A Delta table, written without a JVM. Its log is written last, so that it is there as a whole or not at
all."""

from __future__ import annotations

import os
import shutil
from typing import Any

import pyarrow as pa

from strandline.errors import StrandlineError, Unavailable
from strandline.settings import Settings
from strandline.storage.external.lakes import delta_options, located, needs
from strandline.storage.location import is_url

__all__ = ["export_delta"]

_SIGNED = {
    pa.uint8(): pa.int16(),
    pa.uint16(): pa.int32(),
    pa.uint32(): pa.int64(),
    pa.uint64(): pa.decimal128(20, 0),
}
"""Delta has no unsigned numbers."""


def export_delta(
    place: str, reader: pa.RecordBatchReader, overwrite: bool, settings: Settings
) -> tuple[int, int]:
    """Write a new table, or a new version of one, and return how many files it has and how many rows."""
    try:
        from deltalake import DeltaTable, write_deltalake
    except ImportError:
        raise needs("deltalake", "delta") from None
    where, options = located(place), delta_options(settings)
    is_new = not is_url(place) and not os.path.exists(where)
    rows = 0

    def batches() -> Any:
        nonlocal rows
        for batch in reader:
            rows += batch.num_rows
            yield batch.cast(schema)

    schema = pa.schema([pa.field(f.name, _SIGNED.get(f.type, f.type)) for f in reader.schema])
    try:
        write_deltalake(
            where,
            pa.RecordBatchReader.from_batches(schema, batches()),
            mode="overwrite" if overwrite else "error",
            schema_mode="overwrite" if overwrite else None,
            storage_options=options,
        )
        return len(DeltaTable(where, storage_options=options).file_uris()), rows
    except BaseException as error:
        if is_new:
            shutil.rmtree(where, ignore_errors=True)
        if isinstance(error, StrandlineError) or not isinstance(error, Exception):
            raise
        said = (str(error).strip() or type(error).__name__).splitlines()[0]
        raise Unavailable(
            f"the Delta table {place} cannot be written: {said[:200]}", "Check the place and the rights."
        ) from None
