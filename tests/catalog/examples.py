"""Tables, segments and commits for tests that never read a file."""

from __future__ import annotations

import itertools
from collections.abc import Sequence

from sqlalchemy import Connection

from strandline.catalog import chains, commits, definitions
from strandline.catalog.commits import TableChange
from strandline.catalog.connection import Catalog
from strandline.catalog.definitions import TableDefinition
from strandline.catalog.tables import TableInfo
from strandline.catalog.transactions import current_step
from strandline.model import PENDING, Digest, IndexDef, Role, Segment, TableSchema
from strandline.types import parse_type

SCHEMA = TableSchema.of(
    [("k", parse_type("Int64"), True), ("v", parse_type("Utf8"), False), ("n", parse_type("Int32"), False)],
    ("k",),
)
BY_V = IndexDef(name="by_v", kind="GLOBAL SYNC", columns=("v",), cover=("n",))
BY_N = IndexDef(name="by_n", kind="GLOBAL ASYNC", columns=("n",))

_numbers = itertools.count(1)


def segment(
    rows: int = 1,
    *,
    file: bool = False,
    role: Role = "log",
    fresh: bool = False,
    after: int = 0,
    upto: int = PENDING,
) -> Segment:
    """Return a segment that is not in the catalog yet."""
    number = next(_numbers)
    name = f"data/1/s-{number}.parquet" if file else None
    data = None if file else b"x" * number
    return Segment(
        id=0,
        role=role,
        fresh=fresh,
        stepped=upto != PENDING,
        after=after,
        upto=upto,
        rows=rows,
        bytes=10,
        file=name,
        checksum=f"sum-{number}",
        min_key=(number,),
        max_key=(number,),
        data=data,
    )


def create(catalog: Catalog, path: str = "/t", indexes: Sequence[IndexDef] = ()) -> TableInfo:
    with catalog.write() as tx:
        return definitions.create(tx, TableDefinition(path, SCHEMA, tuple(indexes)))


def commit(
    catalog: Catalog, table: TableInfo, *new: Segment, read_step: int | None = None, value: int = 1
) -> int:
    """Commit segments to a table, and return the step."""
    rows = sum(s.rows for s in new)
    with catalog.write() as tx:
        read = current_step(tx.conn) if read_step is None else read_step
        return commits.commit(tx, [TableChange(table.id, table.version, read, new, Digest(rows, value))])


def checksums(conn: Connection, table: TableInfo, step: int) -> list[str]:
    return [s.checksum for s in chains.load(conn, table.id, step).segments]
