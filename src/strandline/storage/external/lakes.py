"""Import of Delta Lake and Apache Iceberg tables, without a JVM."""

from __future__ import annotations

import os
from abc import abstractmethod
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any, ClassVar, TypeVar
from urllib.parse import unquote

import pyarrow as pa
import pyarrow.parquet as pq

from strandline.errors import InvalidArgument, PreconditionFailed, StrandlineError, Unavailable, Unsupported
from strandline.settings import Settings
from strandline.storage.external.locations import File, bare, is_folder, is_web, place_of, read_failures
from strandline.storage.external.parts import FilePart, Over
from strandline.storage.external.source import External
from strandline.storage.external.typed_files import BATCH_ROWS, FoundColumns, Typed, TypedBatches, TypedPart
from strandline.storage.location import is_url

__all__ = [
    "check_iceberg",
    "delta_options",
    "delta_tables",
    "iceberg_properties",
    "iceberg_tables",
    "locate",
    "needs",
]

R = TypeVar("R")


def needs(package: str, extra: str) -> PreconditionFailed:
    """Return the error for a missing optional package."""
    return PreconditionFailed(
        f"the package {package} is not installed", f"Install it: pip install 'strandline[{extra}]'."
    )


def locate(place: str) -> str:
    """Return a folder as an absolute path; return a URL unchanged."""
    return place if is_url(place) else os.path.abspath(os.path.expanduser(place.removeprefix("file://")))


def delta_options(settings: Settings) -> dict[str, str]:
    """Return the options for Delta's client that the client does not read from the environment itself."""
    found = dict(settings.storage_options)
    if (found.get("endpoint") or _endpoint() or "").startswith("http://"):
        found.setdefault("allow_http", "true")
    return found


def _endpoint() -> str | None:
    return os.environ.get("AWS_ENDPOINT_URL_S3") or os.environ.get("AWS_ENDPOINT_URL")


@dataclass(frozen=True)
class LakeTable(TypedPart):
    """A Delta Lake or Iceberg table.

    Attributes:
        place: the folder or URL of the table.
        settings: the settings for the client.
        kind: the name of the format, for messages.
    """

    place: str
    settings: Settings
    kind: ClassVar[str]

    @contextmanager
    def open(self) -> Iterator[TypedBatches]:
        with _client_failures(self.place, self.kind):
            reader = self.reader()
            yield TypedBatches(self.place, self.kind, reader.schema, reader)

    @cached_property
    def table(self) -> Any:
        """The table, opened with the client of its format."""
        if is_web(self.place):
            raise Unsupported(
                f"a {self.kind} table cannot be read from a web server, as {bare(self.place)} is",
                "Name it by its folder or by a URL of its object store.",
            )
        return self.open_table()

    def __getstate__(self) -> dict[str, Any]:
        return {name: value for name, value in vars(self).items() if name != "table"}

    @abstractmethod
    def open_table(self) -> Any:
        """Open the table with its client."""

    @abstractmethod
    def measure(self) -> int:
        """Return the size of the data files in bytes."""

    @abstractmethod
    def reader(self) -> pa.RecordBatchReader:
        """Return the rows."""

    @abstractmethod
    def split(self) -> Sequence[TypedPart]:
        """Return parts that can be read independently.

        The parts are the data files, or the table itself if only its client can read the data files.
        """


class Lakes(Typed[TypedPart]):
    """Tables of one format."""

    def __init__(self, package: str, tables: Sequence[LakeTable]) -> None:
        super().__init__(tables)
        self.package = package
        self._tables = tables

    @cached_property
    def size(self) -> int:
        return sum(self._ask(lambda table: table.measure()))

    def split(self, over: Over, most: int) -> Sequence[TypedPart]:
        return [part for each in self._ask(lambda table: table.split()) for part in each]

    def spread(self, over: Over, parts: Sequence[FilePart]) -> None:
        _ = self._looks  # Read the columns of the tables before ``parts`` become their data files.
        super().spread(over, parts)

    def _ask(self, question: Callable[[LakeTable], R]) -> list[R]:
        found = []
        for table in self._tables:
            with _client_failures(table.place, table.kind):
                found.append(question(table))
        return found


