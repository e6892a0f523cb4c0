"""Use the data source as Spark does, in one process without Spark. Data between processes is pickled."""

from __future__ import annotations

import pickle
from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, Any

import pyarrow as pa
from pyspark.sql.datasource import CaseInsensitiveDict, InputPartition
from pyspark.sql.pandas.types import from_arrow_schema
from pyspark.sql.types import StructType

from strandline import Database
from strandline.api.source.source import StrandlineSource

if TYPE_CHECKING:
    from pyspark.sql.datasource import Filter

Rows = list[tuple[Any, ...]]


def source(db: Database, **options: str) -> StrandlineSource:
    catalog = db._runtime.catalog
    url = (
        {}
        if catalog.database.is_sqlite
        else {"catalog": catalog.database.engine.url.render_as_string(hide_password=False)}
    )
    place = {"warehouse": db._runtime.files.location, **url}
    return StrandlineSource(CaseInsensitiveDict({**place, **options}))


def planned(
    db: Database, filters: Iterable[Filter] = (), schema: StructType | None = None, **options: str
) -> tuple[Any, list[InputPartition]]:
    """Return the reader and the partitions, as sent to executors."""
    made = source(db, **options)
    reader: Any = made.reader(schema or made.schema())
    reader.pushFilters(list(filters))
    return sent(reader), [sent(partition) for partition in reader.partitions()]


def read(reader: Any, partitions: Iterable[InputPartition]) -> Rows:
    """Return the rows that executors read, in order."""
    batches = [batch for partition in partitions for batch in reader.read(partition)]
    return sorted(rows(batches), key=lambda row: [(value is not None, value) for value in row])


def load(
    db: Database, filters: Iterable[Filter] = (), schema: StructType | None = None, **options: str
) -> Rows:
    return read(*planned(db, filters, schema, **options))


def rows(batches: Iterable[pa.RecordBatch]) -> Rows:
    return [tuple(row.values()) for batch in batches for row in batch.to_pylist()]


def save(db: Database, *tasks: Sequence[pa.RecordBatch], **options: str) -> None:
    """Write the rows of tasks that all succeed."""
    kinds = from_arrow_schema(next(iter(tasks[0])).schema)
    writer: Any = sent(source(db, **options).writer(kinds, overwrite=False))
    writer.commit([sent(writer.write(iter(task))) for task in tasks])


def sent(thing: Any) -> Any:
    return pickle.loads(pickle.dumps(thing))
