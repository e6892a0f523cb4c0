"""Import of JSON lines: one object per line."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from decimal import Decimal
from functools import cached_property
from typing import Any

import pyarrow as pa

from strandline.errors import InvalidArgument
from strandline.storage.external.locations import File, read_failures
from strandline.storage.external.parts import Over, Spreadable, split_parts
from strandline.types import Type, coerce, find_json_fault, parse_type
from strandline.types.arrays import python_to_array
from strandline.types.texts import GUESSES, from_text, guess, still_fit

__all__ = ["JsonFiles"]

BATCH_ROWS = 10_000
BATCH_BYTES = 8 << 20
"""Limits of the rows and bytes of a file that are in memory at a time."""
_TEXTS = tuple(type_ for type_ in GUESSES if type_.kind in ("date", "time"))
"""Types other than text that strings may get. A quoted number stays text: its writer chose the quotes."""
_Row = tuple[int, dict[str, Any]]


@dataclass(frozen=True)
class _JsonPart:
    """A JSON-lines file, or a part of one."""

    file: File

    def look(self) -> dict[str, _Column]:
        """Return the kinds of values that each field has, by field name."""
        kinds: dict[str, _Column] = {}
        for rows in _batches(self.file):
            columns: dict[str, list[Any]] = {}
            for _, row in rows:
                for name, value in row.items():
                    columns.setdefault(name, []).append(value)
            for name, values in columns.items():
                kinds.setdefault(name, _Column()).add(values)
        return kinds

    def tables(self, types: Mapping[str, Type], not_null: frozenset[str]) -> Iterator[pa.Table]:
        for rows in _batches(self.file):
            arrays = []
            for name, type_ in types.items():
                values = [_value(self.file, row, name, type_) for row in rows]
                if name in not_null and None in values:
                    raise InvalidArgument(
                        f"{self.file.name}, line {rows[values.index(None)][0]}: column {name} has no value, "
                        "and it may not be NULL",
                        "Give it a value in every row.",
                    )
                arrays.append(python_to_array(type_, values))
            yield pa.table(arrays, list(types))


class JsonFiles(Spreadable[_JsonPart]):
    """JSON-lines files. A field that is missing in a line is NULL."""

    key = None

    def __init__(self, files: Sequence[File]) -> None:
        super().__init__([_JsonPart(file) for file in files])

    def split(self, over: Over, most: int) -> Sequence[_JsonPart]:
        return split_parts(self.parts, over, most, None)

    def names(self, table: Sequence[str] | None) -> list[str]:
        return list(self._seen)

    def types(self, given: Mapping[str, Type]) -> dict[str, Type]:
        return {name: given.get(name) or kinds.type for name, kinds in self._seen.items()}

    @cached_property
    def _seen(self) -> dict[str, _Column]:
        kinds: dict[str, _Column] = {}
        for look in self._over(_JsonPart.look, self.parts):
            for name, column in look.items():
                kinds.setdefault(name, _Column()).join(column)
        return kinds


class _Column:
    """Collects the kinds of values of one field, to choose a type."""

    def __init__(self) -> None:
        self._kinds: set[type] = set()
        self._low = self._high = 0
        self._texts: tuple[Type, ...] = _TEXTS

    def add(self, values: list[Any]) -> None:
        self._kinds |= {type(value) for value in values}
        numbers = [value for value in values if type(value) is int]
        if numbers:
            self._low, self._high = min(self._low, *numbers), max(self._high, *numbers)
        if self._texts and str in self._kinds:
            texts = pa.array([value for value in values if type(value) is str], pa.string())
            self._texts = still_fit(self._texts, texts)

    def join(self, other: _Column) -> None:
        """Add the kinds of values that another ``_Column`` has collected."""
        self._kinds |= other._kinds
        self._low, self._high = min(self._low, other._low), max(self._high, other._high)
        self._texts = tuple(type_ for type_ in self._texts if type_ in other._texts)

    @property
    def type(self) -> Type:
        kinds = self._kinds - {type(None)}
        if not kinds:
            return parse_type("Utf8")
        if kinds == {str}:
            return guess(self._texts, is_empty=False)
        if kinds == {bool}:
            return parse_type("Bool")
        if kinds <= {int, Decimal, float}:
            if kinds != {int}:
                return parse_type("Double")
            if self._low >= -(2**63) and self._high < 2**63:
                return parse_type("Int64")
            return parse_type("Uint64" if self._low >= 0 and self._high < 2**64 else "Utf8")
        return parse_type("Json" if kinds <= {dict, list} else "Utf8")


def _value(file: File, row: _Row, name: str, type_: Type) -> Any:
    line, fields = row
    value = fields.get(name)
    if value is None:
        return None
    try:
        if type_.kind == "json":
            return value if isinstance(value, str) and find_json_fault(value) is None else _text(value)
        if isinstance(value, str):
            return from_text(type_, value, name)
        return coerce(type_, _text(value) if type_.kind == "text" else value, name)
    except InvalidArgument as error:
        raise InvalidArgument(f"{file.name}, line {line}: {error.message}", error.hint) from None


def _text(value: Any) -> str:
    """Return a value as JSON. Numbers keep all digits of the file."""
    if isinstance(value, dict):
        return "{" + ", ".join(f"{_text(name)}: {_text(item)}" for name, item in value.items()) + "}"
    if isinstance(value, list):
        return "[" + ", ".join(map(_text, value)) + "]"
    return str(value) if isinstance(value, Decimal) else json.dumps(value, ensure_ascii=False)


def _batches(file: File) -> Iterator[list[_Row]]:
    rows: list[_Row] = []
    size = 0
    decoder = json.JSONDecoder(parse_float=Decimal, parse_constant=_constant)
    with file.open() as stream:
        for line, data in enumerate(_lines(file, stream), file.lines + 1):
            if not data.strip():
                continue
            rows.append((line, _object(file, line, decoder, data)))
            size += len(data)
            if len(rows) >= BATCH_ROWS or size >= BATCH_BYTES:
                yield rows
                rows, size = [], 0
    if rows:
        yield rows


def _lines(file: File, stream: pa.NativeFile) -> Iterator[bytes]:
    rest = b""
    while True:
        with read_failures(file.name):
            data = stream.read(BATCH_BYTES)
        if not data:
            break
        first, *others = data.split(b"\n")
        if not others:
            rest += first
            continue
        yield rest + first
        yield from others[:-1]
        rest = others[-1]
    if rest:
        yield rest


def _constant(name: str) -> float:
    return float(name)


def _object(file: File, line: int, decoder: json.JSONDecoder, data: bytes) -> dict[str, Any]:
    hint = "Each line holds one object. An array of them becomes lines with: jq -c '.[]'"
    try:
        found = decoder.decode(data.decode("utf-8-sig" if line == 1 else "utf-8"))
    except UnicodeDecodeError as error:
        raise InvalidArgument(
            f"{file.name}, line {line}, column {error.start + 1}: it is not text in UTF-8",
            "Write the file in UTF-8.",
        ) from None
    except (ValueError, RecursionError) as error:
        at = f", column {error.colno}" if isinstance(error, json.JSONDecodeError) else ""
        said = error.msg if isinstance(error, json.JSONDecodeError) else str(error)
        raise InvalidArgument(f"{file.name}, line {line}{at}: it is not JSON: {said}", hint) from None
    if not isinstance(found, dict):
        raise InvalidArgument(f"{file.name}, line {line}: it is not an object", hint)
    if b"\\ud" in data.lower():
        try:
            _text(found).encode()
        except UnicodeEncodeError:
            raise InvalidArgument(
                f"{file.name}, line {line}: a text has a lone surrogate and cannot be written as UTF-8",
                "A character beyond \\uffff is written as two \\u that belong together.",
            ) from None
    return found
