"""Encode record batches as the bytes of a file, streamed.

CSV and JSON texts are made column by column, for a small part of a batch at a time. So the memory that is
needed depends neither on the number of rows nor on the length of their values.
"""

from __future__ import annotations

import csv
import io
import json
import math
from collections.abc import Iterator
from typing import Any, Literal, Protocol, TypeAlias

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.csv as arrow_csv
import pyarrow.parquet as pq

from strandline.types.texts import bytes_as_text, texts_of_bytes

__all__ = ["Format", "encode_file", "encode_rows"]

Format: TypeAlias = Literal["csv", "jsonl", "parquet"]

TEXT_BYTES = 1 << 20
"""Approximate size of the rows that are converted to text at a time. The text may be five times as large."""


class _Pieces(io.RawIOBase):
    """An in-memory file: an encoder writes to it, and the written bytes are taken from it."""

    def __init__(self) -> None:
        self._pieces: list[bytes] = []
        self._at = 0

    def writable(self) -> bool:
        return True

    def tell(self) -> int:
        return self._at

    def write(self, data: Any) -> int:
        piece = bytes(data)
        self._pieces.append(piece)
        self._at += len(piece)
        return len(piece)

    def take(self) -> list[bytes]:
        """Return the bytes that were written since the last call."""
        found, self._pieces = self._pieces, []
        return found


class _Encoder(Protocol):
    """Encodes the rows of one file."""

    def encode(self, batch: pa.RecordBatch) -> Iterator[bytes]:
        """Encode rows, and yield the bytes of the file that are ready to be written."""
        ...

    def finish(self) -> Iterator[bytes]:
        """Yield the bytes at the end of the file."""
        ...


def _encoder(format: Format, schema: pa.Schema) -> _Encoder:
    """Return the encoder for a file of rows with these columns."""
    if format == "parquet":
        return _Parquet(schema)
    return _Csv(schema) if format == "csv" else _JsonLines(schema)


def encode_rows(format: Format, reader: pa.RecordBatchReader) -> Iterator[bytes]:
    """Yield the bytes of one file with all rows of a reader."""
    return encode_file(format, reader.schema, iter(reader))


def encode_file(
    format: Format, schema: pa.Schema, batches: Iterator[pa.RecordBatch], *, most: int | None = None
) -> Iterator[bytes]:
    """Yield the bytes of one file with rows.

    Args:
        batches: the rows. Rows that do not fit into the file are left in the iterator.
        most: size in bytes at which the file ends. None: the file gets all rows.
    """
    made = _encoder(format, schema)
    size = 0
    for batch in batches:
        for chunk in made.encode(batch):
            size += len(chunk)
            yield chunk
        if most is not None and size >= most:
            break
    yield from made.finish()


def _small(batch: pa.RecordBatch) -> Iterator[pa.RecordBatch]:
    """Yield the rows in batches of about TEXT_BYTES."""
    if batch.num_rows <= 1 or batch.nbytes <= TEXT_BYTES:
        yield batch
        return
    half = batch.num_rows // 2
    yield from _small(batch.slice(0, half))
    yield from _small(batch.slice(half))


class _Parquet:
    def __init__(self, schema: pa.Schema) -> None:
        self._sink = _Pieces()
        self._writer = pq.ParquetWriter(pa.PythonFile(self._sink, mode="w"), schema, compression="zstd")

    def encode(self, batch: pa.RecordBatch) -> Iterator[bytes]:
        self._writer.write_batch(batch)
        yield from self._sink.take()

    def finish(self) -> Iterator[bytes]:
        self._writer.close()
        yield from self._sink.take()


class _Csv:
    """Encodes CSV. NULL is an empty field. Every text is in quotes, even an empty text."""

    def __init__(self, schema: pa.Schema) -> None:
        self._sink = _Pieces()
        head = io.StringIO()
        csv.writer(head, lineterminator="\n").writerow(schema.names)
        self._sink.write(head.getvalue().encode())
        types = [pa.field(field.name, _csv_type(field.type)) for field in schema]
        self._schema = pa.schema(types)
        # The ``PythonFile`` is never closed explicitly: it needs no flush, and is freed with the writer.
        self._writer = arrow_csv.CSVWriter(
            pa.PythonFile(self._sink, mode="w"),
            self._schema,
            write_options=arrow_csv.WriteOptions(include_header=False),
        )

    def encode(self, batch: pa.RecordBatch) -> Iterator[bytes]:
        for few in _small(batch):
            columns = [
                column if column.type == field.type else _texts(column)
                for column, field in zip(few.columns, self._schema, strict=True)
            ]
            self._writer.write_batch(pa.RecordBatch.from_arrays(columns, schema=self._schema))
            yield from self._sink.take()

    def finish(self) -> Iterator[bytes]:
        self._writer.close()
        yield from self._sink.take()


