"""Import of CSV files.

Arrow reads the files in columns of text, which are then converted to the table's types. Arrow does not report
the line of a value. So to report an error, the file is read again row by row.
"""

from __future__ import annotations

import codecs
import csv
import io
import sys
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import islice
from typing import Any, TypeAlias

import pyarrow as pa
import pyarrow.csv as arrow_csv

from strandline.errors import InvalidArgument
from strandline.storage.external.locations import File, endings, read_failures
from strandline.storage.external.parts import Over, Spreadable, split_parts
from strandline.storage.external.source import External
from strandline.types import Type
from strandline.types.arrays import python_to_array
from strandline.types.texts import GUESSES, array_from_text, from_text, guess, still_fit

__all__ = ["CsvFiles"]

BLOCK_BYTES = 8 << 20
"""Maximum number of bytes of a file in memory at a time, and maximum size of a row."""
_Looks: TypeAlias = dict[str, tuple[Type, ...] | None]


class _Framed(io.RawIOBase):
    """Adapts a file for Arrow: skips empty first lines, adds a final newline.

    Arrow would use an empty first line as the header.
    """

    def __init__(self, stream: pa.NativeFile, *, is_first: bool) -> None:
        self._stream = stream
        self._waiting = b""
        while is_first and not self._waiting and (data := stream.read(BLOCK_BYTES)):
            self._waiting = data.removeprefix(codecs.BOM_UTF8).lstrip(b"\r\n")
        self._is_ended = False

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: Any) -> int:
        size, found = len(buffer), self._waiting
        while len(found) < size and (data := self._stream.read(size - len(found))):
            found += data
        if len(found) < size and not self._is_ended:
            self._is_ended = True
            found += b"\n"
        self._waiting, found = found[size:], found[:size]
        buffer[: len(found)] = found
        return len(found)


@dataclass(frozen=True)
class _CsvPart:
    """A CSV file, or a part of it that begins and ends with a row.

    Attributes:
        file: the file, or the range of its bytes.
        delimiter: the character between values.
        null: the text that means NULL.
        header: the first row of the file has the column names.
    """

    file: File
    delimiter: str
    null: str
    header: bool

    @property
    def _skipped(self) -> int:
        return 1 if self.header and not self.file.start else 0

    def look(self, names: Sequence[str], asked: Sequence[str]) -> _Looks:
        """Return per column in ``asked`` the types that can hold its values; None if all values are NULL."""
        found: _Looks = dict.fromkeys(asked)
        for batch in self._batches(names):
            for name in asked:
                texts = batch.column(name)
                if texts.null_count < len(texts):
                    before = found[name]
                    found[name] = still_fit(GUESSES if before is None else before, texts)
        return found

    def tables(self, types: Mapping[str, Type], not_null: frozenset[str]) -> Iterator[pa.Table]:
        before = 0
        for batch in self._batches(list(types)):
            arrays = []
            for name, type_ in types.items():
                texts = batch.column(name)
                if name in not_null and texts.null_count:
                    row = before + texts.is_null().index(True).as_py()
                    raise InvalidArgument(
                        f"{self.file.name}, line {self._line(row)}: column {name} has no value, and it "
                        "may not be NULL",
                        "Give it a value in every row.",
                    )
                found = array_from_text(type_, texts)
                arrays.append(self._one_by_one(before, (name, type_, texts)) if found is None else found)
            yield pa.table(arrays, list(types))
            before += batch.num_rows

    def _one_by_one(self, before: int, column: tuple[str, Type, pa.Array]) -> pa.Array:
        name, type_, texts = column
        values = []
        for number, text in enumerate(texts.to_pylist()):
            try:
                values.append(None if text is None else from_text(type_, text, name))
            except InvalidArgument as error:
                line = self._line(before + number)
                raise InvalidArgument(f"{self.file.name}, line {line}: {error.message}", error.hint) from None
        return python_to_array(type_, values)

    # --- with Arrow ----------------------------------------------------------------------------------------

    def _batches(self, names: Sequence[str]) -> Iterator[pa.RecordBatch]:
        file = self.file
        try:
            with file.open() as stream:
                last = ""
                for batch in arrow_csv.open_csv(
                    pa.PythonFile(_Framed(stream, is_first=not file.start), mode="r"),
                    read_options=arrow_csv.ReadOptions(
                        column_names=list(names),
                        skip_rows=0,
                        skip_rows_after_names=self._skipped,
                        block_size=BLOCK_BYTES,
                    ),
                    parse_options=arrow_csv.ParseOptions(delimiter=self.delimiter, newlines_in_values=True),
                    convert_options=arrow_csv.ConvertOptions(
                        column_types={name: pa.string() for name in names},
                        null_values=[self.null],
                        strings_can_be_null=True,
                        quoted_strings_can_be_null=False,
                    ),
                ):
                    yield batch
                    if batch.num_rows:
                        last = batch.column(batch.num_columns - 1)[-1].as_py() or ""
            if last.endswith("\n"):
                # A quote may be unclosed: then Arrow reads all following text as one value.
                for _ in self._rows(strict=True):
                    pass
        except pa.ArrowInvalid as error:
            if "Empty CSV file" in str(error):
                return
            raise self._fault(len(names), error) from None
        except (OSError, pa.ArrowException) as error:
            with read_failures(file.name):
                raise OSError(str(error)) from None

    def _fault(self, width: int, error: Exception) -> InvalidArgument:
        """Return an error that says why Arrow cannot read the file."""
        file = self.file
        for line, row in self._rows():
            if len(row) != width:
                return InvalidArgument(
                    f"{file.name}, line {line}: there are {len(row)} values for {width} columns",
                    f"Check the quotes in it, and that {self.delimiter!r} is the delimiter.",
                )
            for place, text in enumerate(row, 1):
                if _is_broken(text):
                    return _not_utf8(file, line, place)
        return InvalidArgument(
            f"{file.name} cannot be read as CSV: {str(error).splitlines()[0]}",
            f"A row has at most {BLOCK_BYTES >> 20} MiB.",
        )

    # --- row by row ----------------------------------------------------------------------------------------

    def first_row(self) -> tuple[int, list[str]]:
        """Return the first row with the number of its line."""
        return next(self._rows(), (1, []))

    def _rows(self, *, strict: bool = False) -> Iterator[tuple[int, list[str]]]:
        """Yield the rows, each with the number of its first line. Empty lines are skipped."""
        file = self.file
        csv.field_size_limit(sys.maxsize)
        with file.open() as stream:
            text = io.TextIOWrapper(stream, "utf-8-sig", "surrogateescape", newline="")
            reader = csv.reader(text, delimiter=self.delimiter, strict=strict)
            line = file.lines + 1
            try:
                for row in reader:
                    if row:
                        yield line, row
                    line = file.lines + reader.line_num + 1
            except csv.Error as error:
                raise InvalidArgument(
                    f"{file.name}, line {line}: it cannot be read as CSV: {error}", "Check the quotes in it."
                ) from None
            except OSError as error:
                with read_failures(file.name):
                    raise error

    def _line(self, row: int) -> int:
        """Return the number of a row's first line."""
        return next(islice(self._rows(), row + self._skipped, None))[0]


