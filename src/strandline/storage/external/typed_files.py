"""Import of files with typed columns: Parquet and Arrow."""

from __future__ import annotations

import json
from abc import ABC, abstractmethod
from collections.abc import Iterable, Iterator, Mapping, Sequence
from functools import cached_property
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from strandline.errors import InvalidArgument, StrandlineError, Unsupported
from strandline.storage.external.locations import File
from strandline.types import Type, parse_type
from strandline.types.arrays import array_from_user, check_source
from strandline.types.inference import plain_type, type_of_arrow

__all__ = ["ArrowFiles", "ParquetFiles", "Typed", "TypedBatches"]

BATCH_ROWS = 1 << 16
KEY = b"strandline.key"
TYPES = b"strandline.types"
"""Metadata keys of an exported file: its key columns (a JSON list) and its column types (a JSON object)."""


class TypedBatches:
    """One file or table: its columns, and its rows in batches. ``kind``: its expected format."""

    def __init__(self, name: str, kind: str, schema: pa.Schema, batches: Iterable[pa.RecordBatch]) -> None:
        self.name = name
        self.kind = kind
        self.schema = schema
        self.batches = batches


class Typed(ABC):
    """Source with typed columns. A subclass opens its files. ``files``: number of files or tables."""

    key: tuple[str, ...] | None = None

    def __init__(self, files: int) -> None:
        self.files = files

    @abstractmethod
    def open_each(self) -> Iterator[TypedBatches]:
        """Yield each file or table. It is closed when the next one is requested."""

    @cached_property
    def _schemas(self) -> list[tuple[str, pa.Schema]]:
        found = [(each.name, each.schema) for each in self.open_each()]
        for name, schema in found:
            if doubled := [n for n in schema.names if schema.names.count(n) > 1]:
                raise InvalidArgument(f"{name} has two columns {doubled[0]}", "Give each a name of its own.")
        (first, schema), *others = found
        for name, other in others:
            for one, has, two, columns in ((name, other, first, schema), (first, schema, name, other)):
                if missing := [column for column in columns.names if column not in has.names]:
                    raise InvalidArgument(
                        f"{one} has no column {missing[0]}, which {two} has",
                        "Load files with the same columns together, and others by themselves.",
                    )
        return found

    def names(self, table: Sequence[str] | None) -> list[str]:
        return list(dict.fromkeys(name for _, schema in self._schemas for name in schema.names))

    def types(self, given: Mapping[str, Type]) -> dict[str, Type]:
        found: dict[str, Type] = {}
        for file, schema in self._schemas:
            for column in schema:
                type_ = given.get(column.name) or _type_in(schema, column, file)
                if found.setdefault(column.name, type_) != type_:
                    raise InvalidArgument(
                        f"{file}: column {column.name} is {type_.name}, but {found[column.name].name} before",
                        f"Say what it should be, for example --type {column.name}=Utf8.",
                    )
        return found

    def tables(self, types: Mapping[str, Type], not_null: frozenset[str]) -> Iterator[pa.Table]:
        for each in self.open_each():
            before = 0
            for name, type_ in types.items():
                kind = each.schema.field(name).type
                if not (type_.kind == "json" and _is_nested(kind)):
                    with _told(each.name):
                        check_source(type_, plain_type(kind), name)
            for batch in _read(each):
                arrays = [
                    _column(each.name, before, (name, type_, batch.column(name)), name in not_null)
                    for name, type_ in types.items()
                ]
                yield pa.table(arrays, list(types))
                before += batch.num_rows


class ParquetFiles(Typed):
    def __init__(self, files: Sequence[File]) -> None:
        super().__init__(len(files))
        self.paths = files

    @property
    def size(self) -> int:
        """Total size in bytes."""
        return sum(file.size for file in self.paths)

    def open_each(self) -> Iterator[TypedBatches]:
        for file in self.paths:
            with file.whole() as stream, _failures(file.name, "Parquet"):
                parquet = pq.ParquetFile(stream)
                schema = parquet.schema_arrow
                self.key = _key_in(schema) or self.key
                yield TypedBatches(file.name, "Parquet", schema, parquet.iter_batches(BATCH_ROWS))


