"""Encode record batches as the bytes of a file, streamed."""

from __future__ import annotations

import csv
import io
import json
import math
from collections.abc import Iterable, Iterator
from typing import Any, Literal, Protocol, TypeAlias

import pyarrow as pa
import pyarrow.csv as arrow_csv
import pyarrow.parquet as pq

from strandline.types.texts import bytes_as_text

__all__ = ["Encoder", "Format", "Pieces", "encode_rows", "encoder"]

Format: TypeAlias = Literal["csv", "jsonl", "parquet"]


class Pieces(io.RawIOBase):
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
        """Return what was written since the last call."""
        found, self._pieces = self._pieces, []
        return found


class Encoder(Protocol):
    """Encodes the rows of one file."""

    def write(self, batch: pa.RecordBatch) -> None: ...

    def close(self) -> None: ...


def encoder(format: Format, schema: pa.Schema, sink: Pieces) -> Encoder:
    """Return the encoder for rows with these columns that writes to ``sink``."""
    if format == "parquet":
        return _Parquet(schema, sink)
    return _Csv(schema, sink) if format == "csv" else _JsonLines(schema, sink)


def encode_rows(format: Format, reader: pa.RecordBatchReader) -> Iterator[bytes]:
    """Yield the bytes of one file with all rows of a reader."""
    sink = Pieces()
    made = encoder(format, reader.schema, sink)
    for batch in reader:
        made.write(batch)
        yield from sink.take()
    made.close()
    yield from sink.take()


class _Parquet:
    def __init__(self, schema: pa.Schema, sink: Pieces) -> None:
        self._writer = pq.ParquetWriter(pa.PythonFile(sink, mode="w"), schema, compression="zstd")

    def write(self, batch: pa.RecordBatch) -> None:
        self._writer.write_batch(batch)

    def close(self) -> None:
        self._writer.close()


class _Csv:
    """CSV: NULL is an empty field; every text, also an empty one, is in quotes."""

    def __init__(self, schema: pa.Schema, sink: Pieces) -> None:
        head = io.StringIO()
        csv.writer(head, lineterminator="\n").writerow(schema.names)
        sink.write(head.getvalue().encode())
        types = [pa.field(field.name, _csv_type(field.type)) for field in schema]
        self._schema = pa.schema(types)
        # Never closed explicitly: it needs no flush, and is freed with the writer.
        self._writer = arrow_csv.CSVWriter(
            pa.PythonFile(sink, mode="w"),
            self._schema,
            write_options=arrow_csv.WriteOptions(include_header=False),
        )

    def write(self, batch: pa.RecordBatch) -> None:
        columns = [
            column if column.type == field.type else _texts(column)
            for column, field in zip(batch.columns, self._schema, strict=True)
        ]
        self._writer.write_batch(pa.RecordBatch.from_arrays(columns, schema=self._schema))

    def close(self) -> None:
        self._writer.close()


def _csv_type(type_: pa.DataType) -> pa.DataType:
    is_plain = pa.types.is_nested(type_) or pa.types.is_binary(type_) or pa.types.is_large_binary(type_)
    return pa.string() if is_plain or pa.types.is_null(type_) else type_


def _texts(column: pa.Array) -> pa.Array:
    if pa.types.is_null(column.type):
        return pa.nulls(len(column), pa.string())
    values = column.to_pylist(maps_as_pydicts="lossy")
    return pa.array([None if value is None else _text(value) for value in values], pa.string())


def _text(value: Any) -> str:
    return bytes_as_text(value) if isinstance(value, bytes) else _dump(_plain(value))


class _JsonLines:
    """JSON lines. Decimals with a fraction, dates and times are strings, so that nothing is rounded.

    Integers are numbers of any size.
    """

    def __init__(self, schema: pa.Schema, sink: Pieces) -> None:
        self._sink = sink
        self._names = [f"{_dump(name)}: " for name in schema.names]

    def write(self, batch: pa.RecordBatch) -> None:
        columns = [_json_column(column) for column in batch.columns]
        names, lines = self._names, []
        for row in zip(*columns, strict=True):
            lines.append("{" + ", ".join(map(str.__add__, names, row)) + "}\n")
        self._sink.write("".join(lines).encode())

    def close(self) -> None:
        pass


def _dump(value: Any) -> str:
    return json.dumps(value, ensure_ascii=False)


def _json_column(column: pa.Array) -> Iterable[str]:
    """Return the values of a column as JSON texts."""
    type_ = column.type
    is_whole = pa.types.is_integer(type_) or (pa.types.is_decimal(type_) and type_.scale == 0)
    if is_whole or pa.types.is_boolean(type_):
        return ["null" if text is None else text for text in column.cast(pa.string()).to_pylist()]
    if pa.types.is_decimal(type_) or pa.types.is_date(type_):
        return ["null" if text is None else f'"{text}"' for text in column.cast(pa.string()).to_pylist()]
    if pa.types.is_timestamp(type_):
        texts = column.cast(pa.string()).to_pylist()
        return ["null" if text is None else f'"{text.replace(" ", "T")}"' for text in texts]
    return [_dump(_plain(value)) for value in column.to_pylist(maps_as_pydicts="lossy")]


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
