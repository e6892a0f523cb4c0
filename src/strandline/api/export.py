"""EXPORT: stream the rows of a query to files in common formats."""

from __future__ import annotations

import json
import os
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from functools import cached_property
from typing import TYPE_CHECKING, Literal, TypeAlias, get_args

import pyarrow as pa

from strandline import names
from strandline.api.conversions import BATCH_ROWS
from strandline.api.result import Result, SparkResult, StreamedResult
from strandline.api.select import select
from strandline.cancellation import Phase, check, phase
from strandline.errors import InvalidArgument, mask_urls
from strandline.names import did_you_mean
from strandline.sql import statements as st
from strandline.sql.export import export_query, export_table
from strandline.sql.options import StatementOptions
from strandline.storage.external.typed_files import KEY, TYPES
from strandline.storage.files import LocalFiles
from strandline.storage.frames import export_frame
from strandline.storage.location import is_url
from strandline.storage.outgoing import Exported, ExportedPart, ExportTarget, PartFolder, SpreadRows, export
from strandline.tables.partitions import describe_columns
from strandline.tables.time_travel import reference

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

    from strandline.api.database import Database

ExportFormat: TypeAlias = Literal["parquet", "csv", "jsonl", "delta", "iceberg"]
FORMATS = get_args(ExportFormat)


def run(db: Database, statement: st.Export) -> Result:
    """Run an EXPORT statement. The result has one row."""
    done = _export(db, statement)
    row = (mask_urls(done.place), done.format, done.files, done.rows)
    return Result(("place", "format", "files", "rows"), [row])


def export_rows(
    db: Database,
    place: str,
    *,
    table: str | None,
    query: str | None,
    at: int | str | datetime | None,
    backup: str | None,
    where: str | None,
    format: ExportFormat | None,
    overwrite: bool,
) -> Exported:
    """Export with the arguments of ``db.export``."""
    if (table is None) == (query is None):
        raise InvalidArgument(
            "an export needs a table or a query, and not both",
            'Write db.export(place, table="orders") or db.export(place, query="SELECT ...").',
        )
    given = {"FORMAT": format, "OVERWRITE": "true" if overwrite else None}
    settings = tuple((name, value) for name, value in given.items() if value is not None)
    if query is not None:
        if (at, backup, where) != (None, None, None):
            raise InvalidArgument("at, backup and where need a table", "Write them into the query.")
        return _export(db, export_query(query, place, settings))
    ref = reference(names.normalize(table or ""), at, backup)
    return _export(db, export_table(ref, where, place, settings))


def _export(db: Database, statement: st.Export) -> Exported:
    target = target_of(db, statement)
    with phase(f"exporting to {mask_urls(statement.place)}", unit="rows") as exporting:
        rows = _ExportedRows(db, statement, exporting)
        return export(target, rows.reader, rows.spread)


class _ExportedRows:
    """The rows to export. The query runs when the rows are first needed."""

    def __init__(self, db: Database, statement: st.Export, exporting: Phase) -> None:
        self._db = db
        self._statement = statement
        self._exporting = exporting

    @cached_property
    def _result(self) -> Result:
        return select(self._db, st.Select(self._statement.query))

    def reader(self) -> pa.RecordBatchReader:
        """Return the rows as a stream through this process."""
        rows = self._result.to_reader(BATCH_ROWS)

        def batches() -> Iterator[pa.RecordBatch]:
            for batch in rows:
                check()
                yield batch
                self._exporting.advance(batch.num_rows)

        return pa.RecordBatchReader.from_batches(self._add_table(rows.schema), batches())

    def spread(self) -> SpreadRows | None:
        """Return the rows for Spark's executors to write. None: this process writes them."""
        result = self._result
        if isinstance(result, StreamedResult):
            found = result.scan.export()
            return None if found is None else replace(found, schema=self._add_table(found.schema))
        if isinstance(result, SparkResult) and result.df.columns:
            return FrameExport(result.df, self._add_table(result.schema))
        return None

    def _add_table(self, schema: pa.Schema) -> pa.Schema:
        """Add the key and types of the table to the metadata, so that a load can create the same table."""
        if self._statement.table is None:
            return schema
        table = describe_columns(self._db._runtime, self._statement.table)
        known = [column for column in table.columns if column.name in schema.names]
        told = {
            KEY: json.dumps(table.key),
            TYPES: json.dumps({column.name: column.type.name for column in known}),
        }
        return schema.with_metadata(told)


@dataclass(frozen=True)
class FrameExport:
    """The rows of a DataFrame, for executors that write them to files."""

    frame: DataFrame
    schema: pa.Schema

    def write(self, folder: PartFolder) -> Sequence[ExportedPart]:
        """Let executors write the rows to files; return the files in the order of the rows."""
        return export_frame(self.frame, folder)


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


def _refuse_inside(db: Database, place: str) -> None:
    """Refuse a place inside the warehouse, which may hold only files that the catalog knows."""
    own = db._runtime.files.own
    inside = (
        os.path.realpath(os.path.expanduser(place)).startswith(f"{own.location}{os.sep}")
        if isinstance(own, LocalFiles) and not is_url(place)
        else place.startswith(f"{own.location}/")
    )
    if inside:
        raise InvalidArgument(f"{place} is inside the warehouse", "Choose a place outside it.")
