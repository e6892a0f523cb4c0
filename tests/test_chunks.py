"""Long lists, a piece at a time."""

from __future__ import annotations

import pytest

from strandline.chunks import SIZE, batches, chunks


def test_what_fits_into_one_statement() -> None:
    assert [len(chunk) for chunk in chunks(range(2 * SIZE + 1))] == [SIZE, SIZE, 1]
    assert [number for chunk in chunks(range(SIZE + 1)) for number in chunk] == list(range(SIZE + 1))
    assert list(chunks([])) == []


@pytest.mark.parametrize(
    ("sizes", "together", "expected"),
    [
        ([], None, []),
        ([4, 6, 1], None, [[4, 6], [1]]),
        ([4, 7, 1, 2], None, [[4], [7, 1, 2]]),
        ([11, 1, 12], None, [[11], [1], [12]]),
        ([10, 10], None, [[10], [10]]),
        ([0, 0, 0, 0, 0], None, [[0, 0, 0, 0, 0]]),
        ([0, 0, 0, 0, 0], 2, [[0, 0], [0, 0], [0]]),
        ([9, 1, 9, 0, 0], 2, [[9, 1], [9, 0], [0]]),
    ],
)
def test_as_much_as_fits_and_one_at_least(
    sizes: list[int], together: int | None, expected: list[list[int]]
) -> None:
    assert list(batches(sizes, int, 10, together)) == expected
