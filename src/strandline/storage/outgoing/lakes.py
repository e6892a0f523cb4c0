"""Write Delta Lake and Apache Iceberg tables without a JVM.

Delta's log and Iceberg's metadata are written last, so that a table appears as a whole or not at all. Data
files are written by the library of the format, or by tasks on executors.
"""

from __future__ import annotations

import json
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from importlib import import_module
from typing import Any, Literal, TypeAlias

import pyarrow as pa

from strandline.errors import StrandlineError, Unavailable
from strandline.settings import Settings
from strandline.storage.external.lakes import check_iceberg, delta_options, iceberg_properties, locate, needs
from strandline.storage.location import is_url
from strandline.storage.outgoing.parts import ExportedPart

__all__ = ["DATA", "Lake", "check_lake", "commit_lake", "lake_schema", "write_lake"]

Lake: TypeAlias = Literal["delta", "iceberg"]

_SIGNED = {
    pa.uint8(): pa.int16(),
    pa.uint16(): pa.int32(),
    pa.uint32(): pa.int64(),
    pa.uint64(): pa.decimal128(20, 0),
}
"""Types that replace unsigned integers, which Delta and Iceberg do not have."""
_WIDE = {**_SIGNED, pa.uint8(): pa.int32(), pa.int8(): pa.int32(), pa.int16(): pa.int32()}
"""Types that replace integer types that Iceberg does not have. Iceberg has signed ones of 32 and 64 bits."""
_TYPES: dict[Lake, dict[pa.DataType, pa.DataType]] = {"delta": _SIGNED, "iceberg": _WIDE}
DATA: dict[Lake, str] = {"delta": "", "iceberg": "/data"}
"""Folder of the data files, as a suffix of the table's folder."""
_PACKAGES: dict[Lake, str] = {"delta": "deltalake", "iceberg": "pyiceberg"}


def check_lake(kind: Lake, place: str) -> None:
    """Refuse a format whose package is not installed, and a location that the format does not support."""
    try:
        import_module(_PACKAGES[kind])
    except ImportError:
        raise needs(_PACKAGES[kind], kind) from None
    if kind == "iceberg":
        check_iceberg(place)


def lake_schema(kind: Lake, schema: pa.Schema) -> pa.Schema:
    """Return the columns; types that the format does not have are replaced."""
    return pa.schema([pa.field(f.name, _TYPES[kind].get(f.type, f.type)) for f in schema])


class _Rows:
    """Converts rows to the types of a lake table and counts the rows.

    Attributes:
        schema: the columns of the lake table.
        count: number of rows read so far.
        failed: the error that reading the rows raised. None: no error so far.
    """

    def __init__(self, reader: pa.RecordBatchReader, schema: pa.Schema) -> None:
        self.schema = schema
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


@contextmanager
def _failures(kind: Lake, place: str, rows: _Rows | None = None) -> Iterator[None]:
    """Translate errors of a library.

    If the library failed because reading the rows raised a StrandlineError, raise this StrandlineError.
    """
    try:
        yield
    except BaseException as error:
        failed = None if rows is None else rows.failed
        if isinstance(failed, StrandlineError) or not isinstance(error, Exception):
            raise (failed or error) from None
        said = (str(error).strip() or type(error).__name__).splitlines()[0]
        raise Unavailable(
            f"the {kind.title()} table {place} cannot be written: {said[:200]}",
            "Check the place and the rights.",
        ) from None


def write_lake(
    kind: Lake, place: str, reader: pa.RecordBatchReader, settings: Settings, *, overwrite: bool
) -> tuple[int, int]:
    """Write a new table, or a new version of a Delta table; return its number of files and of rows."""
    rows = _Rows(reader, lake_schema(kind, reader.schema))
    with _failures(kind, place, rows):
        if kind == "delta":
            return _write_delta(place, rows, settings, overwrite=overwrite), rows.count
        with _new_iceberg(place, rows.schema, settings) as (catalog, transaction):
            transaction.append(rows.reader())
            transaction.commit_transaction()
            return len(list(catalog.load_table(_NAME).scan().plan_files())), rows.count


def commit_lake(
    kind: Lake,
    place: str,
    schema: pa.Schema,
    parts: Sequence[ExportedPart],
    settings: Settings,
    *,
    is_new: bool,
) -> None:
    """Commit files that tasks wrote, as a new table or as a new version of a Delta table."""
    with _failures(kind, place):
        if kind == "delta":
            _commit_delta(place, schema, parts, settings, is_new=is_new)
            return
        with _new_iceberg(place, schema, settings) as (_, transaction):
            if parts:
                transaction.add_files([f"{_url(place)}{DATA[kind]}/{part.name}" for part in parts])
            transaction.commit_transaction()


def _write_delta(place: str, rows: _Rows, settings: Settings, *, overwrite: bool) -> int:
    from deltalake import DeltaTable, write_deltalake

    where, options = locate(place), delta_options(settings)
    write_deltalake(
        where,
        rows.reader(),
        mode="overwrite" if overwrite else "error",
        schema_mode="overwrite" if overwrite else None,
        storage_options=options,
    )
    return len(DeltaTable(where, storage_options=options).file_uris())


def _commit_delta(
    place: str, schema: pa.Schema, parts: Sequence[ExportedPart], settings: Settings, *, is_new: bool
) -> None:
    from deltalake import DeltaTable, Schema
    from deltalake.transaction import AddAction, RemoveAction, create_table_with_add_actions

    where, options, now = locate(place), delta_options(settings), int(time.time() * 1000)
    added = [
        AddAction(part.name, part.bytes, {}, now, True, json.dumps({"numRecords": part.rows}))
        for part in parts
    ]
    columns = Schema.from_arrow(schema)
    if is_new:
        create_table_with_add_actions(where, columns, added, storage_options=options)
        return
    actions: list[AddAction | RemoveAction] = [*added]
    DeltaTable(where, storage_options=options).create_write_transaction(actions, "overwrite", columns)


_NAME = "export.t"


def _url(place: str) -> str:
    where = locate(place)
    return where if is_url(where) else f"file://{where}"


@contextmanager
def _new_iceberg(place: str, schema: pa.Schema, settings: Settings) -> Iterator[tuple[Any, Any]]:
    """Yield a catalog in memory, and a transaction in it that creates a table."""
    from pyiceberg.catalog.sql import SqlCatalog

    properties = iceberg_properties(settings)
    catalog = SqlCatalog("export", uri="sqlite:///:memory:", warehouse=_url(place), **properties)
    try:
        catalog.create_namespace("export")
        yield catalog, catalog.create_table_transaction(_NAME, schema, location=_url(place))
    finally:
        catalog.close()
