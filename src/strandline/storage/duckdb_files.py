"""Divide a state between DuckDB, which reads large files itself, and this process, which reads the rest.

DuckDB reads a segment only if all of these hold:

1. Its file is in the warehouse's local folder, and is not encrypted.
2. The file is too large for the cache of small segments.
3. All of its rows belong to the state, except rows of keys that later segments change.
4. The content of the file has the checksum that the catalog recorded. Each process verifies this once.
5. Every column has the type that this version writes.

All other segments, and the changes of later segments, are read with Arrow. If later segments change keys, the
query for the files leaves out the rows of these keys.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

import pyarrow as pa

from strandline.model import BEGINNING, Segment, State, TableSchema, cover, split, visible
from strandline.storage.file_router import FileRouter
from strandline.storage.segment import footer_of, is_small, verify_file
from strandline.storage.segment_cache import SegmentCache
from strandline.types import Type

__all__ = ["FileGroup", "FileRows", "InputColumn", "divide"]

_GLOB = re.compile(r"[*?\[\]{}]")
"""Characters that DuckDB reads as a pattern of file names."""


@dataclass(frozen=True)
class InputColumn:
    """A column that DuckDB reads.

    Attributes:
        alias: its name in DuckDB.
        type: its type in Spark. The name of this type means the same in DuckDB.
    """

    name: str
    alias: str
    type: str

    def read(self, value: str) -> str:
        """Return the expression that reads a value of this column from a scan.

        Where DuckDB evaluates a condition while it scans, NaN is lost: statistics of files leave it out, and
        Arrow does not take it for the largest value. A condition on an expression is evaluated later.
        """
        if self.type not in ("float", "double"):
            return value
        return f"CASE WHEN isnan({value}) THEN CAST('nan' AS {self.type}) ELSE {value} END"


@dataclass(frozen=True)
class FileGroup:
    """Files with the same columns.

    Attributes:
        columns: the physical names of the columns.
        is_old: whether rows may be superseded by later changes.
    """

    paths: Sequence[str]
    columns: frozenset[str]
    is_old: bool


@dataclass(frozen=True)
class FileRows:
    """The rows of a state that DuckDB reads from files.

    Attributes:
        gone: the keys whose rows in old files are superseded, as columns ``c0``, ``c1`` and so on in the
            order of the key. None: no key.
    """

    schema: TableSchema
    groups: Sequence[FileGroup]
    gone: pa.Table | None = None

    def sql(self, columns: Sequence[InputColumn], gone: str) -> str:
        """Return the query for the rows.

        Args:
            columns: the columns of the query.
            gone: the name of the table of superseded keys in DuckDB.
        """
        return " UNION ALL ".join(self._select(columns, group, gone) for group in self.groups)

    def _select(self, columns: Sequence[InputColumn], group: FileGroup, gone: str) -> str:
        items = ", ".join(
            f"{_item(self.schema[c.name].physical, c, group.columns)} AS {c.alias}" for c in columns
        )
        files = ", ".join(_quote(path, "'") for path in group.paths)
        text = f"SELECT {items} FROM read_parquet([{files}], hive_partitioning = false) AS f"
        if self.gone is None or not group.is_old:
            return text
        same = " AND ".join(
            f"g.c{i} {'=' if c.not_null else 'IS NOT DISTINCT FROM'} f.{_quote(c.physical)}"
            for i, c in enumerate(self.schema.key_columns)
        )
        return f"{text} WHERE NOT EXISTS (SELECT 1 FROM {gone} AS g WHERE {same})"


def _item(physical: str, column: InputColumn, there: frozenset[str]) -> str:
    if physical not in there:
        return f"CAST(NULL AS {column.type})"
    return column.read(f"CAST(f.{_quote(physical)} AS {column.type})")


def divide(
    cache: SegmentCache, files: FileRouter, state: State, columns: Sequence[str]
) -> tuple[FileRows | None, State]:
    """Return the rows that DuckDB reads from files, and the state of the rows that this process reads.

    The files may have rows outside the state's range of keys, and the result does not say yet which keys are
    superseded.

    Args:
        columns: names of the columns that are read.
    """
    schema = state.schema
    types = {schema[name].physical: schema[name].type for name in (*columns, *schema.key)}
    before, _, after = split(visible(state.chain))
    found: dict[tuple[bool, frozenset[str]], list[str]] = {}
    taken = set[int]()
    for is_old, segments in ((True, before), (False, after)):
        for segment in segments:
            if (path := _path_of(cache, files, state, segment, types)) is not None:
                stored = footer_of(cache, segment).names
                found.setdefault((is_old, stored.intersection(types)), []).append(path)
                taken.add(id(segment))
    if not found:
        return None, state
    groups = [FileGroup(paths, there, is_old) for (is_old, there), paths in found.items()]
    rest = tuple(s for s in state.chain.segments if id(s) not in taken)
    return FileRows(schema, groups), replace(state, chain=replace(state.chain, segments=rest))


def _path_of(
    cache: SegmentCache, files: FileRouter, state: State, segment: Segment, types: Mapping[str, Type]
) -> str | None:
    """Return the path of a file that DuckDB may read; None for another segment.

    Args:
        types: the types of columns by their physical names.
    """
    if segment.file is None or is_small(segment) or cover(segment, BEGINNING, state.chain.step) != "all":
        return None
    path = files.warehouse_path(segment.file)
    if path is None or _GLOB.search(path):
        return None
    stored = verify_file(cache, segment).types
    return path if all(stored[name] == types[name].arrow for name in types if name in stored) else None


def _quote(text: str, mark: str = '"') -> str:
    return mark + text.replace(mark, 2 * mark) + mark
