"""``export``: write rows of a table, a query or a backup to files in common formats."""

from __future__ import annotations

import re
import time
from typing import TYPE_CHECKING, Annotated, Literal

import typer

from strandline import names
from strandline.cli.options import WORK_WITH_DATA, command
from strandline.cli.session import Cli
from strandline.cli.values import duration
from strandline.errors import InvalidArgument
from strandline.names import count

if TYPE_CHECKING:
    from strandline.sql.references import TableRef

Format = Literal["parquet", "csv", "jsonl", "delta", "iceberg"]


def register(app: typer.Typer) -> None:
    command(app, "export", WORK_WITH_DATA, example="strandline export orders orders.parquet")(export)


def export(
    cli: Cli,
    what: Annotated[
        list[str],
        typer.Argument(
            metavar="[TABLE] PLACE",
            help="The table (not with --query) and the target: a file, whose extension selects the format, "
            "a folder, or a URL such as s3://bucket/folder.",
        ),
    ],
    *,
    format: Annotated[
        Format | None,
        typer.Option("--format", help="The format (default: by the extension, else parquet)."),
    ] = None,
    at: Annotated[
        str | None, typer.Option("--at", metavar="STEP|TIME", help="The table at that step or time.")
    ] = None,
    backup: Annotated[
        str | None,
        typer.Option("--backup", metavar="COLLECTION[/BACKUP]", help="The table in a backup."),
    ] = None,
    where: Annotated[
        str | None, typer.Option("--where", metavar="CONDITION", help="Only rows that satisfy a condition.")
    ] = None,
    query: Annotated[
        str | None,
        typer.Option("--query", metavar="SELECT", help="Export the rows of a query instead of a table."),
    ] = None,
    overwrite: Annotated[
        bool, typer.Option("--overwrite", help="Replace the target if an earlier export wrote it.")
    ] = False,
) -> None:
    """Export a table, a query or a backup to Parquet, CSV, JSON lines, Delta or Iceberg.

    If the export fails, the target stays as it was."""
    from strandline.api.execute import run_statement
    from strandline.cli.statements import place, settings_of
    from strandline.sql.export import export_query, export_table

    if len(what) != (2 if query is None else 1):
        said = "a table and a target" if query is None else "only a target with --query"
        raise InvalidArgument(f"an export takes {said}", "See strandline export --help.")
    if query is None and re.match(r"\s*(?:SELECT|WITH|VALUES)\s", what[0], re.IGNORECASE):
        raise InvalidArgument(
            "a query is given for the table", f"Write: strandline export --query '...' {what[-1]}"
        )
    if what[-1] == "-":
        raise InvalidArgument(
            "an export cannot write to stdout",
            'Use a query: strandline sql "SELECT * FROM table" --format csv.',
        )
    if query is not None and (at or backup or where):
        raise InvalidArgument("--at, --backup and --where need a table", "Write them into the query.")
    settings = settings_of(FORMAT=format, OVERWRITE=overwrite)
    goes_to = place(what[-1])
    if query is not None:
        statement = export_query(query, goes_to, settings)
    else:
        statement = export_table(_table(what[0], at, backup), where, goes_to, settings)
    started = time.monotonic()
    with cli.database() as db:
        ((where_to, kind, files, rows),) = run_statement(db, statement).rows()
    answer = {"place": where_to, "format": kind, "files": files, "rows": rows}
    seconds = duration(time.monotonic() - started)
    said = f"exported {count(rows, 'row')} to {where_to} ({count(files, 'file')}, {kind}, {seconds})"
    cli.output.result(answer, lambda: cli.output.line(said))


def _table(path: str, at: str | None, backup: str | None) -> TableRef:
    from strandline.tables.time_travel import reference

    if at is not None and backup is not None:
        raise InvalidArgument(
            "a table is read at one point in time or from one backup", "Leave out --at or --backup."
        )
    return reference(names.normalize(path), at, backup, prefix="--")