@dataclass(frozen=True)
class _DeltaTable(LakeTable):
    """A Delta table in its newest version."""

    kind = "Delta"

    def open_table(self) -> Any:
        try:
            from deltalake import DeltaTable
        except ImportError:
            raise needs("deltalake", "delta") from None
        if not is_folder(self.place, self.settings, "_delta_log"):
            raise InvalidArgument(f"{self.place} has no log of a Delta table", "Name the table's folder.")
        return DeltaTable(locate(self.place), storage_options=delta_options(self.settings))

    def _files(self) -> pa.Table:
        return pa.table(self.table.get_add_actions(flatten=True))

    def measure(self) -> int:
        return sum(self._files().column("size_bytes").to_pylist())

    def reader(self) -> pa.RecordBatchReader:
        table = self.table
        from deltalake import QueryBuilder

        found: Any = QueryBuilder().register("t", table).execute("SELECT * FROM t")
        return pa.RecordBatchReader.from_stream(found)

    def split(self) -> Sequence[TypedPart]:
        found, protocol = self._files(), self.table.protocol()
        paths = [unquote(path) for path in found.column("path").to_pylist()]
        # Only the client can apply deletion vectors and column mapping. The log of a clone names files of
        # other folders.
        is_plain = protocol.min_reader_version != 2 and _PLAIN_FEATURES.issuperset(
            protocol.reader_features or ()
        )
        if not is_plain or any("://" in path or path.startswith("/") for path in paths):
            return [self]
        files, name = place_of(self.place, self.settings)
        schema, prefix = self.reader().schema, "partition."
        values = {n.removeprefix(prefix): found.column(n) for n in found.column_names if n.startswith(prefix)}
        return [
            _DeltaFile(
                File(f"{self.place.rstrip('/')}/{path}", files, f"{name}/{path}"),
                schema,
                {column: array[i] for column, array in values.items()},
            )
            for i, path in enumerate(paths)
        ]


_PLAIN_FEATURES = frozenset({"timestampNtz"})
"""Features of a Delta table whose data files are plain Parquet files with its rows."""


@dataclass(frozen=True)
class _DeltaFile(TypedPart):
    """A data file of a Delta table.

    Attributes:
        file: the file.
        schema: the columns of the table.
        values: the value of each partition column. The file does not contain these columns.
    """

    file: File
    schema: pa.Schema
    values: Mapping[str, pa.Scalar]

    @contextmanager
    def open(self) -> Iterator[TypedBatches]:
        with self.file.whole() as stream, read_failures(self.file.name):
            parquet = pq.ParquetFile(stream, coerce_int96_timestamp_unit="us")
            batches = map(self._whole, parquet.iter_batches(BATCH_ROWS))
            yield TypedBatches(self.file.name, "Parquet", self.schema, batches)

    def _whole(self, batch: pa.RecordBatch) -> pa.RecordBatch:
        def column(field: pa.Field) -> pa.Array:
            if field.name in self.values:
                return pa.repeat(self.values[field.name].cast(field.type), batch.num_rows)
            if field.name not in batch.schema.names:
                return pa.nulls(batch.num_rows, field.type)
            return batch.column(field.name).cast(field.type)

        return pa.RecordBatch.from_arrays([column(field) for field in self.schema], schema=self.schema)


@dataclass(frozen=True)
class _IcebergTable(LakeTable):
    """An Iceberg table in its current snapshot, given by its folder or a metadata file."""

    kind = "Iceberg"

    def open_table(self) -> Any:
        try:
            from pyiceberg.table import StaticTable
        except ImportError:
            raise needs("pyiceberg", "iceberg") from None
        check_iceberg(self.place)
        metadata = _metadata(locate(self.place), self.settings)
        return StaticTable.from_metadata(metadata, iceberg_properties(self.settings))

    def look(self) -> FoundColumns:
        found, schema = super().look(), self.table.schema()
        names = [schema.find_column_name(i) for i in schema.identifier_field_ids]
        return replace(found, key=tuple(name for name in names if name is not None) or None)

    def measure(self) -> int:
        return sum(task.file.file_size_in_bytes for task in self.table.scan().plan_files())

    def reader(self) -> pa.RecordBatchReader:
        found: pa.RecordBatchReader = self.table.scan().to_arrow_batch_reader()
        return found

    def split(self) -> Sequence[TypedPart]:
        scan, table = self.table.scan(), self.table
        what = (table.metadata, table.io, scan.projection(), scan.row_filter)
        return [_IcebergFile(task.file.file_path, what, task) for task in scan.plan_files()]


