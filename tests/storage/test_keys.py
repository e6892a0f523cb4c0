"""Searches for keys: the binary search finds what the hash table finds."""

from __future__ import annotations

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from strandline.storage.keys import match, match_sorted

KEYS = st.integers(-5, 5)


@given(st.lists(KEYS), st.sets(KEYS), st.integers(0, 3))
def test_a_binary_search_finds_the_same_rows(rows: list[int], wanted: set[int], cut: int) -> None:
    ordered = sorted(rows)
    columns = [pa.chunked_array([ordered[:cut], ordered[cut:]], pa.int32())]
    keys = [pa.array(sorted(wanted), pa.int32())]
    for expected, found in zip(match(columns, keys), match_sorted(columns, keys), strict=True):
        assert found.tolist() == expected.tolist()


@pytest.mark.parametrize(
    "columns",
    [
        [pa.chunked_array([["a", "b", "b"]])],
        [pa.chunked_array([[None, 1, 2]], pa.int64())],
        [pa.chunked_array([[1, 1, 2]]), pa.chunked_array([[1, 2, 1]])],
    ],
)
def test_other_keys_are_found_as_well(columns: list[pa.ChunkedArray]) -> None:
    keys = [column.take(pa.array([1, 2])).combine_chunks() for column in columns]
    keys = [key.unique() if len(keys) == 1 else key for key in keys]
    for expected, found in zip(match(columns, keys), match_sorted(columns, keys), strict=True):
        assert found.tolist() == expected.tolist()
