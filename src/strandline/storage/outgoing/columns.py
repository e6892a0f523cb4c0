"""Columns of exported rows."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import pyarrow as pa

from strandline.types import Type
from strandline.types.arrays import to_outgoing

__all__ = ["OutgoingColumns"]


@dataclass(frozen=True)
class OutgoingColumns:
    """Converts physical columns to exported Arrow data, by position. Can be pickled.

    Attributes:
        types: the type of each column in its table. None: the column does not come from a table.
        schema: the names and the types of the exported columns.
    """

    types: Sequence[Type | None]
    schema: pa.Schema

    def convert(self, arrays: Sequence[pa.Array | pa.ChunkedArray]) -> pa.Table:
        """Return the columns under the names and in the types of the schema."""
        made = [
            array if type_ is None else to_outgoing(type_, array)
            for type_, array in zip(self.types, arrays, strict=True)
        ]
        cast = [a.cast(field.type) for a, field in zip(made, self.schema, strict=True)]
        return pa.Table.from_arrays(cast, schema=self.schema)
