"""Row hashes and digests in Arrow, bit for bit equal to Spark's (``spark.hashes``).

The hash of a row has 128 bits: two chains of XXH64, as Spark's ``xxhash64`` function computes them. Each
value is hashed with the hash so far as its seed; the first seed is 42.

1. One chain starts with the bigint 1 and gives the high half; the other starts with 2 and gives the low half.
2. Then each chain hashes the key columns in key order, and the value columns by ascending id.
3. A column that is not NULL adds an int tag, then its value in the physical type. The tag is -1, -2, ... by
   position for key columns, and the column's id for value columns. NULL adds nothing.

So adding a column changes no hash, and the order of columns in a file does not matter. Stored digests depend
on every bit of this: it MUST NOT change.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, TypeAlias

import numpy as np
import pyarrow as pa
import xxhash

from strandline.model import Column, Digest, TableSchema
from strandline.storage.files import PREFIX
from strandline.types import Type
from strandline.types.arrays import decimal_words

Words: TypeAlias = np.ndarray[Any, np.dtype[np.uint64]]
Signed: TypeAlias = np.ndarray[Any, np.dtype[np.int64]]
Bools: TypeAlias = np.ndarray[Any, np.dtype[np.bool_]]
Link: TypeAlias = Callable[[Words], None]
"""One step of both chains: hashes values with the previous hashes as seeds, and overwrites these hashes."""
Octets: TypeAlias = np.ndarray[Any, np.dtype[np.uint8]]
Rows: TypeAlias = "slice | np.ndarray[Any, np.dtype[np.intp]] | Bools"

HIGH, LOW = 1, 2
"""Start values of the two chains."""
SPARK_SEED = 42
_STARTS = np.array([[HIGH], [LOW]], np.uint64)
BLOCK = 16384
"""Rows hashed at a time, so that intermediate values stay in the processor's cache."""
FEW, LONG = 128, 256
"""Fewer than ``FEW`` values, and values longer than ``LONG`` bytes, are hashed one by one, not vectorised."""
_EVERY = slice(None)

_P1 = np.uint64(0x9E3779B185EBCA87)
_P2 = np.uint64(0xC2B2AE3D27D4EB4F)
_P3 = np.uint64(0x165667B19E3779F9)
_P4 = np.uint64(0x85EBCA77C2B2AE63)
_P5 = np.uint64(0x27D4EB2F165667C5)
_LANES = tuple(np.uint64(start % 2**64) for start in (int(_P1) + int(_P2), int(_P2), 0, -int(_P1)))


def tag_columns(schema: TableSchema) -> Iterator[tuple[int, Column]]:
    """Yield each column with the int that is hashed before its value, in hashing order.

    The int (tag) is -1, -2, ... for key columns, and the column's id for value columns.
    """
    yield from ((-1 - position, column) for position, column in enumerate(schema.key_columns))
    yield from ((column.id, column) for column in sorted(schema.value_columns, key=lambda c: c.id))


def row_hashes(schema: TableSchema, columns: Mapping[str, pa.Array | pa.ChunkedArray]) -> tuple[Words, Words]:
    """Return the high and low halves of each row's hash.

    ``columns`` holds physical arrays by column name. A missing value column counts as NULL.
    """
    (both,) = _hash_rows([schema], columns)
    return both[0], both[1]


def row_digests(
    schemas: Sequence[TableSchema], columns: Mapping[str, pa.Array | pa.ChunkedArray]
) -> list[Digest]:
    """Return the digest of the rows for each schema, for example of a table and of its indexes."""
    return [digest_of(*both) for both in _hash_rows(schemas, columns)]


def _hash_rows(
    schemas: Sequence[TableSchema], columns: Mapping[str, pa.Array | pa.ChunkedArray]
) -> list[Words]:
    """Return for each schema the hashes of the rows.

    Each result is an array of shape (2, number of rows): first the high halves, then the low halves.
    """
    names = {c.name for of in schemas for c in of.columns if c.name in columns or c.name in of.key}
    arrays = {name: _whole(columns[name]) for name in names}
    rows = len(columns[schemas[0].key[0]])
    found = [np.empty((2, rows), np.uint64) for _ in schemas]
    for first in range(0, rows, BLOCK):
        block = _Block({name: array.slice(first, BLOCK) for name, array in arrays.items()})
        for schema, hashes in zip(schemas, found, strict=True):
            block.hash(schema, hashes[:, first : first + BLOCK])
    return found