class ArrowFiles(Typed):
    """Arrow IPC files (Feather) and streams."""

    def __init__(self, files: Sequence[File]) -> None:
        super().__init__(len(files))
        self._files = files

    def open_each(self) -> Iterator[TypedBatches]:
        for file in self._files:
            with file.open() as stream, _failures(file.name, "Arrow"):
                try:
                    found = pa.ipc.open_file(stream)
                    batches: Any = (found.get_batch(i) for i in range(found.num_record_batches))
                except (pa.ArrowInvalid, pa.ArrowNotImplementedError, OSError):
                    with file.open() as again:
                        batches = found = pa.ipc.open_stream(again)
                        self.key = _key_in(found.schema) or self.key
                        yield TypedBatches(file.name, "Arrow", found.schema, batches)
                    continue
                self.key = _key_in(found.schema) or self.key
                yield TypedBatches(file.name, "Arrow", found.schema, batches)


def _type_in(schema: pa.Schema, column: pa.Field, file: str) -> Type:
    said = json.loads((schema.metadata or {}).get(TYPES, b"{}"))
    if column.name in said:
        return parse_type(said[column.name])
    return _type_of(column.type, file, column.name)


def _key_in(schema: pa.Schema) -> tuple[str, ...] | None:
    said = (schema.metadata or {}).get(KEY)
    return None if said is None else tuple(json.loads(said))


class _failures:
    """Translates Arrow's errors about an unreadable file."""

    def __init__(self, name: str, kind: str) -> None:
        self._name, self._kind = name, kind

    def __enter__(self) -> None:
        pass

    def __exit__(self, kind: object, error: BaseException | None, trace: object) -> None:
        if isinstance(error, StrandlineError):
            return
        if isinstance(error, pa.ArrowException | OSError):
            raise InvalidArgument(
                f"{self._name} cannot be read as {self._kind}: {str(error).splitlines()[0]}",
                "Check that the file is complete, and name its format with --format.",
            ) from None


def _read(each: TypedBatches) -> Iterator[pa.RecordBatch]:
    with _failures(each.name, each.kind):
        yield from each.batches


class _told:
    """Adds the place to errors about values."""

    def __init__(self, place: str) -> None:
        self._place = place

    def __enter__(self) -> None:
        pass

    def __exit__(self, kind: object, error: BaseException | None, trace: object) -> None:
        if isinstance(error, InvalidArgument):
            raise InvalidArgument(f"{self._place}: {error.message}", error.hint) from None


def _column(file: str, before: int, column: tuple[str, Type, pa.Array], not_null: bool) -> pa.Array:
    name, type_, array = column
    if type_.kind == "json" and _is_nested(array.type):
        array = pa.array(
            [None if v is None else _json(v) for v in array.to_pylist(maps_as_pydicts="lossy")], pa.string()
        )
    if not_null and array.null_count:
        row = before + array.is_null().index(True).as_py() + 1
        raise InvalidArgument(
            f"{file}, row {row:,}: column {name} has no value, and it may not be NULL",
            "Give it a value in every row.",
        )
    try:
        return array_from_user(type_, array, name)
    except InvalidArgument:
        for number in range(len(array)):
            with _told(f"{file}, row {before + number + 1:,}"):
                array_from_user(type_, array.slice(number, 1), name)
        raise


def _json(value: Any) -> str:
    return json.dumps(value, ensure_ascii=False, default=str)


def _is_nested(kind: pa.DataType) -> bool:
    return bool(pa.types.is_nested(plain_type(kind)))


def _type_of(given: pa.DataType, file: str, column: str) -> Type:
    found = type_of_arrow(given)
    if found is None:
        raise Unsupported(
            f"{file}: column {column} is {given}, which no type can hold",
            "Convert or omit the column.",
        )
    return found