@dataclass(frozen=True)
class _IcebergFile(TypedPart):
    """A data file of an Iceberg table, with the files that list its deleted rows.

    Attributes:
        place: the path or URL of the data file.
        scan: the table's metadata, the access to its files, the columns and the row filter of a scan.
        task: the scan's task for the data file.
    """

    place: str
    scan: tuple[Any, ...]
    task: Any

    @contextmanager
    def open(self) -> Iterator[TypedBatches]:
        from pyiceberg.io.pyarrow import ArrowScan, schema_to_pyarrow

        with _client_failures(self.place, "Iceberg"):
            schema = schema_to_pyarrow(self.scan[2])
            batches = ArrowScan(*self.scan).to_record_batches([self.task])
            yield TypedBatches(self.place, "Iceberg", schema, (batch.cast(schema) for batch in batches))


def delta_tables(source: External) -> Lakes:
    """Return the Delta tables at the places of a source."""
    return Lakes("deltalake", [_DeltaTable(place, source.settings) for place in source.places])


def iceberg_tables(source: External) -> Lakes:
    """Return the Iceberg tables at the places of a source."""
    return Lakes("pyiceberg", [_IcebergTable(place, source.settings) for place in source.places])


def _metadata(place: str, settings: Settings) -> str:
    """Return the newest metadata file of a table."""
    if place.endswith(".metadata.json"):
        return place
    files, name = place_of(place, settings)
    found = [n for n in files.names(f"{name}/metadata") if n.endswith(".metadata.json")]
    if not found:
        raise InvalidArgument(
            f"{place} has no metadata of an Iceberg table", "Name the table's folder, or its metadata file."
        )
    newest = max(found, key=_version)
    return f"{place.rstrip('/')}{newest.removeprefix(name)}"


def _version(name: str) -> tuple[int, str]:
    """Return the version in the name of a metadata file, and the name.

    Catalogs name such a file 00012-<id>.metadata.json; without a catalog, its name is v12.metadata.json.
    """
    stem = name.rpartition("/")[2].removesuffix(".metadata.json").removeprefix("v")
    digits = stem.partition("-")[0]
    return int(digits) if digits.isdigit() else -1, name


_S3 = {
    "endpoint": "s3.endpoint",
    "region": "s3.region",
    "access_key_id": "s3.access-key-id",
    "secret_access_key": "s3.secret-access-key",
    "session_token": "s3.session-token",
}


def check_iceberg(place: str) -> None:
    """Refuse a location that is neither a folder nor on S3.

    For other locations Iceberg's client needs other packages and credentials.
    """
    if is_url(place) and not place.startswith("s3://"):
        raise Unsupported(
            f"an Iceberg table has to be in a folder or on S3, and {place} is elsewhere",
            "Use Delta or Parquet there.",
        )


def iceberg_properties(settings: Settings) -> dict[str, str]:
    """Return the options for Iceberg's client that the client does not read from the environment itself."""
    region = os.environ.get("AWS_REGION") or os.environ.get("AWS_DEFAULT_REGION")
    given = {"endpoint": _endpoint(), "region": region, **settings.storage_options}
    return {_S3[name]: value for name, value in given.items() if name in _S3 and value}


@contextmanager
def _client_failures(place: str, kind: str) -> Iterator[None]:
    """Translate the errors of a format's client, which raises many types of errors."""
    try:
        yield
    except StrandlineError:
        raise
    except Exception as error:
        said = (str(error).strip() or type(error).__name__).splitlines()[0]
        raise Unavailable(
            f"{place} cannot be read as a {kind} table: {said[:200]}",
            "Check the place, the rights and the format.",
        ) from None
