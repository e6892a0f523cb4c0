"""EXPORT: stream the rows of a query to files in common formats."""

from __future__ import annotations

import json
import os
from collections.abc import Iterator
from typing import TYPE_CHECKING

import pyarrow as pa

from strandline.api.conversions import BATCH_ROWS
from strandline.api.result import Result
from strandline.api.select import select
from strandline.cancellation import Phase, check, phase
from strandline.errors import InvalidArgument, mask_urls
from strandline.names import did_you_mean
from strandline.sql import statements as st
from strandline.sql.options import StatementOptions
from strandline.storage.external.typed_files import KEY, TYPES
from strandline.storage.files import LocalFiles
from strandline.storage.location import is_url
from strandline.storage.outgoing import ExportTarget, export
from strandline.tables.partitions import describe_columns

if TYPE_CHECKING:
    from strandline.api.database import Database

FORMATS = ("parquet", "csv", "jsonl", "delta", "iceberg")


def run(db: Database, statement: st.Export) -> Result:
    target = target_of(db, statement)
    with phase(f"exporting to {mask_urls(statement.place)}", unit="rows") as exporting:
        done = export(target, lambda: _watch(_rows(db, statement), exporting))
    row = (mask_urls(done.place), done.format, done.files, done.rows)
    return Result(("place", "format", "files", "rows"), [row])


def target_of(db: Database, statement: st.Export) -> ExportTarget:
    """Return the target of the export; refuse invalid settings and places."""
    options = StatementOptions("EXPORT", statement.settings, ("FORMAT", "OVERWRITE"))
    given = options.get("FORMAT")
    kind = None if given is None else str(given).lower()
    if kind is not None and kind not in FORMATS:
        raise InvalidArgument(
            f"EXPORT has no format {given}",
            did_you_mean(kind, FORMATS) or f"It has {', '.join(FORMATS)}.",
        )
    _refuse_inside(db, statement.place)
    return ExportTarget(
        place=statement.place,
        kind=kind,  # type: ignore[arg-type]
        overwrite=options.boolean("OVERWRITE") or False,
        settings=db._runtime.settings,
    )


def _watch(rows: pa.RecordBatchReader, exporting: Phase) -> pa.RecordBatchReader:
    def batches() -> Iterator[pa.RecordBatch]:
        for batch in rows:
            check()
            yield batch
            exporting.advance(batch.num_rows)

    return pa.RecordBatchReader.from_batches(rows.schema, batches())


def _rows(db: Database, statement: st.Export) -> pa.RecordBatchReader:
    """Return the rows, with metadata from which a load creates the same table."""
    reader = select(db, st.Select(statement.query)).to_reader(BATCH_ROWS)
    if statement.table is None:
        return reader
    schema = describe_columns(db._runtime, statement.table)
    known = [column for column in schema.columns if column.name in reader.schema.names]
    told = {
        KEY: json.dumps(schema.key),
        TYPES: json.dumps({column.name: column.type.name for column in known}),
    }
    return pa.RecordBatchReader.from_batches(reader.schema.with_metadata(told), reader)


def _refuse_inside(db: Database, place: str) -> None:
    """Refuse a place inside the warehouse, which has only files that the catalog knows."""
    own = db._runtime.files.own
    inside = (
        os.path.realpath(os.path.expanduser(place)).startswith(f"{own.location}{os.sep}")
        if isinstance(own, LocalFiles) and not is_url(place)
        else place.startswith(f"{own.location}/")
    )
    if inside:
        raise InvalidArgument(f"{place} is inside the warehouse", "Choose a place outside it.")