def _whole(array: pa.Array | pa.ChunkedArray) -> pa.Array:
    if not isinstance(array, pa.ChunkedArray):
        return array
    return array.chunk(0) if array.num_chunks == 1 else array.combine_chunks()


class _Block:
    """One block of rows. Prepares the step of each column once, for all schemas."""

    def __init__(self, arrays: Mapping[str, pa.Array]) -> None:
        self._arrays = arrays
        self._links: dict[str, tuple[Bools | slice, Link] | None] = {}

    def hash(self, schema: TableSchema, hashes: Words) -> None:
        """Write the hashes of the rows into ``hashes``, an array of shape (2, number of rows)."""
        links = [
            (_ints(np.array([tag % 2**32], np.uint64)), *found)
            for tag, column in tag_columns(schema)
            if (found := self._is_known(column)) is not None
        ]
        same = np.full((2, 1), SPARK_SEED, np.uint64)
        _longs(_STARTS)(same)
        if begins_alike := bool(links) and isinstance(links[0][1], slice):
            links[0][0](same)  # Before the first value, all rows have the same hash: compute it once.
        hashes[:] = same
        for number, (tag, present, link) in enumerate(links):
            some = hashes[:, present]
            if number or not begins_alike:
                tag(some)
            link(some)
            if not isinstance(present, slice):
                hashes[:, present] = some

    def _is_known(self, column: Column) -> tuple[Bools | slice, Link] | None:
        if column.name not in self._links:
            self._links[column.name] = self._link(column) if column.name in self._arrays else None
        return self._links[column.name]

    def _link(self, column: Column) -> tuple[Bools | slice, Link] | None:
        array = self._arrays[column.name]
        if array.null_count == len(array):
            return None
        if not array.null_count:
            return _EVERY, _link(column.type, array)
        present = array.is_valid().to_numpy(zero_copy_only=False)
        return present, _link(column.type, array.drop_null())


def digest_of(high: Words, low: Words) -> Digest:
    """Return the digest of rows from their hashes."""
    return Digest(len(high), (_total(high) * 2**64 + _total(low)) % 2**128)


def to_signed(words: Words) -> Signed:
    """Return halves of hashes as signed integers, the form in which WAS columns store them."""
    return words.view(np.int64)


def to_unsigned(numbers: Signed) -> Words:
    """Reverse ``to_signed``."""
    return numbers.view(np.uint64)


def _total(words: Words) -> int:
    # Sums of 32-bit halves cannot overflow below 2**32 rows.
    return int((words >> np.uint64(32)).sum()) * 2**32 + int((words & np.uint64(0xFFFFFFFF)).sum())


def _link(type_: Type, array: pa.Array) -> Link:
    """Return the step that hashes an array without NULLs."""
    physical = type_.arrow
    match type_.kind:
        case "bool":
            return _ints(array.cast(pa.uint8()).to_numpy().astype(np.uint64))
        case "float":
            return _floats(array)
        case "bytes" | "text" | "json":
            return _bytes(array.cast(pa.binary()))
        case "date":
            return _ints(_low_32(array.view(pa.int32())))
        case "time":
            return _longs(array.view(pa.int64()).to_numpy().view(np.uint64))
    if not pa.types.is_decimal(physical):
        return _longs(array.to_numpy().view(np.uint64)) if physical == pa.int64() else _ints(_low_32(array))
    if physical.precision <= 18:
        return _longs(np.ascontiguousarray(decimal_words(array)[:, 0]))
    return _bytes(pa.array(_java_bytes(decimal_words(array)), pa.binary()))


def _low_32(array: pa.Array) -> Words:
    return array.to_numpy().astype(np.int32).view(np.uint32).astype(np.uint64)  # type: ignore[no-any-return]


