"""Import of Delta Lake and Apache Iceberg tables, without a JVM."""

from __future__ import annotations

import os
from abc import abstractmethod
from collections.abc import Iterator
from typing import Any

import pyarrow as pa

from strandline.errors import InvalidArgument, PreconditionFailed, StrandlineError, Unavailable, Unsupported
from strandline.settings import Settings
from strandline.storage.external.locations import bare, is_folder, is_web, place_of
from strandline.storage.external.source import External
from strandline.storage.external.typed_files import Typed, TypedBatches
from strandline.storage.location import is_url

__all__ = [
    "DeltaTables",
    "IcebergTables",
    "check_iceberg",
    "delta_options",
    "iceberg_properties",
    "locate",
    "needs",
]


def needs(package: str, extra: str) -> PreconditionFailed:
    """Return the error for a missing optional package."""
    return PreconditionFailed(
        f"the package {package} is not installed", f"Install it: pip install 'strandline[{extra}]'."
    )


def locate(place: str) -> str:
    """Return a folder as an absolute path; return a URL unchanged."""
    return place if is_url(place) else os.path.abspath(os.path.expanduser(place.removeprefix("file://")))


def delta_options(settings: Settings) -> dict[str, str]:
    """Return the options for Delta's client that it does not take from the environment itself."""
    found = dict(settings.storage_options)
    if (found.get("endpoint") or _endpoint() or "").startswith("http://"):
        found.setdefault("allow_http", "true")
    return found


def _endpoint() -> str | None:
    return os.environ.get("AWS_ENDPOINT_URL_S3") or os.environ.get("AWS_ENDPOINT_URL")


class Lake(Typed):
    """Tables of one kind, each at its own place. A subclass opens a table. ``kind``: the kind's name."""

    kind: str

    def __init__(self, source: External) -> None:
        super().__init__(len(source.places))
        self._places = source.places
        self._settings = source.settings

    def open_each(self) -> Iterator[TypedBatches]:
        for place in self._places:
            if is_web(place):
                raise Unsupported(
                    f"a {self.kind} table cannot be read from a web server, as {bare(place)} is",
                    "Name it by its folder or by a URL of its object store.",
                )
            try:
                reader = self._reader(place)
                yield TypedBatches(place, self.kind, reader.schema, reader)
            except StrandlineError:
                raise
            except Exception as error:  # The clients raise many types; this is their common base.
                raise _unreadable(place, f"{self.kind} table", error) from None

    @abstractmethod
    def _reader(self, place: str) -> pa.RecordBatchReader:
        """Return the rows of a table."""


class DeltaTables(Lake):
    """Delta tables, each in its newest version."""

    kind = "Delta"

    def _reader(self, place: str) -> pa.RecordBatchReader:
        try:
            from deltalake import DeltaTable, QueryBuilder
        except ImportError:
            raise needs("deltalake", "delta") from None
        if not is_folder(place, self._settings, "_delta_log"):
            raise InvalidArgument(f"{place} has no log of a Delta table", "Name the table's folder.")
        table = DeltaTable(locate(place), storage_options=delta_options(self._settings))
        found: Any = QueryBuilder().register("t", table).execute("SELECT * FROM t")
        return pa.RecordBatchReader.from_stream(found)


class IcebergTables(Lake):
    """Iceberg tables in their current snapshot, each given by its folder or a metadata file."""

    kind = "Iceberg"

    def _reader(self, place: str) -> pa.RecordBatchReader:
        try:
            from pyiceberg.table import StaticTable
        except ImportError:
            raise needs("pyiceberg", "iceberg") from None
        check_iceberg(place)
        metadata = _metadata(locate(place), self._settings)
        table = StaticTable.from_metadata(metadata, iceberg_properties(self._settings))
        schema = table.schema()
        names = [schema.find_column_name(i) for i in schema.identifier_field_ids]
        if names:
            self.key = tuple(name for name in names if name is not None)
        return table.scan().to_arrow_batch_reader()


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
    """Return the version in a file name: 00012-<id>.metadata.json of catalogs, or v12.metadata.json."""
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
    """Refuse places for which Iceberg's client needs other packages and credentials."""
    if is_url(place) and not place.startswith("s3://"):
        raise Unsupported(
            f"an Iceberg table has to be in a folder or on S3, and {place} is elsewhere",
            "Use Delta or Parquet there.",
        )


def iceberg_properties(settings: Settings) -> dict[str, str]:
    """Return the options for Iceberg's client that it does not take from the environment itself."""
    region = os.environ.get("AWS_REGION") or os.environ.get("AWS_DEFAULT_REGION")
    given = {"endpoint": _endpoint(), "region": region, **settings.storage_options}
    return {_S3[name]: value for name, value in given.items() if name in _S3 and value}


def _unreadable(place: str, what: str, error: Exception) -> Unavailable:
    said = (str(error).strip() or type(error).__name__).splitlines()[0]
    return Unavailable(
        f"{place} cannot be read as a {what}: {said[:200]}", "Check the place, the rights and the format."
    )
