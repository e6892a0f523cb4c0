"""How many rows a row group of a segment file has."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pytest

from strandline.storage.parquet import CHUNK_BYTES, GROUP_BYTES, MANY_BYTES, ParquetFile
from tests.storage.examples import schema

ROWS = 20_000


def bytes_per_group(columns: int, *, width: int = 8) -> int:
    """Return the size of a row group of rows with a key and whole numbers, or texts of ``width`` bytes."""
    number = pa.array(np.arange(ROWS))
    value = number if width == 8 else pa.array(["x" * (width - 4)] * ROWS)
    table = pa.table({f"c{i}": number if i == 0 else value for i in range(columns)})
    made = schema(*(f"c{i} {'Int64' if i == 0 or width == 8 else 'Utf8'}" for i in range(columns)), key="c0")
    return ParquetFile(table, made, ROWS).group_rows * table.nbytes // ROWS


@pytest.mark.parametrize("columns", [2, 20, 100])
def test_a_row_group_has_a_limited_size(columns: int) -> None:
    assert bytes_per_group(columns) <= GROUP_BYTES
    assert bytes_per_group(3, width=1000) <= GROUP_BYTES


@pytest.mark.parametrize("columns", [200, 500, 1000])
def test_the_columns_of_a_wide_table_are_not_stored_in_tiny_pieces(columns: int) -> None:
    assert bytes_per_group(columns) // columns == pytest.approx(CHUNK_BYTES, rel=0.02)


def test_the_row_groups_of_a_very_wide_table_have_a_limited_size() -> None:
    assert bytes_per_group(2000) <= MANY_BYTES
