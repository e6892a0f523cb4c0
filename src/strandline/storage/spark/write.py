"""Write a DataFrame to a table and its indexes, as Spark jobs."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, replace
from functools import partial, reduce

import pyarrow as pa
from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as F
from pyspark.sql.types import DataType

from strandline.errors import StrandlineError
from strandline.model import (
    BEGINNING,
    OP,
    PENDING,
    WAS_HI,
    WAS_LO,
    KeyRange,
    Segment,
    State,
    TableSchema,
    visible,
)
from strandline.model import Column as TableColumn
from strandline.storage.files import Files
from strandline.storage.rows import Mode, Outcome, Target, Written
from strandline.storage.segment_cache import SegmentCache
from strandline.storage.spark.changes import fold
from strandline.storage.spark.columns import col, keys_from, other_side, rename_keys, same_key, spark_type
from strandline.storage.spark.hashes import hash_columns
from strandline.storage.spark.incoming import (
    ORDINAL,
    cast_columns,
    kinds_of,
    not_null,
    number_rows,
    once_per_key,
    order_matters,
    refuse_present,
)
from strandline.storage.spark.rows import rows_of, union
from strandline.storage.spark.scan import scan
from strandline.storage.spark.session import working
from strandline.storage.spark.sort import RepeatedKey, arrange, write_sorted

__all__ = ["collapse", "write"]

BROADCAST_ROWS = 1_000_000
"""Up to this number of keys are broadcast to find their old rows; for more, both sides are shuffled."""

_COUNT, _SIZE, _ENDS = "__strandline_count", "__strandline_size", "__strandline_ends"


@dataclass(frozen=True)
class Few:
    """Limits up to which rows are brought into this process, and up to which files are described in it."""

    rows: int
    bytes: int
    described: int


def write(
    cache: SegmentCache, target: Target, mode: Mode, incoming: DataFrame, few: Few
) -> Outcome | pa.Table:
    """Apply the rows of ``incoming`` to a table according to ``mode``, and update its indexes.

    If a key occurs more than once, its last row in the order of the DataFrame counts. Files are written below
    the target's fresh names. They are durable when this returns, and deleted when it raises.

    Up to ``few`` rows for a table that is not empty are not written. They are returned in the physical types,
    one per key, because the in-process write finds the old rows of few keys without a scan of the table.
    """
    spark = incoming.sparkSession
    with working(spark):
        kinds = kinds_of(incoming, target.state.schema, incoming.columns)
        work = _Work(
            spark=spark,
            cache=cache,
            state=target.state,
            mode=mode,
            kinds=kinds,
            incoming=incoming,
            indexes=tuple((target.name(index), index, impl) for index, impl in target.indexes().items()),
            name=target.name(None),
            here=few.described,
        )
        with _undone(cache.files, [work.name, *(name for name, _, _ in work.indexes)]):
            return _into_rows(work, few) if visible(target.state.chain) else _into_nothing(work)


@dataclass(frozen=True, kw_only=True)
class _Work:
    spark: SparkSession
    cache: SegmentCache
    state: State
    mode: Mode
    kinds: Mapping[str, DataType]
    incoming: DataFrame
    indexes: tuple[tuple[str, str, TableSchema], ...]
    """For each index: the name for its files, its own name, and the schema of its implementation table."""
    name: str
    here: int
    """Maximum size in bytes of files that are described in this process."""

    @property
    def schema(self) -> TableSchema:
        return self.state.schema

    @property
    def columns(self) -> tuple[str, ...]:
        return tuple(self.kinds)

    @property
    def op(self) -> str:
        return "E" if self.mode.startswith("DELETE") else "R" if self.mode == "REPLACE" else "U"

    def cast_rows(self) -> DataFrame:
        """Return the caller's rows in the table's types, numbered if their order may matter."""
        if self.op == "E":
            return cast_columns(self.incoming, self.schema, self.kinds, self.schema.key)
        if not order_matters(self.mode):
            return cast_columns(self.incoming, self.schema, self.kinds, self.columns)
        return cast_columns(number_rows(self.incoming), self.schema, self.kinds, self.columns, [ORDINAL])

    def image(self, name: str, *, of_old: bool) -> Column:
        """Return the value of a column after the write.

        The row has the given columns and, with ``of_old``, the kept columns of the old row, which
        ``other_side`` names.
        """
        column = self.schema[name]
        if name in self.schema.key:
            return col(name)
        if self.op == "E":
            return _null(column)
        if name in self.columns:
            value = col(name)
        elif self.keeps and of_old:
            value = col(other_side(name))
        else:
            value = _null(column)
        return not_null(self.schema, column, value)

    @property
    def keeps(self) -> bool:
        """Whether columns that are not given keep their value."""
        return self.mode in ("UPSERT", "UPDATE")

    @property
    def only_existing(self) -> bool:
        return self.mode in ("UPDATE", "DELETE")

    def watched_columns(self) -> list[str]:
        """Return the columns whose old value an index needs."""
        found = dict.fromkeys(
            name for _, _, impl in self.indexes for name in impl.names if name not in self.schema.key
        )
        return list(found)


def _into_nothing(work: _Work) -> Outcome:
    """Write to an empty table: no lookup is needed, so the rows are sorted and written in one pass."""
    if work.only_existing:
        return Outcome()
    table = _load(work)
    indexes: dict[str, Written] = {}
    for name, index, impl in work.indexes:
        if table.segments and work.op != "E":
            # Read from the files just written: they are columnar, and have each key once.
            entries = rows_of(
                work.spark,
                work.cache,
                work.schema,
                table.segments,
                impl.names,
                after=BEGINNING,
                upto=PENDING,
            )
            indexes[index] = write_sorted(
                entries, work.cache, impl, name, role="log", fresh=True, plain=True, here=work.here
            )
    return Outcome(table, indexes)


def _load(work: _Work) -> Written:
    schema = work.schema
    write = partial(
        write_sorted,
        cache=work.cache,
        schema=schema,
        name_prefix=work.name,
        role="log",
        plain=work.op == "U",
        here=work.here,
    )
    if work.op != "E":
        # Repeated keys are rare, and detecting them afterwards is cheaper than numbering the rows first.
        with suppress(RepeatedKey):
            values = {name: kind for name, kind in work.kinds.items() if name not in schema.key}
            # Values are checked after the exchange. Before it, Spark would check them twice, because it
            # samples the ranges first.
            rows = arrange(cast_columns(work.incoming, schema, work.kinds, schema.key, list(values)), schema)
            log = _new_rows(work, cast_columns(rows, schema, values, work.columns))
            return write(log, fresh=True, in_order=True, once=True)
    once = once_per_key(work.cast_rows().repartitionByRange(*map(col, schema.key)), schema, work.mode)
    log = _new_rows(work, once.sortWithinPartitions(*map(col, schema.key)))
    return write(log, fresh=work.op != "E", in_order=True)


def _new_rows(work: _Work, rows: DataFrame) -> DataFrame:
    no_hash = F.lit(None).cast("bigint")
    return rows.select(
        *(work.image(name, of_old=False).alias(name) for name in work.schema.names),
        F.lit(work.op).alias(OP),
        no_hash.alias(WAS_HI),
        no_hash.alias(WAS_LO),
    )


def _into_rows(work: _Work, few: Few) -> Outcome | pa.Table:
    """Write to a table with rows: join each new row with its old row, then derive the index changes."""
    schema = work.schema
    # Persisted, because it is used more than once and a caller's query might return other rows the second
    # time.
    with _persist(once_per_key(work.cast_rows(), schema, work.mode)) as now:
        key = F.struct(*map(col, schema.key))
        size = F.coalesce(F.sum(_long_bytes(schema, now.columns)), F.lit(0))
        whole = now.agg(
            F.count(F.lit(1)).alias(_COUNT), size.alias(_SIZE), F.array(F.min(key), F.max(key)).alias(_ENDS)
        )
        # One job with two rows: the first and the last key.
        ends = whole.select(_COUNT, _SIZE, F.inline(_ENDS)).toArrow()
        count, bytes_ = (ends.column(name)[0].as_py() for name in (_COUNT, _SIZE))
        if not count:
            return Outcome()
        if count <= few.rows and bytes_ <= few.bytes:
            return now.toArrow().cast(pa.schema([(name, schema[name].type.arrow) for name in now.columns]))
        lower, upper = keys_from(ends, schema)
        chain = work.state.chain.narrow(KeyRange(lower, upper, closed=True))
        near = replace(work.state, chain=chain)
        old = scan(work.spark, work.cache, near)
        if count <= BROADCAST_ROWS:
            old = old.join(F.broadcast(rename_keys(now, schema.key)), same_key(schema), "left_semi")
        pairs = now.join(_old_side(work, old), same_key(schema), "inner" if work.only_existing else "left")
        log = pairs.select(
            *(_check_absent(work, name).alias(name) for name in schema.names),
            F.lit(work.op).alias(OP),
            col(WAS_HI),
            col(WAS_LO),
            *(col(other_side(name)) for name in work.watched_columns()),
        )
        if not work.indexes:
            return Outcome(write_sorted(log, work.cache, schema, work.name, role="log", here=work.here))
        with _persist(log) as kept:
            write = partial(write_sorted, cache=work.cache, role="log", here=work.here)
            table = write(kept, schema=schema, name_prefix=work.name)
            indexes = {
                index: write(index_log(kept, schema, impl), schema=impl, name_prefix=name)
                for name, index, impl in work.indexes
            }
            return Outcome(table, indexes)


def _long_bytes(schema: TableSchema, names: Iterable[str]) -> Column:
    """Return the size of a row's columns of variable length, in bytes."""
    sizes = [
        F.coalesce(F.octet_length(col(name)).cast("bigint"), F.lit(0))
        for name in names
        if schema[name].type.kind in ("text", "bytes", "json")
    ]
    return reduce(Column.__add__, sizes, F.lit(0))


