"""Row hashes and digests in Arrow, bit for bit what Spark computes (see ``spark.hashes``).

The hash of a row is 128 bits, two chains of XXH64 as Spark's ``xxhash64`` function makes them (each value is
hashed with the hash so far as its seed, the first with 42): one chain starts with the bigint 1 and gives the
high half, the other starts with 2 and gives the low half. Then come the key columns in key order and the
value columns by ascending id. A column that is not NULL adds an int tag (-1, -2, ... by position for key
columns, the column's id for value columns) and its value in the physical type; a NULL adds nothing. So adding
a column changes no hash, and the order of columns in a file does not matter. Stored digests depend on every
bit of this: it MUST NOT change.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
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
Hasher: TypeAlias = Callable[[Words], Words]
"""The next link of a chain: seeds of the rows to their hashes."""

HIGH, LOW = 1, 2
"""What the two chains start with."""
SPARK_SEED = 42

_P1 = np.uint64(0x9E3779B185EBCA87)
_P2 = np.uint64(0xC2B2AE3D27D4EB4F)
_P3 = np.uint64(0x165667B19E3779F9)
_P4 = np.uint64(0x85EBCA77C2B2AE63)
_P5 = np.uint64(0x27D4EB2F165667C5)


def tagged(schema: TableSchema) -> Iterator[tuple[int, Column]]:
    """The columns with their tags, in the order of hashing."""
    yield from ((-1 - position, column) for position, column in enumerate(schema.key_columns))
    yield from ((column.id, column) for column in sorted(schema.value_columns, key=lambda c: c.id))


def row_hashes(schema: TableSchema, columns: Mapping[str, pa.Array | pa.ChunkedArray]) -> tuple[Words, Words]:
    """The high and low halves of the hash of each row. ``columns`` holds physical arrays by column name; a
    value column that is not in it counts as NULL."""
    rows = len(columns[schema.key[0]])
    high, low = (
        _ints(np.full(rows, start, np.uint64), 8)(np.full(rows, SPARK_SEED, np.uint64))
        for start in (HIGH, LOW)
    )
    for tag, column in tagged(schema):
        if column.name not in columns and column.name not in schema.key:
            continue
        array = columns[column.name]
        if isinstance(array, pa.ChunkedArray):
            array = array.combine_chunks()
        if array.null_count == rows:
            continue
        present: Bools | slice = slice(None)
        if array.null_count:
            present = array.is_valid().to_numpy(zero_copy_only=False)
            array = array.drop_null()
        tags = _ints(np.full(len(array), tag % 2**32, np.uint64), 4)
        link = _hasher(column.type, array)
        high[present] = link(tags(high[present]))
        low[present] = link(tags(low[present]))
    return high, low


def digest_of(high: Words, low: Words) -> Digest:
    """The digest of rows with these hashes."""
    return Digest(len(high), (_total(high) * 2**64 + _total(low)) % 2**128)


def signed(words: Words) -> Signed:
    """Halves of hashes as the signed integers that WAS columns hold."""
    return words.view(np.int64)


def unsigned(numbers: Signed) -> Words:
    """The reverse of ``signed``."""
    return numbers.view(np.uint64)


def _total(words: Words) -> int:
    # Sums of 32-bit halves cannot overflow below 2**32 rows.
    return int((words >> np.uint64(32)).sum()) * 2**32 + int((words & np.uint64(0xFFFFFFFF)).sum())


def _hasher(type_: Type, array: pa.Array) -> Hasher:
    """The link for an array without NULLs."""
    physical = type_.arrow
    match type_.kind:
        case "bool":
            return _ints(array.cast(pa.uint8()).to_numpy().astype(np.uint64), 4)
        case "float":
            return _floats(array)
        case "bytes" | "text" | "json":
            return _bytes(array.cast(pa.binary()).to_pylist())
        case "date":
            return _ints(_low_32(array.view(pa.int32())), 4)
        case "time":
            return _ints(array.view(pa.int64()).to_numpy().view(np.uint64), 8)
    if not pa.types.is_decimal(physical):
        return (
            _ints(array.to_numpy().view(np.uint64), 8) if physical == pa.int64() else _ints(_low_32(array), 4)
        )
    if physical.precision <= 18:
        return _ints(np.ascontiguousarray(decimal_words(array)[:, 0]), 8)
    return _bytes(_java_bytes(decimal_words(array)))


def _low_32(array: pa.Array) -> Words:
    return array.to_numpy().astype(np.int32).view(np.uint32).astype(np.uint64)  # type: ignore[no-any-return]


def _floats(array: pa.Array) -> Hasher:
    """Spark hashes the bits, after it has made all NaNs one and both zeros one."""
    values = array.to_numpy().copy()
    values[values == 0] = 0
    values[np.isnan(values)] = np.nan
    if values.dtype == np.float32:
        return _ints(values.view(np.uint32).astype(np.uint64), 4)
    return _ints(values.view(np.uint64), 8)


def _java_bytes(words: Words) -> list[bytes]:
    """``BigInteger.toByteArray``: the shortest two's complement form, big-endian."""
    numbers = [
        high * 2**64 + low
        for low, high in zip(words[:, 0].tolist(), words[:, 1].view(np.int64).tolist(), strict=True)
    ]
    return [n.to_bytes((n if n >= 0 else ~n).bit_length() // 8 + 1, "big", signed=True) for n in numbers]


def _bytes(values: list[bytes]) -> Hasher:
    digest = xxhash.xxh64_intdigest

    def link(seeds: Words) -> Words:
        return np.fromiter(map(digest, values, seeds.tolist()), np.uint64, len(values))

    return link


def _ints(values: Words, width: int) -> Hasher:
    """XXH64 of little-endian integers of 4 or 8 bytes."""

    def link(seeds: Words) -> Words:
        mixed: Words = seeds + (_P5 + np.uint64(width))
        if width == 4:
            mixed ^= values * _P1
            mixed = _rotate(mixed, 23) * _P2 + _P3
        else:
            mixed ^= _rotate(values * _P2, 31) * _P1
            mixed = _rotate(mixed, 27) * _P1 + _P4
        mixed ^= mixed >> np.uint64(33)
        mixed *= _P2
        mixed ^= mixed >> np.uint64(29)
        mixed *= _P3
        mixed ^= mixed >> np.uint64(32)
        return mixed

    return link


def _rotate(words: Words, bits: int) -> Words:
    rotated: Words = (words << np.uint64(bits)) | (words >> np.uint64(64 - bits))
    return rotated


def checksum_of(data: bytes) -> str:
    """Return the checksum of a file's content, in the form that ``Segment.checksum`` has."""
    return PREFIX + xxhash.xxh3_128_hexdigest(data)
