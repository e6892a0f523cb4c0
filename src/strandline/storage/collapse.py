"""One change per key out of the changes of several statements of one transaction."""

from __future__ import annotations

from collections.abc import Sequence

import pyarrow.compute as pc

from strandline.model import OP, PENDING, STEP, WAS_HI, Segment, TableSchema
from strandline.storage.chain import fold_logs
from strandline.storage.files import Files
from strandline.storage.segment import ERASE, write_segment


def collapse(
    files: Files,
    schema: TableSchema,
    segments: Sequence[Segment],
    name: str,
    inline_rows: int,
    inline_bytes: int,
) -> Segment:
    """The pending segments, in the order of their statements, as one: the last image of each key, and the
    hash of the row that was there before the first."""
    ordered = sorted(segments, key=lambda s: s.upto)
    rows = fold_logs(files, schema, ordered, ordered[-1].upto)
    fresh = not pc.any(pc.equal(rows[OP], ERASE)).as_py() and rows[WAS_HI].null_count == rows.num_rows
    return write_segment(
        files,
        schema,
        rows.drop_columns([STEP]),
        name=name,
        role="log",
        fresh=fresh,
        stepped=False,
        upto=PENDING,
        inline_rows=inline_rows,
        inline_bytes=inline_bytes,
    )
