"""``load``: load files in common formats into a table."""

from __future__ import annotations

import time
from typing import Annotated, Literal

import typer

from strandline.cli.completion import paths
from strandline.cli.options import WORK_WITH_DATA, command
from strandline.cli.session import Cli
from strandline.cli.values import duration
from strandline.errors import InvalidArgument
from strandline.names import count

Mode = Literal["upsert", "insert", "replace"]
Format = Literal["parquet", "csv", "jsonl", "json", "arrow", "delta", "iceberg"]


def register(app: typer.Typer) -> None:
    command(app, "load", WORK_WITH_DATA, example="strandline load orders 'orders/*.csv' --key id")(load)


def load(
    cli: Cli,
    table: Annotated[str, typer.Argument(help="The table to load into.", autocompletion=paths)],
    files: Annotated[
        list[str],
        typer.Argument(
            help="Files, patterns ('*.csv'), folders, Delta and Iceberg tables, or URLs such as "
            "s3://bucket/file.parquet and https://host/file.csv; - is stdin."
        ),
    ],
    *,
    format: Annotated[
        Format | None,
        typer.Option(
            "--format",
            help="The format of the files (default: by their extension). jsonl and json are JSON lines.",
        ),
    ] = None,
    mode: Annotated[
        Mode,
        typer.Option(
            "--mode",
            help="For rows whose key exists: upsert changes the columns in the files, replace also sets the "
            "others to NULL, insert fails.",
        ),
    ] = "upsert",
    key: Annotated[
        str | None,
        typer.Option(
            "--key",
            metavar="COLUMN[,COLUMN]",
            help="Create the table with this primary key if it does not exist.",
        ),
    ] = None,
    type: Annotated[
        list[str] | None,
        typer.Option(
            "--type",
            metavar="COLUMN=TYPE",
            help="The type of a column of a new table (default: derived from the values). Repeatable.",
        ),
    ] = None,
    delimiter: Annotated[
        str | None,
        typer.Option("--delimiter", help="CSV: the separator of values. \\t is a tab, as in .tsv."),
    ] = None,
    header: Annotated[
        bool, typer.Option("--header/--no-header", help="CSV: whether the first line has the column names.")
    ] = True,
    columns: Annotated[
        str | None,
        typer.Option("--columns", metavar="COLUMN[,COLUMN]", help="CSV: the column names, in order."),
    ] = None,
    null: Annotated[str, typer.Option("--null", help="CSV: the unquoted text that means NULL.")] = "",
) -> None:
    """Load CSV, JSON lines, Parquet, Arrow, Delta or Iceberg data into a table, in one commit.

    Columns are matched by name. A missing table is created if its key is known; its column types fit all
    values."""
    started = time.monotonic()
    with cli.database() as db:
        done = db.load(
            table,
            files,
            key=None if key is None else _names(key),
            types=dict(map(_parse_column, type or ())),
            mode=mode,
            format="jsonl" if format == "json" else format,
            delimiter=delimiter,
            header=header,
            columns=None if columns is None else _names(columns),
            null=null,
        )
        rows = db.describe(done.table)["rows"]
    seconds = time.monotonic() - started
    answer = {
        "table": done.table,
        "created": done.created,
        "files": done.files,
        "step": done.step,
        "rows_read": done.read,
        "rows_before": done.before,
        "rows": rows,
    }

    def tell() -> None:
        if done.created:
            cli.output.line(f"created the table {done.table}")
        read = "rows" if done.read is None else count(done.read, "row")
        how = f"loaded {read} of {count(done.files, 'file')}"
        at = ", nothing new" if done.step is None else f" at step {done.step}"
        cli.output.line(
            f"{how}{at}: {done.table} has {count(rows, 'row')}, {done.before:,} before ({duration(seconds)})"
        )

    cli.output.result(answer, tell)


def _names(text: str) -> tuple[str, ...]:
    return tuple(name.strip() for name in text.split(","))


def _parse_column(text: str) -> tuple[str, str]:
    name, sign, said = text.partition("=")
    if not sign:
        raise InvalidArgument(
            f"{text!r} does not give the type of a column", "Write it as --type COLUMN=TYPE."
        )
    return name.strip(), said.strip()