class CsvFiles(Spreadable[_CsvPart]):
    """CSV files with the same columns."""

    key = None

    def __init__(self, files: Sequence[File], source: External) -> None:
        given = source.delimiter
        tabs = given is None and all(endings(file.name) == ".tsv" for file in files)
        self._delimiter = "\t" if tabs or given == "\\t" else given or ","
        if len(self._delimiter) != 1:
            raise InvalidArgument(
                f"{given!r} is not a valid delimiter", "Give one character, or \\t for a tab."
            )
        super().__init__([_CsvPart(file, self._delimiter, source.null, source.header) for file in files])
        self._source = source
        self._known: list[str] | None = None

    def split(self, over: Over, most: int) -> Sequence[_CsvPart]:
        return split_parts(self.parts, over, most, self._delimiter)

    def names(self, table: Sequence[str] | None) -> list[str]:
        if self._known is None:
            files = [part for part in self.parts if not part.file.start]
            first, *others = zip(files, self._over(_CsvPart.first_row, files), strict=True)
            self._known = self._header(*first, table)
            for other, row in others:
                if (found := self._header(other, row, table)) != self._known:
                    raise InvalidArgument(
                        f"{other.file.name} has the columns {', '.join(found)}, and {first[0].file.name} has "
                        f"{', '.join(self._known)}",
                        "Load files with the same columns together, and others by themselves.",
                    )
        return self._known

    def _header(self, part: _CsvPart, row: tuple[int, list[str]], table: Sequence[str] | None) -> list[str]:
        source, file = self._source, part.file
        line, first = row
        if source.columns is not None:
            names = list(source.columns)
        elif source.header:
            names = [name.strip() for name in first]
        elif table is not None:
            names = list(table)
        else:
            raise InvalidArgument(
                f"{file.name} has no header, so the names of its columns are not known",
                "Name them with --columns a,b,c.",
            )
        if first and len(first) != len(names):
            raise InvalidArgument(
                f"{file.name}, line {line}: there are {len(first)} values for the {len(names)} columns "
                f"{', '.join(names)}",
                "Give one name for each value with --columns a,b,c.",
            )
        if place := next((n for n, text in enumerate(first, 1) if _is_broken(text)), 0):
            raise _not_utf8(file, line, place)
        if not names or "" in names or len({name.lower() for name in names}) < len(names):
            raise InvalidArgument(
                f"{file.name}, line {line}: {', '.join(names) or 'an empty file'} is not a valid "
                "header: each column needs its own name",
                "Say --no-header if the first line has values.",
            )
        return names

    def types(self, given: Mapping[str, Type]) -> dict[str, Type]:
        names = self.names(None)
        asked = [name for name in names if name not in given]
        fitting: _Looks = dict.fromkeys(asked)
        for look in self._over(partial(_look, names, asked), self.parts) if asked else ():
            for name, types in look.items():
                before = fitting[name]
                both = types if before is None else [t for t in before if types is None or t in types]
                fitting[name] = None if both is None else tuple(both)
        return {
            name: given[name] if name in given else guess(fitting[name] or (), is_empty=fitting[name] is None)
            for name in names
        }


def _look(names: Sequence[str], asked: Sequence[str], part: _CsvPart) -> _Looks:
    return part.look(names, asked)


def _is_broken(text: str) -> bool:
    """Return True if the text contains bytes that are not UTF-8."""
    return any("\udc80" <= sign <= "\udcff" for sign in text)


def _not_utf8(file: File, line: int, place: int) -> InvalidArgument:
    return InvalidArgument(
        f"{file.name}, line {line}, column {place}: it is not text in UTF-8",
        "Write the file in UTF-8, for example with iconv.",
    )
