"""All entries of an index, derived from the rows of its table."""

from __future__ import annotations

import pyarrow as pa

from strandline.model import STEP, State, TableSchema
from strandline.storage.arrow.scan import scan
from strandline.storage.digest import digest_of, row_hashes
from strandline.storage.rows import Written
from strandline.storage.segment import write_segment
from strandline.storage.shelf import Shelf

__all__ = ["entries"]


def entries(shelf: Shelf, state: State, impl: TableSchema, name: str) -> Written:
    """Return base segments with the entries of an index for the table's state, whose step is also the step of
    each entry, and their digest."""
    rows = scan(shelf, state, impl.names)
    if rows.num_rows == 0:
        return Written()
    digest = digest_of(*row_hashes(impl, {n: rows[n] for n in impl.names}))
    stepped = rows.append_column(STEP, pa.array([state.chain.step] * rows.num_rows, pa.int64()))
    segment = write_segment(
        shelf.files,
        impl,
        stepped,
        name=f"{name}.parquet",
        role="base",
        fresh=True,
        stepped=True,
        upto=state.chain.step,
    )
    return Written((segment,), digest)
