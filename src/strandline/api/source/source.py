"""The data source behind ``format("strandline")``."""

from __future__ import annotations

from typing import Any, ClassVar

import pyarrow as pa
from pyspark.sql.datasource import (
    CaseInsensitiveDict,
    DataSource,
    DataSourceReader,
    DataSourceStreamReader,
    DataSourceStreamWriter,
    DataSourceWriter,
)
from pyspark.sql.pandas.types import from_arrow_schema
from pyspark.sql.types import StructType

from strandline.api.source.options import LIMITS, Place, SourceOptions
from strandline.api.source.pickling import archive, travelling
from strandline.api.source.reader import FilteringReader, TableReader
from strandline.api.source.stream import BatchLimits, FeedReader
from strandline.api.source.warehouse_cache import open_warehouse, plainly
from strandline.api.source.writer import Job, TableStreamWriter, TableWriter
from strandline.errors import InvalidArgument, Unsupported
from strandline.model import TableSchema
from strandline.tables.partitions import describe_columns


class StrandlineSource(DataSource):
    """The data source of one ``load`` or ``save``. Spark creates it in a worker process and pickles it."""

    default: ClassVar[Place | None] = None
    """The warehouse to use if the options name none."""
    only: ClassVar[str | None] = None
    """Path of the only table of this source, which is registered in a namespace. None: the options name it.

    If it is set, the options that Spark passes are ignored.
    """
    known_as: ClassVar[str] = "strandline"
    reads_with: ClassVar[type[TableReader]] = FilteringReader

    @plainly
    def __init__(self, options: Any) -> None:
        given: Any = options if self.only is None else CaseInsensitiveDict({"table": self.only})
        super().__init__(given)
        self._options = SourceOptions(given, self.default)

    @classmethod
    def name(cls) -> str:
        return cls.known_as

    def __reduce__(self) -> tuple[Any, ...]:
        # Only plain values, because they are unpickled before the package can be imported.
        default = None if self.default is None else (self.default.warehouse, self.default.catalog)
        return travelling(_rebuild_source), (archive(), dict(self.options), default)

    @plainly
    def schema(self) -> StructType:
        if self._options.is_changefeed:
            return self._feed().schema()
        return spark_schema(self._describe())

    @plainly
    def reader(self, schema: StructType) -> DataSourceReader:
        """Return a reader of the columns in ``schema``.

        Args:
            schema: the schema of this source, or a schema that the caller gave, perhaps with fewer columns.
        """
        try:
            described = self._describe(schema.names)
        except InvalidArgument as error:
            raise InvalidArgument(
                error.message,
                f'{error.hint} Change columns with db.sql("ALTER TABLE ..."), then call '
                "strandline.register again.",
            ) from None
        if _types(spark_schema(described)) != _types(schema):
            raise InvalidArgument(
                "the given schema does not match the types of the table",
                f"Leave it out, or give {spark_schema(described).simpleString()}.",
            )
        return self.reads_with(self._options.place, self._options.table, described)

    @plainly
    def streamReader(self, schema: StructType) -> DataSourceStreamReader:
        found = self._feed()
        if _types(schema) != _types(found.schema()):
            raise InvalidArgument(
                "the given schema does not match the changefeed",
                f"Leave it out, or give {found.schema().simpleString()}.",
            )
        return found

    def _feed(self) -> FeedReader:
        rows, size, end_step = map(self._options.limit, LIMITS)
        return FeedReader(self._options.place, self._options.changefeed, BatchLimits(rows, size), end_step)

    @plainly
    def writer(self, schema: StructType, overwrite: bool) -> DataSourceWriter:
        _refuse(overwrite)
        application = self._options.application
        # An idempotent write is recorded with an existing table, so create a missing table first.
        return TableWriter(self._job(schema, first=application is not None), application)

    @plainly
    def streamWriter(self, schema: StructType, overwrite: bool) -> DataSourceStreamWriter:
        _refuse(overwrite)
        job = self._job(schema, first=True)
        made: DataSourceStreamWriter = TableStreamWriter(job, schema, self._options.writer)
        return made

    def _job(self, schema: StructType, *, first: bool) -> Job:
        options = self._options
        return Job.of(options.place, options.path, options.mode, schema, options.new_table, first=first)

    def _describe(self, columns: list[str] | None = None) -> TableSchema:
        options = self._options
        with open_warehouse(options.place) as db:
            return describe_columns(db._runtime, options.table, columns or options.columns)


class FoundSource(StrandlineSource):
    """The source of a session without ``register``: Spark has found the package by its name.

    In such a session the package is installed on all machines, and filter pushdown is not enabled.
    """

    reads_with = TableReader

    def __reduce__(self) -> tuple[Any, ...]:
        return FoundSource, (self.options,)


def _rebuild_source(archive: str | None, options: dict[str, str], default: Any) -> Any:
    """Unpickle a source. The package may not be importable yet, so add its archive to ``sys.path`` first.

    Spark does not add shipped archives in the process that reads a stream.
    """
    import sys

    if archive is not None and archive not in sys.path:
        sys.path.insert(1, archive)
    from strandline.api.source.source import source_of

    return source_of(options, default)


def source_of(options: dict[str, str], default: tuple[str, str | None] | None) -> StrandlineSource:
    """Return a source with these options and this default warehouse."""
    kind = StrandlineSource if default is None else with_default(Place(*default))
    return kind(CaseInsensitiveDict(options))


def with_default(place: Place) -> type[StrandlineSource]:
    """Return a source class with a default warehouse."""
    return _kind({"default": place})


def of_table(place: Place, path: str, name: str) -> type[StrandlineSource]:
    """Return a source class for one table, with its own format name."""
    return _kind({"default": place, "only": path, "known_as": name})


def _kind(made: dict[str, Any]) -> type[StrandlineSource]:
    """Return a subclass of ``StrandlineSource``.

    Its module is ``__main__``, so that the class is pickled by value instead of by name.

    Args:
        made: the class attributes, by name.
    """
    kind: type[StrandlineSource] = type(
        StrandlineSource.__name__, (StrandlineSource,), {**made, "__module__": "__main__"}
    )
    return kind


def spark_schema(schema: TableSchema) -> StructType:
    """Return the Spark schema of a table."""
    return from_arrow_schema(pa.schema([(c.name, c.type.arrow) for c in schema.columns]))


def _refuse(overwrite: bool) -> None:
    if overwrite:
        raise Unsupported(
            "a table cannot be overwritten as a whole",
            'Write with mode("append"); option("mode", "replace") replaces the rows of the same keys.',
        )


def _types(schema: StructType) -> list[tuple[str, Any]]:
    return [(field.name, field.dataType) for field in schema.fields]
