"""``describe``: show what the catalog has recorded about a path."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Annotated, Any, NamedTuple

import typer

from strandline.cli.options import LOOK_AROUND, PathArgument, command
from strandline.cli.session import Cli
from strandline.cli.values import format_owner, size
from strandline.errors import InvalidArgument

if TYPE_CHECKING:
    from strandline.cli.output import Output


def register(app: typer.Typer) -> None:
    command(app, "describe", LOOK_AROUND, example="strandline describe /orders")(describe)


def describe(
    cli: Cli,
    path: PathArgument,
    *,
    files: Annotated[
        bool, typer.Option("--files", help="Show the files of the table, and how to merge them.")
    ] = False,
    at: Annotated[
        str | None,
        typer.Option("--at", metavar="STEP|TIME", help="With --files: the table at that step or time."),
    ] = None,
    backup: Annotated[
        str | None,
        typer.Option("--backup", metavar="COLLECTION[/BACKUP]", help="With --files: the table in a backup."),
    ] = None,
    pack: Annotated[
        str | None,
        typer.Option(
            "--pack",
            metavar="FOLDER",
            help="With --files: write rows that are stored in the catalog to files there.",
        ),
    ] = None,
    duckdb: Annotated[
        bool,
        typer.Option("--duckdb", help="With --files: print the query with which DuckDB reads the table."),
    ] = False,
) -> None:
    """Describe a path: its version and state, and for a table its columns, indexes, rows and digest.

    With --files: list the files of a table, for readers without Strandline."""
    if files:
        tell_files(cli, path, FilesRequest(at, backup, pack), duckdb=duckdb)
        return
    if at or backup or pack or duckdb:
        raise InvalidArgument("--at, --backup, --pack and --duckdb need --files", "Add --files.")
    with cli.database() as db:
        found = db.describe(path)
    cli.output.result(found, lambda: tell_description(cli.output, found))


class FilesRequest(NamedTuple):
    """Arguments of ``db.files``."""

    at: str | None
    backup: str | None
    pack: str | None


def tell_files(cli: Cli, path: str, moment: FilesRequest, *, duckdb: bool) -> None:
    with cli.database() as db:
        found = db.files(path, at=moment.at, backup=moment.backup, pack=moment.pack)
    columns = [{"name": c.name, "type": c.type.name, "physical": c.physical} for c in found.schema.columns]
    parts = [
        {"fold": fold, "file": p.file, "rows": p.rows, "bytes": p.bytes}
        | {"upto": p.upto, "stepped": p.stepped, "op": p.op, "cut": p.cut}
        for fold in ("before", "changes", "after")
        for p in getattr(found, fold)
    ]
    answer: dict[str, Any] = {"path": found.path, "step": found.step, "columns": columns}
    answer |= {"key": [c.physical for c in found.schema.key_columns], "parts": parts}
    if duckdb:
        from strandline.duckdb import query

        answer["duckdb"] = query(found)

    def tell() -> None:
        if duckdb:
            cli.output.line(f"{answer['duckdb']};")
            return
        cli.output.fields([("path", found.path), ("step", found.step), ("key", ", ".join(answer["key"]))])
        cli.output.line()
        heads = ("fold", "rows", "step", "file")
        said = [
            (p["fold"], p["rows"], "in rows" if p["stepped"] else p["upto"], p["file"] or "(in the catalog)")
            for p in parts
        ]
        cli.output.table(heads, said, count=False)

    cli.output.result(answer, tell)


def tell_description(output: Output, found: dict[str, Any]) -> None:
    from strandline.model import index_words

    columns, indexes = found.get("columns"), found.get("indexes")
    parts = {"columns", "indexes"} if found["type"] == "table" else set()
    output.fields(
        (name, _display_value(name, value))
        for name, value in found.items()
        if name not in parts and value is not None
    )
    if found["type"] != "table":
        return
    output.line()
    output.table(
        ("column", "type", "not null"),
        [(c["name"], c["type"], c["not_null"]) for c in columns or ()],
        count=False,
    )
    if indexes:
        output.line()
        output.table(
            ("index", "kind", "on", "cover", "version"),
            [
                (
                    i["name"],
                    index_words(i["kind"], i["unique"]),
                    ", ".join(i["columns"]),
                    ", ".join(i["cover"]),
                    i["version"],
                )
                for i in indexes
            ],
            count=False,
        )


def _display_value(name: str, value: Any) -> Any:
    if name == "owner" and isinstance(value, dict):
        return format_owner(value, time.time())
    return size(value) if name == "bytes" or name.endswith("_bytes") else value
