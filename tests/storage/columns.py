"""Rows as columns, in the store's form."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pyarrow as pa

from strandline.model import TableSchema
from strandline.types.arrays import python_to_array


def table_of(schema: TableSchema, columns: Sequence[str], rows: Sequence[Sequence[Any]]) -> pa.Table:
    """Return rows of canonical values as a table with ``columns``."""
    return pa.table(
        {name: python_to_array(schema[name].type, [row[i] for row in rows]) for i, name in enumerate(columns)}
    )
