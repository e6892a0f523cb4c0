"""``load``: Parquet, CSV and JSON files into a table, on Spark."""

from __future__ import annotations

import time
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

import typer

from strandline.cli.completion import paths
from strandline.cli.options import WORK_WITH_DATA, command
from strandline.cli.session import Cli
from strandline.cli.values import count, duration
from strandline.errors import InvalidArgument, PathNotFound, Unavailable, Unsupported
from strandline.sql.tokens import quote

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.types import DataType

    from strandline.api import Database

Format = Literal["parquet", "csv", "json"]
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
    where = [Path(file).absolute().as_uri() for file in files]
    options = {"header": str(header).lower(), "sep": delimiter}
    started = time.monotonic()
    with cli.database() as db:
        from strandline.storage.spark.failures import spark_errors

        with spark_errors():
            created = _create(db, table, key, kind, where, options=options)
            described = db.describe(table)
            if described["type"] != "table":
                raise InvalidArgument(
                    f"{described['path']} is a {described['type']}, not a table", "Name a table."
                )
            before = described["rows"]
            incoming = _read(db.runtime.spark, kind, where, options, described)
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


def _create(
    db: Database, table: str, key: str | None, kind: Format, where: list[str], *, options: dict[str, str]
) -> bool:
    """Create the table from the files' columns if it is missing and a key is given; return whether it was."""
    if key is None:
        return False
    try:
        db.describe(table)
        return False
    except PathNotFound:
        pass
    sample = _reader(db.runtime.spark, kind, {**options, "inferSchema": "true"}, where)
    columns = {field.name: _type_name(field.dataType) for field in sample.schema.fields}
    names = [name.strip() for name in key.split(",")]
    for name in names:
        if name not in columns:
            raise InvalidArgument(f"the files have no column {name}", f"They have {', '.join(columns)}.")
    lines = [
        f"{quote(name)} {type_}{' NOT NULL' if name in names else ''}" for name, type_ in columns.items()
    ]
    db.sql(f"CREATE TABLE {quote(table)} ({', '.join(lines)}, PRIMARY KEY ({', '.join(map(quote, names))}))")
    return True


def _type_name(type_: DataType) -> str:
    name = type_.simpleString()
    if name.startswith(("struct", "array", "map")):
        return "Json"
    return {"timestamp_ntz": "Timestamp", "string": "Utf8", "binary": "String", "void": "Utf8"}.get(
        name, name
    )


def _reader(spark: SparkSession, kind: Format, options: dict[str, str], where: list[str]) -> DataFrame:
    reader = spark.read.option("mode", "FAILFAST")
    if kind == "parquet":
        return reader.parquet(*where)
    if kind == "csv":
        for name, value in options.items():
            reader = reader.option(name, value)
        return reader.csv(where)
    return reader.json(where)


def _read(
    spark: SparkSession, kind: Format, where: list[str], options: dict[str, str], described: dict[str, Any]
) -> DataFrame:
    """The files' rows. Text formats are read as text and then cast to the table's types, so that nothing is
    guessed from the data."""
    from pyspark.sql import functions as F

    from strandline.storage.spark.columns import col, spark_type
    from strandline.types import parse_type

    if kind == "json":
        frame = spark.read.option("mode", "FAILFAST").option("primitivesAsString", "true").json(where)
    else:
        frame = _reader(spark, kind, options, where)
    if kind == "csv" and options["header"] == "false":
        names = [column["name"] for column in described["columns"]]
        if len(frame.columns) != len(names):
            raise InvalidArgument(
                f"the files have {count(len(frame.columns), 'column')}, the table has {len(names)}",
                "Without a header, the files must have the table's columns in its order.",
            )
        frame = frame.toDF(*names)
    types = {column["name"]: parse_type(column["type"]) for column in described["columns"]}
    if kind == "parquet":
        return frame
    chosen = []
    for field in frame.schema.fields:
        type_, here = types.get(field.name), col(field.name)
        name = field.dataType.simpleString()
        if name.startswith(("struct", "array", "map")):
            if type_ is not None and type_.kind != "json":
                raise Unsupported(
                    f"the column {field.name} holds nested values and is not Json",
                    "Make it a Json column, or flatten it.",
                )
            here = F.to_json(here)
        elif type_ is not None and type_.kind != "json":
            here = here.cast(spark_type(type_))
        chosen.append(here.alias(field.name))
    return frame.select(*chosen)