def _floats(array: pa.Array) -> Link:
    """Return the step that hashes the bits of floats.

    As in Spark, all NaNs have the same hash, and so have -0.0 and 0.0.
    """
    values = array.to_numpy().copy()
    values[values == 0] = 0
    values[np.isnan(values)] = np.nan
    if values.dtype == np.float32:
        return _ints(values.view(np.uint32).astype(np.uint64))
    return _longs(values.view(np.uint64))


def _java_bytes(words: Words) -> list[bytes]:
    """Return each number as ``BigInteger.toByteArray`` does: shortest two's complement, big-endian."""
    numbers = [
        high * 2**64 + low
        for low, high in zip(words[:, 0].tolist(), words[:, 1].view(np.int64).tolist(), strict=True)
    ]
    return [n.to_bytes((n if n >= 0 else ~n).bit_length() // 8 + 1, "big", signed=True) for n in numbers]


# --- XXH64 of many values, in place ------------------------------------------------------------------------


def _longs(values: Words) -> Link:
    """Return the step that hashes little-endian integers of 8 bytes."""
    mixed = _mix_word(values)

    def link(hashes: Words) -> None:
        hashes += _P5 + np.uint64(8)
        _add_word(hashes, mixed)
        _finish(hashes)

    return link


def _ints(values: Words) -> Link:
    """Return the step that hashes little-endian integers of 4 bytes."""
    mixed = values * _P1

    def link(hashes: Words) -> None:
        hashes += _P5 + np.uint64(4)
        _add_half(hashes, mixed)
        _finish(hashes)

    return link


def _bytes(array: pa.Array) -> Link:
    """Return the step that hashes byte strings of any length."""
    _, offsets, data = array.buffers()
    ends = np.frombuffer(offsets, np.int32)[array.offset : array.offset + len(array) + 1].astype(np.int64)
    starts, lengths = ends[:-1], np.diff(ends)
    short = lengths <= LONG
    if np.count_nonzero(short) < FEW:
        return _singly(array)
    content = np.frombuffer(data or b"", np.uint8)
    if short.all():
        return _together(content, starts, lengths)
    parts = (
        (np.flatnonzero(short), _together(content, starts[short], lengths[short])),
        (np.flatnonzero(~short), _singly(array.filter(pa.array(~short)))),
    )

    def link(hashes: Words) -> None:
        for rows, part in parts:
            _change(hashes, rows, part)

    return link


def _singly(array: pa.Array) -> Link:
    digest, values = xxhash.xxh64_intdigest, array.to_pylist()

    def link(hashes: Words) -> None:
        for chain in hashes:
            chain[:] = np.fromiter(map(digest, values, chain.tolist()), np.uint64, len(values))

    return link


def _together(content: Octets, starts: Signed, lengths: Signed) -> Link:
    """Return the step that hashes short byte strings, vectorised: one word of every value at a time."""
    begin, end = int(starts[0]), int(starts[-1] + lengths[-1])
    # Values are read from an array of aligned words. Each word of a value spans two aligned words, and all
    # words of one value are shifted by the same number of bits.
    stored = np.zeros((end - begin) // 8 + 8, np.uint64)
    stored.view(np.uint8)[: end - begin] = content[begin:end]
    at, left = (starts - begin) >> 3, lengths.copy()
    shift = ((starts - begin) & 7).astype(np.uint64) << np.uint64(3)

    def read(rows: Rows, count: int) -> list[Words]:
        place, down = at[rows], shift[rows]
        up = np.uint64(63) - down
        found, low = [], stored[place]
        for _ in range(count):
            place = place + 1
            high = stored[place]
            found.append((low >> down) | (high << np.uint64(1) << up))
            low = high
        return found

    def parts(words: int) -> Iterator[tuple[Rows, list[Words]]]:
        while (enough := left >= 8 * words).any():
            yield (rows := _select_rows(enough)), read(_prepare_rows(rows), words)
            at[rows] += words
            left[rows] -= 8 * words

    stripes = [(rows, [word * _P2 for word in words]) for rows, words in parts(4)]
    steps: list[tuple[Callable[[Words, Words], None], Rows, Words]] = [
        (_add_word, rows, _mix_word(word)) for rows, (word,) in parts(1)
    ]
    (last,) = read(_EVERY, 1)
    if (half := left >= 4).any():
        rows = _select_rows(half)
        steps.append((_add_half, rows, (last[_prepare_rows(rows)] & np.uint64(2**32 - 1)) * _P1))
        last[rows] >>= np.uint64(32)
        left[rows] -= 4
    while (some := left > 0).any():
        rows = _select_rows(some)
        steps.append((_add_octet, rows, (last[_prepare_rows(rows)] & np.uint64(255)) * _P5))
        last >>= np.uint64(8)
        left -= 1
    sizes = lengths.astype(np.uint64)

    def link(hashes: Words) -> None:
        if stripes:
            lanes = [hashes + start for start in _LANES]
            for rows, coming in stripes:
                for lane, word in zip(lanes, coming, strict=True):
                    _change(lane, rows, _add_to_lane, word)
        hashes += _P5
        if stripes:
            rows = stripes[0][0]
            hashes[:, rows] = _join(lanes)[:, rows]
        hashes += sizes
        for add, rows, mixed in steps:
            _change(hashes, rows, add, mixed)
        _finish(hashes)

    return link


def _select_rows(which: Bools) -> Rows:
    """Return a row selection in the form that ``_change`` handles fastest.

    The form is a slice for all rows, a mask for many rows, and row numbers for few rows. With a mask,
    ``_change`` computes all rows and copies the selected ones.
    """
    count = np.count_nonzero(which)
    return _EVERY if count == len(which) else which if count > len(which) // 4 else np.flatnonzero(which)


def _prepare_rows(rows: Rows) -> Rows:
    """Return the index of the rows that ``_change`` passes to its function.

    For a slice or a mask ``_change`` passes all rows; for row numbers it passes only these rows.
    """
    return _EVERY if isinstance(rows, slice) or rows.dtype == np.bool_ else rows


def _change(hashes: Words, rows: Rows, change: Callable[..., None], *given: Words) -> None:
    """Apply a change to some of the rows, in place."""
    if isinstance(rows, slice):
        change(hashes, *given)
    elif rows.dtype == np.bool_:
        changed = hashes.copy()
        change(changed, *given)
        np.copyto(hashes, changed, where=rows)
    else:
        some = hashes[:, rows]
        change(some, *given)
        hashes[:, rows] = some


def _mix_word(words: Words) -> Words:
    mixed: Words = words * _P2
    _rotate(mixed, 31)
    mixed *= _P1
    return mixed


def _add_word(hashes: Words, mixed: Words) -> None:
    hashes ^= mixed
    _rotate(hashes, 27)
    hashes *= _P1
    hashes += _P4


def _add_half(hashes: Words, mixed: Words) -> None:
    hashes ^= mixed
    _rotate(hashes, 23)
    hashes *= _P2
    hashes += _P3


def _add_octet(hashes: Words, mixed: Words) -> None:
    hashes ^= mixed
    _rotate(hashes, 11)
    hashes *= _P1


def _add_to_lane(lane: Words, mixed: Words) -> None:
    lane += mixed
    _rotate(lane, 31)
    lane *= _P1


def _join(lanes: Sequence[Words]) -> Words:
    joined = np.zeros_like(lanes[0])
    for lane, bits in zip(lanes, (1, 7, 12, 18), strict=True):
        joined += (lane << np.uint64(bits)) | (lane >> np.uint64(64 - bits))
    for lane in lanes:
        joined ^= _mix_word(lane)
        joined *= _P1
        joined += _P4
    return joined


def _finish(hashes: Words) -> None:
    shifted = hashes >> np.uint64(33)
    hashes ^= shifted
    hashes *= _P2
    np.right_shift(hashes, np.uint64(29), out=shifted)
    hashes ^= shifted
    hashes *= _P3
    np.right_shift(hashes, np.uint64(32), out=shifted)
    hashes ^= shifted


def _rotate(words: Words, bits: int) -> None:
    carried = words >> np.uint64(64 - bits)
    words <<= np.uint64(bits)
    words |= carried


def checksum_of(data: bytes) -> str:
    """Return the checksum of a file's content, in the form of ``Segment.checksum``."""
    return PREFIX + xxhash.xxh3_128_hexdigest(data)