def _check_absent(work: _Work, name: str) -> Column:
    value = work.image(name, of_old=True)
    return (
        refuse_present(work.schema, col(WAS_HI).isNotNull(), value)
        if work.mode == "INSERT" and name == work.schema.key[0]
        else value
    )


def _old_side(work: _Work, old: DataFrame) -> DataFrame:
    """Select what is needed of the old rows: key, hash, and values that are kept or indexed."""
    kept = (
        [n for n in work.schema.names if n not in work.columns and n not in work.schema.key]
        if work.keeps
        else []
    )
    names = list(dict.fromkeys([*work.schema.key, *kept, *work.watched_columns()]))
    high, low = hash_columns(work.schema, col)
    return old.select(*(col(n).alias(other_side(n)) for n in names), high.alias(WAS_HI), low.alias(WAS_LO))


def index_log(log: DataFrame, schema: TableSchema, impl: TableSchema) -> DataFrame:
    """Return the changes of an index that follow from a table's log.

    The log also has the old values of the index's columns, as ``other_side``.
    """

    def was(name: str) -> Column:
        return col(name) if name in schema.key else col(other_side(name))

    def same(names: Sequence[str]) -> Column:
        whole = F.lit(True)
        for name in names:
            whole = whole & col(name).eqNullSafe(was(name))
        return whole

    high, low = hash_columns(impl, was)
    had, has = col(WAS_HI).isNotNull(), col(OP) != "E"
    stays = had & has & same([n for n in impl.key if n not in schema.key])
    values = [c.name for c in impl.value_columns]
    gone = log.where(had & ~stays).select(
        *(was(name).alias(name) for name in impl.key),
        *(_null(impl[name]).alias(name) for name in values),
        F.lit("E").alias(OP),
        high.alias(WAS_HI),
        low.alias(WAS_LO),
    )
    come = log.where(has & ~(stays & same(values))).select(
        *map(col, impl.names),
        F.lit("U").alias(OP),
        F.when(stays, high).alias(WAS_HI),
        F.when(stays, low).alias(WAS_LO),
    )
    return union([gone, come])


def collapse(
    spark: SparkSession,
    cache: SegmentCache,
    schema: TableSchema,
    segments: Sequence[Segment],
    name: str,
    *,
    here: int,
) -> tuple[Segment, ...]:
    """Merge the pending segments of several statements: the last image of each key.

    WAS columns are the hash of the row before the first change. Up to ``here`` bytes are described in this
    process.
    """
    ordered = sorted(segments, key=lambda s: s.upto)
    with working(spark):
        folded = fold(spark, cache, schema, ordered, after=BEGINNING, upto=PENDING)
        return write_sorted(folded, cache, schema, name, role="log", here=here).segments


def _null(column: TableColumn) -> Column:
    return F.lit(None).cast(spark_type(column.type))


@contextmanager
def _persist(df: DataFrame) -> Iterator[DataFrame]:
    df = df.persist()
    try:
        yield df
    finally:
        df.unpersist()


@contextmanager
def _undone(files: Files, folders: Sequence[str]) -> Iterator[None]:
    """Delete the folders if the block raises: a partial write is useless."""
    try:
        yield
    except BaseException:
        for folder in folders:
            with suppress(StrandlineError):
                files.remove_tree(folder)
        raise
