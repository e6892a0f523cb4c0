"""Import of files with typed columns: Parquet and Arrow."""

from __future__ import annotations

import json
from abc import ABC, abstractmethod
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass
from functools import cached_property
from typing import Any, TypeVar

import pyarrow as pa
import pyarrow.parquet as pq

from strandline.errors import InvalidArgument, StrandlineError, Unsupported
from strandline.storage.external.locations import File
from strandline.storage.external.parts import Spreadable
from strandline.types import Type, parse_type
from strandline.types.arrays import array_from_user, check_source
from strandline.types.inference import plain_type, type_of_arrow

__all__ = ["ArrowFiles", "FoundColumns", "ParquetFiles", "Typed", "TypedBatches", "TypedPart"]

P = TypeVar("P", bound="TypedPart")

BATCH_ROWS = 1 << 16
KEY = b"strandline.key"
TYPES = b"strandline.types"
"""Metadata keys of an exported file: its key columns (a JSON list) and its column types (a JSON object)."""


class TypedBatches:
    """An open file or table.

    Args:
        name: the name of the file or table, for messages.
        kind: the name of the expected format, for messages.
        schema: the columns.
        batches: the rows.
    """

    def __init__(self, name: str, kind: str, schema: pa.Schema, batches: Iterable[pa.RecordBatch]) -> None:
        self.name = name
        self.kind = kind
        self.schema = schema
        self.batches = batches


@dataclass(frozen=True)
class FoundColumns:
    """The columns of a file or a table, as it declares them."""

    name: str
    schema: pa.Schema
    key: tuple[str, ...] | None


@dataclass(frozen=True)
class TypedPart(ABC):
    """A file or a table with typed columns, or a part of it. Subclasses implement ``open``."""

    @abstractmethod
    def open(self) -> AbstractContextManager[TypedBatches]:
        """Return a context manager that opens the part, and closes it at the end of the block."""

    def look(self) -> FoundColumns:
        with self.open() as found:
            return FoundColumns(found.name, found.schema, _key_in(found.schema))

    def tables(self, types: Mapping[str, Type], not_null: frozenset[str]) -> Iterator[pa.Table]:
        with self.open() as found:
            before = 0
            for name, type_ in types.items():
                kind = found.schema.field(name).type
                if not (type_.kind == "json" and _is_nested(kind)):
                    with _told(found.name):
                        check_source(type_, plain_type(kind), name)
            for batch in _read(found):
                arrays = [
                    _column(found.name, before, (name, type_, batch.column(name)), name in not_null)
                    for name, type_ in types.items()
                ]
                yield pa.table(arrays, list(types))
                before += batch.num_rows


class Typed(Spreadable[P]):
    """Files or tables with typed columns, such as Parquet files."""

    @cached_property
    def _looks(self) -> list[FoundColumns]:
        found = self._over(TypedPart.look, self.parts)
        for look in found:
            names = look.schema.names
            if doubled := [n for n in names if names.count(n) > 1]:
                raise InvalidArgument(
                    f"{look.name} has two columns {doubled[0]}", "Give each a name of its own."
                )
        first, *others = found
        for other in others:
            for one, two in ((other, first), (first, other)):
                known = set(one.schema.names)
                if missing := [column for column in two.schema.names if column not in known]:
                    raise InvalidArgument(
                        f"{one.name} has no column {missing[0]}, which {two.name} has",
                        "Load files with the same columns together, and others by themselves.",
                    )
        return found

    @property
    def key(self) -> tuple[str, ...] | None:
        return next((look.key for look in reversed(self._looks) if look.key is not None), None)

    def names(self, table: Sequence[str] | None) -> list[str]:
        return list(dict.fromkeys(name for look in self._looks for name in look.schema.names))

    def types(self, given: Mapping[str, Type]) -> dict[str, Type]:
        found: dict[str, Type] = {}
        for look in self._looks:
            for column in look.schema:
                type_ = given.get(column.name) or _type_in(look.schema, column, look.name)
                if found.setdefault(column.name, type_) != type_:
                    raise InvalidArgument(
                        f"{look.name}: column {column.name} is {type_.name}, but {found[column.name].name} "
                        "before",
                        f"Say what it should be, for example --type {column.name}=Utf8.",
                    )
        return found


@dataclass(frozen=True)
class _ParquetPart(TypedPart):
    file: File

    @contextmanager
    def open(self) -> Iterator[TypedBatches]:
        with self.file.whole() as stream, _failures(self.file.name, "Parquet"):
            parquet = pq.ParquetFile(stream)
            batches = parquet.iter_batches(BATCH_ROWS)
            yield TypedBatches(self.file.name, "Parquet", parquet.schema_arrow, batches)


class ParquetFiles(Typed[_ParquetPart]):
    """Parquet files."""

    def __init__(self, files: Sequence[File]) -> None:
        super().__init__([_ParquetPart(file) for file in files])


@dataclass(frozen=True)
class _ArrowPart(TypedPart):
    """An Arrow IPC file (Feather) or stream."""

    file: File

    @contextmanager
    def open(self) -> Iterator[TypedBatches]:
        with self.file.open() as stream, _failures(self.file.name, "Arrow"):
            try:
                found = pa.ipc.open_file(stream)
                batches: Any = (found.get_batch(i) for i in range(found.num_record_batches))
            except (pa.ArrowInvalid, pa.ArrowNotImplementedError, OSError):
                with self.file.open() as again:
                    batches = found = pa.ipc.open_stream(again)
                    yield TypedBatches(self.file.name, "Arrow", found.schema, batches)
                return
            yield TypedBatches(self.file.name, "Arrow", found.schema, batches)


class ArrowFiles(Typed[_ArrowPart]):
    """Arrow IPC files (Feather) and streams."""

    def __init__(self, files: Sequence[File]) -> None:
        super().__init__([_ArrowPart(file) for file in files])


def _type_in(schema: pa.Schema, column: pa.Field, file: str) -> Type:
    said = json.loads((schema.metadata or {}).get(TYPES, b"{}"))
    if column.name in said:
        return parse_type(said[column.name])
    return _type_of(column.type, file, column.name)


def _key_in(schema: pa.Schema) -> tuple[str, ...] | None:
    said = (schema.metadata or {}).get(KEY)
    return None if said is None else tuple(json.loads(said))


class _failures:
    """Context manager that translates Arrow's errors about an unreadable file."""

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
    """Context manager that adds a place, such as a file and a row, to messages of errors about values."""

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
