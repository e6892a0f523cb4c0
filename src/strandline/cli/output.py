"""Output of commands: with ``--json`` one JSON document per result, otherwise text for people.

Results go to stdout. Progress, notes and errors go to stderr, so a pipe receives only results.
"""

from __future__ import annotations

import itertools
import json
import os
import sys
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import TYPE_CHECKING, Any, Literal

from strandline.cli.failures import document, fault_of
from strandline.cli.logs import json_line
from strandline.cli.values import format_value
from strandline.errors import InvalidArgument, StrandlineError
from strandline.json_values import plain

if TYPE_CHECKING:
    import pyarrow as pa

SHOWN_ROWS = 1000
"""Maximum number of rows shown on a terminal. A file or a pipe receives all rows."""
SIZED_ROWS = 1000
"""Number of rows that determine the column widths. A wider value in a later row breaks the alignment."""


@dataclass(kw_only=True)
class Output:
    """The stdout and stderr of one run.

    Streams are looked up at each use, because a test or a shell may replace them.
    """

    as_json: bool = False
    encoding: Literal["csv", "jsonl", "parquet"] | None = None
    """Format in which rows are written to stdout as one file. None: they are a table or JSON."""
    has_rows: bool = False
    """Whether the rows of a statement have been written. Only used with ``encoding``."""
    expanded: bool = False
    """Show each row as a list of its columns."""
    answered: bool = False
    """Whether the running command or statement has written its JSON document."""
    notes_as_json: bool = False
    """Write notes as JSON objects, one per line, like the log."""
    quiet: bool = False
    """Buffer all output, and write it only if the command fails."""
    _kept: list[Callable[[], None]] = field(default_factory=list)

    @property
    def is_terminal(self) -> bool:
        return sys.stdout.isatty()

    def line(self, text: str = "") -> None:
        """Write a line of the result to stdout."""
        if self.quiet:
            self._kept.append(partial(self.line, text))
        else:
            sys.stdout.write(text + "\n")

    def note(self, text: str) -> None:
        """Write a line about the result to stderr."""
        if self.quiet:
            self._kept.append(partial(self.note, text))
        else:
            self.warn(text)

    def discard(self) -> None:
        """Discard the buffered output, after success."""
        self._kept.clear()

    def release(self) -> None:
        """Write the buffered output, and stop buffering."""
        self.quiet = False
        while self._kept:
            self._kept.pop(0)()

    def warn(self, text: str) -> None:
        """Write a line to stderr, even if ``quiet``."""
        sys.stdout.flush()
        sys.stderr.write((json_line("info", {"message": text}) if self.notes_as_json else text) + "\n")
        sys.stderr.flush()

    def result(self, answer: Any, tell: Callable[[], None]) -> None:
        """Print ``answer`` as JSON, or call ``tell`` to print text."""
        if self.as_json:
            self.line(json.dumps(plain(answer), ensure_ascii=False))
            self.answered = True
        else:
            tell()

    def rows(self, columns: Sequence[str], rows: Iterable[Sequence[Any]]) -> None:
        """Stream rows as one JSON document; the result may be larger than memory."""
        coming = iter(rows)
        # Read one row first, so that a query that fails at once writes nothing.
        first = [plain(row) for row in itertools.islice(coming, 1)]
        write = sys.stdout.write
        write(f'{{"columns": {json.dumps(columns, ensure_ascii=False)}, "rows": [')
        try:
            for number, row in enumerate(itertools.chain(first, map(plain, coming))):
                write((", " if number else "") + json.dumps(row, ensure_ascii=False))
        except (StrandlineError, KeyboardInterrupt) as error:
            self.answered = True
            write(f"], {document(fault_of(error))[1:]}\n")
            raise
        self.answered = True
        write("]}\n")

    def file(self, reader: pa.RecordBatchReader) -> None:
        """Stream rows to stdout as the bytes of one file; refuse to write a second file."""
        from strandline.storage.outgoing import encode_rows

        assert self.encoding is not None
        if self.has_rows:
            raise InvalidArgument(
                f"two statements return rows, but {self.encoding} is one file", "Run them one by one."
            )
        self.has_rows = True
        out = getattr(sys.stdout, "buffer", None)
        for chunk in encode_rows(self.encoding, reader):
            # A replaced stdout may accept only text.
            (out.write if out is not None else _format_text)(chunk)
            sys.stdout.flush()

    def table(
        self, columns: Sequence[str], rows: Iterable[Sequence[Any]], *, count: bool = True, more: bool = False
    ) -> None:
        """Stream rows in aligned columns. Numbers are aligned to the right.

        Args:
            count: whether to print the number of rows.
            more: whether the result has further rows, whose number is not known.
        """
        cut = itertools.islice(rows, SHOWN_ROWS) if self.is_terminal else rows
        written = (self._records if self.expanded else self._lines)(columns, cut)
        if more:
            self.line(f"(more than {written} rows, the first {written} are shown)")
        elif count:
            there = len(rows) if isinstance(rows, Sequence) else written
            rest = f", the first {written} are shown" if written < there else ""
            self.line(f"({there} {'row' if there == 1 else 'rows'}{rest})")

    def _lines(self, columns: Sequence[str], rows: Iterable[Sequence[Any]]) -> int:
        number = -2  # Do not count the two lines of the head.
        for text in table_lines(columns, rows, bold=self.is_terminal and "NO_COLOR" not in os.environ):
            self.line(text)
            number += 1
        return number

    def _records(self, columns: Sequence[str], rows: Iterable[Sequence[Any]]) -> int:
        number = 0
        for number, row in enumerate(rows, 1):
            self.line(f"-[ row {number} ]-")
            self.fields(zip(map(format_value, columns), row, strict=True))
        return number

    def fields(self, pairs: Iterable[tuple[str, Any]]) -> None:
        """Print names and values, one pair per line."""
        known = [(name, format_value(value)) for name, value in pairs]
        width = max((len(name) for name, _ in known), default=0)
        for name, value in known:
            self.line(f"{name:<{width}}  {value}".rstrip())


def nobody_reads() -> int:
    """Handle a closed stdout (``| head``): discard further output. Return the exit code."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())  # Python flushes stdout at exit.
    return 0


def _format_text(chunk: bytes) -> None:
    sys.stdout.write(chunk.decode())


def table_lines(
    columns: Sequence[str], rows: Iterable[Sequence[Any]], *, bold: bool = False
) -> Iterator[str]:
    """Yield the head, a rule, and a line for each row.

    The first rows determine the widths and the alignment of the columns.
    """
    from rich.cells import cell_len

    coming = iter(rows)
    first = list(itertools.islice(coming, SIZED_ROWS))
    heads = [format_value(name) for name in columns]
    cells = [heads, *([format_value(value) for value in row] for row in first)]
    widths = [max(map(cell_len, column)) for column in zip(*cells, strict=True)]
    right = [
        all(_is_number(row[at]) or row[at] is None for row in first)
        and any(row[at] is not None for row in first)
        for at in range(len(heads))
    ]

    def align(row: Iterable[str]) -> str:
        padded = []
        for text, width, is_right in zip(row, widths, right, strict=True):
            space = " " * (width - cell_len(text))
            padded.append(space + text if is_right else text + space)
        return " | ".join(padded).rstrip()

    head = align(heads)
    yield f"\x1b[1m{head}\x1b[0m" if bold else head
    yield "-+-".join("-" * width for width in widths)
    yield from map(align, cells[1:])
    for row in coming:
        yield align(map(format_value, row))


def _is_number(value: Any) -> bool:
    from decimal import Decimal

    return isinstance(value, int | float | Decimal) and not isinstance(value, bool)