def _csv_type(type_: pa.DataType) -> pa.DataType:
    is_made_text = pa.types.is_nested(type_) or _is_bytes(type_)
    return pa.large_string() if is_made_text or pa.types.is_null(type_) else type_


def _is_bytes(type_: pa.DataType) -> bool:
    return bool(pa.types.is_binary(type_) or pa.types.is_large_binary(type_))


def _texts(column: pa.Array) -> pa.Array:
    if pa.types.is_null(column.type):
        return pa.nulls(len(column), pa.large_string())
    if _is_bytes(column.type):
        return texts_of_bytes(column)
    values = column.to_pylist(maps_as_pydicts="lossy")
    return pa.array([None if value is None else _dump(_plain(value)) for value in values], pa.large_string())


class _JsonLines:
    """Encodes JSON lines. Decimals with a fraction, dates and times are strings, so that nothing is rounded.

    Integers of any size are numbers.
    """

    def __init__(self, schema: pa.Schema) -> None:
        self._names = [f"{_dump(name)}: " for name in schema.names]

    def encode(self, batch: pa.RecordBatch) -> Iterator[bytes]:
        for few in _small(batch):
            parts: list[Any] = []
            for name, column in zip(self._names, few.columns, strict=True):
                parts += [", " if parts else "{", name, _json_column(column)]
            if parts:
                yield _content(pc.binary_join_element_wise(*map(_large, [*parts, "}\n", ""])))

    def finish(self) -> Iterator[bytes]:
        yield from ()


def _large(part: str | pa.Array) -> pa.Scalar | pa.Array:
    return pa.scalar(part, pa.large_string()) if isinstance(part, str) else part.cast(pa.large_string())


def _content(texts: pa.Array) -> bytes:
    """Return the bytes of all texts, concatenated. The texts must not have NULLs."""
    _, offsets, data = texts.buffers()
    ends = np.frombuffer(offsets, np.int64)[texts.offset : texts.offset + len(texts) + 1]
    return bytes(memoryview(data)[ends[0] : ends[-1]]) if len(texts) else b""


def _dump(value: Any) -> str:
    return json.dumps(value, ensure_ascii=False)


def _json_column(column: pa.Array) -> pa.Array:
    """Return the values of a column as JSON texts."""
    type_ = column.type
    is_whole = pa.types.is_integer(type_) or (pa.types.is_decimal(type_) and type_.scale == 0)
    if is_whole or pa.types.is_boolean(type_):
        return pc.fill_null(column.cast(pa.string()), "null")
    if pa.types.is_decimal(type_) or pa.types.is_date(type_):
        return _quoted(column.cast(pa.string()))
    if pa.types.is_timestamp(type_):
        return _quoted(pc.replace_substring(column.cast(pa.string()), " ", "T"))
    if _is_bytes(type_):
        return _quoted(texts_of_bytes(column, escaped=True))
    if pa.types.is_string(type_) or pa.types.is_large_string(type_):
        is_plain = pc.all(pc.invert(pc.match_substring_regex(column, _ESCAPED))).as_py()
        if is_plain is not False:
            return _quoted(column)
    return pa.array(
        [_dump(_plain(value)) for value in column.to_pylist(maps_as_pydicts="lossy")], pa.large_string()
    )


_ESCAPED = r'[\x00-\x1f"\\]'
"""Pattern for characters that have to be escaped in JSON."""


def _quoted(texts: pa.Array) -> pa.Array:
    """Return texts as JSON strings. The texts must not have characters that need an escape."""
    sign = pa.scalar('"', texts.type)
    joined = pc.binary_join_element_wise(sign, texts, sign, pa.scalar("", texts.type))
    return pc.fill_null(joined, "null")


def _plain(value: Any) -> Any:
    """Convert a value of any type to what ``json`` can encode."""
    if value is None or isinstance(value, bool | int | str):
        return value
    if isinstance(value, float):
        return value if math.isfinite(value) else str(value)
    if isinstance(value, bytes):
        return bytes_as_text(value)
    if isinstance(value, dict):
        return {str(name): _plain(item) for name, item in value.items()}
    if isinstance(value, list | tuple):
        return [_plain(item) for item in value]
    return value.isoformat() if hasattr(value, "isoformat") else str(value)
