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
from itertools import islice
from typing import Any

import pyarrow as pa
import pyarrow.csv as arrow_csv

from strandline.errors import InvalidArgument
from strandline.storage.external.locations import File, endings, read_failures
from strandline.storage.external.source import External
from strandline.types import Type
from strandline.types.arrays import python_to_array
from strandline.types.texts import GUESSES, array_from_text, from_text, guess, still_fit

__all__ = ["CsvFiles"]

BLOCK_BYTES = 8 << 20
"""Maximum size of the part of a file in memory, and of a row."""


class _Framed(io.RawIOBase):
    """Adapts a file for Arrow: skips empty first lines, adds a final newline.

    Arrow would take an empty first line for the header.
    """

    def __init__(self, stream: pa.NativeFile) -> None:
        self._stream = stream
        self._waiting = b""
        while not self._waiting and (data := stream.read(BLOCK_BYTES)):
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


class CsvFiles:
    """CSV files with the same columns."""

    key = None

    def __init__(self, files: Sequence[File], source: External) -> None:
        self._files = files
        self._source = source
        given = source.delimiter
        tabs = given is None and all(endings(file.name) == ".tsv" for file in files)
        self._delimiter = "\t" if tabs or given == "\\t" else given or ","
        if len(self._delimiter) != 1:
            raise InvalidArgument(
                f"{given!r} is not a valid delimiter", "Give one character, or \\t for a tab."
            )
        self._known: list[str] | None = None

    @property
    def files(self) -> int:
        return len(self._files)

    def names(self, table: Sequence[str] | None) -> list[str]:
        if self._known is None:
            first, *others = self._files
            self._known = self._header(first, table)
            for other in others:
                if (found := self._header(other, table)) != self._known:
                    raise InvalidArgument(
                        f"{other.name} has the columns {', '.join(found)}, and {first.name} has "
                        f"{', '.join(self._known)}",
                        "Load files with the same columns together, and others by themselves.",
                    )
        return self._known

    def _header(self, file: File, table: Sequence[str] | None) -> list[str]:
        source = self._source
        line, first = next(iter(self._rows(file)), (1, []))
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
        fitting = {name: GUESSES for name in names if name not in given}
        empty = set(fitting)
        for file in self._files:
            for batch in self._batches(file, names):
                for name, types in fitting.items():
                    texts = batch.column(name)
                    if texts.null_count < len(texts):
                        empty.discard(name)
                        fitting[name] = still_fit(types, texts)
        return {
            name: given[name] if name in given else guess(fitting[name], is_empty=name in empty)
            for name in names
        }

    def tables(self, types: Mapping[str, Type], not_null: frozenset[str]) -> Iterator[pa.Table]:
        for file in self._files:
            before = 0
            for batch in self._batches(file, list(types)):
                arrays = []
                for name, type_ in types.items():
                    texts = batch.column(name)
                    if name in not_null and texts.null_count:
                        row = before + texts.is_null().index(True).as_py()
                        raise InvalidArgument(
                            f"{file.name}, line {self._line(file, row)}: column {name} has no value, and it "
                            "may not be NULL",
                            "Give it a value in every row.",
                        )
                    found = array_from_text(type_, texts)
                    arrays.append(
                        self._one_by_one(file, before, (name, type_, texts)) if found is None else found
                    )
                yield pa.table(arrays, list(types))
                before += batch.num_rows

    def _one_by_one(self, file: File, before: int, column: tuple[str, Type, pa.Array]) -> pa.Array:
        name, type_, texts = column
        values = []
        for number, text in enumerate(texts.to_pylist()):
            try:
                values.append(None if text is None else from_text(type_, text, name))
            except InvalidArgument as error:
                line = self._line(file, before + number)
                raise InvalidArgument(f"{file.name}, line {line}: {error.message}", error.hint) from None
        return python_to_array(type_, values)

    # --- with Arrow ----------------------------------------------------------------------------------------

    def _batches(self, file: File, names: Sequence[str]) -> Iterator[pa.RecordBatch]:
        try:
            with file.open() as stream:
                last = ""
                for batch in arrow_csv.open_csv(
                    pa.PythonFile(_Framed(stream), mode="r"),
                    read_options=arrow_csv.ReadOptions(
                        column_names=list(names),
                        skip_rows=0,
                        skip_rows_after_names=1 if self._source.header else 0,
                        block_size=BLOCK_BYTES,
                    ),
                    parse_options=arrow_csv.ParseOptions(delimiter=self._delimiter, newlines_in_values=True),
                    convert_options=arrow_csv.ConvertOptions(
                        column_types={name: pa.string() for name in names},
                        null_values=[self._source.null],
                        strings_can_be_null=True,
                        quoted_strings_can_be_null=False,
                    ),
                ):
                    yield batch
                    if batch.num_rows:
                        last = batch.column(batch.num_columns - 1)[-1].as_py() or ""
            if last.endswith("\n"):
                # A quote may be unclosed: then Arrow takes all following text for one value.
                for _ in self._rows(file, strict=True):
                    pass
        except pa.ArrowInvalid as error:
            if "Empty CSV file" in str(error):
                return
            raise self._fault(file, len(names), error) from None
        except (OSError, pa.ArrowException) as error:
            with read_failures(file.name):
                raise OSError(str(error)) from None

    def _fault(self, file: File, width: int, error: Exception) -> InvalidArgument:
        """Find what is wrong with a file that Arrow cannot read."""
        for line, row in self._rows(file):
            if len(row) != width:
                return InvalidArgument(
                    f"{file.name}, line {line}: there are {len(row)} values for {width} columns",
                    f"Check the quotes in it, and that {self._delimiter!r} is the delimiter.",
                )
            for place, text in enumerate(row, 1):
                if _is_broken(text):
                    return _not_utf8(file, line, place)
        return InvalidArgument(
            f"{file.name} cannot be read as CSV: {str(error).splitlines()[0]}",
            f"A row has at most {BLOCK_BYTES >> 20} MiB.",
        )

    # --- row by row ----------------------------------------------------------------------------------------

    def _rows(self, file: File, *, strict: bool = False) -> Iterator[tuple[int, list[str]]]:
        """Yield the rows, each with the number of its first line. Empty lines are skipped."""
        csv.field_size_limit(sys.maxsize)
        with file.open() as stream:
            text = io.TextIOWrapper(stream, "utf-8-sig", "surrogateescape", newline="")
            reader = csv.reader(text, delimiter=self._delimiter, strict=strict)
            line = 1
            try:
                for row in reader:
                    if row:
                        yield line, row
                    line = reader.line_num + 1
            except csv.Error as error:
                raise InvalidArgument(
                    f"{file.name}, line {line}: it cannot be read as CSV: {error}", "Check the quotes in it."
                ) from None
            except OSError as error:
                with read_failures(file.name):
                    raise error

    def _line(self, file: File, row: int) -> int:
        """Return the number of a row's first line."""
        skipped = row + (1 if self._source.header else 0)
        return next(islice(self._rows(file), skipped, None))[0]


def _is_broken(text: str) -> bool:
    """Return True if the text contains bytes that are not UTF-8."""
    return any("\udc80" <= sign <= "\udcff" for sign in text)


def _not_utf8(file: File, line: int, place: int) -> InvalidArgument:
    return InvalidArgument(
        f"{file.name}, line {line}, column {place}: it is not text in UTF-8",
        "Write the file in UTF-8, for example with iconv.",
    )
