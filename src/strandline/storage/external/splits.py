"""Byte ranges of CSV and JSON-lines files that begin and end with a row.

The ranges of a file are found in two steps:

1. The file is cut into ranges of equal size, which are analysed independently (``cut_range``). The result for
   a range (``RangeCut``) says where its first row begins if the range begins outside quotes, and if it begins
   inside quotes. It also says whether all quotes are at places where CSV allows quotes.
2. The results are joined in order (``split_at``). The number of quotes before a range tells whether the range
   begins inside quotes.

A CSV file with quotes at other places is not split, because readers interpret such quotes in different ways.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

import numpy as np
import numpy.typing as npt

from strandline.storage.external.locations import File, read_failures

__all__ = ["ByteRange", "RangeCut", "cut_range", "divide", "split_at"]

MAX_RANGES = 8192
"""Maximum number of ranges of a file. The ranges of a large file are larger than wanted."""
BLOCK_BYTES = 8 << 20
"""Number of bytes of a range that are in memory at a time."""
_LF, _CR, _QUOTE = b'\n\r"'


@dataclass(frozen=True)
class ByteRange:
    """A byte range of a file, before its rows are found.

    Attributes:
        file: the whole file.
        start: position of the first byte.
        end: position after the last byte.
        size: size of the file.
        delimiter: the delimiter of a CSV file. None: the file has JSON lines.
    """

    file: File
    start: int
    end: int
    size: int
    delimiter: str | None


@dataclass(frozen=True)
class _Begin:
    """The first row of a range, on the assumption that the range begins outside quotes, or inside quotes.

    Attributes:
        is_regular: with this assumption, all quotes are at places where CSV allows quotes.
        row: position after the first line break outside quotes. None: there is no such line break.
        lines: number of line breaks in the range before ``row``.
    """

    is_regular: bool = True
    row: int | None = None
    lines: int = 0


@dataclass(frozen=True)
class RangeCut:
    """What ``cut_range`` found in a range.

    It is not known yet whether the range begins inside quotes. So its first row is found for both cases.

    Attributes:
        begins: the first row in each case. First element: the range begins outside quotes. Second element: it
            begins inside quotes.
        quotes: number of quotes in the range.
        lines: number of line breaks in the range.
    """

    begins: tuple[_Begin, _Begin]
    quotes: int
    lines: int


def divide(file: File, most: int, delimiter: str | None) -> list[ByteRange]:
    """Return ranges of a file, each of about ``most`` bytes; an empty list if the file is not split."""
    if file.codec is not None:
        return []
    size = file.size
    step = max(most, -(-size // MAX_RANGES), 1)
    starts = range(0, size, step)
    return (
        [ByteRange(file, at, min(at + step, size), size, delimiter) for at in starts]
        if len(starts) > 1
        else []
    )


def cut_range(range_: ByteRange) -> RangeCut:
    """Analyse a range: count its quotes and line breaks, and find its first row."""
    made = RangeCut((_Begin(), _Begin()), 0, 0)
    with read_failures(range_.file.name), range_.file.whole() as stream:
        for at in range(range_.start, range_.end, BLOCK_BYTES):
            end = min(at + BLOCK_BYTES, range_.end)
            first, last = max(at - 1, 0), min(end + 1, range_.size)
            stream.seek(first)
            data = np.frombuffer(stream.read(last - first), np.uint8)
            # The block, with one byte before it and one after it: line breaks at the ends of the file.
            padded = np.full(end - at + 2, _LF, np.uint8)
            padded[first - at + 1 : first - at + 1 + len(data)] = data
            made = _join(made, _cut_block(padded, at, range_.delimiter))
    return made


def _cut_block(padded: npt.NDArray[np.uint8], at: int, delimiter: str | None) -> RangeCut:
    block = padded[1:-1]
    breaks = np.flatnonzero(block == _LF)
    if delimiter is None:
        first = _Begin(row=None if not len(breaks) else at + int(breaks[0]) + 1, lines=min(len(breaks), 1))
        return RangeCut((first, first), 0, len(breaks))
    quotes = np.flatnonzero(block == _QUOTE)
    ends = block == _LF
    ends |= (block == _CR) & (padded[2:] != _LF)
    before = np.searchsorted(quotes, breaks) if len(quotes) else np.zeros(len(breaks), np.int64)
    at_edge = np.array([_LF, _CR, _QUOTE, *delimiter.encode()], np.uint8)
    starts, stops = np.isin(padded[quotes], at_edge), np.isin(padded[quotes + 2], at_edge)
    begins = []
    for inside in (0, 1):
        opens = np.arange(len(quotes)) % 2 == inside
        # An opening quote is at the start of a value, or follows the closing quote that it escapes.
        is_regular = bool(np.all(np.where(opens, starts, stops)))
        outside = breaks[before % 2 == inside]
        row = int(outside[0]) + 1 if len(outside) else None
        lines = 0 if row is None else int(np.count_nonzero(ends[:row]))
        begins.append(_Begin(is_regular, None if row is None else at + row, lines))
    return RangeCut((begins[0], begins[1]), len(quotes), int(np.count_nonzero(ends)))


def _join(one: RangeCut, two: RangeCut) -> RangeCut:
    def begin(inside: int) -> _Begin:
        first, then = one.begins[inside], two.begins[(inside + one.quotes) % 2]
        is_regular = first.is_regular and then.is_regular
        if first.row is not None:
            return replace(first, is_regular=is_regular)
        return _Begin(is_regular, then.row, one.lines + then.lines)

    return RangeCut((begin(0), begin(1)), one.quotes + two.quotes, one.lines + two.lines)


def split_at(ranges: Sequence[ByteRange], cuts: Sequence[RangeCut]) -> list[File]:
    """Return the parts of a file that begin and end with a row; the whole file if its quotes are not regular.

    Args:
        ranges: all ranges of the file.
        cuts: the result of ``cut_range`` for each range.
    """
    file = ranges[0].file
    found = list(_begins(cuts))
    if sum(cut.quotes for cut in cuts) % 2 or not all(begin.is_regular for begin, _ in found):
        return [file]
    rows = [(0, 0), *((b.row, before + b.lines) for b, before in found[1:] if b.row is not None)]
    rows = [row for row in dict(rows).items() if row[0] < ranges[0].size]
    ends = [start for start, _ in rows[1:]] + [ranges[0].size]
    return [
        replace(file, start=start, end=end, lines=lines)
        for (start, lines), end in zip(rows, ends, strict=True)
    ]


def _begins(cuts: Sequence[RangeCut]) -> Iterator[tuple[_Begin, int]]:
    """Yield for each range the element of ``begins`` that applies, and the number of line breaks before.

    The number counts all line breaks of the file before the range.
    """
    quotes = lines = 0
    for cut in cuts:
        yield cut.begins[quotes % 2], lines
        quotes += cut.quotes
        lines += cut.lines
