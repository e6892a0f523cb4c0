"""``load``: Parquet, CSV and JSON files into a table, on Spark."""

from __future__ import annotations

import time
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal

import typer

from strandline.cli.completion import paths
from strandline.cli.options import WORK_WITH_DATA, command
from strandline.cli.session import Cli
from strandline.cli.values import count, duration
from strandline.errors import InvalidArgument, PathNotFound, Unavailable
from strandline.sql.tokens import quote
from strandline.storage.external import External, Format
from strandline.types import parse_type
from strandline.work import attended, phase

if TYPE_CHECKING:
    from strandline.api import Database

Mode = Literal["upsert", "insert", "replace"]

_ENDINGS: dict[str, Format] = {
    ".parquet": "parquet",
    ".csv": "csv",
    ".json": "json",
    ".jsonl": "json",
    ".ndjson": "json",
}


def register(app: typer.Typer) -> None:
    command(app, "load", WORK_WITH_DATA)(load)


def load(
    cli: Cli,
    table: Annotated[str, typer.Argument(help="The table to load into.", autocompletion=paths)],
    files: Annotated[list[str], typer.Argument(help="Files, or folders of files, of one format.")],
    *,
    format: Annotated[
        Format | None, typer.Option("--format", help="What the files are, if their names do not tell.")
    ] = None,
    mode: Annotated[
        Mode,
        typer.Option("--mode", help="What happens to rows that exist: changed, refused, or replaced whole."),
    ] = "upsert",
    key: Annotated[
        str | None,
        typer.Option(
            "--key",
            metavar="COLUMN[,COLUMN]",
            help="Create the table, if it is missing, with this primary key.",
        ),
    ] = None,
    delimiter: Annotated[str, typer.Option("--delimiter", help="CSV: what stands between two values.")] = ",",
    header: Annotated[
        bool, typer.Option("--header/--no-header", help="CSV: whether the first line has the columns' names.")
    ] = True,
) -> None:
    """Load Parquet, CSV or JSON files (one object per line) into a table, in one commit, on Spark."""
    kind = format or _format_of(files)
    for file in files:
        if not Path(file).exists():
            raise Unavailable(
                f"there is no file {file}",
                "Check its name; a folder's files are loaded by naming the folder.",
            )
    where = tuple(Path(file).absolute().as_uri() for file in files)
    source = External(kind, where, {"header": str(header).lower(), "sep": delimiter})
    started = time.monotonic()
    with cli.database() as db, attended(), phase(f"loading {table}"):
        created = _create(db, table, key, source)
        described = db.describe(table)
        if described["type"] != "table":
            raise InvalidArgument(
                f"{described['path']} is a {described['type']}, not a table", "Name a table."
            )
        before = described["rows"]
        types = {column["name"]: parse_type(column["type"]) for column in described["columns"]}
        incoming = db.runtime.store.external_rows(source, types)
        step = getattr(db.table(table), mode)(incoming)
        after = db.describe(table)["rows"]
    seconds = time.monotonic() - started
    body = {
        "table": described["path"],
        "created": created,
        "files": len(files),
        "step": step,
        "rows_before": before,
        "rows": after,
    }

    def tell() -> None:
        if created:
            cli.output.line(f"created the table {described['path']}")
        how = "nothing to load" if step is None else f"loaded {count(len(files), 'file')} at step {step}"
        cli.output.line(
            f"{how}: {described['path']} has {count(after, 'row')}, {before:,} before ({duration(seconds)})"
        )

    cli.output.result(body, tell)


def _format_of(files: list[str]) -> Format:
    found = set()
    for file in files:
        endings = [
            e.lower() for e in Path(file).suffixes if e.lower() not in (".gz", ".bz2", ".zst", ".snappy")
        ]
        found.add(_ENDINGS.get(endings[-1] if endings else ""))
    if len(found) != 1 or None in found:
        raise InvalidArgument(
            f"the names do not tell the format of {', '.join(files)}",
            f"Say --format {', --format '.join(('parquet', 'csv', 'json'))}.",
        )
    (kind,) = found
    assert kind is not None
    return kind


def _create(db: Database, table: str, key: str | None, source: External) -> bool:
    """Create the table from the files' columns if it is missing and a key is given; return whether it was."""
    if key is None:
        return False
    try:
        db.describe(table)
        return False
    except PathNotFound:
        pass
    columns = db.runtime.store.external_columns(source)
    names = [name.strip() for name in key.split(",")]
    for name in names:
        if name not in columns:
            raise InvalidArgument(f"the files have no column {name}", f"They have {', '.join(columns)}.")
    lines = [
        f"{quote(name)} {type_}{' NOT NULL' if name in names else ''}" for name, type_ in columns.items()
    ]
    db.sql(f"CREATE TABLE {quote(table)} ({', '.join(lines)}, PRIMARY KEY ({', '.join(map(quote, names))}))")
    return True
